"""PointwisePlanes: 1x1 convolutions between borders become products; others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.rewrite import bindings_of
from relax2xla.testing import evaluate
from relax2xla.transform import PointwisePlanes

RNG = np.random.default_rng(5)
Body = Callable[..., rx.Expr]


def function(body: Body, *shapes: tuple[Any, ...]) -> rx.IRModule:
    """A module whose ``main`` gives what ``body`` does of parameters of these shapes."""
    bb = rx.BlockBuilder()
    params = [rx.Var(f"p{i}", rx.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            made = bb.emit_output(bb.normalize(body(*params)))
        bb.emit_func_output(made)
    return bb.finalize()


def operators(mod: rx.IRModule) -> list[str]:
    values = [b.value for b in bindings_of(PointwisePlanes()(mod)["main"].body)]
    return [v.op.name for v in values if isinstance(v, rx.Call)]


def convolution(x: rx.Expr, w: rx.Expr) -> rx.Expr:
    return R.nn.conv2d(x, w)


def biased(x: rx.Expr, w: rx.Expr, b: rx.Expr) -> rx.Expr:
    return R.add(R.nn.conv2d(x, w), b)


def activated(x: rx.Expr, w: rx.Expr, b: rx.Expr) -> rx.Expr:
    return R.nn.relu(biased(x, w, b))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("body", [convolution, biased, activated])
@pytest.mark.parametrize(("channels", "results"), [(4, 6), (6, 4), (5, 5)])
def test_between_borders(body: Body, batch: int, channels: int, results: int) -> None:
    shapes: list[tuple[int, ...]] = [(batch, channels, 5, 7), (results, channels, 1, 1)]
    if body is not convolution:
        shapes.append((1, results, 1, 1))
    mod = function(body, *shapes)
    assert "relax.nn.conv2d" not in (made := operators(mod))
    # A bias is one channel more where that is less to copy than the result is to read again.
    assert ("relax.add" in made) == (body is not convolution and channels > results)
    given = [RNG.standard_normal(s, "float32") for s in shapes]
    bias = torch.from_numpy(given[2].reshape(-1)) if len(given) > 2 else None
    want = torch.conv2d(torch.from_numpy(given[0]), torch.from_numpy(given[1]), bias).numpy()
    want = np.maximum(want, 0) if body is activated else want
    for made in (
        evaluate(PointwisePlanes()(mod)["main"], given),
        rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given),
    ):
        np.testing.assert_allclose(np.asarray(made), want, rtol=1e-5, atol=1e-5)


STAYING: dict[str, tuple[Body, list[tuple[Any, ...]]]] = {
    "more results than pixels": (convolution, [(1, 4, 2, 2), (5, 4, 1, 1)]),
    "windows": (convolution, [(1, 4, 9, 9), (5, 4, 3, 3)]),
    "steps": (lambda x, w: R.nn.conv2d(x, w, strides=2), [(1, 4, 9, 9), (5, 4, 1, 1)]),
    "padding": (lambda x, w: R.nn.conv2d(x, w, padding=1), [(1, 4, 9, 9), (5, 4, 1, 1)]),
    "groups": (lambda x, w: R.nn.conv2d(x, w, groups=2), [(1, 4, 9, 9), (6, 2, 1, 1)]),
    "channels last": (
        lambda x, w: R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"),
        [(1, 9, 9, 4), (1, 1, 4, 5)],
    ),
    "sizes unknown": (convolution, [(rx.tir.Var("n"), 4, 9, 9), (5, 4, 1, 1)]),
    "an image that is computed": (
        lambda x, w: R.nn.conv2d(R.nn.max_pool2d(x), w),
        [(1, 4, 9, 9), (5, 4, 1, 1)],
    ),
    "a result that goes on": (
        lambda x, w: R.nn.max_pool2d(R.nn.relu(R.nn.conv2d(x, w))),
        [(1, 4, 9, 9), (5, 4, 1, 1)],
    ),
    "a bias of other axes": (
        lambda x, w, b: R.nn.max_pool2d(R.add(R.nn.conv2d(x, w), b)),
        [(1, 4, 9, 9), (5, 4, 1, 1), (9,)],
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_others_stay(name: str) -> None:
    body, shapes = STAYING[name]
    assert "relax.nn.conv2d" in operators(function(body, *shapes))


def test_what_another_convolution_reads_too_stays() -> None:
    """Of two results of one value, one goes out and one goes on."""

    def body(x: rx.Expr, w: rx.Expr, v: rx.Expr) -> rx.Expr:
        made = bb.emit(R.nn.conv2d(x, w))
        return rx.Tuple([made, bb.emit(R.nn.conv2d(made, v))])

    bb = rx.BlockBuilder()
    shapes = ((1, 4, 9, 9), (4, 4, 1, 1), (4, 4, 1, 1))
    params = [rx.Var(f"p{i}", rx.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(body(*params))
        bb.emit_func_output(out)
    mod = bb.finalize()
    assert operators(mod).count("relax.nn.conv2d") == 2


def test_the_other_operand_may_be_computed() -> None:
    mod = function(
        lambda x, w, y: R.multiply(R.nn.conv2d(x, w), R.nn.max_pool2d(y)),
        (1, 4, 9, 9),
        (5, 4, 1, 1),
        (1, 5, 9, 9),
    )
    assert "relax.nn.conv2d" not in operators(mod)
