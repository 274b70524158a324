"""Loops over a dimension that the model leaves open: scans, which have every derivative."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import relax2xla as rx
from relax2xla.interop.jax import extract_jax, from_jax

onnx = pytest.importorskip("onnx")
FLOAT, INT, BOOL = (getattr(onnx.TensorProto, t) for t in ("FLOAT", "INT64", "BOOL"))
info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
X = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


def model(nodes: Any, x: Any, y: Any, weights: Any = ()) -> Any:
    """A model of one input and one output, each its shape; weights by name."""
    arrays = [onnx.numpy_helper.from_array(np.asarray(w), n) for n, w in weights]
    values = [info("x", FLOAT, x)], [info("y", FLOAT, y)]
    graph = onnx.helper.make_graph(nodes, "g", *values, arrays)
    opset = onnx.helper.make_opsetid("", 21)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)


def recurrent(kind: str, gates: int, t: Any, b: Any = 2) -> Any:
    rng = np.random.default_rng(1)
    weights = [
        (n, rng.normal(size=(1, 4 * gates, k)).astype(np.float32)) for n, k in (("w", 3), ("r", 4))
    ]
    nodes = [node(kind, ["x", "w", "r"], ["y"], hidden_size=4)]
    return model(nodes, [t, b, 3], [t, 1, b, 4], weights)


def scanned(t: Any) -> Any:
    parts = [
        node("Mul", ["c", "w"], ["m"]),
        node("Add", ["m", "x_t"], ["d"]),
        node("Tanh", ["d"], ["o"]),
    ]
    ins, outs = ([info(n, FLOAT, [2, 3]) for n in names] for names in (("c", "x_t"), ("d", "o")))
    body = onnx.helper.make_graph(parts, "b", ins, outs)
    nodes = [node("Scan", ["c0", "x"], ["c1", "y"], body=body, num_scan_inputs=1)]
    start = np.ones((2, 3), np.float32)
    return model(nodes, [t, 2, 3], [t, 2, 3], [("w", np.full(1, 0.5, np.float32)), ("c0", start)])


def looped(t: Any, goes_on: str) -> Any:
    """One round less than ``x`` is long; the body always says that it goes on."""
    parts = [
        node("Gather", ["x", "i"], ["x_i"]),
        node("Mul", ["c", "x_i"], ["d"]),
        node("Identity", [goes_on], ["k2"]),
    ]
    ins = [info("i", INT, []), info("k", BOOL, []), info("c", FLOAT, [2, 3])]
    body = onnx.helper.make_graph(parts, "b", ins, [info("k2", BOOL, []), info("d", FLOAT, [2, 3])])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["size"]),
        node("Sub", ["size", "one"], ["rounds"]),
        node("ReduceSum", ["x", "axes"], ["c0"], keepdims=0),
        node("Loop", ["rounds", "", "c0"], ["y"], body=body),
    ]
    known = [("zero", np.int64(0)), ("one", np.int64(1)), ("axes", np.zeros(1, np.int64))]
    return model(nodes, [t, 2, 3], [2, 3], [*known, ("true", np.bool_(True))])


MODELS: dict[str, Callable[[Any], Any]] = {
    "LSTM": lambda t: recurrent("LSTM", 4, t),
    "GRU": lambda t: recurrent("GRU", 3, t),
    "RNN": lambda t: recurrent("RNN", 1, t),
    "Scan": scanned,
    "Loop, as before": lambda t: looped(t, "k"),
    "Loop, always": lambda t: looped(t, "true"),
}


def loss(fn: Any) -> Callable[..., Any]:
    return lambda params, x: sum((y**2).sum() for y in jax.tree.leaves(fn(params, x)))


def of_onnx(made: Any, tmp_path: Path) -> Any:
    onnx.save(made, tmp_path / "model.onnx")
    return rx.jax_function(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_static_model(name: str, tmp_path: Path) -> None:
    (fixed, params), (open_, same) = (of_onnx(MODELS[name](t), tmp_path) for t in (5, "t"))
    wanted = jax.grad(loss(fixed), (0, 1))(params, X)
    for f in (jax.grad(loss(open_), (0, 1)), jax.jit(jax.grad(loss(open_), (0, 1)))):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), f(same, X), wanted)
    shorter = jax.jit(jax.grad(loss(open_), 1))(same, X[:3])
    assert shorter.shape == (3, 2, 3)


@pytest.mark.parametrize("name", MODELS)
def test_lengths_that_stay_open_are_forward_only(name: str, tmp_path: Path) -> None:
    fn, params = of_onnx(MODELS[name]("t"), tmp_path)
    (t,) = export.symbolic_shape("t")
    shape = jax.ShapeDtypeStruct((t, 2, 3), "float32")
    exported = export.export(jax.jit(fn))(params, shape)
    for x in (X, X[:3]):
        np.testing.assert_allclose(exported.call(params, x), fn(params, x), rtol=1e-5)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        export.export(jax.jit(jax.grad(loss(fn), 1)))(params, shape)


def test_known_lengths_have_gradients_where_batches_stay_open(tmp_path: Path) -> None:
    fn, params = of_onnx(recurrent("GRU", 3, "t", "b"), tmp_path)
    (b,) = export.symbolic_shape("b")
    grad = jax.jit(jax.grad(loss(fn)))
    exported = export.export(grad)(params, jax.ShapeDtypeStruct((5, b, 3), "float32"))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        exported.call(params, X),
        grad(params, X),
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scans_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops import scan

    class Scanned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Any) -> Any:
            def step(c: Any, a: Any) -> Any:
                return c * self.w + a, (c * a).clone()

            return scan(step, torch.zeros(4), x, dim=0)

    x = jnp.asarray(np.random.default_rng(0).normal(size=(7, 4)), jnp.float32)
    lengths = ({0: torch.export.Dim("t", min=2, max=50)},)
    (fixed, params), (open_, _) = (
        rx.jax_function(Scanned(), (torch.randn(7, 4),), dynamic_shapes=shapes)
        for shapes in (None, lengths)
    )
    wanted = jax.grad(loss(fixed))(params, x)
    for f in (jax.grad(loss(open_)), jax.jit(jax.grad(loss(open_)))):
        np.testing.assert_allclose(f(params, x)["w"], wanted["w"], rtol=1e-5)


def test_loops_over_symbolic_shapes_of_jax() -> None:
    def product(x: Any) -> Any:
        return lax.fori_loop(0, x.shape[0], lambda i, c: c * x[i], jnp.ones(3))

    (t,) = export.symbolic_shape("t")
    fn, params = extract_jax(from_jax(product, jax.ShapeDtypeStruct((t, 3), "float32")))
    x = jnp.asarray(X[:, 0])
    wanted = jax.grad(lambda x: jnp.prod(x, 0).sum())(x)
    found = jax.jit(jax.grad(lambda x: fn(params, x).sum()))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
