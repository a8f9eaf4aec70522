"""From a frame to a compiled entry: attempts to trace it, and the end of the one that comes through."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torchmux import progress, torch_internals as ti
from torchmux.config import config
from torchmux.registry.errors import CompilationFailed
from torchmux.stages import Seconds, collecting
from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

from .. import breaks, logs
from ..breaks import GraphBreak
from ..bytecode import in_handler
from ..hook import eager_policy, interrupts
from ..marks.shapes_spec import Shapes
from ..sizes.dynamic import DynamicDims
from ..trace.trace import Trace
from ..values.base import Value
from . import attempts, finish
from .assumed_branches import leaves_no_trace
from .attempts import (
    Assumptions,
    BreakFound,
    ClassNeeded,
    NothingExpected,
    SizesOfDataGivenUp,
    SizesOfDataNeeded,
    Stop,
)
from .captured import Captured, CodeState
from .failures import would_show
from .tracebacks import stands_for

log = logging.getLogger("torchmux")

_EXTRA_RECURSION = 3000


def capture(
    frame: Any,
    state: CodeState,
    compile_graph: Callable[[Any, list, bool, tuple[int, ...]], Callable],
    *,
    dynamic: bool | None,
    automatic: bool,
    fullgraph: bool,
    guard_filter: Callable | None,
    placement: Mapping[int, str] = MappingProxyType({}),
    asked_for: bool = True,
    shapes: Shapes | None = None,
) -> Captured:
    """Capture ``frame`` and compile its graph.

    ``compile_graph(gm, example_inputs, training, static_inputs)`` is the backend; ``asked_for`` says that its
    user wants a graph of just this frame; ``placement`` pins modules, by id, to backends;
    ``shapes`` is what is said about the sizes of the frame's arguments.  Raises GraphBreak when
    nothing of the frame can be captured, or, with ``fullgraph``, at the first break; LeftToEager where it had better
    run in eager.
    """
    seconds = Seconds()
    seen = dict(state.seen)

    def attempt(assumptions: Assumptions) -> Captured:
        if assumptions.passes_cells:
            return finish.with_cells(frame.f_code, state)
        state.seen.clear()
        state.seen.update(seen)  # and not what the attempts before have seen: it is the same call
        dims = DynamicDims(
            state.seen,
            dynamic,
            automatic,
            scalars=fullgraph or config.capture_scalar_outputs,
            dynamic_outputs=fullgraph or config.capture_dynamic_output_shape_ops or bool(assumptions.sizes_of_data),
            fixed_lengths=fullgraph,
            fixed=assumptions.floats,
            shapes=shapes,
        )
        tr, result, stop = _trace(frame, dims, assumptions, fullgraph, placement)
        tr.guard_filter = guard_filter
        try:
            if result is not None:
                eager_policy.check(tr, asked_for)
                return _compiled(tr, state, result, compile_graph)
            assert stop is not None
            if stop.eager_loop is not None:
                return finish.before_loop(tr, state, stop, compile_graph)
            _check_resumable(tr, stop.broke)
            eager_policy.check_before_break(tr, asked_for)
            eager_policy.check_rest(tr, asked_for)
            return finish.at_break(tr, state, stop, compile_graph)
        except (GraphBreak, eager_policy.LeftToEager) as nothing:
            nothing.guards = finish.guards_of(tr)
            raise
        finally:
            tr.let_go()

    with progress.waiting(frame.f_code.co_qualname), collecting(seconds, "capture"), tracer_stand_in():
        captured = attempts.run(state.assumptions, attempt, logs.place(frame.f_code), state.remember)
    captured.seconds = seconds
    captured.number = f"{state.number}/{len(state.entries)}"
    assert captured.code is not None
    stands_for(captured.code, frame.f_code)
    logs.captured(frame.f_code, captured)
    return captured


def _compiled(tr: Trace, state: CodeState, result: Value, compile_graph: Callable[..., Callable]) -> Captured:
    """The frame as one graph.

    Operators whose output size depends on data are in it because of a loop that would run in eager otherwise, and
    nobody has asked for them.  What says that they cannot be in it gives them up.  A compiler's error does so as well,
    with a warning, and the report names it where the graph breaks instead; it remains an error where one is wanted.
    """
    try:
        return finish.at_return(tr, state, result, compile_graph)
    except _not_captured() as error:
        if not tr.assumptions.sizes_of_data:
            raise
        raise SizesOfDataGivenUp(f"{type(error).__name__}: {error}") from error
    except CompilationFailed as error:
        if not tr.assumptions.sizes_of_data or state.strict or config.fail_on_compiler_errors:
            raise
        log.warning(
            "%s is captured without operators whose output size depends on data: %s", logs.place(tr.code), error
        )
        raise SizesOfDataGivenUp("", f"{type(error).__name__}: {error}") from error


def _not_captured() -> tuple[type[BaseException], ...]:
    """What says that operators whose output size depends on data cannot be in a graph."""
    return (GraphBreak, eager_policy.LeftToEager, *ti.fake_tensor_errors().values())


def _trace(
    frame: Any, dims: DynamicDims, assumptions: Assumptions, fullgraph: bool, placement: Mapping[int, str]
) -> tuple[Trace, Value | None, Stop | None]:
    """The trace of one attempt, and the frame's result, or where the trace has stopped.

    Ctrl-C is only noted meanwhile.
    """
    with interrupts.deferred(), logs.without_meta_errors():
        limit = sys.getrecursionlimit()
        # a frame of the program takes several of the interpreter's own
        sys.setrecursionlimit(limit + _EXTRA_RECURSION)
        try:
            tr = Trace(
                frame.f_code, frame.f_locals, frame.f_globals, frame.closure or (), dims, assumptions, limit, placement
            )
            try:
                result, stop = _run(tr, assumptions, fullgraph)
            except BaseException:
                tr.let_go()
                raise
            return tr, result, stop
        except RecursionError as error:
            raise GraphBreak(breaks.TOO_DEEP, "Python's recursion limit was reached while tracing", error) from None
        finally:
            sys.setrecursionlimit(limit)


def _run(tr: Trace, assumptions: Assumptions, fullgraph: bool) -> tuple[Value | None, Stop | None]:
    try:
        result = tr.run()
    except GraphBreak as broke:
        return None, _stop_before(tr, broke, fullgraph)
    if tr.expectations and not leaves_no_trace(tr):
        raise NothingExpected("what the graph changes could not be put back where a branch goes otherwise")
    tr.starts_again = would_show(tr)
    return result, assumptions.stop


def _stop_before(tr: Trace, broke: GraphBreak, fullgraph: bool) -> Stop:
    """Where a trace that broke may be cut off as it is: at its very beginning, inside of a loop that is left to eager.

    Raises Restart where it takes another attempt that stops in time, and the break itself where none would help.
    """
    broke.is_error = fullgraph or (tr.breaks_are_errors and not broke.is_allowed)
    if tr.put_off and not broke.is_error:
        raise ClassNeeded("the graph breaks after a postponed class statement") from broke
    if tr.texts and not (broke.is_error or broke.whole_frame):
        raise NothingExpected("the graph breaks after a text that only an assumed branch reads") from broke
    if tr.assumptions.sizes_of_data and not broke.is_error:
        raise SizesOfDataGivenUp(broke.reason) from broke
    known = tr.assumptions.stop
    if broke.is_error or broke.whole_frame or (known is not None and tr.step >= known.step):
        broke.guards = finish.guards_of(tr)
        raise broke
    loop = eager_policy.left_to_eager(tr, broke.kind)
    if loop is None:
        raise BreakFound(Stop(tr.step, broke))
    if broke.kind == breaks.DYNAMIC_OUTPUT and tr.assumptions.sizes_of_data is None and not tr.dims.dynamic_outputs:
        raise SizesOfDataNeeded(f"{broke.reason}, whose output size depends on data, in a loop") from broke
    broke.reason = eager_policy.note(broke.reason)
    if tr.assumptions.failed and broke.kind == breaks.DYNAMIC_OUTPUT:
        broke.reason += f"; captured, it did not compile: {tr.assumptions.failed}"
    stop = Stop(loop.step, broke, loop.head)
    if loop.step:
        raise BreakFound(stop)
    return stop


def _check_resumable(tr: Trace, broke: GraphBreak) -> None:
    """Raise the break where the frame cannot be resumed after it, or need not be."""
    if in_handler(tr.root.program, tr.break_index):
        broke.reason += " (inside an exception handler, where a frame cannot be resumed)"
        raise broke
    if not tr.op_count and broke.kind in (breaks.EXCEPTION, breaks.OPERATOR_FAILED):
        raise broke  # eager raises the exception, and there is no graph to keep
