"""Tensors: a node of the graph with a fake tensor that knows dtype, shape, strides and device."""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from ..breaks import DATA_DEPENDENT_BRANCH, OPERATION, TENSOR_TO_PYTHON, TORCH_STATE, GraphBreak
from ..guards.kinds.classes import ClassFinds, NotInClasses
from ..guards.kinds.objects import NoAttribute, NoOwnAttribute, NotInDict
from ..guards.kinds.tensors import PropertyEquals, StorageOffset, Strides
from ..guards.sources import Attr, Const
from .base import MISSING, GraphValue, Raised, Value
from .constants import ConstValue
from .containers.iteration import SequenceIterator
from .containers.sequences import TupleValue
from .contexts import as_inference
from .descriptors import bind_class_attribute
from .scalars import READS, number_of, read_number
from .tensor_indexing import arrays_as_tensors, depends_on_data, select_symbolic

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer

# Methods that hand data to Python: their result depends on values, or on memory, and not on shapes.
_TO_PYTHON = frozenset(
    {"item", "tolist", "numpy", "data_ptr", "__bool__", "__int__", "__float__", "__index__", "__array__", "__dlpack__",
     "__complex__", "is_shared", "is_pinned", "is_coalesced", "has_names", "storage", "untyped_storage",
     "__reduce_ex__", "__repr__", "__str__", "__format__", "is_set_to", "const_data_ptr",
     "_is_view", "_use_count", "storage_type"}
)  # fmt: skip
# Methods that work on autograd's or Python's state rather than computing a tensor.
_STATEFUL = frozenset(
    {"backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "share_memory_", "set_",
     "__setstate__", "names", "rename_", "apply_", "map_", "map2_", "module_load", "__deepcopy__", "resize_",
     "resize_as_"}
)  # fmt: skip
# In-place methods that change the shape or strides of the object itself; on an input this would outlive the graph.
_METADATA_IN_PLACE = frozenset(
    {"t_", "transpose_", "squeeze_", "unsqueeze_", "as_strided_", "swapaxes_", "swapdims_", "requires_grad_", "detach_"}
)
CONST_PROPERTIES = frozenset(
    {"dtype", "device", "layout", "is_sparse", "is_quantized", "is_cuda", "is_cpu", "is_meta", "is_mps", "is_xpu",
     "requires_grad", "is_leaf", "is_mkldnn", "is_nested", "itemsize", "names", "output_nr", "is_sparse_csr",
     "is_mtia", "is_ipu", "is_xla", "is_maia", "is_vulkan", "retains_grad"}
)  # fmt: skip
# Of these, what the guard of an input tensor does not look at.
_UNGUARDED = frozenset({"is_leaf", "names"})
_NOT_OF_FAKES = frozenset({"output_nr", "retains_grad"})
"""Of these, what the fake tensor of an input does not have from the tensor."""
TENSOR_PROPERTIES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
_CONST_METHODS = frozenset(
    {"dim", "ndimension", "is_floating_point", "is_complex", "is_contiguous", "is_signed", "element_size", "get_device",
     "is_inference", "is_conj", "is_neg"}
)  # fmt: skip
_BY_FUNCTION = frozenset(("cov", "corrcoef", "equal"))
"""Methods that mean what the function of torch means that has their name."""
_SHAPE_METHODS = frozenset(
    {"size", "stride", "numel", "nelement", "storage_offset", "sym_size", "sym_numel", "__len__"}
)

# The factor of each that is a number, and may be given as a tensor of one element: its value is needed, not in Python.
_FACTORS = {"addcdiv": "value", "addcmul": "value", "add": "alpha", "sub": "alpha"}

_TENSOR_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
# What their objects find in them, by name, before a program has changed anything.
_FOUND = {cls: {n: raw for base in cls.__mro__[::-1] for n, raw in vars(base).items()} for cls in _TENSOR_CLASSES}


