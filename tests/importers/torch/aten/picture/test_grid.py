"""Sampling images and volumes at places that a grid gives, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import Many, check_table, imported, run  # noqa: E402

g = torch.Generator().manual_seed(4)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


def test_volumes() -> None:
    volume = randn(2, 2, 3, 4, 5)
    # Beyond the edges, too.
    grid = randn(2, 2, 3, 2, 3) * 1.3
    table: dict[str, tuple[Any, ...]] = {}
    for mode, padding, corners in (
        ("bilinear", "zeros", False),
        ("bilinear", "border", True),
        ("bilinear", "reflection", False),
        ("nearest", "zeros", True),
        ("nearest", "reflection", True),
    ):
        table[f"{mode} {padding} {corners}"] = (
            lambda x, at, m=mode, p=padding, c=corners: F.grid_sample(x, at, m, p, c),
            volume,
            grid,
        )
    check_table(table)


def test_images() -> None:
    """The same with two axes, of which the grid may have as many rows as coordinates."""
    image, grid = randn(2, 3, 4, 5), randn(2, 2, 6, 2) * 1.3
    table: dict[str, tuple[Any, ...]] = {}
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                table[f"{mode} {padding} {corners}"] = (
                    lambda x, at, m=mode, p=padding, c=corners: F.grid_sample(x, at, m, p, c),
                    image,
                    grid,
                )
    check_table(table)


def test_batches_of_none() -> None:
    table: dict[str, tuple[Any, ...]] = {
        "image": (
            lambda x, at: F.grid_sample(x, at, "bicubic", align_corners=True),
            randn(0, 3, 4, 5),
            randn(0, 2, 6, 2),
        ),
        "volume": (
            lambda x, at: F.grid_sample(x, at, align_corners=False),
            randn(0, 2, 3, 4, 5),
            randn(0, 2, 3, 2, 3),
        ),
    }
    check_table(table)


def test_a_sampling_is_one_operator() -> None:
    """Rather than torch's decomposition of it."""
    inputs = [randn(1, 2, 4, 5), randn(1, 3, 3, 2)]
    mod = imported(lambda x, at: F.grid_sample(x, at, align_corners=False), inputs)
    assert "image.grid_sample" in mod.script()


def test_narrow_volumes_are_sampled_in_float32() -> None:
    """Nearer to the result in float32 than eager torch, which places by bfloat16."""
    volume, grid = (randn(2, 2, 9, 9, 9).bfloat16(), randn(2, 4, 5, 6, 3).bfloat16())

    def sample(x: Any, at: Any) -> Any:
        return F.grid_sample(x, at, "bilinear", "zeros", False)

    (got,) = run(imported(Many({"": (sample, volume, grid)}), [volume, grid]), [volume, grid])
    want = sample(volume.float(), grid.float())
    torch.testing.assert_close(torch.as_tensor(got.astype("f")), want, rtol=8e-3, atol=1e-5)
