"""Normalisations. Statistics of float16 and bfloat16 are taken in float32, as in torch.

Mean and variance are two reductions, the second over centred values: ``E[x^2] - E[x]^2`` would be
one pass, but loses every digit where the mean is large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax2xla.errors import OpError
from relax2xla.ir.expr import Constant, Expr, Tuple
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import IntsLike
from relax2xla.ir.source_names import names_of
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.traits import Normalises, Opaque
from relax2xla.op.shared.checks import FLOAT, differ, norm_axes, norm_axis, want_tensor
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    convert,
    dtype_of,
    elements,
    full_like,
    hlo,
    known,
    reduce,
    reshape,
    shape_of,
    spread,
    sum_dtype,
)


# ---- checks
def _want_channels(
    x: TensorStructInfo, operands: dict[str, Expr], axes: Sequence[int]
) -> list[TensorStructInfo]:
    """Struct infos of parameters whose shape is that of ``x`` on ``axes``."""
    infos: list[TensorStructInfo] = []
    for name, operand in operands.items():
        info = want_tensor(operand, name, FLOAT, len(axes))
        infos.append(info)
        if x.dims is None or info.dims is None:
            continue
        expected = tuple(x.dims[a] for a in axes)
        for want, got in zip(expected, info.dims, strict=True):
            if differ(want, got):
                shape = f"({', '.join(map(str, expected))}{',' * (len(expected) == 1)})"
                raise OpError(
                    f"`{name}` must have the shape {shape} of `data` on axis "
                    f"{', '.join(map(str, axes))}; got ({', '.join(map(str, info.dims))})"
                )
    return infos


# ---- lowerings
def _mean(x: Expr, axes: Sequence[int]) -> Expr:
    """Mean over ``axes``, which disappear."""
    return _divided(reduce(x, "add", axes), elements(shape_of(x)[a] for a in axes))


def _divided(total: Expr, count: int) -> Expr:
    """A sum of ``count`` values as their mean."""
    if not known(count):
        return hlo("divide", total, full_like(total, count))
    return hlo("multiply", total, full_like(total, 1.0 / count if count else math.nan))


def _rsqrt(x: Expr, epsilon: float) -> Expr:
    return hlo("rsqrt", hlo("add", x, full_like(x, epsilon)))


def _normalised(x: Expr, axes: Sequence[int], epsilon: float) -> Expr:
    """``(x - mean) / sqrt(variance + epsilon)`` over ``axes``."""
    shape = shape_of(x)
    centred = hlo("subtract", x, spread(_mean(x, axes), shape, axes))
    variance = _mean(hlo("multiply", centred, centred), axes)
    return hlo("multiply", centred, spread(_rsqrt(variance, epsilon), shape, axes))


def _given(gamma: Expr, beta: Expr, scale: bool, center: bool) -> tuple[Expr | None, Expr | None]:
    """Factor and offset, None where they change nothing: importers write ones and zeros."""
    factor = gamma if scale and not _is_all(gamma, 1) else None
    return factor, beta if center and not _is_all(beta, 0) else None


def _is_all(x: Expr, value: int) -> bool:
    """Whether that is known, and no weight of the source: a trained one may take its place."""
    if not isinstance(x, Constant) or names_of(x.span):
        return False
    return bool((x.data == value).all())


def _affine(x: Expr, gamma: Expr | None, beta: Expr | None, axes: Sequence[int]) -> Expr:
    """``x * gamma + beta``; the parameters lie along ``axes`` of ``x``."""
    dtype = dtype_of(x)
    for name, operand in (("multiply", gamma), ("add", beta)):
        if operand is not None:
            x = hlo(name, x, broadcast_in_dim(convert(operand, dtype), shape_of(x), axes))
    return x


# ---- operators
@op("relax.nn.batch_norm", Opaque())
def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> Rule:
    """Batch normalisation: ``(x - mean) / sqrt(var + epsilon) * gamma + beta`` for each channel.

    data:        any shape, a float dtype
    gamma, beta, moving_mean, moving_var: (c,), c the size of ``data`` along ``axis``
    training:    mean and variance (biased) of this batch, and moving statistics become
                 ``(1 - momentum) * moving + momentum * batch``; else the moving ones are used and
                 returned as they are
    center, scale: whether ``beta`` is added, whether ``gamma`` is multiplied
    result:      tuple of the normalised ``data`` and the new ``moving_mean`` and ``moving_var``
    Raises ``OpError`` for other dtypes, shapes of parameters, or an axis out of range.
    """
    info = want_tensor(data, "data", FLOAT)
    if info.ndim >= 0:
        axis = norm_axis(axis, info.ndim)
    operands = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    infos = _want_channels(info, operands, [axis])

    def lower() -> Expr:
        dtype = dtype_of(data)
        wide = sum_dtype(dtype)
        x = convert(data, wide)
        shape = shape_of(x)
        gain, bias = _given(gamma, beta, scale, center)
        if training:
            others = [a for a in range(len(shape)) if a != axis]
            mean = _mean(x, others)
            centred = hlo("subtract", x, spread(mean, shape, others))
            variance = _mean(hlo("multiply", centred, centred), others)
            out = hlo("multiply", centred, spread(_rsqrt(variance, epsilon), shape, others))
            out = _affine(out, gain, bias, [axis])
            stats = _moved(moving_mean, mean, momentum), _moved(moving_var, variance, momentum)
            return Tuple([convert(out, dtype), *stats])
        # What depends on parameters alone is done on vectors: one multiplication and one addition
        # remain for each value, and the vectors are lifted to load time where they are weights.
        factor = _rsqrt(convert(moving_var, wide), epsilon)
        if gain is not None:
            factor = hlo("multiply", convert(gain, wide), factor)
        shift = hlo("negate", hlo("multiply", convert(moving_mean, wide), factor))
        if bias is not None:
            shift = hlo("add", convert(bias, wide), shift)
        out = _affine(x, factor, shift, [axis])
        return Tuple([convert(out, dtype), moving_mean, moving_var])

    return TupleStructInfo((info, *infos[2:])), lower


def _moved(old: Expr, new: Expr, momentum: float) -> Expr:
    dtype = dtype_of(old)
    wide = sum_dtype(dtype)
    old, new = convert(old, wide), convert(new, wide)
    kept = hlo("multiply", old, full_like(old, 1.0 - momentum))
    return convert(hlo("add", kept, hlo("multiply", new, full_like(new, momentum))), dtype)


@op("relax.nn.layer_norm", Normalises())
def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axes: IntsLike,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Rule:
    """Layer normalisation: ``(x - mean) / sqrt(var + epsilon) * gamma + beta`` over ``axes``.

    data:          any shape, a float dtype
    gamma, beta:   of the shape of ``data`` on ``axes``
    axes:          one axis or several, counted from the end if negative
    center, scale: whether ``beta`` is added, whether ``gamma`` is multiplied
    result:        as ``data``
    Raises ``OpError`` for other dtypes, shapes of parameters, or an axis out of range.
    """
    x = want_tensor(data, "data", FLOAT)
    where = norm_axes(axes, x.ndim, "axes") if x.ndim >= 0 else tuple(axes)
    _want_channels(x, {"gamma": gamma, "beta": beta}, where)

    def lower() -> Expr:
        dtype = dtype_of(data)
        x = convert(data, sum_dtype(dtype))
        x = _normalised(x, where, epsilon)
        return convert(_affine(x, *_given(gamma, beta, scale, center), where), dtype)

    return x, lower


@op("relax.nn.instance_norm", Opaque())
def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    channel_axis: int,
    axes: IntsLike,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Rule:
    """Instance normalisation: statistics over ``axes``, a factor and an offset for each channel.

    data:          any shape, a float dtype
    gamma, beta:   (c,), c the size of ``data`` along ``channel_axis``
    axes:          the axes to average over: those of space
    center, scale: whether ``beta`` is added, whether ``gamma`` is multiplied
    result:        as ``data``
    Raises ``OpError`` for other dtypes, shapes of parameters, or an axis out of range.
    """
    info = want_tensor(data, "data", FLOAT)
    if info.ndim >= 0:
        channel_axis = norm_axis(channel_axis, info.ndim, "channel_axis")
        if channel_axis in norm_axes(axes, info.ndim, "axes"):
            raise OpError(
                f"`axes` {tuple(axes)} must not name the channel axis {channel_axis}: "
                "each channel is normalised by itself"
            )
    _want_channels(info, {"gamma": gamma, "beta": beta}, [channel_axis])

    def lower() -> Expr:
        dtype = dtype_of(data)
        x = convert(data, sum_dtype(dtype))
        x = _normalised(x, norm_axes(axes, info.ndim), epsilon)
        x = _affine(x, *_given(gamma, beta, scale, center), [channel_axis])
        return convert(x, dtype)

    return info, lower


@op("relax.nn.group_norm", Opaque())
def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    channel_axis: int,
    axes: IntsLike,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Rule:
    """Group normalisation: statistics over ``axes`` and the channels of one group.

    data:          any shape, a float dtype
    gamma, beta:   (c,), c the size of ``data`` along ``channel_axis``
    num_groups:    must divide c
    axes:          the axes to average over besides the channels of a group: those of space
    center, scale: whether ``beta`` is added, whether ``gamma`` is multiplied
    result:        as ``data``
    Raises ``OpError`` for other dtypes, shapes of parameters, axes out of range or equal to
    ``channel_axis``, and a number of groups that does not divide the channels.
    """
    info = want_tensor(data, "data", FLOAT)
    if num_groups < 1:
        raise OpError(f"`num_groups` must be at least 1; got {num_groups}")
    if info.ndim >= 0:
        channel_axis = norm_axis(channel_axis, info.ndim, "channel_axis")
        if channel_axis in norm_axes(axes, info.ndim, "axes"):
            raise OpError(
                f"`axes` {tuple(axes)} must not name the channel axis {channel_axis}: "
                "the channels of a group are averaged over anyway"
            )
    _want_channels(info, {"gamma": gamma, "beta": beta}, [channel_axis])
    if info.dims is not None:
        channels = info.dims[channel_axis]
        if isinstance(channels, int) and channels % num_groups:
            raise OpError(f"`num_groups` is {num_groups}; it must divide the {channels} channels")

    def lower() -> Expr:
        dtype, shape = dtype_of(data), shape_of(data)
        each = shape[channel_axis] // num_groups
        space = norm_axes(axes, len(shape))
        if space and max(space) < channel_axis == len(shape) - 1:
            x = convert(data, sum_dtype(dtype))
            centred = hlo("subtract", x, _of_groups(x, space, num_groups))
            variance = _of_groups(hlo("multiply", centred, centred), space, num_groups)
            x = hlo("multiply", centred, _rsqrt(variance, epsilon))
            factor, offset = gamma if scale else None, beta if center else None
            return convert(_affine(x, factor, offset, [channel_axis]), dtype)
        # The channel axis becomes (group, channel of the group): no value moves.
        split = [*shape[:channel_axis], num_groups, each, *shape[channel_axis + 1 :]]
        x = reshape(convert(data, sum_dtype(dtype)), split)
        where = [a + (a > channel_axis) for a in space]
        x = _normalised(x, sorted([channel_axis + 1, *where]), epsilon)
        given = _given(gamma, beta, scale, center)
        factor, offset = (None if p is None else reshape(p, [num_groups, each]) for p in given)
        x = _affine(x, factor, offset, [channel_axis, channel_axis + 1])
        return convert(reshape(x, shape), dtype)

    return info, lower


def _of_groups(x: Expr, space: Sequence[int], groups: int) -> Expr:
    """Means over space and groups of the last axis, spread over ``x``.

    The channels are summed up before their groups are: so memory is read in order, and no loop
    over the elements has to divide to find its group.
    """
    shape = shape_of(x)
    total = reduce(x, "add", space)
    *rest, channels = shape_of(total)
    split = [*rest, groups, channels // groups]
    summed = reduce(reshape(total, split), "add", [len(rest) + 1])
    mean = _divided(summed, elements(shape[a] for a in space) * (channels // groups))
    each = reshape(spread(mean, split, [len(rest) + 1]), [*rest, channels])
    return spread(each, shape, space)


@op("relax.nn.rms_norm", Normalises())
def rms_norm(data: Expr, weight: Expr, axes: IntsLike = -1, epsilon: float = 1e-5) -> StructInfo:
    """Root mean square normalisation: ``x / sqrt(mean(x^2) + epsilon) * weight`` over ``axes``.

    data:   any shape, a float dtype
    weight: of the shape of ``data`` on ``axes``
    axes:   one axis or several, counted from the end if negative
    result: as ``data``
    Raises ``OpError`` for other dtypes, another shape of ``weight``, or an axis out of range.
    """
    x = want_tensor(data, "data", FLOAT)
    where = norm_axes(axes, x.ndim, "axes") if x.ndim >= 0 else tuple(axes)
    _want_channels(x, {"weight": weight}, where)
    return x


@rms_norm.legalize
def _rms_norm(data: Expr, weight: Expr, axes: IntsLike = -1, epsilon: float = 1e-5) -> Expr:
    dtype = dtype_of(data)
    x = convert(data, sum_dtype(dtype))
    where = norm_axes(axes, len(shape_of(x)))
    square = _mean(hlo("multiply", x, x), where)
    x = hlo("multiply", x, spread(_rsqrt(square, epsilon), shape_of(x), where))
    return convert(_affine(x, weight, None, where), dtype)
