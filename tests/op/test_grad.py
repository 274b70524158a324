"""Gradients against torch's autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from relax2xla import op
from relax2xla.errors import OpError
from relax2xla.ir import const
from tests.op.harness import Case, calling, check, tensor

RNG = np.random.default_rng(11)


def gradient(make: Any, x: Any, out_grad: Any) -> Any:
    leaf = torch.from_numpy(x).requires_grad_()
    make(leaf).backward(torch.from_numpy(np.asarray(out_grad)))
    assert leaf.grad is not None
    return leaf.grad.numpy()


def test_marks_are_the_identity():
    x = np.float32([1, 2])
    check([Case(m.name, m, [x], x) for m in (op.grad.no_grad, op.grad.start_checkpoint)])
    check([Case("differentiate_as", op.grad.differentiate_as, [x, x + 1], x)])


POOLS: list[dict[str, Any]] = [
    {"pool_size": 2, "strides": 2},
    {"pool_size": 3, "strides": (2, 1), "padding": 1},
    {"pool_size": (2, 3), "strides": 2, "padding": (1, 1), "ceil_mode": True},
    {"pool_size": 3, "strides": 3},
]


def test_pooling():
    cases: list[Case] = []
    x = RNG.integers(0, 6, (2, 3, 8, 7)).astype(np.float32)
    for o in POOLS:
        args = {
            "kernel_size": o["pool_size"],
            "stride": o["strides"],
            "padding": o.get("padding", 0),
            "ceil_mode": o.get("ceil_mode", False),
        }
        for count in (True, False):
            out = F.avg_pool2d(torch.from_numpy(x), **args, count_include_pad=count)
            g = RNG.normal(size=out.shape).astype(np.float32)
            want = gradient(partial(F.avg_pool2d, **args, count_include_pad=count), x, g)
            more = {**o, "count_include_pad": count}
            avg = op.grad.avg_pool2d_backward
            cases.append(Case(f"avg {more}", calling(avg, **more), [g, x], want))
        for dilation in (1, 2):
            out = F.max_pool2d(torch.from_numpy(x), **args, dilation=dilation)
            g = RNG.normal(size=out.shape).astype(np.float32)
            want = gradient(partial(F.max_pool2d, **args, dilation=dilation), x, g)
            more = {**o, "dilation": dilation}
            back = op.grad.max_pool2d_backward
            case = Case(f"max {more}", calling(back, **more), [g, x], want)
            cases.append(case)
            last = {**more, "layout": "NHWC"}
            turned = [np.ascontiguousarray(v.transpose(0, 2, 3, 1)) for v in (g, x)]
            want = want.transpose(0, 2, 3, 1)
            cases.append(Case("NHWC", calling(back, **last), turned, want))
    for case in cases:
        case.rtol, case.atol = 1e-5, 1e-6
    check(cases)


def test_nll_loss():
    cases: list[Case] = []
    for shape in ((5, 4), (3, 4, 2, 3), (4,)):
        x = RNG.normal(size=shape).astype(np.float32)
        rest = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
        t = RNG.integers(0, 4, rest)
        w = RNG.uniform(0.5, 2, 4).astype(np.float32)
        for reduction in ("none", "sum", "mean"):
            for weights in (None, w):
                for ignore in (-100, 2):
                    o: dict[str, Any] = {"reduction": reduction, "ignore_index": ignore}
                    if reduction == "mean" and np.all(t == ignore):
                        continue
                    g = RNG.normal(size=rest if reduction == "none" else ()).astype(np.float32)

                    def loss(a: Any, t: Any = t, o: Any = o, weights: Any = weights) -> Any:
                        own = None if weights is None else torch.from_numpy(weights)
                        return F.nll_loss(a, torch.as_tensor(t), own, **o)

                    want = gradient(loss, x, g)
                    inputs = [g, x, t] if weights is None else [g, x, t, w]

                    def make(*a: Any, o: Any = o) -> Any:
                        return op.grad.nll_loss_backward(*a, **o)

                    cases.append(Case(f"{shape} {o}", make, inputs, want, 1e-5, 1e-6))
    check(cases)


def test_take():
    cases: list[Case] = []
    x = RNG.normal(size=(4, 5, 3)).astype(np.float32)
    for axis, indices in ((0, [1, 1, 3]), (1, [[0, 4], [4, 2]]), (-1, []), (2, 1)):
        where = torch.as_tensor(indices, dtype=torch.int64)

        def take(a: Any, axis: int = axis, where: Any = where) -> Any:
            flat = a.index_select(axis, where.reshape(-1))
            at = axis % 3
            return flat.reshape(*a.shape[:at], *where.shape, *a.shape[at + 1 :])

        g = RNG.normal(size=take(torch.from_numpy(x)).shape).astype(np.float32)
        want = gradient(take, x, g)
        make = op.grad.take_backward
        inputs = [g, x, where.numpy()]
        cases.append(Case(f"{axis}", calling(make, axis), inputs, want, 1e-5))
    flat = x[:, 0, 0].copy()
    g = np.float32([1, 2, 3])
    cases.append(
        Case(
            "flat", op.grad.take_backward, [g, flat, np.int64([0, 0, 2])], np.float32([3, 0, 3, 0])
        )
    )
    check(cases)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.grad.max_pool2d_backward(tensor((1, 2, 3, 3)), tensor((1, 2, 4, 4)), 3),
            "`output_grad`",
        ),
        (lambda: op.grad.avg_pool2d_backward(tensor((1, 2, 3)), tensor((1, 2, 4)), 2), "rank 4"),
        (
            lambda: op.grad.take_backward(tensor((3, 2)), tensor((4, 5)), tensor((3,), "int64"), 0),
            "`output_grad`",
        ),
        (
            lambda: op.grad.nll_loss_backward(tensor((2,)), tensor((2, 3)), tensor((2,), "int64")),
            "`output_grad`",
        ),
    ],
)
def test_errors(call: Any, message: str):
    """As in TVM, a gradient that does not fit its output is an error when the call is lowered."""

    def lowered() -> None:
        made = call()
        args, kwargs = made.op.bind(made)
        made.op.lowering(*args, **kwargs)

    with pytest.raises(OpError, match=message):
        lowered()


def test_checkpoints_mark_variables():
    x = tensor((2,))
    for mark in (op.grad.start_checkpoint, op.grad.end_checkpoint):
        assert mark(op.add(x, x)).struct_info == x.struct_info
        with pytest.raises(OpError, match="must be a variable"):
            mark(const(1.0))
