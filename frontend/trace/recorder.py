"""Records operators into a ``torch.fx`` graph; fake tensors determine their results."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_arg

from torchmux import torch_internals as ti
from torchmux.registry.contract import PIN
from torchmux.torch_internals.symbolic_tensors import SymbolicTensors

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import NeedsShapeEnv
from ..guards.forms import shows_leaf
from ..guards.guards import TensorGuard
from ..guards.kinds.tensors import PropertyEquals, ShowsNoLeaf
from ..guards.sources import Source
from ..sizes import read_numbers
from ..sizes.dynamic import DynamicDims
from ..sizes.recurrent import refuse_changing_lengths
from ..sizes.shape_env import ShapeSource, symbolic_context
from ..sizes.symbolic import SymbolicNumbers
from ..values.arrays import ArrayValue, KnownArrayValue, tensor_of
from ..values.base import Value
from ..values.constants import ConstValue, NumpyNumberValue, SymValue, sym_result
from ..values.containers.sequences import ListValue, TupleValue
from ..values.overrides import overridden_method
from ..values.tensors import TensorValue, guard_additions, is_plain_tensor
from .defaults import Defaults
from .desugar import desugared
from .overlap import meets_itself, on_one_storage, overlaps_itself, reads_what_it_writes
from .subclasses import RefusesDraws, made_by_operator, refuse_writes
from .tracer import OpenRegion
from .with_numbers import stacked, with_numbers

MODULES = "torchmux_modules"  # in a node's meta: the paths of the modules whose calls it is in, outermost first
USER_STACK = "torchmux_user_stack"  # in a node's meta: ((file, line, function), ...), innermost first

_DTYPE_OF_DATA = (torch.tensor, torch.as_tensor, torch.asarray, "new_tensor")  # where NumPy's numbers keep their dtype
_FIRST_VERSION = "torchmux_first_version"  # in the meta of an input's node

_POWERS = (operator.pow, operator.ipow, torch.pow, "pow", "pow_", "__pow__", "__ipow__")
_FAKE_ERRORS: dict[str, Any] = {}  # name -> exception class


class GraphRecorder(SymbolicNumbers):
    """The graph under construction, its inputs and the fake mode."""

    def __init__(self, dims: DynamicDims, symbolic: bool, whole_subclasses: bool) -> None:
        super().__init__(dims, symbolic)
        self.whole_subclasses = whole_subclasses
        self.main = torch.fx.Graph()
        self.graph = self.main  # what is recorded into: the graph of a region, while one is open
        self.region: OpenRegion | None = None
        self.modules: dict[str, torch.fx.GraphModule] = {}  # regions that operators of the main graph run
        self.inputs: list[tuple[Any, Source]] = []  # (placeholder, how the compiled frame loads it), in graph order
        self.real_inputs: dict[Any, Any] = {}  # placeholder -> the tensor or number of this call
        self.static_inputs: set[Any] = set()  # placeholders of parameters and buffers
        self.grad_enabled = self.initial_grad = torch.is_grad_enabled()
        self.begin_grad = self.graph_grad = self.initial_grad  # of the graph: where it begins, where it has come to
        self.switches_grad = False
        self.inference_modes = 0
        self.switched_on: Any = None  # where gradients were first switched on in a graph that began without them
        self.pins: list[str] = []  # the backends of the regions that the trace is in, outermost first
        self.calls_of_modules: list[str] = []  # the paths of the modules whose calls the trace is in, outermost first
        self.op_count = 0
        self.reads_numbers = False
        self._numpy_numbers = False  # whether there are some among the arguments of the operator
        self._as_numpy = False  # whether they are passed as such
        self._is_empty = True  # no node yet but inputs and numbers
        self._last_placeholder: Any = None
        self._placeholder_names: dict[str, int] = {}  # how often each was wanted
        self._input_fakes: dict[int, TensorValue] = {}
        self.defaults = Defaults()
        self.subclass_inputs: dict[Value, torch.Tensor] = {}  # what consists of inputs, and the tensors of this call
        self._fixed_sizes = False

    # --- inputs ----------------------------------------------------------------------------------------------------

    def placeholder(self, name: str) -> Any:
        graph = self.main
        count = self._placeholder_names[name] = self._placeholder_names.get(name, -1) + 1
        if count:
            name = f"{name}__{count}"
        context = (
            graph.inserting_after(self._last_placeholder)
            if self._last_placeholder is not None
            else (graph.inserting_before(next(iter(graph.nodes), None)) if len(graph.nodes) else None)
        )
        if context is None:
            node = graph.placeholder(name)
        else:
            with context:
                node = graph.placeholder(name)
        self._last_placeholder = node
        return node

    def tensor_input(self, tensor: torch.Tensor, source: Source, static: bool = False) -> TensorValue:
        """Make ``tensor`` an input of the graph; its metadata is guarded, its dynamic dimensions symbolic."""
        if not is_plain_tensor(tensor):
            raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is a {type(tensor).__qualname__}")
        if tensor.is_quantized or tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else tensor.layout
            raise GraphBreak(breaks.SUBCLASS, f"{source.words()} is not a plain strided tensor ({kind})")
        guard_additions(self, type(tensor))
        dims = None if static or self._fixed_sizes else self.dims_of(tensor, source)
        shape_source = ShapeSource(f"t{len(self.shape_inputs)}")
        try:
            with torch.inference_mode(False) if self.inference_modes else grad_mode(True):
                example = ti.plain_fake(self.fake_mode, tensor)
                if example is None:
                    example = self.fake_mode.from_tensor(
                        tensor,
                        static_shapes=not dims,
                        source=shape_source,
                        symbolic_context=symbolic_context(tensor, dims) if dims else None,
                    )
        except Exception as error:
            raise GraphBreak(breaks.SUBCLASS, f"{source.words()} cannot become a fake tensor: {error}", error) from None
        if dims is not None:
            self.bind_sizes(tensor, example, dims, source)
        node = self.placeholder(_name(source))
        node.meta["example_value"] = example
        node.meta[_FIRST_VERSION] = _version(example)
        value = TensorValue(node, example, source, type(tensor), is_input=True)
        self.inputs.append((node, source))
        self.real_inputs[node] = tensor
        self._input_fakes[id(example)] = value
        if static:
            self.static_inputs.add(node)
        self.shape_inputs.append((example, source))
        self.guards.tensors[source] = TensorGuard(source, tensor, example)
        return value

    def whole_input(self, tensor: torch.Tensor, example: Any, source: Source) -> Any:
        """The placeholder of an input that consists of others; its reader guards it."""
        node = self.placeholder(_name(source))
        node.meta["example_value"] = example
        node.meta[_FIRST_VERSION] = _version(example)
        self.inputs.append((node, source))
        self.real_inputs[node] = tensor
        return node

    @contextlib.contextmanager
    def fixed_sizes(self) -> Iterator[None]:
        """While this lasts, no size of an input is symbolic."""
        kept, self._fixed_sizes = self._fixed_sizes, True
        try:
            yield
        finally:
            self._fixed_sizes = kept

    def writes_to(self, value: TensorValue) -> int:
        """How often the graph writes to an input tensor."""
        return _version(value.example) - value.node.meta[_FIRST_VERSION]

    def is_written(self, value: TensorValue) -> bool:
        """Whether the graph writes to an input tensor."""
        return self.writes_to(value) != 0

    def writes_inputs(self, except_for: Any = None) -> bool:
        """Whether the graph writes to any of its inputs, or to any but one."""
        passed_over = None if except_for is None else except_for.node
        inputs = (node.meta for node, _ in self.inputs if node is not passed_over)
        return any(_FIRST_VERSION in m and _version(m["example_value"]) != m[_FIRST_VERSION] for m in inputs)

    def shares_memory_with_input(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an input of the graph, or shows memory of one."""
        inputs = (node.meta["example_value"] for node, _ in self.inputs)
        return any(isinstance(each, torch.Tensor) and on_one_storage(each, tensor) for each in inputs)

    # --- operators -------------------------------------------------------------------------------------------------

    def emit(self, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Record one operator (``kind`` is ``call_function`` or ``call_method``) and say what it returns."""
        if self.reads_numbers and (found := with_numbers(self, kind, target, args, kwargs)) is not None:
            return found
        if self.subclass_inputs and not self.whole_subclasses:
            if (found := desugared(self, kind, target, args, kwargs)) is not None:
                return found
        if kind == "call_method" and (found := overridden_method(self, target, *args, **kwargs)) is not None:
            return found
        if self.defaults.is_set:
            kwargs = self.defaults.explicit(self, kind, target, args, kwargs)
        if self.symbolic and target in _POWERS and len(args) == 2:
            args = [args[0], self._exponent(*args)]
        if target in _DTYPE_OF_DATA and args and isinstance(args[0], KnownArrayValue):
            args = [args[0].for_writing(self), *args[1:]]  # ``as_tensor`` shares its memory
        if target in _DTYPE_OF_DATA and args and isinstance(args[0], ArrayValue) and not self.guards.devices:
            if kwargs.keys() <= {"dtype"} and len(args) == 1:
                return tensor_of(self, args[0], copy=target is torch.tensor, dtype=kwargs.get("dtype"))
        if target in _DTYPE_OF_DATA and args and (found := stacked(self, target, args, kwargs)) is not None:
            return found
        if target in _DTYPE_OF_DATA and any(map(_holds_numpy, (*args, *kwargs.values()))):
            raise GraphBreak(breaks.OPERATION, f"{_operator_name(target)} of a NumPy number, whose dtype it takes")
        self._numpy_numbers = False
        fx_args = tuple(a.arg(self) for a in args)
        fx_kwargs = {k: v.arg(self) for k, v in kwargs.items()}
        if self.region is not None:  # ahead of the operator, which may write to them
            fx_args, fx_kwargs = map_arg((fx_args, fx_kwargs), self.region.lift)
        fake_args = [a.fake(self) for a in args]
        fake_kwargs = {k: v.fake(self) for k, v in kwargs.items()}
        if self.symbolic and not (self.dims.fixed_lengths or self.breaks_are_errors):
            refuse_changing_lengths(target, fake_args)
        if fake_kwargs.get("requires_grad") is True:
            raise GraphBreak(breaks.TORCH_STATE, "a tensor created in the graph cannot be a leaf that requires grad")
        out = fake_kwargs.get("out")
        before = tuple(out.shape) if isinstance(out, torch.Tensor) else None
        try:
            result = self.propagate(kind, target, fake_args, fake_kwargs)
        except GraphBreak as broke:
            # a switch such as keepdim=, which takes no symbol, or a number within a transform
            is_refused = _is_symbolic_bool if isinstance(broke.cause, TypeError) else _is_symbolic
            is_told = isinstance(broke.cause, (TypeError, AssertionError))
            if not is_told or not any(map(is_refused, (*args, *kwargs.values()))):
                raise
            decided = [self._decided(v) if is_refused(v) else v for v in (*args, *kwargs.values())]
            return self.emit(kind, target, decided[: len(args)], dict(zip(kwargs, decided[len(args) :], strict=True)))
        if self.whole_subclasses:
            refuse_writes(self, _operator_name(target))
        name = _operator_name(target)
        if name.startswith("_foreach_") and name.endswith("_"):
            if meets_itself(*fake_args, *fake_kwargs.values()):
                raise GraphBreak(breaks.OPERATION, f"{name} of tensors that share memory, one of which it writes to")
            # fake tensors do not count these writes
            torch.autograd.graph.increment_version([t for t in fake_args[0] if not t.is_inference()])
        if self._numpy_numbers:
            self._check_numpy_numbers(kind, target, args, kwargs, result)
        if before is not None and tuple(fake_kwargs["out"].shape) != before:
            raise GraphBreak(breaks.OPERATION, "out= is a tensor with a different shape, which the operator resizes")
        if isinstance(out, torch.Tensor):
            self._refuse_other_dtype(kind, target, fake_args, fake_kwargs)
        if reads_what_it_writes(name, fake_args, fake_kwargs, result):
            raise GraphBreak(breaks.OPERATION, f"{name} reads part of the memory that it writes")
        if isinstance(result, torch.Tensor):
            for value in (*args, *kwargs.values()):
                if isinstance(value, TensorValue) and value.example is result:
                    fills = name.rpartition(".")[2] in ("fill_", "zero_")
                    if overlaps_itself(result) and not fills and self._writes(kind, target, fake_args, fake_kwargs):
                        words = f"{name} writes to elements that share their memory"
                        raise GraphBreak(breaks.OPERATION, words)
                    self._guard_no_leaf(result)
                    self.create_node(kind, target, fx_args, fx_kwargs).meta["example_value"] = result
                    self.op_count += 1
                    return value  # an in-place operator returns the object itself
        if target is operator.setitem:
            self._guard_no_leaf(fake_args[0])
        node = self.create_node(kind, target, fx_args, fx_kwargs)
        node.meta["example_value"] = result
        self.note_new_symbols(node, _operator_name(target))
        self.op_count += 1
        made = self.wrap_result(result, node)
        if self.frame is not None and self.frame.in_try:
            self.tried.append(made)
            if self.frame.may_catch:
                self.catches = True
        return made

    def _writes(self, kind: str, target: Any, args: list, kwargs: dict) -> bool:
        """Whether an operator that returns its argument writes to it; ``x.to(...)`` may have nothing to do."""
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
        if any(tensor.is_inference() for tensor in tensors):  # which count no writes
            return True
        versions = [tensor._version for tensor in tensors]
        self.propagate(kind, target, args, kwargs)
        return versions != [tensor._version for tensor in tensors]

    def numpy_argument(self, number: Any) -> Any:
        """What an operator gets in the place of a NumPy number: Python's number of the same value."""
        self._numpy_numbers = True
        return number if self._as_numpy else number.item()

    def _check_numpy_numbers(self, kind: str, target: Any, args: list[Value], kwargs: dict, result: Any) -> None:
        """Break if NumPy's numbers make something else of the operator, as ``torch.tensor`` takes their dtype."""
        self._as_numpy = True
        try:
            given = [a.fake(self) for a in args], {k: v.fake(self) for k, v in kwargs.items()}
            found = self.propagate(kind, target, *given)
        except GraphBreak:
            found = None
        finally:
            self._as_numpy = self._numpy_numbers = False
        if _metadata(found) != _metadata(result):
            name = _operator_name(target)
            raise GraphBreak(breaks.OPERATION, f"a NumPy number as an argument of {name}, which looks at its class")

    def _decided(self, value: Value) -> Value:
        """What a symbol is in this call; of a question, only the answer is guarded."""
        return ConstValue(value.truth(self) if _is_symbolic_bool(value) else value.const(self))

    def _exponent(self, base: Value, exponent: Value) -> Value:
        """A constant where autograd compares the exponent with zero, which it cannot do with a symbolic integer."""
        is_symbolic = isinstance(exponent, SymValue) and exponent.pytype() is int
        if is_symbolic and isinstance(base, TensorValue) and base.example.requires_grad:
            return ConstValue(exponent.const(self))
        return exponent

    def _guard_no_leaf(self, written: torch.Tensor) -> None:
        """Eager changes no leaf that requires a gradient, nor its views, and no other guard distinguishes leaves."""
        if not written.requires_grad or not self.grad_enabled:
            return
        for node, source in self.inputs:
            real = self.real_inputs[node]
            if not isinstance(real, torch.Tensor) or not real.requires_grad or real.is_leaf:
                continue
            if on_one_storage(node.meta["example_value"], written):
                self.guards.add(PropertyEquals(source, "is_leaf", False, "is no leaf"))
                if not shows_leaf(real):
                    self.guards.add(ShowsNoLeaf(source))

    def create_node(self, kind: str, target: Any, args: tuple, kwargs: dict) -> Any:
        if self.region is None:
            if self.grad_enabled != self.graph_grad:
                self._follow_grad()
            self._is_empty = False
        return self._node(kind, target, args, kwargs)

    def number_node(self, kind: str, target: Any, args: tuple, example: Any) -> Any:
        """Record what computes a number.  No grad mode matters to it, so a graph may still begin in another one."""
        node = self._node(kind, target, args, {})
        node.meta["example_value"] = example
        return node

    def _node(self, kind: str, target: Any, args: tuple, kwargs: dict) -> Any:
        if self.region is not None:
            args, kwargs = map_arg((args, kwargs), self.region.lift)
        if target is operator.pow and _is_negative(args[0]):
            target = torch.pow if _is_tensor(args[1]) else pow  # torch.fx writes -2 ** x, the opposite of a power
        node = self.graph.create_node(kind, target, args, kwargs)
        node.meta["source_line"], node.meta[USER_STACK] = self.user_place()
        if self.calls_of_modules:
            node.meta[MODULES] = tuple(self.calls_of_modules)
        if self.pins:
            node.meta[PIN] = self.pins[-1]
        return node

    @contextlib.contextmanager
    def recording_main(self) -> Iterator[None]:
        """While this lasts, nodes go into the main graph, though a region is open, and into its grad mode."""
        kept = self.graph, self.region, self.grad_enabled
        self.graph, self.region, self.grad_enabled = self.main, None, self.graph_grad
        try:
            yield
        finally:
            self.graph, self.region, self.grad_enabled = kept

    def _refuse_other_dtype(self, kind: str, target: Any, args: list, kwargs: dict) -> None:
        """Break where ``out=`` has another dtype than the result would have without it.

        Sums and the like compute in the dtype of ``out=``.  A compiler would compute in that of the
        result, and convert.
        """
        out = kwargs["out"]
        others = [v for v in ti.pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor) and v is not out]
        if others and all(v.dtype is out.dtype for v in others) and kwargs.get("dtype") is None:
            return
        plain = self.propagate(kind, target, args, {name: v for name, v in kwargs.items() if name != "out"})
        if isinstance(plain, torch.Tensor) and plain.dtype is not out.dtype:
            words = f"out= of {_operator_name(target)} is of another dtype than its result, and it computes in that"
            raise GraphBreak(breaks.OPERATION, words)

    def propagate(self, kind: str, target: Any, args: list, kwargs: dict) -> Any:
        try:
            with self.fake_mode, RefusesDraws() if self.whole_subclasses else contextlib.nullcontext():
                if self.symbolic:
                    with ti.python_dispatcher(), SymbolicTensors():
                        return call_target(kind, target, args, kwargs)
                return call_target(kind, target, args, kwargs)
        except GraphBreak:
            raise
        except Exception as error:
            raise self._propagation_break(kind, target, error) from None

    def _propagation_break(self, kind: str, target: Any, error: Exception) -> GraphBreak:
        if not _FAKE_ERRORS:
            _FAKE_ERRORS.update(ti.fake_tensor_errors())
        name = _operator_name(target)
        if isinstance(error, RecursionError):  # the program's, which the operator has no part in
            return GraphBreak(breaks.TOO_DEEP, f"Python's recursion limit was reached in {name}", error)
        if isinstance(error, _FAKE_ERRORS["guard"]):
            return self.undecided(error.cond, f"what {name} does")
        if isinstance(error, _FAKE_ERRORS["data_dependent"]):
            if self.dims.scalars and not self.symbolic:
                raise NeedsShapeEnv
            return GraphBreak(breaks.TENSOR_TO_PYTHON, f"{name} needs the value of a tensor", error)
        if isinstance(error, _FAKE_ERRORS["dynamic_output"]):
            if self.dims.dynamic_outputs and not self.symbolic:
                raise NeedsShapeEnv
            return GraphBreak(breaks.DYNAMIC_OUTPUT, f"{name}", error)
        if isinstance(error, (_FAKE_ERRORS["unsupported"], NotImplementedError)):
            return GraphBreak(breaks.NO_FAKE, f"{name}: {error}", error)
        failed = GraphBreak(breaks.OPERATOR_FAILED, f"{name}: {type(error).__name__}: {error}", error)
        # whether a view may be written to is not handed on from a graph to the instruction that writes
        failed.whole_frame = "is being modified inplace" in str(error)
        return failed

    def wrap_result(self, result: Any, node: Any) -> Value:
        """The value of an operator's result; elements of a tuple get their own nodes."""
        if isinstance(result, torch.Tensor):
            known = self._input_fakes.get(id(result))
            if known is not None:
                return known
            if not ti.is_fake(result):
                return made_by_operator(self, result, node)
            if result.layout is not torch.strided:
                raise GraphBreak(breaks.SUBCLASS, f"{node.target} returns a tensor with layout {result.layout}")
            return TensorValue(node, result)
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return sym_result(self, result, node)
        if isinstance(result, (tuple, list)):
            items = []
            for index, element in enumerate(result):
                child = self.create_node("call_function", operator.getitem, (node, index), {})
                child.meta["example_value"] = element
                items.append(self.wrap_result(element, child))
            return ListValue(items) if isinstance(result, list) else TupleValue(items, cls=type(result))
        return ConstValue(result)

    def set_grad(self, enabled: bool) -> None:
        """``torch.set_grad_enabled``: tracing continues in the new mode; the graph follows at its next operator."""
        if enabled is not self.grad_enabled:
            if self.region is not None:
                if enabled and not self.begin_grad and self.switched_on is None:
                    self.switched_on = self.place()
                self.create_node("call_function", ti.set_grad_enabled, (self.region.grad_argument(enabled),), {})
            self.grad_enabled = enabled
            ti.set_grad_enabled(bool(enabled))

    def _follow_grad(self) -> None:
        """Bring the graph into the program's grad mode.  One without operators yet begins in that mode."""
        enabled = self.graph_grad = self.grad_enabled
        if self._is_empty:
            self.begin_grad = enabled
            return
        self.switches_grad = True
        if enabled and not self.begin_grad:
            # what seemed to be a graph without gradients is one with them, of which only the beginning is without
            self.begin_grad = True
            with self.graph.inserting_before(next(n for n in self.graph.nodes if n.op != "placeholder")):
                self.create_node("call_function", ti.set_grad_enabled, (False,), {})
        self.create_node("call_function", ti.set_grad_enabled, (enabled,), {})

    # --- the end ---------------------------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[Value]) -> torch.fx.GraphModule:
        """Close the graph with a flat tuple of outputs and drop what nothing needs."""
        self.fake_mode.refuses_dtypes = False  # compilers trace with it, and know more dtypes than eager's kernels
        self.graph.output(tuple(value.arg(self) for value in outputs))
        if self.has_unbacked:
            ti.insert_runtime_asserts(torch.fx.GraphModule(dict(self.modules), self.graph), self.shape_env)
        for node in reversed(list(self.graph.nodes)):
            if not node.users and _is_droppable(node):
                self.graph.erase_node(node)
        used = []
        for node, source in self.inputs:
            if node.users:
                used.append((node, source))
            else:
                self.graph.erase_node(node)
        self.inputs = used
        module = torch.fx.GraphModule(dict(self.modules), self.graph)
        module.graph.lint()
        return module


