"""Compiled functions go to other processes as the function and the arguments of ``compile()``."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle

import pytest
import torch

import torchmux


def plain(x):
    """Its text."""
    return x + 1


@torchmux.compile(backend="eager", fullgraph=True)
def decorated(x):
    return x * 2


class Holder:
    scale = 3

    def method(self, x):
        return x * self.scale

    @torchmux.compile(backend="eager")
    def compiled_method(self, x):
        return x - self.scale


X = torch.ones(3)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_by_reference_and_arguments(protocol):
    made = torchmux.compile(plain, backend="eager", fullgraph=True, dynamic=False)
    again = pickle.loads(pickle.dumps(made, protocol))
    assert torch.equal(again(X), X + 1)
    assert again._torchmux_original is plain
    assert again._torchmux_arguments == made._torchmux_arguments
    assert torchmux.report(again).graph_count == 1


def test_a_decorated_function_is_itself():
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_methods():
    bound = pickle.loads(pickle.dumps(torchmux.compile(Holder().method, backend="eager")))
    assert torch.equal(bound(X), X * 3)
    holder = Holder()
    assert torch.equal(holder.compiled_method(X), X - 3)
    assert torch.equal(pickle.loads(pickle.dumps(holder.compiled_method))(X), X - 3)
    assert torch.equal(torchmux.compile(lambda x: holder.compiled_method(x) * 2, backend="eager")(X), (X - 3) * 2)


def test_what_cannot_be_pickled_says_so_as_the_function_does():
    function = lambda x: x + 1  # noqa: E731
    with pytest.raises((pickle.PicklingError, AttributeError)) as of_function:
        pickle.dumps(function)
    with pytest.raises(of_function.type, match="Can't (pickle|get local object).*lambda"):
        pickle.dumps(torchmux.compile(function, backend="eager"))


def test_copies_are_the_same():
    made = torchmux.compile(plain, backend="eager")
    assert copy.copy(made) is copy.deepcopy(made) is made


def test_it_looks_like_the_function():
    made = torchmux.compile(plain, backend="eager")
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("plain", "Its text.", plain)
    assert inspect.signature(made) == inspect.signature(plain)
    assert repr(made).startswith("<compiled <function plain at ")
    assert callable(made) and not inspect.iscoroutinefunction(made)


def test_a_partial_of_one_and_one_in_a_graph():
    made = torchmux.compile(plain, backend="eager")
    assert torch.equal(functools.partial(made, X)(), X + 1)
    outer = torchmux.compile(lambda x: made(x) * functools.partial(made, x)(), backend="eager", fullgraph=True)
    assert torch.equal(outer(X), (X + 1) * (X + 1))


def test_in_workers_that_are_spawned(tmp_path, run_python):
    (tmp_path / "work.py").write_text(
        "import torch, torchmux\n"
        "def double(x): return x * 2\n"
        "collate = torchmux.compile(lambda b: b, backend='eager')\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __init__(self): self.f = torchmux.compile(double, backend='eager')\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, n): return self.f(torch.tensor([float(n)]))\n"
        "if __name__ == '__main__':\n"
        "    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context='spawn')\n"
        "    print(sum(b.item() for b in loader))\n"
    )
    assert run_python("import runpy; runpy.run_path('work.py', run_name='__main__')", path=(tmp_path,)) == "12.0\n"
