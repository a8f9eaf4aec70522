"""``compile(shapes_spec=...)``: which sizes of the arguments are symbolic, said in one place and for good.

torch's ``ShapesSpec`` names the parameters of the compiled function.  A ``ShapeVar`` is a size that nothing may depend
on (:func:`.tensor_marks.mark_unbacked`), a number is that size, and whatever the specification leaves out is a
constant.  What it can say besides (numbers, containers, sizes computed from others, assumptions) is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.registry.errors import ConstraintViolation, InvalidOption
from torchmux.registry.names import class_with_article

from ..guards.sources import Local, Source
from .tensor_marks import STATIC, UNBACKED, Mark


@dataclass(frozen=True)
class Shapes:
    """What a specification says about the parameters of one function."""

    code: Any
    params: dict[str, tuple[Mark | int, ...]]

    @property
    def key(self) -> Hashable:
        return tuple(self.params.items())

    def marks(self, tensor: torch.Tensor, source: Source) -> dict[int, Mark]:
        """The marks of an input.

        Raises:
            ConstraintViolation: the tensor is none that the specification allows.
        """
        said = self.params.get(source.name) if isinstance(source, Local) else None
        if said is None:
            return dict.fromkeys(range(tensor.dim()), Mark(STATIC))
        if len(said) != tensor.dim():
            raise ConstraintViolation(
                f"shapes_spec says that {source.words()} has {len(said)} dimensions, but it has {tensor.dim()}. "
                "Pass such a tensor, or change the spec."
            )
        for index, (dim, size) in enumerate(zip(said, tensor.shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise ConstraintViolation(
                    f"shapes_spec says that dimension {index} of {source.words()} is {dim}, but it is {size}. "
                    "Pass such a tensor, or say ShapeVar() there."
                )
        return {index: Mark(STATIC) if isinstance(dim, int) else dim for index, dim in enumerate(said)}


def shapes_of(spec: Any, model: Any) -> Shapes | None:
    """What ``compile(model, shapes_spec=spec)`` asks for.

    Raises:
        InvalidOption: it is no specification for this function, or one that is not understood.
    """
    if spec is None:
        return None
    try:
        from torch.fx.experimental import dynamic_spec as torchs
    except ImportError:
        why = f"shapes_spec needs torch.fx.experimental.dynamic_spec, which torch {torch.__version__} does not have."
        raise InvalidOption(why) from None

    if isinstance(spec, (dict, torchs.ParamsSpec)):
        spec = torchs.ShapesSpec(spec)
    if not isinstance(spec, torchs.ShapesSpec):
        raise InvalidOption(f"shapes_spec takes a torch.fx.experimental.dynamic_spec.ShapesSpec, not {spec!r:.80}.")
    params = spec._params or torchs.ParamsSpec()
    if spec._assumptions or params._varargs is not None or params._varkw is not None:
        raise InvalidOption("shapes_spec: assumptions, '*args' and '**kwargs' are not supported; use torch._check.")
    function: Callable = model.forward if isinstance(model, torch.nn.Module) else model
    names = list(inspect.signature(function).parameters)
    seen: set[int] = set()
    found: dict[str, tuple[Mark | int, ...]] = {}
    for name, said in params._named_args.items():
        if name not in names:
            raise InvalidOption(f"shapes_spec names {name!r}, but the parameters are {', '.join(names)}.")
        if said is None:
            continue
        if not isinstance(said, torchs.TensorSpec):
            raise InvalidOption(f"shapes_spec: {name!r} takes a TensorSpec, not {class_with_article(said)}.")
        found[name] = tuple(_dimension(dim, name, seen, torchs.ShapeVar) for dim in said)
    return Shapes(getattr(function, "__code__", None), found)


def _dimension(dim: Any, name: str, seen: set[int], variable: Any) -> Mark | int:
    if dim is None:
        return Mark(STATIC)
    if type(dim) is int:
        return dim
    if type(dim) is not variable or id(dim) in seen:
        raise InvalidOption(
            f"shapes_spec: a dimension of {name!r} is {dim!r}; each takes a ShapeVar of its own, a number or None. "
            "Say with torch._check in the function how sizes depend on each other."
        )
    seen.add(id(dim))
    return Mark(UNBACKED, dim.min, dim.max)
