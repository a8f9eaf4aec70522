"""Whether torch runs what the report attributes to the backend.

The calls of a case are replayed, with copies of their inputs and their gradients, under torch's profiler, which sees
every operator that torch runs, whoever asks for it.  Operators that only create or move data are nobody's computation.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from .calls import tensors_in

LARGEST = 1 << 24
"""Calls with more bytes of inputs are not replayed."""

MOVES = frozenset(
    (
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "zeros",
        "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones", "new_full",
        "scalar_tensor", "tensor", "lift", "lift_fresh", "lift_fresh_copy", "zero", "fill", "fill_", "zero_",
        "as_strided", "as_strided_", "view", "view_as", "reshape", "alias", "detach", "detach_", "expand",
        "expand_as", "permute", "transpose", "t", "numpy_T", "transpose_", "t_", "squeeze", "squeeze_",
        "unsqueeze", "unsqueeze_", "select", "slice", "narrow", "diagonal", "unfold", "split",
        "split_with_sizes", "chunk", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "unbind", "unflatten",
        "flatten", "ravel", "movedim", "moveaxis", "swapaxes", "swapdims", "mT", "mH", "matrix_H", "adjoint",
        "atleast_1d", "atleast_2d", "atleast_3d", "tensor_split", "hsplit", "vsplit", "dsplit", "meshgrid",
        "reshape_as", "linalg_diagonal", "real", "imag",
        "view_as_real", "view_as_complex", "resolve_conj", "resolve_neg", "conj", "copy_", "_foreach_copy_",
        "_to_copy", "to",
        "clone", "contiguous", "result_type", "set_", "resize_", "resize_as_", "item", "_local_scalar_dense",
        "is_nonzero", "cat", "is_same_size", "size", "stride", "numel", "storage_offset", "record_stream",
        "_unsafe_view", "_reshape_alias", "_reshape_copy", "new_empty_like", "broadcast_to", "sum_to_size",
        "pin_memory", "is_pinned", "empty_quantized", "_efficientzerotensor", "random_", "uniform_",
        "normal_", "bernoulli_", "native_dropout", "rand", "randn", "randint", "rand_like", "randn_like",
        "randint_like", "randperm", "set_data", "_version", "isfinite", "equal", "broadcast_tensors",
        "flatten_dense_tensors", "unflatten_dense_tensors", "_conj",
        "_conj_physical", "_neg_view", "requires_grad_", "retain_grad", "output_nr", "is_leaf", "sym_size",
        "sym_stride", "sym_numel", "sym_storage_offset", "slice_backward", "select_backward", "diagonal_backward",
        "stack", "arange", "_has_compatible_shallow_copy_type", "_has_same_storage_numel", "_assert_async",
    )
)  # fmt: skip
"""These create or move data, or draw random numbers or raise exceptions, which have to be torch's."""

_OF_OTHERS = frozenset(("add", "sum", "unfold_backward", "aminmax"))
"""With the first three, the engine of gradients joins those of several readers, and undoes a broadcast or a view.

With the last one, adapters look for indices that are out of range, of which their compilers say nothing.
"""


