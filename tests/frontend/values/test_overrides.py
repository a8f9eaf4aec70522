"""Objects of the program's that override torch's functions, and a tensor's count of writes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import torchmux

KNOWN = {}


class Quantity:
    """A number with a unit; it also has operators of its own, which Python asks only after the tensor's."""

    def __init__(self, value, unit="m"):
        self.value, self.unit = value, unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in KNOWN:
            return KNOWN[func](*args, **(kwargs or {}))

        def plain(value):
            if isinstance(value, (list, tuple)):
                return [plain(each) for each in value]
            return value.value if isinstance(value, Quantity) else value

        names = (func.__name__, len(types), sorted(kwargs) if kwargs else kwargs)
        return cls(func(*map(plain, args), **(kwargs or {})), names)

    def __radd__(self, other):
        return other * 7

    def __add__(self, other):
        return Quantity(self.value + other, "added")

    def __eq__(self, other):
        return "equal"

    __hash__ = None


class Length(Quantity):
    pass


def mean(quantity, dim=None):
    return quantity.value.mean() * 5


KNOWN[torch.mean] = mean


def look(value):
    if isinstance(value, Quantity):
        return type(value).__name__, look(value.value), value.unit
    return [look(each) for each in value] if isinstance(value, (tuple, list)) else str(value)


def agree(function, breaks):
    compiled = torchmux.compile(function, backend="eager")
    for _ in range(2):
        given = torch.ones(3), Quantity(torch.arange(3.0))
        assert look(compiled(*given)) == look(function(*given))
    assert len(torchmux.report(compiled).breaks) == breaks


def functions(x, quantity):
    first = torch.add(quantity, x), torch.sub(x, quantity, alpha=2), torch.stack([x, quantity], dim=0)
    second = F.relu(quantity), F.softmax(quantity, -1), F.layer_norm(quantity, (3,)), torch.mean(quantity)
    third = (
        x.mul(quantity),
        torch.where(x > 0, quantity, 0.0),
        torch.add(quantity, Length(x)),
        torch.sum(quantity, dim=0),
    )
    return first, second, third, torch.is_tensor(quantity)


def test_functions_and_methods_ask_the_object():
    agree(functions, breaks=0)


def own_operators(x, quantity):
    return quantity + x, quantity == x, x + 1


def operators_of_the_tensor(x, quantity):
    y = x * 2
    return x + quantity, y


def comparison_of_the_tensor(x, quantity):
    return x == quantity, x + 1


def test_operators_ask_in_the_order_of_python():
    agree(own_operators, breaks=0)
    agree(operators_of_the_tensor, breaks=1)
    agree(comparison_of_the_tensor, breaks=1)


class Undecided:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def undecided(x, quantity):
    try:
        return torch.add(x, Undecided())
    except TypeError as error:
        return type(error).__name__


def test_nobody_knows_the_function():
    agree(undecided, breaks=1)


# --- Tensor._version ------------------------------------------------------------------------------------------------


WRITES = [
    lambda x: x.add_(1), lambda x: F.relu(x, inplace=True), lambda x: x.__setitem__(0, 1),
    lambda x: torch.add(x, 1, out=x), lambda x: x[1:].mul_(2), lambda x: torch._foreach_add_([x], 1.0),
    lambda x: torch.nn.init.ones_(x), lambda x: x.data.add_(1), lambda x: x.detach().mul_(2),
    lambda x: x.clone().add_(1), lambda x: F.dropout(x, 0.5, True, True), lambda x: x.unsqueeze(0).exp_(),
    lambda x: x.copy_(x * 2),
]  # fmt: skip


def versions(x, write):
    before = x._version
    write(x)
    after = x._version - before
    write(x)
    return x * 1, after, x._version - before, x._version


def test_versions_count_writes():
    for write in WRITES:
        torchmux.reset()
        compiled = torchmux.compile(versions, backend="aot_eager")
        for rows in (4, 4, 5, 4):
            expected, found = (torch.ones(rows, 3) for _ in range(2))
            for tensor in (expected, found):
                for _ in range(rows):
                    tensor.mul_(1)
            torch.manual_seed(0)
            answers = versions(expected, write)
            torch.manual_seed(0)
            assert look(compiled(found, write)) == look(answers)
        assert not torchmux.report(compiled).breaks
        assert len(torchmux.report(compiled).graphs) <= 3


def written_through_another(x, y):
    before = x._version
    y.add_(1)
    return x._version - before, x + y


def test_a_write_through_memory_that_is_shared_counts():
    compiled = torchmux.compile(written_through_another, backend="eager")
    x, other = torch.ones(4), torch.ones(4)
    for y in (x[:], other, x[:], x):
        expected = written_through_another(x, y)[0]
        assert compiled(x, y)[0] == expected


def test_inference_tensors_have_no_versions():
    compiled = torchmux.compile(lambda x: (x + 1, x._version), backend="eager")
    with torch.inference_mode():
        x = torch.ones(2)
    try:
        compiled(x)
    except RuntimeError as error:
        assert "version counter" in str(error)
    else:
        raise AssertionError("an inference tensor counted its writes")
