"""CallMoments: which means, variances and sums become one call, and that all compute as before."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.analysis import well_formed
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import moments
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.moments import CallMoments
from relax2xla.transform.pipeline import default
from tests.transform.cpu import composites
from tests.vm.pjrt.native_programs import replaced

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.usefixtures("everywhere", "quickly_compiled"),
]

RNG = np.random.default_rng(7)
T = rx.TensorStructInfo
Body = Callable[..., Sequence[rx.Expr]]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size, and whatever runs them, calls take the place of operators."""
    monkeypatch.setattr(processor, "kind", lambda: "avx2")
    monkeypatch.setattr(moments, "_LEAST", 0)


def function(body: Body, *shapes: tuple[int, ...]) -> rx.IRModule:
    params = [rx.Var(f"p{i}", T(s)) for i, s in enumerate(shapes)]
    return composites.of_params(lambda *given: rx.Tuple(list(body(*given))), params)


def names(mod: rx.IRModule) -> list[str]:
    """Composites and reductions that are left in ``main``, in order."""
    values = [b.value for b in bindings_of(CallMoments()(mod)["main"].body)]
    found: list[str] = []
    for v in values:
        if is_op(v, "relax.stablehlo.composite"):
            found.append(str(v.attrs["name"]).rpartition(".")[2])
        elif any(is_op(v, f"relax.{n}") for n in ("mean", "variance", "sum")):
            found.append(v.op.name)
    return found


def check(mod: rx.IRModule) -> None:
    given = [RNG.standard_normal(p.struct_info.dims, "float32") for p in mod["main"].params]
    made = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given)
    for got, wanted in zip(made, evaluate(mod["main"], given), strict=True):
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-4)


def moments_of(axes: list[int], keepdims: bool = False) -> Body:
    return lambda x: (R.mean(x, axes, keepdims), R.variance(x, axes, keepdims))


def sums_of(axes: list[int], mean: tuple[int, ...]) -> Body:
    """As the gradient of a batch norm has them: the first sum stands ahead of the difference."""

    def body(g: rx.Expr, x: rx.Expr, m: rx.Expr) -> Sequence[rx.Expr]:
        first = R.sum(g, axes)
        left = R.subtract(x, R.reshape(m, mean))
        return R.sum(R.multiply(g, left), axes), left, first

    return body


def gradient(
    g: rx.Expr,
    x: rx.Expr,
    m: rx.Expr,
    r: rx.Expr,
    w: rx.Expr,
    *,
    count: int = 60,
    late: Callable[[rx.Expr], rx.Expr] = lambda total: rx.const(1.0),
) -> Sequence[rx.Expr]:
    """As torch writes the gradient of a batch norm over planes; ``m``, ``r``, ``w``: (6,).

    ``late``: what the last factor is multiplied by, of the sum of the products
    """
    axes, flat, each = [0, 2, 3], (1, 6, 1, 1), rx.const(np.float32(1 / count))
    left = R.subtract(x, R.reshape(m, flat))
    product = R.multiply(g, left)
    sums = [R.sum(g, axes), R.sum(product, axes)]
    slope = R.multiply(R.multiply(sums[1], each), R.multiply(r, r))
    factor = R.multiply(R.multiply(r, w), late(sums[1]))
    inner = R.subtract(g, R.multiply(left, R.expand_dims(slope, [0, 2, 3])))
    inner = R.subtract(inner, R.reshape(R.multiply(sums[0], each), flat))
    return R.multiply(inner, R.reshape(factor, flat)), R.multiply(sums[1], r), sums[0]


PLANES = (4, 6, 5, 3)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((4, 6, 5, 3), [0, 2, 3]), ((4, 5, 3, 6), [0, 1, 2]), ((40, 6), [0]), ((4, 3, 5, 2), [0, -1])],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_means_with_variances(shape: tuple[int, ...], axes: list[int], keepdims: bool) -> None:
    mod = function(moments_of(axes, keepdims), shape)
    assert names(mod) == ["moments"]
    check(mod)


