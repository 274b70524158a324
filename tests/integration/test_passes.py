"""Random small networks: the default pipeline changes results by rounding only."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.testing import to_numpy

TOLERANCE = {"float32": 1e-4, "float64": 1e-11, "float16": 3e-2}
LAYERS = (
    "conv",
    "depthwise",
    "batch_norm",
    "bias",
    "relu",
    "gelu",
    "residual",
    "double",
    "max_pool",
    "avg_pool",
    "softmax",
    "layer_norm",
    "mean",
    "concat",
    "output",
    "turn",
)
TAILS = ("none", "linear", "attention", "classifier")


class Network:
    """One random network over (n, c, 8, 6) or (n, 8, 6, c), built layer after layer."""

    def __init__(self, seed: int, dtype: str, layout: str, symbolic: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype, self.layout = dtype, layout
        self.axis = layout.index("C")
        self.channels = int(self.rng.integers(1, 5))
        batch: Any = tir.Var("n") if symbolic else 2
        shape = {"N": batch, "C": self.channels, "H": 8, "W": 6}
        dims = [shape[letter] for letter in layout]
        self.input = rx.Var("x", rx.TensorStructInfo(dims, dtype))
        self.value = self.rng.standard_normal([2, *dims[1:]]).astype(dtype)
        self.builder = rx.BlockBuilder()
        self.current: rx.Expr = self.input
        self.outputs: list[rx.Expr] = []
        self.earlier: list[rx.Expr] = [self.input]

    def weight(self, *shape: int) -> rx.Expr:
        return rx.const((self.rng.standard_normal(shape) / 2).astype(self.dtype))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def along_channels(self) -> rx.Expr:
        shape = [1] * 4
        shape[self.axis] = self.channels
        return self.weight(*shape)

    def add(self, layer: str) -> None:
        self.current = self.builder.emit(self.layer(layer, self.current))
        self.earlier.append(self.current)

    def layer(self, layer: str, x: rx.Expr) -> rx.Expr:
        axis, c = self.axis, self.channels
        match layer:
            case "conv" | "depthwise":
                return self.conv(x, layer == "depthwise")
            case "batch_norm":
                variance = rx.const((self.rng.random(c) + 0.5).astype(self.dtype))
                made = self.builder.emit(
                    R.nn.batch_norm(
                        x,
                        *(self.weight(c) for _ in range(3)),
                        variance,
                        axis=axis if self.chance(0.5) else axis - 4,
                        epsilon=1e-3,
                        center=self.chance(0.8),
                        scale=self.chance(0.8),
                        training=False,
                    )
                )
                if self.chance(0.2):
                    self.outputs.append(self.builder.emit(rx.TupleGetItem(made, 2)))
                return rx.TupleGetItem(made, 0)
            case "bias":
                return R.add(x, self.along_channels())
            case "relu":
                return R.nn.relu(x)
            case "gelu":
                return R.nn.gelu(x)
            case "residual":
                same = [e for e in self.earlier if e.struct_info == x.struct_info]
                return R.add(x, same[int(self.rng.integers(len(same)))])
            case "double":
                return R.multiply(self.along_channels(), x)
            case "max_pool":
                return R.nn.max_pool2d(x, (3, 3), strides=1, padding=1, layout=self.layout)
            case "avg_pool":
                include = self.chance(0.5)
                return R.nn.avg_pool2d(
                    x, (3, 3), padding=1, count_include_pad=include, layout=self.layout
                )
            case "softmax":
                return R.nn.softmax(x, axis=int(self.rng.integers(-3, 4)))
            case "layer_norm":
                last = x.struct_info.dims[3]
                return R.nn.layer_norm(x, self.weight(last), self.weight(last), axes=[-1])
            case "mean":
                return R.add(x, R.mean(x, axis=[[1], [2, 3], [-1]][c % 3], keepdims=True))
            case "concat":
                self.channels *= 2
                return R.concat((x, x), axis=axis)
            case "turn":
                there = self.builder.emit(R.permute_dims(x, [0, 2, 3, 1]))
                return R.permute_dims(there, [0, 3, 1, 2])
            case _:
                self.outputs.append(x)
                return R.negative(x)

    def conv(self, x: rx.Expr, depthwise: bool) -> rx.Expr:
        c = self.channels
        groups = c if depthwise else 2 if c % 2 == 0 and self.chance(0.3) else 1
        out = c * int(self.rng.integers(1, 3)) if depthwise else 2 * int(self.rng.integers(1, 4))
        size = 3 if self.chance(0.5) else 1
        kernel = "OIHW" if self.chance(0.5) else "HWIO"
        shape = {"O": out, "I": c // groups, "H": size, "W": size}
        self.channels = out
        return R.nn.conv2d(
            x,
            self.weight(*(shape[letter] for letter in kernel)),
            padding=size // 2,
            groups=groups,
            data_layout=self.layout,
            kernel_layout=kernel,
        )

    def tail(self, kind: str) -> None:
        emit, x = self.builder.emit, self.current
        if kind in ("linear", "attention"):
            turned = emit(R.permute_dims(self.weight(5, x.struct_info.dims[3])))
            x = emit(R.matmul(x, turned))
            if kind == "attention":
                scores = emit(R.matmul(x, emit(R.permute_dims(x, [0, 1, 3, 2]))))
                x = emit(R.matmul(R.nn.softmax(scores, axis=-1), x))
        elif kind == "classifier":
            pooled = emit(R.mean(x, axis=[a for a in (1, 2, 3) if a != self.axis]))
            x = emit(R.matmul(pooled, emit(R.permute_dims(self.weight(7, self.channels)))))
        self.outputs.append(x)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(list(TOLERANCE)),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    symbolic=st.booleans(),
    layers=st.lists(st.sampled_from(LAYERS), min_size=1, max_size=6),
    tail=st.sampled_from(TAILS),
)
def test_default_pipeline_agrees_with_none(
    seed: int, dtype: str, layout: str, symbolic: bool, layers: list[str], tail: str
) -> None:
    network = Network(seed, dtype, layout, symbolic)
    with network.builder.function("main", [network.input]):
        with network.builder.dataflow():
            for layer in layers:
                network.add(layer)
            network.tail(tail)
            result = network.builder.emit_output(rx.Tuple(network.outputs))
        network.builder.emit_func_output(result)
    mod = network.builder.get()
    before = mod.script()
    plain, better = (
        to_numpy(rx.VirtualMachine(rx.build(mod, relax_pipeline=p))["main"](network.value))
        for p in ("zero", "default")
    )
    assert mod.script() == before
    for p, q in zip(plain, better, strict=True):
        assert p.dtype == q.dtype
        scale = max(1.0, float(np.abs(p.astype("f8")).max()))
        np.testing.assert_allclose(
            q.astype("f8") / scale, p.astype("f8") / scale, rtol=0, atol=TOLERANCE[dtype]
        )
