"""The operators of com.microsoft against ONNX Runtime, one node at a time."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from relax2xla.errors import OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.importers.onnx.engine.converters import CONVERTERS, REQUIRED
from relax2xla.importers.onnx.engine.model import load_converters
from tests.importers.onnx.support import Arrays, ours, theirs, value

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
F32 = np.float32
HEADS, SIZE = 2, 8
WIDTH = HEADS * SIZE


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


def i32(*values: Any) -> Any:
    return np.array(values, np.int32)


def u8(*shape: int) -> Any:
    return RNG.integers(0, 256, shape, np.uint8)


def i8(*shape: int) -> Any:
    """Seven bits: ONNX Runtime's products of uint8 and int8 saturate on older processors."""
    return RNG.integers(-64, 64, shape, np.int8)


def s(number: float) -> Any:
    return np.array(number, F32)


def z(number: int, dtype: Any = np.uint8) -> Any:
    return np.array(number, dtype)


def typed(output: str) -> Any:
    """An output; the type of a fourth one (scores of attention) ONNX Runtime does not infer."""
    if output == "y3":
        return helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)
    return helper.make_empty_tensor_value_info(output)


def model_of(
    op: str,
    arrays: list[Any],
    outputs: Any = 1,
    known: Any = (),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> tuple[onnx.ModelProto, list[Any]]:
    """A model of one node; ``outputs``: how many, or for each whether it is asked for."""
    names = [f"x{at}" if a is not None else "" for at, a in enumerate(arrays)]
    given = {n: np.asarray(a) for n, a in zip(names, arrays, strict=True) if a is not None}
    weights = {names[at] for at in known}
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    made = [f"y{at}" if w else "" for at, w in enumerate(wanted)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, name="the_node", domain=domain, **attributes)],
        "g",
        [value(n, a) for n, a in given.items() if n not in weights],
        [typed(o) for o in made if o],
        [numpy_helper.from_array(given[n], n) for n in sorted(weights)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return model, [a for n, a in given.items() if n not in weights]


def agree(model: onnx.ModelProto, inputs: Arrays, tolerance: float = 2e-5) -> None:
    """Integers, which are results of a quantisation, may differ by one."""
    got, want = ours(model, inputs), theirs(model, inputs)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if g.dtype.kind in "iu":
            gap = np.abs(g.astype(np.int64) - w.astype(np.int64))
            assert gap.max(initial=0) <= 1
            assert (gap > 0).mean() < 0.2
        else:
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


TABLE = f(9, 6)
QUANT = [s(0.05), z(120)]
QUANT2 = [s(0.03), z(100)]
SIGNED = [s(0.04), z(3, np.int8)]
ANGLES = np.outer(np.arange(12), 1 / 100 ** (np.arange(SIZE // 2) / (SIZE // 2))).astype(F32)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)


def i64(*values: Any) -> Any:
    return np.array(values, np.int64)


def block_table(dtype: Any, bits: int, axis: int, zeros: bool, gather_axis: int = 0) -> Case:
    """A table of 5 rows of 64 numbers, in blocks of 16 along ``axis``."""
    whole, blocks = [5, 64], [5, 64]
    if axis == 0:
        whole, blocks = [40, 6], [40, 6]
    blocks[axis] = -(-blocks[axis] // 16)
    each = 8 // bits if dtype == np.uint8 else 1
    shape, spots = [*whole[:-1], whole[-1] // each], [*blocks[:-1], -(-blocks[-1] // each)]
    if dtype == np.uint8:
        data, zero = (RNG.integers(0, 256, s, np.uint8) for s in (shape, spots))
    else:
        low = -8 if dtype == ml_dtypes.int4 else 0
        data, zero = (RNG.integers(low, low + 16, s).astype(dtype) for s in (shape, spots))
    index = i64([0, 3], [-1, 2])
    arrays = [data, index, f(*blocks), *([zero] if zeros else [])]
    more = {"bits": bits, "block_size": 16, "quantize_axis": axis, "gather_axis": gather_axis}
    return ("GatherBlockQuantized", arrays, {**more, "known": [0, 2, 3][: 2 + zeros]})


Case = tuple[str, list[Any], dict[str, Any]]
CASES: list[Case] = [
    ("Trilu", [f(2, 3, 4)], {"upper": 0}),
    ("Trilu", [f(3, 4), np.array(1, np.int64)], {"known": [1]}),
    ("GridSample", [f(2, 3, 5, 4), f(2, 3, 2, 2)], {"align_corners": 1, "padding_mode": "border"}),
    ("GridSample", [f(1, 2, 5, 4), f(1, 3, 2, 2)], {}),
    ("GatherND", [f(3, 4, 2), i64([0, 1], [2, 3])], {}),
    ("TransposeMatMul", [f(4, 3), f(4, 5)], {"transA": 1, "alpha": 0.5}),
    ("Pad", [f(2, 3), i64(1, 0, 0, 2), s(7)], {}),
    ("Pad", [f(2, 3), i64(1, 0, 0, 2)], {"mode": "edge", "known": [1]}),
    ("Range", [s(1), s(9), s(2.5)], {}),
    ("Range", [np.array(1, np.int32), np.array(9, np.int32)], {"known": [0, 1]}),
    ("ExpandDims", [f(2, 3), np.array(-1, np.int32)], {"known": [1]}),
    ("Unique", [f(3)[[1, 0, 0, 2, 1]]], {"outputs": 3}),
    ("UnfoldTensor", [f(2, 7, 3)], {"dim": 1, "size": 3, "step": 2}),
    ("UnfoldTensor", [f(2, 7)], {"size": 7}),
    ("Inverse", [f(2, 3, 5, 5)], {}),
    ("Inverse", [np.array([[0, 1], [2, 0]], F32)], {}),
    ("CDist", [f(4, 3), f(5, 3)], {"metric": "euclidean"}),
    ("CDist", [f(4, 3), f(5, 3)], {"metric": "sqeuclidean"}),
    ("NGramRepeatBlock", [i64([1, 2, 3, 1, 2], [0, 1, 0, 1, 0]), f(2, 6)], {"ngram_size": 2}),
    ("NGramRepeatBlock", [i64([1, 2, 3, 1, 2]), f(1, 6)], {"ngram_size": 3}),
    ("NGramRepeatBlock", [i64([1, 2, 3, 1, 2]), f(1, 6)], {"ngram_size": 1}),
    ("NGramRepeatBlock", [i64([1, 2]), f(1, 6)], {"ngram_size": 3}),
    (
        "MatMulBnb4",
        [f(2, 3, 32), u8(160), f(20)],
        {"K": 32, "N": 10, "block_size": 16, "quant_type": 0, "known": [1, 2]},
    ),
    (
        "MatMulBnb4",
        [f(3, 12), u8(30), f(4)],
        {"K": 12, "N": 5, "block_size": 16, "quant_type": 1, "known": [1, 2]},
    ),
    block_table(np.uint8, 4, 1, True),
    block_table(np.uint8, 4, 1, False),
    block_table(np.uint8, 8, 1, True),
    block_table(np.uint8, 8, 1, False),
    block_table(np.uint8, 2, 1, True),
    block_table(ml_dtypes.int4, 4, 1, True),
    block_table(ml_dtypes.int4, 4, 1, False),
    block_table(ml_dtypes.uint4, 4, 1, False),
    block_table(ml_dtypes.int4, 4, 0, True, 1),
    ("Gelu", [f(3, 4)], {}),
    ("BiasGelu", [f(3, 4), f(4)], {}),
    ("FastGelu", [f(3, 4)], {}),
    ("FastGelu", [f(3, 4), f(4)], {}),
    ("QuickGelu", [f(3, 4)], {}),
    ("QuickGelu", [f(3, 4)], {"alpha": 1.0}),
    ("SimplifiedLayerNormalization", [f(2, 3, 4), f(4)], {"domain": "", "outputs": 1}),
    ("SimplifiedLayerNormalization", [f(2, 3, 4), f(3, 4)], {"domain": "", "axis": 1}),
    ("SkipLayerNormalization", [f(2, 3, 4), f(2, 3, 4), f(4)], {}),
    (
        "SkipLayerNormalization",
        [f(2, 3, 4), f(2, 3, 4), f(4), f(4), f(4)],
        {"epsilon": 1e-3, "outputs": [True, False, False, True]},
    ),
    ("SkipLayerNormalization", [f(2, 3, 4), f(3, 4), f(4), f(4)], {}),
    (
        "SkipSimplifiedLayerNormalization",
        [f(2, 3, 4), f(2, 3, 4), f(4), f(4)],
        {"outputs": [True, False, False, True]},
    ),
    (
        "EmbedLayerNormalization",
        [
            i32([0, 3, 2], [1, 1, 4]),
            i32([0, 1, 1], [0, 0, 1]),
            TABLE,
            f(5, 6),
            f(2, 6),
            f(6),
            f(6),
            i32([1, 1, 0], [1, 1, 1]),
        ],
        {"outputs": 3, "epsilon": 1e-5},
    ),
    (
        "EmbedLayerNormalization",
        [i32([0, 3, 2]), None, TABLE, f(5, 6), None, f(6), f(6), None, i32([4, 0, 1])],
        {"outputs": 2},
    ),
    ("FusedMatMul", [f(2, 4, 3), f(2, 4, 5)], {"transA": 1, "alpha": 0.5}),
    ("FusedMatMul", [f(3, 4), f(5, 4)], {"transB": 1}),
    ("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}),
    (
        "FusedMatMul",
        [f(4, 2, 3), f(5, 2, 4)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1} | {"transB": 1},
    ),
    ("FusedConv", [f(1, 2, 6, 6), f(3, 2, 3, 3), f(3)], {"activation": "Relu", "pads": [1] * 4}),
    (
        "FusedConv",
        [f(1, 2, 6, 6), f(3, 2, 3, 3), None, f(1, 3, 4, 4)],
        {"activation": "Relu"},
    ),
    (
        "FusedConv",
        [f(1, 2, 6, 6), f(3, 2, 3, 3)],
        {"activation": "LeakyRelu", "activation_params": [0.2]},
    ),
    (
        "FusedConv",
        [f(1, 2, 6, 6), f(3, 2, 3, 3)],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    ("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Relu", "alpha": 0.5}),
    (
        "FusedGemm",
        [f(4, 3), f(5, 4)],
        {"transA": 1, "transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    (
        "FusedGemm",
        [f(3, 4), f(4, 5), f(3, 1)],
        {"beta": 2.0, "activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.6},
    ),
    ("NhwcMaxPool", [u8(1, 6, 7, 3)], {"kernel_shape": [2, 3], "strides": [2, 2]}),
    ("NhwcMaxPool", [i8(1, 6, 7, 3)], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    # -- weights of few bits
    *(
        (
            "MatMulNBits",
            [f(2, 3, k), u8(5, -(-k // 16), 2 * bits), f(5, -(-k // 16)), zero, None, bias],
            {"K": k, "N": 5, "bits": bits, "block_size": 16, "known": known},
        )
        for k, bits, zero, bias, known in (
            (32, 4, None, None, (1, 2)),
            (40, 4, u8(5, 2), f(5), (1, 2, 3, 5)),
            (40, 8, u8(5, 3), None, (1, 2, 3)),
            (32, 8, None, None, (1, 2)),
            (48, 2, u8(5, 1), None, (1, 2, 3)),
        )
    ),
    (
        "MatMulNBits",
        [f(2, 32), u8(5, 2, 8), f(5, 2), f(5, 2) * 4 + 8],
        {"K": 32, "N": 5, "block_size": 16, "known": (1, 2, 3)},
    ),
    (
        "MatMulNBits",
        [f(2, 32), u8(5, 2, 8), f(5, 2), None, RNG.permutation(np.arange(32) // 16).astype("i4")],
        {"K": 32, "N": 5, "block_size": 16, "known": (1, 2, 4)},
    ),
    # -- quantised
    ("QLinearAdd", [u8(3, 4), *QUANT, u8(4), *QUANT2, s(0.09), z(90)], {}),
    (
        "QLinearAdd",
        [i8(3, 4), *SIGNED, i8(3, 4), s(0.02), z(0, np.int8), s(0.09), z(2, np.int8)],
        {},
    ),
    ("QLinearMul", [u8(3, 4), *QUANT, u8(3, 1), *QUANT2, s(0.2), z(90)], {}),
    ("QLinearSigmoid", [u8(20), *QUANT, s(1 / 256), z(0)], {}),
    ("QLinearLeakyRelu", [i8(20), *SIGNED, s(0.04), z(-5, np.int8)], {"alpha": 0.2}),
    ("QLinearSoftmax", [u8(2, 3, 4), *QUANT, s(1 / 256), z(0)], {"opset": 13, "axis": 1}),
    ("QLinearSoftmax", [u8(2, 3, 4), *QUANT, s(1 / 256), z(0)], {"opset": 11, "axis": 1}),
    (
        "QLinearWhere",
        [np.array([True, False, True]), u8(2, 3), *QUANT, u8(2, 3), *QUANT2, s(0.06), z(128)],
        {"known": (2, 3, 5, 6, 7, 8)},
    ),
    (
        "QLinearConcat",
        [s(0.06), z(128), u8(2, 3), *QUANT, u8(2, 2), *QUANT2],
        {"axis": 1, "known": (0, 1, 3, 4, 6, 7)},
    ),
    (
        "QLinearAveragePool",
        [u8(1, 2, 6, 6), *QUANT, s(0.04), z(110)],
        {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]},
    ),
    (
        "QLinearAveragePool",
        [u8(1, 6, 6, 2), *QUANT, s(0.04), z(110)],
        {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1, "channels_last": 1},
    ),
    *(
        (
            "QLinearAveragePool",
            [u8(1, 5, 6, 2) if last else u8(1, 2, 5, 6), *QUANT, s(0.04), z(110)],
            {
                "kernel_shape": [3, 2],
                "pads": [1, 1, 0, 1],
                "strides": [2, 3],
                "ceil_mode": 1,
                "count_include_pad": 1,
                "channels_last": last,
            },
        )
        for last in (0, 1)
    ),
    ("QLinearGlobalAveragePool", [u8(1, 3, 5, 5), *QUANT, s(0.02), z(110)], {}),
    (
        "QLinearGlobalAveragePool",
        [u8(1, 5, 5, 3), *QUANT, s(0.02), z(110)],
        {"channels_last": 1},
    ),
    (
        "QLinearConv",
        [
            u8(1, 6, 6, 3),
            *QUANT,
            i8(4, 3, 3, 3),
            s(0.02),
            z(0, np.int8),
            s(0.3),
            z(128),
            i32(10, -300, 77, 1000),
        ],
        {"channels_last": 1, "known": (1, 2, 3, 4, 5, 6, 7, 8)},
    ),
    ("QGemm", [u8(3, 4), *QUANT, u8(4, 5), *QUANT2, i32(1, 2, -3, 400, 5)], {}),
    (
        "QGemm",
        [u8(4, 3), *QUANT, i8(5, 4), RNG.random(5, F32), i8(5), None, s(2.0), z(30)],
        {"transA": 1, "transB": 1, "alpha": 0.5, "known": (1, 2, 4, 5, 7, 8)},
    ),
    ("MatMulIntegerToFloat", [u8(2, 3, 4), u8(4, 5), s(0.1), s(0.2), z(9), z(3), f(5)], {}),
    (
        "MatMulIntegerToFloat",
        [u8(3, 4), i8(4, 5), s(0.1), RNG.random(5, F32), None, i8(5)],
        {"known": (1, 3, 5)},
    ),
    ("DynamicQuantizeMatMul", [f(3, 4), u8(4, 5), s(0.2), z(3), f(5)], {"known": (1,)}),
    ("DynamicQuantizeMatMul", [f(2, 3, 4), i8(4, 5), RNG.random(5, F32)], {"known": (1, 2)}),
    ("QuantizeLinear", [f(6) * 9000, s(0.5), z(100, np.uint16)], {}),
    ("DequantizeLinear", [RNG.integers(0, 9999, 6).astype("i2"), s(0.5), z(3, np.int16)], {}),
]
# -- attention
LEN = 5
QKV = [f(2, LEN, 6), f(6, 3 * WIDTH), f(3 * WIDTH)]
PAST = f(2, 2, HEADS, 3, SIZE)
TRIPLE = [f(2, LEN, WIDTH), f(2, 7, WIDTH), f(2, 7, WIDTH)]
PARTS = f(3 * WIDTH)
CASES += [
    ("Attention", QKV, {"num_heads": HEADS}),
    ("Attention", QKV, {"num_heads": HEADS, "unidirectional": 1, "scale": 0.3}),
    ("Attention", [*QKV, i32(5, 3)], {"num_heads": HEADS}),
    ("Attention", [*QKV, i32([1, 1, 1, 1, 0], [1, 0, 1, 1, 1])], {"num_heads": HEADS}),
    (
        "Attention",
        [*QKV, (RNG.random((2, LEN, LEN)) > 0.3).astype("i4")],
        {"num_heads": HEADS, "mask_filter_value": -500.0},
    ),
    ("Attention", [*QKV, i32(5, 3, 1, 0)], {"num_heads": HEADS}),
    ("Attention", [*QKV, i32(5, 3, 0, 5, 10, 0, 5, 10)], {"num_heads": HEADS}),
    (
        "Attention",
        [*QKV, i32([1] * LEN, [1] * 3 + [0] * 2), None, f(1, HEADS, LEN, LEN)],
        {"num_heads": HEADS, "unidirectional": 1},
    ),
    (
        "Attention",
        [*QKV, i32([1] * 7 + [0], [0] + [1] * 7), PAST],
        {"num_heads": HEADS, "outputs": 2, "unidirectional": 1},
    ),
    (
        "Attention",
        [f(2, LEN, 6), f(6, 2 * WIDTH + 2 * HEADS), f(2 * WIDTH + 2 * HEADS)],
        {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH, WIDTH, 2 * HEADS]},
    ),
    (
        "QAttention",
        [
            u8(2, LEN, 6),
            i8(6, 3 * WIDTH),
            f(3 * WIDTH),
            s(0.02),
            s(0.03),
            i32(5, 3),
            z(128),
            z(0, np.int8),
        ],
        {"num_heads": HEADS, "known": (1,)},
    ),
    (
        "QAttention",
        [
            u8(2, LEN, 6),
            u8(6, 3 * WIDTH),
            f(3 * WIDTH),
            s(0.02),
            s(0.01),
            None,
            z(120),
            z(128),
            PAST,
        ],
        {"num_heads": HEADS, "known": (1,), "outputs": 2, "unidirectional": 1},
    ),
    ("MultiHeadAttention", TRIPLE, {"num_heads": HEADS}),
    ("MultiHeadAttention", [*TRIPLE, PARTS], {"num_heads": HEADS, "scale": 0.2, "outputs": 3}),
    ("MultiHeadAttention", [*TRIPLE, None, i32(7, 4)], {"num_heads": HEADS}),
    (
        "MultiHeadAttention",
        [*TRIPLE, None, i32([1, 1, 1, 1, 0, 1, 1], [1] * 7), f(1, 1, LEN, 7)],
        {"num_heads": HEADS},
    ),
    (
        "MultiHeadAttention",
        [
            f(2, LEN, WIDTH),
            f(2, LEN, WIDTH),
            f(2, LEN, WIDTH),
            None,
            None,
            None,
            f(2, HEADS, 3, SIZE),
            f(2, HEADS, 3, SIZE),
        ],
        {"num_heads": HEADS, "unidirectional": 1, "outputs": 3},
    ),
    (
        "MultiHeadAttention",
        [f(2, LEN, WIDTH), f(2, HEADS, 7, SIZE), f(2, HEADS, 7, SIZE)],
        {"num_heads": HEADS},
    ),
    *(
        (
            "MultiHeadAttention",
            [f(2, 4, WIDTH), f(2, 4, WIDTH), f(2, 4, WIDTH), None, mask, bias],
            {"num_heads": HEADS, "unidirectional": causal, "outputs": 4},
        )
        for mask, bias, causal in ((i32(4, 2), f(1, 1, 4, 4), 0), (None, None, 1))
    ),
    (
        "MultiHeadAttention",
        [
            *(f(2, 1, WIDTH) for _ in range(3)),
            *[None] * 3,
            *(f(2, HEADS, 8, SIZE) for _ in range(2)),
            i32(3),
        ],
        {"num_heads": HEADS, "outputs": 3},
    ),
    (
        "MultiHeadAttention",
        [f(2, HEADS, LEN, SIZE)[:, 0].repeat(2, 2), f(2, 7, WIDTH), f(2, 7, 4)],
        {"num_heads": HEADS},
    ),
    (
        "RotaryEmbedding",
        [f(2, HEADS, 3, SIZE), np.array([2], np.int64), COS, SIN],
        {},
    ),
    (
        "RotaryEmbedding",
        [f(2, 3, WIDTH), np.array([[0, 1, 5], [3, 4, 4]], np.int64), COS, SIN],
        {"interleaved": 1},
    ),
    (
        "RotaryEmbedding",
        [f(1, 3, WIDTH), np.array([[0, 1, 5]], np.int64), COS[:, :2], SIN[:, :2]],
        {"num_heads": HEADS, "rotary_embedding_dim": 4},
    ),
]
BIG = 16
COS2, SIN2 = np.tile(COS, 2), np.tile(SIN, 2)
GQA = {"num_heads": 4, "kv_num_heads": 2, "known": (6,), "outputs": 3}


def gqa(length: int, past: int, ends: list[int], total: int, *more: Any, **attributes: Any) -> Case:
    batch = len(ends)
    q, k = f(batch, length, 4 * BIG), f(batch, length, 2 * BIG)
    cache = [f(batch, 2, past, BIG), f(batch, 2, past, BIG)] if past else [None, None]
    lens = [np.array(ends, np.int32) - 1, np.array(total, np.int32)]
    return (
        "GroupQueryAttention",
        [q, k, f(batch, length, 2 * BIG), *cache, *lens, *more],
        {**GQA, **attributes},
    )


CASES += [
    gqa(4, 0, [4, 4], 4),
    gqa(4, 0, [4, 4], 4, COS2, SIN2, do_rotary=1),
    gqa(4, 0, [4, 4], 4, COS2, SIN2, do_rotary=1, rotary_interleaved=1, local_window_size=2),
    gqa(1, 6, [7, 7], 7, COS2, SIN2, do_rotary=1),
    gqa(1, 6, [7, 7], 7, COS2, SIN2, do_rotary=1, local_window_size=3),
    gqa(3, 4, [7], 7, COS2, SIN2, do_rotary=1),
    gqa(1, 8, [5, 5], 5, softcap=2.0, scale=0.5),
    gqa(1, 4, [5, 5], 5, smooth_softmax=1),
    gqa(1, 4, [5, 5], 5, None, None, None, f(2, 1, 1, 5)),
    gqa(2, 0, [2], 2, None, None, None, None, f(4)),
    gqa(3, 0, [3, 3], 3, None, None, None, f(1, 1, 3, 3), softcap=2.0, qk_output=1, outputs=4),
    gqa(1, 6, [5, 5], 5, qk_output=2, outputs=4),
    (
        "GroupQueryAttention",
        [f(1, 3, 8 * BIG), None, None, None, None, i32(2), np.array(3, np.int32)],
        GQA,
    ),
]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}_{at}")
def test_one_operator(at: int) -> None:
    op, arrays, more = CASES[at]
    agree(*model_of(op, arrays, **more))


@pytest.fixture(autouse=True, scope="module")
def _converters() -> None:
    load_converters()


def test_every_operator_has_a_case() -> None:
    """Two are tested beside: ONNX Runtime has one in another domain, and no kernel of the other."""
    ops = {op for domain, op in CONVERTERS if domain == "com.microsoft"}
    assert len(ops) > 30
    tried = {op for op, _, _ in CASES} | {"QLinearReduceMean", "MatMulInteger16"}
    assert ops == tried, "give each a row of CASES, which ONNX Runtime computes, too"


@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_mean_of_quantised_values(keepdims: int) -> None:
    """ONNX Runtime has its schema and no kernel."""
    x = u8(2, 3, 4)
    arrays = [x, *QUANT, s(0.04), z(110)]
    (got,) = ours(*model_of("QLinearReduceMean", arrays, axes=[-2], keepdims=keepdims))
    mean = ((x - F32(120)) * F32(0.05)).mean(1, keepdims=bool(keepdims)) / F32(0.04)
    want = np.clip(np.round(mean) + 110, 0, 255).astype(np.uint8)
    assert got.shape == want.shape
    assert np.abs(got.astype(int) - want).max() <= 1


def test_columns_of_weights_name_the_block_of_their_packed_zero_point() -> None:
    """ONNX Runtime 1.31 mixes these zero points up."""
    a, packed, scales, zeros = f(2, 32), u8(5, 2, 8), f(5, 2), u8(5, 1)
    block = RNG.permutation(np.arange(32) // 16).astype(np.int32)
    inputs = [a, packed, scales, zeros, block]
    form: dict[str, Any] = {"K": 32, "N": 5, "block_size": 16, "known": (1, 2, 3, 4)}
    (got,) = ours(*model_of("MatMulNBits", inputs, **form))
    weight, zero = (np.stack([x & 15, x >> 4], -1).reshape(5, -1) for x in (packed, zeros))
    full = (weight - zero[:, block].astype(F32)) * scales[:, block]
    np.testing.assert_allclose(got, a @ full.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mask", "past"),
    [(i32(5, 3, 4), None), (i32(*[[1, 1, 0, 1, 1]] * 3), None), (None, f(2, 3, HEADS, 4, SIZE))],
)
def test_a_mask_or_a_past_of_a_fixed_batch_beside_a_symbolic_one(mask: Any, past: Any) -> None:
    arrays = [f(3, LEN, 6), *QKV[1:], mask, past]
    more = {"num_heads": HEADS, "outputs": 2, "known": (1, 2, *([3] if past is None else []))}
    model, inputs = model_of("Attention", arrays, **more)
    for at, name in enumerate(("batch", "length")):
        model.graph.input[0].type.tensor_type.shape.dim[at].dim_param = name
    agree(model, inputs)


def test_packed_keys_and_values_are_those_apart() -> None:
    """ONNX Runtime has packed ones on the GPU only."""
    q, k, v = (f(2, 4, HEADS, SIZE) for _ in range(3))
    apart = [x.reshape(2, 4, WIDTH) for x in (q, k, v)]
    want = ours(*model_of("MultiHeadAttention", apart, num_heads=HEADS))[0]
    for packed in ([np.stack([q, k, v], 3)], [apart[0], np.stack([k, v], 3)]):
        got = ours(*model_of("MultiHeadAttention", packed, num_heads=HEADS))[0]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_queries_and_keys_are_normed_before_they_turn() -> None:
    """The inputs for it, which ONNX Runtime has on the GPU only, and the same by operators."""
    arrays = gqa(3, 0, [3], 3, COS2, SIN2)[1]
    scale = [f(BIG), f(BIG)]
    more = {**GQA, "do_rotary": 1, "outputs": 1}
    missing = [None] * 5
    got = ours(*model_of("GroupQueryAttention", [*arrays, *missing, *scale], **more))[0]
    normed = list(arrays)
    for at in (0, 1):
        x = arrays[at].reshape(1, 3, -1, BIG).astype(np.float64)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale[at]
        normed[at] = x.reshape(arrays[at].shape).astype(F32)
    want = ours(*model_of("GroupQueryAttention", normed, **more))[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


REFUSED: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Attention", QKV, {"num_heads": HEADS, "do_rotary": 1}, "do_rotary=1; supported: 0"),
    (
        "MatMulNBits",
        [f(2, 32), u8(5, 2, 6), f(5, 2)],
        {"K": 32, "N": 5, "bits": 3, "block_size": 16},
        "bits=3",
    ),
    ("FusedConv", [f(1, 1, 4, 4), f(1, 1, 2, 2)], {"activation": "Mish"}, "activation='Mish'"),
    (gqa(1, 4, [5], 5)[0], gqa(1, 4, [5], 5)[1], {**GQA, "qk_output": 3}, "qk_output=3"),
    ("SampleOp", [f(2)], {}, "no converter"),
    ("Gelu", [f(2), f(2)], {}, "2 inputs; 1 are supported"),
]


@pytest.mark.parametrize("at", range(len(REFUSED)), ids=lambda at: REFUSED[at][0])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_not_supported_is_refused(at: int) -> None:
    op, arrays, more, message = REFUSED[at]
    with pytest.raises(OpNotImplemented, match=message):
        from_onnx(model_of(op, arrays, **more)[0])


@pytest.mark.parametrize("kinds", [("int16", "uint16"), ("uint16", "uint16"), ("int16", "int16")])
def test_products_of_16_bits(kinds: tuple[str, str]) -> None:
    """Summed up in 32 bits, which wrap around; ONNX Runtime has it without a kernel for CPUs."""
    a, b = RNG.integers(0, 2**15, (2, 3)), RNG.integers(0, 2**15, (3, 4))
    given = [a.astype(kinds[0]) * 3, b.astype(kinds[1]) * 3]
    model, inputs = model_of("MatMulInteger16", given)
    kind = np.uint32 if kinds == ("uint16", "uint16") else np.int32
    (made,) = ours(model, inputs)
    assert made.dtype == kind
    np.testing.assert_array_equal(made, given[0].astype(kind) @ given[1].astype(kind))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_products_of_16_bits_refuse_others() -> None:
    with pytest.raises(ValueError, match="input B is int8"):
        from_onnx(model_of("MatMulInteger16", [np.ones((1, 1), np.int16), i8(1, 1)])[0])


def test_saved_statistics_of_a_skipped_layer_norm() -> None:
    """Which ONNX Runtime leaves out on CPUs: mean and 1 / deviation of the sum."""
    x, skip = f(2, 3, 4), f(2, 3, 4)
    model, inputs = model_of("SkipLayerNormalization", [x, skip, f(4)], 3, epsilon=1e-3)
    _, mean, scale = ours(model, inputs)
    total = (x + skip).astype(np.float64)
    np.testing.assert_allclose(mean, total.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    deviation = np.sqrt(total.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(scale, 1 / deviation, rtol=1e-5)


def test_layer_norm_before_opset_17() -> None:
    """ONNX Runtime had it there already."""
    model, inputs = model_of("LayerNormalization", [f(2, 4), f(4)], domain="", axis=1)
    model.opset_import[0].version = 14
    np.testing.assert_allclose(ours(model, inputs)[0], theirs(model, inputs)[0], atol=1e-5)


# Attributes that newer releases of ONNX Runtime brought (1.32); whoever gives one is refused.
NEWER = {"GroupQueryAttention": {"q_norm_epsilon", "k_norm_epsilon"}}


def test_converters_have_the_attributes_of_the_schemas() -> None:
    """Names, defaults and numbers of inputs as ONNX Runtime states them."""
    from onnxruntime.capi import _pybind_state

    schemas = {
        s.name: s for s in _pybind_state.get_all_operator_schema() if s.domain == "com.microsoft"
    }
    bad: list[str] = []
    for (domain, op), forms in CONVERTERS.items():
        if domain != "com.microsoft" or op not in schemas:
            continue
        (c,), schema = forms, schemas[op]
        known_there = set(schema.attributes) - NEWER.get(op, set())
        if set(c.attributes) != known_there:
            bad.append(f"{op}: {set(c.attributes) ^ known_there}")
        for name, default in c.attributes.items():
            known = schema.attributes.get(name)
            if known is not None and known.required != (default is REQUIRED):
                bad.append(f"{op}: {name} is required: {known.required}")
            if known is not None and known._default_value:
                proto = onnx.AttributeProto.FromString(known._default_value)
                real = helper.get_attribute_value(proto)
                real = real.decode() if isinstance(real, bytes) else real
                if default != pytest.approx(real):
                    bad.append(f"{op}: {name} is {default}, the schema's {real}")
        if len(c.inputs) > len(schema.inputs):
            bad.append(f"{op} takes {len(c.inputs)} inputs")
    assert not bad, "\n".join(bad)
