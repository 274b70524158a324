"""``from_jax`` and ``to_jax`` against JAX itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import TVMError
from relax2xla.interop.jax import from_jax, to_jax
from relax2xla.ir import TensorStructInfo
from relax2xla.ir.check import check_well_formed
from relax2xla.stablehlo import emit, parse, read

RNG = np.random.default_rng(0)
PARAMS = {
    "w": [RNG.standard_normal((4, 8), "f"), RNG.standard_normal((8, 3), "f")],
    "b": (np.zeros(8, "f"), np.ones(3, "f")),
}
X = RNG.standard_normal((5, 4), "f")


def mlp(params: Any, x: Any, *, scale: Any = 1.0) -> Any:
    h = jax.nn.relu(x @ params["w"][0] + params["b"][0])
    return {"logits": (h @ params["w"][1] + params["b"][1]) * scale, "hidden": h}


def run(mod: Any, *args: Any) -> Any:
    return rx.VirtualMachine(rx.build(mod))["main"](*args)


def same(got: Any, wanted: Any) -> None:
    got = got if isinstance(got, tuple) else (got,)
    for g, w in zip(got, jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_pytrees() -> None:
    mod = from_jax(mlp, PARAMS, X, scale=np.float32(2))
    names = [p.name_hint for p in mod["main"].params]
    assert names == ["params_b_0", "params_b_1", "params_w_0", "params_w_1", "x", "scale"]
    same(run(mod, *jax.tree.leaves(PARAMS), X, np.float32(2)), mlp(PARAMS, X, scale=2))


def test_text_is_that_of_jax() -> None:
    shape = jax.ShapeDtypeStruct((5, 4), "float32")
    mod = from_jax(lambda x: jnp.sort(x), shape)
    assert str(emit(mod)) == str(
        jax.jit(lambda x: jnp.sort(x)).lower(shape).compiler_ir("stablehlo")
    )


def test_unused_arguments_stay() -> None:
    mod = from_jax(lambda a, b: b + 1, X, X)
    assert len(mod["main"].params) == 2


def test_names_are_unique_identifiers() -> None:
    def fn(a: Any, *rest: Any, **more: Any) -> Any:
        return sum(jax.tree.leaves((a, rest, more)))

    one = np.float32(1)
    mod = from_jax(fn, {"x y": one, "x_y": one}, one, [one], **{"class": one})
    names = [p.name_hint for p in mod["main"].params]
    assert names == ["a_x_y", "a_x_y_1", "rest_0", "rest_1_0", "arg_class"]
    assert float(run(mod, *[one] * 5)) == 5


def test_jitted_and_gradients() -> None:
    loss = jax.jit(lambda p, x: mlp(p, x)["logits"].sum())
    mod = from_jax(jax.grad(loss), PARAMS, X)
    same(run(mod, *jax.tree.leaves(PARAMS), X), jax.grad(loss)(PARAMS, X))


def test_raised() -> None:
    mod = from_jax(lambda a: jnp.tanh(a) + 1, X, raise_ops=True)
    assert "R.tanh" in mod.script()
    same(run(mod, X), jnp.tanh(X) + 1)


# ---- symbolic shapes
def symbolic(fn: Any, *shapes: str) -> Any:
    scope = jax.export.SymbolicScope()
    args = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), "float32") for s in shapes
    ]
    return from_jax(fn, *args)


def test_symbolic_shapes_keep_their_names() -> None:
    mod = symbolic(lambda a, b: jnp.concatenate([a @ b.T] * 2), "n, 4", "m, 4")
    main = mod["main"]
    assert [str(d) for p in main.params for d in p.struct_info.dims] == ["n", "4", "m", "4"]
    assert [str(d) for d in main.ret_struct_info.dims] == ["n * 2", "m"]
    check_well_formed(mod)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda a, b: (jax.nn.softmax(a @ b.T), jnp.concatenate([a, b])), ("n, 4", "n, 4")),
        (lambda a: a.reshape(-1), ("n, m",)),
        (lambda a: jnp.pad(a, 1)[:, ::2].sum(0), ("n, 2*m",)),
        (lambda a: (jnp.arange(a.shape[0]), jnp.ones((a.shape[0], 2))), ("n, 3",)),
        (lambda a: jax.lax.scan(lambda c, x: (c + x, c * x), a[0], a), ("n, m",)),
    ],
)
def test_symbolic_shapes_run(fn: Any, shapes: Any) -> None:
    mod = symbolic(fn, *shapes)
    vm = rx.VirtualMachine(rx.build(mod))
    for n, m in ((3, 2), (5, 4)):
        sizes = {"n": n, "m": m, "2*m": 2 * m}
        args = [
            RNG.standard_normal([sizes.get(d) or int(d) for d in s.split(", ")], "f")
            for s in shapes
        ]
        same(vm["main"](*args), fn(*args))


def test_symbolic_shapes_round_trip() -> None:
    mod = symbolic(lambda a: jax.nn.softmax(a), "n, m")
    module = emit(mod)
    assert str(emit(read(parse(str(module))))) == str(module)


# ---- and back
def test_to_jax() -> None:
    fn = to_jax(from_jax(lambda a: jnp.tanh(a) @ a.T, X))
    wanted = np.tanh(X) @ X.T
    np.testing.assert_allclose(fn(X), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda a: fn(a) * 2)(X), wanted * 2, rtol=1e-5)
    looped = jax.jit(lambda a: jax.lax.fori_loop(0, 2, lambda i, c: fn(c)[:, :4] + i, a))
    first = (np.tanh(X) @ X.T)[:, :4]
    np.testing.assert_allclose(looped(X), (np.tanh(first) @ first.T)[:, :4] + 1, rtol=1e-4)


def test_to_jax_says_what_it_has() -> None:
    mod = from_jax(jnp.tanh, X)
    with pytest.raises(TVMError, match="no function 'other'; it has main"):
        to_jax(mod, "other")
    assert isinstance(mod["main"].params[0].struct_info, TensorStructInfo)
