"""GatherPads: pads that copy values, as gathers.

XLA:CPU joins an image and its border in a loop that asks at each element which part it lies in, one
loop and one buffer for each axis. Gathers along all axes are one loop over vectors: a border of 2
mirrored around (8, 64, 28, 28) takes 0.14 ms instead of 0.50 (one core with AVX-512).
"""

from __future__ import annotations

import math
from typing import Final

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.dtypes import dtype_info
from relax2xla.ir import Expr, Function, IRModule, TensorStructInfo, const
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.cpu.convolutions.windows import op

# Where the last axis stays as it is: shorter rows are no vectors.
_SHORTEST: Final = 8
# Otherwise rows up to this length are unrolled, and gathered as fast as they are copied; gathers
# of longer ones are worth it where each axis is a buffer beyond the cache. None of fewer bits.
_LONGEST: Final = 64
_LARGE: Final = 1 << 20
_LEAST_BITS: Final = 32

_x = wildcard()


@register(opt_level=2, stage="static", platform="cpu")
class GatherPads(FunctionPass):
    """Rewrite ``nn.pad`` that mirrors, repeats or goes around as ``take``, static shapes.

    Where the last axis stays as it is, or is short, or the result is large.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [Rule(is_op("relax.nn.pad")(_x), _gathered)], inside=False)[0]


def _gathered(m: Match) -> Expr | None:
    info, attrs = m[_x].struct_info_, call_attrs(m.call)
    mode: str = attrs["pad_mode"]
    if mode == "constant" or not isinstance(info, TensorStructInfo):
        return None
    sizes = [d for d in info.dims or () if isinstance(d, int)]
    widths = list(zip(attrs["pad_width"][::2], attrs["pad_width"][1::2], strict=True))
    if not sizes or len(sizes) != info.ndim or 0 in sizes:
        return None
    if not _suits(sizes, widths, info.dtype):
        return None
    made = m[_x]
    for axis, ((before, after), size) in enumerate(zip(widths, sizes, strict=True)):
        if before or after:
            # Computed, not a constant: XLA has vectors of what it computes, and loads the other.
            at = m.bind("at", op("arange", -before, size + after, dtype="int32"))
            if mode == "reflect":
                last = const(size - 1, "int32")
                below = op("subtract", last, op("abs", at))
                at = m.bind("mirrored", op("subtract", last, op("abs", below)))
            beyond = "wrap" if mode == "circular" else "clip"
            made = m.bind("gathered", op("take", made, at, axis=axis, mode=beyond))
    return made


def _suits(sizes: list[int], widths: list[tuple[int, int]], dtype: str) -> bool:
    if not any(widths[-1]) and sizes[-1] >= _SHORTEST:
        return True
    bits, grown = dtype_info(dtype).bits, [d + sum(w) for d, w in zip(sizes, widths, strict=True)]
    large = math.prod(grown) * bits // 8 >= _LARGE and sum(map(any, widths)) > 1
    return bits >= _LEAST_BITS and (large or sizes[-1] < grown[-1] <= _LONGEST)
