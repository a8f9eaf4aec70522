"""One attempt to capture one frame: interpreter, reader, recorder, guards and effects around a single graph."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.config import config

from .. import breaks, polyfills
from ..breaks import GraphBreak
from ..bytecode import parameters, resume_origin
from ..capture.attempts import Assumptions
from ..guards.computed import of_numpy, without_warning
from ..guards.kinds.frames import NoExceptionHandled
from ..guards.kinds.tensors import PropertyEquals
from ..guards.sources import Cell, CellContents, Const, Local, NumpyItem, Source
from ..handlers import builtins_, classes, classify, copying, numbers, numpy_, optim, statistics, torch_  # noqa: F401 - each fills the tables
from ..handlers.resolve import meaning_of
from ..handlers.table import CODES
from ..higher_order import (  # noqa: F401 - and so do these
    autograd_function,
    checkpoint,
    control_flow,
    flex_attention,
    forward_mode,
    functional_call,
    loops,
    tensor_hooks,
    transforms,
)
from ..hook import interrupts
from ..interpreter import Frame
from ..interpreter.frame import StopAtBreak
from ..marks.function_marks import asked
from ..polyfills import optim_
from ..regions import regions, use_backend
from ..sizes.dynamic import DynamicDims
from ..unwrap import original_of
from ..values.base import GraphValue, Raised, Value
from ..values.cells import CellValue
from ..values.classes import ClassValue
from ..values.constants import ConstValue
from ..values.containers.generators import GeneratorValue
from ..values.containers.mappings import DictValue
from ..values.containers.proxies import ProxyValue
from ..values.contexts import ContextValue
from ..values.exceptions import ExceptionValue
from ..values.facets.instance_dict import InstanceDictValue
from ..values.functions import FunctionValue, bind
from ..values.objects import ObjectValue
from .attention_switches import Switches
from .defaults import enter_device, leave_device
from .effects import Effects
from .enumerations import ask_operand
from .operators import Operators
from .reader import Reader
from .recorder import GraphRecorder
from .tracer import ActiveFrame, Meaning

_POLYFILLS = (*polyfills.MODULES, optim_)
_POLYFILL_GLOBALS = {id(module.__dict__) for module in _POLYFILLS}
_POLYFILL_FILES = {breaks.NO_LINE, *(module.__file__ for module in _POLYFILLS)}
_MAX_UNROLLED = 100_000


class Trace(GraphRecorder, Reader, Operators):
    """The state of one attempt, made under ``assumptions``: at their ``stop``, it ends.

    ``recursion_limit`` is the program's own, as the tracer runs under another one.
    """

    def __init__(
        self,
        code: types.CodeType,
        frame_locals: dict[str, Any],
        frame_globals: dict[str, Any],
        closure: tuple[types.CellType, ...],
        dims: DynamicDims,
        assumptions: Assumptions,
        recursion_limit: int,
        placement: Mapping[int, str],
    ) -> None:
        GraphRecorder.__init__(self, dims, assumptions.symbolic, assumptions.whole_subclasses)
        Reader.__init__(self)
        self.config = config
        self.code = code
        self.effects = Effects()
        self.frame: ActiveFrame | None = None
        self.recursion_limit = recursion_limit
        self.step = 0
        self.step_began = 0  # with so many operators in the graph
        self.loops: dict[int, tuple[int, int]] = {}  # where a loop of the root frame begins -> step, operators there
        self.unfinished: dict[Any, None] = {}  # generators that are suspended where they have to clean up
        self.swapped: set[Value] = set()  # tables of modules that functional_call has filled with other tensors
        self.assumptions = assumptions
        self.stop_at = assumptions.stop.step if assumptions.stop is not None else None
        self.may_expect = assumptions.may_expect
        self.expectations: list[tuple[GraphValue, bool]] = []  # conditions, and what they were taken to be
        self.may_hook = assumptions.may_hook
        self.hooked: set[torch.fx.Node] = set()  # tensors whose hooks are part of the graph
        self.may_put_off = assumptions.may_put_off
        self.enters_generators = assumptions.enters_generators
        self.put_off = 0  # class statements
        self.made_classes: list[type] = []
        self.made: set[int] = set()
        self.calls_first: list[Callable[[], Any]] = []  # what the frame calls before all else
        self.scripted = 0
        self.draws: list[Source] = []  # numbers of Python's generators, in order
        self.texts = 0  # how many texts with data in them were made, and are expected to be dropped
        self.put_back: list[Any] = []  # placeholders of what is restored where these do not hold
        self.catches = False  # by an except clause
        self.tried: list[Any] = []  # results of operators whose exceptions the program itself may catch
        self.starts_again = False
        self.active_contexts: list[ContextValue] = []
        self.guard_filter: Any = None
        self.switches = Switches()
        self.breaks_are_errors = asked.breaks_are_errors or ti.breaks_are_errors()
        self.exporting = asked.exporting
        self._arguments = self.frame_locals = frame_locals
        self.placement = placement
        self._enter_regions(frame_locals.get("self"))
        self._argument_names = _argument_names(code)
        self._forgotten: set[str] = set()
        self._meanings: dict[int, tuple[Meaning | None, Any]] = {}  # by id, beside the object that keeps it
        self._outer_exception = sys.exc_info()[1]
        self.root = self._make_root(frame_globals, closure)

    def _make_root(self, frame_globals: dict[str, Any], real_cells: tuple[types.CellType, ...]) -> Frame:
        code = self.code
        closure = []
        for name, real in zip(code.co_freevars, real_cells, strict=True):
            cell = CellValue(source=Cell(name), obj=real)
            cell.contents_source = CellContents(name)
            # functions that share the cell are met later, through their own closures
            self.remember(real, cell)
            closure.append(cell)
        root = Frame(self, code, frame_globals, {}, tuple(closure))
        for name in code.co_cellvars:
            cell = root.cells[name]
            cell.source = Cell(name)
            if name in self._argument_names:
                cell.contents_source = Local(name)
                cell.obj = types.CellType(self._arguments[name])
        return root

    def _enter_regions(self, owner: Any) -> None:
        """The pins that hold where the frame begins: of a region around it, and of the module whose method it is."""
        if use_backend.used:
            source = Const(regions, "torchmux.use_backend")
            self.guards.add(PropertyEquals(source, "pin", regions.pin, f"is {regions.pin!r} around the call"))
            if regions.pin is not None:
                self.pins.append(regions.pin)
        if not self.placement or not issubclass(type(owner), torch.nn.Module):  # isinstance() may run code of its class
            return
        if (pin := self.placement.get(id(original_of(owner)))) is not None:
            self.pins.append(pin)

    def let_go(self) -> None:
        """Drop the program's objects: a trace is part of circles, and weak references tell who is alive."""
        for value in self._memo.values():
            for slot in ("obj", "_items", "entries"):
                if hasattr(value, slot):
                    setattr(value, slot, None)
        self._memo.clear()
        self._keep.clear()
        self.root.locals.clear()
        self.root.cells.clear()
        self.root.stack.clear()
        self._arguments = self.frame_locals = {}
        self.real_inputs.clear()
        self.subclass_inputs.clear()
        for guarded in self.guards.tensors.values():
            guarded.tensor = None
        ti.forget_real_tensors(self.fake_mode)

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> Value | None:
        """Interpret the root frame; its result, or None when it stopped at the known break."""
        self._check_modes()
        initial_grad = torch.is_grad_enabled()
        self.initial_grad = self.begin_grad = self.graph_grad = initial_grad
        try:
            result = self.root.run()
            self._check_generators()
            self._check_grad_mode()
            self._close_contexts()
            return result
        except StopAtBreak:
            self._check_generators()
            self._check_grad_mode()
            self.break_index = self.root.program.ops[self.root.pc].index
            self._close_contexts()
            return None
        except Raised as raised:
            error = GraphBreak(breaks.EXCEPTION, self.describe_exception(raised))
            error.frames = raised.frames
            raise error from None
        finally:
            for context in reversed(self.active_contexts):
                context.restore()
            self.switches.restore()
            self.defaults.restore()
            ti.set_grad_enabled(initial_grad)

    def _check_modes(self) -> None:
        """A mode that sees every call of torch would not see those of a compiled graph."""
        devices = ti.default_devices()
        if devices is None or ti.count_dispatch_modes() or ti.is_functorch_active():
            raise GraphBreak(
                breaks.TORCH_STATE, "a torch function mode, dispatch mode or functorch transform is active"
            )
        self.guards.devices = devices

    def _check_generators(self) -> None:
        """Python closes a dropped generator at once, which runs its ``finally``: the frame must run in eager.

        Resuming it after a break would not do, as the code around the break keeps the generator alive for longer.
        """
        for generator in self.unfinished:
            frame = generator.frame
            error = GraphBreak(
                breaks.SUSPENDED, f"generator {frame.code.co_qualname} is abandoned inside a try or with statement"
            )
            error.frames.append((frame.code.co_filename, frame.line, frame.code.co_name))
            error.whole_frame = True
            raise error

    def place(self) -> tuple[int, tuple[str, int, str]]:
        """The step of the root frame, and the innermost frame, that are being traced."""
        frame = self.frame or self.root
        return self.step, (frame.code.co_filename, frame.line, frame.code.co_name)

    def _check_grad_mode(self) -> None:
        """The start of a graph tells backends once whether it trains, so the graph ends where this changes."""
        inputs = self.real_inputs.values()
        if self.switched_on is None or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            return
        self.step, frame = self.switched_on
        error = GraphBreak(breaks.TORCH_STATE, "gradients are enabled in a graph that started without them")
        error.frames.append(frame)
        raise error

    def _close_contexts(self) -> None:
        """Leave open regions inside the graph; the compiled frame enters the real ones after it."""
        self.final_grad = self.grad_enabled
        for context in reversed(self.active_contexts):
            context.close_in_graph(self)
        self.switches.close(self)
        self.defaults.close()
        self.set_grad(self.begin_grad)
        if self.graph_grad != self.begin_grad:
            self._follow_grad()

    def describe_exception(self, raised: Raised) -> str:
        value = raised.value
        name = value.pytype().__name__
        if isinstance(value, ExceptionValue):
            try:
                return f"{name}({', '.join(repr(a.const(self)) for a in value.args.items(self))})"
            except (GraphBreak, Raised):
                pass
        return name

    def user_place(self) -> tuple[str, tuple[tuple[str, int, str], ...]]:
        """``file:line`` of the innermost frame that is not library code of the tracer itself, and all such frames."""
        frame, stack, line = self.frame, [], ""
        while frame is not None:
            code = frame.code
            file = code.co_filename
            if file not in _POLYFILL_FILES or frame.parent is None:
                place = (file, frame.line, code.co_name)
                stack.append(place)
                if not line and ("/torch/nn/" not in file or frame.parent is None):
                    line = f"{file}:{place[1]}"
            frame = frame.parent
        return line or "?", tuple(stack)

    def check_budget(self, count: int) -> None:
        if count > _MAX_UNROLLED:
            raise GraphBreak(breaks.TOO_DEEP, f"an iterator returned more than {_MAX_UNROLLED} items")

    # --- the root's arguments --------------------------------------------------------------------------------------

    def load_argument(self, name: str) -> Value | None:
        """An argument of the root frame, read (and so guarded) on first use."""
        if not self.has_argument(name):
            return None
        try:
            return self.wrap(self._arguments[name], Local(name))
        except GraphBreak as stop:
            # A resume function that breaks where it takes over its stack would continue in another one like it,
            # forever.
            if name.lstrip("_").startswith("stack_") and resume_origin(self.root.code) is not None:
                stop.whole_frame = True
            raise

    def has_argument(self, name: str) -> bool:
        """Whether an argument of the root frame is still bound, if no local of its name was stored."""
        return name not in self._forgotten and name in self._argument_names and name in self._arguments

    def forget_argument(self, name: str) -> None:
        self._forgotten.add(name)

    def wants_symbolic(self, number: int | float, source: Source) -> bool:
        """Whether a number is symbolic: arguments and counters, but not whole numbers deep inside a model.

        Under ``dynamic=True``, arguments are symbolic at once.  What a model, a global or a closure holds is most
        likely the same in each call, as ``math.pi`` is, so it has to change first.
        """
        if source in self._numbers:
            return True
        if (
            type(number) is int
            and source.depth() > 2
            and not self.config.allow_unspec_int_on_nn_module
            and self.is_in_module(source)
        ):
            return False
        given = isinstance(source.root(), Local) and not self.is_in_module(source)
        return self.dims.is_dynamic_number(number, source, given=given)

    def takes_numpy_number(self, number: Any, source: Source) -> bool:
        """Whether one of NumPy's numbers from outside is symbolic for operators."""
        return not self.is_in_module(source) and self.dims.takes_data(number.item(), NumpyItem(source))

    def is_in_module(self, source: Source | None) -> bool:
        """Whether a path leads through a module's attributes."""
        while source is not None:
            if source in self.module_sources:
                return True
            source = source.parent
        return False

    # --- calls -----------------------------------------------------------------------------------------------------

    def suspended_frame(self, code: types.CodeType, namespace: dict[str, Any], given: dict[str, Value]) -> ActiveFrame:
        """The frame of a generator that has not begun."""
        return Frame(self, code, namespace, given, parent=self.frame)

    def refuses_module(self, name: Any) -> bool:
        """Whether functions of this module must not be traced."""
        return isinstance(name, str) and classify.refused_module(name) is not None

    def inline(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Run a Python function of the traced program in a new frame."""
        assert isinstance(function, FunctionValue)
        code = function.code
        if (handler := CODES.get(id(code))) is not None:
            return handler(self, function, args, kwargs)
        flags = code.co_flags
        if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise GraphBreak(breaks.SUSPENDED, f"{function.qualname} is a coroutine")
        interrupts.check()
        locals_ = bind(self, function, args, kwargs)
        frame = Frame(self, code, function.globals, locals_, function.closure, parent=self.frame)
        if flags & inspect.CO_GENERATOR:
            return GeneratorValue(frame, (function, args, kwargs))
        return frame.run()

    def meaning_of(self, obj: Any) -> Meaning | None:
        """What calling a C function or a class means; looked up once."""
        known = self._meanings.get(id(obj))
        if known is None:
            known = self._meanings[id(obj)] = (meaning_of(self, obj), obj)
        return known[0]

    def method_polyfill(self, cls: type, name: str) -> Value | None:
        for base in cls.__mro__:
            found = polyfills.METHOD_POLYFILLS.get((base, name))
            if found is not None:
                return self.wrap(found, None)
            if name in base.__dict__:
                return None
        return None

    def in_polyfill(self, code: types.CodeType) -> bool:
        return code.co_filename in _POLYFILL_FILES

    def fold(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Value:
        """Call a pure function on plain objects; what it raises is the program's own exception."""
        if function not in (str, repr, ascii, format):  # the texts of classes are guarded
            for each in args:
                ask_operand(self, each, f"__{getattr(function, '__name__', '')}__", "__index__")
        try:
            result = (
                without_warning(function, *args, **kwargs) if of_numpy(function, args) else function(*args, **kwargs)
            )
        except FloatingPointError as error:
            raise GraphBreak(
                breaks.OPERATION, f"NumPy warns in {getattr(function, '__name__', 'a call')}", error
            ) from None
        except Exception as error:
            raise Raised(self.exception(error)) from None
        return self.lift(result)

    def fold_product(self, values: list[Value]) -> Value:
        product: Value = ConstValue(1)
        for value in values:
            product = self.binary("*", product, value)
        return product

    def as_mapping(self, value: Value) -> Value | None:
        """The dictionary behind a value that C code would read as one, whatever its class overrides."""
        if isinstance(value, DictValue):
            return value
        if isinstance(value, ProxyValue):
            return value.mapping
        if isinstance(value, InstanceDictValue):
            return value.snapshot(self)
        if isinstance(value, ObjectValue) and issubclass(value.cls, dict):
            overridden = [self.static_lookup(value.cls, n) for n in ("keys", "__getitem__", "__iter__")]
            if not any(isinstance(f, types.FunctionType) for f in overridden):
                storage = value.storage(self)
                return storage if isinstance(storage, DictValue) else None
        return None

    def device_region(self, device: torch.device, method: str) -> Value:
        """``device.__enter__()`` and ``device.__exit__(...)``."""
        return (enter_device if method == "__enter__" else leave_device)(self, device)

    # --- exceptions ------------------------------------------------------------------------------------------------

    def make_exception(self, cls: type, *message: str) -> Value:
        return ExceptionValue(cls, [ConstValue(m) for m in message])

    def make_exception_from_values(self, cls: type, args: list[Value]) -> Value:
        return ExceptionValue(cls, args)

    def exception(self, error: BaseException) -> Value:
        """The value of an exception that a folded call raised."""
        try:
            return ExceptionValue(type(error), [self.lift(a) for a in error.args])
        except (GraphBreak, Raised):
            return ExceptionValue(type(error), [ConstValue(str(error))])

    def generator_raised_stop(self, stop: Value) -> Value:
        """What Python makes of a StopIteration that would leave a generator."""
        error = ExceptionValue(RuntimeError, [ConstValue("generator raised StopIteration")])
        error.attrs.update(__cause__=stop, __context__=stop, __suppress_context__=ConstValue(True))
        return error

    def handled_exception(self) -> Value | None:
        """The result of ``sys.exc_info()``; a guard checks that the caller of the compiled function handles no
        exception.
        """
        assert self.frame is not None
        found = self.frame.exception
        if found is None:
            if self._outer_exception is not None:
                raise GraphBreak(breaks.OPERATION, "an exception that the caller of the compiled function is handling")
            self.guards.add(NoExceptionHandled(Const(sys, "sys")))
        return found

    def as_exception(self, args: list[Value]) -> Value:
        """What ``raise X`` or ``generator.throw(X)`` raises: an exception object or an instance of a class."""
        value = args[1] if len(args) > 1 and issubclass(args[1].pytype(), BaseException) else args[0]
        if isinstance(value, ClassValue) and issubclass(value.obj, BaseException):
            return value.call(self, [], {})
        if not issubclass(value.pytype(), BaseException):
            return self.make_exception(TypeError, "exceptions must derive from BaseException")
        return value


def _argument_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(parameters(code))
