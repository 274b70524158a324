"""Losses: values against torch, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.op import nn
from tests.op.nn.support import Batch


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def test_nll_loss() -> None:
    batch = Batch()
    rng = np.random.default_rng(0)
    weights = random(5).abs()
    for shape, kind in itertools.product([(4, 5), (3, 5, 2, 2), (5,)], ["none", "sum", "mean"]):
        p = F.log_softmax(random(*shape), 0 if len(shape) == 1 else 1)
        t = torch.tensor(rng.integers(0, 5, shape[:1] * (len(shape) > 1) + shape[2:]))
        if t.ndim:
            t.view(-1)[0] = 1
        for w, ignore in ((None, -100), (weights, -100), (weights, 1)):
            if ignore == 1 and not t.ndim:
                continue
            made = nn.nll_loss(
                batch.var(p),
                batch.var(t),
                None if w is None else batch.var(w),
                reduction=kind,
                ignore_index=ignore,
            )
            want = F.nll_loss(p, t, w, reduction=kind, ignore_index=ignore)
            batch.add(f"{shape} {kind} {w is not None} {ignore}", made, want)
    batch.check()


def test_cross_entropy_with_logits() -> None:
    batch = Batch()
    for shape in ((4,), (4, 5), (4, 5, 2)):
        p, y = random(*shape), random(*shape).abs()
        want = -(p * y).sum() / (shape[0] if len(shape) > 1 else 1)
        batch.add(f"{shape}", nn.cross_entropy_with_logits(batch.var(p), batch.var(y)), want)
    batch.check()


def test_integers() -> None:
    batch = Batch()
    rng = np.random.default_rng(0)
    p, y = (rng.integers(-9, 9, (4, 5)).astype("int32") for _ in range(2))
    t = rng.integers(0, 5, 4)
    want = -p[np.arange(4), t]
    for reduction, value in (("none", want), ("sum", want.sum(dtype="int32"))):
        made = nn.nll_loss(batch.var(p), batch.var(t), reduction=reduction)
        batch.add(reduction, made, value, 0)
    made = nn.cross_entropy_with_logits(batch.var(p), batch.var(y))
    batch.add("cross entropy", made, np.int32(np.trunc(-(p * y).sum() / 4)), 0)
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info() -> None:
    n = tir.Var("n", "int64")
    made = nn.nll_loss(tensor(n, 5, 4), tensor(n, 4, dtype="int64"), reduction="none")
    assert made.struct_info == TensorStructInfo((n, 4), "float32")
    unknown = Var("x", TensorStructInfo(None, "float32"))
    assert nn.nll_loss(unknown, tensor(3, dtype="int64")).struct_info.dims == ()
    assert nn.cross_entropy_with_logits(unknown, unknown).struct_info.dims == ()


P, T = tensor(3, 5), tensor(3, dtype="int64")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.nll_loss(P, tensor(3)), "`targets` must be one of"),
        (lambda: nn.nll_loss(P, tensor(4, dtype="int64")), "must have one shape"),
        (lambda: nn.nll_loss(P, tensor(3, 5, dtype="int64")), "one axis less"),
        (lambda: nn.nll_loss(P, T, tensor(4)), "must have one shape"),
        (lambda: nn.nll_loss(P, T, reduction="max"), "`reduction` must be one of none, sum, mean"),
        (lambda: nn.nll_loss(tensor(), T), "must have a class axis"),
        (lambda: nn.cross_entropy_with_logits(P, tensor(3, 4)), "must have one shape"),
        (lambda: nn.cross_entropy_with_logits(P, tensor(3)), "must have one shape"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
