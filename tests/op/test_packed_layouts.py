"""Packed layouts, such as NCHW4c: the operators give what they give in the plain ones, packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import Expr, TensorStructInfo, Var
from relax2xla.op.shared.layouts import Layout
from relax2xla.testing import evaluate

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 8, 9, 7)).astype("float32")
W = RNG.normal(size=(16, 8, 3, 3)).astype("float32")


def packed(x: Any, plain: str, layout: str) -> Any:
    """``x`` in another layout, element by element."""
    axes = Layout.of(layout)
    sizes = axes.packed_dims(tuple(x.shape[plain.index(c)] for c in axes.plain))
    out = np.zeros(sizes, x.dtype)
    for at in np.ndindex(*out.shape):
        where = dict.fromkeys(plain, 0)
        for axis, i in zip(axes.axes, at, strict=True):
            where[axis.letter] += i if axis.inner else i * axes.inner(axis.letter)
        out[at] = x[tuple(where[c] for c in plain)]
    return out


def run(function: Callable[..., Expr], *arrays: Any) -> Any:
    params = [Var(f"x{i}", TensorStructInfo(a.shape)) for i, a in enumerate(arrays)]
    return np.asarray(evaluate(function(*params), dict(zip(params, arrays, strict=True))))


@pytest.mark.parametrize(
    ("data", "kernel", "out"),
    [
        ("NCHW4c", "OIHW8o", None),
        ("NHWC8c", "OHWI", "NCHW2c"),
        ("N2cHWC", "OIHW4i16o", "NHWC"),
        ("NCHW", "OIHW", "NCHW16c"),
    ],
)
def test_convolutions(data: str, kernel: str, out: str | None) -> None:
    want = run(lambda x, w: op.nn.conv2d(x, w, padding=1, strides=(2, 1)), X, W)

    def conv(x: Expr, w: Expr) -> Expr:
        layouts: dict[str, Any] = {"data_layout": data, "kernel_layout": kernel, "out_layout": out}
        return op.nn.conv2d(x, w, padding=1, strides=(2, 1), **layouts)

    got = run(conv, packed(X, "NCHW", data), packed(W, "OIHW", kernel))
    np.testing.assert_allclose(got, packed(want, "NCHW", out or data), rtol=1e-4, atol=1e-5)


WINDOWS: dict[str, Callable[[Expr, str], Expr]] = {
    "max_pool2d": lambda x, at: op.nn.max_pool2d(x, 3, 2, padding=1, layout=at),
    "avg_pool2d": lambda x, at: op.nn.avg_pool2d(x, 2, 2, layout=at),
    "adaptive_avg_pool2d": lambda x, at: op.nn.adaptive_avg_pool2d(x, (4, 3), layout=at),
    "resize2d": lambda x, at: op.image.resize2d(x, (5, 11), layout=at),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("layout", ["NCHW4c", "N2cHWC"])
def test_windows(name: str, layout: str) -> None:
    want = run(lambda x: WINDOWS[name](x, "NCHW"), X)
    got = run(lambda x: WINDOWS[name](x, layout), packed(X, "NCHW", layout))
    np.testing.assert_allclose(got, packed(want, "NCHW", layout), rtol=1e-5, atol=1e-6)


def test_symbolic_sizes_and_unknown_shapes() -> None:
    n, h = tir.Var("n"), tir.Var("h")
    x = Var("x", TensorStructInfo((n, 2, h, h, 4)))
    w = Var("w", TensorStructInfo((3, 8, 3, 3, 4)))
    made = op.nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OIHW4o")
    assert made.struct_info == TensorStructInfo((n, 3, h - 2, h - 2, 4))
    unknown = Var("x", TensorStructInfo(dtype="float32", ndim=5))
    assert op.nn.max_pool2d(unknown, 2, layout="NCHW4c").struct_info == unknown.struct_info


@pytest.mark.parametrize(
    "layout", ["NCHW4d", "NCHW4", "NC4cHW4c", "NCHW0c", "NCCW", "nchw", "NCH4c"]
)
def test_no_layouts(layout: str) -> None:
    with pytest.raises(OpError):
        op.nn.max_pool2d(Var("x", TensorStructInfo((2, 2, 9, 9, 4))), layout=layout)


def test_inner_parts_of_another_size() -> None:
    x = Var("x", TensorStructInfo((2, 2, 9, 9, 4)))
    with pytest.raises(OpError, match="its axis c is 4"):
        op.nn.max_pool2d(x, layout="NCHW8c")
    with pytest.raises(OpError, match=r"6 \(C of NCHW4c\) cannot be packed in parts of 4"):
        op.nn.conv2d(X_PLAIN, W_SIX, out_layout="NCHW4c")


X_PLAIN, W_SIX = Var("x", TensorStructInfo(X.shape)), Var("w", TensorStructInfo((6, 8, 3, 3)))


@given(st.permutations("NCHW"), st.integers(0, 4), st.integers(1, 20))
def test_the_text_of_a_layout(letters: list[str], at: int, size: int) -> None:
    text = "".join((*letters[:at], f"{size}c", *letters[at:]))
    parsed = Layout.of(text)
    assert str(parsed) == text
    assert parsed.plain == "".join(letters)
    dims = (2, 3 * size, 4, 5)
    by_letter = tuple(dims["NCHW".index(c)] for c in letters)
    assert parsed.plain_dims(parsed.packed_dims(by_letter), "x") == by_letter
