"""From a frame to a compiled entry: attempts, graph breaks, the backend's call, the code that replaces the frame."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchmux import torch_internals as ti
from torchmux.config import config
from torchmux.registry.errors import CompilationFailed, FloatsNeeded
from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

from .. import breaks, logs
from ..breaks import BreakRecord, GraphBreak
from ..bytecode import (
    break_trampoline,
    eager_trampoline,
    in_handler,
    live_locals,
    loop_exits,
    parameters,
    resume_code,
    return_trampoline,
)
from ..guards.check import CompiledGuards
from ..guards.filter import filter_guards
from ..guards.sources import Local, Source
from ..hook import eager_policy, interrupts
from ..hook.thread_state import running
from ..sizes.dynamic import DynamicDims, NeedsShapeEnv
from ..sizes.shape_env import add_shape_guards, check_constraints
from ..trace.attention_switches import Switches
from ..trace.autocast_regions import restoring
from ..trace.recorder import grad_mode
from ..trace.trace import Trace
from ..values.base import NULL, StateChanged, Value
from ..values.constants import ConstValue
from ..values.local_classes import ClassNeeded
from ..values.texts import TextNeeded
from .assumed_branches import Check, leaves_no_trace
from .frame_writer import Output
from .tracebacks import stands_for

_MAX_ATTEMPTS = 64  # each cached function that has to run first takes one
_EXTRA_RECURSION = 3000
_CALLS = ("call_function", "call_method", "call_module", "get_attr")


@dataclass(eq=False)
class Captured:
    """What one frame became."""

    # Runs in place of the frame's code; the C hook takes it over.  It refers to what it runs, and the garbage collector
    # does not see into code: kept here, it would close a cycle that never goes.
    code: types.CodeType | None
    guards: CompiledGuards | None = None
    graph: Any = None  # GraphModule, if there were operators
    compiled: Any = None  # the backend's callable
    op_count: int = 0
    broke: BreakRecord | None = None
    capture_seconds: float = 0.0
    text: str = ""
    qualname: str = ""
    inputs: list[tuple[str, Source, bool]] = field(default_factory=list)  # placeholder, its source, is it a parameter


@dataclass(eq=False)
class CodeState:
    """What is remembered of one code object under one compile() call, over all its compilations."""

    seen: dict[str, Any] = field(default_factory=dict)  # input -> sizes seen, for automatic dynamic shapes
    entries: list[Captured] = field(default_factory=list)
    # (index, stack, locals) -> resume code, so that every compilation of a frame resumes in the same code object
    resumes: dict[tuple, types.CodeType] = field(default_factory=dict)
    runs_eager: bool = False
    may_expect: bool = True  # branches that only raise are taken for not taken
    may_put_off: bool = True  # class statements wait until somebody needs the class
    failures: int = 0  # attempts of which nothing came
    called: bool = False  # under a stance that compiles for the second call

    def resume(self, code: types.CodeType) -> Callable:
        """What gives ``break_trampoline`` the code to go on in."""

        def make(index: int, stack: tuple[bool, ...], locals_: tuple[str, ...]) -> types.CodeType:
            key = (index, tuple(stack), tuple(locals_))
            if key not in self.resumes:
                self.resumes[key] = resume_code(code, index, stack, locals_)
            return self.resumes[key]

        return make


def capture(
    frame: Any,
    state: CodeState,
    compile_graph: Callable[[Any, list, bool, tuple[int, ...]], Callable],
    *,
    dynamic: bool | None,
    automatic: bool,
    fullgraph: bool,
    guard_filter: Callable | None,
    asked_for: bool = True,
) -> Captured:
    """Capture ``frame`` and compile its graph.

    ``compile_graph(gm, example_inputs, training, static_inputs)`` is the backend; ``asked_for`` says that its
    user wants a graph of just this frame.  Raises GraphBreak when nothing of the frame can be captured, or, with
    ``fullgraph``, at the first break; NotWorthIt where it had better run in eager.
    """
    started = time.perf_counter()
    dims = DynamicDims(
        state.seen,
        dynamic,
        automatic,
        scalars=fullgraph or config.capture_scalar_outputs,
        dynamic_outputs=fullgraph or config.capture_dynamic_output_shape_ops,
    )
    symbolic, captured = False, None
    while captured is None:
        try:
            with tracer_stand_in():
                captured = _capture(
                    frame, state, dims, compile_graph, fullgraph, guard_filter, asked_for, symbolic=symbolic
                )
        except NeedsShapeEnv:  # what lives on after the graph was the first to be symbolic
            symbolic = True
        except FloatsNeeded:
            pass  # one float less is symbolic now
        except TextNeeded:
            state.may_expect = False
        except ClassNeeded:
            state.may_put_off = False
    captured.capture_seconds = time.perf_counter() - started
    assert captured.code is not None
    stands_for(captured.code, frame.f_code)
    logs.captured(frame.f_code, captured)
    return captured


def _capture(
    frame: Any,
    state: CodeState,
    dims: DynamicDims,
    compile_graph: Callable,
    fullgraph: bool,
    guard_filter: Callable | None,
    asked_for: bool,
    *,
    symbolic: bool,
) -> Captured:
    code = frame.f_code
    with interrupts.deferred(), logs.without_meta_errors():
        limit = sys.getrecursionlimit()
        # a frame of the program takes several of the interpreter's own
        sys.setrecursionlimit(limit + _EXTRA_RECURSION)
        try:
            tr, result, broke, loop = _trace(frame, dims, fullgraph, symbolic, state)
        except RecursionError as error:
            raise GraphBreak(breaks.TOO_DEEP, "Python's recursion limit was reached while tracing", error) from None
        finally:
            sys.setrecursionlimit(limit)
    tr.guard_filter = guard_filter
    if result is None:
        assert broke is not None
        if loop is not None:
            return _finish_loop(tr, code, state, broke, loop, compile_graph)
        if in_handler(tr.root.program, tr.break_index):
            broke.reason += " (while an exception is being handled, where a frame cannot be resumed)"
            raise broke
        if not tr.op_count and broke.kind in (breaks.EXCEPTION, breaks.OPERATOR_FAILED):
            raise broke  # eager raises the exception, and there is no graph to keep
        return _finish_break(tr, code, state, broke, compile_graph)
    eager_policy.check(tr, asked_for)
    return _finish_return(tr, code, state, result, compile_graph)


def _trace(
    frame: Any, dims: DynamicDims, fullgraph: bool, symbolic: bool, state: CodeState
) -> tuple[Trace, Value | None, GraphBreak | None, eager_policy.EagerLoop | None]:
    """Trace until an attempt comes to the end of the frame or to the break that an earlier attempt found."""
    seen_before, may_expect = dict(dims.seen), state.may_expect
    stop_at, broke, loop = None, None, None
    for _ in range(_MAX_ATTEMPTS):
        dims.seen.clear()
        dims.seen.update(seen_before)
        tr = Trace(
            frame.f_code, frame.f_locals, frame.f_globals, frame.closure or (), dims, symbolic=symbolic,
            stop_at=stop_at, may_expect=may_expect, may_put_off=state.may_put_off,
        )  # fmt: skip
        try:
            result = tr.run()
            if not tr.expectations or leaves_no_trace(tr):
                return tr, result, broke, loop
            may_expect = False
        except NeedsShapeEnv:
            symbolic = True
        except StateChanged:
            continue
        except GraphBreak as stop:
            stop.is_error = fullgraph or tr.breaks_are_errors
            if tr.put_off and not stop.is_error:
                raise ClassNeeded from stop
            if tr.texts and not (stop.is_error or stop.whole_frame):
                may_expect = False  # an earlier branch breaks the graph now
                continue
            if stop.is_error or stop.whole_frame or (stop_at is not None and tr.step >= stop_at):
                raise
            stop_at, broke = tr.step, stop
            loop = eager_policy.left_to_eager(tr, stop.kind)
            if loop is not None:
                broke.reason = eager_policy.note(broke.reason)
                stop_at = loop.step
                if not stop_at:
                    return tr, None, broke, loop
    raise broke or GraphBreak(breaks.INSTRUCTION, "the frame does not come to the same break twice")


def _finish_return(
    tr: Trace, code: types.CodeType, state: CodeState, result: Value, compile_graph: Callable
) -> Captured:
    out = Output(tr)
    if tr.expectations:
        out.check = Check(tr, out, code, tr.root.namespace, state)
    text = out.value(result) if not isinstance(result, ConstValue) else result.rebuild(out)
    out.replay_effects()
    out.restore_state()
    captured, frame_fn = _compile(tr, out, text, code, compile_graph)
    captured.code = return_trampoline(code, frame_fn, list(out.arguments))
    return captured


def _finish_break(
    tr: Trace, code: types.CodeType, state: CodeState, broke: GraphBreak, compile_graph: Callable
) -> Captured:
    captured, frame_fn, arguments, stack, names = _up_to_break(tr, code, state, compile_graph)
    captured.broke = breaks.record(broke)

    def resumes(index: int, stack: tuple[bool, ...], locals_: tuple[str, ...]) -> types.CodeType:
        resumed = state.resume(code)(index, stack, locals_)
        eager_policy.resumes_in(resumed, tr)
        return resumed

    captured.code = break_trampoline(
        code, frame_fn, arguments, tr.break_index, stack, names, resumes, bool(tr.expectations)
    )
    return captured


def _up_to_break(
    tr: Trace, code: types.CodeType, state: CodeState, compile_graph: Callable
) -> tuple[Captured, Callable, list[tuple[str, str]], list[bool], list[str]]:
    """The capture of what comes before the break: its function, its arguments, and the stack and locals it leaves."""
    root, index = tr.root, tr.break_index
    out = Output(tr)
    if tr.expectations:
        out.check = Check(tr, out, code, tr.root.namespace, state, ends=False)
    stack = [value is NULL for value in root.stack]
    live = live_locals(root.program, index)
    kept = {name: value for name in sorted(live) if (value := root.locals.get(name)) is not None}
    untouched = [name for name in sorted(live) if name not in kept and tr.has_argument(name)]
    on_stack = [v for v in root.stack if v is not NULL]
    out.hide(on_stack, list(kept.values()))
    parts = [out.value(v) for v in (*on_stack, *kept.values())]
    parts += [out.load(Local(name)) for name in untouched]  # whatever they are: nothing looks at them
    out.replay_effects()
    out.restore_state()
    text = "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"
    if tr.expectations:
        text = f"False, {text}"
    captured, frame_fn = _compile(tr, out, text, code, compile_graph)
    return captured, frame_fn, list(out.arguments), stack, [*kept, *untouched]


def _finish_loop(
    tr: Trace,
    code: types.CodeType,
    state: CodeState,
    broke: GraphBreak,
    loop: eager_policy.EagerLoop,
    compile_graph: Callable,
) -> Captured:
    """What comes before the loop is captured, if there is enough of it; what follows is resumed."""

    def resumes(cut: int, stack: tuple[bool, ...], locals_: tuple[str, ...]) -> types.CodeType:
        resumed = state.resume(code)(cut, stack, locals_)
        eager_policy.goes_on_in(resumed)
        return resumed

    program = tr.root.program
    if not loop.step or tr.op_count < eager_policy.FEW:
        cuts = loop_exits(program, loop.head, 0, parameters(code))
        if not cuts:
            broke.whole_frame = True
            raise broke
        captured = Captured(code, qualname=code.co_qualname, guards=CompiledGuards(tr.guards))
        captured.code = eager_trampoline(code, None, 0, cuts, resumes)
    else:
        captured, frame_fn, arguments, stack, names = _up_to_break(tr, code, state, compile_graph)
        cuts = loop_exits(program, loop.head, tr.break_index, names)
        before = frame_fn, arguments, stack, names
        captured.code = eager_trampoline(code, before, tr.break_index, cuts, resumes, bool(tr.expectations))
    captured.broke = breaks.record(broke)
    return captured


def _compile(
    tr: Trace, out: Output, result: str, code: types.CodeType, compile_graph: Callable
) -> tuple[Captured, Callable]:
    """Close the graph, hand it to the backend, and write the frame function."""
    captured = Captured(code, op_count=tr.op_count, qualname=code.co_qualname)
    runner = None
    graph = tr.finish(out.graph_outputs) if tr.op_count or out.graph_outputs else None
    if graph is not None and (out.graph_outputs or any(node.op in _CALLS for node in graph.graph.nodes)):
        captured.graph = graph
        captured.inputs = [(node.name, source, node in tr.static_inputs) for node, source in tr.inputs]
        example_inputs = [tr.real_inputs[node] for node, _ in tr.inputs]
        static = tuple(i for i, (node, _) in enumerate(tr.inputs) if node in tr.static_inputs)
        with ti.tracing_context(tr.fake_mode), grad_mode(tr.begin_grad):
            try:
                captured.compiled = compile_graph(
                    captured.graph, example_inputs, _is_training(tr, example_inputs), static
                )
            except FloatsNeeded as needed:
                if not tr.fix_floats(needed.symbols):
                    raise CompilationFailed(str(needed)) from needed
                raise
        runner = _runner(captured)
        if tr.begin_grad != tr.initial_grad or tr.switches_grad or tr.switches.written:
            runner = _restoring(runner, tr.begin_grad, tr.initial_grad, tr.switches)
    function, captured.text = out.assemble(result, "frame_" + _identifier(code.co_name), runner)
    ti.set_code_exec_strategy(function.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT))
    check_constraints(tr.shape_env, tr.marked)
    add_shape_guards(tr.guards, tr.shape_env, tr.shape_inputs)
    if tr.guard_filter is not None:
        filter_guards(tr.guards, tr.guard_filter, tr.frame_locals)
    captured.guards = CompiledGuards(tr.guards)
    return captured, function


def _is_training(tr: Trace, inputs: list[Any]) -> bool:
    import torch

    return tr.begin_grad and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)


def _runner(captured: Captured) -> Callable:
    """A function that runs the compiled graph with the frame hook off for it and all that it calls."""
    compiled, local = restoring(captured.compiled, captured.graph), running

    def run_graph(*inputs: Any) -> Any:
        owner = local.owner
        if owner is not None:
            owner.setdefault(captured)
        return compiled(*inputs)

    ti.set_code_exec_strategy(run_graph.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    return run_graph


def _restoring(run: Callable, begin: bool, after: bool, switches: Switches) -> Callable:
    """``run`` for a graph that begins in grad mode ``begin``, or sets global state.

    Whether or not it fails, the state is what it was, and the grad mode is ``after``.
    """
    set_grad_enabled, restore = ti.set_grad_enabled, switches.restore

    def run_graph(*inputs: Any) -> Any:
        set_grad_enabled(begin)
        try:
            return run(*inputs)
        finally:
            set_grad_enabled(after)
            restore()

    ti.set_code_exec_strategy(run_graph.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    return run_graph


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "lambda"
