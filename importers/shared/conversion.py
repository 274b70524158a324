"""Conversion of floats to integers as torch, ONNX Runtime and numpy convert: by a cast of C.

C leaves values that do not fit undefined. What processors with SSE make of them, and so all three
of these libraries, is one rule: the value is truncated to a word of 32 or 64 bits, or to the word's
least integer where it is NaN or does not fit there, and the lowest bits of the word are kept. XLA
stops at the limits of the dtype instead, which is what ``R.astype`` says.
"""

from __future__ import annotations

from relax2xla import op as R
from relax2xla.dtypes import dtype_info, is_float, is_integer, limits
from relax2xla.importers.shared.tensors import dtype_of
from relax2xla.ir import Call, Expr, const
from relax2xla.ir.op import constant_value, is_op


def converted(x: Expr, dtype: str) -> Expr:
    """``x`` in another dtype: ``R.astype``, but a cast of C for floats to integers of 8 to 64 bits.

    Beyond 32 bits, where the three libraries give uint32 by the position in the array, the lowest
    bits of an int64.
    """
    source, info = dtype_of(x), dtype_info(dtype)
    if source == dtype:
        return x
    if not is_float(source) or not is_integer(dtype) or info.bits < 8:
        return R.astype(x, dtype)
    if dtype_info(source).bits < 32:
        x = R.astype(x, "float32")  # the limits below are finite there
    wide = info.bits == 64 or dtype == "uint32"
    made = _word(x, "int64" if wide else "int32")
    if dtype != "uint64":
        return made if dtype_of(made) == dtype else R.astype(made, dtype)
    top = R.where(R.less(x, _power(x, 64)), R.astype(x, dtype), const(0, dtype))
    return R.where(R.greater_equal(x, _power(x, 63)), top, R.astype(made, dtype))


def fits(value: Expr | None, dtype: str) -> bool:
    """Whether a value was cut to the limits of an integer of 8 or 16 bits, so that ``R.astype`` is
    the cast of C: the lowest bits of what stands for NaN are zeros, and so is XLA's integer.
    """
    if not isinstance(value, Call) or not is_op(value, "relax.clip"):
        return False
    if not is_integer(dtype) or dtype_info(dtype).bits not in (8, 16):
        return False
    first, last = map(constant_value, value.args[1:])
    low, high = limits(dtype)
    return None not in (first, last) and bool(low <= first and last <= high)


def _word(x: Expr, dtype: str) -> Expr:
    """Truncated; the least integer where that does not fit. Below, ``astype`` gives it anyway."""
    bits = dtype_info(dtype).bits - 1
    return R.where(R.less(x, _power(x, bits)), R.astype(x, dtype), const(-(1 << bits), dtype))


def _power(x: Expr, exponent: int) -> Expr:
    return const(2.0**exponent, dtype_of(x))
