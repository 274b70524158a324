"""CallDepthwise: what becomes one call, what does not, and that its forms are what was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.interop.jax import from_jax
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import depthwise, products
from relax2xla.runtime.compiler import has_compiler
from relax2xla.transform.core import run_alone
from relax2xla.transform.cpu.calls import depthwise as call_depthwise
from relax2xla.transform.cpu.calls.depthwise import CallDepthwise
from relax2xla.transform.cpu.calls.products import CallProducts
from relax2xla.transform.cpu.convolutions.depthwise import ExpandDepthwise
from tests.transform.cpu import composites

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

T = rx.TensorStructInfo
RNG = np.random.default_rng(7)
SHAPE = (2, 9, 8, 6)
Body = Callable[[rx.Expr], rx.Expr]


def conv(x: rx.Expr, groups: int = 6, **options: Any) -> rx.Expr:
    weight = RNG.standard_normal((3, 3, 6 // groups, 6), "float32")
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    return R.nn.conv2d(x, rx.const(weight), padding=1, groups=groups, **layouts, **options)


def vector() -> rx.Expr:
    return rx.const(RNG.standard_normal((1, 1, 1, 6), "float32"))


def hardswish(x: rx.Expr, shift: float = 3) -> rx.Expr:
    gate = R.nn.relu6(R.add(x, rx.const(shift, "float32")))
    return R.divide(R.multiply(x, gate), rx.const(6, "float32"))


def module(body: Body, shape: tuple[int, ...] = SHAPE) -> rx.IRModule:
    return composites.module(body, shape)


def attributes(mod: rx.IRModule) -> list[dict[str, Any]]:
    """Of the composites in ``main``."""
    values = [b.value for b in bindings_of(mod["main"].body)]
    return [
        v.attrs["composite_attributes"] for v in values if is_op(v, "relax.stablehlo.composite")
    ]


def operators(mod: rx.IRModule) -> list[str]:
    return [str(b.value.op.name) for b in bindings_of(mod["main"].body) if hasattr(b.value, "op")]


def last(x: rx.Expr) -> rx.Expr:
    return R.permute_dims(x, [0, 2, 3, 1])


def first(x: rx.Expr) -> rx.Expr:
    return R.permute_dims(x, [0, 3, 1, 2])


PLANES = (2, 6, 9, 8)
ONE: dict[str, tuple[Body, tuple[int, ...], dict[str, Any]]] = {
    "alone": (conv, SHAPE, {}),
    "bias": (lambda x: R.add(vector(), conv(x)), SHAPE, {}),
    "relu": (lambda x: R.nn.relu(R.add(conv(x), vector())), SHAPE, {"ending": "relu"}),
    "relu6": (lambda x: R.nn.relu6(conv(x)), SHAPE, {"ending": "relu6"}),
    "planes": (
        lambda x: first(R.nn.relu(conv(last(x), strides=2))),
        PLANES,
        {"image_layout": "NCHW", "result_layout": "NCHW", "ending": "relu", "strides": (2, 2)},
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_one_call_for_all(name: str) -> None:
    body, shape, wanted = ONE[name]
    mod = module(body, shape)
    made = CallDepthwise()(mod)
    assert operators(made)[-1] == "relax.stablehlo.composite"
    assert {*operators(made)} <= {"relax.stablehlo.composite", "relax.reshape"}
    (found,) = attributes(made)
    assert {k: found[k] for k in wanted} == wanted
    assert len(made.functions) == 2
    x = RNG.standard_normal(shape, "float32")
    expected = rx.testing.evaluate(mod["main"], [x])
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(rx.testing.evaluate(made, [x]), expected, rtol=1e-5, atol=2e-5)


GIVEN = (2, 9, 8, 4)


def pointwise(x: rx.Expr) -> rx.Expr:
    return R.add(R.matmul(x, rx.const(RNG.standard_normal((4, 6), "float32"))), vector())


def kinds(mod: rx.IRModule) -> list[str]:
    values = [b.value for b in bindings_of(mod["main"].body)]
    named = [v.attrs["name"] for v in values if is_op(v, "relax.stablehlo.composite")]
    return [name.rpartition(".")[2] for name in named]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size, calls take the place of operators, and one that of two."""
    monkeypatch.setattr(processor, "kind", lambda: "avx2")
    monkeypatch.setattr(products, "FASTER", {"avx2": 0})
    for least in ("_LARGE", "_LARGE_SHORT"):
        monkeypatch.setattr(depthwise, least, 0)


def read_twice(x: rx.Expr) -> rx.Expr:
    made = R.nn.relu(pointwise(x))
    return R.multiply(conv(made), made)


