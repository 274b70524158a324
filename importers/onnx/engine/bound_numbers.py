"""Values that are known only when the model runs, as symbolic integers of the function.

The machine reads the values of an integer tensor (``R.tensor_to_shape``), binds them to symbolic
variables (``R.match_cast``) and compiles what follows for each of their values; see docs/vm.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import is_float
from relax2xla.importers.onnx.engine.known_items import items_of
from relax2xla.importers.onnx.engine.known_values import NeedsValue, info_of
from relax2xla.importers.shared.dims import same_dim
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Call, Constant, Expr, Op, ShapeStructInfo, TensorStructInfo, Var
from relax2xla.ir.traits import Broadcasting, MatMul
from relax2xla.tir import Dim
from relax2xla.vm.call.symbol_values import OFFSET

# An input that says a shape or positions has no more values.
LIST_LIMIT = 1 << 16


def name_of(builder: BlockBuilder, x: Expr, what: str) -> str:
    """What symbols of the values of ``x`` are called: as an input of the function is, else as the
    operator names it ("the input sizes").
    """
    if isinstance(x, Var) and builder.lookup_binding(x) is None:
        return re.sub(r"\W", "_", x.name_hint)
    return re.sub(r"\W", "_", what.split()[-1])


def count_of(x: Expr, what: str) -> int:
    """How many values a scalar or vector has; ``NeedsValue`` where that is not known."""
    dims = info_of(x).dims
    if dims is not None and len(dims) == 0:
        return 1
    if dims is None or len(dims) != 1 or not isinstance(dims[0], int):
        raise NeedsValue(x, f"{what}, whose number of values is not known,")
    limited(x, what)
    return dims[0]


def limited(x: Expr, what: str) -> None:
    """Raise a gap for a vector of more values than one that says positions may have."""
    count = (info_of(x).dims or (0,))[0]
    if isinstance(count, int) and count > LIST_LIMIT:
        raise Unsupported(f"{what} has {count} values; {LIST_LIMIT} are supported")


def vector(builder: BlockBuilder, x: Expr, name: str = "") -> Expr:
    """A scalar or vector of integers as an int64 vector; a new variable is called ``name``."""
    info = info_of(x)
    if info.dims is not None and len(info.dims) == 0:
        x = R.reshape(x, (1,))
    made = x if info.dtype == "int64" else R.astype(x, "int64")
    return made if isinstance(made, Constant | Var) else builder.emit(made, name)


def bound_sizes(builder: BlockBuilder, x: Expr, what: str) -> list[Dim]:
    """The values of ``x``, which must not be negative, as symbolic variables."""
    name = name_of(builder, x, what)
    return _bound(builder, R.tensor_to_shape, vector(builder, x, name), name, what)


def _bound(
    builder: BlockBuilder, read: Callable[[Expr], Expr], x: Expr, name: str, what: str
) -> list[Dim]:
    """The integers of a shape that ``read`` makes of the values of a vector, as variables."""
    if count_of(x, what) == 0:
        return []
    shape = read(x)
    info = shape.struct_info
    assert isinstance(info, ShapeStructInfo)
    if read is R.tensor_to_bits:
        names = [f"{name}_{i}{half}" for i in range(info.ndim // 2) for half in ("", "_less")]
        known: list[int | None] = [None] * info.ndim
    else:
        names = [f"{name}_{i}" for i in range(info.ndim)]
        known = items_of(builder, x) or [None] * info.ndim
        sizes = [k for k in known if k is not None and k >= 0]
        if len(sizes) == info.ndim:
            return list(sizes)
    dims: list[Dim] = [
        tir.Var(builder.get_unique_name(n), "int64") if k is None or k < 0 else k
        for n, k in zip(names, known, strict=True)
    ]
    builder.match_cast(builder.emit(shape), ShapeStructInfo(dims))
    return dims


def bound_integers(builder: BlockBuilder, x: Expr, what: str) -> list[Dim]:
    """The values of ``x`` as symbolic integers of either sign.

    Those beyond 2**40, which say "to the end", are cut to it.
    """
    offset = Constant(np.array(OFFSET, np.int64))
    name = name_of(builder, x, what)
    values = R.minimum(vector(builder, x, name), offset)
    values = R.maximum(values, Constant(np.array(-OFFSET, np.int64)))
    values = builder.emit(R.add(values, offset), name)
    moved = _bound(builder, R.tensor_to_shape, values, name, what)
    return [v - OFFSET for v in moved]


def bound_floats(builder: BlockBuilder, x: Expr, what: str) -> list[Any]:
    """The values of ``x`` as symbolic numbers (``R.tensor_to_bits``), exact in float64."""
    info = info_of(x)
    flat = (
        x if info.dims is not None and len(info.dims) == 1 else R.reshape(x, (count_of(x, what),))
    )
    if not is_float(info.dtype):
        flat = R.astype(flat, "float64")
    name = name_of(builder, x, what)
    flat = flat if isinstance(flat, Var) else builder.emit(flat, name)
    bits = _bound(builder, R.tensor_to_bits, flat, name, what)
    pairs = zip(bits[::2], bits[1::2], strict=True)
    return [tir.reinterpret("float64", tir.as_prim_expr(m) - t) for m, t in pairs]


def pinned(builder: BlockBuilder, x: Expr, dims: Sequence[Dim | None]) -> Expr:
    """``x`` with these dimensions, None for one that is read off the value itself."""
    made = [tir.Var(builder.get_unique_name("n"), "int64") if d is None else d for d in dims]
    bound = x if isinstance(x, Var) else builder.emit(x)
    return builder.match_cast(bound, TensorStructInfo(made, info_of(x).dtype))


def sizes_together(x: Expr) -> list[Dim | None] | None:
    """The sizes of a call that broadcasts its operands, None for those that are open; None of all
    other values.

    A size that is a number, but not 1, is the result's: a symbolic one beside it is it, or 1.
    """
    if not isinstance(x, Call) or not isinstance(x.op, Op):
        return None
    if not (x.op.has(Broadcasting) or x.op.has(MatMul)):
        return None
    found = [a.struct_info for a in x.args]
    shapes = [i.dims for i in found if isinstance(i, TensorStructInfo) and i.dims is not None]
    if len(shapes) != len(found):
        return None
    tail: list[Dim | None] = []
    if x.op.has(MatMul):
        left, right = shapes
        tail = [*left[-2:-1], *(right[-1:] if len(right) > 1 else ())]
        shapes = [left[:-2], right[:-2]]
    ndim = max(map(len, shapes))
    at = [[s[i - ndim] for s in shapes if i >= ndim - len(s)] for i in range(ndim)]
    return [*map(_together, at), *tail]


def _together(dims: Sequence[Dim]) -> Dim | None:
    wide = [d for d in dims if not isinstance(d, int) or d != 1]
    known = next((d for d in wide if isinstance(d, int)), None)
    if known is not None or not wide:
        return 1 if known is None else known
    return wide[0] if all(same_dim(d, wide[0]) for d in wide[1:]) else None
