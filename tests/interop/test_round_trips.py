"""from_jax then extract_jax is the same function: trees, static arguments, keys, jax.export."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import export

import relax2xla
from relax2xla.errors import CallError, LegalizeError
from relax2xla.interop.jax import extract_jax, from_jax

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
W = {"w": np.ones((3, 2), np.float32) / 3, "unused": np.zeros(5, np.int32)}


class Out(NamedTuple):
    value: Any
    rest: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    scale: Any
    key: Any


def step(params: Any, x: Any, *, scale: Any, flag: Any = None) -> Any:
    return {"y": jnp.tanh(x @ params["w"]) * scale, "n": (x.sum(), flag)}


def same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("form", ["exported", "bytes", "platforms"])
def test_what_jax_exported_is_its_function(form: str) -> None:
    scale = np.float32(2)
    platforms = ["cpu", "cuda"] if form == "platforms" else None
    exported = export.export(jax.jit(step), platforms=platforms)(W, X, scale=scale)
    # The program has no parameter for what it does not use; the function has.
    assert len(exported.module_kept_var_idx) == 3
    given = exported.serialize() if form == "bytes" else exported
    fn, params = extract_jax(from_jax(given))
    same(fn(params, W, X, scale=scale), step(W, X, scale=scale))
    slope = jax.grad(lambda w: fn(params, {**W, "w": w}, X, scale=scale)["y"].sum())(W["w"])
    want = jax.grad(lambda w: step({"w": w}, X, scale=scale)["y"].sum())(W["w"])
    np.testing.assert_allclose(slope, want, rtol=1e-5)
    with pytest.raises(CallError, match="has the keys"):
        fn(params, {"w": W["w"]}, X, scale=scale)
    with pytest.raises(TypeError, match="no arguments beside"):
        from_jax(given, W)


def test_symbolic_shapes_of_bytes() -> None:
    (b,) = export.symbolic_shape("b")
    shapes = jax.ShapeDtypeStruct((b, 3), "float32"), jax.ShapeDtypeStruct((b, 2), "float32")
    data = export.export(jax.jit(lambda x, y: {"s": jnp.tanh(x).sum(1)}))(*shapes).serialize()
    fn, params = extract_jax(from_jax(data))
    for rows in (4, 2):
        got = fn(params, X[:rows], np.zeros((rows, 2), np.float32))
        same(got, {"s": jnp.tanh(X[:rows]).sum(1)})


def test_static_arguments() -> None:
    @partial(jax.jit, static_argnums=(1, 3), static_argnames=("mode", "then"))
    def f(x: Any, n: int, y: Any, shape: tuple[int, ...], *, mode: str, then: Any) -> Any:
        z = x * n if mode == "times" else x + n
        return then(z + y).reshape(shape)

    args = (X, 3, np.float32(2), (2, 6))
    kwargs: dict[str, Any] = {"mode": "times", "then": jnp.tanh}
    fn, params = extract_jax(from_jax(f, *args, **kwargs))
    same(fn(params, *args, **kwargs), f(*args, **kwargs))
    for wrong in ({"mode": "plus"}, {"then": jnp.sin}):
        with pytest.raises(CallError, match=r"was traced|traced with"):
            fn(params, *args, **{**kwargs, **wrong})
    with pytest.raises(CallError, match="was 3 when the model was traced; given 4"):
        fn(params, X, 4, *args[2:], **kwargs)

    @partial(jax.jit, static_argnums=0)
    def g(n: int, x: Any) -> Any:
        return x * n

    with pytest.raises(TypeError, match="cannot tell which 1 of 2"):
        from_jax(g, 2, 3)


def test_static_arguments_may_be_left_out_whatever_they_are() -> None:
    @partial(jax.jit, static_argnums=1, static_argnames="then")
    def f(x: Any, shape: tuple[int, ...], *, then: Any) -> Any:
        return then(x).reshape(shape)

    fn, params = extract_jax(from_jax(f, X, (2, 6), then=jnp.tanh))
    same(fn(params, X), jnp.tanh(X).reshape(2, 6))
    same(fn(params, X, (2, 6)), jnp.tanh(X).reshape(2, 6))


def test_a_static_argument_beside_a_typed_key() -> None:
    @partial(jax.jit, static_argnums=0)
    def f(n: int, key: Any, x: Any) -> Any:
        return x * n + jax.random.normal(key, x.shape)

    key = jax.random.key(3)
    fn, params = extract_jax(from_jax(f, 2, key, X))
    same(fn(params, 2, key, X), f(2, key, X))


def test_the_platform_of_an_export_has_a_name_of_its_own() -> None:
    of = export.export(jax.jit(lambda a, b: a @ b), platforms=["cpu", "cuda"])
    mod = from_jax(of(X, X.T))
    assert [p.name_hint for p in mod["main"].params] == ["platform", "arg0", "arg1"]
    fn, params = extract_jax(mod)
    same(fn(params, X, X.T), X @ X.T)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_keys_come_and_go(impl: str) -> None:
    def f(state: State, out: Out) -> tuple[State, Out]:
        key, own = jax.random.split(state.key)
        noise = jax.random.normal(own, (3,)) * state.scale
        return State(state.scale + 1, key), Out(out.value + noise, [out.rest])

    args = State(jnp.float32(2), jax.random.key(7, impl=impl)), Out(jnp.ones(3), None)
    fn, params = extract_jax(from_jax(f, *args))
    for made in (fn(params, *args), jax.jit(partial(fn, params))(*args)):
        same(made, f(*args))
    # A state goes round.
    again = fn(params, *fn(params, *args)[:1], args[1])
    same(again, f(f(*args)[0], args[1]))


def test_arrays_of_64_bits_as_jax_takes_them() -> None:
    wide = np.arange(3)
    fn, params = extract_jax(from_jax(lambda x: x * 2, wide))
    same(fn(params, wide), jnp.arange(3) * 2)
    with pytest.raises(CallError, match="does not fit int32"):
        fn(params, wide + 2**40)


class Mixed(torch.nn.Module):
    """Sizes in reshapes, paddings, slices, a position table and an average."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.heads = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.inner(x)) + torch.arange(x.shape[1])[None, :, None] / 8
        y, _ = self.heads(x, x, x, need_weights=False)
        x = torch.cat([self.norm(x + y), x[:, :1]], 1)
        return torch.nn.functional.pad(x, (0, 0, 1, 0)).flatten(1).softmax(-1).mean(-1)


