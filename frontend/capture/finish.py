"""The end of a capture: the graph is closed and compiled, and the code that replaces the frame is written.

A trace ends where the frame returns, at a graph break, or before a loop that is left to eager.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import FunctionCtx

from torchmux import torch_internals as ti
from torchmux.registry.errors import CompilationFailed, FallbackRefused, FloatsNeeded
from torchmux.registry.plain import PlainGraph
from torchmux.registry.report import GraphReport, Strict
from torchmux.sooner import wait_for

from .. import breaks
from ..breaks import GraphBreak
from ..bytecode import begins, live_locals, loop_exits, parameters, reads_globals, takes
from ..guards.check import CompiledGuards
from ..guards.filter import filter_guards
from ..guards.guards import GuardSet
from ..guards.sources import Local
from ..higher_order.forward_mode import leaving_levels
from ..higher_order.graph_effects import writes_through_data
from ..hook import eager_policy
from ..hook.calls import LOOP, OTHER_GLOBALS, REST, frame_of
from ..hook.thread_state import this_thread
from ..sizes.shape_env import add_shape_guards, check_constraints
from ..trace.attention_switches import Switches
from ..trace.autocast_regions import restoring
from ..trace.recorder import grad_mode
from ..trace.trace import Trace
from ..values.base import NULL, Value
from ..values.constants import ConstValue
from ..values.local_classes import check_nothing_leaves
from .assumed_branches import Check
from .attempts import FloatsAreConstants, Stop
from .captured import Captured, CodeState
from .ending import Ending
from .failures import FailureCheck, keep_tried
from .frame_writer import Output

_CALLS = ("call_function", "call_method", "call_module", "get_attr")


def at_return(tr: Trace, state: CodeState, result: Value, compile_graph: Callable) -> Captured:
    """The frame has returned ``result``."""
    out = Output(tr)
    if tr.expectations:
        out.check = Check(tr, out, state)
    elif tr.starts_again:
        out.check = FailureCheck(tr, out)
    text = out.value(result) if not isinstance(result, ConstValue) else result.rebuild(out)
    out.replay_effects()
    out.restore_state()
    keep_tried(tr, out)
    captured, frame_fn = _compile(tr, out, text, compile_graph)
    captured.ending = Ending(tuple(out.arguments))
    captured.code = captured.ending.code(tr.code, frame_fn, None, _home(tr, state.strict))
    return captured


def at_break(tr: Trace, state: CodeState, stop: Stop, compile_graph: Callable) -> Captured:
    """The trace has come to a break: what comes after the broken instruction is resumed."""
    captured, frame_fn, arguments, stack, names = _up_to_break(tr, state, compile_graph)
    captured.broke = breaks.record(stop.broke)

    def resumes(index: int, stack: tuple[bool, ...], locals_: tuple[str, ...]) -> types.CodeType:
        resumed = state.resume(tr.code)(index, stack, locals_)
        eager_policy.resumes_in(resumed, tr)
        captured.in_eager = ""
        return resumed

    captured.in_eager = REST
    may_end = bool(tr.expectations) or tr.starts_again
    captured.ending = Ending(arguments, tr.break_index, stack, names, may_end=may_end)
    captured.code = captured.ending.code(tr.code, frame_fn, resumes, _home(tr, state.strict), state.link_to)
    return captured


def _home(tr: Trace, strict: Strict) -> tuple[dict, Callable[[], None]] | None:
    """The globals that were captured, if the frame reads them, and what notes, or refuses, a call in others.

    No check sees the globals of a frame, and functions may share their code.
    """
    code = tr.code
    if not reads_globals(code):
        return None

    def note() -> None:
        if strict:
            raise FallbackRefused(f"strict={strict!r}, but {code.co_qualname} would run in eager: {OTHER_GLOBALS}")
        if (record := this_thread.doing.owner) is not None:
            record.note_eager(code, OTHER_GLOBALS)

    ti.set_code_exec_strategy(note.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    return tr.root.namespace, note


def _up_to_break(
    tr: Trace, state: CodeState, compile_graph: Callable, eager_loop: bool = False
) -> tuple[Captured, Callable, tuple[tuple[str, str], ...], tuple[bool, ...], tuple[str, ...]]:
    """The capture of what comes before the break: its function, its arguments, and the stack and locals it leaves."""
    root, index = tr.root, tr.break_index
    out = Output(tr, resumes=True)
    if tr.expectations:
        out.check = Check(tr, out, state, ends=False)
    elif tr.starts_again:
        out.check = FailureCheck(tr, out, ends=False)
    stack = tuple(value is NULL for value in root.stack)
    live = live_locals(root.program, index)
    kept = {name: value for name in sorted(live) if (value := root.locals.get(name)) is not None}
    untouched = [name for name in sorted(live) if name not in kept and tr.has_argument(name)]
    on_stack = [v for v in root.stack if v is not NULL]
    operands = 0 if eager_loop else takes(root.program, index)  # which the broken instruction gets as they are
    out.hide(on_stack, [*kept.values(), *root.stack[len(root.stack) - operands :]])
    parts = [out.value(v) for v in (*on_stack, *kept.values())]
    parts += [out.load(Local(name)) for name in untouched]  # whatever they are: nothing looks at them
    out.replay_effects()
    out.restore_state()
    keep_tried(tr, out)
    text = "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"
    captured, frame_fn = _compile(tr, out, text, compile_graph)
    return captured, frame_fn, tuple(out.arguments), stack, (*kept, *untouched)


def with_cells(code: types.CodeType, state: CodeState) -> Captured:
    """All of the frame goes on in a function that gets its cells as parameters as well, and is captured by itself."""
    unguarded = GuardSet(global_state=False)
    captured = Captured(code, qualname=code.co_qualname, guards=CompiledGuards(unguarded), frame=frame_of(code))
    captured.ending = Ending(None, 0, cuts=(begins(code),))
    captured.code = captured.ending.code(code, None, state.resume(code), None)
    return captured


def before_loop(tr: Trace, state: CodeState, stop: Stop, compile_graph: Callable) -> Captured:
    """A loop is left to eager: what comes before it is captured, if there is enough of it; what follows is resumed."""
    assert stop.eager_loop is not None

    def resumes(cut: int, stack: tuple[bool, ...], locals_: tuple[str, ...]) -> types.CodeType:
        resumed = state.resume(tr.code)(cut, stack, locals_)
        eager_policy.goes_on_in(resumed)
        return resumed

    code, program = tr.code, tr.root.program
    if not stop.step or tr.op_count < eager_policy.FEW:
        cuts = loop_exits(program, stop.eager_loop, 0, parameters(code))
        if not cuts:
            stop.broke.whole_frame = True
            raise stop.broke
        captured = Captured(code, qualname=code.co_qualname, guards=CompiledGuards(tr.guards), frame=frame_of(code))
        captured.ending = Ending(None, 0, cuts=tuple(cuts))
        captured.code = captured.ending.code(code, None, resumes, None, state.link_to)
    else:
        captured, frame_fn, arguments, stack, names = _up_to_break(tr, state, compile_graph, True)
        cuts = loop_exits(program, stop.eager_loop, tr.break_index, names)
        may_end = bool(tr.expectations) or tr.starts_again
        captured.ending = Ending(arguments, tr.break_index, stack, names, tuple(cuts), may_end)
        captured.code = captured.ending.code(code, frame_fn, resumes, _home(tr, state.strict), state.link_to)
    captured.broke = breaks.record(stop.broke)
    captured.in_eager = LOOP
    return captured


def _compile(tr: Trace, out: Output, result: str, compile_graph: Callable) -> tuple[Captured, Callable]:
    """Close the graph, hand it to the backend, and write the frame function."""
    code = tr.code
    check_nothing_leaves(tr, out.names.namespace)
    if any(issubclass(type(value), FunctionCtx) for value in tr.frame_locals.values()) and writes_through_data(tr.main):
        stop = GraphBreak(breaks.OPERATION, f"{code.co_qualname} writes through .data, behind autograd's back")
        stop.frames.append((code.co_filename, code.co_firstlineno, code.co_name))
        raise stop  # in eager: autograd would see the same write of a compiled graph
    captured = Captured(code, op_count=tr.op_count, qualname=code.co_qualname, frame=frame_of(code))
    captured.has_effects, captured.globals_id = bool(tr.effects), id(tr.root.namespace)
    runner = None
    graph = tr.finish(out.graph_outputs) if tr.op_count or out.graph_outputs else None
    if graph is not None and (out.graph_outputs or any(node.op in _CALLS for node in graph.graph.nodes)):
        captured.graph = graph
        captured.inputs = [(node.name, source, node in tr.static_inputs) for node, source in tr.inputs]
        example_inputs = [tr.real_inputs[node] for node, _ in tr.inputs]
        static = tuple(i for i, (node, _) in enumerate(tr.inputs) if node in tr.static_inputs)
        with ti.tracing_context(tr.fake_mode), grad_mode(tr.begin_grad):
            try:
                captured.is_training = _is_training(tr, example_inputs)
                captured.compiled = compile_graph(captured.graph, example_inputs, captured.is_training, static)
            except FloatsNeeded as needed:
                sources = tr.sources_of_floats(needed.symbols)
                if not sources:
                    raise CompilationFailed(str(needed)) from needed
                raise FloatsAreConstants(sources) from None
        runner = _runner(captured)
        if isinstance(out.check, FailureCheck):
            graph = captured.graph
            plain = leaving_levels(restoring(graph.forward, graph), graph)
            out.check.eagerly.plain = _restoring(
                lambda inputs: plain(*inputs), tr.begin_grad, tr.initial_grad, tr.switches
            )
        if tr.begin_grad != tr.initial_grad or tr.switches_grad or tr.switches.written:
            runner = _restoring(runner, tr.begin_grad, tr.initial_grad, tr.switches)
            captured.grad_modes = tr.begin_grad, tr.initial_grad
            captured.sets_switches = bool(tr.switches.written)
    function, captured.text = out.assemble(result, "frame_" + _identifier(code.co_name), runner)
    captured.parts = out.parts(result, runner is not None)
    ti.set_code_exec_strategy(function.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT))
    check_constraints(tr.shape_env, tr.marked)
    add_shape_guards(tr.guards, tr.shape_env, tr.shape_inputs)
    if tr.guard_filter is not None:
        filter_guards(tr.guards, tr.guard_filter, tr.frame_locals)
    captured.guards = CompiledGuards(tr.guards)
    return captured, function


def guards_of(tr: Trace) -> CompiledGuards | None:
    """The check of what a trace has read that came to nothing; None if it cannot be made.

    An entry with such a check runs the program as it stands: whatever it leaves out costs a chance, not a result.
    """
    try:
        add_shape_guards(tr.guards, tr.shape_env, tr.shape_inputs)
        if tr.guard_filter is not None:
            filter_guards(tr.guards, tr.guard_filter, tr.frame_locals)
        return CompiledGuards(tr.guards)
    except Exception:
        return None


def _is_training(tr: Trace, inputs: list[Any]) -> bool:
    return tr.begin_grad and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)


def _runner(captured: Captured) -> Callable:
    """A function that runs the compiled graph with the frame hook off for it and all that it calls."""
    compiled = captured.compiled.function if type(captured.compiled) is PlainGraph else captured.compiled
    compiled, local = leaving_levels(restoring(compiled, captured.graph), captured.graph), this_thread
    is_profiled, record_function, unknown = ti.is_profiled, torch.profiler.record_function, GraphReport("?")
    runner: Any = None  # does the same in a call of the usual kind

    def run_graph(inputs: tuple) -> Any:
        if runner is not None and (results := runner(inputs)) is not NotImplemented:
            return results
        owner = local.doing.owner
        if owner is not None:
            owner[captured][0] += 1
        if is_profiled():
            with record_function(f"torchmux {getattr(captured.compiled, 'report', unknown).backend} {captured.number}"):
                return compiled(*inputs)
        try:
            return compiled(*inputs)
        except ctypes.ArgumentError as error:
            _translated(error)
            raise

    def make_runner(cls: Any) -> None:
        nonlocal runner
        plain = ti.in_plain_mode(compiled)
        modes = None if plain is None else forward_ad
        runner = cls(captured, local, is_profiled, modes, compiled if plain is None else plain, _translated)

    ti.set_code_exec_strategy(run_graph.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    wait_for("runner", run_graph, make_runner)
    return run_graph


def _translated(error: BaseException) -> None:
    """Raise what ctypes means where Python's limit is reached while it converts an argument."""
    if isinstance(error, ctypes.ArgumentError) and "RecursionError" in str(error):
        raise RecursionError("maximum recursion depth exceeded while calling compiled code") from None


def _restoring(run: Callable, begin: bool, after: bool, switches: Switches) -> Callable:
    """``run`` for a graph that begins in grad mode ``begin``, or sets global state.

    Whether or not it fails, the state is what it was, and the grad mode is ``after``.
    """
    set_grad_enabled, restore = ti.set_grad_enabled, switches.restore

    def run_graph(inputs: tuple) -> Any:
        set_grad_enabled(begin)
        try:
            return run(inputs)
        finally:
            set_grad_enabled(after)
            restore()

    ti.set_code_exec_strategy(run_graph.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    return run_graph


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "lambda"
