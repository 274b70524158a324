"""Fake quantisation: values to the last digit, and gradients, beside eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # registers fake_quant_per_channel

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import relax2xla as rx  # noqa: E402
from relax2xla.ir import Call, Op  # noqa: E402
from relax2xla.ir.rewrite import post_order_deep  # noqa: E402
from relax2xla.transform import RemoveGradientMarks  # noqa: E402
from tests.importers.torch.helpers import Fn, imported, run  # noqa: E402

A = torch.ops.aten
g = torch.Generator().manual_seed(0)
# Both ends of the range and what is beyond, halves of a step, and what is no number of steps.
ODD = torch.tensor([[torch.nan, 1e9, -1e9, 0.05, 0.15, -0.05, 0.35, 20.0]])
X = torch.cat([9 * torch.randn(3, 8, generator=g), ODD])
S, Z = torch.rand(8, generator=g) + 0.01, torch.arange(8, dtype=torch.int32)
ONE, THREE = torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32)
ON, OFF = torch.tensor([1]), torch.tensor([0])

#: Functions of a tensor whose scale is given.
GIVEN: dict[str, Callable[[Any], Any]] = {
    "one scale": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
    "one by tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, ONE, THREE, -128, 127),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x, S, Z, 1, -8, 7),
    "mask": lambda x: A.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, -128, 127),
    "mask, on": lambda x: A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        x, ONE, THREE, ON, 0, 255
    ),
    "mask, off": lambda x: A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
        x, ONE, THREE, OFF, 0, 255
    ),
    "mask of channels": lambda x: A.fake_quantize_per_channel_affine_cachemask(x, S, Z, 1, -8, 7),
    "mask of fractions": lambda x: A.fake_quantize_per_channel_affine_cachemask(
        x, S, Z + 0.25, 1, -8, 7
    ),
}
#: And of a tensor, a scale and a zero point that are learnt.
LEARNT: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "one": (
        lambda x, s, z: torch._fake_quantize_learnable_per_tensor_affine(x, s, z, -8, 7, 0.3),
        ONE,
        torch.tensor([2.7]),
    ),
    "channels": (
        lambda x, s, z: torch._fake_quantize_learnable_per_channel_affine(x, s, z, 1, -8, 7, 0.3),
        torch.full((8,), 0.1),
        Z - 2.75,
    ),
}


def _pt2e(x: Any) -> Any:
    return torch.ops.quantized_decomposed.fake_quant_per_channel(x, S, Z, 1, -8, 7)


def _all(x: Any, *learnt: Any) -> Any:
    pairs = zip(learnt[::2], learnt[1::2], strict=True)
    made = [f(x, s, z) for (f, _, _), (s, z) in zip(LEARNT.values(), pairs, strict=True)]
    return [f(x) for f in GIVEN.values()], made, _pt2e(x)


TENSORS = [t for _, *both in LEARNT.values() for t in both]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_values(dtype: Any) -> None:
    """To the last digit; rounded to steps and back, with the places that are within the range."""
    x = X.to(dtype) if dtype != torch.float16 else X[:3].half()
    inputs = [x, *TENSORS]
    if dtype != torch.float32:
        # The others are for float32 alone.
        made, want = imported(lambda x: [f(x) for f in GIVEN.values()], [x]), _given(x)
        inputs = [x]
    else:
        made, want = imported(_all, inputs), torch.utils._pytree.tree_leaves(_all(*inputs))
    for got, one in zip(run(made, inputs), want, strict=True):
        assert str(got.dtype) == str(one.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(got.astype(np.float64), one.double().numpy())


def _given(x: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves([f(x) for f in GIVEN.values()])


def test_gradients() -> None:
    """Of the tensor, and of scales and zero points that are learnt; 0 where nothing is in range."""
    fn, params = rx.jax_function(Fn(_all), (X, *TENSORS))

    def loss(*args: Any) -> Any:
        made = jax.tree.leaves(fn(params, *args))
        kept = [y for y in made if y.dtype == jnp.float32]
        return sum((y * jnp.cos(jnp.arange(32.0)).reshape(4, 8)).sum() for y in kept)

    given = [np.nan_to_num(X.numpy()), *(t.numpy() for t in TENSORS)]
    got = jax.jit(jax.grad(loss, argnums=tuple(range(5))))(*given)
    leaves = [torch.tensor(x).requires_grad_() for x in given]
    flat = torch.utils._pytree.tree_leaves(_all(*leaves))
    cos = torch.cos(torch.arange(32.0)).reshape(4, 8)
    torch.stack([(y * cos).sum() for y in flat if y.dtype == torch.float32]).sum().backward()
    for got_one, leaf in zip(got, leaves, strict=True):
        np.testing.assert_allclose(got_one, leaf.grad, rtol=1e-4, atol=1e-4)


BY_COMPILE: dict[str, tuple[Any, ...]] = {
    **LEARNT,
    **{name: (GIVEN[name],) for name in ("one scale", "one by tensors")},
    "given channels": (GIVEN["channels"],),
}


@pytest.mark.parametrize("name", BY_COMPILE)
def test_gradients_by_torch_compile(name: str) -> None:
    """There torch makes the backward, of operators of its own."""
    f, *both = BY_COMPILE[name]
    made: list[list[Any]] = []
    for function in (f, torch.compile(f, backend="relax2xla", dynamic=False)):
        leaves = [t.clone().requires_grad_() for t in (torch.nan_to_num(X), *both)]
        (function(*leaves) * torch.cos(X.new_ones(X.shape).cumsum(1))).sum().backward()
        made.append([x.grad for x in leaves])
    for want, got in zip(*made, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def _operators(mod: rx.IRModule) -> list[str]:
    calls = (n.op for n in post_order_deep(mod["main"]) if isinstance(n, Call))
    return [op.name for op in calls if isinstance(op, Op)]


def test_values_are_computed_without_what_derivatives_need() -> None:
    mod = imported(GIVEN["one scale"], [X])
    calls, left = _operators(mod), _operators(RemoveGradientMarks()(mod))
    assert "relax.grad.differentiate_as" in calls
    assert left.count("relax.where") == 1  # that of NaN
    assert not [name for name in left if "grad" in name]
