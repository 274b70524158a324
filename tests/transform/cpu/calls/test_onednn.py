"""CallOneDnn: composites whose forms give torch's results, derivatives and mapped programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.interop.jax import to_jax
from relax2xla.ir import Expr
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels.onednn import choice
from relax2xla.transform.cpu.calls.onednn import CallOneDnn

RNG = np.random.default_rng(11)
Body = Callable[..., Expr]


@pytest.fixture(autouse=True)
def everything_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass takes whatever can be called, on any machine."""
    kinds = {k for row in choice.TABLE.values() for k in row}
    monkeypatch.setattr(choice, "TABLE", {"any": dict.fromkeys(kinds, choice.Faster(0, 1.0))})
    monkeypatch.setattr(processor, "kind", lambda: "any")
    monkeypatch.setattr(choice, "may_call", lambda: True)
    # What is made here is compiled as rows; tests/vm/pjrt/test_onednn.py calls oneDNN.
    monkeypatch.setattr("relax2xla.vm.pjrt.onednn.features", frozenset)


def module(body: Body, *operands: np.ndarray[Any, Any]) -> rx.IRModule:
    """A module of one function over parameters like ``operands``."""
    infos = [rx.TensorStructInfo(a.shape, str(a.dtype)) for a in operands]
    params = [rx.Var(f"x{i}", info) for i, info in enumerate(infos)]
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()


def composites(mod: rx.IRModule) -> list[Any]:
    """The attributes of the composites of ``main``."""
    found = [b.value for b in bindings_of(mod["main"].body)]
    return [v.attrs for v in found if is_op(v, "relax.stablehlo.composite")]


def fusions(body: Body, *operands: np.ndarray[Any, Any]) -> list[list[str]]:
    made = CallOneDnn()(module(body, *operands))
    return [list(c["composite_attributes"]["fusions"]) for c in composites(made)]


def array(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("f")


def conv(x: Expr, w: Expr, **options: Any) -> Expr:
    return R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **options)


IMAGE, WINDOW, BIAS = array(1, 6, 7, 4), array(3, 3, 4, 8), array(1, 1, 1, 8)


def test_what_follows_is_fused() -> None:
    other = array(1, 4, 5, 8)
    assert fusions(conv, IMAGE, WINDOW) == [[]]
    assert fusions(lambda x, w, b: R.add(conv(x, w), b), IMAGE, WINDOW, BIAS) == [["BIAS"]]
    assert fusions(
        lambda x, w, b, y: R.nn.gelu(R.add(y, R.add(conv(x, w), b))), IMAGE, WINDOW, BIAS, other
    ) == [["BIAS", "BINARY_ADD", "GELU_ERF"]]
    for function, name in (
        (R.sigmoid, "SIGMOID"),
        (R.tanh, "TANH"),
        (R.nn.gelu_tanh, "GELU_TANH"),
    ):
        assert fusions(lambda x, w, f=function: f(conv(x, w)), IMAGE, WINDOW) == [[name]]


def test_what_others_read_or_oneDNN_has_otherwise_is_not_fused() -> None:
    # oneDNN's relu gives 0 for what is no number.
    assert fusions(lambda x, w: R.nn.relu(conv(x, w)), IMAGE, WINDOW) == [[]]

    # A second reader: the convolution alone.
    def twice(x: Expr, w: Expr) -> Expr:
        y = rx.BlockBuilder.current().emit(conv(x, w))
        return R.add(R.tanh(y), y)

    assert fusions(twice, IMAGE, WINDOW) == [[]]
    # Rows of another size, broadcast.
    row = array(1, 1, 5, 8)
    assert fusions(lambda x, w, b: R.add(conv(x, w), b), IMAGE, WINDOW, row) == [[]]


def test_functions_without_calls_stay() -> None:
    mod = module(R.nn.relu, IMAGE)
    assert CallOneDnn()(mod) is mod
    doubles = module(conv, IMAGE.astype("d"), WINDOW.astype("d"))
    assert CallOneDnn()(doubles) is doubles