@pytest.mark.parametrize(
    ("shape", "axes", "mean"),
    [
        ((4, 6, 5, 3), [0, 2, 3], (1, 6, 1, 1)),
        ((4, 6, 5, 3), [0, 2, 3], (6, 1, 1)),
        ((4, 5, 3, 6), [0, 1, 2], (6,)),
        ((40, 6), [0], (1, 6)),
    ],
)
def test_pairs_of_sums(shape: tuple[int, ...], axes: list[int], mean: tuple[int, ...]) -> None:
    mod = function(sums_of(axes, mean), shape, shape, (6,))
    assert names(mod) == ["sums"]
    check(mod)


def test_pairs_of_sums_of_a_layer_norm() -> None:
    def body(g: rx.Expr, x: rx.Expr, m: rx.Expr, f: rx.Expr) -> Sequence[rx.Expr]:
        left = R.multiply(R.subtract(x, m), f)
        return R.sum(g, [0, 1]), R.sum(R.multiply(g, left), [0, 1])

    shape, row = (4, 5, 24), (4, 5, 1)
    mod = function(body, shape, shape, row, row)
    assert names(mod) == ["row_sums"]
    check(mod)
    # Numbers for each channel are no rows'.
    mod = function(body, shape, shape, (1, 1, 24), (1, 1, 24))
    assert names(mod) == ["relax.sum", "relax.sum"]


def test_the_gradient_of_a_batch_norm() -> None:
    mod = function(gradient, PLANES, PLANES, *[(6,)] * 3)
    assert names(mod) == ["batch_gradient"]
    check(mod)


def test_two_gradients_that_share_a_factor() -> None:
    def body(*given: rx.Expr) -> Sequence[rx.Expr]:
        g, x, *vectors = given
        return *gradient(g, x, *vectors), *gradient(x, g, *vectors)

    mod = function(body, PLANES, PLANES, *[(6,)] * 3)
    assert names(mod) == ["batch_gradient"] * 2
    check(mod)


@pytest.mark.parametrize("two", [False, True], ids=["of one gradient", "of each other"])
def test_pairs_that_share_a_sum(two: bool) -> None:
    """As two batch norms behind an addition: a sum is part of one pair, and bound once."""

    def body(g: rx.Expr, x: rx.Expr, m: rx.Expr) -> Sequence[rx.Expr]:
        first, left = R.sum(g, [0]), R.subtract(x, m)
        if two:
            g = R.subtract(g, m)
            return R.sum(g, [0]), R.sum(left, [0]), R.sum(R.multiply(g, left), [0]), first
        others = R.subtract(R.multiply(x, x), m)
        return first, *(R.sum(R.multiply(g, v), [0]) for v in (left, others))

    mod = function(body, (40, 6), (40, 6), (6,))
    made = CallMoments()(mod)
    assert well_formed(made)
    variables = [b.var for b in bindings_of(made["main"].body)]
    assert len(variables) == len(set(variables))
    assert names(mod).count("sums") == 1
    check(mod)


@pytest.mark.parametrize(
    "changed",
    [{"count": 61}, {"late": lambda total: total}],
    ids=["another count", "a factor that is made of a sum"],
)
def test_other_gradients_are_left_their_sums(changed: Any) -> None:
    mod = function(functools.partial(gradient, **changed), PLANES, PLANES, *[(6,)] * 3)
    assert names(mod) == ["sums"]
    check(mod)


def test_the_factors_stand_either_way() -> None:
    def body(g: rx.Expr, x: rx.Expr, m: rx.Expr) -> Sequence[rx.Expr]:
        return R.sum(R.multiply(R.subtract(x, m), g), [0]), R.sum(g, [0])

    mod = function(body, (40, 6), (40, 6), (6,))
    assert names(mod) == ["sums"]
    check(mod)


