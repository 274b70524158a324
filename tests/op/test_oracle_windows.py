"""Random convolutions, pools, norms, gathers, scatters and resizes against torch and numpy.

Beside ``test_oracles.py``, whose operators need no more than an array: here Hypothesis draws
layouts, groups, strides, dilations, paddings, reductions and indices too. The truth is computed in
float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from relax2xla import op
from relax2xla.dtypes import numpy_dtype
from tests.op.harness import Case, calling, check

FLOATS = ("float32", "float64", "bfloat16", "float16")
INTS = ("int32", "int64")
TOL = {"float32": 2e-4, "float64": 1e-10, "bfloat16": 4e-2, "float16": 5e-3}
SPACE = {1: "W", 2: "HW", 3: "DHW"}
RNG = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def array(draw: Any, shape: Any, dtype: str) -> Any:
    """Small values, which sums of a dtype hold; float ones are those the dtype has."""
    rng = draw(RNG)
    if dtype in INTS or dtype == "bool":
        return rng.integers(
            0 if dtype == "bool" else -9, 2 if dtype == "bool" else 9, shape
        ).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def moved(x: Any, source: str, target: str) -> Any:
    """``x`` with its named axes in another order."""
    return np.ascontiguousarray(np.transpose(x, [source.index(a) for a in target]))


def exact(x: Any) -> torch.Tensor:
    """As float64 tensor."""
    return torch.from_numpy(np.asarray(x).astype("float64"))


def case(label: str, make: Any, inputs: Any, want: Any, dtype: str) -> Case:
    tol = TOL.get(dtype)
    made = np.asarray(want).astype(numpy_dtype(dtype))
    return Case(f"{label} {dtype}", make, inputs, made, tol, (tol or 0.0) * 2)


def shuffled(draw: Any, names: str) -> str:
    return "".join(draw(st.permutations(names)))


@st.composite
def convolutions(draw: Any) -> Case:
    """conv and conv_transpose in one to three dimensions, in any layout."""
    n = draw(st.integers(1, 3))
    space, back = SPACE[n], draw(st.booleans())
    groups, inner, outer, count = (draw(st.integers(1, k)) for k in (3, 2, 2, 2))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(n)]

    kernel, strides, dilation = each(1, 3), each(1, 3), each(1, 2)
    before, after = each(0, 1), each(0, 1)
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = [e + more for e, more in zip(least, each(0, 3), strict=True)]
    dtype = draw(st.sampled_from(FLOATS[:3]))
    data = shuffled(draw, f"NC{space}")
    out = shuffled(draw, f"NC{space}")
    x = array(draw, (count, groups * inner, *sizes), dtype)
    attrs = {
        "strides": strides, "padding": before + after, "dilation": dilation, "groups": groups,
        "data_layout": data, "out_layout": out,
    }  # fmt: skip
    if back:
        plain, name = f"IO{space}", f"conv{n}d_transpose"
        w = array(draw, (groups * inner, outer, *kernel), dtype)
        extra = [draw(st.integers(0, s - 1)) for s in strides]
        attrs["output_padding"] = extra
        full = getattr(F, f"conv_transpose{n}d")(
            exact(x), exact(w), None, strides, 0, 0, groups, dilation
        )
        # Padding crops the whole result; what is asked for behind it is zero.
        full = F.pad(full, [v for e in reversed(extra) for v in (0, e)])
        cut = [slice(b, size - a) for b, a, size in zip(before, after, full.shape[2:], strict=True)]
        want = full[(slice(None), slice(None), *cut)]
        if 0 in want.shape:
            return draw(convolutions())
    else:
        plain, name = f"OI{space}", f"conv{n}d"
        w = array(draw, (groups * outer, inner, *kernel), dtype)
        pads = [v for b, a in zip(reversed(before), reversed(after), strict=True) for v in (b, a)]
        want = getattr(F, f"conv{n}d")(
            F.pad(exact(x), pads), exact(w), None, strides, 0, dilation, groups
        )
    attrs["kernel_layout"] = shuffled(draw, plain)
    inputs = [moved(x, f"NC{space}", data), moved(w, plain, attrs["kernel_layout"])]
    want = moved(want.numpy(), f"NC{space}", out)
    return case(f"{name} {attrs}", calling(getattr(op.nn, name), **attrs), inputs, want, dtype)


@st.composite
def pools(draw: Any) -> Case:
    """Maximum and average pools, with what torch can say: padding alike on both sides."""
    n, most = draw(st.integers(1, 3)), draw(st.booleans())
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    strides = [draw(st.integers(1, k)) for k in kernel]
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    ceil = not any(padding) and draw(st.booleans())
    dilation = [draw(st.integers(1, 2)) if most and not ceil else 1 for _ in range(n)]
    sizes = [
        (k - 1) * d + 1 + draw(st.integers(0, 3)) for k, d in zip(kernel, dilation, strict=True)
    ]
    dtype = draw(st.sampled_from(FLOATS))
    layout = shuffled(draw, f"NC{SPACE[n]}")
    x = array(draw, (2, 2, *sizes), dtype)
    attrs: dict[str, Any] = {
        "pool_size": kernel, "strides": strides, "padding": padding * 2, "dilation": dilation,
        "ceil_mode": ceil, "layout": layout,
    }  # fmt: skip
    if most:
        want = getattr(F, f"max_pool{n}d")(exact(x), kernel, strides, padding, dilation, ceil)
    else:
        attrs["count_include_pad"] = draw(st.booleans())
        want = getattr(F, f"avg_pool{n}d")(
            exact(x), kernel, strides, padding, ceil, attrs["count_include_pad"]
        )
    name = f"{'max' if most else 'avg'}_pool{n}d"
    inputs = [moved(x, f"NC{SPACE[n]}", layout)]
    want = moved(want.numpy(), f"NC{SPACE[n]}", layout)
    return case(f"{name} {attrs}", calling(getattr(op.nn, name), **attrs), inputs, want, dtype)


@st.composite
def norms(draw: Any) -> Case:
    """Layer, group, instance and RMS norms."""
    dtype = draw(st.sampled_from(FLOATS[:2]))
    kind = draw(st.sampled_from(["layer", "group", "instance", "rms"]))
    shape = (2, 4, *draw(st.lists(st.integers(2, 4), min_size=1, max_size=2)))
    x = array(draw, shape, dtype)
    eps = draw(st.sampled_from([1e-5, 1e-3]))
    space = list(range(2, len(shape)))
    if kind in ("layer", "rms"):
        axes = draw(st.sampled_from([[-1], list(range(1, len(shape)))]))
        inner = [shape[a] for a in axes]
        g, b = array(draw, inner, dtype), array(draw, inner, dtype)
        if kind == "rms":
            want = F.rms_norm(exact(x), inner, exact(g), eps)
            make = lambda x, g: op.nn.rms_norm(x, g, axes=axes, epsilon=eps)  # noqa: E731
            return case(f"rms {axes}", make, [x, g], want.numpy(), dtype)
        want = F.layer_norm(exact(x), inner, exact(g), exact(b), eps)
        make = lambda x, g, b: op.nn.layer_norm(x, g, b, axes=axes, epsilon=eps)  # noqa: E731
        return case(f"layer {axes}", make, [x, g, b], want.numpy(), dtype)
    g, b = array(draw, (4,), dtype), array(draw, (4,), dtype)
    if kind == "instance":
        want = F.instance_norm(exact(x), weight=exact(g), bias=exact(b), eps=eps)
        make = lambda x, g, b: op.nn.instance_norm(x, g, b, 1, space, eps)  # noqa: E731
    else:
        groups = draw(st.sampled_from([1, 2, 4]))
        want = F.group_norm(exact(x), groups, exact(g), exact(b), eps)
        make = lambda x, g, b: op.nn.group_norm(x, g, b, groups, 1, space, eps)  # noqa: E731
    return case(kind, make, [x, g, b], want.numpy(), dtype)


REDUCTIONS = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax", "mean": "mean"}
AT: dict[str, Callable[..., Any]] = {
    "add": np.add.at, "mul": np.multiply.at, "min": np.minimum.at, "max": np.maximum.at,
}  # fmt: skip


@st.composite
def gathers(draw: Any) -> Case:
    """The gather and scatter family, with every reduction."""
    dtype = draw(st.sampled_from([*FLOATS[:2], *INTS]))
    kind = draw(
        st.sampled_from(["gather", "take", "nd", "scatter", "scatter_nd", "index_put", "along"])
    )
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=3)))
    rng = draw(RNG)
    x = array(draw, shape, dtype)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    if kind in ("gather", "along", "scatter"):
        where = list(shape)
        where[axis] = draw(st.integers(1, 5))
        i = rng.integers(-size, size, where)
        if kind != "scatter":
            make = op.gather_elements if kind == "gather" else None
            if make is None:
                return case(
                    f"take_along_axis {axis}",
                    lambda x, i: op.gather_elements(x, i, axis),
                    [x, i.astype("int32")],
                    np.take_along_axis(x, i, axis),
                    dtype,
                )
            want = torch.gather(torch.from_numpy(x), axis, torch.from_numpy(i % size)).numpy()
            return case(f"gather {axis}", calling(make, axis), [x, i], want, dtype)
        reduction = draw(st.sampled_from([*REDUCTIONS, "update"]))
        u = array(draw, where, dtype)
        if reduction == "update":
            i = np.argsort(rng.random(shape), axis)
            u = array(draw, shape, dtype)
            want = x.copy()
            np.put_along_axis(want, i, u, axis)
        else:
            parts = [torch.from_numpy(v) for v in (i % size, u)]
            want = torch.from_numpy(x).scatter_reduce(axis, *parts, REDUCTIONS[reduction]).numpy()
        make = calling(op.scatter_elements, axis, reduction)
        return case(f"scatter {reduction} {axis}", make, [x, i, u], want, dtype)
    if kind == "take":
        i = rng.integers(0, size, draw(st.sampled_from([(), (3,), (2, 2)])))
        return case(f"take {axis}", calling(op.take, axis), [x, i], np.take(x, i, axis), dtype)
    depth = draw(st.integers(1, len(shape)))
    rows = draw(st.integers(1, 4))
    columns = [rng.integers(0, d, rows) for d in shape[:depth]]
    if kind == "nd":
        want = x[tuple(columns)]
        return case("gather_nd", op.gather_nd, [x, np.stack(columns, -1)], want, dtype)
    u = array(draw, (rows, *shape[depth:]), dtype)
    want = x.copy()
    if kind == "index_put":
        parts = tuple(torch.from_numpy(c) for c in columns)
        want = torch.from_numpy(want).index_put(parts, torch.from_numpy(u), accumulate=True).numpy()
        return case(
            "index_put",
            lambda x, u, *i: op.index_put(x, i, u, accumulate=True),
            [x, u, *columns],
            want,
            dtype,
        )
    reduction = draw(st.sampled_from(list(AT)))
    AT[reduction](want, tuple(columns), u)
    make = calling(op.scatter_nd, reduction)
    return case(f"scatter_nd {reduction}", make, [x, np.stack(columns, -1), u], want, dtype)


DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "divide": lambda a, b: np.trunc(a / b) if a.dtype.kind in "iu" else a / b,
}


@st.composite
def divisions(draw: Any) -> Case:
    """Signs of quotients and remainders; numpy's are those of C and of Python."""
    dtype = draw(st.sampled_from(["float32", "float64", "int8", *INTS, "uint8"]))
    name = draw(st.sampled_from(sorted(DIVISIONS)))
    rng = draw(RNG)
    low = 0 if dtype == "uint8" else -20
    a, b = (rng.integers(low, 20, (3, 5)) for _ in range(2))
    b = np.where(b == 0, 3, b)
    a, b = a.astype(dtype), b.astype(dtype)
    if dtype.startswith("float"):
        a, b = a / np.asarray(4, dtype), b / np.asarray(4, dtype)
    return case(name, getattr(op, name), [a, b], DIVISIONS[name](a, b), dtype)


