"""``tvm.contrib.cblas``: a product of matrices, which XLA's own library computes."""

from __future__ import annotations

from relax2xla import topi
from relax2xla.te import Tensor


def matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False) -> Tensor:
    """The product of two matrices, each read transposed where the flag says so."""
    return topi.matmul(lhs, rhs, transa, transb)
