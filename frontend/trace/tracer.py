"""What values, handlers, higher-order code and the interpreter may ask of the trace that they are part of.

:class:`Tracer` is one attempt to capture a frame, :class:`FrameWriter` the function that the frame becomes.  Both are
protocols: ``trace.Trace`` and ``capture.frame_writer.Output`` implement them, and nothing that is written against
them imports either.  ``Tracer`` is put together by topic, and so is ``Trace``: each topic has one class that
implements it and that sees the others through this file.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.fx import Graph, GraphModule, Node

from ..breaks import GraphBreak
from ..bytecode.normalize import Program
from ..capture.attempts import Assumptions
from ..guards.guards import GuardSet
from ..guards.loader import Names
from ..guards.sources import Source
from ..sizes.dynamic import DynamicDims
from ..values.base import GraphValue, Lazy, Raised, Value
from ..values.cells import CellValue
from ..values.constants import SymValue
from .effects import Effects

Meaning = Callable[["Tracer", list[Value], dict[str, Value]], Value]  # what a call of the program does


class ActiveFrame(Protocol):
    """A frame of the interpreter, as those see it that are not the interpreter."""

    code: types.CodeType
    namespace: dict[str, Any]  # its globals
    program: Program
    locals: dict[str, Value]
    cells: dict[str, CellValue]
    stack: list[Value]
    handled: list[Value]  # exceptions being handled, innermost last
    at: int  # the micro-op that runs
    depth: int
    is_root: bool

    @property
    def parent(self) -> ActiveFrame | None:
        """The frame that called this one."""

    @property
    def line(self) -> int:
        """The line of the program that runs."""

    @property
    def exception(self) -> Value | None:
        """The exception that is being handled here or in a caller."""

    @property
    def in_try(self) -> bool:
        """Whether code of the program would run for an exception that is raised here, here or in a caller."""

    @property
    def may_catch(self) -> bool:
        """Whether an except clause covers what runs here, here or in a caller."""

    def resume(self, value: Value | None, error: Raised | None) -> tuple[bool, Value]:
        """Go on with a generator; whether it has ended, and what it returned or yielded."""

    def has_to_clean_up(self) -> bool:
        """Whether a suspended generator would run code of its own if it were dropped."""


class OpenRegion(Protocol):
    """A graph inside the graph, while operators are recorded into it; see ``higher_order.region``."""

    @property
    def what(self) -> str:
        """Its name in the reasons for graph breaks."""

    @property
    def graph(self) -> Graph: ...

    @property
    def outer(self) -> Graph:
        """The graph around it."""

    @property
    def modules(self) -> dict[str, GraphModule]: ...

    @property
    def parent(self) -> OpenRegion | None: ...

    @property
    def beside(self) -> OpenRegion | None:
        """The closed region whose values it may use too: the forward pass of a backward one."""

    @property
    def transform(self) -> str:
        """Which transform runs it, such as "vmap"; empty if none does."""

    def lift(self, node: Node) -> Node:
        """The node of this region that stands for one of a graph around it."""

    def changed(self, value: Value) -> None:
        """``value`` is about to change."""

    def changed_global(self, name: str) -> None:
        """A global is about to change."""

    def grad_argument(self, enabled: Any) -> Any:
        """What stands in the graph as the grad mode to set."""


class GlobalSwitches(Protocol):
    """Switches of torch that the program has read or set; see ``trace.attention_switches``."""

    final: dict[Callable[..., Any], Any]  # what the program left them at, by the function that sets them

    def read(self, tr: Tracer, setter: Callable[..., Any]) -> Any:
        """The state of the switch that ``setter`` sets, guarded."""

    def write(self, tr: Tracer, setter: Callable[..., Any], value: Any) -> None:
        """Set a switch, in the graph and while the program is traced."""


class Recording(Protocol):
    """The graph under construction."""

    main: Graph
    graph: Graph  # what is recorded into: ``main``, or the graph of the open region
    region: OpenRegion | None
    modules: dict[str, GraphModule]  # what operators of the main graph run
    inputs: list[tuple[Node, Source]]
    real_inputs: dict[Node, Any]  # the tensors and numbers of this call
    static_inputs: set[Node]  # parameters and buffers
    subclass_inputs: dict[Value, torch.Tensor]  # what consists of inputs, and the tensors of this call
    whole_subclasses: bool  # those that consist of others are nodes
    op_count: int
    assumptions: Assumptions
    reads_numbers: bool  # from tensors, see ``values.scalars.ReadNumber``
    fake_mode: Any
    grad_enabled: Any  # a bool, or ``contexts.UNKNOWN_GRAD``
    initial_grad: bool
    inference_modes: int  # in how many the program is that began in the trace
    begin_grad: bool
    final_grad: Any

    def writes_to(self, value: Any) -> int:
        """How often the graph writes to an input tensor."""

    def is_written(self, value: Any) -> bool:
        """Whether the graph writes to an input tensor."""

    def writes_inputs(self, except_for: Any = None) -> bool:
        """Whether the graph writes to any of its inputs, or to any but one."""

    def shares_memory_with_input(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an input of the graph, or shows memory of one."""

    def numpy_argument(self, number: Any) -> Any:
        """What an operator gets in the place of a NumPy number."""

    def emit(self, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Record an operator on values (``kind`` is ``call_function`` or ``call_method``); what it returns."""

    def create_node(self, kind: str, target: Any, args: tuple, kwargs: dict[str, Any]) -> Node:
        """Record an operator on nodes, with the line of the program that it stands for."""

    def number_node(self, kind: str, target: Any, args: tuple, example: Any) -> Node:
        """Record an operator that computes a number, ``example`` in this call."""

    def placeholder(self, name: str) -> Node:
        """A new input of the main graph."""

    def recording_main(self) -> AbstractContextManager[None]:
        """A block in which nodes go into the main graph, though a region is open."""

    def propagate(self, kind: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What an operator returns for fake tensors; GraphBreak if it refuses them."""

    def wrap_result(self, result: Any, node: Node) -> Value:
        """The value of what an operator returned; each element of a tuple gets a node of its own."""

    def set_grad(self, enabled: Any) -> None:
        """``torch.set_grad_enabled``."""

    def tensor_input(self, tensor: Any, source: Source, static: bool = False) -> Value:
        """Make a tensor an input of the graph, and guard its metadata."""


class Symbols(Protocol):
    """Symbolic sizes and numbers."""

    dims: DynamicDims
    symbolic: bool  # whether there is a ShapeEnv
    shape_env: Any

    def wants_symbolic(self, number: int | float, source: Source) -> bool:
        """Whether a number from outside is symbolic."""

    def takes_numpy_number(self, number: Any, source: Source) -> bool:
        """Whether one of NumPy's numbers from outside is symbolic for operators."""

    def number_input(self, number: int | float, source: Source) -> Value:
        """The symbolic number that is an input of the graph."""

    def unknown_input(self, number: int, source: Source, low: int, high: int) -> Value:
        """An integer from outside between two bounds that is an input of the graph, and that no guard may ask for."""

    def number_source(self, node: Node) -> Source | None:
        """Where the compiled frame finds the number that a node stands for, if it is an input."""

    def number_and_source(self, value: SymValue) -> tuple[Any, Any] | None:
        """A symbolic number in this call, and where later calls find it; None if inputs do not tell."""

    def is_number(self, real: Any, source: Source, value: SymValue) -> bool:
        """Let the number that ``source`` leads to be one that the trace has computed; guarded.  False if it is not."""

    def computed(self, function: Callable, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value | None:
        """What a pure function gives for symbolic numbers, which the frame asks it for in each call.

        None: no argument is symbolic, no inputs tell one of them, or the function raises an exception.
        """

    def size_value(self, owner: GraphValue, dim: int) -> Value:
        """``tensor.size(dim)``."""

    def sym_property(self, owner: GraphValue, method: str, dim: int | None, value: Any) -> Value:
        """A size, stride, element count or storage offset of a tensor."""

    def specialize(self, value: GraphValue) -> Any:
        """The number that a symbolic one is in this call, from now on a constant, guarded."""

    def decide(self, sym: Any, node: Any = None) -> bool:
        """The truth of a symbolic number in this call, guarded; ``node`` computes it."""

    def depends_on_data(self, sym: Any) -> bool:
        """Whether no size and no argument tells a symbolic number."""

    def undecided(self, expr: Any, question: str) -> GraphBreak:
        """The break for a question that only the data answers."""

    def sources_of_floats(self, names: frozenset[str]) -> frozenset[str]:
        """Where the named symbolic floats come from, in words; all of them if none of ours is named."""


class Reading(Protocol):
    """Existing objects as values, and the guards that make the values true."""

    guards: GuardSet
    module_sources: set[Source]  # paths that lead to modules
    frame_locals: dict[str, Any]  # the arguments of this call

    def wrap(self, obj: Any, source: Source | None) -> Value:
        """The value of an existing object reached by ``source`` (None: known without a guard)."""

    def lift(self, obj: Any) -> Value:
        """The value of an object that tracing computed: constants, and containers of them."""

    def lift_constant(self, obj: Any) -> Value:
        """The value of a constant of a code object."""

    def is_of_code(self, value: Value) -> bool:
        """Whether a value is a constant of a code object, which is the same object in every call."""

    def force(self, element: Value | Lazy) -> Value:
        """The value of a container's element that may not have been looked at yet."""

    def wrap_registered(self, obj: Any, source: Source | None, table: str) -> Value:
        """A parameter, buffer or submodule of a module."""

    def wrap_global(self, obj: Any, source: Source) -> Value:
        """A global variable."""

    def is_in_module(self, source: Source | None) -> bool:
        """Whether a path leads through a module's attributes."""

    def wrap_fixed(self, obj: Any, source: Source) -> Value:
        """An item of a tuple that is itself guarded by identity."""

    def wrap_key(self, key: Any, source: Source | None) -> Value:
        """A key of a dictionary or an element of a set; a constant is guarded with it."""

    def is_fixed_key(self, key: Any) -> bool:
        """Whether a key is a constant, or a tuple of constants."""

    def is_plain_namedtuple(self, cls: type) -> bool:
        """Whether a class is that of a named tuple, which does as tuples do; guarded."""

    def wrap_storage(self, obj: Any, source: Source | None) -> Value | None:
        """The builtin contents of an object whose class derives from a builtin class."""

    def written_global(self, namespace: dict, name: str) -> Value | None:
        """What the trace has stored under a global name, if it has."""

    def store_global(self, namespace: dict, name: str, value: Value) -> None:
        """Note a store to a global name."""

    def load_global(self, frame: ActiveFrame, name: str) -> Value:
        """What a name means in the globals and builtins of a frame."""

    def memo_of(self, obj: Any) -> Value | None:
        """The value of an object that has been met already."""

    def remember(self, obj: Any, value: Value) -> None:
        """Make ``value`` what ``obj`` is wherever it is met."""

    def keep_equal(self, obj: Any) -> Any:
        """One object for all that look like this one, so that sources which hold it are equal."""

    def stable(self, key: Any) -> Any:
        """The real object of a hash key, for a guard."""

    def static_lookup(self, cls: type, name: str) -> Any:
        """What the method resolution order of a class has under a name, unbound; MISSING if nothing."""

    def is_data_descriptor(self, raw: Any) -> bool:
        """Whether what a class holds comes ahead of the instance's own attributes."""

    def is_settled_function(self, fn: types.FunctionType) -> bool:
        """Whether nobody changes the code of a function: it is the library's own."""

    def guards_type(self, source: Source | None, cls: type) -> None:
        """Guard the class of what has a source."""

    def guards_equal(self, source: Source | None, obj: Any) -> None:
        """Guard the value of what has a source."""

    def guard_class_attribute(self, cls: type, name: str, raw: Any) -> None:
        """Guard that the class has the same attribute."""

    def guard_lookup(self, cls: type, name: str, raw: Any) -> None:
        """Guard that the class goes on finding ``raw`` under the name, or nothing (MISSING)."""

    def guard_text(self, obj: Any, function: Callable, result: Any, what: str) -> None:
        """Guard what a function gives for a class, a function or a module; ``what`` says it in words."""

    def is_settled_class(self, cls: type | types.FunctionType) -> bool:
        """Whether nobody changes a class or function: it is the library's own."""

    def guard_bases(self, cls: type) -> None:
        """Guard which classes a class derives from."""

    def is_subclass(self, cls: type, other: Any) -> bool:
        """``issubclass``, guarded."""

    def guard_no_global_hooks(self, module: types.ModuleType, names: tuple[str, ...]) -> None:
        """Guard that tables of hooks in a module stay empty."""

    def guard_distinct(self) -> None:
        """Guard that objects whose identity mattered stay different objects."""

    def identity_matters(self, *values: Value) -> None:
        """Note that the trace goes on as if these were other objects than all others that it has met."""


class Operating(Protocol):
    """Python's operators on values."""

    def binary(self, symbol: str, left: Value, right: Value) -> Value:
        """``left <symbol> right``; ``symbol`` may be an in-place one such as ``+=``."""

    def unary(self, symbol: str, value: Value) -> Value:
        """``-value``, ``+value`` or ``~value``."""

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        """``left <symbol> right`` for comparisons."""

    def equal(self, left: Value, right: Value) -> bool:
        """``bool(left == right)`` with the identity shortcut of container comparisons."""

    def is_same(self, left: Value, right: Value) -> bool:
        """``left is right``."""

    def may_be_operand(self, value: Value) -> bool:
        """Whether an operator may have returned one of its arguments as this tensor."""

    def is_instance(self, value: Value, cls: Any) -> bool:
        """``isinstance`` against one real class."""

    def special_method(self, owner: Value, name: str) -> Value | None:
        """A special method looked up on the class, bound; None if there is none."""

    def as_index(self, value: Value) -> Value:
        """What Python takes for ``value`` where it needs an integer: an object of the program's says so itself."""

    def convert(self, value: Value, conversion: str) -> Value:
        """``str()``, ``repr()`` and ``ascii()``, as f-strings name them: s, r and a."""

    def format(self, value: Value, spec: Value | None) -> Value:
        """``format(value, spec)``."""

    def format_fields(self, text: str, operands: list[Value]) -> Value | None:
        """``text.format(*operands)``; None if it asks for what is in an operand."""

    def fold(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Value:
        """Call a pure function on plain objects; what it raises is the program's own exception."""

    def fold_product(self, values: list[Value]) -> Value:
        """The product of numbers that may be symbolic."""

    def device_region(self, device: Any, method: str) -> Value:
        """``device.__enter__()`` and ``device.__exit__(...)`` of a ``torch.device``."""

    def as_mapping(self, value: Value) -> Value | None:
        """The dictionary behind a value that C code would read as one, whatever its class overrides."""


class Running(Protocol):
    """The frames that are traced, what they call and raise, and what they change."""

    code: types.CodeType  # of the root frame
    root: ActiveFrame
    frame: ActiveFrame | None  # the innermost one
    recursion_limit: int  # of the program
    step: int  # raw instructions of the root frame so far
    step_began: int  # with so many operators in the graph
    stop_at: int | None  # the step at which an earlier attempt broke
    break_index: int  # the raw instruction at which this attempt ended
    loops: dict[int, tuple[int, int]]  # where a loop of the root frame begins -> step, operators there
    effects: Effects
    unfinished: dict[Value, None]  # generators that are suspended where they have to clean up
    active_contexts: list[Any]  # ``contexts.ContextValue``, outermost first
    pins: list[str]  # the backends of the regions that the trace is in, outermost first
    calls_of_modules: list[str]  # the paths of the modules whose calls the trace is in, outermost first
    placement: Mapping[int, str]  # the backends that modules are pinned to, by id
    swapped: set[Value]  # tables of modules that functional_call has filled with other tensors
    switches: GlobalSwitches
    defaults: Any  # of dtype and device: ``trace.defaults.Defaults``
    breaks_are_errors: bool
    exporting: bool
    scripted: int  # how many functions that torch.jit.script compiled are being traced
    draws: list[Source]  # numbers of Python's generators, which the frame draws in this order
    calls_first: list[Callable[[], Any]]  # what the frame calls before all else
    may_expect: bool  # whether branches that only raise are taken for not taken
    expectations: list[tuple[GraphValue, bool]]  # conditions, and what they were taken to be
    put_back: list[Node]  # inputs that are restored where an expectation does not hold
    tried: list[Value]  # results of operators whose exceptions the program itself may catch
    catches: bool  # whether it does so by an except clause
    starts_again: bool  # whether the call runs in eager if the graph fails
    may_hook: bool  # whether hooks of tensors are part of the graph
    hooked: set[torch.fx.Node]  # tensors whose hooks are
    enters_generators: bool  # whether those from outside are traced
    may_put_off: bool  # whether class statements wait until the class is needed
    put_off: int  # class statements that wait
    made_classes: list[type]  # by this trace
    made: set[int]  # the ids of these classes and of their functions
    texts: int  # texts with data in them that were made, and are expected to be dropped

    def suspended_frame(self, code: types.CodeType, namespace: dict[str, Any], given: dict[str, Value]) -> ActiveFrame:
        """The frame of a generator that has not begun."""

    def refuses_module(self, name: Any) -> bool:
        """Whether functions of this module must not be traced."""

    def inline(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Run a Python function of the traced program (``FunctionValue``) in a frame of its own."""

    def meaning_of(self, obj: Any) -> Meaning | None:
        """What calling a C function or a class means; see ``handlers.resolve``."""

    def method_polyfill(self, cls: type, name: str) -> Value | None:
        """The plain Python function that is traced in place of a C method."""

    def in_polyfill(self, code: types.CodeType) -> bool:
        """Whether code belongs to a polyfill."""

    def load_argument(self, name: str) -> Value | None:
        """An argument of the root frame, read (and so guarded) on first use."""

    def has_argument(self, name: str) -> bool:
        """Whether an argument of the root frame is still bound."""

    def forget_argument(self, name: str) -> None:
        """Unbind an argument of the root frame."""

    def make_exception(self, cls: type, *message: str) -> Value:
        """A new exception of the program."""

    def make_exception_from_values(self, cls: type, args: list[Value]) -> Value:
        """A new exception of the program whose arguments are values."""

    def exception(self, error: BaseException) -> Value:
        """The value of an exception that a folded call raised."""

    def as_exception(self, args: list[Value]) -> Value:
        """What ``raise X`` or ``generator.throw(X)`` raises: an exception object or an instance of a class."""

    def handled_exception(self) -> Value | None:
        """What ``sys.exc_info()`` tells."""

    def generator_raised_stop(self, stop: Value) -> Value:
        """What Python makes of a StopIteration that would leave a generator."""

    def describe_exception(self, raised: Raised) -> str:
        """An exception of the program, for the reason of a break."""

    def place(self) -> tuple[int, tuple[str, int, str]]:
        """The step of the root frame, and the file, line and function that are being traced."""

    def user_place(self) -> tuple[str, tuple[tuple[str, int, str], ...]]:
        """``file:line`` of the innermost frame that is the program's own, and all such frames."""

    def check_budget(self, count: int) -> None:
        """Break where an iterator does not seem to end."""


class Tracer(Recording, Symbols, Reading, Operating, Running, Protocol):
    """One attempt to capture a frame."""


class FrameWriter(Protocol):
    """The Python function that replaces a frame, while it is being written.

    Its lines load the inputs, run the graph, and then (``line``, ``after``, ``late``) rebuild what lives on.
    """

    tr: Tracer
    names: Names
    after: list[str]  # the lines behind the graph
    late: list[str]  # those behind the side effects
    direct: set[Value]  # on the stack and nowhere else
    unseen: set[Value]  # iterators of ours that the program cannot look at
    resumes: bool  # whether the rest of the frame runs afterwards

    def value(self, value: Value) -> str:
        """The expression that is this value behind the graph; one object stays one object."""

    def load(self, source: Source) -> str:
        """The expression that loads what a source leads to."""

    def container(self, opening: str, closing: str, items: list[Value]) -> str:
        """The display of a container, between two brackets."""

    def temporary(self, text: str) -> str:
        """The name of a new variable that holds an expression."""

    def shell(self, value: Value, text: str) -> str:
        """Make an object first and fill it afterwards, so that what it contains may refer to it."""

    def late_iterator(self, container: str, position: int) -> str:
        """A real iterator, made once the side effects have set the container right."""

    def line(self, text: str) -> None:
        """Add a line behind the graph."""

    def graph_output(self, value: GraphValue) -> str:
        """The variable of a tensor or symbolic number that the graph computes."""
