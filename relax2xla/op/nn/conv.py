"""Convolutions and transposed convolutions over one, two and three spatial axes.

Layouts go into StableHLO's ``dimension_numbers``: nothing is transposed, whatever the layout. Only
packed ones (NCHW4c) are transposed to the plain layout and back.
Semantics: Relax, and torch's ``conv*d`` and ``conv_transpose*d`` where Relax says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Concatenate

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op, Rule
from relax2xla.ir.op_param import DTypeLike
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.ir.traits import Convolution
from relax2xla.op.shared.checks import (
    NUMBER,
    common_dtype,
    differ,
    fold,
    tensor,
    want_tensor,
    window_dim,
)
from relax2xla.op.shared.families import P, member
from relax2xla.op.shared.layouts import (
    is_packed,
    packed,
    packed_info,
    plain_layout,
    plain_operand,
    unpacked,
)
from relax2xla.op.shared.lowering import (
    contraction_dtype,
    convert,
    dtype_of,
    hlo,
    reshape,
    shape_of,
    static,
    tensor_info,
    transpose,
)
from relax2xla.op.shared.spatial import (
    SPATIAL,
    Ints,
    Padding,
    arrange,
    axes_of,
    data_axes,
    want_positive,
)
from relax2xla.tir import Dim

_DOC = """Cross-correlation of ``data`` with ``weight`` over {axes}{what}.

data:    axes named by ``data_layout``: N batch, C input channels, {axes} space; any number
weight:  axes named by ``kernel_layout``: {kernel}; dtype of
         ``data``, or any with ``out_dtype``. Layouts may be packed, as NCHW4c and OIHW4o
strides, dilation{extra_names}: one number, or one per spatial axis
padding: one number, one per spatial axis, or all befores followed by all afters
{extra}groups:  channels are split into that many groups that do not see each other;
         ``groups`` equal to the input channels is a depthwise convolution
result:  axes named by ``out_layout`` (default: ``data_layout``), dtype ``out_dtype`` (default: of
         ``data``). Size of a spatial axis:
         {size}
Raises ``OpError`` for a wrong rank, layout, channel count, ``groups``, or a window that does not
fit.
"""
_FLOOR = """``(size + padding - dilation * (window - 1) - 1) // stride + 1``."""
_GROWN = """``(size - 1) * stride - padding + dilation * (window - 1) +
         output_padding + 1``."""


def _doc(ndim: int, transposed: bool = False) -> str:
    return _DOC.format(
        axes=SPATIAL[ndim],
        what=", the gradient of a convolution with respect to its input" * transposed,
        kernel="I input channels, O output channels of one group, space"
        if transposed
        else "O output channels, I input channels of one group, space",
        extra_names=", output_padding" * transposed,
        extra="output_padding: rows added after each spatial axis; less than the stride or the\n"
        "         dilation\n"
        if transposed
        else "",
        size=_GROWN if transposed else _FLOOR,
    )


