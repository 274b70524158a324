"""ComputeInIntegers: models of ONNX give what their rows and ONNX Runtime give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

import relax2xla as rx
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels import native
from relax2xla.runtime.compiler import has_compiler
from relax2xla.transform.cpu.integers import compute as integers
from relax2xla.transform.cpu.integers.compute import ComputeInIntegers
from tests.transform.cpu.composites import composites_of

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

RNG = np.random.default_rng(3)
Array = np.ndarray[Any, Any]
# The zero point of most inputs.
FIRST = np.uint8(120)


class Model:
    """An ONNX model in the making."""

    def __init__(self, *shape: int, dtype: Any = np.float32) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.input, self.dtype = shape, dtype
        self.count = 0

    def weight(self, value: Any, dtype: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(
        self, kind: str, *operands: str, count: int = 1, domain: str = "", **attrs: Any
    ) -> Any:
        names = [f"v{self.count + i}" for i in range(count)]
        self.count += count
        self.nodes.append(helper.make_node(kind, operands, names, domain=domain, **attrs))
        return names[0] if count == 1 else names

    def quantised(self, x: str, scale: float = 0.05, zero: Any = FIRST) -> str:
        return self.node("QuantizeLinear", x, *self.how(scale, zero))

    def how(self, scale: Any, zero: Any) -> list[str]:
        return [self.weight(scale, np.float32), self.weight(zero, np.asarray(zero).dtype)]

    def again(self, x: str, scale: Any, zero: Any, axis: int = 1) -> str:
        """Dequantised."""
        return self.node("DequantizeLinear", x, *self.how(scale, zero), axis=axis)

    def made(self, result: str, rank: int, dtype: Any = np.uint8) -> Any:
        kind, of_result = (
            helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (self.dtype, dtype)
        )
        sizes = [f"o{i}" for i in range(rank)]
        graph = helper.make_graph(
            self.nodes,
            "main",
            [helper.make_tensor_value_info("x", kind, self.input)],
            [helper.make_tensor_value_info(result, of_result, sizes)],
            self.weights,
        )
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=9)


def small(*shape: int) -> Array:
    """Weights whose products ONNX Runtime does not let saturate, on processors without VNNI."""
    return RNG.integers(-63, 64, shape).astype(np.int8)


def runtime(model: Any, x: Array) -> Array:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {"x": x})[0]


def compiled(model: Any, x: Array, rows: bool) -> Array:
    mod = from_onnx(model)
    with rx.transform.PassContext(disabled_pass=["ComputeInIntegers"] if rows else []):
        return np.asarray(rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x))


def composites(model: Any) -> list[str]:
    return composites_of(from_onnx(model))


def check(model: Any, x: Array, kinds: list[str], exact: bool = True) -> None:
    """The composites, and the values beside rows and ONNX Runtime: at most a unit apart."""
    assert composites(model) == kinds
    made, rows, peer = compiled(model, x, False), compiled(model, x, True), runtime(model, x)
    assert made.dtype == rows.dtype == peer.dtype
    if made.dtype == np.float32:
        np.testing.assert_allclose(made, rows, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(made, peer, rtol=1e-4, atol=1e-4)
        return
    assert len(np.unique(rows)) > 20
    if exact:
        np.testing.assert_array_equal(made, rows)
    for other in (rows, peer):
        apart = np.abs(made.astype(int) - other.astype(int))
        assert apart.max() <= 1
        assert np.mean(apart) < 0.02


def image(*shape: int) -> Array:
    return 3 * RNG.standard_normal(shape).astype(np.float32)


def qlinear_conv(
    m: Model, x: str, weight: Array, scales: tuple[Any, Any, Any], zeros: Any, **how: Any
) -> str:
    """``scales`` and ``zeros``: of the image, the weight and the result."""
    pairs = [m.how(s, z) for s, z in zip(scales, zeros, strict=True)]
    bias = m.weight(RNG.integers(-900, 900, len(weight)), np.int32)
    return m.node(
        "QLinearConv",
        x,
        *pairs[0],
        m.weight(weight, weight.dtype),
        *pairs[1],
        *pairs[2],
        bias,
        **how,
    )


def test_a_network_of_quantised_operators() -> None:
    """Layouts are changed once, before the first convolution, and after the last addition."""
    m = Model(1, 3, 14, 13)
    by_channel = (0.02 + 0.01 * RNG.random(8)).astype(np.float32)
    q = m.quantised("x")
    zeros: Any = (FIRST, np.zeros(8, np.int8), np.uint8(90))
    where = {"strides": [2, 1], "pads": [2, 1, 2, 3]}
    a = qlinear_conv(m, q, small(8, 3, 5, 5), (0.05, by_channel, 0.3), zeros, **where)
    b = m.node("MaxPool", a, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    zeros = (np.uint8(90), np.int8(0), np.uint8(0))
    c = qlinear_conv(m, b, small(16, 8, 1, 1), (0.3, 0.02, 0.4), zeros)
    zeros = (zeros[2], np.int8(0), np.uint8(128))
    where = {"pads": [1, 1, 1, 1], "group": 4}
    d = qlinear_conv(m, c, small(16, 4, 3, 3), (0.4, 0.02, 0.5), zeros, **where)
    pairs = [m.how(*p) for p in ((0.5, np.uint8(128)), (0.4, np.uint8(0)), (0.45, np.uint8(100)))]
    e = m.node("QLinearAdd", d, *pairs[0], c, *pairs[1], *pairs[2], domain="com.microsoft")
    model = m.made(e, 4)
    convolutions = ["convolution", "max_pool", "convolution", "convolution"]
    check(model, image(1, 3, 14, 13), ["quantisation", *convolutions, "sum"], exact=False)
    mod = ComputeInIntegers()(from_onnx(model))
    values = [b.value for b in bindings_of(mod["main"].body)]
    moved = [v for v in values if is_op(v, "relax.permute_dims") and v.struct_info.ndim == 4]
    images = [v for v in moved if v.struct_info.dtype == "uint8"]
    assert len([v for v in images if v.attrs["axes"] == (0, 2, 3, 1)]) == 1


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_zero_points_of_every_sign(kind: Any) -> None:
    """Weights of uint8 with a zero point of their own, and images of int8."""
    m = Model(2, 6, 7, 7, dtype=kind)
    weight = (small(6, 6, 3, 3).astype(int) + 128).astype(np.uint8)
    scales = (0.05, np.full(6, 0.01, np.float32), 0.1)
    zeros = (kind(11), np.full(6, 131, np.uint8), kind(64))
    last = qlinear_conv(m, "x", weight, scales, zeros, pads=[1, 1, 1, 1])
    model = m.made(last, 4, kind)
    x = RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, m.input).astype(kind)
    assert composites(model) == ["convolution"]
    made, rows = compiled(model, x, False), compiled(model, x, True)
    assert len(np.unique(rows)) > 20
    np.testing.assert_array_equal(made, rows)


def test_matrix_products() -> None:
    """By a weight, and of two that are computed."""
    m = Model(2, 9, 12)
    q = m.quantised("x")
    of_q, of_w, of_y = (
        m.how(0.05, np.uint8(120)),
        m.how(0.01, np.int8(0)),
        m.how(0.2, np.uint8(128)),
    )
    y = m.node("QLinearMatMul", q, *of_q, m.weight(small(12, 10), np.int8), *of_w, *of_y)
    turned = m.node("Transpose", y, perm=[0, 2, 1])
    z = m.node("QLinearMatMul", y, *of_y, turned, *of_y, *m.how(1.5, np.uint8(100)))
    model = m.made(z, 3)
    check(model, image(2, 9, 12), ["quantisation", "convolution", "product"], exact=False)


def test_dynamic_quantisation() -> None:
    m = Model(5, 24)
    values, scale, zero = m.node("DynamicQuantizeLinear", "x", count=3)
    weight = m.weight(small(24, 18), np.int8)
    sums = m.node("MatMulInteger", values, weight, zero, m.weight(0, np.int8))
    real = m.node("Cast", sums, to=TensorProto.FLOAT)
    factor = m.node("Mul", scale, m.weight(0.02, np.float32))
    y = m.node("Mul", real, factor)
    last = m.node("Add", y, m.weight(RNG.standard_normal(18), np.float32))
    made = m.made(last, 2, np.float32)
    check(made, image(5, 24), ["quantisation", "convolution"])


def dequantised_weight(m: Model, weight: Array, scale: Any, axis: int) -> str:
    zero = np.zeros(np.shape(scale), np.int8)
    return m.again(m.weight(weight, np.int8), scale, zero, axis)


def test_between_dequantise_and_quantise() -> None:
    """Convolution, relu, addition, pooling and a product, all in float32 by the model."""
    m = Model(1, 4, 10, 10)
    first = (0.05, np.uint8(120))
    by_channel = (0.02 + 0.01 * RNG.random(8)).astype(np.float32)
    x = m.again(m.quantised("x", *first), *first)
    bias = m.again(m.weight(RNG.integers(-900, 900, 8), np.int32), 0.001, np.int32(0))
    y = m.node("Conv", x, dequantised_weight(m, small(8, 4, 3, 3), by_channel, 0), bias)
    second = (0.2, np.uint8(0))
    y = m.again(m.quantised(m.node("Relu", y), *second), *second)
    third = (0.25, np.uint8(100))
    z = m.node("Conv", y, dequantised_weight(m, small(8, 8, 1, 1), by_channel, 0))
    z = m.again(m.quantised(z, *third), *third)
    both = m.again(m.quantised(m.node("Add", y, z), *third), *third)
    pooled = m.node("MaxPool", both, kernel_shape=[2, 2], strides=[2, 2])
    pooled = m.again(m.quantised(pooled, *third), *third)
    flat = m.node("Flatten", pooled)
    product = m.node("MatMul", flat, dequantised_weight(m, small(128, 90), 0.01, 1))
    model = m.made(m.quantised(product, 1.0, np.uint8(128)), 2)
    kinds = composites(model)
    assert kinds[:4] == ["quantisation", "convolution", "convolution", "sum"]
    assert kinds[-1] == "convolution"
    check(model, image(1, 4, 10, 10), kinds, exact=False)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_windows_between_dequantise_and_quantise(kind: Any) -> None:
    """The largest of bytes, where the scale is what it was and no window is all padding."""
    m = Model(2, 9, 19, 18, dtype=kind)
    # No quotient of the scales times a byte is near a half, which XLA would round as it likes.
    same, other = (0.03, kind(7)), (0.0411, kind(9))
    where: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 2, 1, 0]}
    y = m.quantised(m.node("MaxPool", m.again("x", *same), **where), *same)
    z = m.node("MaxPool", m.again(y, *same), kernel_shape=[2, 2], dilations=[2, 2])
    z = m.node("QuantizeLinear", m.again(m.quantised(z, *same), *same), *m.how(*other))
    x = RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, m.input).astype(kind)
    check(m.made(z, 4, kind), x, ["max_pool", "quantisation", "quantisation"], exact=True)


def test_sums_that_others_read_stay() -> None:
    """A product is not computed twice: what two operators read is a value of its own."""
    m = Model(3, 16, dtype=np.uint8)
    sums = m.node("MatMulInteger", "x", m.weight(small(16, 12), np.int8), m.weight(7, np.uint8))
    real = m.node("Cast", sums, to=TensorProto.FLOAT)
    doubled = m.node("Mul", real, m.weight(2, np.float32))
    model = m.made(m.node("Add", doubled, real), 2, np.float32)
    x = RNG.integers(0, 256, (3, 16)).astype(np.uint8)
    check(model, x, ["convolution"])


def test_any_batch() -> None:
    """Shapes that are known at the call alone: the pass runs again then."""
    m = Model(1, 4, 8, 8)
    scales = (0.05, np.full(6, 0.02, np.float32), 0.2)
    zeros = (np.uint8(120), np.zeros(6, np.int8), np.uint8(128))
    y = qlinear_conv(m, m.quantised("x"), small(6, 4, 3, 3), scales, zeros, pads=[1, 1, 1, 1])
    model = m.made(y, 4)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]
    x = image(3, 4, 8, 8)
    made, rows = compiled(model, x, False), compiled(model, x, True)
    np.testing.assert_array_equal(made, rows)


def test_products_of_which_only_one_has_sizes_before_the_call() -> None:
    """Its composite is made with the executable, the other one when it is called."""
    m = Model(2, 32)
    x = m.quantised("x")
    for width in (24, 16):
        weight = m.weight(small(32, width) if width == 24 else small(24, 16), np.int8)
        right = [m.weight(0.01, np.float32), m.weight(0, np.int8)]
        scales = m.how(0.05, FIRST), m.how(0.05, FIRST)
        x = m.node("QLinearMatMul", x, *scales[0], weight, *right, *scales[1])
        x = m.node("Reshape", x, m.weight([2, width], np.int64))
    model = m.made(x, 2)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    given = image(2, 32)
    made, peer = compiled(model, given, False), runtime(model, given)
    assert np.abs(made.astype(int) - peer.astype(int)).max() <= 1


def test_without_a_compiler_rows_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Model(3, 16, dtype=np.uint8)
    model = m.made(m.node("MatMulInteger", "x", m.weight(small(16, 12), np.int8)), 2, np.int32)
    mod = from_onnx(model)
    monkeypatch.setattr(integers, "may_call", lambda: False)
    assert ComputeInIntegers()(mod) is mod
    monkeypatch.setenv("CXX", "no-such-compiler")
    native.may_call.cache_clear()
    assert not native.may_call()
    native.may_call.cache_clear()


def test_other_programs_stay_as_they_are() -> None:
    m = Model(3, 16)
    model = m.made(m.node("MatMul", "x", m.weight(image(16, 12), np.float32)), 2, np.float32)
    mod = from_onnx(model)
    assert ComputeInIntegers()(mod) is mod