@dataclass
class Call:
    """A call of a compiled function that can be made again, on copies of its inputs."""

    function: Any
    args: Any
    keywords: Any
    grad: bool
    inference: bool

    @property
    def kind(self) -> Any:
        """Equal for calls that may share code."""
        tensors = tensors_in((self.args, self.keywords))
        made = [(t.shape, t.dtype, t.is_contiguous(), t.requires_grad) for t in tensors]
        return tuple(made), self.grad, self.inference

    def prepared(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """``function`` in place of the compiled one, on copies of the inputs."""
        args, keywords = self.copies()

        def run() -> Any:
            with torch.inference_mode(self.inference), torch.set_grad_enabled(self.grad):
                return function(*args, **keywords)

        return run

    def run(self) -> None:
        gradients_of(self.prepared(self.function)())

    def copies(self) -> Any:
        wants = [t.requires_grad for t in tensors_in((self.args, self.keywords))]
        once = {id(t): t.detach() for t in tensors_in((self.args, self.keywords))}  # one tensor given twice stays one
        bare = _pytree.tree_map_only(torch.Tensor, lambda t: once[id(t)], (self.args, self.keywords))
        copied = copy.deepcopy(bare)
        for tensor, wanted in zip(tensors_in(copied), wants, strict=True):
            tensor.requires_grad_(wanted)
        return copied


def gradients_of(results: Any) -> None:
    """Compute the gradients of all leaves that results depend on, parameters among them; nothing accumulates."""
    ends = [t for t in tensors_in(results) if t.requires_grad]
    if ends and (leaves := _leaves(ends)):
        torch.autograd.grad(ends, leaves, [torch.ones_like(end) for end in ends], allow_unused=True)


def _leaves(ends: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors whose gradients a backward pass from ``ends`` would accumulate."""
    found: dict[int, torch.Tensor] = {id(end): end for end in ends if end.is_leaf}
    waiting, seen = [end.grad_fn for end in ends if end.grad_fn is not None], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(leaf := getattr(node, "variable", None), torch.Tensor):
            found[id(leaf)] = leaf
        waiting += [before for before, _ in node.next_functions if before is not None]
    return list(found.values())


KINDS = 3
"""How many kinds of calls of one function are replayed besides the last one, if a backend computes by itself."""


class Watch:
    """Keeps the last call of each compiled function, and the first ones of so many other ``kinds``, and replays them.

    Calls are of one kind if their tensors have the same sizes, dtypes, order in memory and needs of gradients, and the
    modes are the same: a backend may have code for some kinds only.
    """

    def __init__(self, kinds: int = 0) -> None:
        self._most = kinds
        self._calls: dict[int, Call] = {}
        self._kinds: dict[int, dict[Any, Call]] = {}

    def keep(self, function: Any, args: Any, keywords: Any) -> None:
        """Keep a call that is about to happen, unless it cannot be copied."""
        if sum(t.untyped_storage().nbytes() for t in tensors_in((args, keywords)) if _is_plain(t)) > LARGEST:
            return
        if not all(map(_is_plain, tensors_in((args, keywords)))):
            return
        call = Call(function, args, keywords, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        kind = call.kind
        call.args, call.keywords = call.copies()
        self._calls[id(function)] = call
        kinds = self._kinds.setdefault(id(function), {})
        if kind in kinds or len(kinds) < self._most:
            kinds[kind] = call

    @property
    def calls(self) -> list[Call]:
        return list(self._calls.values())

    def ran(self, graphs: Callable[[], int]) -> set[str]:
        """The names of the computing operators that torch runs in the calls; ``graphs()`` counts what is compiled."""
        found: set[str] = set()
        kinds = (call for calls in self._kinds.values() for call in calls.values())
        for call in {id(call): call for call in (*self._calls.values(), *kinds)}.values():
            with contextlib.suppress(Exception):  # a case may end with a call that eager refuses as well
                found |= self._ran(call, graphs)
        return found

    def _ran(self, call: Call, graphs: Callable[[], int]) -> set[str]:
        # What compiles runs operators as well, and a backward graph is compiled when it first runs.
        for _ in range(3):
            before = graphs()
            call.run()
            if graphs() == before:
                with torch.autograd.profiler.profile() as profile:
                    call.run()
                return set(_computed(profile.function_events))
        return set()


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _computed(events: Sequence[Any]) -> Iterator[str]:
    for event in events:
        name = event.name.removeprefix("aten::")
        if event.name.startswith("aten::") and name not in MOVES and not _is_derived(event):
            whole = _whole(event)
            if whole is event:
                yield name
            elif not whole.name.startswith("aten::"):
                yield whole.name


_DERIVED = re.compile(r"autograd::engine::evaluate_function: \w+Backward\d+")
"""The nodes that autograd records for torch's own operators; those of functions written in Python have no number."""


def _is_derived(event: Any) -> bool:
    """Whether autograd's engine runs it outside of all compiled code, for an operator that torch has run before.

    That operator is seen when it runs.  What passes a gradient from a view on to its base belongs to no operator.
    """
    node = ""
    while event is not None:
        if event.name.startswith("AsStridedBackward"):
            return True
        if event.name.startswith("autograd::engine::evaluate_function"):
            node = event.name  # the outermost one counts: compiled code may ask autograd for derivatives itself
        event = event.cpu_parent
    return _DERIVED.fullmatch(node) is not None


_OPERATOR = re.compile(r"(?!autograd::)\w+::\w+(\.\w+)?")
"""The names of operators, also those that libraries register."""


def _whole(event: Any) -> Any:
    """The outermost operator that the event is a step of, which is named instead; the event itself if it is none."""
    found, parent = event, event.cpu_parent
    while parent is not None:
        if _OPERATOR.fullmatch(parent.name):
            found = parent
        parent = parent.cpu_parent
    return found


def bare(operator: str) -> str:
    """``softmax`` of ``aten._softmax.default`` and ``Tensor.softmax``."""
    parts = operator.replace("::", ".").split(".")
    if parts[0] == "aten" and len(parts) > 1:
        return parts[1].strip("_")
    if parts[-1] == "default":  # of a library's operator
        return parts[-2].strip("_")
    return parts[-1].strip("_")


def silently(ran: set[str], reported: Iterable[str]) -> list[str]:
    """What torch ran although no report says so."""
    known = set(map(bare, reported)) | _OF_OTHERS
    return sorted(name for name in ran if bare(name) not in known)
