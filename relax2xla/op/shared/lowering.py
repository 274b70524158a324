"""What legalisations share: StableHLO rows with numpy's conveniences.

Everything here builds calls of rows (``relax.stablehlo.*``). An operand whose shape is not static
raises :class:`LegalizeError` (the machine specialises functions per call), except within
:func:`symbolic_dims`: there a symbolic dimension is an expression that stands where the integer
would. It adds and multiplies as one and is equal to nothing but itself; a rule that needs more, its
order or its value, raises. The rows that are built that way have symbolic results and attributes,
and transform/lower/dynamic_rows.py makes StableHLO's dynamic operations of them.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import dtype_info, limits, numpy_dtype
from relax2xla.errors import LegalizeError
from relax2xla.ir.expr import Call, Constant, Expr, Function, ShapeExpr, Tuple, Var
from relax2xla.ir.op import Op
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, show
from relax2xla.op.shared.checks import fold, same_dim

# Integers; within symbolic_dims also expressions that stand for them.
Shape = tuple[int, ...]
_SYMBOLIC: Final = ContextVar("symbolic dimensions", default=False)


def symbolic(*dims: Any) -> bool:
    """Whether one is a symbolic integer."""
    return any(isinstance(d, tir.PrimExpr) for d in dims)


@contextmanager
def symbolic_dims() -> Generator[None]:
    """Lower over symbolic dimensions (see the module's docstring)."""
    token = _SYMBOLIC.set(True)
    try:
        yield
    finally:
        _SYMBOLIC.reset(token)


def symbols_allowed() -> bool:
    """Whether this is within :func:`symbolic_dims`."""
    return _SYMBOLIC.get()


def known(*dims: Any) -> bool:
    """Whether all are integers, so that a rule may ask for their values."""
    return not _SYMBOLIC.get() or not symbolic(*dims)


def hlo(
    name: str, *operands: Expr, out: StructInfo | Sequence[StructInfo] = (), **attrs: Any
) -> Call:
    """A call of the row ``relax.stablehlo.NAME``; ``out``: the result, if it cannot be inferred."""
    suffix = "_" if keyword.iskeyword(name) else ""
    return Op.get(f"relax.stablehlo.{name}{suffix}")(*operands, sinfo_args=out, **attrs)


def chlo(name: str, *operands: Expr, **attrs: Any) -> Call:
    """A call of the row ``relax.chlo.NAME``."""
    return Op.get(f"relax.chlo.{name}")(*operands, **attrs)


def relax(name: str, *operands: Any, **attrs: Any) -> Call:
    """A call of the high-level operator ``relax.NAME``, to be legalised in turn."""
    return Op.get(f"relax.{name}")(*operands, **attrs)


def info_of(x: Expr) -> TensorStructInfo:
    """Struct info of a tensor."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise LegalizeError(f"expected a tensor; {x!r} is {show(info)}")
    return info


def static(dims: Sequence[Any] | None, what: str = "the shape") -> Shape:
    """``dims`` as integers; LegalizeError where all are unknown, or one is symbolic.

    Within :func:`symbolic_dims` they may be symbolic.
    """
    if dims is None or not (_SYMBOLIC.get() or all(isinstance(d, int) for d in dims)):
        text = "unknown" if dims is None else f"({', '.join(map(str, dims))})"
        raise LegalizeError(
            f"{what} must be static to lower this operator; it is {text}. Bind the symbolic "
            "dimensions (Function.bind_symbolic_vars), or run it on the virtual machine"
        )
    return tuple(dims)


def shape_of(x: Expr) -> Shape:
    """Static shape of a tensor."""
    dims = info_of(x).dims
    # The message is written only where it is needed: this is called for every operand.
    if dims is not None and all(type(d) is int for d in dims):
        return dims  # pyright: ignore[reportReturnType]
    return static(dims, f"the shape of {x!r}")


def elements(dims: Iterable[int]) -> int:
    """How many elements a tensor of these dimensions has."""
    count = 1
    for d in dims:
        count = count * d
    return _folded(count)


def dtype_of(x: Expr) -> str:
    """dtype of a tensor."""
    return info_of(x).dtype


def tensor_info(shape: Sequence[int], dtype: str) -> TensorStructInfo:
    """Struct info of a tensor of this shape."""
    if _SYMBOLIC.get():
        shape = [d if type(d) is int else _folded(d) for d in shape]
    return TensorStructInfo.make(tuple(shape), dtype)


def full(shape: Sequence[int], value: Any, dtype: str) -> Expr:
    """One value everywhere: a constant (it costs one value of memory) where the shape is static."""
    single = _symbol(value, dtype) if isinstance(value, tir.PrimExpr) else None
    if single is None:
        array = np.asarray(value, dtype=numpy_dtype(dtype))
        if known(*shape):
            return Constant(np.broadcast_to(array, tuple(shape)))
        single = Constant(array)
    return broadcast_in_dim(single, shape, ())


def scalar(value: Any, dtype: str) -> Expr:
    """A 0-dimensional constant, or the value of a symbolic integer."""
    return full((), value, dtype)


def full_like(x: Expr, value: Any) -> Expr:
    """:func:`full` of the shape and dtype of ``x``."""
    return full(shape_of(x), value, dtype_of(x))


def index_constant(values: Any, dtype: str = "int32") -> Expr:
    """A small constant array of integers; a vector of them may hold symbolic ones."""
    if isinstance(values, list | tuple) and any(isinstance(v, tir.PrimExpr) for v in values):
        return convert(relax("shape_to_tensor", ShapeExpr(values)), dtype)
    return Constant(np.asarray(values, dtype=numpy_dtype(dtype)))


def _symbol(value: tir.PrimExpr, dtype: str) -> Expr:
    """A symbolic integer as a tensor of rank 0."""
    return reshape(index_constant([value], dtype), ())


def reshape(x: Expr, shape: Sequence[int]) -> Expr:
    """``x`` in another shape of as many elements."""
    info = tensor_info(shape, dtype_of(x))
    return x if shape_of(x) == info.dims else hlo("reshape", x, out=info)


def transpose(x: Expr, permutation: Sequence[int]) -> Expr:
    """``x`` with its axes permuted."""
    order = tuple(permutation)
    return x if order == tuple(range(len(order))) else hlo("transpose", x, permutation=order)


def convert(x: Expr, dtype: str) -> Expr:
    """``x`` converted by StableHLO's rules (floats to integers truncate towards zero)."""
    return x if dtype_of(x) == dtype else hlo("convert", x, out=tensor_info(shape_of(x), dtype))


def broadcast_in_dim(x: Expr, shape: Sequence[int], dims: Sequence[int]) -> Expr:
    """``x`` with its axis i at axis ``dims[i]`` of ``shape``; size-1 axes and new axes expand."""
    info = tensor_info(shape, dtype_of(x))
    if shape_of(x) == info.dims and tuple(dims) == tuple(range(len(shape))):
        return x
    return hlo("broadcast_in_dim", x, out=info, broadcast_dimensions=tuple(dims))


def broadcast_to(x: Expr, shape: Sequence[int]) -> Expr:
    """numpy's ``broadcast_to``: axes align at the end."""
    offset = len(shape) - len(shape_of(x))
    return broadcast_in_dim(x, shape, [offset + i for i in range(len(shape_of(x)))])


def broadcast_together(*xs: Expr) -> list[Expr]:
    """numpy's broadcasting."""
    shape = broadcast_shapes(*(shape_of(x) for x in xs))
    return [broadcast_to(x, shape) for x in xs]


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that numpy's broadcasting gives; of dimensions that may differ, what is not 1."""
    if not _SYMBOLIC.get() or all(known(*s) for s in shapes):
        return np.broadcast_shapes(*shapes)
    made: list[Any] = [1] * max(map(len, shapes))
    for shape in shapes:
        for i, d in enumerate(shape, len(made) - len(shape)):
            if made[i] == 1:
                made[i] = d
            elif d != 1 and not same_dim(made[i], d):
                made[i] = _wider(made[i], d)
    return tuple(made)


def _wider(a: Any, b: Any) -> Any:
    """The size that two sizes broadcast to."""
    if known(a, b):
        raise LegalizeError(f"dimensions of size {a} and {b} cannot be broadcast")
    if known(a) or known(b):  # The other is it, or 1.
        return a if known(a) else b
    return tir.Select(tir.EQ(a, 1), b, a)


def no_gradient(x: Expr) -> Expr:
    """A float ``x`` as rows without a derivative: its bits, and back."""
    bits = tensor_info(shape_of(x), f"int{dtype_info(dtype_of(x)).bits}")
    return hlo("bitcast_convert", hlo("bitcast_convert", x, out=bits), out=info_of(x))


def binary(name: str, a: Expr, b: Expr) -> Expr:
    """An element-wise row of two operands after numpy broadcasting."""
    return hlo(name, *broadcast_together(a, b))


def compare(a: Expr, b: Expr, direction: str) -> Expr:
    """``a`` DIRECTION ``b`` after broadcasting; EQ, NE, LT, LE, GT, GE. NaN is unordered."""
    a, b = broadcast_together(a, b)
    kind = dtype_info(dtype_of(a)).kind
    order = "FLOAT" if kind in ("float", "complex") else "SIGNED" if kind == "int" else "UNSIGNED"
    return hlo("compare", a, b, comparison_direction=direction, compare_type=order)


def select(pred: Expr, a: Expr, b: Expr) -> Expr:
    """``where(pred, a, b)`` after broadcasting."""
    return hlo("select", *broadcast_together(pred, a, b))


def iota(shape: Sequence[int], axis: int, dtype: str) -> Expr:
    """0, 1, 2, ... along one axis."""
    return hlo("iota", out=tensor_info(shape, dtype), iota_dimension=axis)


def region(
    params: Sequence[tuple[str, StructInfo]], body: Callable[..., Expr | Sequence[Expr]]
) -> Function:
    """A local function for an op with a region: ``body`` is called with its variables."""
    made = [Var(name, info) for name, info in params]
    result = body(*made)
    return Function(made, result if isinstance(result, Expr) else Tuple(result))


def scalar_region(name: str, dtype: str) -> Function:
    """``(a, b) -> NAME(a, b)`` on scalars, the region of a reduction."""
    info = tensor_info((), dtype)
    return region([("a", info), ("b", info)], lambda a, b: hlo(name, a, b))


def identity_of(name: str, dtype: str) -> Any:
    """Identity element of a reduction row: add, multiply, maximum, minimum, and, or."""
    kind = dtype_info(dtype).kind
    if name in ("maximum", "minimum"):
        low, high = (-np.inf, np.inf) if kind == "float" else limits(dtype)
        return low if name == "maximum" else high
    if name == "and":
        return True if kind == "bool" else limits(dtype)[1] if kind == "uint" else -1
    return 1 if name == "multiply" else 0


def reduce(x: Expr, name: str, axes: Sequence[int], keepdims: bool = False) -> Expr:
    """Reduction of ``x`` over axes (counted from the front) with the row ``name``."""
    shape, dtype = shape_of(x), dtype_of(x)
    init = scalar(identity_of(name, dtype), dtype)
    result: Expr = hlo(
        "reduce", x, init, scalar_region(name, dtype), dimensions=tuple(sorted(axes))
    )
    if keepdims:
        result = reshape(result, [1 if i in axes else d for i, d in enumerate(shape)])
    return result


def spread(x: Expr, shape: Sequence[int], axes: Sequence[int]) -> Expr:
    """``x``, a reduction over ``axes`` of something of shape ``shape``, repeated along them."""
    return broadcast_in_dim(x, shape, [a for a in range(len(shape)) if a not in axes])


def take_slice(
    x: Expr, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None
) -> Expr:
    """``x[start:limit:strides]`` on every axis."""
    shape = shape_of(x)
    steps = tuple(strides) if strides is not None else (1,) * len(shape)
    if all(s == 0 for s in start) and tuple(limit) == shape and all(s == 1 for s in steps):
        return x
    out = ()
    if not known(*start, *limit):
        sizes = [-((a - b) // s) for a, b, s in zip(start, limit, steps, strict=True)]
        out = tensor_info(sizes, dtype_of(x))
    return hlo(
        "slice", x, out=out, start_indices=tuple(start), limit_indices=tuple(limit), strides=steps
    )


def slice_axis(x: Expr, axis: int, start: int, limit: int, stride: int = 1) -> Expr:
    """``x[..., start:limit:stride, ...]`` on one axis."""
    starts, limits_, steps = [0] * len(shape_of(x)), list(shape_of(x)), [1] * len(shape_of(x))
    starts[axis], limits_[axis], steps[axis] = start, limit, stride
    return take_slice(x, starts, limits_, steps)


def concatenate(xs: Sequence[Expr], axis: int) -> Expr:
    """Several tensors one after the other along an axis."""
    return xs[0] if len(xs) == 1 else hlo("concatenate", *xs, dimension=axis)


def pad(
    x: Expr,
    low: Sequence[int],
    high: Sequence[int],
    value: Expr,
    interior: Sequence[int] | None = None,
) -> Expr:
    """``x`` with ``value`` around it, and ``interior`` of it between elements; negative crops."""
    inner = interior if interior is not None else (0,) * len(low)
    if not known(*low, *high, *inner):
        low, high, inner = ([_folded(d) for d in pads] for pads in (low, high, inner))
    if all(n == 0 for n in (*low, *high, *inner)):
        return x
    out = ()
    shape = shape_of(x)
    if not known(*low, *high, *inner, *shape):
        sizes = [_padded(*dim) for dim in zip(shape, low, high, inner, strict=True)]
        out = tensor_info(sizes, dtype_of(x))
    return hlo(
        "pad",
        x,
        value,
        out=out,
        edge_padding_low=tuple(low),
        edge_padding_high=tuple(high),
        interior_padding=tuple(inner),
    )


def _folded(d: int) -> int:
    return cast(int, fold(d))


def larger(a: int, b: int) -> int:
    """The larger of two sizes."""
    return max(a, b) if known(a, b) else _folded(cast(int, tir.max(a, b)))


def smaller(a: int, b: int) -> int:
    """The smaller of two sizes."""
    return min(a, b) if known(a, b) else _folded(cast(int, tir.min(a, b)))


def _padded(size: Any, low: Any, high: Any, inner: Any) -> Any:
    """A dimension after padding; of none there is nothing between its elements."""
    if inner == 0:
        return size + low + high
    return size + low + high + larger(size - 1, 0) * inner


def dot_general(
    a: Expr,
    b: Expr,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    out_dtype: str | None = None,
    **attrs: Any,
) -> Expr:
    """Contraction: batch axes first, then free axes of ``a``, then those of ``b``.

    ``attrs``: others of the row's attributes.
    """
    dims = {
        "lhs_batching_dimensions": tuple(batch[0]),
        "rhs_batching_dimensions": tuple(batch[1]),
        "lhs_contracting_dimensions": tuple(contract[0]),
        "rhs_contracting_dimensions": tuple(contract[1]),
    }
    attrs = {"dot_dimension_numbers": dims, **attrs}
    call = hlo("dot_general", a, b, **attrs)
    if out_dtype is None or out_dtype == dtype_of(call):
        return call
    info = tensor_info(shape_of(call), out_dtype)
    return hlo("dot_general", a, b, out=info, **attrs)


def sum_dtype(dtype: str) -> str:
    """The dtype in which values of a float ``dtype`` are summed: at least float32."""
    info = dtype_info(dtype)
    return "float32" if info.kind == "float" and info.bits < 32 else dtype


def in_float32(rule: Callable[[Expr], Expr], x: Expr) -> Expr:
    """``rule(x)``, computed in float32 where the dtype of ``x`` is a narrower float."""
    dtype = dtype_of(x)
    return convert(rule(convert(x, sum_dtype(dtype))), dtype)


def contraction_dtype(a: str, b: str, out: str) -> tuple[str, str]:
    """dtypes in which operands of dtypes ``a`` and ``b`` are contracted, and of the row's result.

    StableHLO wants operands of one dtype and a result no narrower; XLA:CPU sums in the result's
    dtype, so float16 and bfloat16 give a float32 result (to be converted to ``out`` by the caller).
    """
    operand = a
    if a != b:
        operand = str(np.promote_types(numpy_dtype(a), numpy_dtype(b)))
    kind, bits = dtype_info(operand).kind, dtype_info(operand).bits
    result = operand
    if dtype_info(out).kind == kind and dtype_info(out).bits > bits:
        result = out
    elif kind != dtype_info(out).kind:
        operand = result = out
    if kind == "float" and dtype_info(result).bits < 32:
        result = "float32"
    return operand, result


def outputs(call: Call) -> list[Expr]:
    """The results of a row that has several."""
    info = call.struct_info
    return (
        [call[i] for i in range(len(info.fields))] if isinstance(info, TupleStructInfo) else [call]
    )
