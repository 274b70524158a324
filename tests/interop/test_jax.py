"""``from_jax`` and ``to_jax`` against JAX itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, TVMError
from relax2xla.interop.jax import from_jax, to_jax
from relax2xla.ir import TensorStructInfo
from relax2xla.ir.check import check_well_formed
from relax2xla.script import from_source
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


# ---- typed keys, and annotations of shardings
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
ROWS = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("d"))


def keyed_branch(key: Any, flag: Any) -> Any:
    return jax.lax.cond(flag, jax.random.normal, jax.random.uniform, key)


def constrained(a: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        return jax.lax.with_sharding_constraint(carry + row, ROWS), carry

    return jax.lax.scan(step, a[0], a)[1]


def mapped(a: Any) -> Any:
    def part(v: Any) -> Any:
        return jax.lax.all_gather(v, "d").sum(0) + jax.lax.axis_index("d") + jax.lax.psum(v, "d")

    spec = ROWS.spec
    return jax.shard_map(part, mesh=MESH, in_specs=spec, out_specs=spec, check_vma=False)(a)


KEY = jax.random.key(3)
KEYED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "one key": (lambda k: jax.random.normal(k, (3,)), (KEY,)),
    "another generator": (lambda k: jax.random.bits(k, (3,)), (jax.random.key(3, impl="rbg"),)),
    "many keys": (jax.vmap(lambda k: jax.random.uniform(k, (2,))), (jax.random.split(KEY, 3),)),
    "keys in a tree": (
        lambda t: {"k": jax.random.fold_in(t["k"], 1), "x": t["x"] + 1},
        ({"k": KEY, "x": X},),
    ),
    "a branch": (keyed_branch, (KEY, np.True_)),
    "a loop": (
        lambda k: jax.lax.fori_loop(0, 3, lambda i, c: jax.random.split(c)[0], k),
        (KEY,),
    ),
    "a constraint": (constrained, (X,)),
    "a sharded argument": (jnp.tanh, (jax.device_put(X, ROWS),)),
    "a map over devices": (mapped, (X,)),
}


@pytest.mark.parametrize("raise_ops", [False, True])
@pytest.mark.parametrize("case", KEYED)
def test_keys_and_shardings(case: str, raise_ops: bool) -> None:
    fn, args = KEYED[case]
    wanted = [
        jax.random.key_data(v) if jax.dtypes.issubdtype(v.dtype, jax.dtypes.prng_key) else v
        for v in jax.tree.leaves(jax.jit(fn)(*args))
    ]
    mod = from_jax(fn, *args, raise_ops=raise_ops)
    leaves = jax.tree.leaves(args)
    same(run(mod, *leaves), wanted)
    same(to_jax(mod)(*leaves), wanted)
    same(jax.jit(to_jax(mod))(*leaves), wanted)


def test_a_symbolic_function_of_a_key() -> None:
    (n,) = jax.export.symbolic_shape("n")
    key, rows = jax.ShapeDtypeStruct((), KEY.dtype), jax.ShapeDtypeStruct((n,), "float32")
    mod = from_jax(lambda k, x: x + jax.random.normal(k, x.shape), key, rows)
    assert str(mod["main"].params[1].struct_info) == 'Tensor((n,), dtype="float32")'
    same(run(mod, KEY, np.ones(5, "f")), 1 + jax.random.normal(KEY, (5,)))


def test_a_program_inlined_beside_meshes_of_its_caller() -> None:
    fn = to_jax(from_jax(constrained, X))
    twice = jax.jit(lambda a: fn(jax.lax.with_sharding_constraint(fn(a), ROWS)))
    same(twice(X), constrained(constrained(X)))


# ---- 64-bit values without JAX's x64 flag
def table_rows(i: Any, t: Any) -> Any:
    return t[i] * 2


IDS, TABLE = np.array([1, 3]), np.arange(12, dtype=np.float64).reshape(4, 3)


@pytest.mark.parametrize("raise_ops", [False, True])
def test_a_function_takes_the_arrays_that_it_was_traced_with(
    raise_ops: bool, tmp_path: Any
) -> None:
    mod = from_jax(table_rows, IDS, TABLE, raise_ops=raise_ops)
    assert [p.struct_info.dtype for p in mod["main"].params] == ["int32", "float32"]
    executable = rx.build(mod)
    executable.export_library(str(tmp_path / "m.r2x"))
    loaded = rx.runtime.load_module(str(tmp_path / "m.r2x"))
    wanted = TABLE[IDS] * 2
    for made in (executable, loaded):
        call = rx.VirtualMachine(made)["main"]
        narrow = IDS.astype("i"), TABLE.astype("f")
        # Again and again, in any order: each road through the machine.
        for args in [(IDS, TABLE), narrow, (IDS, TABLE), narrow, (IDS, TABLE[::1])]:
            same(call(*args), wanted)
            assert call(*args).dtype == "float32"
        same(call(*map(jnp.asarray, narrow)), wanted)
        same(call(IDS, TABLE), wanted)
        with pytest.raises(CallError, match="4294967297 does not fit int32"):
            call(IDS + 2**32, TABLE)
        with pytest.raises(CallError, match=r"1e\+300 does not fit float32"):
            call(IDS, np.full((4, 3), 1e300))
        same(call(IDS, np.full((4, 3), np.inf)), np.full((2, 3), np.inf))
    same(to_jax(mod)(IDS, TABLE), wanted)
    same(jax.jit(to_jax(mod))(IDS, TABLE), wanted)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_each_wide_dtype_is_narrowed_as_jit_does(dtype: str) -> None:
    value = np.array([0.1, 2, 3]).astype(dtype)
    mod = from_jax(lambda v: v + v, value)
    wanted = jax.jit(lambda v: v + v)(value)
    assert mod["main"].params[0].struct_info.dtype == wanted.dtype
    np.testing.assert_array_equal(run(mod, value), wanted)


def test_only_what_was_wide_takes_wide_arrays() -> None:
    mod = from_jax(table_rows, IDS.astype("i"), TABLE)
    with pytest.raises(CallError, match="has dtype int64, expected int32"):
        run(mod, IDS, TABLE)
    with jax.enable_x64(True):
        exact = from_jax(table_rows, IDS, TABLE)
        assert [p.struct_info.dtype for p in exact["main"].params] == ["int64", "float64"]
    assert "narrowed" not in exact["main"].attrs


WIDE = """
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    @R.function
    def main(i: R.Tensor(("n",), "int64"), f: R.Tensor(("n",), "float64")):
        return (R.add(i, R.const(1 << 40, "int64")), R.multiply(f, f))
