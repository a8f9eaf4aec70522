"""``torch.optim``: the state that an optimizer keeps for each parameter is created before its step is captured."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import StateChanged
from ..polyfills import optim_
from ..values.base import Raised, Value
from ..values.constants import ConstValue
from ..values.containers.mappings import DictValue
from ..values.containers.sequences import ListValue, TupleValue
from ..values.functions import wrap_function
from ..values.scalars import number_of
from ..values.tensors import TensorValue
from .classify import patched_by_torch
from .table import handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

FALSE = ConstValue(False)


def _initialized(function: Any) -> None:
    """An optimizer's ``_init_group``: it collects tensors in lists, and makes the state of parameters that have none.

    Traced unchanged, the first step would be one graph, and all others, which find existing state, another.  Creating
    the state is the first thing that a step does, so creating it before the graph has no visible effect.
    """
    lists = function.__code__.co_argcount - 2  # besides the optimizer and the group

    def init_group(tr: Tracer, optimizer: Value, *args: Value, **kwargs: Value) -> Value:
        real = optimizer.real()
        if isinstance(real, torch.optim.Optimizer) and _plain(type(real)._init_group) is function and not tr.effects:
            before = _count(real)
            for group in real.param_groups:
                try:
                    function(real, group, *([] for _ in range(lists)))
                except Exception as error:  # a switch turned on late, for which the state has nothing
                    raise Raised(tr.exception(error)) from None
            if _count(real) > before:
                raise StateChanged("an optimizer has made the state of its parameters")
        return wrap_function(tr, function, None).call(tr, [optimizer, *args], kwargs)

    handles(function)(init_group)


def _by_numbers_in_a_tensor(function: Any) -> None:
    """``torch._foreach_addcdiv`` and its like, whose factors may be the elements of a tensor instead of numbers."""

    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        if len(args) == 4 and isinstance(args[3], TensorValue):
            factors = [factor for factor in args[3].unpack(tr) if isinstance(factor, TensorValue)]
            args = (*args[:3], ListValue([number_of(tr, factor) for factor in factors]))
        return tr.emit("call_function", function, list(args), kwargs)

    handles(function)(answer)


for _function in (torch._foreach_addcdiv, torch._foreach_addcdiv_, torch._foreach_addcmul, torch._foreach_addcmul_):
    _by_numbers_in_a_tensor(_function)


def _whole_step(function: Any) -> None:
    """``torch._fused_adam_`` and its like: a step in one operator, which no tracer of operators takes apart."""

    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        raise GraphBreak(breaks.NO_FAKE, f"{function.__name__}, a step in one operator (fused=True)")

    handles(function)(answer)


for _name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"):
    if hasattr(torch, _name):
        _whole_step(getattr(torch, _name))


def _by_both_ways(function: Any, written: Any) -> None:
    """A step that decides by what is in a tensor is traced as ``written``, which computes both ways and chooses."""

    def step(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        as_numbers = not isinstance(kwargs.get("lr"), TensorValue)
        decides = all(name in kwargs and not kwargs[name].truth(tr) for name in ("capturable", "differentiable"))
        chosen = written if as_numbers and decides and agree(function, written) else function
        return wrap_function(tr, chosen, None).call(tr, list(args), kwargs)

    handles(function)(step)


@functools.cache
def agree(function: Any, written: Any) -> bool:
    """Whether ``written`` gives the bits that the step of the installed torch gives, in a trial on both sides of its
    decision; where it does not, the step is traced as torch has it, and breaks the graph.
    """
    try:
        return all(_trial(function, decay) == _trial(written, decay) for decay in (0.0, 0.1))
    except Exception:  # this torch calls it otherwise
        return False


def _trial(step: Any, decay: float) -> list[Any]:
    """All tensors after ten steps, the decision of which falls about the sixth."""
    numbers = torch.linspace(-1, 1, 8, dtype=torch.float32, device="cpu")
    params, count = [numbers.clone(), torch.view_as_complex(numbers.reshape(4, 2)).clone()], torch.tensor
    state = [[torch.zeros_like(p) for p in params] for _ in range(2)]
    single = [[count(value, dtype=torch.float32, device="cpu") for _ in params] for value in (1.0, 0.01, 0.0)]
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": decay, "maximize": decay > 0, "differentiable": False}
    options |= {"capturable": False, "has_complex": True}
    if "asgd" in step.__name__:
        lists = [state[0], *single]
        options |= {"lambd": 1e-4, "t0": 5.0, "alpha": 0.75}
    else:
        lists = [*state, single[2]]
        options |= {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "decoupled_weight_decay": decay > 0}
    with torch.no_grad():
        for _ in range(10):
            step(params, [p.cos() for p in params], *lists, **options)
    return [t.tolist() for each in (params, *lists) for t in each]


handles(optim_.number)(number_of)

for _name, _written in (("asgd", optim_.single_tensor_asgd), ("radam", optim_.single_tensor_radam)):
    if (_step := getattr(sys.modules.get(f"torch.optim.{_name}"), f"_single_tensor_{_name}", None)) is not None:
        _by_both_ways(_step, _written)


@handles(ti.group_tensors_by_device_and_dtype)
def group_tensors(tr: Tracer, lists: Value, with_indices: Value = FALSE) -> Value:
    """Lists of tensors, split by what the tensors of the first list are; the order of the groups is torch's own."""
    rows = [row.unpack(tr) for row in lists.unpack(tr)]
    try:
        groups = ti.group_tensors_by_device_and_dtype([[v.fake(tr) for v in row] for row in rows], True)
    except RuntimeError as error:  # of no tensors, say
        raise Raised(tr.exception(error)) from None
    entries = {}
    for key, (_, picked) in groups.items():
        columns = ListValue([ListValue([row[i] for i in picked] if row else []) for row in rows])
        indices = tr.lift(list(picked) if with_indices.truth(tr) else [])
        entries[key] = (tr.lift(key), TupleValue([columns, indices]))
    return DictValue(entries)


def _count(optimizer: torch.optim.Optimizer) -> int:
    return sum(1 + len(state) for state in optimizer.state.values())


def _plain(function: Any) -> Any:
    return patched_by_torch(function) or function


for _cls in vars(torch.optim).values():
    _function = vars(_cls).get("_init_group") if isinstance(_cls, type) else None
    if isinstance(_function, types.FunctionType):
        _initialized(_plain(_function))
