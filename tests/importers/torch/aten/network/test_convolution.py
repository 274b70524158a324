"""Convolutions against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check, check_table  # noqa: E402

g = torch.Generator().manual_seed(10)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


SIZES = {1: (11,), 2: (9, 8), 3: (6, 5, 7)}
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
BACK = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def test_convolutions() -> None:
    table: dict[str, tuple[Any, ...]] = {}
    for n, sizes in SIZES.items():
        image, bias = randn(2, 4, *sizes), randn(6)
        weight, grouped = randn(6, 4, *[3] * n), randn(6, 2, *[3] * n)
        conv, back = CONV[n], BACK[n]
        table[f"plain {n}"] = (conv, image, weight, bias)
        table[f"strides {n}"] = (
            lambda x, w, f=conv: f(x, w, stride=2, padding=1, dilation=2),
            image,
            weight,
        )
        table[f"groups {n}"] = (
            lambda x, w, b, f=conv: f(x, w, b, padding="same", groups=2),
            image,
            grouped,
            bias,
        )
        table[f"without a batch {n}"] = (lambda x, w, f=conv: f(x[0], w), image, weight)
        table[f"transposed {n}"] = (
            lambda x, w, f=back: f(x, w, stride=2, padding=1, output_padding=1),
            image,
            randn(4, 3, *[3] * n),
        )
        table[f"transposed groups {n}"] = (
            lambda x, w, f=back: f(x, w, dilation=2, groups=2),
            image,
            randn(4, 3, *[3] * n),
        )
    form = [2, 2], [1, 1], [1, 1], False, [0, 0], 1
    table["with a choice of kernels"] = (
        lambda x, w: torch.ops.aten._convolution(x, w, None, *form, False, False, True, True),
        randn(2, 4, *SIZES[2]),
        randn(6, 4, 3, 3),
    )
    table["steps first"] = (
        lambda x, w, b: torch.conv_tbc(x, w, b, 1),
        randn(11, 2, 4),
        randn(3, 4, 6),
        randn(6),
    )
    check_table(table, scale=10)


def test_weights_that_differ_from_picture_to_picture() -> None:
    """As StyleGAN modulates them: one group for each entry of a batch of any size."""

    def modulated(x: Any, style: Any, weight: Any) -> Any:
        batch, channels = x.shape[:2]
        weight = (weight * style[:, None, :, None, None]).flatten(0, 1)
        x = x.reshape(1, batch * channels, *x.shape[2:])
        made = F.conv2d(x, weight, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=batch)
        return made.view(batch, -1, *made.shape[2:])

    def inputs(batch: int) -> list[Any]:
        return [randn(batch, 3, 6, 7), randn(batch, 3), randn(4, 3, 3, 2)]

    batch = {0: torch.export.Dim("batch")}
    check(modulated, inputs(2), [batch, batch, {}], [inputs(3)])


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
def test_forms_of_convolutions() -> None:
    x1, x2, x3 = randn(2, 4, 9), randn(2, 4, 9, 8), randn(1, 2, 5, 6, 7)
    w1, w2, w3 = randn(6, 4, 3), randn(6, 4, 3, 2), randn(4, 2, 2, 3, 2)
    check_table(
        {
            "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), x1, w1, randn(6)),
            "conv2d": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0)), x2, w2, randn(6)),
            "conv2d dilated": (lambda x, w: F.conv2d(x, w, dilation=(2, 3)), x2, w2),
            "conv2d grouped": (lambda x, w: F.conv2d(x, w, groups=2), x2, randn(6, 2, 3, 3)),
            "conv2d depthwise": (lambda x, w: F.conv2d(x, w, groups=4), x2, randn(8, 1, 3, 3)),
            "conv2d same": (lambda x, w: F.conv2d(x, w, padding="same"), x2, w2),
            "conv2d valid": (lambda x, w: F.conv2d(x, w, padding="valid"), x2, w2),
            "conv2d of one image": (F.conv2d, x2[0], w2),
            "conv3d": (lambda x, w: F.conv3d(x, w, stride=(1, 2, 1)), x3, w3),
            "conv_transpose1d": (
                lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
                x1,
                randn(4, 3, 3),
            ),
            "conv_transpose2d": (
                lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 1), (1, 0), (1, 0), 2, (1, 2)),
                x2,
                randn(4, 3, 3, 2),
                randn(6),
            ),
            "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w), x3, randn(2, 3, 2, 2, 2)),
        },
        scale=5,
    )
