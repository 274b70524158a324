"""Imported models as modules of Flax NNX and Equinox, beside torch."""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np
import pytest

from relax2xla.errors import UnsupportedError
from relax2xla.interop.jax import to_equinox, to_nnx

torch = pytest.importorskip("torch")
RATE = 0.1


def network() -> Any:
    """A linear layer, batch norm in training mode, and another layer."""
    torch.manual_seed(0)
    parts = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 2)
    return torch.nn.Sequential(*parts).train()


def batch(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(5, 4)).astype(np.float32)


def torch_steps(module: Any, steps: int) -> dict[str, np.ndarray]:
    """The state after steps of gradient descent on the mean square of the results."""
    optimiser = torch.optim.SGD(module.parameters(), RATE)
    for seed in range(steps):
        optimiser.zero_grad()
        module(torch.from_numpy(batch(seed))).square().mean().backward()
        optimiser.step()
    return {name: value.detach().numpy() for name, value in module.state_dict().items()}


def check(params: Any, buffers: Any, want: dict[str, np.ndarray]) -> None:
    found = {}
    for path, value in jax.tree_util.tree_flatten_with_path((params, buffers))[0]:
        found[".".join(str(k.key) for k in path[1:])] = np.asarray(value)
    assert set(found) == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_equinox_module_trains_as_torch_does() -> None:
    eqx: Any = pytest.importorskip("equinox")
    module = network()
    model = to_equinox(module, (torch.ones(5, 4),))

    @eqx.filter_jit
    def step(model: Any, x: Any) -> Any:
        def loss(model: Any) -> tuple[Any, Any]:
            result, after = model.apply(x)
            return (result**2).mean(), after.buffers

        grads, buffers = eqx.filter_grad(loss, has_aux=True)(model)
        updates = jax.tree.map(lambda g: -RATE * g, grads.params)
        made = eqx.tree_at(lambda m: m.params, model, eqx.apply_updates(model.params, updates))
        return eqx.tree_at(lambda m: m.buffers, made, buffers)

    grads = eqx.filter_grad(lambda m: (m(batch(0)) ** 2).mean())(model)
    assert any(np.any(g) for g in jax.tree.leaves(grads.params))
    assert not any(np.any(g) for g in jax.tree.leaves(grads.buffers))
    for seed in range(3):
        model = step(model, batch(seed))
    check(model.params, model.buffers, torch_steps(module, 3))


def test_nnx_module_trains_as_torch_does() -> None:
    nnx: Any = pytest.importorskip("flax.nnx")
    optax: Any = pytest.importorskip("optax")
    module = network()
    model = to_nnx(module, (torch.ones(5, 4),))
    optimiser = nnx.Optimizer(model, optax.sgd(RATE), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimiser: Any, x: Any) -> None:
        grads = nnx.grad(lambda m: (m(x) ** 2).mean())(model)
        optimiser.update(model, grads)

    for seed in range(3):
        step(model, optimiser, batch(seed))
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))["params"]
    buffers = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))["buffers"]
    check(params, buffers, torch_steps(module, 3))


# ---- random numbers
X = np.ones((64, 4), np.float32)
ONES = (torch.ones(64, 4),)
KEY, OTHER = jax.random.split(jax.random.key(0))


def dropping() -> Any:
    """A network that draws random numbers."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.5)).train()


def test_equinox_modules_take_a_key() -> None:
    eqx: Any = pytest.importorskip("equinox")
    model = to_equinox(dropping(), ONES)
    one = eqx.filter_jit(model)(X, key=KEY)
    np.testing.assert_allclose(one, model(X, key=KEY), rtol=1e-6)
    assert not np.array_equal(one, model(X, key=OTHER))
    assert not np.array_equal(one, model(X))
    # Among the layers of Equinox, which gives each a key, also those that draw nothing.
    still = to_equinox(torch.nn.Linear(6, 2), (torch.ones(64, 6),))
    whole = eqx.nn.Sequential([model, still])
    first, _ = jax.random.split(KEY)
    np.testing.assert_allclose(whole(X, key=KEY), still(model(X, key=first)), rtol=1e-5)

    @eqx.filter_vmap(in_axes=(None, 0))
    def each(model: Any, key: Any) -> Any:
        return model(X, key=key)

    keys = jax.numpy.stack([KEY, OTHER])
    np.testing.assert_allclose(each(model, keys), [model(X, key=k) for k in keys], rtol=1e-6)


def test_nnx_modules_draw_of_their_streams() -> None:
    nnx: Any = pytest.importorskip("flax.nnx")
    module = dropping()
    model = to_nnx(module, ONES, rngs=nnx.Rngs(dropout=3))
    step = nnx.jit(lambda m, x: m(x))
    first, second = step(model, X), step(model, X)
    assert not np.array_equal(first, second)
    # The stream's keys one after another, as Flax's own layers take them.
    stream = nnx.Rngs(dropout=3)
    bare = to_nnx(module, ONES)
    np.testing.assert_allclose(bare(X, rngs=stream), first, rtol=1e-6)
    np.testing.assert_allclose(bare(X, rngs=stream.dropout), second, rtol=1e-6)
    np.testing.assert_array_equal(bare(X, rngs=KEY), model(X, rngs=KEY))
    np.testing.assert_array_equal(bare(X), bare(X))
    # Of the default stream where there is no other.
    assert not np.array_equal(bare(X, rngs=nnx.Rngs(0)), bare(X, rngs=nnx.Rngs(1)))
    still = to_nnx(torch.nn.Linear(4, 2), ONES, rngs=nnx.Rngs(0))
    np.testing.assert_array_equal(still(X, rngs=KEY), still(X))
    loss, grad = nnx.value_and_grad(lambda m: (m(X) ** 2).mean())(model)
    assert loss.shape == ()
    assert jax.tree.leaves(nnx.state(grad, nnx.Param))


@pytest.mark.parametrize(("make", "name"), [(to_nnx, "flax"), (to_equinox, "equinox")])
def test_without_the_package(make: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.interop import modules

    monkeypatch.setitem(sys.modules, {"flax": "flax.nnx"}.get(name, name), None)
    modules.nnx_module.cache_clear()
    modules.equinox_module.cache_clear()
    with pytest.raises(UnsupportedError, match=f"pip install {name}"):
        make(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
