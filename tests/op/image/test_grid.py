"""grid_sample and affine_grid against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from relax2xla import op, tir
from relax2xla.errors import OpError
from tests.op.harness import Case, check, tensor

N = tir.Var("n", "int64")
RNG = np.random.default_rng(7)


def sample(
    shape: tuple[int, ...], out: tuple[int, ...], method: str, padding: str, align: bool
) -> Case:
    n = len(shape) - 2
    x = RNG.normal(size=shape).astype(np.float32)
    grid = RNG.uniform(-2.6, 2.6, (shape[0], *out, n)).astype(np.float32)
    grid.reshape(-1)[:3] = (-1, 1, 0)
    torch_args = torch.from_numpy(x), torch.from_numpy(grid), method, padding, align
    want = F.grid_sample(*torch_args).numpy()
    layout = "NCHW" if n == 2 else "NCDHW"
    first = np.ascontiguousarray(np.moveaxis(grid, -1, 1))

    def make(a: Any, b: Any) -> Any:
        return op.image.grid_sample(a, b, method, layout, padding, align)

    return Case(f"{method} {padding} {align} {shape}", make, [x, first], want, 2e-4, 2e-5)


def test_grid_sample_as_torch():
    cases: list[Case] = []
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            for method in ("nearest", "bilinear", "bicubic"):
                cases.append(sample((2, 3, 5, 7), (4, 6), method, padding, align))
            for method in ("nearest", "bilinear"):
                cases.append(sample((2, 2, 3, 4, 5), (2, 3, 4), method, padding, align))
            cases.append(sample((1, 2, 1, 1), (3, 3), "bilinear", padding, align))
            cases.append(sample((1, 2, 1, 6), (3, 3), "bicubic", padding, align))
    check(cases)


def test_layouts_and_dtypes():
    x = RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
    grid = RNG.uniform(-1, 1, (2, 4, 6, 2)).astype(np.float32)
    want = F.grid_sample(torch.from_numpy(x), torch.from_numpy(grid), align_corners=False).numpy()
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    nearest = F.grid_sample(
        torch.from_numpy(x).round().double(),
        torch.from_numpy(grid).double(),
        "nearest",
        align_corners=False,
    ).numpy()
    check(
        [
            Case("torch's grid", op.image.grid_sample, [x, grid], want, 1e-4, 1e-5),
            Case(
                "NHWC",
                lambda a, b: op.image.grid_sample(a, b, layout="NHWC"),
                [last, grid],
                want.transpose(0, 2, 3, 1),
                1e-4,
                1e-5,
            ),
            Case(
                "integers",
                lambda a, b: op.image.grid_sample(a, b, "nearest"),
                [x.round().astype(np.int32), grid],
                nearest.astype(np.int32),
            ),
            Case(
                "nothing",
                op.image.grid_sample,
                [x, grid[:, :0]],
                np.zeros((2, 3, 0, 6), np.float32),
            ),
        ]
    )


def test_affine_grid_as_torch():
    cases: list[Case] = []
    for n, size in ((2, (4, 5)), (2, (2, 3)), (3, (2, 3, 4)), (3, (5, 2, 2))):
        for align in (True, False):
            theta = RNG.normal(size=(2, n, n + 1)).astype(np.float32)
            want = F.affine_grid(torch.from_numpy(theta), [2, 1, *size], align_corners=align)
            want = np.moveaxis(want.numpy(), -1, 1)

            def make(x: Any, size: Any = size, align: bool = align) -> Any:
                return op.image.affine_grid(x, size, align)

            cases.append(Case(f"{size} {align}", make, [theta], want, 1e-5, 1e-6))
    check(cases)


def test_struct_info():
    x = tensor((N, 2, 3))
    assert str(op.image.affine_grid(x, 4).struct_info.dims) == "(n, 2, 4, 4)"
    unknown = op.image.grid_sample(tensor(None), tensor((N, 2, 4, 5))).struct_info
    assert unknown.ndim == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.image.affine_grid(tensor((2, 2, 3)), (2, 3, 4)), r"\(n, 3, 4\)"),
        (lambda: op.image.affine_grid(tensor((2, 2, 3)), (2, 3, 4, 5)), "2 or 3"),
        (lambda: op.image.grid_sample(tensor((1, 2, 3, 4)), tensor((1, 3, 4, 5))), "coordinates"),
        (lambda: op.image.grid_sample(tensor((1, 2, 3, 4)), tensor((2, 2, 4, 5))), "one batch"),
        (
            lambda: op.image.grid_sample(tensor((1, 2, 3, 4)), tensor((1, 2, 4, 5)), "cubic"),
            "`method`",
        ),
        (
            lambda: op.image.grid_sample(
                tensor((1, 2, 3, 4, 5)), tensor((1, 3, 4, 5, 6)), "bicubic", "NCDHW"
            ),
            "`method`",
        ),
        (
            lambda: op.image.grid_sample(
                tensor((1, 2, 3, 4)), tensor((1, 2, 4, 5)), padding_mode="wrap"
            ),
            "`padding_mode`",
        ),
        (
            lambda: op.image.grid_sample(tensor((1, 2, 3)), tensor((1, 1, 4)), layout="NCW"),
            "`layout`",
        ),
    ],
)
def test_errors(call: Any, message: str):
    with pytest.raises(OpError, match=message):
        call()
