"""QuantizeWeights: weights that are constants in integers of 8 or 4 bits, with a scale a group."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla import op
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.errors import TransformError
from relax2xla.ir import Call, Constant, Expr, Function, IRModule, Op, const
from relax2xla.transform.core import FunctionPass, PassContext, register

Array = npt.NDArray[Any]
# Operators whose constants are weights, many of them and each used in a sum or taken from a table.
_WEIGHTED: Final = {
    f"relax.{name}"
    for name in (
        "matmul",
        "einsum",
        "take",
        "permute_dims",
        "nn.conv1d",
        "nn.conv2d",
        "nn.conv3d",
        "nn.conv1d_transpose",
        "nn.conv2d_transpose",
        "nn.conv3d_transpose",
        "stablehlo.dot_general",
        "stablehlo.convolution",
        "stablehlo.gather",
        "stablehlo.transpose",
    )
}
_FLOATS: Final = ("float16", "float32", "bfloat16", "float64")


@register()
class QuantizeWeights(FunctionPass):
    """Keep weights that are constants in ``bits`` (8 or 4), with a scale for ``group`` values.

    Weights are float constants of two axes or more and at least ``least`` elements that products,
    convolutions, tables (``take``) and ``permute_dims`` read, or rows of these kinds. A group runs
    along the last axes (all but the first); its scale is the largest value over 127 or 7. Results
    change: by at most half a scale a weight. What is computed from weights alone, ``build``
    computes once when a machine is made, so files are smaller, and the speed and the memory of a
    running model stay.
    """

    def __init__(self, bits: int = 8, group: int = 32, least: int = 4096) -> None:
        if not _is_integer(bits, group) or bits not in (8, 4) or group < 2 or group % 2:
            raise TransformError(
                f"QuantizeWeights: bits are 8 or 4 and groups of an even number of values; got "
                f"bits={bits!r}, group={group!r}"
            )
        self.bits, self.group, self.least = bits, group, least

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        made: dict[int, tuple[Constant, Expr]] = {}

        @rule(wildcard()(varg_default_wildcard=True))
        def quantised(m: Match) -> Expr | None:
            call = m.value  # of a copy the pattern has matched what it copies
            if not isinstance(call, Call) or not isinstance(call.op, Op):
                return None
            if call.op.name not in _WEIGHTED:
                return None
            args = [self._taken(m, a, made) for a in call.args]
            if all(a is b for a, b in zip(args, call.args, strict=True)):
                return None
            return Call(call.op, args, call.attrs, call.sinfo_args, call.span)

        new, changed = rewrite(func, [quantised])
        return remove_all_unused(new) if changed else func

    def _taken(self, m: Match, arg: Expr, made: dict[int, tuple[Constant, Expr]]) -> Expr:
        held = m.origin(arg)
        if not isinstance(held, Constant) or held.data.ndim < 2 or held.data.size < self.least:
            return arg
        if str(held.data.dtype) not in _FLOATS:
            return arg
        if id(held) not in made:
            # The constant is kept with the result, so that its id stays its own.
            made[id(held)] = (held, _dequantised(np.asarray(held.data), self.bits, self.group))
        return made[id(held)][1]


def _is_integer(*values: object) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) for v in values)


def _dequantised(weight: Array, bits: int, group: int) -> Expr:
    """The weight again, of integers and scales; raises TransformError for what is not finite."""
    dtype, top = str(weight.dtype), 2 ** (bits - 1) - 1
    rows, columns = weight.shape[0], math.prod(weight.shape[1:])
    group = min(group, columns + columns % 2)  # no wider than a row, and even
    groups = -(-columns // group)
    full = np.zeros((rows, groups * group), np.float32)
    full[:, :columns] = weight.reshape(rows, columns)
    if not np.isfinite(full).all():
        raise TransformError(f"QuantizeWeights: a weight {weight.shape} is not finite everywhere")
    parts = full.reshape(rows, groups, group)
    scales = (np.abs(parts).max(-1, keepdims=True) / top).astype(weight.dtype)
    safe = np.where(scales == 0, 1, scales.astype(np.float32))
    values = np.clip(np.rint(parts / safe), -top, top).astype(np.int8)
    wide = op.astype(const(values), dtype) if bits == 8 else _nibbles(values, dtype)
    flat = op.reshape(op.multiply(wide, const(scales)), (rows, groups * group))
    if groups * group > columns:
        flat = op.strided_slice(flat, [1], [0], [columns])
    return op.reshape(flat, weight.shape)


def _nibbles(values: Array, dtype: str) -> Expr:
    """Integers of 4 bits, two a byte: the first half of each group in the low bits."""
    moved = (values + 8).astype(np.uint8)
    low, high = np.split(moved, 2, axis=-1)
    both = const(low | (high << 4))
    parts = [op.bitwise_and(both, const(15, "uint8")), op.right_shift(both, const(4, "uint8"))]
    return op.subtract(op.astype(op.concat(parts, 2), dtype), const(8, dtype))
