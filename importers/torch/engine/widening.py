"""Operators that torch computes in float32 where their tensors are of a narrow kind.

Torch's kernels for float16 and bfloat16 hold their sums and products in float32 and round once. The
operators of ``WIDE`` are several operations here, so their operands are widened and the result is
rounded at the end.
"""

from __future__ import annotations

import functools
from typing import Any

from relax2xla.importers.torch.engine.context import NARROW, Context, dtype_of
from relax2xla.importers.torch.engine.registry import CONVERTERS, Converter, Function
from relax2xla.ir import Expr

WIDE = (
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_trilinear",
    "_upsample_bicubic2d_aa",
    "_upsample_bicubic2d_aa.vec",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_bilinear2d_aa",
    "_upsample_bilinear2d_aa.vec",
    "_upsample_bilinear2d_aa_backward",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "addcdiv",
    "addcmul",
    "addr",
    "batch_norm",
    "celu",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "cosine_similarity",
    "elu",
    "exp2",
    "hardsigmoid",
    "hardswish",
    "hypot",
    "instance_norm",
    "lerp.Scalar",
    "lerp.Tensor",
    "linalg_cross",
    "log10",
    "log2",
    "log_sigmoid",
    "logaddexp",
    "logsumexp",
    "mish",
    "mse_loss",
    "native_batch_norm",
    "native_group_norm",
    "native_layer_norm",
    "round.decimals",
    "selu",
    "silu",
    "sinc",
    "softplus",
    "std",
    "std.correction",
    "std.dim",
    "std_mean.correction",
    "upsample_bilinear2d",
    "upsample_bilinear2d.vec",
    "upsample_linear1d",
    "upsample_linear1d.vec",
    "upsample_trilinear3d",
    "upsample_trilinear3d.vec",
    "var",
    "var.correction",
    "var.dim",
    "var_mean.correction",
)


class _Wide(Context):
    """A context whose result is said to be of float32 where it is of a narrow kind."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.builder, ctx.symbols, ctx.values)
        self.out, self.node = ctx.out, ctx.node

    def dtype(self, index: int | None = None) -> str:
        """dtype that the converter computes the result in."""
        found = super().dtype(index)
        return "float32" if found in NARROW else found


def _widened(function: Function) -> Function:
    @functools.wraps(function)
    def convert(ctx: Context, **arguments: Any) -> Any:
        narrow = {k for k, v in arguments.items() if isinstance(v, Expr) and _is_narrow(v)}
        if not narrow:
            return function(ctx, **arguments)
        wide = {
            k: ctx.emit(ctx.cast(v, "float32")) if k in narrow else v for k, v in arguments.items()
        }
        made = function(_Wide(ctx), **wide)
        if not isinstance(made, list | tuple):
            return ctx.cast(made, ctx.dtype())
        return [x if x is None else ctx.cast(x, ctx.dtype(i)) for i, x in enumerate(made)]

    return convert


def _is_narrow(x: Expr) -> bool:
    return getattr(x.struct_info, "dtype", "") in NARROW and dtype_of(x) in NARROW


def widen() -> None:
    """Wrap the converters of ``WIDE``."""
    for name in WIDE:
        known = CONVERTERS.get(name)
        if known is not None:
            CONVERTERS[name] = Converter(_widened(known.function), known.params)