@dataclass(frozen=True, slots=True)
class _Conv:
    """A convolution's attributes; ``output_padding`` is None where it is not transposed."""

    ndim: int
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    data_layout: str
    kernel_layout: str
    out_layout: str | None
    out_dtype: str | None
    output_padding: tuple[int, ...] | None = None

    @property
    def x_axes(self) -> list[int]:
        return data_axes(self.data_layout, self.ndim, "data_layout")

    @property
    def out_axes(self) -> list[int]:
        return data_axes(self.out_layout or self.data_layout, self.ndim, "out_layout")

    @property
    def w_axes(self) -> list[int]:
        """Output channels, input channels, space."""
        return axes_of(self.kernel_layout, "OI" + SPATIAL[self.ndim], "kernel_layout")

    @property
    def pads(self) -> list[tuple[int, int]]:
        n = self.ndim
        return list(zip(self.padding[:n], self.padding[n:], strict=True))

    def rule(self, data: Expr, weight: Expr) -> Rule:
        """Struct info and lowering; packed layouts are computed in the plain ones."""
        out_layout = self.out_layout or self.data_layout
        if not is_packed(self.data_layout, self.kernel_layout, out_layout):
            return self.infer(data, weight), lambda: self.lower(data, weight)
        plain = replace(
            self,
            data_layout=plain_layout(self.data_layout),
            kernel_layout=plain_layout(self.kernel_layout),
            out_layout=plain_layout(out_layout),
        )
        x = plain_operand(data, self.data_layout, "data")
        w = plain_operand(weight, self.kernel_layout, "weight")

        def lower() -> Expr:
            unpacked_data = unpacked(data, self.data_layout)
            result = plain.lower(unpacked_data, unpacked(weight, self.kernel_layout))
            return packed(result, out_layout)

        return packed_info(plain.infer(x, w), out_layout), lower

    def infer(self, data: Expr, weight: Expr) -> TensorStructInfo:
        """The struct-info rule."""
        n = self.ndim
        x = want_tensor(data, "data", NUMBER, n + 2)
        w = want_tensor(weight, "weight", NUMBER, n + 2)
        x_axes, w_axes, out_axes = self.x_axes, self.w_axes, self.out_axes
        want_positive(self.strides, "strides")
        want_positive(self.dilation, "dilation")
        want_positive([self.groups], "groups")
        if self.output_padding is not None:
            self._check_output_padding(self.output_padding)
        dtype = self.out_dtype or common_dtype((x, w), ("data", "weight"))
        if x.dims is None or w.dims is None:
            return tensor(None, dtype, n + 2, x)
        xs = [x.dims[a] for a in x_axes]
        ws = [w.dims[a] for a in w_axes]
        channels = self._channels(xs, ws)
        space: list[Dim] = []
        for i in range(n):
            (low, high), size, window = self.pads[i], xs[2 + i], ws[2 + i]
            if self.output_padding is None:
                space.append(window_dim(size, window, self.strides[i], low, high, self.dilation[i]))
                continue
            grown = (size - 1) * self.strides[i] + (window - 1) * self.dilation[i]
            dim = fold(grown + (self.output_padding[i] + 1 - low - high))
            if isinstance(dim, int) and dim < 0:
                raise OpError(f"padding {(low, high)} leaves nothing of spatial axis {i}")
            space.append(dim)
        return tensor(arrange((xs[0], channels, *space), out_axes), dtype, like=x)

    def _check_output_padding(self, extra: Sequence[int]) -> None:
        for e, s, d in zip(extra, self.strides, self.dilation, strict=True):
            if not 0 <= e < max(s, d):
                raise OpError(
                    f"`output_padding` must be less than the stride or the dilation on every axis; "
                    f"got {tuple(extra)} with strides {self.strides}, dilation {self.dilation}"
                )

    def _channels(self, xs: Sequence[Dim], ws: Sequence[Dim]) -> Dim:
        """Output channels, after the checks of ``groups`` against both operands."""
        given, out, inner = xs[1], ws[0], ws[1]
        transposed = self.output_padding is not None
        expected = inner if transposed else fold(inner * self.groups)
        if differ(given, expected):
            each = "" if transposed else f" in each of {self.groups} groups"
            raise OpError(
                f"`data` has {given} channels (C of {self.data_layout}), but `weight` expects "
                f"{inner} (I of {self.kernel_layout}){each}"
            )
        divided = given if transposed else out
        if differ(divided % self.groups, 0):
            side = "input" if transposed else "output"
            raise OpError(
                f"`groups` is {self.groups}; it must divide the {divided} {side} channels"
            )
        return fold(out * self.groups) if transposed else out

    def lower(self, data: Expr, weight: Expr) -> Expr:
        """One ``stablehlo.convolution``; a transposed one dilates the data and turns the kernel."""
        info = self.infer(data, weight)
        operand_dtype, result_dtype = contraction_dtype(
            dtype_of(data), dtype_of(weight), info.dtype
        )
        data, weight = convert(data, operand_dtype), convert(weight, operand_dtype)
        batch, channel, *space = self.x_axes
        out, inner, *window = self.w_axes
        out_batch, out_channel, *out_space = self.out_axes
        pads, base, strides = self.pads, (1,) * self.ndim, self.strides
        if self.output_padding is not None:
            sizes = shape_of(weight)
            reach = [d * (sizes[a] - 1) for d, a in zip(self.dilation, window, strict=True)]
            pads = [
                (r - low, r - high + extra)
                for r, (low, high), extra in zip(reach, pads, self.output_padding, strict=True)
            ]
            # The kernel is turned by a row of its own, not by window_reversal: it depends on
            # weights alone, and XLA:CPU has no fast convolution with a reversed window.
            weight = hlo("reverse", weight, dimensions=tuple(sorted(window)))
            base, strides = self.strides, (1,) * self.ndim
            weight = _swap_groups(weight, out, inner, self.groups)
        dims = {
            "input_batch_dimension": batch,
            "input_feature_dimension": channel,
            "input_spatial_dimensions": tuple(space),
            "kernel_input_feature_dimension": inner,
            "kernel_output_feature_dimension": out,
            "kernel_spatial_dimensions": tuple(window),
            "output_batch_dimension": out_batch,
            "output_feature_dimension": out_channel,
            "output_spatial_dimensions": tuple(out_space),
        }
        result = hlo(
            "convolution",
            data,
            weight,
            out=tensor_info(static(info.dims), result_dtype),
            window_strides=strides,
            padding=tuple(pads),
            lhs_dilation=base,
            rhs_dilation=self.dilation,
            window_reversal=(False,) * self.ndim,
            dimension_numbers=dims,
            feature_group_count=self.groups,
            batch_group_count=1,
        )
        return convert(result, info.dtype)


