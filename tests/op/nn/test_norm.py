"""Normalisations: values against torch, precision, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, TupleStructInfo, Var
from relax2xla.op import nn
from tests.op.nn.support import Batch

DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 4e-2}


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype: torch.dtype) -> None:
    batch, tol = Batch(), DTYPES[dtype]
    x, g, b = random(2, 6, 5, 4, dtype=dtype), random(6, dtype=dtype), random(6, dtype=dtype) + 1
    d, dg, db = x.double(), g.double(), b.double()
    vx, vg, vb = batch.var(x), batch.var(g), batch.var(b)
    vl = batch.var(x.permute(0, 2, 3, 1).contiguous())
    for groups in (1, 3, 6):
        made = nn.group_norm(vx, vg, vb, groups, 1, [2, 3], 1e-3)
        want = F.group_norm(d, groups, dg, db, 1e-3).to(dtype)
        batch.add(f"group {groups}", made, want, tol)
        made = nn.group_norm(vl, vg, vb, groups, -1, [2, 1], 1e-3)
        batch.add(f"group {groups}, channels last", made, want.permute(0, 2, 3, 1), tol)
    made = nn.instance_norm(vx, vg, vb, 1, [2, 3], 1e-3)
    batch.add("instance", made, F.instance_norm(d, None, None, dg, db, eps=1e-3).to(dtype), tol)
    w, c = random(5, 4, dtype=dtype), random(4, 5, dtype=dtype).T.contiguous()
    vw, vc = batch.var(w), batch.var(c)
    want = F.layer_norm(d, (5, 4), w.double(), c.double(), 1e-3).to(dtype)
    batch.add("layer", nn.layer_norm(vx, vw, vc, [-2, -1], 1e-3), want, tol)
    turned = [batch.var(p.T.contiguous()) for p in (w, c)]
    batch.add("layer, turned", nn.layer_norm(vx, *turned, [3, 2], 1e-3), want, tol)
    batch.add(
        "rms", nn.rms_norm(vx, vw, [2, 3]), F.rms_norm(d, (5, 4), w.double(), 1e-5).to(dtype), tol
    )
    plain = F.layer_norm(d, (4,), eps=1e-3)
    last, shift = random(4, dtype=dtype), random(4, dtype=dtype) + 2
    vl, vs = batch.var(last), batch.var(shift)
    for center, scale in ((False, True), (True, False), (False, False)):
        made = nn.layer_norm(vx, vl, vs, -1, 1e-3, center=center, scale=scale)
        want = plain * (last.double() if scale else 1) + (shift.double() if center else 0)
        batch.add(f"layer {center} {scale}", made, want.to(dtype), tol)
    batch.check()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batch_norm(training: bool, dtype: torch.dtype) -> None:
    batch, tol = Batch(), DTYPES[dtype]
    x = random(3, 4, 5, 6, dtype=dtype) + 2
    g, b, m = (random(4, dtype=dtype) + i for i in range(3))
    s = random(4, dtype=dtype).abs() + 0.5
    for center, scale in ((True, True), (False, True), (True, False)):
        mean, var = m.double(), s.double()
        want = F.batch_norm(
            x.double(),
            mean.clone(),
            var.clone(),
            g.double() if scale else None,
            b.double() if center else None,
            training,
            eps=1e-3,
        )
        if training:  # torch keeps the unbiased variance, Relax the biased one
            here = x.double().transpose(0, 1).flatten(1)
            mean = 0.8 * mean + 0.2 * here.mean(1)
            var = 0.8 * var + 0.2 * here.var(1, unbiased=False)
        wants = tuple(v.to(dtype) for v in (want, mean, var))
        keywords: dict[str, Any] = {"center": center, "scale": scale, "training": training}
        params = [batch.var(v) for v in (g, b, m, s)]
        made = nn.batch_norm(batch.var(x), *params, 1, 1e-3, momentum=0.2, **keywords)
        batch.add(f"{center} {scale}", made, wants, tol)
    last = batch.var(x.movedim(1, -1).contiguous())
    made = nn.batch_norm(last, *params, -1, 1e-3, momentum=0.2, **keywords)
    batch.add("last axis", made, (wants[0].movedim(1, -1), *wants[1:]), tol)
    batch.check()


def test_large_means_lose_no_digits() -> None:
    batch = Batch()
    x = random(4, 512) + 1e4
    one, zero = torch.ones(512), torch.zeros(512)
    want = F.layer_norm(x.double(), (512,)).float()
    batch.add("layer", nn.layer_norm(batch.var(x), batch.var(one), batch.var(zero), -1), want, 2e-3)
    # In float16 the sum and the squares overflow; in float32 they do not.
    y = random(2, 4096, dtype=torch.float16) * 300
    ones = torch.ones(4096, dtype=torch.float16)
    want = F.rms_norm(y.double(), (4096,), eps=1e-5).half()
    batch.add("rms", nn.rms_norm(batch.var(y), batch.var(ones)), want, 2e-3)
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info() -> None:
    n = tir.Var("n", "int64")
    x, p = tensor(n, 6, n, 4), tensor(6)
    assert nn.layer_norm(x, tensor(4), tensor(4), -1).struct_info == x.struct_info
    assert nn.layer_norm(x, tensor(4), tensor(4), -1).attrs.axes == (-1,)
    assert nn.group_norm(x, p, p, 2, 1, [2, 3]).struct_info == x.struct_info
    assert nn.rms_norm(x, tensor(n, 4), [2, 3]).struct_info == x.struct_info
    made = nn.batch_norm(x, p, p, p, p, axis=1).struct_info
    assert made == TupleStructInfo([x.struct_info, p.struct_info, p.struct_info])
    unknown = Var("x", TensorStructInfo(ndim=4))
    assert nn.instance_norm(unknown, p, p, 1, [2, 3]).struct_info == unknown.struct_info
    anything = Var("x", TensorStructInfo())
    assert nn.layer_norm(anything, p, p, -1).struct_info == anything.struct_info


X, P = tensor(2, 6, 5, 4), tensor(6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.layer_norm(X, P, P, -1),
            r"`gamma` must have the shape \(4,\) of `data` on axis 3",
        ),
        (lambda: nn.layer_norm(X, tensor(4), P, -1), r"`beta` must have the shape \(4,\)"),
        (lambda: nn.layer_norm(X, tensor(4), tensor(4), 4), "axes 4 is out of range"),
        (lambda: nn.layer_norm(X, tensor(4), tensor(4), [2, 3]), "`gamma` must have rank 2"),
        (lambda: nn.layer_norm(X, tensor(4, 4), tensor(4, 4), [3, -1]), "names an axis twice"),
        (lambda: nn.layer_norm(tensor(2, 4, dtype="int32"), P, P, -1), "`data` must be one of"),
        (lambda: nn.group_norm(X, P, P, 4, 1, [2, 3]), "`num_groups` is 4; it must divide the 6"),
        (lambda: nn.group_norm(X, P, P, 0, 1, [2, 3]), "`num_groups` must be at least 1"),
        (lambda: nn.group_norm(X, P, P, 2, 1, [1, 2]), "must not name the channel axis 1"),
        (lambda: nn.group_norm(X, P, P, 2, 5, [2]), "channel_axis 5 is out of range"),
        (lambda: nn.instance_norm(X, tensor(5), P, 1, [2]), r"`gamma` must have the shape \(6,\)"),
        (lambda: nn.rms_norm(X, P), r"`weight` must have the shape \(4,\)"),
        (lambda: nn.batch_norm(X, P, P, P, tensor(5), 1), r"`moving_var` must have the shape"),
        (lambda: nn.batch_norm(X, P, P, P, P, 4), "axis 4 is out of range"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