def test_a_variance_alone_and_others_means() -> None:
    def body(x: rx.Expr, y: rx.Expr) -> Sequence[rx.Expr]:
        return R.variance(x, [0]), R.mean(y, [0]), R.mean(x, [1])

    mod = function(body, (40, 6), (40, 6))
    assert names(mod) == ["moments", "relax.mean", "relax.mean"]
    check(mod)


def test_a_sum_that_is_read_before_the_other_is_there_stays() -> None:
    def body(g: rx.Expr, x: rx.Expr, m: rx.Expr) -> Sequence[rx.Expr]:
        first = R.sum(g, [0])
        return (R.sum(R.multiply(g, R.subtract(R.add(x, first), m)), [0]),)

    mod = function(body, (40, 6), (40, 6), (6,))
    assert names(mod) == ["relax.sum", "relax.sum"]
    check(mod)


STAYING: dict[str, tuple[Body, list[tuple[int, ...]]]] = {
    "along rows": (moments_of([1]), [(40, 60)]),
    "of all": (moments_of([0, 1]), [(40, 60)]),
    "axes apart": (moments_of([0, 2]), [(4, 5, 6, 7)]),
    "no number for each channel": (sums_of([0], (40, 1)), [(40, 6), (40, 6), (40,)]),
    "numbers that are repeated": (
        lambda g, x, m: (R.sum(g, [0]), R.sum(R.multiply(g, R.subtract(x, m)), [0])),
        [(40, 6), (1, 6), (6,)],
    ),
    "other axes": (
        lambda g, x, m: (R.sum(g, [0, 2]), R.sum(R.multiply(g, R.subtract(x, m)), [0, 1])),
        [(40, 6, 6), (40, 6, 6), (6,)],
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_others_stay(name: str) -> None:
    body, shapes = STAYING[name]
    assert not {"moments", "sums"} & {*names(function(body, *shapes))}


def test_other_dtypes_and_unknown_sizes_stay() -> None:
    n = rx.tir.Var("n")
    for info in (T((40, 6), "float64"), T((n, 6))):
        mod = composites.of_params(
            lambda x: rx.Tuple(list(moments_of([0])(x))), [rx.Var("x", info)]
        )
        assert names(mod) == ["relax.mean", "relax.variance"]


def test_torch_s_gradient_of_a_batch_norm_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replaced(monkeypatch)
    torch.manual_seed(0)
    eager = nn.BatchNorm2d(20)
    compiled = copy.deepcopy(eager)
    torch.compiler.reset()
    call = torch.compile(compiled, backend="relax2xla")
    given, gradients = torch.randn(4, 20, 9, 8), []
    for run in (eager, call):
        x = given.clone().requires_grad_()
        run(x).pow(3).sum().backward()
        gradients.append(x.grad)
    assert [type(c) for c in made] == [moments.Moments, moments.BatchGradient]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
    for a, b in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-3)


def test_training_of_a_batch_norm_in_torch() -> None:
    """Values, running statistics and gradients are those of eager mode."""
    torch.manual_seed(0)
    # A bias ahead of a batch norm has no gradient but rounding.
    eager = nn.Sequential(nn.Conv2d(3, 20, 3, bias=False), nn.BatchNorm2d(20), nn.ReLU())
    compiled = copy.deepcopy(eager)
    torch.compiler.reset()
    call = torch.compile(compiled, backend="relax2xla")
    x = torch.randn(4, 3, 9, 8)
    for _ in range(2):
        for run in (eager, call):
            run(x).square().mul(torch.arange(6.0)).sum().backward()
    for a, b in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-3)
    for (name, a), b in zip(eager.named_buffers(), compiled.buffers(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6, msg=name)


def test_functions_of_jax_have_none() -> None:
    """Which JAX differentiates: a call has no derivative."""
    assert "CallMoments" not in [type(p).__name__ for p in default(for_jax=True).static]
    assert "CallMoments" in [type(p).__name__ for p in default().static]
