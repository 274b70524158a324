"""Products of int8 matrices, and of float8 ones, each with scales: one for all of it, or one a row
(or column).
"""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

#: Of torch's kinds of scales those that broadcast over a matrix, and how matrices of scales lie.
WHOLE, BY_ROWS = 0, 1
PLAIN = 0


@aten("_int_mm")
def int_mm(ctx: Context, self: Expr, mat2: Expr) -> Expr:
    """int8 by int8, summed in int32."""
    return R.matmul(self, mat2, out_dtype="int32")


@aten("_scaled_mm", ignored="out_dtype use_fast_accum")
def scaled_mm(
    ctx: Context,
    self: Expr,
    mat2: Expr,
    scale_a: Expr,
    scale_b: Expr,
    bias: Expr | None = None,
) -> Expr:
    """Summed in float32; ``use_fast_accum`` is about speed.

    What float8_e4m3fn does not hold becomes its largest number, as in torch's casts; its kernels
    for some processors give NaN there.
    """
    a, b = (
        R.multiply(R.astype(x, "float32"), scale) for x, scale in ((self, scale_a), (mat2, scale_b))
    )
    made = R.matmul(a, b)
    if bias is not None:
        made = R.add(made, R.astype(bias, "float32"))
    return ctx.cast(made, ctx.dtype())


@aten("_scaled_mm_v2", ignored="out_dtype use_fast_accum")
def scaled_mm_v2(
    ctx: Context,
    self: Expr,
    mat2: Expr,
    scale_a: Sequence[Expr],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Expr],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Expr | None,
) -> Expr:
    """One scale tensor each."""
    recipes, swizzles = {*recipe_a, *recipe_b}, {*swizzle_a, *swizzle_b}
    if len(scale_a) != 1 or len(scale_b) != 1 or recipes - {WHOLE, BY_ROWS} or swizzles - {PLAIN}:
        raise Unsupported(f"scales of blocks (recipes {recipe_a} and {recipe_b})")
    return scaled_mm(ctx, self, mat2, scale_a[0], scale_b[0], bias)
