"""FeatureMajor: linear layers on few rows with the features first; same results, few transposes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import PassContext
from relax2xla.transform.layout.feature_major import FeatureMajor
from relax2xla.transform.layout.propagation import _groups

T = rx.TensorStructInfo
RNG = np.random.default_rng(3)


def weight(*shape: int) -> rx.Constant:
    return rx.const((RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype("f"))


def linear(x: rx.Expr, out: int) -> rx.Expr:
    product = R.matmul(x, R.permute_dims(weight(out, x.struct_info.dims[-1])))
    return R.add(product, weight(out))


def heads(x: rx.Expr, count: int) -> rx.Expr:
    batch, tokens, hidden = x.struct_info.dims
    return R.permute_dims(R.reshape(x, (batch, tokens, count, hidden // count)), [0, 2, 1, 3])


def attention(x: rx.Expr) -> rx.Expr:
    q, k, v = (heads(linear(x, 128), 4) for _ in range(3))
    scores = R.matmul(q, R.permute_dims(k, [0, 1, 3, 2]))
    mask = rx.const(np.triu(np.full((1, 1, 10, 10), -10.0, "f"), 1))
    out = R.matmul(R.nn.softmax(R.add(scores, mask), axis=-1), v)
    return R.reshape(R.permute_dims(out, [0, 2, 1, 3]), x.struct_info.dims)


def block(x: rx.Expr) -> rx.Expr:
    y = R.nn.layer_norm(x, weight(128), weight(128), axes=[-1])
    x = R.add(x, linear(attention(y), 128))
    y = R.nn.rms_norm(x, weight(128), axes=[2])
    return R.add(x, linear(R.nn.gelu(linear(y, 256)), 128))


def gated(x: rx.Expr) -> rx.Expr:
    gate, y = R.split(linear(x, 512), 2, -1)
    return linear(R.multiply(R.nn.silu(gate), y), 128)


NETWORKS: dict[str, Callable[[rx.Expr], rx.Expr]] = {
    "linear": lambda x: linear(x, 200),
    "blocks": lambda x: block(block(x)),
    "mean": lambda x: R.mean(linear(x, 256), axis=[1]),
    "features kept": lambda x: R.sum(linear(x, 256), axis=[-1], keepdims=True),
    "row bias": lambda x: R.add(linear(x, 256), weight(10, 1)),
    "outer": lambda x: R.multiply(linear(x, 256), linear(x, 256)),
    "concat": lambda x: R.concat((linear(x, 256), linear(x, 128)), axis=-1),
    "gated": lambda x: gated(gated(gated(x))),
    "parts": lambda x: R.split(linear(x, 256), [64, 100], 2),
    "flat": lambda x: R.reshape(linear(x, 256), (-1,)),
    "rows merged": lambda x: R.reshape(linear(x, 256), (-1, 256)),
    "split of rows": lambda x: R.reshape(linear(x, 256), (-1, 2, 5, 256)),
    "unsuited reshape": lambda x: R.reshape(linear(x, 256), (-1, 10, 16)),
    "result twice": lambda x: rx.Tuple([(y := linear(x, 256)), R.exp(y), linear(R.exp(y), 128)]),
}


def module(body: Callable[[rx.Expr], rx.Expr], dims: tuple[object, ...]) -> rx.IRModule:
    builder = rx.BlockBuilder()
    x = rx.Var("x", T(dims))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_results_stay(name: str, batch: int) -> None:
    mod = module(NETWORKS[name], (batch, 10, 128))
    x = RNG.standard_normal((batch, 10, 128)).astype("f")
    results = []
    for rewrite in (lambda m: m, FeatureMajor()):
        fused = rewrite(rx.transform.FuseTransposeMatmul()(mod))
        assert rx.analysis.well_formed(fused)
        out = rx.testing.evaluate(fused, [x])
        results.append(out if isinstance(out, tuple) else (out,))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def optimised(mod: rx.IRModule) -> rx.Function:
    """Features first in programs whose products read weights as they lie."""
    return FeatureMajor()(rx.transform.FuseTransposeMatmul()(mod))["main"]


def subscripts(func: rx.Function) -> list[str]:
    return [
        b.value.attrs["subscripts"]
        for b in bindings_of(func.body)
        if is_op(b.value, "relax.einsum")
    ]


def test_a_transformer_block_keeps_features_first_throughout() -> None:
    func = optimised(module(NETWORKS["blocks"], (2, 10, 128)))
    weights = [s for s in subscripts(func) if s.startswith("zy,")]
    assert len(weights) == 12


def test_parts_keep_features_first() -> None:
    layers = optimised(module(lambda x: gated(gated(gated(x))), (1, 10, 128)))
    assert subscripts(layers) == ["zy,yab->zab"] * 6
    moves = [b for b in bindings_of(layers.body) if is_op(b.value, "relax.permute_dims")]
    assert len(moves) == 2  # of what comes in, and of what goes out


def test_many_rows_pay_on_avx512_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for features, pays in ((frozenset({"avx512f"}), True), (frozenset({"avx2"}), False)):
        monkeypatch.setattr(processor, "features", lambda found=features: found)
        layers = module(lambda x: functools.reduce(linear, [128] * 8, x), (1, 200, 128))
        assert any(s.startswith("zy,") for s in subscripts(optimised(layers))) == pays
        # Eigen is an option of XLA, which whoever compiles a function of JAX does not give it.
        fused = rx.transform.FuseTransposeMatmul()(layers)
        assert FeatureMajor(eigen=False)(fused)["main"] is fused["main"]


def test_it_stays_away_where_it_would_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "features", frozenset)
    for body, dims in [
        (lambda x: linear(x, 256), (1, 1000, 128)),
        (lambda x: linear(x, 256), (1, 1, 128)),
        (lambda x: linear(x, 4), (1, 10, 128)),
        (lambda x: R.reshape(linear(x, 256), (-1, 10, 16)), (1, 10, 128)),
    ]:
        assert not any(s.startswith("zy,") for s in subscripts(optimised(module(body, dims))))


@pytest.mark.parametrize(
    ("rows", "width", "pays"), [(4, 2048, True), (128, 2048, True), (128, 256, False)]
)
def test_large_products_pay_for_transpositions(
    rows: int, width: int, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer's result is transposed before it is split into heads."""

    def body(x: rx.Expr) -> rx.Expr:
        heads = R.reshape(linear(x, width), (-1, width // 64, 64))
        return R.add(x, R.reshape(heads, (1, rows, width)))

    monkeypatch.setattr(processor, "eigen_multiplies", lambda: True)
    fused = rx.transform.FuseTransposeMatmul()(module(body, (1, rows, width)))
    assert (FeatureMajor()(fused)["main"] is not fused["main"]) == pays


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ((2, 12), (2, 3, 4), [([0], [0]), ([1], [1, 2])]),
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((2, 6), (4, 3), [([0, 1], [0, 1])]),
        ((5, 1, 1), (5,), [([0], [0]), ([1], []), ([2], [])]),
        ((5,), (1, 5, 1), [([0], [0, 1]), ([], [2])]),
        ((0, 3), (3, 0), None),
    ],
)
def test_groups_of_a_reshape(old: object, new: object, groups: object) -> None:
    assert _groups(old, new) == groups