"""


def test_parameters_of_64_bits_take_what_jax_narrows() -> None:
    mod = from_source(WIDE)
    call, (i, f) = to_jax(mod), (np.array([1, -2]), np.array([0.5, 3.0]))
    wanted = i + 2**40, f * f
    same(call(i, f), wanted)
    # Exact: the program has 64 bits, and JAX's arrays of 32 are widened on entry.
    same(call(jnp.asarray(i), jnp.asarray(f)), wanted)
    same(jax.jit(call)(i, f), wanted)
    same(jax.jit(rx.VirtualMachine(rx.build(mod))["main"])(i, f), wanted)
    assert [v.dtype for v in jax.jit(call)(i, f)] == ["int64", "float64"]
    with jax.enable_x64(True):
        same(jax.jit(call)(i, f), wanted)
        # What JAX did not narrow is a mistake, as ever.
        with pytest.raises(CallError, match="has dtype int32, expected int64"):
            call(jnp.asarray(i.astype("i")), f)
    with pytest.raises(CallError, match="has dtype int32, expected int64"):
        call(i.astype("i"), f)


def test_tuples_and_shapes_are_traced() -> None:
    text = """
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    @R.function
    def main(t: R.Tuple(R.Tensor((2,), "int64"), R.Tensor((2,), "float32")), s: R.Shape([2, 1])):
        return R.reshape(R.multiply(R.astype(t[0], "float32"), t[1]), s)
"""
    call = to_jax(from_source(text))
    traced = jax.jit(lambda a, b: call((a, b), (2, 1)))
    same(traced(np.array([2, 3]), np.ones(2, "f")), np.array([[2.0], [3.0]]))