def test_no_composites_where_they_cannot_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = module(conv, IMAGE, WINDOW)
    assert CallOneDnn()(mod) is not mod
    monkeypatch.setattr(choice, "may_call", lambda: False)
    assert CallOneDnn()(mod) is mod


def test_it_can_be_disabled() -> None:
    for disabled, expected in (([], True), (["CallOneDnn"], False)):
        with rx.transform.PassContext(disabled_pass=disabled):
            executable = rx.build(module(conv, IMAGE, WINDOW), "cpu")
        program = rx.VirtualMachine(executable)["main"].specialised.program(
            [rx.TensorStructInfo(a.shape) for a in (IMAGE, WINDOW)]
        )
        assert (
            "main__onednn_form_0" in [g.name_hint for g in program.module.functions]
        ) is expected


def test_other_orders_of_axes_and_depthwise_windows_are_torchs() -> None:
    line, volume, image = array(2, 6, 11), array(1, 4, 5, 6, 7), array(1, 6, 9, 8)
    layers = (
        torch.nn.Conv1d(6, 9, 3, 2, 1, 2, 3, bias=False),
        torch.nn.Conv3d(4, 8, 3, (1, 2, 1), 1, groups=2, bias=False),
        torch.nn.Conv2d(6, 6, 3, 1, 1, groups=6, bias=False),
    )
    given = (line, volume, image)
    weights = [layer.weight.detach().numpy() for layer in layers]

    def body(*v: Expr) -> Expr:
        ops = (R.nn.conv1d, R.nn.conv3d, R.nn.conv2d)
        made = []
        for i, (f, layer) in enumerate(zip(ops, layers, strict=True)):
            padding = [int(p) for p in layer.padding]
            options = {"strides": layer.stride, "dilation": layer.dilation}
            called = f(v[i], v[3 + i], padding=padding, groups=layer.groups, **options)
            made.append(rx.BlockBuilder.current().emit(called))
        return rx.Tuple(made)

    mod = module(body, *given, *weights)
    assert len(composites(CallOneDnn()(mod))) == 3
    found = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given, *weights)
    with torch.no_grad():
        for layer, x, made in zip(layers, given, found, strict=True):
            np.testing.assert_allclose(made, layer(torch.from_numpy(x)), rtol=1e-4, atol=1e-5)


def test_products_of_bytes_are_exact() -> None:
    left = RNG.integers(0, 256, (5, 40)).astype("uint8")
    right = RNG.integers(-128, 128, (40, 6)).astype("int8")

    def body(x: Expr, w: Expr) -> Expr:
        return R.matmul(R.astype(x, "int32"), R.astype(w, "int32"))

    mod = module(body, left, right)
    (called,) = composites(CallOneDnn()(mod))
    assert called["name"] == "relax2xla.onednn.product"
    found = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](left, right)
    np.testing.assert_array_equal(found, left.astype("i") @ right.astype("i"))


def test_derivatives_and_mapped_programs_see_rows() -> None:
    mod = module(lambda x, w, b: R.tanh(R.add(conv(x, w), b)), IMAGE, WINDOW, BIAS)
    function = to_jax(mod)

    def plain(x: Any, w: Any, b: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        return jax.numpy.tanh(
            jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=names) + b
        )

    def loss(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (f(*args) ** 2).sum()

    gradients = [jax.grad(loss(f), (0, 1, 2))(IMAGE, WINDOW, BIAS) for f in (function, plain)]
    for own, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)
    several = np.stack([IMAGE, 2 * IMAGE])
    mapped = jax.vmap(function, (0, None, None))(several, WINDOW, BIAS)
    np.testing.assert_allclose(mapped[1], plain(2 * IMAGE, WINDOW, BIAS), rtol=1e-5, atol=1e-5)
