"""CallGradients: which gradients of weights become one call, and that all computes what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import relax2xla as rx
from relax2xla import op as R
from relax2xla.interop.jax import from_jax
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import gradients
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import gradients as call_gradients
from relax2xla.transform.cpu.calls.gradients import CallGradients
from relax2xla.transform.pipeline import default
from tests.transform.cpu import composites

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.usefixtures("quickly_compiled"),
]

T = rx.TensorStructInfo
RNG = np.random.default_rng(11)
ORDERS = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}


def of_convolution(
    image: tuple[int, ...], window: tuple[int, ...], order: str = "NHWC", **options: Any
) -> Callable[..., Any]:
    """The gradient by its window of what JAX convolves, and the shapes of image and gradient."""
    numbers = lax.conv_dimension_numbers(image, window, ORDERS[order])

    def convolve(x: Any, w: Any) -> Any:
        settings = {"window_strides": (1, 1), "padding": "SAME", **options}
        return lax.conv_general_dilated(x, w, **settings, dimension_numbers=numbers)

    def gradient(x: Any, g: Any) -> Any:
        (made,) = jax.linear_transpose(
            lambda w: convolve(x, w), jax.ShapeDtypeStruct(window, x.dtype)
        )(g)
        return made

    made = jax.eval_shape(convolve, *map(jax.ShapeDtypeStruct, (image, window), ["float32"] * 2))
    gradient.shapes = image, made.shape  # pyright: ignore[reportFunctionMemberAccess]
    return gradient


def imported(gradient: Any) -> rx.IRModule:
    given = [jnp.zeros(shape) for shape in gradient.shapes]
    return from_jax(gradient, *given)


def calls_of(mod: rx.IRModule) -> list[dict[str, Any]]:
    """The attributes of the composites that the pass makes in ``main``."""
    values = [b.value for b in bindings_of(CallGradients()(mod)["main"].body)]
    made = [call_attrs(v) for v in values if is_op(v, "relax.stablehlo.composite")]
    names = (gradients.WeightGradient.name, gradients.MatrixGradient.name)
    return [a["composite_attributes"] for a in made if a["name"] in names]


def check(mod: rx.IRModule) -> None:
    """With the pass, and without its calls, it computes what it did."""
    given = [RNG.standard_normal(p.struct_info.dims, "float32") for p in mod["main"].params]
    wanted = np.asarray(evaluate(mod["main"], given))
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


CONVOLUTIONS = {
    "3x3": (of_convolution((2, 9, 8, 20), (3, 3, 20, 24)), "last"),
    "steps": (
        of_convolution((2, 9, 9, 20), (3, 3, 20, 24), window_strides=(2, 2), padding="VALID"),
        "last",
    ),
    "planes": (of_convolution((2, 20, 9, 8), (24, 20, 3, 3), "NCHW"), "first"),
    "one tap": (of_convolution((2, 9, 9, 64), (1, 1, 64, 48), window_strides=(2, 2)), "last"),
    "spread": (of_convolution((2, 12, 12, 16), (3, 3, 16, 24), rhs_dilation=(2, 3)), "last"),
    "groups": (of_convolution((2, 9, 8, 32), (3, 3, 8, 48), feature_group_count=4), "last"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions_in_jax(name: str) -> None:
    gradient, lies = CONVOLUTIONS[name]
    mod = imported(gradient)
    (call,) = calls_of(mod)
    assert call["lies"] == lies
    check(mod)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_where_there_are_no_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of one tap and of groups get forms that XLA computes well."""
    monkeypatch.setattr(call_gradients, "may_call", lambda: False)
    mod = imported(CONVOLUTIONS[name][0])
    assert not calls_of(mod)
    values = [b.value for b in bindings_of(CallGradients()(mod)["main"].body)]
    stays = any(is_op(v, "relax.stablehlo.convolution") for v in values)
    assert stays == (name not in ("one tap", "groups"))
    check(mod)