@pytest.mark.usefixtures("small")
def test_a_product_for_it_alone_is_part_of_the_call() -> None:
    mod = module(lambda x: R.nn.relu(conv(hardswish(pointwise(x)))), GIVEN)
    made = CallDepthwise()(CallProducts()(mod))
    assert kinds(made) == ["expanded"]
    (found,) = attributes(made)
    assert (found["first"], found["ending"]) == ("hardswish", "relu")
    x = RNG.standard_normal(GIVEN, "float32")
    expected = rx.testing.evaluate(mod["main"], [x])
    np.testing.assert_allclose(rx.testing.evaluate(made, [x]), expected, rtol=1e-5, atol=2e-5)
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "body", [read_twice, lambda x: conv(R.add(pointwise(x), R.nn.relu(pointwise(x))))]
)
def test_other_products_stay(body: Body) -> None:
    made = CallDepthwise()(CallProducts()(module(body, GIVEN)))
    assert "expanded" not in kinds(made)
    assert {"product", "convolution"} <= {*kinds(made)}


def test_one_call_pays_where_it_saves_memory() -> None:
    def call(size: int, channels: int, given: int, images: int = 1) -> depthwise.Expanded:
        shape = (images, size, size, channels)
        return depthwise.Expanded(shape, (3, 3), (1, 1), (1, 1, 1, 1), given=given)

    assert depthwise.pays(call(112, 64, 16))
    assert not depthwise.pays(call(14, 672, 112))
    assert depthwise.pays(call(14, 672, 112, images=8))
    assert not depthwise.pays(call(56, 960, 160))


def test_hardswish_reads_the_sum_twice() -> None:
    for shift, wanted in ((3, "hardswish"), (2.5, "")):
        mod = module(lambda x, shift=shift: hardswish(conv(x), shift))
        made = CallDepthwise()(mod)
        (found,) = attributes(made)
        assert found["ending"] == wanted
        x = RNG.standard_normal(SHAPE, "float32") * 4
        expected = rx.testing.evaluate(mod["main"], [x])
        np.testing.assert_allclose(rx.testing.evaluate(made, [x]), expected, rtol=1e-5, atol=2e-5)


def test_what_others_read_too_stays() -> None:
    def body(x: rx.Expr) -> rx.Expr:
        made = conv(x)
        return R.multiply(R.nn.relu(made), made)

    made = CallDepthwise()(module(body))
    assert attributes(made)[0]["ending"] == ""
    assert "relax.nn.relu" in operators(made)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: conv(x, groups=2),
        lambda x: conv(x, groups=1),
        lambda x: conv(x, dilation=2),
        lambda x: conv(x, strides=3),
    ],
)
def test_other_convolutions_stay(body: Body) -> None:
    mod = module(body)
    assert CallDepthwise()(mod) is mod


def test_without_a_compiler_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_depthwise, "may_call", lambda: False)
    mod = module(conv)
    assert CallDepthwise()(mod) is mod


# -- the gradient of the weight, as JAX writes it --------------------------------------------------
def jax_gradient(layout: str, steps: int) -> tuple[rx.IRModule, list[Any], Any]:
    """The gradient of a weight, arguments, and what JAX gives."""
    numbers = (layout, "HWIO" if layout == "NHWC" else "OIHW", layout)
    pads = ((1, 1), (2, 0))

    def convolved(w: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (steps, steps), pads, dimension_numbers=numbers, feature_group_count=6
        )

    shape = SHAPE if layout == "NHWC" else PLANES
    x = RNG.standard_normal(shape, "float32")
    w = RNG.standard_normal((3, 3, 1, 6) if layout == "NHWC" else (6, 1, 3, 3), "float32")
    g = RNG.standard_normal(jax.eval_shape(convolved, w, x).shape, "float32")

    def gradient(w: Any, x: Any, g: Any) -> Any:
        return jax.vjp(lambda w: convolved(w, x), w)[1](g)[0]

    return from_jax(gradient, w, x, g), [w, x, g], np.asarray(gradient(w, x, g))


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_gradients_of_weights(layout: str, steps: int) -> None:
    mod, arguments, expected = jax_gradient(layout, steps)
    (found,) = attributes(CallDepthwise()(mod))
    assert (found["image_layout"], found["strides"]) == (layout, (steps, steps))
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*arguments)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-4)
    # Without the function in C++ sums of products take its place.
    expanded = run_alone([ExpandDepthwise()], mod["main"], "main")
    assert "batch_group_count=6" not in expanded.script()
    np.testing.assert_allclose(
        rx.testing.evaluate(expanded, arguments), expected, rtol=1e-4, atol=1e-4
    )
