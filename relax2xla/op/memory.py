"""``relax.memory``: storage made explicit, and views of tensors. Source: TVM Relax v0.20.

XLA plans memory itself; of these only ``view`` and ``ensure_zero_offset`` compute something.
"""

from __future__ import annotations

from typing import Any

from relax2xla import tir
from relax2xla.dtypes import dtype_info
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import DataTypeImm, Expr, Tuple
from relax2xla.ir.op import Given, Rule, op
from relax2xla.ir.op_param import PrimLike, ShapeLike
from relax2xla.ir.struct_info import (
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.ir.traits import Allocates, Opaque, Pointwise
from relax2xla.op.builtin import DTypeOperand, StringOperand, dtype_literal, pointless
from relax2xla.op.shared.checks import fold, product, want_shape, want_tensor
from relax2xla.op.shared.lowering import (
    dtype_of,
    elements,
    hlo,
    known,
    reshape,
    shape_of,
    slice_axis,
    tensor_info,
)
from relax2xla.op.shared.scalars import dim_of, integer
from relax2xla.tir import Dim


@op("relax.memory.alloc_storage", Opaque(), Allocates())
def alloc_storage(
    size: ShapeLike,
    virtual_device_index: PrimLike,
    storage_scope: StringOperand,
    dtype: DTypeOperand,
) -> Rule:
    """A block of memory.

    size: its bytes as a shape of rank 1; virtual_device_index: an integer;
    storage_scope, dtype: of no effect
    result: an object
    """
    want_shape(size, "size")
    return ObjectStructInfo(), pointless("memory.alloc_storage")


@op("relax.memory.alloc_tensor", Opaque(), Allocates())
def alloc_tensor(storage: Expr, offset: PrimLike, shape: ShapeLike, dtype: DTypeOperand) -> Rule:
    """A tensor in a block of memory.

    storage: of alloc_storage; offset: in bytes; shape: a shape; runtime_device_ind: an integer
    result: ``shape``, ``dtype``
    """
    want_shape(shape, "shape")
    return TensorStructInfo(shape, dtype_literal(dtype)), pointless("memory.alloc_tensor")


@op("relax.memory.kill_storage", Opaque(), pure=False)
def kill_storage(storage: Expr) -> Rule:
    """Gives a block of memory back.

    storage: of alloc_storage
    result: an empty tuple
    """
    return TupleStructInfo(()), pointless("memory.kill_storage")


@op("relax.memory.kill_tensor", Opaque(), pure=False)
def kill_tensor(tensor: Expr) -> Rule:
    """Ends the life of a tensor.

    tensor: any tensor
    result: an empty tuple
    """
    want_tensor(tensor, "tensor")
    return TupleStructInfo(()), pointless("memory.kill_tensor")


@op("relax.memory.ensure_zero_offset", Pointwise(flops=0))
def ensure_zero_offset(data: Expr) -> Rule:
    """``data`` in a buffer of its own; XLA's arrays always are.

    data: any tensor
    result: ``data``
    """
    return want_tensor(data, "data"), lambda: data


def _absent(x: Any) -> bool:
    """Whether an optional operand was left out, which TVM writes as an empty tuple."""
    return x is None or (isinstance(x, Tuple) and not x.fields)


def _named(dtype: Expr) -> str:
    """The dtype that an operand names; "" (unknown) of an object that may hold any."""
    held = isinstance(dtype.struct_info_, ObjectStructInfo) and not isinstance(dtype, DataTypeImm)
    return "" if held else dtype_literal(dtype)


def _beyond(info: TensorStructInfo, made: TensorStructInfo, offset: Dim, all_of_it: bool) -> bool:
    """Whether a view ``made`` at byte ``offset`` provably has bytes that ``info`` has not.

    ``all_of_it``: it has the shape of ``info``, known or not. A tensor of unknown size has elements
    here, as in TVM: a view that only an empty one could have is a mistake.
    """
    if isinstance(offset, int) and offset < 0:
        return True
    # The bytes of an element count only where they differ.
    old, new = (dtype_info(i.dtype).nbytes if i.dtype else None for i in (info, made))
    if old is None or new is None:
        if info.dtype != made.dtype:
            return False
        old = new = 1
        offset = 0 if not all_of_it else offset
    if all_of_it and info.dims is None:
        return new > old or (isinstance(offset, int) and offset > 0 and new >= old)
    if info.dims is None or made.dims is None:
        return False
    end, last = offset + product(made.dims) * new, product(info.dims) * old
    if isinstance(end, int) and isinstance(last, int):
        return end > last
    analyzer = tir.Analyzer()
    analyzer.mark_shape_vars(*(v for d in (*info.dims, *made.dims) for v in tir.free_vars(d)))
    return analyzer.can_prove(tir.GT.make(end, last))


@op("relax.memory.view", Opaque())
def view(
    data: Expr,
    shape: ShapeLike = None,
    dtype: DTypeOperand = None,
    relative_byte_offset: PrimLike = None,
) -> StructInfo:
    """The bytes of ``data`` from an offset on, read as another shape and dtype.

    data: any tensor; relative_byte_offset: an integer; what is left out stays as it is
    result: ``shape``, ``dtype``, which is unknown where a variable holds it
    Raises ``OpError`` if the view reaches beyond the bytes of ``data``.
    """
    info = want_tensor(data, "data")
    kind = info.dtype if _absent(dtype) else _named(dtype)
    offset = None if _absent(relative_byte_offset) else dim_of(relative_byte_offset, "offset")
    if offset is None:
        offset = 0  # one that is known only when the program runs can be 0
    if _absent(shape):
        made = TensorStructInfo(info.dims, kind) if info.dims is not None else None
        made = made or TensorStructInfo(None, kind, ndim=info.ndim)
    else:
        want_shape(shape, "shape")
        made = TensorStructInfo(shape, kind)
    if _beyond(info, made, offset, _absent(shape)):
        raise OpError(f"a view as {show(made)} at byte {offset} reaches beyond {show(info)}")
    return made


@view.shorthand
def _(given: Given) -> Given:
    optional = ("shape", "dtype", "relative_byte_offset")
    return {name: Tuple(()) for name in optional if given[name] is None}


@view.legalize
def _(
    data: Expr,
    shape: ShapeLike = None,
    dtype: DTypeOperand = None,
    relative_byte_offset: PrimLike = None,
) -> Expr:
    result = view(data, shape, dtype, relative_byte_offset)
    if not (_absent(dtype) or isinstance(dtype, DataTypeImm)):
        raise LegalizeError("relax.memory.view: `dtype` must be known here, as R.dtype(...)")
    old, new = dtype_info(dtype_of(data)), dtype_info(dtype_of(result))
    offset = 0 if _absent(relative_byte_offset) else integer(relative_byte_offset, "offset")
    target = shape_of(result)
    count = elements(target)
    nbytes = count * new.nbytes
    rests = [fold(n % old.nbytes) for n in (offset, nbytes)]
    if ("bool" in (old.kind, new.kind) and old.name != new.name) or rests != [0, 0]:
        raise LegalizeError("relax.memory.view: a view that splits elements is not supported")
    if old.nbytes != new.nbytes and not known(count):
        raise LegalizeError(
            f"relax.memory.view: elements of another size ({old.name} as {new.name}) are counted "
            f"in numbers only; the view has the shape {show(result.struct_info)}"
        )
    flat = reshape(data, (elements(shape_of(data)),))
    start = offset // old.nbytes
    flat = slice_axis(flat, 0, start, start + nbytes // old.nbytes)
    if old.name != new.name:
        flat = _bitcast(flat, old.nbytes, new.nbytes, new.name, count)
    return reshape(flat, target)


def _bitcast(flat: Expr, old: int, new: int, dtype: str, count: int) -> Expr:
    """The bits of a vector as elements of another width."""
    if old < new:
        flat = reshape(flat, (count, new // old))
        return hlo("bitcast_convert", flat, out=tensor_info((count,), dtype))
    wide = (count,) if old == new else (count * new // old, old // new)
    return hlo("bitcast_convert", flat, out=tensor_info(wide, dtype))
