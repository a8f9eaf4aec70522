"""Every error that torchmux raises on purpose.

Each message is one paragraph that says what happened, where, and how to fix it.  A note below it names the command that
goes on from there, where the message itself names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

_COMMAND = "python -m torchmux"


class TorchmuxError(RuntimeError):
    """Base class of all errors raised by torchmux.

    Examples:
        >>> try:
        ...     torchmux.compile(torch.sin, backend="nativ")
        ... except torchmux.TorchmuxError as error:
        ...     print(type(error).__name__, "native" in str(error))
        UnknownBackend True
    """

    next_step: ClassVar[str] = ""
    """A sentence with the command that goes on from such an error; it becomes a note, which tracebacks show."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if self.next_step and not any(_COMMAND in str(each) for each in args):
            self.add_note(self.next_step)


class UnknownBackend(TorchmuxError):
    """No backend has this name; the message suggests the closest known names.

    Examples:
        >>> torchmux.compile(torch.sin, backend="onnxrtt")
        Traceback (most recent call last):
        torchmux.registry.errors.UnknownBackend: ...
    """

    next_step = "`python -m torchmux backends` lists all backends."


class BackendUnavailable(TorchmuxError):
    """The backend is known but cannot run here; the message says what is missing and how to get it.

    Examples:
        >>> torchmux.compile(torch.sin, backend="ipex")
        Traceback (most recent call last):
        torchmux.registry.errors.BackendUnavailable: The backend 'ipex' is retired: ...
    """

    next_step = "`python -m torchmux doctor` checks this machine, and says what each backend lacks."


class BackendConflict(TorchmuxError):
    """Two distributions registered different backends under one name.

    Examples:
        >>> @torchmux.register_backend(name="taken")
        ... def first(gm, example_inputs):
        ...     return gm.forward
        >>> @torchmux.register_backend(name="taken")
        ... def second(gm, example_inputs):
        ...     return gm.forward
        Traceback (most recent call last):
        torchmux.registry.errors.BackendConflict: ...
        >>> torchmux.unregister_backend("taken")
    """

    next_step = "`python -m torchmux backends` says which distribution provides each name."


class InvalidSpec(TorchmuxError):
    """A backend's description is malformed or written for another version of the contract.

    Examples:
        >>> torchmux.register_backend(7, name="seven")
        Traceback (most recent call last):
        torchmux.registry.errors.InvalidSpec: ...
    """

    next_step = "`python -m torchmux backends --template FOLDER` writes a backend that can be loaded, to compare with."


class InvalidOption(TorchmuxError, ValueError):
    """The backend does not have this option or mode, or does not accept this value.

    Examples:
        >>> torchmux.compile(torch.sin, backend="onnxrt", options={"no_such_option": 1})
        Traceback (most recent call last):
        torchmux.registry.errors.InvalidOption: ...
    """

    next_step = "`python -m torchmux backends NAME` lists the options and modes of a backend."


class Unsupported(TorchmuxError):
    """The graph breaks under ``fullgraph=True``; the message has the user's line, the reason and the usual fix.

    Examples:
        >>> def branches(x):
        ...     return x + 1 if x.sum() > 0 else x
        >>> torchmux.compile(branches, backend="eager", fullgraph=True)(torch.ones(2))
        Traceback (most recent call last):
        torchmux.registry.errors.Unsupported: ...
    """


class ConstraintViolation(TorchmuxError):
    """A dimension that is marked dynamic needs a fixed size; the message names the line that requires it.

    Examples:
        >>> def square(x):
        ...     return x @ x if x.shape[0] == 3 else x.reshape(3, 3)
        >>> x = torch.ones(3, 3)
        >>> torchmux.mark_dynamic(x, 0)
        >>> torchmux.compile(square, backend="eager")(x)
        Traceback (most recent call last):
        torchmux.registry.errors.ConstraintViolation: ...
    """

    next_step = "`python -m torchmux explain FILE.py:NAME --input SHAPE` shows what is assumed of each size."


class FallbackRefused(TorchmuxError):
    """Under ``strict=True``, some node would not run in the requested backend.

    Examples:
        >>> def takes_nothing(gm, example_inputs):
        ...     raise torchmux.GraphRefused("it takes nothing")
        >>> torchmux.compile(torch.sin, backend=takes_nothing, strict=True)(torch.ones(2))
        Traceback (most recent call last):
        torchmux.registry.errors.FallbackRefused: ...
    """

    next_step = "`python -m torchmux explain FILE.py:NAME --input SHAPE --backend NAME` shows who runs each operator."


class GraphRefused(TorchmuxError):
    """A backend raises it for a graph that it cannot take and has not changed; the message is the reason.

    Eager then runs the graph, with a line in the log and in the report, or ``strict`` raises an error.

    Examples:
        >>> def small_graphs(gm, example_inputs):
        ...     if len(gm.graph.nodes) > 3:
        ...         raise torchmux.GraphRefused("it takes graphs of one operator")
        ...     return gm.forward
        >>> torchmux.compile(lambda x: x.sin().cos(), backend=small_graphs)(torch.zeros(1))
        tensor([1.])
    """


