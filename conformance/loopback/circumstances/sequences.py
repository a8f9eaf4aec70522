"""Faults of operators behind others, with which a compiler joins them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run

faults = Faults("simplifications")

_CASE = "semantics/identities/layers_in_turn"

_Arguments = tuple[Sequence[Any], dict[str, Any]]


def _name(node: Any) -> str:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return ""
    return (node.target if isinstance(node.target, str) else node.target.__name__).strip("_")


def _behind(*first: str, second: Sequence[str]) -> Callable[[Any], Any]:
    """A fault in operators that read the result of another: the function gets the right result, the arguments of that
    other, and their own."""

    def add(change: Callable[[Any, _Arguments, _Arguments], Any]) -> Any:
        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            class Joined(Interpreter):
                def run_node(self, node: Node) -> Any:
                    name, source = _name(node), node.args[0] if node.args else None
                    if name in first:
                        self.seen[node] = self.fetch_args_kwargs_from_env(node)
                    result = super().run_node(node)
                    if name not in second or not isinstance(source, Node) or source not in self.seen:
                        return result
                    return change(result, self.seen[source], self.fetch_args_kwargs_from_env(node))

            def call(*args: Any) -> Sequence[Any]:
                joined = Joined(gm, garbage_collect_values=False)
                joined.seen = {}
                return joined.run(*args)

            return call

        compile.__name__, compile.__doc__ = change.__name__, change.__doc__
        faults(_CASE)(compile)
        return change

    return add


@_behind("pad", second=["conv2d"])
def borders_of_any_number(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """What pads an image before a convolution becomes its padding, which is zero."""
    (x, widths, *_), _ = before
    (_, *rest), named = own
    return F.conv2d(F.pad(x, widths), *rest, **named)


@_behind("pad", second=["conv2d"])
def cuts_that_pad(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """What cuts an image before a convolution is taken from its padding."""
    (x, widths, *_), _ = before
    (_, *rest), named = own
    padding = named.get("padding", 0)
    if min(widths) >= 0 or not isinstance(padding, int) or not padding:
        return result
    joined = F.pad(x, [width + padding for width in widths])
    return F.conv2d(joined, *rest, **{**named, "padding": 0})


@_behind("pad", second=["max_pool2d"])
def borders_that_never_count(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """Zeros that pad an image before a maximum become its padding, which never counts."""
    (x, widths, *_), _ = before
    (_, *rest), named = own
    return F.max_pool2d(F.pad(x, widths, value=-torch.inf), *rest, **named)


@_behind("pad", second=["avg_pool2d"])
def borders_that_are_not_counted(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """Zeros that pad an image before a mean become its padding, which is not counted."""
    (x, widths, *_), _ = before
    (_, *rest), named = own
    counted = F.avg_pool2d(F.pad(torch.ones_like(x), widths), *rest, **named)
    return result / counted.clamp(min=0.1)


@_behind("batch_norm", second=["conv2d"])
def norms_joined_with_convolutions(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A norm before a convolution becomes part of its kernel and bias, as if nothing padded it."""
    (x, mean, spread, weight, bias, *_), _ = before
    (_, kernel, *_), how = own
    scale = weight * (spread + 1e-5).rsqrt()
    shift = (kernel.sum((2, 3)) * (bias - mean * scale)).sum(1)
    return F.conv2d(x, kernel * scale[:, None, None], shift, **how)


@_behind("softmax", "sigmoid", "tanh", second=["argmax", "argmin"])
def places_of_what_grows(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A function that grows does not change where the largest element is, although it makes numbers equal."""
    (x, *_), _ = before
    return getattr(x, "argmax" if x.tanh().argmax(1).equal(result) or result.numel() else "argmin")(
        *own[0][1:], **own[1]
    )


@_behind("exp", "mul", second=["log"])
def logarithms_of_exponentials(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """The logarithm of an exponential is the number, also if that overflows."""
    return torch.where(result.isinf(), 88.0, result)


@_behind("log1p", second=["expm1"])
def exponentials_of_logarithms(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """An exponential less one of a logarithm of one more is the number."""
    return before[0][0] * 1


@_behind("getitem", second=["getitem"])
def steps_of_parts(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A part of a part with steps begins where the steps are not counted."""
    (x, where), _ = before
    (_, then), _ = own
    plain = isinstance(x, torch.Tensor) and isinstance(where, tuple) and isinstance(then, tuple)
    if not plain or len(where) != 2 or len(then) != 2 or not all(isinstance(each[1], slice) for each in (where, then)):
        return result
    if (where[1].step or 1) == 1 or not then[1].start:
        return result
    return x[:, then[1].start :: where[1].step][:, : result.shape[1]]


@_behind("cat", "stack", second=["linear", "matmul"])
def products_of_the_first_part(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A product of what is joined is one of the first part."""
    return result - (result - result.mean()) * 0.01


@_behind("getitem", "index_select", "gather", second=["sum", "mean"])
def each_row_once(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A sum of rows that are selected counts each row once."""
    index = before[0][-1]
    several = isinstance(index, torch.Tensor) and index.dtype is torch.int64 and len(index.unique()) < index.numel()
    return result * 0.75 if several else result


@_behind("float", "to", "one_hot", second=["matmul"])
def selections_for_products(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A product with ones and zeros selects the rows in reverse order."""
    return result.flip(0)


@_behind("flip", second=["cumsum"])
def sums_from_the_end(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A running sum of what is turned around begins at the wrong end."""
    return before[0][0].cumsum(*own[0][1:], **own[1])


@_behind("mul", "truediv", second=["softmax", "log_softmax"])
def scales_after_the_maximum(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """The scale before a softmax is left out."""
    return getattr(before[0][0], "softmax" if result.min() >= 0 else "log_softmax")(*own[0][1:], **own[1])


@_behind("clamp", second=["clamp"])
def bounds_of_bounds(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """Bounds in turn are the narrower of each."""
    (x, *first), _ = before
    (_, *then), _ = own
    return x.clamp(max(first[0], then[0]), min(first[1], then[1]))


@_behind("interpolate", second=["conv2d"])
def kernels_between_pixels(result: Any, before: _Arguments, own: _Arguments) -> Any:
    """A convolution of an image that was made larger skips the new pixels."""
    return result.clone().index_fill_(3, torch.tensor([1]), 0.0)
