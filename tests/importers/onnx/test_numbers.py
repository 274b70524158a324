"""Initializers without axes: weights by name for JAX, and numbers where a program needs them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper

import relax2xla as rx
from relax2xla.frontend.onnx import from_onnx
from relax2xla.importers.onnx.read.numbers import weights_without_axes
from tests.importers.onnx.support import model_of, value

SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"


def model(nodes: list[Any], numbers: dict[str, Any], sizes: Any = (2, 3), said: str = "") -> Any:
    inputs = [value("x", np.zeros((), np.float32), sizes)]
    made = model_of(nodes, inputs, weights={n: np.asarray(v) for n, v in numbers.items()})
    if said:
        made.graph.metadata_props.add(key=SIGNATURE, value=said)
    return made


def scaled(*numbers: str) -> list[Any]:
    """The product of x and the exponentials of numbers."""
    nodes, last = list[Any](), "x"
    for i, name in enumerate(numbers):
        made = "y" if i == len(numbers) - 1 else f"t{i}"
        nodes.append(helper.make_node("Exp", [name], [f"e{i}"]))
        nodes.append(helper.make_node("Mul", [last, f"e{i}"], [made]))
        last = made
    return nodes


def test_a_number_is_a_weight_by_its_name() -> None:
    half, third = np.float32(0.5), np.float32(1 / 3)
    mod = from_onnx(model(scaled("logit_scale", "val_7"), {"logit_scale": half, "val_7": third}))
    fn, params = rx.jax_function(mod)
    assert list(params) == ["logit_scale"]
    assert params["logit_scale"].shape == ()
    x = np.ones((2, 3), np.float32)
    value, slope = jax.value_and_grad(lambda p: fn(p, x).sum())(params)
    want = 6 * np.exp(half + third)
    np.testing.assert_allclose([value, slope["logit_scale"]], [want, want], rtol=1e-6)
    fn, params = rx.jax_function(mod, trainable=[])
    assert not params
    assert list(fn.buffers) == ["logit_scale"]
    # The machine keeps it in the program, as a number.
    executable = rx.build(mod)
    assert not executable["main"].lifted.weights
    np.testing.assert_allclose(rx.VirtualMachine(executable)["main"](x), value / 6, rtol=1e-6)


def test_torch_says_which_numbers_are_parameters() -> None:
    said = "\n# inputs\np_exp: PARAMETER target='exp'\nb_eps: BUFFER target='eps' persistent=True\n"
    numbers = {"exp": np.float32(0.5), "eps": np.float32(0.25), "inner.alpha": np.float32(1)}
    fn, params = rx.jax_function(from_onnx(model(scaled(*numbers), numbers, said=said)))
    assert list(params) == ["exp"]
    assert not fn.buffers


@pytest.mark.parametrize(
    "name",
    ["val_95", "const_3", "Constant_12", "/gelu/Div_output_0", "mul/y:0", "onnx::Mul_3", "12", "_"],
)
def test_names_that_are_made_are_those_of_numbers(name: str) -> None:
    assert not weights_without_axes(model(scaled(name), {name: np.float32(1)}).graph)(name)


def test_scales_of_integers_are_numbers() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "x_scale"], ["d"]),
        helper.make_node("Mul", ["d", "temperature"], ["y"]),
    ]
    made = model(nodes, {"x_scale": np.float32(0.1), "temperature": np.float32(2)})
    _, params = rx.jax_function(from_onnx(made))
    assert list(params) == ["temperature"]


def test_a_number_may_still_say_a_size() -> None:
    """Beside its use as a weight."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "factor"], ["m"]),
        helper.make_node("Cast", ["m"], ["i"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["i"], ["zeros"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "factor"], ["t"]),
        helper.make_node("Add", ["zeros", "t"], ["y"]),
    ]
    fn, params = rx.jax_function(from_onnx(model(nodes, {"factor": np.float32(2)})))
    y = fn(params, jnp.ones((2, 3)))
    np.testing.assert_array_equal(y, np.full((4, 6), 12.0, np.float32))


def test_numbers_of_a_range_are_folded() -> None:
    nodes = [
        helper.make_node("Mul", ["end", "end"], ["limit"]),
        helper.make_node("Range", ["start", "limit", "step"], ["r"]),
        helper.make_node("Mul", ["r", "scale"], ["scaled"]),
        helper.make_node("Add", ["x", "scaled"], ["y"]),
    ]
    numbers = {"start": 0.0, "end": 3.0, "step": 3.0, "scale": 2.0}
    made = model(nodes, {n: np.float32(v) for n, v in numbers.items()})
    fn, params = rx.jax_function(from_onnx(made))
    assert list(params) == ["scale"]
    np.testing.assert_array_equal(fn(params, jnp.zeros((2, 3))), [[0, 6, 12]] * 2)


def test_bounds_are_numbers() -> None:
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    mod = from_onnx(model([node], {"low": np.float32(-1), "high": np.float32(1)}))
    assert not rx.jax_function(mod)[1]
