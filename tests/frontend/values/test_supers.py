"""``super()`` before and after a graph break."""

import torch

import torchmux


class Base:
    def __init__(self):
        self.made_by = "Base"

    def scaled(self, x):
        return x * 2

    @classmethod
    def made(cls):
        return cls()


class Derived(Base):
    def __init__(self):
        torchmux.graph_break()
        parent = super()
        torchmux.graph_break()
        parent.__init__()
        self.n = 3

    def scaled(self, x):
        parent = super()
        torchmux.graph_break()
        return parent.scaled(x) * self.n

    @classmethod
    def made(cls):
        parent = super()
        torchmux.graph_break()
        return parent.made()


def test_a_super_object_outlives_a_graph_break():
    def fn(x):
        obj = Derived.made()
        return obj.scaled(x.sin()) + 1, obj.made_by

    x = torch.ones(3)
    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        result, made_by = compiled(x)
        assert torch.equal(result, fn(x)[0])
        assert made_by == "Base"
    assert torchmux.report(compiled).graph_count > 1


class Counting(torch.Tensor):
    @staticmethod
    def __new__(cls, data):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)

    def __init__(self, data):
        super().__init__()
        self.held = data

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def test_the_constructor_of_a_tensor_subclass_calls_that_of_its_base():
    compiled = torchmux.compile(lambda x: Counting(x.sin()).held * 2, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() * 2)