def test_functions_are_exported_with_symbolic_shapes() -> None:
    torch.manual_seed(0)
    model = Mixed().eval()
    dims = {0: torch.export.Dim("n"), 1: torch.export.Dim("t", min=2)}
    fn, params = relax2xla.jax_function(model, (torch.ones(3, 5, 4),), dynamic_shapes=(dims,))
    a, b = export.symbolic_shape("a, b", constraints=["b >= 2"])
    exported = export.export(jax.jit(fn))(params, jax.ShapeDtypeStruct((2 * a, b, 4), "float32"))
    assert [str(d) for d in exported.out_avals[0].shape] == ["2*a"]
    loaded = export.deserialize(exported.serialize())
    for shape in ((2, 5, 4), (6, 3, 4)):
        x = torch.randn(shape)
        np.testing.assert_allclose(
            loaded.call(params, x.numpy()), model(x).detach().numpy(), rtol=1e-4, atol=1e-6
        )
    back, weights = extract_jax(from_jax(exported))
    got = back(weights, params, x.numpy())
    np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_sizes_that_are_values_are_no_symbols() -> None:
    (b,) = export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((b, 3), "float32")
    fn, params = extract_jax(from_jax(lambda x: x.reshape(-1), shape))
    same(fn(params, X), jnp.asarray(X).reshape(-1))
    with pytest.raises(LegalizeError, match="computes sizes as values"):
        export.export(jax.jit(fn))(params, shape)


EXPORTED: dict[str, Any] = {
    "erf": lambda x: jax.lax.erf(x),
    "top_k": lambda x: jax.lax.top_k(x, 2)[0],
    "cosh in a branch": lambda x: jax.lax.cond(
        x.sum() > 0, lambda: jnp.cosh(x), lambda: jnp.arcsin(x)
    ),
    "sinh in one of three": lambda x: jax.lax.switch(
        jnp.int32(1), [jnp.tan, jnp.sinh, jnp.arccosh], x
    ),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_composites_that_jax_export_writes_are_rows_with_derivatives(name: str) -> None:
    f = EXPORTED[name]
    fn, params = extract_jax(from_jax(export.export(jax.jit(f))(X).serialize()))
    same(fn(params, X), f(X))
    slope = jax.grad(lambda x: fn(params, x).sum())(X)
    np.testing.assert_allclose(slope, jax.grad(lambda x: f(x).sum())(X), rtol=1e-5)