@pytest.mark.parametrize("may", [True, False])
@pytest.mark.parametrize("weight", ["OIHW", "IOHW"])
def test_planes_that_come_so_are_multiplied_so(
    weight: str, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tap, channels first: transposing them takes longer."""
    monkeypatch.setattr(call_gradients, "may_call", lambda: may)
    inner = imported(of_convolution((3, 20, 9, 8), (24, 20, 1, 1), "NCHW"))["main"]
    (call,) = (b.value for b in bindings_of(inner.body) if is_op(b.value, CONVOLUTION))

    def body(x: rx.Expr, g: rx.Expr) -> rx.Expr:
        numbers = dict(call_attrs(call)["dimension_numbers"])
        if weight == "IOHW":
            batch, feature = (f"output_{kind}_dimension" for kind in ("batch", "feature"))
            numbers[batch], numbers[feature] = numbers[feature], numbers[batch]
        attrs = {**call_attrs(call), "dimension_numbers": numbers}
        return rx.Op.get(CONVOLUTION)(x, g, **attrs)

    mod = of_products((3, 20, 9, 8), (3, 24, 9, 8), body=body)
    values = [b.value for b in bindings_of(CallGradients()(mod)["main"].body)]
    assert not any(is_op(v, CONVOLUTION) for v in values)
    assert not calls_of(mod)
    turned = [v.args[0] for v in values if is_op(v, "relax.permute_dims")]
    assert not {*turned} & {*mod["main"].params}
    check(mod)


def test_what_is_none_stays() -> None:
    forward = from_jax(
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
        jnp.zeros((2, 16, 30, 30)),
        jnp.zeros((24, 16, 5, 5)),
    )
    depthwise = imported(of_convolution((2, 9, 8, 32), (3, 3, 1, 32), feature_group_count=32))
    double = of_convolution((2, 9, 8, 20), (3, 3, 20, 24))
    with jax.enable_x64(True):
        doubles = from_jax(double, *(jnp.zeros(shape, "float64") for shape in double.shapes))
    for mod in (forward, depthwise, doubles):
        assert not calls_of(mod)


def of_products(*shapes: tuple[int, ...], body: Callable[..., rx.Expr]) -> rx.IRModule:
    return composites.of_params(body, [rx.Var(f"p{i}", T(s)) for i, s in enumerate(shapes)])


def test_gradients_of_products() -> None:
    """The transposed matrix is read as it lies."""

    def body(g: rx.Expr, x: rx.Expr) -> rx.Expr:
        return R.matmul(R.permute_dims(g), x)

    mod = of_products((70, 40), (70, 50), body=body)
    assert len(calls_of(mod)) == 1
    check(mod)
    assert not calls_of(of_products((7, 40), (7, 50), body=body))  # too small


def test_products_by_constants_stay() -> None:
    """A weight is laid out at load."""
    weight = rx.const(RNG.standard_normal((70, 50), "float32"))
    for body in (
        lambda x: R.matmul(R.permute_dims(x), weight),
        lambda x: R.matmul(R.permute_dims(weight), x),
    ):
        assert not calls_of(of_products((70, 40), body=body))


@pytest.mark.parametrize("axes", [(0, 1), (0, -1), (-2, -1)])
def test_axes_in_their_own_order_transpose_nothing(axes: tuple[int, int]) -> None:
    mod = of_products(
        (70, 70), (70, 50), body=lambda g, x: R.matmul(R.permute_dims(R.tanh(g), axes), x)
    )
    assert not calls_of(mod)
    check(mod)


def test_products_that_give_another_dtype_stay() -> None:
    mod = of_products(
        (70, 40), (70, 50), body=lambda g, x: R.matmul(R.permute_dims(g), x, out_dtype="float64")
    )
    assert not calls_of(mod)


@pytest.mark.parametrize("columns", [(4, 900), (900, 4)])
def test_products_of_few_columns_stay(columns: tuple[int, int]) -> None:
    mod = of_products(
        (70, columns[0]), (70, columns[1]), body=lambda g, x: R.matmul(R.permute_dims(g), x)
    )
    assert not calls_of(mod)


def test_what_was_transposed_for_it_is_read_as_it_lay() -> None:
    """As where a graph of torch, channels first, goes on in one with channels last."""
    gradient = of_convolution((2, 20, 9, 8), (24, 20, 3, 3), "NCHW")
    inner = imported(gradient)["main"]

    def body(x: rx.Expr, g: rx.Expr) -> rx.Expr:
        (call,) = (b.value for b in bindings_of(inner.body) if is_op(b.value, CONVOLUTION))
        first = [R.permute_dims(v, (0, 3, 1, 2)) for v in (x, g)]
        return rx.Op.get(CONVOLUTION)(*first, **call_attrs(call))

    mod = of_products((2, 9, 8, 20), (2, 9, 8, 24), body=body)
    made = CallGradients()(mod)["main"]
    values = [
        b.value
        for b in bindings_of(rx.transform.DeadCodeElimination()(CallGradients()(mod))["main"].body)
    ]
    assert not any(is_op(v, "relax.permute_dims") for v in values), made
    check(mod)


CONVOLUTION = "relax.stablehlo.convolution"


def test_functions_of_jax_have_none() -> None:
    """Which JAX differentiates: a call has no derivative."""
    names = [type(p).__name__ for p in default(for_jax=True).static]
    assert "CallGradients" not in names
    assert "CallGradients" in [type(p).__name__ for p in default().static]