# What a class may have of its own and its tensors still do with each operator what torch's do.
_HARMLESS = frozenset(
    {"__new__", "__init__", "__init_subclass__", "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__",
     "__annotations__", "__annotate__", "__firstlineno__", "__static_attributes__", "__repr__", "__deepcopy__",
     "__reduce_ex__", "__torch_function__", "__orig_bases__", "__parameters__", "__class_getitem__"}
)  # fmt: skip
_OVERRIDES = ("__torch_function__", "__torch_dispatch__", "__getattribute__", "__getattr__", "__setattr__")
_METACLASSES = tuple(map(type, _TENSOR_CLASSES))


def is_torch_class(cls: type) -> bool:
    """Whether this is torch's own class of tensors, of parameters or of buffers."""
    return cls in _TENSOR_CLASSES


def is_plain_tensor(obj: Any) -> bool:
    return type(obj) in _TENSOR_CLASSES or only_adds_attributes(type(obj))


def only_adds_attributes(cls: type) -> bool:
    """Whether a class derives from a tensor's and changes nothing: operators give plain tensors, as of a parameter.

    A class that inherits ``Tensor.__torch_function__`` is none of them: operators on its tensors give tensors of it.
    """
    if cls in _TENSOR_CLASSES:
        return False
    if not issubclass(cls, torch.Tensor) or type(cls) not in _METACLASSES or hasattr(cls, "__getattr__"):
        return False
    function, dispatch = (getattr(cls, name, None) for name in ("__torch_function__", "__torch_dispatch__"))
    if function is not ti.disabled_torch_function or dispatch is not torch.Tensor.__torch_dispatch__:
        return False
    base = _torch_class(cls)
    own = {name for each in cls.__mro__[: cls.__mro__.index(base)] for name in vars(each)}
    return not any(name in _FOUND[base] or name == "__slots__" for name in own - _HARMLESS)


def _torch_class(cls: type) -> type:
    """torch's own class of tensors that ``cls`` is or derives from."""
    return next(base for base in cls.__mro__ if base in _FOUND)


def guard_additions(tr: Tracer, cls: type) -> None:
    """The class goes on changing nothing of what tensors do."""
    if cls not in _TENSOR_CLASSES:
        for name in _OVERRIDES:
            tr.guard_lookup(cls, name, tr.static_lookup(cls, name))


