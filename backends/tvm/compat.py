"""Names that differ between versions of TVM.

Until 0.25 the types of Relax are called structural information, and kernels are walked by functions of TVM's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

try:
    from tvm.sym import Analyzer as Analyzer
except ImportError:
    from tvm.arith import Analyzer as Analyzer  # until 0.26

_OLD = hasattr(relax, "TensorStructInfo")

TensorType: Any = relax.TensorStructInfo if _OLD else relax.TensorType
ShapeType: Any = relax.ShapeStructInfo if _OLD else relax.ShapeType
TupleType: Any = relax.TupleStructInfo if _OLD else relax.TupleType
Call: Any = getattr(tvm.ir, "Call", None) or tirx.Call
Load: Any = getattr(tvm.ir, "TensorLoad", None) or tirx.BufferLoad
StringImm: Any = getattr(tvm.ir, "StringImm", None) or relax.StringImm


def of(expression: Any) -> Any:
    """The type of a Relax expression."""
    return expression.struct_info if _OLD else expression.ty


def dtype_of(expression: Any) -> str:
    """The dtype of a tensor in Relax."""
    dtype = of(expression).dtype
    return str(getattr(dtype, "dtype", dtype))


def dtype_of_scalar(expression: Any) -> str:
    """The dtype of an expression in a kernel."""
    dtype = expression.ty.dtype if hasattr(expression, "ty") else expression.dtype
    return str(getattr(dtype, "dtype", dtype))


def call_returning(function: str, arguments: list[Any], result: Any) -> Any:
    """A call of a packed function that returns what the type ``result`` says."""
    return relax.call_pure_packed(function, *arguments, **{"sinfo_args" if _OLD else "ty_args": result})


def collected(root: Any, *kinds: Any) -> list[Any]:
    """The expressions of these classes in a statement or expression, operands before what uses them."""
    found: list[Any] = []
    if hasattr(tvm_ffi, "structural_walk"):
        tvm_ffi.structural_walk(root, (kinds if len(kinds) > 1 else kinds[0], found.append), order="post")
    else:
        tirx.stmt_functor.post_order_visit(root, lambda node: found.append(node) if isinstance(node, kinds) else None)
    return found


def with_replaced(body: Any, replace: Callable[[Any], Any], *kinds: Any) -> Any:
    """A statement in which each expression of these classes is what ``replace`` makes of it, operands first."""
    if hasattr(tvm_ffi, "structural_map"):
        return tvm_ffi.structural_map(body, (kinds if len(kinds) > 1 else kinds[0], replace), order="post")
    return tirx.stmt_functor.ir_transform(body, None, replace, [f"tirx.{kind.__name__}" for kind in kinds])


def source_of(region: Any) -> Any:
    """The buffer that a region is of, or that an element is loaded from."""
    return region.source if hasattr(region, "source") else region.buffer
