"""image.col2im against torch's fold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from relax2xla import op, tir
from relax2xla.errors import OpError
from tests.op.harness import Case, check, tensor

RNG = np.random.default_rng(11)
N = tir.Var("n", "int64")


def test_col2im_as_torch() -> None:
    cases: list[Case] = []
    for image, block, spread, around, step in (
        ((5, 6), (2, 3), (1, 1), (0, 0), (1, 1)),
        ((5, 6), (2, 2), (2, 1), (1, 0), (1, 2)),
        ((4, 4), (3, 3), (1, 1), (1, 1), (2, 2)),
    ):
        fields: dict[str, Any] = {"dilation": spread, "padding": around, "stride": step}
        whole = torch.zeros(2, 3, *image)
        shape = F.unfold(whole, block, **fields).shape
        x = RNG.normal(size=tuple(shape)).astype(np.float32)
        want = F.fold(torch.from_numpy(x), image, block, **fields).numpy()

        def make(a: Any, given: Any = (image, block, spread, (*around, *around), step)) -> Any:
            return op.image.col2im(a, *given)

        cases.append(Case(f"{image} {block}", make, [x], want, 1e-5, 1e-5))
    check(cases)


def test_inference_and_errors() -> None:
    x = tensor((2, 12, 20))
    made = op.image.col2im(x, [N, 6], [2, 2]).struct_info
    assert str(made) == 'Tensor((2, 3, n, 6), dtype="float32")'
    for given, match in (
        (([5, 6], [2]), "`block_shape` must have 2"),
        (([0, 6], [2, 2]), "`image_shape` must be positive"),
        (([5, 6], [2, 2], None, [1, 1]), "`pads` must have 4"),
        (([5, 7], [2, 2]), "patches"),
        (([1, 1], [4, 4]), "larger than the image"),
    ):
        with pytest.raises(OpError, match=match):
            op.image.col2im(x, *given)
