"""Functions of JAX called as researchers call them: arguments, dtypes, buffers, copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, UnsupportedError
from relax2xla.interop.jax import extract_jax, from_jax

torch = pytest.importorskip("torch")
F = torch.nn.functional
X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def of(function: Callable[..., Any], x: Any = X, **options: Any) -> Any:
    return rx.jax_function(Fn(function), (torch.from_numpy(x),), **options)


# ---- weights
def test_tied_weights_that_are_small_are_in_params() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight
            self.first = torch.nn.LayerNorm(4)
            self.second = self.first

        def forward(self, ids: Any) -> Any:
            return self.head(self.second(self.first(self.embed(ids)) ** 2))

    model, ids = Tied(), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        model.first.weight += torch.arange(4)
    fn, params = rx.jax_function(model, (ids,))
    assert set(params) == {"embed", "first"}
    grad = jax.grad(lambda p: (fn(p, ids.numpy()) ** 2).sum())(params)
    (model(ids) ** 2).sum().backward()
    for name, p in model.named_parameters():
        module, _, last = name.partition(".")
        np.testing.assert_allclose(grad[module][last], p.grad, rtol=1e-3, atol=1e-3, err_msg=name)


def test_params_of_another_form_say_what_they_are() -> None:
    module = torch.nn.Linear(5, 3)
    fn, params = rx.jax_function(module, (torch.from_numpy(X),))
    for bad, said in (
        ({"params": params}, "params has the keys 'params'"),
        (None, "params has no keys, but is NoneType None"),
        ({}, "params has no keys"),
    ):
        with pytest.raises(CallError, match=rf"params\['(weight|bias)'\] is missing; .*{said}"):
            fn(bad, X)


def test_copies_share_the_function_and_it_is_not_pickled() -> None:
    fn, params = rx.jax_function(torch.nn.Linear(5, 3), (torch.from_numpy(X),))
    held = copy.deepcopy({"fn": fn, "params": params})
    assert held["fn"] is fn
    assert copy.copy(fn) is fn
    with pytest.raises(TypeError, match="cannot be pickled: pickle its module"):
        pickle.dumps(fn)


# ---- arguments
class Options(torch.nn.Module):
    def forward(self, x: Any, y: Any = None, *, scale: float = 2.0) -> Any:
        return x * scale + (0 if y is None else y)


def test_arguments_that_the_traced_call_had_not() -> None:
    fn, params = rx.jax_function(Options(), (torch.from_numpy(X),))
    for args, given, said in (
        ((), {}, "arguments are missing: x; it was traced with x"),
        ((X, X), {}, "2 positional arguments were given; it was traced with x"),
        ((X,), {"scale": 3.0}, "scale is no argument; it was traced with x"),
        ((X,), {"x": X}, "x is given twice; it was traced with x"),
    ):
        with pytest.raises(CallError, match=f"main: {said}"):
            fn(params, *args, **given)
    # What it left out may be given as None.
    for args, given in (((X, None), {}), ((X,), {"y": None})):
        np.testing.assert_allclose(fn(params, *args, **given), 2 * X)


def test_names_of_onnx_that_are_no_identifiers(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, names = onnx.helper, ("ids:0", "pixel-values", "in")
    infos = [helper.make_tensor_value_info(n, 1, (2,)) for n in (*names, "y")]
    nodes = [
        helper.make_node("Sub", ["ids:0", "pixel-values"], ["s"]),
        helper.make_node("Div", ["s", "in"], ["y"]),
    ]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", infos[:3], infos[3:])), tmp_path / "m"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each name that is changed is one
        mod = rx.frontend.onnx.from_onnx(onnx.load(tmp_path / "m"))
    fn, params = rx.jax_function(mod)
    given = dict(zip(names, (np.full(2, n, np.float32) for n in (9, 3, 2)), strict=True))
    np.testing.assert_array_equal(fn(params, **given), [3, 3])
    with pytest.raises(CallError, match=r"other is no argument; it has ids_0, pixel_values"):
        fn(params, other=X)


# ---- 32 bits
NARROW: dict[str, Callable[[Any], Any]] = {
    "amax": lambda x: (x * 0 - 5).long().amax(),
    "argmax": lambda x: x.argmax(1),
    "bucketize": lambda x: torch.bucketize(x, x[0].sort().values),
    "cummax": lambda x: (x * 0 - 5).long().cummax(0).values,
    "double": lambda x: x.double().sum(),
    "dropout": lambda x: F.dropout(x, 0.5, True),
    "median": lambda x: x.median(1).values,
    "mode": lambda x: x.round().mode(1).values,
    "nanmedian": lambda x: x.nanmedian(),
    "nanquantile": lambda x: x.nanquantile(0.3),
    "polygamma": lambda x: torch.polygamma(1, x.abs() + 1),
    "quantile": lambda x: x.quantile(torch.tensor([0.0, 0.3, 1.0]), 1),
    "to_int": lambda x: (x * 1e3).long(),
}


@pytest.mark.parametrize("name", NARROW)
def test_what_32_bits_hold_is_computed_in_them(name: str) -> None:
    """Without a warning, and with limits of 64 bits as those of 32."""
    fn, params = of(NARROW[name], x64="jax")
    exact, _ = of(NARROW[name])
    made = jax.jit(fn)(params, X)
    assert made.dtype.itemsize <= 4
    np.testing.assert_allclose(made, exact(params, X), rtol=1e-5)
    with jax.enable_x64(True):  # the flag is looked at in each trace
        assert fn(params, X).dtype == exact(params, X).dtype


def test_integers_that_32_bits_do_not_hold_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="1099511627776"):
        of(lambda x: x.long() + (1 << 40), x64="jax")


# ---- lower precision
SUMS: dict[str, Callable[[Any], Any]] = {
    "avg_pool": lambda x: F.avg_pool1d(x[None], 500)[0],
    "mean": lambda x: x.view(2, 10, 10, 10).mean((1, 2, 3)),
    "sum": lambda x: x.sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_taken_in_float32(name: str) -> None:
    ones = np.ones((2, 1000), np.float32)
    fn, params = of(SUMS[name], ones, dtype="bfloat16")
    want = SUMS[name](torch.from_numpy(ones))
    np.testing.assert_array_equal(jax.jit(fn)(params, ones), want)


def test_running_statistics_stay_in_float32() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4)).train()
    x = torch.randn(8, 3, 64)
    fn, params = rx.jax_function(module, (x,), dtype="bfloat16")
    assert params["0"]["weight"].dtype == jnp.bfloat16
    given = x.numpy()

    def step(buffers: Any, _: Any) -> Any:
        return fn.apply(params, buffers, given)[1], None

    buffers, _ = jax.lax.scan(step, fn.buffers, None, length=30)
    for _ in range(30):
        module(x)
    for name in ("running_mean", "running_var"):
        assert buffers["1"][name].dtype == np.float32
        want = getattr(module[1], name)
        np.testing.assert_allclose(buffers["1"][name], want, rtol=1e-2, atol=2e-3)
    assert np.asarray(buffers["1"]["num_batches_tracked"]) == 30


def test_calls_that_do_not_fit_say_so_under_jit() -> None:
    sizes = ({0: torch.export.Dim("b", min=2, max=64)},)
    fn, params = rx.jax_function(Options(), (torch.from_numpy(X),), dynamic_shapes=sizes)
    rows = [jnp.ones(5), jnp.ones(5)]
    for f in (fn, jax.jit(fn)):
        with pytest.raises(
            CallError, match=r"has 65 as dimension 0 \(`.*`\), outside of the range"
        ):
            f(params, jnp.ones((65, 5)))
        with pytest.raises(CallError, match=r"main: .*`x` has ndim 3, expected 2"):
            f(params, [jnp.ones((6, 5))])
        with pytest.raises(CallError, match=r"main: `x`: "):
            f(params, [jnp.ones(5), jnp.ones(4)])
        np.testing.assert_array_equal(f(params, rows), np.full((2, 5), 2))
        np.testing.assert_array_equal(f(params, [[1, 2, 3, 4, 5.0]]), [[2, 4, 6, 8, 10]])


def test_sizes_that_expressions_do_not_fit_are_named() -> None:
    from jax import export

    k, n = export.symbolic_shape("k, n")

    def shape(*dims: Any) -> Any:
        return jax.ShapeDtypeStruct(dims, "float32")

    fn, params = extract_jax(from_jax(lambda p, y: p["w"] + y, {"w": shape(3, 4 * k, n)}, shape(n)))
    for f in (fn, jax.jit(fn)):
        assert f(params, {"w": jnp.ones((3, 8, 5))}, jnp.ones(5)).shape == (3, 8, 5)
        message = r"main: the arguments do not fit dimension 1 \(4\*k\) of args\[0\]\['w'\]: div.*"
        with pytest.raises(CallError, match=message + r"; given Tensor\(\(3, 6, 5\)"):
            f(params, {"w": jnp.ones((3, 6, 5))}, jnp.ones(5))
    less, none = extract_jax(from_jax(lambda x: x[:n].sum(), shape(n + 1)))
    with pytest.raises(
        CallError, match=r"dimension 0 \(n \+ 1\) of args\[0\]: expected value >= 1"
    ):
        less(none, jnp.ones(1))
