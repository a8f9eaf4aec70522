"""Compiled code that reads a context variable is compiled again where the variable has something else."""

import contextvars

import torch

import torchmux

OWN = contextvars.ContextVar("own", default=1)
BARE = contextvars.ContextVar("bare")


def read(x):
    return x * OWN.get(), OWN.get(9), BARE.get(7), OWN.name


def test_what_is_read_is_guarded():
    compiled = torchmux.compile(read, backend="eager", fullgraph=True)
    x = torch.ones(2)

    def agree():
        expected, found = read(x), compiled(x)
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]

    agree()
    token = OWN.set(1)  # the default, which differs from a default that is passed
    agree()
    OWN.reset(token)
    agree()
    for value in (7, 8):
        BARE.set(value)
        agree()
    contextvars.Context().run(agree)
    count = torchmux.report(compiled).graph_count
    agree()
    assert torchmux.report(compiled).graph_count == count


def test_one_that_is_not_set_raises_as_in_eager():
    unset = contextvars.ContextVar("unset")

    def reads(x):
        try:
            return x * unset.get()
        except LookupError:
            return x - 1

    compiled = torchmux.compile(reads, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.zeros(2))
    unset.set(3)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_setting_one_breaks_the_graph():
    def counts(x):
        token = OWN.set(OWN.get() + 1)
        y = x * OWN.get()
        OWN.reset(token)
        return y, OWN.get()

    compiled = torchmux.compile(counts, backend="eager")
    for _ in range(2):
        y, after = compiled(torch.ones(2))
        assert torch.equal(y, torch.full((2,), 2.0))
        assert after == 1
