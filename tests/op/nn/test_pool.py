"""Pooling: values against torch, struct info, errors."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import ShapeStructInfo, TensorStructInfo, Var
from relax2xla.op import nn
from relax2xla.op.nn import pool
from tests.op.nn.support import Batch

N = tir.Var("n", "int64")
H = tir.Var("h", "int64")
SIZES = {1: (11,), 2: (9, 10), 3: (5, 6, 7)}
# window, stride, padding
WINDOWS = [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 3, 1), (1, 2, 0), (3, 3, 1)]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_max_pool(ndim: int) -> None:
    batch = Batch()
    relax, ref = getattr(nn, f"max_pool{ndim}d"), getattr(F, f"max_pool{ndim}d")
    x = random(2, 3, *SIZES[ndim]) - 5.0  # negative: a padding of zeros would win
    for (k, s, p), ceil, d in itertools.product(WINDOWS, (False, True), (1, 2)):
        made = relax(batch.var(x), k, s, p, d, ceil_mode=ceil)
        batch.add(f"{k} {s} {p} {ceil} {d}", made, ref(x, k, s, p, d, ceil), 0)
    batch.check()


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_avg_pool(ndim: int) -> None:
    batch = Batch()
    relax, ref = getattr(nn, f"avg_pool{ndim}d"), getattr(F, f"avg_pool{ndim}d")
    x = random(2, 3, *SIZES[ndim])
    for (k, s, p), ceil, counted in itertools.product(WINDOWS, (False, True), (False, True)):
        made = relax(batch.var(x), k, s, p, ceil_mode=ceil, count_include_pad=counted)
        want = ref(x, k, s, p, ceil_mode=ceil, count_include_pad=counted)
        batch.add(f"{k} {s} {p} {ceil} {counted}", made, want)
    batch.check()


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_adaptive_avg_pool(ndim: int) -> None:
    batch = Batch()
    relax = getattr(nn, f"adaptive_avg_pool{ndim}d")
    ref = getattr(F, f"adaptive_avg_pool{ndim}d")
    x = random(2, 3, *(12, 7, 6)[:ndim])
    for size in (1, (4, 7, 2), (5, 3, 4), (12, 1, 6), (13, 8, 9)):
        out = size if isinstance(size, int) else size[:ndim]
        batch.add(f"{size}", relax(batch.var(x), out), ref(x, out))
    batch.add("None", relax(batch.var(x)), x)
    batch.check()


def laid_out(value: torch.Tensor, layout: str) -> torch.Tensor:
    return value.permute(["NCHW".index(c) for c in layout]).contiguous()


def test_layouts() -> None:
    batch = Batch()
    x = random(2, 3, 7, 9)
    keywords: dict[str, Any] = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0)}
    top = F.max_pool2d(x, (3, 2), (2, 1), (1, 0))
    mean = F.avg_pool2d(x, (3, 2), (2, 1), (1, 0), count_include_pad=False)
    small = F.adaptive_avg_pool2d(x, (3, 4))
    for layout, out in (("NHWC", None), ("HWCN", "NCHW"), ("CWNH", None), ("NCHW", "WHNC")):
        v = batch.var(laid_out(x, layout))
        to = out or layout
        made = nn.max_pool2d(v, **keywords, layout=layout, out_layout=out)
        batch.add(f"max {layout} {out}", made, laid_out(top, to), 0)
        made = nn.avg_pool2d(v, **keywords, layout=layout, out_layout=out)
        batch.add(f"avg {layout} {out}", made, laid_out(mean, to))
        made = nn.adaptive_avg_pool2d(v, (3, 4), layout=layout, out_layout=out)
        batch.add(f"adaptive {layout} {out}", made, laid_out(small, to))
    batch.check()


def test_asymmetric_padding_and_dilated_average() -> None:
    batch = Batch()
    x = random(1, 2, 6, 7)
    low = torch.finfo(torch.float32).min
    want = F.max_pool2d(F.pad(x, (2, 1, 0, 1), value=low), 3, 2)
    batch.add("max", nn.max_pool2d(batch.var(x), 3, 2, (0, 2, 1, 1)), want, 0)
    # A dilated average is a convolution with a constant kernel, divided by the values it held.
    kernel = torch.ones(2, 1, 2, 2)
    total, held = (
        F.conv2d(v, kernel, padding=1, dilation=2, groups=2) for v in (x, torch.ones_like(x))
    )
    batch.add("dilated", nn.avg_pool2d(batch.var(x), 2, 1, 1, 2), total / held)
    made = nn.avg_pool2d(batch.var(x), 2, 1, 1, 2, count_include_pad=True)
    batch.add("dilated, counted", made, total / 4)
    batch.check()


def test_dtypes() -> None:
    batch = Batch()
    for dtype, tol in ((torch.float64, 1e-12), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        x = random(1, 4, 6, 6, dtype=dtype)
        batch.add(f"max {dtype}", nn.max_pool2d(batch.var(x), 2, 2), F.max_pool2d(x, 2, 2), 0)
        want = F.avg_pool2d(x.double(), 3, 2).to(dtype)
        batch.add(f"avg {dtype}", nn.avg_pool2d(batch.var(x), 3, 2), want, tol)
        want = F.adaptive_avg_pool2d(x.double(), 4).to(dtype)
        batch.add(f"adaptive {dtype}", nn.adaptive_avg_pool2d(batch.var(x), 4), want, tol)
    rng = np.random.default_rng(0)
    for dtype in ("int8", "uint8", "int32"):
        x = torch.tensor(rng.integers(0, 127, (1, 2, 6, 6)).astype(dtype))
        want = F.max_pool2d(x.double(), 3, 2, 1).to(x.dtype)
        batch.add(f"max {dtype}", nn.max_pool2d(batch.var(x), 3, 2, 1), want)
        want = F.avg_pool2d(x.double(), 3, 2).floor().to(x.dtype)
        batch.add(f"avg {dtype}", nn.avg_pool2d(batch.var(x), 3, 2), want)
    # Nothing overflows, and infinities and NaN stay where they are.
    big = torch.full((1, 1, 64, 64), 60000.0, dtype=torch.float16)
    batch.add("sum in float32", nn.adaptive_avg_pool2d(batch.var(big), 1), big[:, :, :1, :1])
    odd = random(1, 1, 6, 6)
    odd[0, 0, 0, 0], odd[0, 0, 5, 5] = float("nan"), float("-inf")
    batch.add("nan", nn.max_pool2d(batch.var(odd), 2, 2), F.max_pool2d(odd, 2, 2), 0)
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info() -> None:
    x = tensor(N, 3, H, 8)
    # TVM 0.25 infers the same (recorded).
    made = nn.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True).struct_info
    assert str(made) == 'Tensor((n, 3, h // 2 + 1, 5), dtype="float32")'
    made = nn.adaptive_avg_pool2d(tensor(2, 3, 8, 8), (2, 3), layout="NHWC").struct_info
    assert made == TensorStructInfo((2, 2, 3, 8), "float32")
    unknown = TensorStructInfo(None, "float32", ndim=4)
    assert nn.max_pool2d(Var("x", TensorStructInfo(ndim=4))).struct_info == unknown
    assert nn.adaptive_avg_pool2d(Var("x", TensorStructInfo())).struct_info == unknown
    attrs = nn.max_pool2d(x, 2, padding=1).attrs
    assert attrs.out_layout == "NCHW"
    assert attrs.padding == (1, 1, 1, 1)


def test_adaptive_averages_of_integers_are_truncated() -> None:
    batch = Batch()
    rng = np.random.default_rng(0)
    for dtype, (h, w) in itertools.product(
        ("int8", "uint8", "int64"), ((3, 2), (7, 4), (7, 6), (1, 1), (9, 6))
    ):
        x = rng.integers(0 if dtype == "uint8" else -100, 100, (2, 3, 7, 6)).astype(dtype)
        want = np.zeros((2, 3, h, w), dtype)
        for i, j in itertools.product(range(h), range(w)):
            rows = slice(i * 7 // h, -(-(i + 1) * 7 // h))
            columns = slice(j * 6 // w, -(-(j + 1) * 6 // w))
            want[:, :, i, j] = np.trunc(x[:, :, rows, columns].astype(float).mean((2, 3)))
        batch.add(f"{dtype} {h} {w}", nn.adaptive_avg_pool2d(batch.var(x), (h, w)), want, 0)
    batch.check()


def test_adaptive_average_keeps_the_shape_that_a_variable_holds() -> None:
    held = Var("s", ShapeStructInfo(ndim=4))
    x = Var("x", TensorStructInfo(held, "float32"))
    assert nn.adaptive_avg_pool2d(x).struct_info == x.struct_info
    assert nn.adaptive_avg_pool2d(x, 2).struct_info.shape is None


def test_symbolic_ceil_mode_is_exact() -> None:
    for k, s, p in WINDOWS:
        dims = nn.max_pool2d(tensor(1, 1, H, 8), k, s, p, ceil_mode=True).struct_info.dims
        for size in range(k, 12):
            want = F.max_pool2d(torch.zeros(1, 1, size, 8), k, s, p, ceil_mode=True).shape[2]
            assert tir.as_dim(tir.simplify(tir.substitute(dims[2], {H: size}))) == want, (k, s, p)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.max_pool2d(tensor(3, 8, 8)), "`data` must have rank 4"),
        (lambda: nn.max_pool2d(tensor(1, 3, 8, 8), 9), "does not fit in a dimension of 8"),
        (lambda: nn.max_pool2d(tensor(1, 3, 8, 8), 0), "`pool_size` must be at least 1"),
        (lambda: nn.max_pool2d(tensor(1, 3, 8, 8), strides=0), "`strides` must be at least 1"),
        (lambda: nn.max_pool2d(tensor(1, 3, 8, 8), padding=-1), "must not be negative"),
        (lambda: nn.avg_pool2d(tensor(1, 3, 8, 8), dilation=0), "`dilation` must be at least 1"),
        (lambda: nn.avg_pool2d(tensor(1, 3, 8, 8), layout="NCHW4c"), "must have rank 5"),
        (lambda: nn.avg_pool2d(tensor(1, 3, 8, 8), (1, 2, 3)), "must have 1 or 2 entries"),
        (lambda: nn.max_pool1d(tensor(1, 3, 8, dtype="bool")), "`data` must be one of"),
        (lambda: nn.adaptive_avg_pool2d(tensor(1, 3, 8, 8), 0), "`output_size` must be at least"),
        (lambda: nn.adaptive_avg_pool1d(tensor(1, 3, 8, dtype="bool"), 2), "must be one of"),
        (lambda: nn.adaptive_avg_pool1d(tensor(1, 3, 8), 2, "NWX"), "`layout` must be a perm"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()


def test_windows_without_taps_that_only_meet_padding() -> None:
    """The smaller window sees the same values at each place, and there are as many places."""
    draw = Random(0)
    smaller = 0
    for _ in range(3000):
        size, window, stride, dilation = (draw.randint(1, n) for n in (6, 12, 4, 5))
        low, high = draw.randint(0, 12), draw.randint(0, 12)
        room = size + low + high - (window - 1) * dilation - 1
        if room < 0:
            continue
        count = room // stride + 1
        kept, (before, after) = pool.within(size, window, stride, dilation, (low, high), count)
        smaller += kept < window
        assert min(before, after) >= 0
        assert (size + before + after - (kept - 1) * dilation - 1) // stride + 1 == count
        for i in range(count):
            seen = {i * stride - low + t * dilation for t in range(window)}
            kept_seen = {i * stride - before + t * dilation for t in range(kept)}
            assert seen & {*range(size)} == kept_seen & {*range(size)}
    assert smaller > 500
