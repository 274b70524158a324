"""Products of matrices, and sums of products."""

from __future__ import annotations

from typing import Any

from relax2xla import te, tir, topi
from relax2xla.errors import TVMError
from relax2xla.ir import Expr
from relax2xla.ir.struct_info import show
from relax2xla.topi.broadcast import broadcast_shapes
from relax2xla.topi.shared import is_same, known
from relax2xla.transform.lower.te_forms.table import Site, form, tensor_of


@form("relax.matmul")
def _(s: Site) -> Expr:
    for x in s.args:
        if not tensor_of(x).dtype:
            raise TVMError(
                "To legalize R.matmul into R.call_tir, the dtype of both operands must be known; "
                f"{x!r} is {show(x.struct_info)}"
            )
    return s.te(matmul, *s.args, s.attrs["out_dtype"])


def matmul(a: te.Tensor, b: te.Tensor, out_dtype: str | None = None) -> te.Tensor:
    """``a @ b`` as numpy has it: vectors, matrices, and batches of matrices that broadcast."""
    left, right = a.shape[:-2], b.shape[:-2]
    batch = broadcast_shapes([left, right], "matmul")
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else []
    k = te.reduce_axis((0, a.shape[-1]), name="k")

    def lead(own: Any, other: Any, index: Any) -> list[Any]:
        """Where one operand is read: at 0 along what broadcasts."""
        skipped, missing = len(batch) - len(own), len(batch) - len(other)
        made: list[Any] = []
        for n, d in enumerate(own, skipped):
            same = n < missing or is_same(d, other[n - missing])
            made.append(index[n] if same or known(d) != 1 else 0)
        return made

    def product(*index: Any) -> Any:
        i, j = index[len(batch) : len(batch) + len(rows)], index[len(batch) + len(rows) :]
        x = a(*lead(left, right, index), *i, k)
        y = b(*lead(right, left, index), k, *j)
        if out_dtype:
            x, y = tir.cast(out_dtype, x), tir.cast(out_dtype, y)
        return te.sum(x * y, axis=k)

    return te.compute([*batch, *rows, *columns], product, name="matmul")


@form("relax.einsum")
def _(s: Site) -> Expr:
    return s.te(topi.einsum, s.attrs["subscripts"], *s.fields(s.x))