class LeftToTorch(GraphRefused):
    """A backend's ``rewrite`` raises it for a graph that it could compile, and that torch runs sooner.

    The report says so as of any other graph that torch runs.  The log does at the level of information, since nothing
    is missing.

    Examples:
        >>> raise torchmux.registry.errors.LeftToTorch("one addition takes torch 2 µs")
        Traceback (most recent call last):
        torchmux.registry.errors.LeftToTorch: one addition takes torch 2 µs
    """


class NodesRefused(TorchmuxError):
    """A backend's ``compile`` raises it for nodes that it cannot take after all; the graph is split again without them.

    ``reasons`` maps the names of nodes in the graph that ``compile`` received to the reasons.  Eager runs these nodes,
    with a line in the log and in the report, or ``strict`` raises an error.

    Examples:
        >>> raise torchmux.NodesRefused({"sin_1": "the compiler has no sine"})
        Traceback (most recent call last):
        torchmux.registry.errors.NodesRefused: sin_1: the compiler has no sine
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = dict(reasons)


class FloatsNeeded(TorchmuxError):
    """A backend needs certain floats, which are symbolic in the graph, as constants; the frontend captures again.

    ``symbols`` has their names.
    """

    def __init__(self, backend: str, symbols: frozenset[str]) -> None:
        super().__init__(f"{backend} needs the floats {', '.join(sorted(symbols))} as constants.")
        self.symbols = symbols


class CompilationFailed(TorchmuxError):
    """A backend raised an exception while compiling; the exception is chained.

    ``graph`` is the captured graph as Python.  ``reproducer`` is the file that holds it with inputs like those of the
    call, if they are known.

    Examples:
        >>> def defective(gm, example_inputs):
        ...     raise ValueError("a defect")
        >>> torchmux.compile(torch.sin, backend=defective, strict=True)(torch.ones(2))
        Traceback (most recent call last):
        torchmux.registry.errors.CompilationFailed: ...
    """

    next_step = "`python -m torchmux minify MODULE:NAME --backend NAME` finds the smallest graph that fails."

    graph: str | None = None
    reproducer: Path | None = None


class CallFailed(TorchmuxError):
    """Compiled code raised an exception in a call that cannot be made again in eager; the exception is chained.

    Examples:
        >>> def call(compiled, batch):
        ...     try:
        ...         return compiled(batch)
        ...     except torchmux.CallFailed as error:
        ...         raise RuntimeError("the batch is half done") from error.__cause__
    """

    next_step = "`python -m torchmux minify MODULE:NAME --backend NAME` finds the smallest graph that fails."


class DerivativeUnavailable(TorchmuxError):
    """A compiled graph is differentiated in a way that takes eager, and what eager would need is gone.

    Examples:
        >>> def second_derivative(loss, x):
        ...     try:
        ...         (first,) = torch.autograd.grad(loss, x, create_graph=True)
        ...         return torch.autograd.grad(first.sum(), x)
        ...     except torchmux.DerivativeUnavailable as error:
        ...         print(error)  # what eager would need is gone
    """


class SaveRefused(TorchmuxError):
    """``torchmux.save`` cannot write what was compiled so that it would do the same; the message says why.

    Examples:
        >>> torchmux.save(torchmux.compile(torch.sin, backend="eager"), "sin.tmx")
        Traceback (most recent call last):
        torchmux.registry.errors.SaveRefused: ...
    """


class LoadRefused(TorchmuxError):
    """A saved file is damaged, altered, not signed with the key, or made for another machine or version.

    Nothing in it has run.  The message says what to do.

    Examples:
        >>> torchmux.load("there_is_no_such_file.tmx")
        Traceback (most recent call last):
        torchmux.registry.errors.LoadRefused: ...
    """

    next_step = "`python -m torchmux doctor` shows the processor and the versions that a file must be made for here."


class QuantizationFailed(TorchmuxError):
    """``torchmux.quantize``: the tool does not take the model, or finds nothing in it to quantize.

    Examples:
        >>> def quantized_or_not(model, batches):
        ...     try:
        ...         return torchmux.quantize(model, batches)
        ...     except torchmux.QuantizationFailed as error:
        ...         print(error)
        ...         return model
    """

    next_step = "`python -m torchmux doctor` says which tools are installed."


class NumericsError(TorchmuxError):
    """A compiled graph's result differs from eager by more than the tolerance.

    Examples:
        >>> def wrong(gm, example_inputs):
        ...     return lambda *inputs: tuple(result + 1 for result in gm.forward(*inputs))
        >>> with torchmux.config.patch(verify_correctness=True):
        ...     torchmux.compile(torch.sin, backend=wrong)(torch.ones(2))
        Traceback (most recent call last):
        torchmux.registry.errors.NumericsError: ...
    """

    next_step = "`python -m torchmux bisect FILE.py:FUNCTION --backend NAME` finds the operator that is wrong."
