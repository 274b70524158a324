"""CallSqueezes: which blocks become one call, which stay, and that all compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.frontend.onnx import from_onnx
from relax2xla.frontend.torch import from_exported_program
from relax2xla.interop.jax import extract_jax
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import products, squeezes
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import squeezes as call_squeezes
from relax2xla.transform.cpu.calls.products import CallProducts
from relax2xla.transform.cpu.calls.squeezes import CallSqueezes
from relax2xla.transform.pipeline import get_pipeline
from tests.transform.cpu import composites

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("everywhere", "quickly_compiled"),
]

RNG = np.random.default_rng(5)
SHAPE = N, H, W, C = (2, 9, 8, 24)
S = 6
Body = Callable[[rx.Expr], rx.Expr]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size, and whatever runs them, calls take the place of operators."""
    monkeypatch.setattr(processor, "kind", lambda: "avx2")
    monkeypatch.setattr(products, "FASTER", {"avx2": 0})
    monkeypatch.setattr(squeezes, "_LEAST", 0)


def kinds(mod: rx.IRModule) -> list[str]:
    """The composites in ``main``, by the end of their names."""
    values = [b.value for b in bindings_of(mod["main"].body)]
    named = [v.attrs["name"] for v in values if is_op(v, "relax.stablehlo.composite")]
    return [name.rpartition(".")[2] for name in named]


def attributes(mod: rx.IRModule) -> list[dict[str, Any]]:
    values = [b.value for b in bindings_of(mod["main"].body)]
    return [
        v.attrs["composite_attributes"]
        for v in values
        if is_op(v, "relax.stablehlo.composite") and "gate" in v.attrs["composite_attributes"]
    ]


def called(mod: rx.IRModule) -> rx.IRModule:
    return CallSqueezes()(CallProducts()(mod))


# -- blocks of operators ---------------------------------------------------------------------------
def product(x: rx.Expr, given: int, results: int) -> rx.Expr:
    weight = RNG.standard_normal((given, results), "float32") / given**0.5
    bias = RNG.standard_normal(results, "float32")
    return R.add(R.matmul(x, rx.const(weight)), rx.const(bias))


def mean(x: rx.Expr, keep: bool = True) -> rx.Expr:
    return R.mean(x, [1, 2], keep)


def gate(means: rx.Expr) -> rx.Expr:
    return R.sigmoid(product(R.nn.relu(product(means, C, S)), S, C))


def hard(x: rx.Expr) -> rx.Expr:
    return R.divide(R.nn.relu6(R.add(x, rx.const(3.0, "float32"))), rx.const(6.0, "float32"))


def flat(x: rx.Expr) -> rx.Expr:
    return R.reshape(x, (N, C))


def spread(x: rx.Expr) -> rx.Expr:
    return R.reshape(x, (N, 1, 1, C))


def pooled(x: rx.Expr) -> rx.Expr:
    return R.nn.avg_pool2d(x, (H, W), layout="NHWC")


def first(x: rx.Expr) -> rx.Expr:
    return R.permute_dims(x, [0, 3, 1, 2])


def last(x: rx.Expr) -> rx.Expr:
    return R.permute_dims(x, [0, 2, 3, 1])


BLOCKS: dict[str, Body] = {
    "four axes": lambda x: R.multiply(x, gate(mean(x))),
    "the gate first": lambda x: R.multiply(gate(mean(x)), x),
    "two axes": lambda x: R.multiply(x, spread(gate(mean(x, keep=False)))),
    "reshaped": lambda x: R.multiply(x, spread(gate(flat(mean(x))))),
    "turned on the way": lambda x: R.multiply(x, gate(last(first(mean(x))))),
    "adaptive": lambda x: R.multiply(x, gate(R.nn.adaptive_avg_pool2d(x, 1, layout="NHWC"))),
    "a window": lambda x: R.multiply(x, gate(pooled(x))),
    "spread": lambda x: R.multiply(x, R.broadcast_to(gate(mean(x)), SHAPE)),
    "spread and turned": lambda x: R.multiply(
        x, last(R.broadcast_to(first(gate(mean(x))), (N, C, H, W)))
    ),
    "hard": lambda x: R.multiply(x, hard(product(R.nn.silu(product(mean(x), C, S)), S, C))),
    "an image that is computed": lambda x: block_of(R.nn.relu(x)),
}


def block_of(x: rx.Expr) -> rx.Expr:
    image = product(x, C, C)
    return R.multiply(image, gate(mean(image)))


