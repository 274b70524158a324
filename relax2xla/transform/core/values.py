"""What is known of values: their kind, a number that they hold, what computes them."""

from __future__ import annotations

import numpy as np

from relax2xla import op as R
from relax2xla.dpl.rules import Match
from relax2xla.ir import Call, Constant, Expr, Op, TensorStructInfo
from relax2xla.kernels.native import Tensor


def tensor_of(value: Expr) -> Tensor | None:
    """The kind of a value whose shape is known."""
    info = value.struct_info_
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    shape = tuple(d for d in info.dims if isinstance(d, int))
    return Tensor(shape, info.dtype) if len(shape) == len(info.dims) else None


def number_of(value: Expr) -> float | None:
    """The one real number that a constant holds."""
    if not isinstance(value, Constant) or value.data.size != 1 or value.data.dtype.kind == "c":
        return None
    return float(np.asarray(value.data).item())


def vector_of(m: Match, value: Expr, shape: tuple[int, ...]) -> Expr | None:
    """A value with a number for each place along the last axis of ``shape``, as a vector.

    None for another value, and for one that is not of float32.
    """
    tensor = tensor_of(value)
    if tensor is None or tensor.dtype != "float32" or len(tensor.shape) > len(shape):
        return None
    if tensor.shape[-1:] != shape[-1:] or any(d != 1 for d in tensor.shape[:-1]):
        return None
    return value if len(tensor.shape) == 1 else m.bind("bias", R.reshape(value, shape[-1:]))


def own_call(m: Match, value: Expr, name: str) -> Call | None:
    """The call of the operator ``name`` that computes ``value``, if that is read once."""
    call = m.bound(value)
    alone = isinstance(call, Call) and call.op is Op.get(name) and m.uses(value) == 1
    return call if isinstance(call, Call) and alone else None
