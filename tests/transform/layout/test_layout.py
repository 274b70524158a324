"""The default pipeline on small convolutional networks: same results, and the expected form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import FoldBatchNorm, FuseTransposeMatmul, get_pipeline
from relax2xla.transform.params.lift_weights import lift_weights

T = rx.TensorStructInfo
RNG = np.random.default_rng(7)


def weight(*shape: int) -> rx.Constant:
    return rx.const(RNG.standard_normal(shape).astype("f") * 0.3)


def normalised(x: rx.Expr, channels: int) -> rx.Expr:
    mean, var = weight(channels), rx.const(RNG.uniform(0.5, 2, channels).astype("f"))
    return R.nn.batch_norm(
        x, weight(channels), weight(channels), mean, var, axis=1, training=False
    )[0]


def conv(x: rx.Expr, out: int, size: int, **kw: object) -> rx.Expr:
    channels = x.struct_info.dims[1]
    return R.nn.conv2d(x, weight(out, channels, size, size), **kw)


def volume(x: rx.Expr, out: int, size: int, **kw: object) -> rx.Expr:
    channels = x.struct_info.dims[1]
    return R.nn.conv3d(x, weight(out, channels, size, size, size), **kw)


def depthwise(x: rx.Expr) -> rx.Expr:
    channels = x.struct_info.dims[1]
    return R.nn.conv2d(x, weight(channels, 1, 3, 3), padding=1, groups=channels)


def squeeze_excite(x: rx.Expr) -> rx.Expr:
    gate = R.sigmoid(conv(R.mean(x, axis=[2, 3], keepdims=True), x.struct_info.dims[1], 1))
    return R.multiply(x, gate)


def group_normalised(x: rx.Expr) -> rx.Expr:
    return R.nn.group_norm(x, weight(8), weight(8), 2, 1, [2, 3])


NETWORKS: dict[str, Callable[[rx.Expr], rx.Expr]] = {
    "conv": lambda x: conv(x, 8, 3, padding=1),
    "stride": lambda x: conv(conv(x, 8, 3, strides=2, padding=1), 5, 1, strides=2),
    "norm": lambda x: R.nn.relu(normalised(conv(x, 8, 3, padding=1), 8)),
    "norm alone": lambda x: normalised(x, 4),
    "norm of shared conv": lambda x: (lambda y: R.add(y, normalised(y, 8)))(conv(x, 8, 3)),
    "residual": lambda x: (lambda y: R.nn.relu(R.add(y, normalised(conv(y, 8, 3, padding=1), 8))))(
        conv(x, 8, 1)
    ),
    "pools": lambda x: R.nn.avg_pool2d(
        R.nn.max_pool2d(conv(x, 8, 3), pool_size=3, strides=2, padding=1), pool_size=2
    ),
    "global pool": lambda x: R.nn.adaptive_avg_pool2d(conv(x, 8, 3), 1),
    "mean": lambda x: R.mean(conv(x, 8, 3), axis=[2, 3]),
    "mean of channels": lambda x: R.mean(conv(x, 8, 3), axis=[1]),
    "sum of rows": lambda x: R.sum(conv(x, 8, 3), axis=[2]),
    "excite": lambda x: squeeze_excite(conv(x, 8, 3, padding=1)),
    "depthwise": lambda x: depthwise(conv(x, 8, 1)),
    "concat": lambda x: R.concat((conv(x, 8, 3), conv(x, 4, 3)), axis=1),
    "concat of rows": lambda x: R.concat((conv(x, 8, 3), conv(x, 8, 3)), axis=-2),
    "group norm": lambda x: group_normalised(conv(x, 8, 3)),
    "instance norm": lambda x: R.nn.instance_norm(conv(x, 8, 3), weight(8), weight(8), 1, [2, 3]),
    "softmax": lambda x: R.nn.softmax(conv(x, 8, 3), axis=1),
    "bias": lambda x: R.add(conv(x, 8, 3), weight(8, 1, 1)),
    "bias of rank 4": lambda x: R.multiply(conv(x, 8, 3), weight(1, 8, 1, 1)),
    "row vector": lambda x: R.add(conv(x, 8, 3), weight(7)),
    "flatten": lambda x: R.reshape(R.nn.relu(conv(x, 8, 3)), (2, -1)),
    "pad": lambda x: R.nn.pad(conv(x, 8, 3), [0, 0, 0, 0, 1, 2, 3, 4]),
    "a weight that is computed": lambda x: (
        lambda y: R.nn.conv2d(y, R.permute_dims(y, [1, 0, 2, 3]), padding=3)
    )(conv(x, 2, 3)),
    "permute": lambda x: R.permute_dims(conv(x, 8, 3), [1, 0, 3, 2]),
    "where": lambda x: (lambda y: R.where(R.greater(y, rx.const(0.0)), y, R.exp(y)))(conv(x, 8, 3)),
    "tuple": lambda x: rx.Tuple([conv(x, 8, 3), x]),
}


def module(body: Callable[[rx.Expr], rx.Expr], dims: tuple[object, ...]) -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", T(dims))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    return builder.get()


VOLUMES: dict[str, Callable[[rx.Expr], rx.Expr]] = {
    "volume": lambda x: R.nn.relu(normalised(volume(x, 8, 3, padding=1), 8)),
    "volume with steps": lambda x: volume(volume(x, 8, 2, strides=(1, 2, 2)), 5, 1, strides=2),
    "volume, pooled": lambda x: R.nn.avg_pool3d(
        R.nn.max_pool3d(volume(x, 8, 2), pool_size=3, strides=1, padding=1), pool_size=2
    ),
    "mean of a volume": lambda x: R.mean(volume(x, 8, 3), axis=[2, 3, 4]),
    "transposed volume": lambda x: R.nn.conv3d_transpose(
        volume(x, 8, 1), weight(8, 3, 3, 3, 3), strides=2, padding=1, output_padding=1
    ),
    "slices as planes": lambda x: conv(
        R.reshape(R.permute_dims(volume(x, 8, 2), [0, 2, 1, 3, 4]), (-1, 8, 8, 8)), 4, 3
    ),
}
# Reshapes of "flatten" and of slices fix the batch.
FIXED = ("flatten", "slices as planes")
CASES = [(n, s) for n in (*NETWORKS, *VOLUMES) for s in (False, True) if not (s and n in FIXED)]


@pytest.mark.parametrize(("name", "symbolic"), CASES)
def test_the_pipeline_keeps_the_results(name: str, symbolic: bool) -> None:
    batch = rx.tir.Var("n") if symbolic else 2
    shape = (4, 3, 9, 9) if name in VOLUMES else (4, 9, 9)
    mod = module({**NETWORKS, **VOLUMES}[name], (batch, *shape))
    x = RNG.standard_normal((2, *shape)).astype("f")
    plain = rx.VirtualMachine(rx.build(mod, relax_pipeline="zero"))["main"](x)
    fast = rx.VirtualMachine(rx.build(mod))["main"](x)
    for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (plain, fast)], strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)
    assert rx.analysis.well_formed(get_pipeline("default")(mod))


@pytest.mark.parametrize("images", [1, 2])
def test_patches_become_tokens_as_they_lie(images: int) -> None:
    """Neither them nor what is added to them later: axes of size 1 stay where they are."""

    def body(x: rx.Expr) -> rx.Expr:
        rows = R.permute_dims(R.reshape(conv(x, 8, 3, strides=3), (images, 8, 9)), [0, 2, 1])
        tokens = R.concat((R.broadcast_to(weight(1, 1, 8), (images, 1, 8)), rows), axis=1)
        made = R.nn.layer_norm(tokens, weight(8), weight(8), [-1])
        return R.add(tokens, R.matmul(made, weight(8, 8)))

    mod = module(body, (images, 4, 9, 9))
    func = get_pipeline("default")(mod)["main"]
    turned = [b for b in bindings_of(func.body) if is_op(b.value, "relax.permute_dims")]
    # The image, the weight of its convolution, and what a product's weight is laid out by.
    assert all(b.var.struct_info.ndim == 4 for b in turned)
    (norm,) = [b for b in bindings_of(func.body) if is_op(b.value, "relax.nn.layer_norm")]
    assert norm.var.struct_info.dims == (images, 10, 8)
    x = RNG.standard_normal((images, 4, 9, 9)).astype("f")
    plain = rx.VirtualMachine(rx.build(mod, relax_pipeline="zero"))["main"](x)
    fast = rx.VirtualMachine(rx.build(mod))["main"](x)
    np.testing.assert_allclose(np.asarray(fast), np.asarray(plain), rtol=2e-4, atol=2e-5)


def names(func: rx.Function) -> list[str]:
    return [b.value.op.name for b in bindings_of(func.body) if isinstance(b.value, rx.Call)]


@pytest.mark.parametrize(
    ("norm", "convolved", "space"),
    [
        (lambda x: normalised(x, 8), conv, (9, 9)),
        (group_normalised, conv, (9, 9)),
        (lambda x: normalised(x, 8), volume, (5, 9, 9)),
    ],
)
def test_a_chain_of_convolutions_is_transposed_once_each_way(
    norm: Callable[[rx.Expr], rx.Expr],
    convolved: Callable[..., rx.Expr],
    space: tuple[int, ...],
) -> None:
    def body(x: rx.Expr) -> rx.Expr:
        for _ in range(3):
            x = R.nn.relu(norm(convolved(x, 8, 3, padding=1)))
        return x

    mod = get_pipeline("default")(module(body, (1, 4, *space)))
    func = lift_weights({"main": mod["main"]})["main"].main
    activations = [
        b.value
        for b in bindings_of(func.body)
        if is_op(b.value, "relax.permute_dims") and b.value.struct_info.dims[1:3] != (1, 1)
    ]
    assert len(activations) == 2
    assert "relax.nn.batch_norm" not in names(func)


@pytest.mark.parametrize("eigen", [False, True])
def test_pointwise_convolutions_are_contractions_of_the_weight_as_the_library_likes_it(
    eigen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "eigen_multiplies", lambda: eigen)
    mod = module(lambda x: conv(x, 8, 1, strides=2), (1, 4, 9, 9))
    lifted = lift_weights({"main": get_pipeline("default")(mod)["main"]})["main"]
    (einsum,) = [b.value for b in bindings_of(lifted.main.body) if is_op(b.value, "relax.einsum")]
    assert einsum.attrs["subscripts"] == ("nhwi,io->nhwo" if eigen else "nhwi,oi->nhwo")
    # Nothing is done to the weight at a call.
    assert sorted(set(names(lifted.main)) - {"relax.permute_dims"}) == [
        "relax.einsum",
        "relax.strided_slice",
    ]
    x = RNG.standard_normal((1, 4, 9, 9)).astype("f")
    plain, made = (
        np.asarray(rx.VirtualMachine(rx.build(mod, relax_pipeline=p))["main"](x))
        for p in ("zero", "default")
    )
    np.testing.assert_allclose(made, plain, rtol=1e-5, atol=1e-5)


def test_weights_that_come_with_each_call_are_read_as_they_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor, "eigen_multiplies", lambda: True)

    def body(x: rx.Expr) -> rx.Expr:
        y = normalised(conv(normalised(conv(x, 64, 1), 64), 64, 3, padding=1), 64)
        return R.matmul(R.mean(y, axis=[2, 3]), R.permute_dims(weight(10, 64)))

    mod = module(body, (1, 64, 3, 3))
    pipeline = get_pipeline("default", for_jax=True)
    lifted = lift_weights({"main": pipeline(mod)["main"]})["main"]
    assert lifted.transform is not None
    large = [
        b.value.op.name
        for b in bindings_of(lifted.transform.body)
        if isinstance(b.value, rx.Call) and math.prod(b.value.struct_info.dims) > 64
    ]
    assert set(large) == {"relax.reshape"}
    x = RNG.standard_normal((1, 64, 3, 3)).astype("f")
    plain, made = (
        np.asarray(rx.VirtualMachine(rx.build(mod, relax_pipeline=p))["main"](x))
        for p in ("zero", pipeline)
    )
    np.testing.assert_allclose(made, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("into_weights", [True, False])
def test_folding_matches_torch(into_weights: bool) -> None:
    layer = torch.nn.Sequential(
        torch.nn.Conv2d(4, 8, 3, bias=False), torch.nn.BatchNorm2d(8)
    ).eval()
    layer[1].running_mean.uniform_(-1, 1)
    layer[1].running_var.uniform_(0.1, 3)
    norm = layer[1]
    values = [norm.weight, norm.bias, norm.running_mean, norm.running_var]
    mod = module(
        lambda x: R.nn.batch_norm(
            R.nn.conv2d(x, rx.const(layer[0].weight.detach().numpy())),
            *[rx.const(v.detach().numpy()) for v in values],
            axis=1,
            epsilon=norm.eps,
            training=False,
        )[0],
        (2, 4, 9, 9),
    )
    folding = FoldBatchNorm(into_weights)
    folded = folding(mod)["main"]
    assert "relax.nn.batch_norm" not in names(folded)
    (found,) = (b.value for b in bindings_of(folded.body) if is_op(b.value, "relax.nn.conv2d"))
    assert isinstance(found, rx.Call)
    assert isinstance(found.args[1], rx.Constant) is not into_weights
    x = torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = layer(x).numpy()
    result = rx.VirtualMachine(rx.build(mod, relax_pipeline=folding))["main"](x)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-5)


def test_a_convolution_that_a_branch_reads_too_stays() -> None:
    def body(x: rx.Expr) -> rx.Expr:
        builder = rx.BlockBuilder.current()
        y = builder.emit(conv(x, 8, 3))
        c = builder.emit(R.greater(R.sum(x), rx.const(0.0)))
        return R.add(rx.If(c, y, R.negative(y)), normalised(y, 8))

    builder = rx.BlockBuilder()
    x = rx.Var("x", T((1, 4, 9, 9)))
    with builder.function("main", [x]):
        builder.emit_func_output(body(x))
    mod = builder.get()
    assert rx.analysis.well_formed(FoldBatchNorm()(mod))
    value = -np.abs(RNG.standard_normal((1, 4, 9, 9))).astype("f")
    plain, fast = (
        rx.VirtualMachine(rx.build(mod, relax_pipeline=p))["main"](value)
        for p in ("zero", "default")
    )
    np.testing.assert_allclose(np.asarray(fast), np.asarray(plain), rtol=2e-4, atol=2e-5)


def test_transposed_matrices_are_read_as_they_lie() -> None:
    w = weight(5, 6)
    mod = module(lambda x: R.matmul(x, R.permute_dims(w)), (2, 3, 6))
    fused = rx.transform.DeadCodeElimination()(FuseTransposeMatmul()(mod))["main"]
    assert names(fused) == ["relax.einsum"]
    x = RNG.standard_normal((2, 3, 6)).astype("f")
    result = rx.testing.evaluate(fused.with_attr("global_symbol", "main"), [x])
    np.testing.assert_allclose(result, x @ w.data.T, rtol=1e-4, atol=1e-5)


def test_only_what_depends_on_weights_alone_is_lifted() -> None:
    w = weight(64, 64)

    def body(x: rx.Expr) -> rx.Expr:
        lifted = R.exp(R.permute_dims(w))
        grown = R.broadcast_to(R.reshape(w, (1, 64, 64)), (50, 64, 64))
        return R.add(R.matmul(x, lifted), R.sum(grown, axis=[0]))

    split = lift_weights({"main": module(body, (64, 64))["main"]})["main"]
    assert split.transform is not None
    assert sorted(names(split.transform)) == ["relax.exp", "relax.permute_dims", "relax.reshape"]
    assert "relax.broadcast_to" in names(split.main)
    assert split.num_input == 1
    assert split.raw_size() == (1, w.data.nbytes)
