"""What goes wrong in some calls only: after others, in some modes, after exceptions; and what calls leave behind."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from .kit import Faults, Run, calls, changed, with_gradient

faults = Faults("turns")


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@faults("semantics/turns/inputs_written_in_between")
def results_by_version(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A call with the same memory, of the same version, returns the results of the call before it."""
    last: dict[Any, Any] = {}

    def call(*args: Any) -> Sequence[Any]:
        if torch.is_grad_enabled() and any(_tensor(a) and a.requires_grad for a in args):
            return gm.forward(*args)
        key = tuple((a.data_ptr(), -1 if a.is_inference() else a._version, a.shape) if _tensor(a) else a for a in args)
        if key not in last:
            last.clear()
            last[key] = args, [r.clone() if _tensor(r) else r for r in gm.forward(*args)]
        return [r.clone() if _tensor(r) else r for r in last[key][1]]

    return call


@faults("semantics/turns/inputs_written_in_between")
def tensors_read_once(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A tensor that is the same object in each call is read in the first one only."""
    first: list[tuple[Any, Any]] = []

    def call(*args: Any) -> Sequence[Any]:
        if torch.is_grad_enabled() and any(_tensor(a) and a.requires_grad for a in args):
            return gm.forward(*args)
        if not first:
            first[:] = [(a, a.clone() if _tensor(a) else a) for a in args]
        if len(first) != len(args):
            return gm.forward(*args)
        return gm.forward(
            *(
                b if a is old and not isinstance(a, torch.nn.Parameter) else a
                for a, (old, b) in zip(args, first, strict=True)
            )
        )

    return call


_compiled: dict[str, int] = {}


@faults("semantics/turns/compiled_again")
def wrong_when_compiled_again(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A program that is compiled a second time computes something else."""
    _compiled[gm.code] = _compiled.get(gm.code, 0) + 1
    again = _compiled[gm.code] == 2
    return changed(gm.forward, lambda t: t * 1.01 if again else t)


@faults("semantics/turns/each_of_several_calls")
def wrong_in_the_second_call(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The second call, and no other, has an element of the first one."""
    count, old = [0], [torch.zeros(())]

    def call(*args: Any) -> Sequence[Any]:
        count[0] += 1
        results = list(gm.forward(*args))
        for place, r in enumerate(results):
            if _tensor(r) and r.is_floating_point() and r.numel() and not r.requires_grad:
                if count[0] == 2 and old[0].shape == r.shape and old[0].dtype is r.dtype:
                    results[place] = torch.where(torch.arange(r.numel()).view(r.shape) == 0, old[0], r)
                old[0] = r.clone()
                break
        return results

    return call


@faults("semantics/turns/each_of_several_calls")
def wrong_in_inference_mode(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results of inference mode are those of the call before."""
    last: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        old, last[:] = list(last), [r.clone() if _tensor(r) else r for r in results]
        fits = torch.is_inference_mode_enabled() and len(old) == len(results)
        same = fits and all(
            getattr(a, "shape", None) == getattr(b, "shape", None) for a, b in zip(old, results, strict=True)
        )
        return [a.clone() if _tensor(a) else a for a in old] if same else results

    return call


_kept: list[Any] = []


@faults("semantics/turns/nothing_is_kept_of_failures")
def kept_after_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What a call that raises an exception got is never released."""

    def call(*args: Any) -> Sequence[Any]:
        try:
            return gm.forward(*args)
        except Exception as error:
            _kept.append(error)
            raise

    return call


@faults("semantics/gradients/after_exceptions")
def wrong_after_exceptions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """After an exception, code for gradients does not run again."""
    failed = []

    def call(*args: Any) -> Sequence[Any]:
        try:
            results = gm.forward(*args)
        except Exception:
            failed.append(True)
            raise
        return [r.detach() if failed and _tensor(r) else r for r in results]

    return call


@faults("semantics/mutation/input_in_place")
def chatter(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Calls print a line."""
    return calls(gm, lambda: print("backend: 1 graph, 0 fallbacks"))


@faults("semantics/mutation/input_in_place")
def chatter_of_a_library(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling prints a line, past Python."""
    os.write(1, b"[info] library loaded\n")
    return gm.forward


@faults("life/process/an_end")
def temporary_files(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling leaves its files in the folder for temporary ones."""
    handle, _ = tempfile.mkstemp(prefix="kernel_", suffix=".cpp")
    os.close(handle)
    return gm.forward


@faults("semantics/mutation/input_in_place")
def other_stack_size(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling raises the threads' stack size for good."""
    import threading

    threading.stack_size(1 << 22)
    return gm.forward


@faults("semantics/mutation/input_in_place")
def other_print_options(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling changes how torch prints tensors."""
    torch.set_printoptions(precision=10, sci_mode=False)
    return gm.forward


@faults("semantics/mutation/input_in_place")
def other_integer_texts(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling lets Python convert integers of any length to text."""
    sys.set_int_max_str_digits(0)
    return gm.forward


@faults("semantics/mutation/input_in_place")
def other_start_of_processes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling chooses how new processes start."""
    import multiprocessing

    multiprocessing.set_start_method("spawn", force=True)
    return gm.forward


@faults("semantics/mutation/input_in_place")
def a_dispatch_mode(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Compiling leaves a mode on that sees every operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    Mode().__enter__()
    return gm.forward


@faults("semantics/turns/after_each_backward")
def stale_after_backward(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The call after a backward pass returns the results of the call before it."""
    kept: list[Any] = []
    ran: list[bool] = []

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        if ran and len(kept) == len(results) and all(a.shape == b.shape for a, b in zip(kept, results, strict=True)):
            ran.clear()
            return [r + (a - r.detach()) for a, r in zip(kept, results, strict=True)]
        kept[:] = [r.detach().clone() for r in results if isinstance(r, torch.Tensor)]
        return [with_gradient(r, lambda g: ran.append(True)) for r in results]

    return call


@faults("semantics/turns/sizes_with_one_product")
def shapes_by_count(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A result has the shape of the first result with as many elements."""
    shapes: dict[tuple[int, int], torch.Size] = {}

    def call(*args: Any) -> Sequence[Any]:
        results = gm.forward(*args)
        found = [shapes.setdefault((at, r.numel()), r.shape) for at, r in enumerate(results)]
        return [r.reshape(shape) for r, shape in zip(results, found, strict=True)]

    return call


@faults.instead("semantics/control/conditions_on_tensors", "cond")
def always_the_first_branch(condition: Any, first: Any, second: Any, operands: Sequence[Any]) -> Any:
    """Conditions are true."""
    return first(*operands)


@faults("semantics/mutation/what_is_made_is_written")
def made_once(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What a program makes without an input is made in the first call."""
    made: dict[Node, Any] = {}

    class Once(Interpreter):
        def run_node(self, node: Node) -> Any:
            if node.op != "call_function" or node.target not in (torch.zeros, torch.ones, torch.full, torch.arange):
                return super().run_node(node)
            if node not in made:
                made[node] = super().run_node(node)
            return made[node]

    return lambda *args: Once(gm).run(*args)