def conv_block(x: rx.Expr) -> rx.Expr:
    """A block of ConvNeXt: its linear layers stand between convolutions."""
    y = R.nn.conv2d(x, weight(128, 1, 7, 7), padding=3, groups=128)
    y = linear(R.nn.gelu(linear(R.permute_dims(y, [0, 2, 3, 1]), 256)), 128)
    return R.add(x, R.permute_dims(y, [0, 3, 1, 2]))


@pytest.mark.parametrize("eigen", [True, False])
def test_weights_that_eigen_would_transpose_are_transposed_at_load(
    eigen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are (out, in), as torch has them, cost no more than ONNX's (in, out)."""
    monkeypatch.setattr(processor, "eigen_multiplies", lambda: eigen)
    counts: dict[str, tuple[int, int]] = {}
    for name, shape, network in (
        ("convolutions", (1, 128, 14, 14), lambda x: conv_block(conv_block(x))),
        ("transformer", (2, 10, 128), NETWORKS["blocks"]),
        ("few rows", (1, 4, 128), lambda x: functools.reduce(linear, [128] * 3, x)),
    ):
        builder = rx.BlockBuilder()
        x = rx.Var("x", T(shape, "float32"))
        with builder.function("main", [x]):
            builder.emit_func_output(network(x))
        # Where XLA multiplies.
        with PassContext(disabled_pass=["CallProducts"]):
            main = rx.transform.get_pipeline("default")(builder.get())["main"]
        values = [b.value for b in bindings_of(main.body)]
        fused = sum(is_op(v, "relax.einsum") for v in values)
        moved = [v for v in values if is_op(v, "relax.permute_dims")]
        weights = sum(
            isinstance(v.args[0], rx.Constant) and v.args[0].data.ndim == 2 for v in moved
        )
        counts[name] = fused, weights
        # Into the layout of convolutions, and back; the network's own permutations are gone.
        assert name != "convolutions" or sum(isinstance(v.args[0], rx.Var) for v in moved) == 2
    assert counts["convolutions"] == ((0, 4) if eigen else (4, 0))
    assert counts["few rows"] == ((0, 3) if eigen else (3, 0))
    assert counts["transformer"] == ((0, 12) if eigen else (12, 0))


def test_a_product_that_is_transposed_at_once_keeps_its_features_first() -> None:
    """XLA would have the rows first again, and read a large weight half as fast."""
    builder = rx.BlockBuilder()
    x = rx.Var("x", T((4, 128), "float32"))
    matrix = weight(2048, 128)
    with builder.function("main", [x]):
        builder.emit_func_output(R.matmul(x, R.permute_dims(matrix)))
    main = rx.VirtualMachine(rx.build(features_first(builder.get())))["main"]
    given = RNG.standard_normal((4, 128)).astype("f")
    np.testing.assert_allclose(main(given), given @ matrix.data.T, rtol=1e-4, atol=1e-4)
    (program,) = main.programs()
    assert re.search(r"= f32\[2048,4\]\S* dot\(", program.hlo_text())


def features_first(mod: rx.IRModule) -> rx.IRModule:
    """As in a step whose number of rows is known when it runs."""
    fused = rx.transform.FuseTransposeMatmul()(mod)
    return rx.transform.FeatureMajor()(fused)
