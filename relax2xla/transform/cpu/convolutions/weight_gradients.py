"""Gradients of the weights of convolutions, as the convolutions that programs have for them.

JAX writes them so, and what the importer of torch makes of ``convolution_backward``: batch and
channels of image and gradient have changed places, and strides are the dilation of the window.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from relax2xla import op as R
from relax2xla.ir import Call, Expr, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.kernels import depthwise, gradients


class Gradient(NamedTuple):
    """The gradient of a weight that a convolution is.

    image, gradient: which axes of the operands are N, H, W and C, in this order, and what sizes
    these have; weight: the axes of the result by their letters, OIHW for one
    """

    image: tuple[int, ...]
    gradient: tuple[int, ...]
    weight: str
    image_sizes: tuple[int, int, int, int]
    gradient_sizes: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    top: int
    left: int
    dilation: tuple[int, int]
    groups: int

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel makes one result of its own."""
        return self.groups == self.image_sizes[3] == self.gradient_sizes[3] > 1

    def described(self, lies: str) -> gradients.WeightGradient:
        """The call for it, whose weight ``lies`` so."""
        where = (self.window, self.strides, self.top, self.left, self.dilation, self.groups)
        return gradients.WeightGradient(self.image_sizes, self.gradient_sizes, *where, lies)

    def in_its_order(self, made: Expr, layout: str) -> Expr:
        """``made``, whose axes are those of a layout, as the convolution gives it."""
        axes = [layout.index(axis) for axis in self.weight]
        return made if axes == [0, 1, 2, 3] else R.permute_dims(made, axes)


def gradient_of(call: Call) -> Gradient | None:
    """The gradient of a weight that a convolution over planes of float32 is; None for others.

    Without groups in the batch others are those whose windows are smaller than their results.
    """
    infos = [v.struct_info_ for v in (*call.args, call)]
    shapes = [i.dims for i in infos if isinstance(i, TensorStructInfo) and i.dtype == "float32"]
    known = [tuple(d for d in dims or () if isinstance(d, int)) for dims in shapes]
    attrs = call_attrs(call)
    if [len(k) for k in known] != [4, 4, 4] or attrs["feature_group_count"] != 1:
        return None
    at = attrs["dimension_numbers"]
    image = _order(at, "input_feature", "input", "input_batch")
    gradient = _order(at, "kernel_input_feature", "kernel", "kernel_output_feature")
    result = _order(at, "output_batch", "output", "output_feature")
    x, g, made = (
        _four(tuple(shape[a] for a in order))
        for shape, order in zip(known, (image, gradient, result), strict=True)
    )
    spread = tuple(attrs["lhs_dilation"] or (1, 1)) != (1, 1)
    (top, _), (left, _) = attrs["padding"] or ((0, 0), (0, 0))
    if spread or any(attrs["window_reversal"] or ()) or min(top, left) < 0:
        return None
    groups = attrs["batch_group_count"] or 1
    if groups == 1 and math.prod(g[1:3]) < math.prod(made[1:3]):
        return None
    letters = dict(zip(result, "IHWO", strict=True))
    rows, columns = attrs["rhs_dilation"] or (1, 1)
    down, across = attrs["window_strides"] or (1, 1)
    return Gradient(
        image,
        gradient,
        "".join(letters[axis] for axis in range(4)),
        x,
        g,
        made[1:3],
        (rows, columns),
        top,
        left,
        (down, across),
        groups,
    )


def _order(numbers: Any, batch: str, space: str, channels: str) -> tuple[int, ...]:
    """Where N, H, W and C are."""
    height, width = numbers[f"{space}_spatial_dimensions"]
    return numbers[f"{batch}_dimension"], height, width, numbers[f"{channels}_dimension"]


def _four(sizes: tuple[int, ...]) -> tuple[int, int, int, int]:
    n, height, width, channels = sizes
    return n, height, width, channels


def behind(
    call: gradients.WeightGradient | depthwise.WeightGradient, dilation: tuple[int, int]
) -> tuple[int, int]:
    """The padding behind an image, below and to the right, that windows reach."""
    before = (call.top, call.left)
    steps = zip(call.gradient[1:3], call.strides, call.window, dilation, strict=True)
    reach = [(many - 1) * s + (taps - 1) * d + 1 for many, s, taps, d in steps]
    bottom, right = (
        max(0, r - low - size) for r, low, size in zip(reach, before, call.image[1:3], strict=True)
    )
    return bottom, right


def rows(call: gradients.WeightGradient, image: Expr, gradient: Expr) -> Expr:
    """What a call computes, in operators that XLA computes well on the CPU."""
    n, lines, columns, results = call.gradient
    channels, groups = call.image[3] // call.groups, call.groups
    if math.prod(call.window) == 1:
        under = _under(call, image)
        x = R.reshape(under, (n * lines * columns, groups, channels))
        g = R.reshape(gradient, (n * lines * columns, groups, results // groups))
        made: Expr = R.reshape(R.einsum((g, x), "pgo,pgc->goc"), (results, channels, 1, 1))
    else:
        apart = R.reshape(image, (*call.image[:3], groups, channels))
        x = R.reshape(
            R.permute_dims(apart, (4, 3, 0, 1, 2)), (channels, groups * n, *call.image[1:3])
        )
        g = R.permute_dims(gradient, (3, 0, 1, 2))
        padding = (call.top, call.left, *behind(call, call.dilation))
        made = R.nn.conv2d(x, g, call.dilation, padding, call.strides, groups=groups)
        height, width = call.window
        made = R.strided_slice(made, (2, 3), (0, 0), (height, width))
        made = R.permute_dims(made, (1, 0, 2, 3))
    return made if call.lies == "first" else R.permute_dims(made, (2, 3, 1, 0))


def _under(call: gradients.WeightGradient, image: Expr) -> Expr:
    """The pixels under windows of one tap."""
    reach = [(many - 1) * s + 1 for many, s in zip(call.gradient[1:3], call.strides, strict=True)]
    bottom, right = behind(call, call.dilation)
    around = (0, 0, call.top, bottom, call.left, right, 0, 0)
    padded = R.nn.pad(image, around) if any(around) else image
    if tuple(reach) == call.image[1:3] and call.strides == (1, 1) and not any(around):
        return padded
    return R.strided_slice(padded, (1, 2), (0, 0), reach, call.strides)
