"""Values that are known only when the model runs, as symbolic integers of the function.

The machine reads the values of an integer tensor (``R.tensor_to_shape``), binds them to symbolic
variables (``R.match_cast``) and compiles what follows for each of their values; see docs/vm.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax2xla import op as R
from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.onnx.values import NeedsValue, info_of
from relax2xla.ir import Constant, Expr, ShapeStructInfo, TensorStructInfo
from relax2xla.tir import Dim

# A shape holds no negative numbers: integers that may be negative are bound with so much added.
OFFSET = 1 << 40
# An input that says a shape or positions has no more values.
LIST_LIMIT = 1 << 16


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


def vector(builder: BlockBuilder, x: Expr) -> Expr:
    """A scalar or vector of integers as an int64 vector."""
    info = info_of(x)
    if info.dims is not None and len(info.dims) == 0:
        x = R.reshape(x, (1,))
    made = x if info.dtype == "int64" else R.astype(x, "int64")
    return made if isinstance(made, Constant) else builder.emit(made)


def bound_sizes(builder: BlockBuilder, x: Expr, what: str) -> list[Dim]:
    """The values of ``x``, which must not be negative, as symbolic variables."""
    count = count_of(x, what)
    if count == 0:
        return []
    shape = builder.emit(R.tensor_to_shape(vector(builder, x)))
    names = [tir.Var(builder.get_unique_name("n"), "int64") for _ in range(count)]
    builder.match_cast(shape, ShapeStructInfo(names))
    return list(names)


def bound_integers(builder: BlockBuilder, x: Expr, what: str) -> list[Dim]:
    """The values of ``x`` as symbolic integers of either sign.

    Those beyond 2**40, which say "to the end", are cut to it.
    """
    offset = Constant(np.array(OFFSET, np.int64))
    values = R.minimum(vector(builder, x), offset)
    values = R.maximum(values, Constant(np.array(-OFFSET, np.int64)))
    moved = bound_sizes(builder, builder.emit(R.add(values, offset)), what)
    return [v - OFFSET for v in moved]


def pinned(builder: BlockBuilder, x: Expr, dims: Sequence[Dim | None]) -> Expr:
    """``x`` with these dimensions, None for one that is read off the value itself."""
    made = [tir.Var(builder.get_unique_name("n"), "int64") if d is None else d for d in dims]
    return builder.match_cast(builder.emit(x), TensorStructInfo(made, info_of(x).dtype))
