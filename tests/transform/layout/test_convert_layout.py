"""ConvertLayout: layouts of one's own, packed ones too; results stay, and so does the order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relax2xla as rx
from relax2xla import op as R
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TransformError
from relax2xla.ir import Call, Expr, IRModule, Op, TensorStructInfo, Tuple, Var
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.transform import ConvertLayout

from .test_layout import NETWORKS, module

RNG = np.random.default_rng(5)
CONV = "relax.nn.conv2d"
LAYOUTS = {
    "NHWC": ["NHWC", "OHWI"],
    "NCHW4c": ["NCHW4c", "OIHW4o"],
    "NHWC2c": ["NHWC2c", "OIHW2i4o", "NHWC4c"],
}


def run(mod: IRModule, *args: Any) -> Any:
    return rx.VirtualMachine(rx.build(mod, relax_pipeline="zero"), rx.cpu())["main"](*args)


def operators(mod: IRModule) -> list[str]:
    calls = [b.value for b in bindings_deep(mod["main"]) if isinstance(b.value, Call)]
    return [c.op.name.removeprefix("relax.") for c in calls if isinstance(c.op, Op)]


MORE: dict[str, Callable[[Expr], Expr]] = {
    "split": lambda x: Tuple(list(R.split(R.nn.relu(conv(x)), 2, axis=1))),
    "split at places": lambda x: Tuple(list(R.split(conv(x), [4], axis=1))),
    "slice": lambda x: R.strided_slice(conv(x), [1, -1], [0, 1], [4, 7]),
    "expand and squeeze": lambda x: R.squeeze(R.expand_dims(conv(x), [-3, 0]), [0]),
    "layer norm": lambda x: R.nn.layer_norm(conv(x), const(7, 7), const(7, 7), axes=[-2, -1]),
    "layer norm of channels": lambda x: R.nn.layer_norm(
        conv(x), const(8, 7, 7), const(8, 7, 7), axes=[1, 2, 3]
    ),
    "group norm": lambda x: R.nn.group_norm(
        conv(x), const(8), const(8), num_groups=2, channel_axis=1, axes=[2, 3]
    ),
    "batch norm": lambda x: R.nn.batch_norm(
        conv(x), const(8), const(8), const(8), R.exp(const(8)), axis=1, training=False
    )[0],
    "argmax": lambda x: R.argmax(conv(x), axis=1),
    "sum of channels": lambda x: R.sum(conv(x), axis=[1], keepdims=True),
    "resize": lambda x: R.image.resize2d(conv(x), (5, 11)),
    "add of one": lambda x: R.add(rx.const(1.0), conv(x)),
    "add of a channel": lambda x: R.add(conv(x), const(1, 1, 7, 7)),
    "two of one": lambda x: (lambda y: R.add(R.exp(y), R.permute_dims(y, [0, 1, 3, 2])))(conv(x)),
    "fma": lambda x: (lambda y: R.ewise_fma(y, R.exp(y), y))(conv(x)),
    "matrix": lambda x: R.matmul(conv(x), const(7, 3)),
}


def const(*shape: int) -> rx.Constant:
    return rx.const(RNG.standard_normal(shape).astype("f"))


def conv(x: Expr) -> Expr:
    return R.nn.conv2d(x, const(8, 4, 3, 3))


CASES = [*((n, "NHWC2c") for n in NETWORKS), *((n, layout) for n in MORE for layout in LAYOUTS)]
X = RNG.standard_normal((2, 4, 9, 9)).astype("f")


@functools.cache
def plain(name: str) -> tuple[IRModule, tuple[Any, ...]]:
    """The network of that name, and what it gives for X."""
    mod = module((NETWORKS | MORE)[name], (2, 4, 9, 9))
    want = run(mod, X)
    return mod, want if isinstance(want, tuple) else (want,)


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_results_stay(name: str, layout: str) -> None:
    mod, want = plain(name)
    made = ConvertLayout({CONV: LAYOUTS[layout]})(mod)
    check_well_formed(made)
    got = run(made, X)
    for a, b in zip(want, got if isinstance(got, tuple) else (got,), strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=2e-4, atol=2e-5)
    assert mod["main"].struct_info == made["main"].struct_info


def test_what_lies_between_follows() -> None:
    def body(x: Expr) -> Expr:
        return R.nn.max_pool2d(R.nn.relu(conv(x)), 2)

    made = ConvertLayout({CONV: ["NHWC", "OHWI"]})(module(body, (2, 4, 9, 9)))
    moves = ["permute_dims", "permute_dims"]
    assert operators(made) == [*moves, "nn.conv2d", "nn.relu", "nn.max_pool2d", "permute_dims"]


def test_the_form_of_a_packed_convolution() -> None:
    mod = module(lambda x: R.nn.conv2d(x, const(8, 4, 3, 3)), (2, 4, 9, 9))
    made = ConvertLayout({CONV: ["NCHW4c", "OIHW4o"]})(mod)
    moves = ["layout_transform"]
    assert operators(made) == [*moves, *moves, "nn.conv2d", *moves]
    bindings = list(bindings_deep(made["main"]))
    shapes = [(2, 1, 9, 9, 4), (2, 4, 3, 3, 4), (2, 2, 7, 7, 4), (2, 8, 7, 7)]
    assert [b.var.struct_info for b in bindings] == [TensorStructInfo(s) for s in shapes]
    maps = [
        lambda i, j, k, m: (i, j // 4, k, m, j % 4),
        lambda i, j, k, m: (i // 4, j, k, m, i % 4),
        lambda i, j, k, m, c: (i, j * 4 + c, k, m),
    ]
    calls = [b.value for b in bindings if isinstance(b.value, Call)]
    got = [c.attrs["index_map"] for c in calls if "index_map" in c.attrs]
    assert got == [rx.tir.IndexMap.from_func(m, index_dtype="int32") for m in maps]
    layouts = [calls[2].attrs[n] for n in ("data_layout", "kernel_layout", "out_layout")]
    assert layouts == ["NCHW4c", "OIHW4o", "NCHW4c"]


def test_what_cannot_be_cut_keeps_its_layout() -> None:
    mod = module(lambda x: R.nn.conv2d(x, const(8, 4, 3, 3)), (2, 4, 9, 9))
    for layouts in (["NCHW3c", "OIHW"], ["NCHW4c", "OIHW3o"], ["NCHW", "OIHW", "NCHW16c"]):
        assert ConvertLayout({CONV: layouts})(mod) is mod


def test_a_module_without_such_operators_comes_back() -> None:
    mod = module(lambda x: R.permute_dims(R.exp(x)), (2, 4, 9, 9))
    assert ConvertLayout({CONV: ["NHWC", "OHWI"]})(mod) is mod


def test_resizing_has_a_layout_too() -> None:
    mod = module(lambda x: R.image.resize2d(x, (3, 4)), (2, 4, 9, 9))
    made = ConvertLayout({"relax.image.resize2d": ["NHWC"]})(mod)
    assert operators(made) == ["permute_dims", "image.resize2d", "permute_dims"]
    x = RNG.standard_normal((2, 4, 9, 9)).astype("f")
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=1e-5, atol=1e-6)


def test_a_function_may_say_the_layouts() -> None:
    def first(call: Call) -> dict[str, list[str]]:
        wide = call.args[1].struct_info.dims[0] == 8
        return {CONV: ["NCHW4c", "OIHW4o"]} if wide else {}

    def body(x: Expr) -> Expr:
        return R.nn.conv2d(conv(x), const(3, 8, 3, 3))

    made = ConvertLayout({}, first)(module(body, (2, 4, 9, 9)))
    layouts = [
        b.value.attrs["data_layout"]
        for b in bindings_deep(made["main"])
        if isinstance(b.value, Call) and "data_layout" in b.value.attrs
    ]
    assert layouts == ["NCHW4c", "NCHW"]


def test_casts_are_of_the_form_that_is_cast() -> None:
    builder = rx.BlockBuilder()
    n = rx.tir.Var("n")
    x = Var("x", TensorStructInfo(dtype="float32", ndim=4))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.conv2d(x, const(8, 4, 3, 3)))
            cast = builder.match_cast(y, TensorStructInfo((n, 8, 7, 7)))
            out = builder.emit_output(R.nn.relu(cast))
        builder.emit_func_output(out)
    made = ConvertLayout({CONV: ["NHWC", "OHWI"]})(builder.get())
    check_well_formed(made)
    x = RNG.standard_normal((2, 4, 9, 9)).astype("f")
    np.testing.assert_allclose(run(made, x), run(builder.get(), x), rtol=1e-4, atol=1e-5)


def test_a_value_of_unknown_shape_is_followed() -> None:
    """Of two operands, the one whose shape is known changes its layout."""
    builder = rx.BlockBuilder()
    n, h, w = (rx.tir.Var(s) for s in "nhw")
    x, y = (Var(s, TensorStructInfo(dtype="float32", ndim=4)) for s in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            made = builder.emit(R.nn.conv2d(x, const(8, 4, 3, 3)))
            cast = builder.match_cast(made, TensorStructInfo((n, 8, h, w)))
            out = builder.emit_output(R.add(cast, y))
        builder.emit_func_output(out)
    new = ConvertLayout({CONV: ["NHWC", "OHWI"]})(builder.get())
    values = [b.value for b in bindings_deep(new["main"])]
    assert isinstance(values[-1], Call)
    assert values[-1].args[1] is new["main"].params[1]


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({}, "takes layouts by operator"),
        ({"relax.nn.conv9d": ["NHWC", "OHWI"]}, "got 'relax.nn.conv9d'"),
        ({"relax.exp": ["NHWC"]}, "got 'relax.exp'"),
        ({CONV: ["NHWC"]}, "image, kernel and maybe the result"),
        ({CONV: "NHWC"}, "are a list"),
    ],
)
def test_layouts_that_are_none(layouts: dict[str, Any], message: str) -> None:
    with pytest.raises(TransformError, match=message):
        ConvertLayout(layouts)


@given(st.permutations("NCHW"), st.permutations("OIHW"), st.data())
@settings(max_examples=8, deadline=None)
def test_any_layout(data: list[str], kernel: list[str], draw: st.DataObject) -> None:
    def packed(letters: list[str], choices: str) -> str:
        inner = draw.draw(st.sampled_from(["", *(f"{n}{c}" for c in choices for n in (1, 2, 4))]))
        at = draw.draw(st.integers(0, 4))
        return "".join((*letters[:at], inner, *letters[at:]))

    def body(x: Expr) -> Expr:
        return R.nn.avg_pool2d(R.nn.relu(R.add(conv(x), const(8, 1, 1))), 2)

    mod = module(body, (2, 4, 9, 9))
    made = ConvertLayout({CONV: [packed(data, "nc"), packed(kernel, "oi")]})(mod)
    check_well_formed(made)
    x = RNG.standard_normal((2, 4, 9, 9)).astype("f")
    np.testing.assert_allclose(run(made, x), run(mod, x), rtol=2e-4, atol=2e-5)