@pytest.mark.parametrize("name", BLOCKS)
def test_one_call_for_all(name: str) -> None:
    mod = composites.module(BLOCKS[name], SHAPE)
    made = called(mod)
    assert [k for k in kinds(made) if k != "product"] == ["excitation"]
    assert kinds(made).count("product") == ("computed" in name)
    (found,) = attributes(made)
    wanted = ("silu", "hardsigmoid") if name == "hard" else ("relu", "sigmoid")
    assert (found["first"], found["gate"]) == wanted
    x = RNG.standard_normal(SHAPE, "float32")
    expected = evaluate(mod["main"], [x])
    np.testing.assert_allclose(evaluate(made, [x]), expected, rtol=1e-5, atol=1e-5)
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)


def read_twice(x: rx.Expr) -> rx.Expr:
    gates = gate(mean(x))
    return R.add(R.multiply(x, gates), gates)


def means_read_twice(x: rx.Expr) -> rx.Expr:
    means = mean(x)
    return R.add(R.multiply(x, gate(means)), means)


def hidden_read_twice(x: rx.Expr) -> rx.Expr:
    hidden = R.nn.relu(product(mean(x), C, C))
    return R.add(R.multiply(x, R.sigmoid(product(hidden, C, C))), hidden)


OTHERS: dict[str, Body] = {
    "the gate is read twice": read_twice,
    "the means are read twice": means_read_twice,
    "the first product is read twice": hidden_read_twice,
    "another image": lambda x: R.multiply(x, gate(mean(R.nn.relu(x)))),
    "another axis": lambda x: R.multiply(x, gate(R.mean(x, [1], True))),
    "a product alone": lambda x: R.multiply(x, R.sigmoid(product(mean(x), C, C))),
    "no gate": lambda x: R.multiply(x, product(R.nn.relu(product(mean(x), C, S)), S, C)),
    "added": lambda x: R.add(x, gate(mean(x))),
    "a window of a part": lambda x: R.multiply(
        x, gate(R.mean(R.nn.avg_pool2d(x, (H, W - 1), layout="NHWC"), [1, 2], True))
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_blocks_stay(name: str) -> None:
    mod = composites.module(OTHERS[name], SHAPE)
    made = called(mod)
    assert "excitation" not in kinds(made)
    x = RNG.standard_normal(SHAPE, "float32")
    np.testing.assert_allclose(
        evaluate(made, [x]), evaluate(mod["main"], [x]), rtol=1e-5, atol=1e-5
    )


def test_axes_that_change_places_are_no_gate() -> None:
    """A batch of as many images as channels, whose gates are turned around."""
    shape = (C, 3, 3, C)

    def body(x: rx.Expr) -> rx.Expr:
        turned = R.permute_dims(gate(R.mean(x, [1, 2])), [1, 0])
        return R.multiply(x, R.reshape(turned, (C, 1, 1, C)))

    mod = composites.module(body, shape)
    assert "excitation" not in kinds(called(mod))


def test_gates_of_one_image_for_all_stay() -> None:
    """A gate that meets the image otherwise than channel by channel."""

    def body(x: rx.Expr) -> rx.Expr:
        return R.multiply(x, R.reshape(gate(R.mean(x, [1, 2])), (1, C, 1, 1)))

    mod = composites.module(body, (1, C, 5, C))
    assert "excitation" not in kinds(called(mod))


# -- pools -----------------------------------------------------------------------------------------
def test_means_alone_become_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    for body in (mean, lambda x: mean(x, keep=False), pooled):
        mod = composites.module(body, SHAPE)
        made = CallSqueezes()(mod)
        assert kinds(made) == ["pool"]
        assert made["main"].ret_struct_info == mod["main"].ret_struct_info
        x = RNG.standard_normal(SHAPE, "float32")
        wanted = evaluate(mod["main"], [x])
        np.testing.assert_allclose(evaluate(made, [x]), wanted, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(squeezes, "_LEAST", 1_000_000)
    mod = composites.module(mean, SHAPE)
    assert CallSqueezes()(mod) is mod


@pytest.mark.parametrize(
    "body",
    [
        lambda x: R.mean(x, [2, 3]),
        lambda x: R.mean(x, [1, 2, 3]),
        lambda x: R.mean(x),
        lambda x: R.mean(R.astype(x, "float16"), [1, 2]),
        lambda x: R.nn.avg_pool2d(x, (W, C)),
        lambda x: R.nn.adaptive_avg_pool2d(x, (1, 2), layout="NHWC"),
    ],
)
def test_other_means_stay(body: Body) -> None:
    mod = composites.module(body, SHAPE)
    assert CallSqueezes()(mod) is mod


def test_shapes_that_are_not_known_stay() -> None:
    n = rx.tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo((n, H, W, C)))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(R.multiply(x, gate(mean(x))))
        builder.emit_func_output(made)
    mod = builder.get()
    assert not {"excitation", "pool"} & {*kinds(called(mod))}


def test_without_a_compiler_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = CallProducts()(composites.module(BLOCKS["four axes"], SHAPE))
    monkeypatch.setattr(call_squeezes, "may_call", lambda: False)
    assert CallSqueezes()(mod) is mod


# -- models ----------------------------------------------------------------------------------------
class Block(nn.Module):
    """A convolution, squeeze and excitation, and one more convolution."""

    def __init__(self, act: nn.Module, gate: nn.Module, linear: bool = False) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(3, C, 3, padding=1), nn.Conv2d(C, 5, 1)
        self.linear = linear
        layer = nn.Linear if linear else lambda i, o: nn.Conv2d(i, o, 1)
        self.layers = nn.Sequential(layer(C, S), act, layer(S, C), gate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.before(x))
        if self.linear:
            gates = self.layers(x.mean((2, 3))).view(x.shape[0], C, 1, 1).expand_as(x)
        else:
            gates = self.layers(nn.functional.adaptive_avg_pool2d(x, 1))
        return self.after(x * gates)


MODELS = {
    "relu and sigmoid": lambda: Block(nn.ReLU(), nn.Sigmoid()),
    "relu and hard sigmoid": lambda: Block(nn.ReLU(), nn.Hardsigmoid()),
    "silu and sigmoid": lambda: Block(nn.SiLU(), nn.Sigmoid()),
    "linear layers": lambda: Block(nn.ReLU(), nn.Sigmoid(), linear=True),
}


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_torch(name: str, images: int) -> None:
    torch.manual_seed(2)
    model, x = MODELS[name]().eval(), torch.randn(images, 3, 11, 10)
    mod = from_exported_program(torch.export.export(model, (x,)))
    assert kinds(get_pipeline("default")(mod)).count("excitation") == 1
    with torch.no_grad():
        wanted = model(x).numpy()
    (got,) = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x.numpy())
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-5)