def _swap_groups(weight: Expr, out: int, inner: int, groups: int) -> Expr:
    """Groups moved from the input channels of a transposed kernel to its output channels.

    ``[groups * i, o]`` becomes ``[i, groups * o]`` on the axes (``inner``, ``out``).
    """
    if groups == 1:
        return weight
    shape = list(shape_of(weight))
    split = [*shape[:inner], groups, shape[inner] // groups, *shape[inner + 1 :]]
    at = out if out < inner else out + 1  # where O is once a groups axis stands before I
    order = [a for a in range(len(split)) if a != inner]
    order.insert(order.index(at), inner)
    shape[inner], shape[out] = shape[inner] // groups, shape[out] * groups
    return reshape(transpose(reshape(weight, split), order), shape)


def _conv(
    ndim: int,
    data: Expr,
    weight: Expr,
    strides: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
    data_layout: str = "",
    kernel_layout: str = "",
    out_layout: str | None = None,
    out_dtype: DTypeLike = None,
) -> Rule:
    conv = _Conv(
        *(ndim, strides, padding, dilation, groups),
        *(data_layout, kernel_layout, out_layout, out_dtype),
    )
    return conv.rule(data, weight)


def _conv_transpose(
    ndim: int,
    data: Expr,
    weight: Expr,
    strides: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    data_layout: str = "",
    kernel_layout: str = "",
    out_layout: str | None = None,
    out_dtype: DTypeLike = None,
) -> Rule:
    conv = _Conv(
        *(ndim, strides, padding, dilation, groups),
        *(data_layout, kernel_layout, out_layout, out_dtype, output_padding),
    )
    return conv.rule(data, weight)


def _member(rule: Callable[Concatenate[int, P], Rule], ndim: int) -> Op[P]:
    """The convolution of ``ndim`` spatial axes."""
    transposed = rule is _conv_transpose
    one, zero = (1, 0) if ndim == 1 else ((1,) * ndim, (0,) * ndim)
    defaults = {"strides": one, "padding": zero, "dilation": one}
    if transposed:
        defaults["output_padding"] = zero
    layouts = {
        "data_layout": "NC" + SPATIAL[ndim],
        "kernel_layout": ("IO" if transposed else "OI") + SPATIAL[ndim],
    }
    return member(
        f"relax.nn.conv{ndim}d" + "_transpose" * transposed,
        *(rule, ndim, ndim),
        traits=[Convolution(transposed=transposed)],
        doc=_doc(ndim, transposed),
        follows={"out_layout": "data_layout"},
        defaults={**defaults, **layouts},
    )


conv1d = _member(_conv, 1)
conv2d = _member(_conv, 2)
conv3d = _member(_conv, 3)
conv1d_transpose = _member(_conv_transpose, 1)
conv2d_transpose = _member(_conv_transpose, 2)
conv3d_transpose = _member(_conv_transpose, 3)
