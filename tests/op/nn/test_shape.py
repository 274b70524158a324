"""Padding, pixel shuffle, flattening, dropout: values against torch and numpy, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, TupleStructInfo, Var, const
from relax2xla.op import nn
from tests.op.nn.support import Batch

NUMPY_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def test_pad() -> None:
    batch = Batch()
    for dtype in ("float32", "int32", "bool"):
        x = np.arange(2 * 4 * 5).reshape(2, 4, 5).astype(dtype)
        for widths in ((0, 0, 2, 1, 0, 3), (1, 1, 3, 0, 4, 4), (0,) * 6):
            pairs = list(zip(widths[::2], widths[1::2], strict=True))
            want = np.pad(x, pairs, constant_values=1)
            batch.add(f"{widths}", nn.pad(batch.var(x), widths, pad_value=1), want)
            for mode, name in NUMPY_MODES.items():
                made = nn.pad(batch.var(x), pairs, mode)
                batch.add(f"{mode} {widths}", made, np.pad(x, pairs, name))
    crop = nn.pad(batch.var(x), ((0, 0), (-1, 2), (-2, -1)), pad_value=const(0.0))
    batch.add("crop", crop, np.pad(x[:, 1:, 2:-1], ((0, 0), (0, 2), (0, 0))))
    batch.check()


def test_others() -> None:
    batch = Batch()
    for shape, r in (((2, 8, 3, 4), 2), ((9, 2, 2), 3), ((1, 2, 4, 3, 5), 2)):
        x = torch.randn(shape)
        batch.add(f"{shape}", nn.pixel_shuffle(batch.var(x), r), F.pixel_shuffle(x, r), 0)
    x = torch.randn(2, 3, 4)
    batch.add("flat", nn.batch_flatten(batch.var(x)), x.flatten(1), 0)
    batch.add("dropout", nn.dropout(batch.var(x)), (x, torch.ones_like(x)), 0)
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info() -> None:
    n, h = tir.Var("n", "int64"), tir.Var("h", "int64")
    x = tensor(n, 4, h, 3)
    made = nn.pad(x, (0, 0, 0, 0, 1, 1, 2, 2), "reflect")
    assert str(made.struct_info) == 'Tensor((n, 4, h + 2, 7), dtype="float32")'
    assert made.attrs.pad_width == (0, 0, 0, 0, 1, 1, 2, 2)
    assert nn.pixel_shuffle(x, 2).struct_info.dims[:2] == (n, 1)
    assert nn.batch_flatten(tensor(n, 4, 3)).struct_info == TensorStructInfo((n, 12), "float32")
    assert nn.dropout(x).struct_info == TupleStructInfo([x.struct_info] * 2)
    unknown = Var("x", TensorStructInfo())
    assert nn.pad(unknown, (1, 1)).struct_info == TensorStructInfo(ndim=1)
    assert nn.batch_flatten(unknown).struct_info == TensorStructInfo(ndim=2)
    assert nn.pixel_shuffle(unknown, 2).struct_info == unknown.struct_info


X = tensor(2, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.pad(X, (1, 1)), "two numbers, before and after, for each of the 2 axes"),
        (lambda: nn.pad(X, (1, 1, 1)), "two numbers"),
        (lambda: nn.pad(X, (0, 0, 1, 1), "mirror"), "`pad_mode` must be one of constant, reflect"),
        (lambda: nn.pad(X, (0, 0, 4, 0), "reflect"), "needs at least 5 values on axis 1; it has 4"),
        (lambda: nn.pad(X, (0, 0, 0, 5), "circular"), "needs at least 5 values on axis 1"),
        (lambda: nn.pad(X, (0, 0, -1, 0), "replicate"), "must not be negative"),
        (lambda: nn.pad(X, (0, 0, -3, -2)), "crops more than axis 1 has"),
        (lambda: nn.pad(X, (0, 0, 1, 1), pad_value=tensor()), "parameter `pad_value`"),
        (lambda: nn.pixel_shuffle(X, 2), "at least 3 axes"),
        (
            lambda: nn.pixel_shuffle(tensor(1, 6, 2, 2), 2),
            "6 channels; they must be a multiple of 4",
        ),
        (lambda: nn.pixel_shuffle(tensor(1, 4, 2, 2), 0), "`upscale_factor` must be at least 1"),
        (lambda: nn.batch_flatten(tensor(3)), "must have a batch axis and at least one more"),
        (lambda: nn.dropout(X, 1.5), "`rate` must be between 0 and 1"),
        (lambda: nn.dropout(tensor(2, dtype="bool")), "`data` must be one of"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