@st.composite
def resizes(draw: Any) -> Case:
    """resize2d in the modes of torch."""
    dtype = draw(st.sampled_from(FLOATS[:2]))
    mode = draw(st.sampled_from(["nearest", "nearest-exact", "bilinear", "bicubic"]))
    shape = tuple(draw(st.integers(1, 6)) for _ in range(2))
    size = tuple(draw(st.integers(1, 9)) for _ in range(2))
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    x = array(draw, (1, 2, *shape), dtype)
    attrs: dict[str, Any] = {"layout": layout}
    corners = None
    if mode.startswith("nearest"):
        rounding, where = ("floor", "asymmetric")
        if mode != "nearest":
            rounding, where = ("round_prefer_ceil", "half_pixel")
        attrs.update(method="nearest_neighbor", rounding_method=rounding)
        attrs["coordinate_transformation_mode"] = where
    else:
        corners = draw(st.booleans())
        attrs["method"] = {"bilinear": "linear", "bicubic": "cubic"}[mode]
        attrs["coordinate_transformation_mode"] = "align_corners" if corners else "half_pixel"
    want = F.interpolate(torch.from_numpy(x), size, mode=mode, align_corners=corners).numpy()
    inputs, want = [moved(x, "NCHW", layout)], moved(want, "NCHW", layout)
    return case(f"{mode} {size}", calling(op.image.resize2d, size, **attrs), inputs, want, dtype)


def several(cases: st.SearchStrategy[Case]) -> Any:
    return st.lists(cases, min_size=12, max_size=16)


@settings(max_examples=3)
@given(several(convolutions()))
def test_convolutions(drawn: list[Case]) -> None:
    check(drawn)


@settings(max_examples=3)
@given(several(pools()))
def test_pools(drawn: list[Case]) -> None:
    check(drawn)


@settings(max_examples=2)
@given(several(norms()))
def test_norms(drawn: list[Case]) -> None:
    check(drawn)


@settings(max_examples=4)
@given(several(gathers()))
def test_gathers_and_scatters(drawn: list[Case]) -> None:
    check(drawn)


@settings(max_examples=2)
@given(several(divisions()))
def test_divisions(drawn: list[Case]) -> None:
    check(drawn)


@settings(max_examples=2)
@given(several(resizes()))
def test_resizes(drawn: list[Case]) -> None:
    check(drawn)
