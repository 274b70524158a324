"""The example networks through torch.export, against eager torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils import _pytree as pytree  # noqa: E402

from examples.models import MODELS  # noqa: E402

from .helpers import check, imported, run  # noqa: E402

#: Largest absolute error at full size; outputs are of size one.
FULL_SIZE = {"resnet50": 2e-4, "bert_base": 2e-4}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_small_with_any_batch(name: str) -> None:
    model = MODELS[name]
    batch = torch.export.Dim("batch", min=1, max=64)
    inputs = model.example_inputs(2, small=True)
    shapes: Any = tuple({0: batch} for _ in inputs)
    check(model.build(small=True), inputs, shapes, [model.example_inputs(3, 1, small=True)], 5)


@pytest.mark.parametrize("name", sorted(FULL_SIZE))
def test_full_size(name: str) -> None:
    model = MODELS[name]
    network, inputs = model.build(), model.example_inputs(1)
    got = run(imported(network, inputs), inputs)
    with torch.no_grad():
        want = pytree.tree_leaves(network(*inputs))
    for g, w in zip(got, want, strict=True):
        assert np.abs(g - w.numpy()).max() < FULL_SIZE[name]