def test_a_model_of_onnx() -> None:
    """A hard sigmoid as exporters write it, and means by GlobalAveragePool."""
    weights = {
        "before": RNG.standard_normal((C, 3, 3, 3), "float32") / 5,
        "down": RNG.standard_normal((S, C, 1, 1), "float32") / 5,
        "up": RNG.standard_normal((C, S, 1, 1), "float32") / 2,
    }
    nodes = [
        helper.make_node("Conv", ["x", "before"], ["image"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["image"], ["means"]),
        helper.make_node("Conv", ["means", "down"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["hidden"]),
        helper.make_node("Conv", ["hidden", "up"], ["raised"]),
        helper.make_node("HardSigmoid", ["raised"], ["gates"], alpha=1 / 6, beta=0.5),
        helper.make_node("Mul", ["image", "gates"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, C, 9, 9])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    mod = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert kinds(get_pipeline("default")(mod)).count("excitation") == 1
    x = RNG.standard_normal((2, 3, 9, 9), "float32")
    image = nn.functional.conv2d(*(torch.from_numpy(v) for v in (x, weights["before"])), padding=1)
    made = image.mean((2, 3), keepdim=True)
    made = torch.relu(nn.functional.conv2d(made, torch.from_numpy(weights["down"])))
    made = nn.functional.hardsigmoid(nn.functional.conv2d(made, torch.from_numpy(weights["up"])))
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), image * made, rtol=1e-5, atol=1e-5)


def test_an_image_that_others_read_keeps_its_numbers() -> None:
    """The result lies where the image does, unless that is read again."""

    def body(x: rx.Expr) -> rx.Expr:
        image = R.nn.relu(product(x, C, C))
        return R.multiply(product(R.multiply(image, gate(mean(image))), C, C), image)

    mod = composites.module(body, SHAPE)
    assert "excitation" in kinds(called(mod))
    x = RNG.standard_normal(SHAPE, "float32")
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    expected = evaluate(mod["main"], [x])
    for _ in range(3):
        np.testing.assert_allclose(np.asarray(run(x)), expected, rtol=1e-5, atol=2e-5)


def test_gradients_in_jax_stay_right() -> None:
    torch.manual_seed(3)
    model, x = MODELS["relu and sigmoid"]().eval(), torch.randn(1, 3, 6, 5, requires_grad=True)
    function, weights = extract_jax(from_exported_program(torch.export.export(model, (x,))))
    (wanted,) = torch.autograd.grad(model(x).square().sum(), x)

    def loss(v: Any) -> Any:
        return (jax.tree.leaves(function(weights, v))[0] ** 2).sum()

    given = jax.numpy.asarray(x.detach().numpy())
    np.testing.assert_allclose(jax.grad(loss)(given), wanted, rtol=1e-4, atol=1e-5)