class TensorValue(GraphValue):
    """A tensor of the traced program.

    ``node`` is the graph node that computes it; ``example`` the fake tensor; ``cls`` the class that the program sees.
    """

    __slots__ = ("attrs", "cls", "example", "is_input")

    def __init__(
        self, node: Any, example: Any, source: Any = None, cls: type = torch.Tensor, is_input: bool = False
    ) -> None:
        self.node = node
        self.example = example
        self.source = source
        self.cls = cls
        self.is_input = is_input
        self.attrs: dict[str, Value] = {}  # attributes that the program gave it

    def pytype(self) -> type:
        return self.cls

    def describe(self) -> str:
        shape = "x".join(map(str, self.example.shape)) or "scalar"
        dtype = str(self.example.dtype).removeprefix("torch.")
        return f"tensor {self.source.words() if self.source else self.node.name} ({dtype}, {shape})"

    def const(self, tr: Tracer) -> Any:
        raise GraphBreak(TENSOR_TO_PYTHON, f"the value of {self.describe()} is needed in Python")

    def truth(self, tr: Tracer) -> bool:
        raise GraphBreak(DATA_DEPENDENT_BRANCH, f"the branch depends on the value of {self.describe()}")

    def arg(self, tr: Tracer) -> Any:
        if self.attrs and self.is_input and "data" in self.attrs:
            self._refuse("new data")
        return self.node

    def fake(self, tr: Tracer) -> Any:
        return self.example

    def hash_key(self, tr: Tracer) -> Any:
        """Tensors hash by identity, which is that of an argument if an operator has returned it as it was."""
        if tr.may_be_operand(self):
            raise GraphBreak(OPERATION, f"{self.describe()}, which may be another tensor, as a key")
        return self

    # --- attributes ------------------------------------------------------------------------------------------------

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        raw = tr.static_lookup(self.cls, name)
        if "data" in self.attrs and (self.is_input or raw is MISSING):
            return self._refuse(name)
        if raw is not _FOUND[_torch_class(self.cls)].get(name, MISSING):  # the program's, in its class or in torch's
            return self._of_the_program(tr, name, raw)
        self._guard_class(tr, name, raw)
        if name in CONST_PROPERTIES and raw is not MISSING:  # torch 2.13 has no names any more
            if name in _NOT_OF_FAKES and self.is_input:
                raise GraphBreak(OPERATION, f"{name} of {self.describe()}, which comes from outside")
            value = getattr(self.example, name)
            if name in _UNGUARDED and self.is_input and self.source is not None:
                tr.guards.add(PropertyEquals(self.source, name, value))
            return ConstValue(value)
        if name == "shape":
            return self.sizes(tr)
        if name == "ndim":
            return ConstValue(self.example.dim())
        if name == "nbytes":
            return tr.binary("*", self._shape_method(tr, "numel", []), ConstValue(self.example.element_size()))
        if name in TENSOR_PROPERTIES:
            return tr.emit("call_function", getattr, [self, ConstValue(name)], {})
        if name == "grad":
            return self._grad(tr)
        if name == "__class__":
            return tr.lift(self.cls)
        if name == "grad_fn":
            if self.example.grad_fn is None:
                if self.is_input and self.source is not None and self.example.requires_grad:
                    tr.guards.add(PropertyEquals(self.source, "is_leaf", True))
                return ConstValue(None)
            raise GraphBreak(OPERATION, f"grad_fn of {self.describe()}")
        if name == "_version":
            return self._version(tr)
        if name in ("__dict__", "_backward_hooks", "_base"):
            raise GraphBreak(OPERATION, f"{name} of {self.describe()}")
        if self.source is not None and self.is_input:
            real = tr.real_inputs[self.node]
            if name in real.__dict__:
                return tr.wrap(real.__dict__[name], Attr(self.source, name))
            if raw is MISSING:
                tr.guards.add(NoOwnAttribute(self.source, name))
        if raw is MISSING:
            message = f"'{self.cls.__name__}' object has no attribute '{name}'"
            raise Raised(tr.make_exception(AttributeError, message))
        if raw is None or isinstance(raw, str):  # __doc__
            return ConstValue(raw)
        return TensorMethodValue(self, name)

    def _of_the_program(self, tr: Tracer, name: str, raw: Any) -> Value:
        """An attribute that a class has of the program."""
        if self.source is not None and self.is_input and not tr.is_data_descriptor(raw):
            own = tr.real_inputs[self.node].__dict__
            if name in own:
                tr.guard_lookup(self.cls, name, raw)
                return tr.wrap(own[name], Attr(self.source, name))
            tr.guards.add(NotInDict(Attr(self.source, "__dict__"), name, "attribute "))
        return bind_class_attribute(tr, self, self.cls, name, raw)

    def has_mark(self, tr: Tracer, name: str) -> bool:
        """Whether torch has marked the object as a parameter or a buffer, which is no class then."""
        try:
            return self.getattr(tr, name).truth(tr)
        except Raised:
            return False

    def guard_operator(self, tr: Tracer, name: str) -> None:
        """Python's syntax goes on finding torch's own special method in the class."""
        raw = tr.static_lookup(self.cls, name)
        if raw is not _FOUND[_torch_class(self.cls)].get(name, MISSING):
            raise GraphBreak(OPERATION, f"{name} of {self.describe()}, which the program has replaced")
        self._guard_class(tr, name, raw)

    def _guard_class(self, tr: Tracer, name: str, raw: Any) -> None:
        """The class of the tensor goes on having under a name what torch has put there."""
        source = Const(self.cls, self.cls.__qualname__)
        if raw is MISSING and hasattr(self.cls, name):  # its metaclass has one
            tr.guards.add(NotInClasses(source, name))
        elif raw is MISSING:
            tr.guards.add(NoAttribute(source, name))
        elif getattr(self.cls, name, None) is raw:
            tr.guard_class_attribute(self.cls, name, raw)
        else:
            tr.guards.add(ClassFinds(source, name, raw))

    def _version(self, tr: Tracer) -> Value:
        """What an input had counted when the frame was entered, and the writes of the graph so far.

        What the graph has computed is answered here, because a compiler's results have counted nothing.
        """
        if self.is_counted_here(tr):
            return ConstValue(self.example._version)
        if self.source is None or not self.is_input or tr.region is not None or self.example.is_inference():
            return self._refuse("_version")
        if tr.writes_inputs(except_for=self):
            return self._refuse("_version")  # which may share its memory, and counts for both
        number, source = tr.real_inputs[self.node]._version, Attr(self.source, "_version")
        before = tr.number_input(number, source) if tr.dims.takes_data(number, source) else tr.wrap(number, source)
        return tr.binary("+", before, ConstValue(tr.writes_to(self)))

    def is_counted_here(self, tr: Tracer) -> bool:
        """Whether the fake tensor has counted every write to the tensor, which is new in the graph."""
        made = not self.is_input and tr.region is None and ti.is_fake_class(type(self.example))
        return made and not self.example.is_inference() and not tr.shares_memory_with_input(self.example)

    def _grad(self, tr: Tracer) -> Value:
        if self.source is None or not self.is_input:
            return ConstValue(None) if not self.example.is_leaf else self._refuse("grad")
        return tr.wrap(tr.real_inputs[self.node].grad, Attr(self.source, "grad"))

    def _takes_gradient(self, value: Value) -> bool:
        """Whether ``value`` is surely accepted as the gradient of this input."""
        if not self.is_input or self.source is None or not self.example.is_leaf:
            return False
        if not isinstance(value, TensorValue):
            return isinstance(value, ConstValue) and value.value is None
        mine, other = self.example, value.example
        same = mine.dtype == other.dtype and mine.device == other.device and tuple(mine.shape) == tuple(other.shape)
        return same and not other.requires_grad and value is not self

    def _takes_data(self, value: Value) -> bool:
        """Whether ``value`` is surely accepted as the data of this input."""
        if self.source is None or not (self.is_input or "data" in self.attrs) or not isinstance(value, TensorValue):
            return False
        mine, other = self.example, value.example
        if mine.dtype != other.dtype or mine.device != other.device or mine.is_inference() or other.is_inference():
            return False
        return not mine.requires_grad or (mine.shape == other.shape and mine.stride() == other.stride())

    def _set_data(self, tr: Tracer, value: Value) -> None:
        """The frame assigns it behind the graph; until then, the program computes with the new data.

        A tensor that requires gradients is not computed with any more: it would be the leaf that it was, of other data.
        """
        tr.effects.changed(self)
        data = self.attrs["data"] = tr.emit("call_method", "detach", [value], {})
        assert isinstance(data, TensorValue)
        if not self.example.requires_grad:
            self.node, self.example, self.is_input = data.node, data.example, False

    def _refuse(self, name: str) -> Value:
        raise GraphBreak(OPERATION, f"{name} of {self.describe()}")

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        if name == "grad" and self._takes_gradient(value) and tr.region is None:
            tr.effects.changed(self)
            self.attrs[name] = value
            return
        if name == "data" and value is self:
            return  # it has that data already
        if name == "data" and self._takes_data(value) and tr.region is None:
            self._set_data(tr, value)
            return
        raw = tr.static_lookup(self.cls, name)
        is_taken = hasattr(torch.Tensor, name) or (raw is not MISSING and hasattr(type(raw), "__get__"))
        if is_taken or (self.is_input and self.source is None):
            raise GraphBreak(OPERATION, f"setting attribute {name!r} of {self.describe()}")
        tr.guard_lookup(self.cls, name, raw)
        tr.effects.changed(self)
        self.attrs[name] = value

    def sizes(self, tr: Tracer) -> Value:
        return TupleValue([self.size(tr, d) for d in range(self.example.dim())], cls=torch.Size)

    def size(self, tr: Tracer, dim: int) -> Value:
        return tr.size_value(self, dim)

    # --- methods ---------------------------------------------------------------------------------------------------

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in _SHAPE_METHODS and not kwargs:
            return self._shape_method(tr, name, args)
        if name in _CONST_METHODS:
            result = getattr(self.example, name)(
                *(a.const(tr) for a in args), **{k: v.const(tr) for k, v in kwargs.items()}
            )
            return ConstValue(result)
        if name == "numpy" and not args and not kwargs:
            from .arrays import array_of

            return array_of(tr, self)
        if name in _TO_PYTHON:
            return self._to_python(tr, name, args)
        if name in ("register_hook", "retain_grad") and (meaning := tr.meaning_of(getattr(torch.Tensor, name))):
            return meaning(tr, [self, *args], kwargs)
        if name in _BY_FUNCTION and (meaning := tr.meaning_of(getattr(torch, name))) is not None:
            return meaning(tr, [self, *args], kwargs)
        if name == "requires_grad_" and self._already_requires_grad(tr, args, kwargs):
            return self
        if name in _STATEFUL or (name == "requires_grad_" and not self.is_input):
            raise GraphBreak(TORCH_STATE, f"Tensor.{name} on {self.describe()}")
        if name in _METADATA_IN_PLACE and self.is_input:
            raise GraphBreak(
                OPERATION, f"Tensor.{name} changes the shape, strides or autograd state of input {self.describe()}"
            )
        plain = name.rstrip("_")
        factor = _FACTORS.get(plain, "")
        if isinstance(kwargs.get(factor), TensorValue):
            kwargs = {**kwargs, factor: number_of(tr, kwargs[factor])}  # type: ignore[arg-type]
        if name == "type" and not args and not kwargs:
            return ConstValue(self.example.type())
        if name == "type":
            args, kwargs = [_type_name(a) for a in args], {k: _type_name(v) for k, v in kwargs.items()}
        if name == "new" and [a.pytype() for a in args] == [torch.Size]:
            name = "new_empty"  # a graph holds sizes as a tuple, and ``new`` would make a tensor of those numbers
        if name in ("__setitem__", "__getitem__", "__delitem__"):
            return getattr(self, name.strip("_"))(tr, *args) or ConstValue(None)
        if name == "__contains__":
            return self.contains(tr, *args)
        if name == "__iter__":
            return self.iter(tr)
        return tr.emit("call_method", name, [self, *args], kwargs)

    def _already_requires_grad(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> bool:
        wanted = args[0].const(tr) if args else kwargs["requires_grad"].const(tr) if kwargs else True
        return self.example.requires_grad == wanted

    def _shape_method(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        example = self.example
        if name in ("size", "sym_size"):
            return self.sizes(tr) if not args else self.size(tr, args[0].const(tr))
        if name == "__len__":
            if example.dim() == 0:
                raise Raised(tr.make_exception(TypeError, "len() of a 0-d tensor"))
            return self.size(tr, 0)
        if name == "stride":
            strides = example.stride()
            if self.source is not None and all(type(s) is int for s in strides) and 1 in example.shape:
                # The guard of the tensor itself does not look at the stride of a dimension of size one.
                tr.guards.add(Strides(self.source, tuple(strides)))
            if args:
                return tr.sym_property(self, "stride", args[0].const(tr), example.stride(args[0].const(tr)))
            return TupleValue([tr.sym_property(self, "stride", d, s) for d, s in enumerate(strides)])
        if name in ("numel", "nelement", "sym_numel"):
            return tr.sym_property(self, "numel", None, example.numel())
        offset = tr.sym_property(self, "storage_offset", None, example.storage_offset())
        if self.is_input and self.source is not None and isinstance(offset, ConstValue):
            tr.guards.add(StorageOffset(self.source, offset.value))
        return offset

    def _to_python(self, tr: Tracer, name: str, args: list[Value]) -> Value:
        if name == "__bool__":
            self.truth(tr)
        if name in READS and not args:
            return read_number(tr, self, name)
        raise GraphBreak(TENSOR_TO_PYTHON, f"Tensor.{name} on {self.describe()}")

    def length(self, tr: Tracer) -> Value:
        self.guard_operator(tr, "__len__")
        return self._shape_method(tr, "__len__", [])

    def getitem(self, tr: Tracer, key: Value) -> Value:
        self.guard_operator(tr, "__getitem__")
        key = arrays_as_tensors(tr, key)
        selected = select_symbolic(tr, self, self.example.dim(), key) if tr.symbolic or tr.dims.scalars else None
        if selected is not None:
            return selected
        return tr.emit("call_function", operator.getitem, [self, key], {})

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.guard_operator(tr, "__setitem__")
        key = arrays_as_tensors(tr, key)
        if tr.dims.scalars and depends_on_data(tr, key):  # torch's own would select at a place that no node tells
            selected = select_symbolic(tr, self, self.example.dim(), key)
            if selected is not None:
                tr.emit("call_function", operator.setitem, [selected, ConstValue(Ellipsis), value], {})
                return
        tr.emit("call_function", operator.setitem, [self, key, value], {})

    def contains(self, tr: Tracer, item: Value) -> Value:
        raise GraphBreak(TENSOR_TO_PYTHON, f"membership in {self.describe()}")

    def iter(self, tr: Tracer) -> Value:
        self.guard_operator(tr, "__iter__")
        return SequenceIterator(self.unpack(tr))

    def unpack(self, tr: Tracer) -> list[Value]:
        if self.example.dim() == 0:
            raise Raised(tr.make_exception(TypeError, "iteration over a 0-d tensor"))
        return tr.emit("call_method", "unbind", [self], {}).unpack(tr)

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        return [f"{target}.{name} = {out.value(new)}" for name, new in self.attrs.items()]

    def rebuild(self, out: FrameWriter) -> str:
        text = out.graph_output(self)
        if self.example.is_inference() and not torch.is_inference_mode_enabled():
            if self.example.is_conj() or self.example.is_neg():
                raise GraphBreak(OPERATION, f"{self.describe()}, a conjugate or negative view made in inference mode")
            text = out.shell(self, f"{out.names.const(as_inference)}({text})")
        if self.cls is torch.nn.Parameter:
            text = f"{out.names.const(self.cls)}({text}, False)"
        elif not self.attrs:
            return text
        variable = out.shell(self, text)
        for name, value in self.attrs.items():
            out.line(f"{variable}.{name} = {out.value(value)}")
        return variable


_NO_NUMBERS = torch.empty(0)  # whose methods have the same names and texts


class TensorMethodValue(Value):
    """A tensor's method, not called yet."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: TensorValue, name: str) -> None:
        self.owner = owner
        self.name = name
        self.source = None

    def pytype(self) -> type:
        return type(getattr(_NO_NUMBERS, self.name))

    def describe(self) -> str:
        return f"method {self.name} of {self.owner.describe()}"

    def truth(self, tr: Tracer) -> bool:
        return True

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_method(tr, self.name, args, kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__class__":
            return tr.lift(self.pytype())
        try:
            value = getattr(getattr(_NO_NUMBERS, self.name), name)
        except AttributeError as error:
            raise Raised(tr.exception(error)) from None
        if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)):  # bound to that tensor
            raise self.not_understood(f"attribute {name!r} of {self.describe()}")
        return tr.lift(value)

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.value(self.owner)}.{self.name}"


def _type_name(value: Value) -> Value:
    """A class like ``torch.LongTensor`` as its name, which means the same and which the code of a graph can hold."""
    cls = value.real()
    named = cls is torch.Tensor or isinstance(cls, type(torch.LongTensor))
    return ConstValue(f"{cls.__module__}.{cls.__name__}") if named else value
