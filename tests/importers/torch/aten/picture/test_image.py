"""Resizing against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check_table, imported  # noqa: E402

IMAGES = {
    n: torch.randn(2, 3, *(4, 5, 6)[:n], generator=torch.Generator().manual_seed(n))
    for n in (1, 2, 3)
}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
TO: dict[str, dict[str, Any]] = {
    "twice": {"scale_factor": 2},
    "by a scale that does not divide": {"scale_factor": 1.7},
    "smaller": {"scale_factor": 0.6},
    "recomputed": {"scale_factor": 1.7, "recompute_scale_factor": True},
}


def test_resizing() -> None:
    table: dict[str, tuple[Any, ...]] = {}
    for n, image in IMAGES.items():
        sizes = {**TO, "to a size": {"size": (7, 3, 9)[:n]}, "to one": {"size": (1,) * n}}
        for mode in ("nearest", "nearest-exact", LINEAR[n]):
            for name, options in sizes.items():
                table[f"{mode} {n} {name}"] = (
                    lambda x, m=mode, o=options: F.interpolate(x, mode=m, **o),
                    image,
                )
        for name in ("twice", "to a size", "to one"):
            table[f"{n} {name} with aligned corners"] = (
                lambda x, m=LINEAR[n], o=sizes[name]: F.interpolate(
                    x, mode=m, align_corners=True, **o
                ),
                image,
            )
    check_table(table)


def test_linear_weights_of_double_precision() -> None:
    def resized(x: Any) -> Any:
        return [
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, size=(7, 3), mode="bilinear"),
            F.interpolate(x, size=(7, 1), mode="bilinear", align_corners=True),
        ]

    check_table({"bilinear": (resized, IMAGES[2].double())})


def test_cubic_resizing() -> None:
    """Four places along each axis are read, not sixteen pixels."""
    images = torch.randn(2, 3, 14, 17, generator=torch.Generator().manual_seed(7))
    cases = {
        f"{size} {scale} {align} {image.dtype}": (
            lambda x, size=size, scale=scale, align=align: F.interpolate(
                x, size, scale, mode="bicubic", align_corners=align
            ),
            image,
        )
        for image in (images, images.double(), images.to(torch.bfloat16))
        for size, scale in (((5, 30), None), ((14, 1), None), (None, (1.7, 0.6)))
        for align in (False, True)
    }
    check_table(cases)
    func, image = cases["(5, 30) None False torch.float32"]
    assert imported(func, (image,)).script().count("R.take(") == 8


def test_smoothed_resizing_of_bytes() -> None:
    image = torch.randint(
        0, 256, (2, 3, 14, 17), generator=torch.Generator().manual_seed(6), dtype=torch.uint8
    )
    sizes = ((5, 30), (14, 8), (31, 17))
    check_table(
        {
            f"{mode} to {size}, {align}": (
                lambda x, mode=mode, size=size, align=align: F.interpolate(
                    x, size, mode=mode, align_corners=align, antialias=True
                ),
                image,
            )
            for mode in ("bilinear", "bicubic")
            for size in sizes
            for align in (False, True)
        }
    )
