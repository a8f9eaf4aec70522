"""What libraries ask for keys of caches, versions and tables of parameters is captured, and guarded."""

from __future__ import annotations

import base64
import binascii
import cmath
import collections
import pickle
import struct
import types
import unicodedata
import zlib

import numpy as np
import pytest
import torch

import torchmux

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def compiled(function):
    return torchmux.compile(function, backend="eager")


def in_one_graph(function, *args):
    """The result of a function that is eager's, and no graph break."""
    made = compiled(function)
    found, expected = made(*args), function(*args)
    assert type(found) is type(expected)
    assert not torchmux.report(made).breaks
    return found, expected


CONSTANTS = {
    "pickle of a table": lambda: pickle.dumps({"upper": True, "of": [1, 2.5, None], "by": (1, "x")}),
    "pickle of nothing": lambda: pickle.dumps({}),
    "base64": lambda: base64.b64decode(base64.b64encode(b"abc")),
    "binascii": lambda: binascii.unhexlify(binascii.hexlify(b"ab")),
    "struct": lambda: struct.unpack("<if", struct.pack("<if", 7, 0.5)) + (struct.calcsize("<q"),),
    "checksums": lambda: (zlib.crc32(b"ab"), zlib.adler32(b"ab")),
    "complex numbers": lambda: cmath.sqrt(-4) + cmath.exp(1j),
    "normal forms": lambda: unicodedata.normalize("NFKD", "\u00e9"),
    "a version": lambda: (torch.__version__ >= "1.2", torch.__version__ < (1, 0)),
    "a product of sizes": lambda: np.prod(X.shape),
    "a product of some": lambda: np.prod(X.shape[1:]) + np.max(X.shape),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_computed(name):
    (scaled, found), (_, expected) = in_one_graph(lambda x: (x * 2, CONSTANTS[name]()), X)
    assert torch.equal(scaled, X * 2)
    assert type(found) is type(expected)
    assert found == expected


def test_a_pickle_that_tells_which_texts_are_one_object_is_made_for_real():
    word = "word"
    made = compiled(lambda x: (x * 2, pickle.dumps([word, word])))
    assert made(X)[1] == pickle.dumps([word, word])
    assert [each.kind for each in torchmux.report(made).breaks] == ["TM003"]


def test_arrays_of_tensors():
    assert np.array_equal(*in_one_graph(lambda x: np.asarray(x) * 2, X))
    assert np.array_equal(*in_one_graph(lambda x: np.asarray(x.numpy()), X))
    assert np.array_equal(*in_one_graph(lambda x: np.asarray([1, 2]), X))


def test_the_id_of_a_parameter_is_that_of_the_one_that_is_there():
    layer = torch.nn.Linear(3, 3)
    held = types.SimpleNamespace(tensor=torch.ones(2))
    scales = {id(layer.weight): 2.0, id(held.tensor): 3.0}

    def scaled(x):
        known = [scales.get(id(p), 1.0) for p in layer.parameters()]
        same = hash(layer.weight) == id(layer.weight)
        return x * known[0] + known[1] + scales.get(id(held.tensor), 0.0), same

    made = compiled(scaled)
    for _ in range(2):
        assert torch.equal(made(X)[0], scaled(X)[0])
        assert made(X)[1] is True
        layer.weight = torch.nn.Parameter(torch.ones(3, 3))
    held.tensor = torch.ones(2)
    assert torch.equal(made(X)[0], scaled(X)[0])
    assert not torchmux.report(made).breaks


def test_the_id_of_an_argument_is_no_reason_to_compile_again():
    made = compiled(lambda x: (x * 2, id(x)))
    for _ in range(4):
        x = torch.randn(2)
        assert made(x)[1] == id(x)
    assert not torchmux.report(made).recompiles


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without it")
def test_whether_processes_talk_is_asked_in_each_call():
    def parts(x):
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return x / 2
        return x * 2

    made = compiled(parts)
    assert torch.equal(made(X), X * 2)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert torch.equal(made(X), X / 2)
    finally:
        torch.distributed.destroy_process_group()
    assert torch.equal(made(X), X * 2)
    assert not torchmux.report(made).breaks


MEMORY = {
    "is_set_to": lambda x: (x.is_set_to(x), x.is_set_to(x.clone()), x.view(-1).view(2, 3).is_set_to(x)),
    "const_data_ptr": lambda x: x.const_data_ptr() == x.data_ptr(),
    "_is_view": lambda x: x._is_view(),
    "_use_count": lambda x: x._use_count() > 0,
}


@pytest.mark.parametrize("name", MEMORY)
def test_what_is_asked_of_memory_is_asked_of_the_tensor(name):
    made = compiled(lambda x: (x * 2, MEMORY[name](x)))
    for x in (X.clone(), torch.ones(4, 3)[:2]):
        assert made(x)[1] == MEMORY[name](x)


def test_views_of_ordered_tables():
    table = collections.OrderedDict(a=1, b=2)
    views = types.SimpleNamespace(keys=table.keys(), values=table.values(), items=table.items())

    def summed(x):
        names = "".join(views.keys)
        kind = type(table.keys()).__name__, type(collections.OrderedDict(a=1).items()).__name__
        return x * sum(views.values) + len(views.keys), names, list(views.items), kind

    made = compiled(summed)
    for change in (lambda: None, lambda: table.update(c=3), lambda: table.move_to_end("a"), lambda: table.pop("b")):
        change()
        found, expected = made(X), summed(X)
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]
    assert not torchmux.report(made).breaks
