"""Beside torch's own tracer, which tells the hook that all share never to ask about some code again."""

import pytest
import torch

import torchmux
from torchmux.frontend.hook import frames

X = torch.ones(3, 2, 4)


def root():
    return torch.nn.GRU(4, 5), "GRU.forward"


def called_in_eager():
    """Behind a break, the layer is called by a frame of which nothing can be captured."""
    layer = torch.nn.GRU(4, 5)

    def run(x):
        for each in (layer, torch.relu):  # a loop that breaks runs in eager
            x = each(x)
            print(end="")
            x = x[0] if isinstance(x, tuple) else x
        return x

    return run, "GRU.forward"


def without_operators():
    """That tracer never captures a function in which it finds no operator."""

    class Net(torch.nn.Module):
        active = False

        def forward(self, x):
            return x.relu() + 1 if self.active else x

    net = Net()
    torch.compile(net, backend="eager")(X)
    net.active = True
    return net, "without_operators.<locals>.Net.forward"


@pytest.mark.parametrize("program", [root, called_in_eager, without_operators])
@pytest.mark.parametrize("first", ["torch", "torchmux"])
def test_what_it_leaves_alone_is_captured_or_counted_in_each_call(program, first):
    fn, name = program()
    theirs, ours = torch.compile(fn, backend="eager"), torchmux.compile(fn, backend="eager")
    if first == "torch":
        theirs(X)
    for _ in range(6):
        ours(X)
        theirs(X)
    calls = {each.function: each for each in torchmux.report(ours).calls}
    found = calls[name]
    assert found.compiled + sum(found.eager.values()) == 6, torchmux.report(ours)
    assert not found.eager or program is called_in_eager


def test_the_hook_asks_only_where_something_is_new(monkeypatch):
    """Asking takes longer than many a call: what one frontend said does not make the other decide in each call."""
    fn, _ = called_in_eager()
    theirs, ours = torch.compile(fn, backend="eager"), torchmux.compile(fn, backend="eager")
    for _ in range(3):
        theirs(X)
        ours(X)
    asked = []
    decide = frames.decide
    ours._torchmux_session.callback._decide = lambda session, frame: asked.append(frame) or decide(session, frame)
    for _ in range(3):
        theirs(X)
        ours(X)
    assert not asked