def _is_symbolic(value: Value) -> bool:
    return isinstance(value, SymValue)


def _is_symbolic_bool(value: Value) -> bool:
    return isinstance(value, SymValue) and value.pytype() is bool


def call_target(kind: str, target: Any, args: list, kwargs: dict) -> Any:
    if kind == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def _is_negative(argument: Any) -> bool:
    return isinstance(argument, (int, float)) and math.copysign(1.0, argument) < 0


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, torch.fx.Node) and isinstance(argument.meta.get("example_value"), torch.Tensor)


def _holds_numpy(value: Value) -> bool:
    """Whether a value is one of NumPy's numbers, or a list or tuple with one in it."""
    if isinstance(value, (ListValue, TupleValue)):
        return any(isinstance(item, Value) and _holds_numpy(item) for item in value._items)
    return isinstance(value, NumpyNumberValue)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _metadata(result: Any) -> Any:
    """What is known of a result before it is computed."""
    if isinstance(result, torch.Tensor):
        return result.dtype, tuple(result.shape), result.stride(), result.device
    return list(map(_metadata, result)) if isinstance(result, (list, tuple)) else result


def _operator_name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _is_droppable(node: Any) -> bool:
    """Nodes that only take a result apart, compute a size or read a number: they cannot have an effect."""
    if node.op == "call_method":
        return node.target in ("size", "stride", "numel", "storage_offset")
    if node.op != "call_function":
        return False
    if node.target is read_numbers.read:
        return True
    if node.target is operator.getitem:
        return not isinstance(node.meta.get("example_value"), torch.Tensor) or isinstance(
            node.args[0].meta.get("example_value") if isinstance(node.args[0], torch.fx.Node) else None, (tuple, list)
        )
    return isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def _name(source: Source) -> str:
    cleaned = "".join(c if c.isalnum() else "_" for c in source.short_words())
    while "__" in cleaned:
        cleaned = cleaned.replace("__", "_")
    return "l_" + cleaned.strip("_")


class grad_mode:
    """Grad mode for a block, without the cost of torch's context manager objects."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self.previous = torch.is_grad_enabled()
        ti.set_grad_enabled(self.enabled)

    def __exit__(self, *_: Any) -> None:
        ti.set_grad_enabled(self.previous)
