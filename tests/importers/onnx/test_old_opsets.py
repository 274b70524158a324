"""Forms of operators that later opsets changed, against numpy; all of an opset in one model.

ONNX Runtime takes models from opset 7 on, and onnx.reference few of these forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.importers.onnx.support import model_of, ours, value

RNG = np.random.default_rng(0)
F32 = np.float32


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


X, ROW, CUBE = f(3, 4), f(4), f(2, 3, 4)
C3, D23, D34 = f(3), f(2, 3), f(3, 4)
IMAGE = f(1, 3, 4, 6)
SCALE, BIAS, MEAN, VAR = f(3), f(3), f(3), abs(f(3)) + 1
WHOLE = [f(3, 4, 6), f(3, 4, 6), f(3, 4, 6), abs(f(3, 4, 6)) + 1]
A, B, C = f(4, 3), f(4, 5), f(5)


def channels(x: Any) -> Any:
    return x[:, None, None]


def softmax(x: Any, axis: Any) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normed(scale: Any, bias: Any, mean: Any, var: Any, epsilon: float = 1e-5) -> Any:
    return scale * (IMAGE - mean) / np.sqrt(var + epsilon) + bias


def one_hot_of_largest(x: Any) -> Any:
    """Hardmax of a matrix."""
    return np.eye(x.shape[1], dtype=F32)[x.argmax(1)]


# -- recurrent: opset 1 had no attribute layout; the weights are stacked the same
H = 2
SEQUENCE, WEIGHT, RECURRENCE = f(3, 1, 4), f(1, H, 4), f(1, H, H)
GRU_W, GRU_R, GRU_B = f(1, 3 * H, 4), f(1, 3 * H, H), f(1, 6 * H)
LSTM_W, LSTM_R, LSTM_B, PEEP = f(1, 4 * H, 4), f(1, 4 * H, H), f(1, 8 * H), f(1, 3 * H)
STARTS = [f(1, 1, H), f(1, 1, H)]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def rnn() -> list[Any]:
    h = np.zeros((1, H), F32)
    steps = [h := np.tanh(x @ WEIGHT[0].T + h @ RECURRENCE[0].T) for x in SEQUENCE]
    return [np.stack(steps)[:, None], h[None]]


def gru(linear_before_reset: bool) -> Any:
    h = np.zeros((1, H), F32)
    wz, wr, wh = np.split(GRU_W[0], 3)
    rz, rr, rh = np.split(GRU_R[0], 3)
    bz, br, bh, cz, cr, ch = np.split(GRU_B[0], 6)
    for x in SEQUENCE:
        z = sigmoid(x @ wz.T + h @ rz.T + bz + cz)
        r = sigmoid(x @ wr.T + h @ rr.T + br + cr)
        old = r * (h @ rh.T + ch) if linear_before_reset else (r * h) @ rh.T + ch
        h = (1 - z) * np.tanh(x @ wh.T + old + bh) + z * h
    return h[None]


def lstm() -> list[Any]:
    """Gates i, o, f, c; the output sees the new cell, the others the old one."""
    h, c = (x[0] for x in STARTS)
    pi, po, pf = np.split(PEEP[0], 3)
    hs: list[Any] = []
    for x in SEQUENCE:
        sums = x @ LSTM_W[0].T + h @ LSTM_R[0].T + LSTM_B[0, : 4 * H] + LSTM_B[0, 4 * H :]
        i, o, forget, new = np.split(sums, 4, 1)
        c = sigmoid(forget + pf * c) * c + sigmoid(i + pi * c) * np.tanh(new)
        h = sigmoid(o + po * c) * np.tanh(c)
        hs.append(h)
    return [np.stack(hs)[:, None], h[None], c[None]]


def scan() -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Opset 8: a batch in front, and lengths, which come first; running sums."""
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        "body",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in ("t", "u")],
    )
    start = f(2, 4)
    sums = start[:, None] + CUBE.cumsum(1)
    return [None, start, CUBE], {"body": body, "num_scan_inputs": 1}, [sums[:, -1], sums]


