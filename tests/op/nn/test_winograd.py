"""Winograd's convolution equals the convolution: odd and even sizes, paddings, batches."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.errors import OpError
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import PassContext, Pipeline, UseWinograd, get_pipeline
from relax2xla.transform.params.lift_weights import lift_weights

T = rx.TensorStructInfo
RNG = np.random.default_rng(11)
CASES = [
    ((2, 8, 8, 5), 7, (1, 1, 1, 1)),
    ((1, 7, 6, 5), 3, (0, 0, 0, 0)),
    ((1, 3, 3, 4), 4, (0, 0, 0, 0)),
    ((3, 1, 2, 4), 4, (1, 1, 1, 1)),
    ((1, 5, 9, 4), 2, (2, 0, 1, 3)),
]


@pytest.mark.parametrize(("shape", "outputs", "padding"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_equals_the_convolution(
    shape: tuple[int, ...], outputs: int, padding: tuple[int, ...], dtype: str
) -> None:
    x = rx.Var("x", T(shape, dtype))
    w = rx.Var("w", T((3, 3, shape[3], outputs), dtype))
    conv = R.nn.conv2d(x, w, padding=padding, data_layout="NHWC", kernel_layout="HWIO")
    fast = R.nn.winograd_conv2d(x, R.nn.winograd_weight(w), padding=padding)
    assert fast.struct_info == conv.struct_info
    values = [RNG.standard_normal(v.struct_info.dims).astype(dtype) for v in (x, w)]
    a, b = rx.testing.evaluate(rx.Tuple([conv, fast]), dict(zip((x, w), values, strict=True)))
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(a).max())


def test_misuse_is_refused() -> None:
    x = rx.Var("x", T((1, 8, 8, 5)))
    with pytest.raises(OpError, match="from winograd_weight"):
        R.nn.winograd_conv2d(x, rx.Var("w", T((3, 3, 5, 7))))
    with pytest.raises(OpError, match="5 channels, but `weight` takes 6"):
        R.nn.winograd_conv2d(x, rx.Var("w", T((4, 4, 6, 7))))
    with pytest.raises(OpError, match="a window of 3 does not fit"):
        R.nn.winograd_conv2d(rx.Var("x", T((1, 2, 8, 5))), rx.Var("w", T((4, 4, 5, 7))))


def test_the_pass_takes_what_suits_and_its_kernels_are_made_at_load() -> None:
    x = rx.Var("x", T((rx.tir.Var("n"), 32, 9, 9)))
    weights = [RNG.standard_normal((40, 32, 3, 3)).astype("f") / 17 for _ in range(2)]
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(R.nn.conv2d(x, rx.const(weights[0]), padding=1))
            b = builder.emit(R.nn.conv2d(x, rx.const(weights[1]), padding=1, strides=2))
            out = builder.emit_output(rx.Tuple([a, b]))
        builder.emit_func_output(out)
    mod = builder.get()
    lifted = lift_weights({"main": get_pipeline("default", winograd=True)(mod)["main"]})["main"]
    names = [b.value.op.name for b in bindings_of(lifted.main.body) if isinstance(b.value, rx.Call)]
    assert names.count("relax.nn.winograd_conv2d") == 1
    assert names.count("relax.nn.conv2d") == 1
    assert "relax.einsum" not in names
    data = RNG.standard_normal((2, 32, 9, 9)).astype("f")
    results = [
        rx.VirtualMachine(rx.build(mod, "cpu", relax_pipeline=p))["main"](data)
        for p in ("zero", "default", get_pipeline("default", winograd=True))
    ]
    for other in results[1:]:
        for expected, value in zip(results[0], other, strict=True):
            np.testing.assert_allclose(np.asarray(value), np.asarray(expected), atol=2e-5)


def test_the_table_chooses_on_cpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def convolution(side: int, inner: int, outer: int) -> rx.IRModule:
        x, w = rx.Var("x", T((1, inner, side, side))), rx.const(np.ones((outer, inner, 3, 3), "f"))
        builder = rx.BlockBuilder()
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(R.nn.conv2d(x, w, padding=1)))
        return builder.get()

    def uses(pipeline: Pipeline, mod: rx.IRModule) -> bool:
        # Where XLA convolves: there is no compiler for the function in C++.
        with PassContext(disabled_pass=["CallProducts"]):
            body = pipeline(mod)["main"].body
        return any(is_op(b.value, "relax.nn.winograd_conv2d") for b in bindings_of(body))

    monkeypatch.setattr(processor, "eigen_multiplies", lambda: True)
    pipeline, large = get_pipeline("default"), convolution(14, 256, 256)
    assert isinstance(pipeline, Pipeline)
    assert uses(pipeline.on("cpu"), large)
    # Few channels, little work, and products of many bytes.
    others = [(128, 32, 32), (14, 64, 64), (112, 64, 128)]
    assert not any(uses(pipeline, convolution(*sizes)) for sizes in others)
    assert not uses(pipeline.on("cuda"), large)
    # Where kernels are transformed at each call, it takes more pixels.
    at_call = get_pipeline("default", for_jax=True)
    assert isinstance(at_call, Pipeline)
    assert not uses(at_call, large)
    assert uses(at_call, convolution(28, 128, 128))
    assert not uses(pipeline.on("cpu", several=True), large)
    monkeypatch.setattr(processor, "eigen_multiplies", lambda: False)
    assert not uses(pipeline, large)


def test_kernels_that_are_arguments_stay_convolutions() -> None:
    x, w = rx.Var("x", T((1, 8, 8, 32))), rx.Var("w", T((3, 3, 32, 32)))
    conv = R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO")
    mod = rx.IRModule({"main": rx.Function([x, w], conv)})
    builder = rx.BlockBuilder(mod)
    normal = rx.IRModule({"main": builder.normalize(mod["main"])})
    assert not any(
        is_op(b.value, "relax.nn.winograd_conv2d")
        for b in bindings_of(UseWinograd()(normal)["main"].body)
    )