SCAN = scan()
# A new one for each: names of inputs, which are initializers.
Case = tuple[str, list[Any], dict[str, Any], list[Any]]
CASES: dict[int, list[Case]] = {
    1: [
        ("Reshape", [CUBE], {"shape": [0, -1]}, [CUBE.reshape(2, 12)]),
        (
            "Pad",
            [X],
            {"paddings": [0, 1, 1, 0], "value": 3.0},
            [np.pad(X, [(0, 1), (1, 0)], constant_values=3)],
        ),
        ("Slice", [X], {"starts": [1, -3], "ends": [100, -1]}, [X[1:, -3:-1]]),
        ("Slice", [X], {"starts": [1], "ends": [3], "axes": [1]}, [X[:, 1:3]]),
        ("Squeeze", [X[None, :, None]], {"axes": [0]}, [X[:, None]]),
        ("Squeeze", [X[None, :, None]], {"axes": [0, 2]}, [X]),
        ("Unsqueeze", [X], {"axes": [0, 2]}, [X[None, :, None]]),
        ("Clip", [X], {"min": -0.5, "consumed_inputs": [0]}, [np.maximum(X, -0.5)]),
        ("Clip", [X], {}, [X]),
        ("Dropout", [X], {"is_test": 1, "ratio": 0.9}, [X]),
        (
            "BatchNormalization",
            [IMAGE, SCALE, BIAS, MEAN, VAR],
            {"is_test": 1, "epsilon": 0.1, "consumed_inputs": [0, 0, 0, 1, 1]},
            [normed(*map(channels, (SCALE, BIAS, MEAN, VAR)), epsilon=0.1)],
        ),
        (
            "Upsample",
            [IMAGE],
            {"height_scale": 2.0, "width_scale": 3.0},
            [IMAGE.repeat(2, 2).repeat(3, 3)],
        ),
        ("TopK", [X], {"k": 2}, [-np.sort(-X)[:, :2], (-X).argsort()[:, :2]]),
        ("TopK", [X], {"k": 1, "axis": 0}, [X.max(0)[None], X.argmax(0)[None]]),
        (
            "Gemm",
            [A, B, C],
            {"transA": 1, "broadcast": 1, "alpha": 0.5, "beta": 2.0},
            [0.5 * A.T @ B + 2 * C],
        ),
        ("Gemm", [A, B, D34[:, :1].repeat(5, 1)], {"transA": 1}, [A.T @ B + D34[:, :1]]),
        ("Add", [CUBE, C3], {"broadcast": 1, "axis": 1}, [CUBE + C3[:, None]]),
        ("Sub", [CUBE, D23], {"broadcast": 1, "axis": 0}, [CUBE - D23[..., None]]),
        ("Mul", [CUBE, D34], {"broadcast": 1}, [CUBE * D34]),
        ("Div", [CUBE, D34], {"broadcast": 1, "axis": 1}, [CUBE / D34]),
        ("Pow", [abs(CUBE), C3], {"broadcast": 1, "axis": -2}, [abs(CUBE) ** C3[:, None]]),
        ("Greater", [CUBE, C3], {"broadcast": 1, "axis": 1}, [C3[:, None] < CUBE]),
        (
            "And",
            [CUBE > 0, D23 > 0],
            {"broadcast": 1, "axis": 0},
            [(CUBE > 0) & (D23 > 0)[..., None]],
        ),
        ("Softmax", [CUBE], {}, [softmax(CUBE, (1, 2))]),
        ("LogSoftmax", [CUBE], {"axis": 2}, [np.log(softmax(CUBE, 2))]),
        ("Hardmax", [CUBE], {}, [one_hot_of_largest(CUBE.reshape(2, 12)).reshape(2, 3, 4)]),
        ("Flatten", [CUBE], {"axis": 2}, [CUBE.reshape(6, 4)]),
        ("Cast", [X * 3], {"to": "INT32"}, [(X * 3).astype(np.int32)]),
        ("Cast", [X > 0], {"to": "FLOAT"}, [(X > 0).astype(F32)]),
        ("Concat", [X, X], {}, [np.concatenate([X, X], 1)]),
        ("Split", [X], {"axis": 1, "split": [1, 3]}, [X[:, :1], X[:, 1:]]),
        ("Split", [X], {"axis": 1}, [X[:, :2], X[:, 2:]]),
        ("Split", [X, i(1, 2)], {}, [X[:1], X[1:]]),
        ("Tile", [X, np.array(2, np.int64), np.array(1, np.int64)], {}, [np.tile(X, (1, 2))]),
        ("ReduceSum", [CUBE], {"axes": [0, 2], "keepdims": 0}, [CUBE.sum((0, 2))]),
        ("ReduceMax", [CUBE], {}, [CUBE.max(keepdims=True)]),
        ("ReduceL1", [CUBE], {"axes": [1]}, [abs(CUBE).sum(1, keepdims=True)]),
        ("ReduceLogSum", [abs(CUBE)], {"axes": [1]}, [np.log(abs(CUBE).sum(1, keepdims=True))]),
        ("ArgMin", [X], {"axis": 1, "keepdims": 0}, [X.argmin(1)]),
        ("Sum", [X, X, X], {}, [3 * X]),
        ("Max", [X, -X], {}, [abs(X)]),
        ("PRelu", [IMAGE, C3], {}, [np.where(IMAGE < 0, IMAGE * channels(C3), IMAGE)]),
        ("GlobalLpPool", [IMAGE], {"p": 2.0}, [np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))]),
        (
            "LpPool",
            [IMAGE],
            {"p": 1.0, "kernel_shape": [4, 6]},
            [abs(IMAGE).sum((2, 3), keepdims=True)],
        ),
        ("RNN", [SEQUENCE, WEIGHT, RECURRENCE], {"hidden_size": H, "output_sequence": 1}, rnn()),
        ("GRU", [SEQUENCE, GRU_W, GRU_R, GRU_B], {"hidden_size": H}, [None, gru(False)]),
        (
            "LSTM",
            [SEQUENCE, LSTM_W, LSTM_R, LSTM_B, None, *STARTS, PEEP],
            {"hidden_size": H, "output_sequence": 1},
            lstm(),
        ),
    ],
    2: [
        (
            "Pad",
            [X],
            {"pads": [0, -1, 1, 2], "value": 2.0},
            [np.pad(X[:, 1:], [(0, 1), (0, 2)], constant_values=2)],
        ),
        (
            "Pad",
            [X],
            {"pads": [1, 0, 1, 2], "mode": "reflect"},
            [np.pad(X, [(1, 1), (0, 2)], mode="reflect")],
        ),
        ("Split", [X], {"split": [2, 1]}, [X[:2], X[2:]]),
        (
            "LpPool",
            [IMAGE],
            {"kernel_shape": [4, 6]},
            [np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))],
        ),
    ],
    6: [
        ("Reshape", [CUBE, i(0, -1)], {}, [CUBE.reshape(2, 12)]),
        ("Clip", [X], {"max": 0.5}, [np.minimum(X, 0.5)]),
        ("Dropout", [X], {"is_test": 1}, [X]),
        (
            "BatchNormalization",
            [IMAGE, SCALE, BIAS, MEAN, VAR],
            {"is_test": 1},
            [normed(*map(channels, (SCALE, BIAS, MEAN, VAR)))],
        ),
        ("BatchNormalization", [IMAGE, *WHOLE], {"is_test": 1, "spatial": 0}, [normed(*WHOLE)]),
        ("Gemm", [A.T, B, C], {"broadcast": 1}, [A.T @ B + C]),
        ("Mul", [CUBE, C3], {"broadcast": 1, "axis": 1}, [CUBE * C3[:, None]]),
        ("Cast", [X * 3], {"to": onnx.TensorProto.INT32}, [(X * 3).astype(np.int32)]),
        ("Tile", [X, i(1, 2)], {}, [np.tile(X, (1, 2))]),
        ("HardSigmoid", [X], {"alpha": 0.5}, [np.clip(0.5 * X + 0.5, 0, 1)]),
    ],
    7: [
        ("BatchNormalization", [IMAGE, *WHOLE], {"spatial": 0}, [normed(*WHOLE)]),
        ("Dropout", [X], {"ratio": 0.9}, [X]),
        (
            "Upsample",
            [X[None, None]],
            {"scales": [1.0, 1.0, 2.0, 1.0]},
            [X[None, None].repeat(2, 2)],
        ),
        ("Gemm", [A.T, B, C], {}, [A.T @ B + C]),
        ("PRelu", [IMAGE, channels(C3)], {}, [np.where(IMAGE < 0, IMAGE * channels(C3), IMAGE)]),
        (
            "GRU",
            [SEQUENCE, GRU_W, GRU_R, GRU_B],
            {"hidden_size": H, "linear_before_reset": 1},
            [None, gru(True)],
        ),
    ],
    8: [("Scan", *SCAN)],
    9: [
        ("Upsample", [X, np.array([1, 3], F32)], {}, [X.repeat(3, 1)]),
        ("TopK", [X], {"k": 2}, [-np.sort(-X)[:, :2], (-X).argsort()[:, :2]]),
        ("Slice", [X], {"starts": [-2], "ends": [2**31 - 1], "axes": [1]}, [X[:, -2:]]),
    ],
    10: [
        ("Resize", [X, np.array([2, 1], F32)], {}, [X.repeat(2, 0)]),
        ("TopK", [X, i(2)], {"axis": -1}, [-np.sort(-X)[:, :2], (-X).argsort()[:, :2]]),
        ("Dropout", [X], {}, [X, np.ones(X.shape, bool)]),
        ("Slice", [X, i(3), i(-100), i(1), i(-2)], {}, [X[:, 3::-2]]),
    ],
    12: [
        ("Softmax", [CUBE], {}, [softmax(CUBE, (1, 2))]),
        ("ReduceMean", [CUBE], {"axes": [-1]}, [CUBE.mean(-1, keepdims=True)]),
        ("Pad", [X, i(1, 0, 0, 1)], {}, [np.pad(X, [(1, 0), (0, 1)])]),
        ("Clip", [X, np.array(-0.5, F32)], {}, [np.maximum(X, -0.5)]),
    ],
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("opset", CASES)
def test_old_forms(opset: int) -> None:
    """The first input of a node is one of the model, the others are weights."""
    nodes: list[Any] = []
    inputs: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for at, (op, arrays, attributes, expected) in enumerate(CASES[opset]):
        names = [f"x{at}_{k}" if a is not None else "" for k, a in enumerate(arrays)]
        for k, (name, a) in enumerate(zip(names, arrays, strict=True)):
            if name:
                (weights if k else inputs)[name] = np.asarray(a)
        outputs = [f"{op}_{at}_{k}" if e is not None else "" for k, e in enumerate(expected)]
        wanted |= {n: e for n, e in zip(outputs, expected, strict=True) if n}
        nodes.append(helper.make_node(op, names, outputs, **attributes))
    graph_inputs = [value(n, a) for n, a in inputs.items()]
    model = model_of(nodes, graph_inputs, list(wanted), opset, weights)
    made = ours(model, list(inputs.values()))
    for got, (name, want) in zip(made, wanted.items(), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)
