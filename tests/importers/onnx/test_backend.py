"""The Backend interface, value-dependent inputs, and converters of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from relax2xla import onnx_backend
from relax2xla import op as R
from relax2xla.errors import CallError, OpNotImplemented
from relax2xla.frontend.onnx import (
    Context,
    Ints,
    from_onnx,
    load_plugin,
    register_converter,
    unregister_converter,
)
from relax2xla.ir import Expr, const
from tests.importers.onnx.support import model_of, value

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_prepare_and_run_by_position_and_by_name() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", X)])
    rep = onnx_backend.prepare(model)
    assert rep.inputs == ["x"]
    np.testing.assert_array_equal(rep.run([X - 5])[0], np.maximum(X - 5, 0))
    result = rep.run({"x": X})
    np.testing.assert_array_equal(result["y"], X)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(CallError, match="takes 1 inputs"):
        rep.run([X, X])
    with pytest.raises(CallError, match="takes the inputs x; got z"):
        rep.run({"z": X})


def test_run_model_from_bytes_and_a_path(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [value("x", X)])
    onnx.save(model, tmp_path / "m.onnx")
    for source in (model, model.SerializeToString(), str(tmp_path / "m.onnx")):
        np.testing.assert_array_equal(onnx_backend.run_model(source, [X])[0], -X)  # pyright: ignore[reportArgumentType]


def test_run_node() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    high = np.array(3, np.float32)
    np.testing.assert_array_equal(onnx_backend.run_node(node, [X, high])[0], np.minimum(X, 3))
    old = helper.make_node("Clip", ["x"], ["y"], max=3.0)
    got = onnx_backend.run_node(old, {"x": X}, opset_version=6)
    np.testing.assert_array_equal(got[0], np.minimum(X, 3))


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("TPU:3")
    assert not onnx_backend.supports_device("abacus")


def test_unknown_options_are_refused() -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], [value("x", X)])
    with pytest.raises(TypeError, match="no option fast"):
        onnx_backend.prepare(model, "CPU", fast=True)


def test_an_input_that_says_a_shape_stays_an_input() -> None:
    model = model_of(
        [
            helper.make_node("Add", ["s", "one"], ["t"]),
            helper.make_node("Reshape", ["x", "t"], ["y"]),
        ],
        [value("x", X), value("s", np.zeros(2, np.int64))],
        weights={"one": np.array([1, 1], np.int64)},
    )
    rep = onnx_backend.prepare(model)
    assert rep.inputs == ["x", "s"]
    for shape in ((2, 6), (4, 3), (2, 6)):
        got = rep.run([X, np.array(shape) - 1])[0]
        np.testing.assert_array_equal(got, X.reshape(shape))


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_converted_is_refused_at_once() -> None:
    model = model_of([helper.make_node("StringNormalizer", ["x"], ["y"])], [value("x", X)])
    with pytest.raises(OpNotImplemented, match="StringNormalizer"):
        onnx_backend.prepare(model)


# -- converters of one's own ---------------------------------------------------------------------
@pytest.fixture
def clamp() -> Iterator[None]:
    @register_converter("Clamp", domain="com.example")
    def _(ctx: Context, X: Expr, repeats: Ints, *, scale: float = 1.0) -> Expr:
        return R.tile(R.multiply(X, const(np.float32(scale))), [int(r) for r in repeats])

    yield
    unregister_converter("Clamp", domain="com.example")


def custom_model(**attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(
        "Clamp", ["x", "r"], ["y"], domain="com.example", name="c", **attributes
    )
    imports = [helper.make_opsetid("com.example", 1)]
    weights = {"r": np.array([2, 1], np.int64)}
    return model_of([node], [value("x", X)], imports=imports, weights=weights)


@pytest.mark.usefixtures("clamp")
@pytest.mark.filterwarnings("ignore")
def test_a_converter_of_ones_own() -> None:
    got = onnx_backend.run_model(custom_model(scale=2.0), [X])[0]
    np.testing.assert_array_equal(got, np.tile(X * 2, (2, 1)))
    with pytest.raises(OpNotImplemented, match="attribute other is not supported"):
        from_onnx(custom_model(other=1))


@pytest.mark.filterwarnings("ignore")
def test_without_it_the_operator_is_a_gap() -> None:
    with pytest.raises(OpNotImplemented, match=r"com\.example\.Clamp"):
        from_onnx(custom_model())
    with pytest.raises(KeyError, match="no converter is registered"):
        unregister_converter("Clamp", domain="com.example")


def test_ones_own_comes_before_the_built_in() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", X)])

    @register_converter("Relu", domain="ai.onnx")
    def _(ctx: Context, X: Expr) -> Expr:
        return R.negative(X)

    try:
        np.testing.assert_array_equal(onnx_backend.run_model(model, [X])[0], -X)
    finally:
        unregister_converter("Relu")
    np.testing.assert_array_equal(onnx_backend.run_model(model, [X])[0], X)


@pytest.mark.filterwarnings("ignore")
def test_a_plug_in_from_a_file(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from relax2xla import op as R\n"
        "from relax2xla.frontend.onnx import register_converter\n"
        "@register_converter('Clamp', domain='com.example')\n"
        "def clamp(ctx, X, r):\n    return R.abs(X)\n"
    )
    load_plugin(plugin)
    try:
        got = onnx_backend.run_model(custom_model(), [-X])[0]
        np.testing.assert_array_equal(got, X)
    finally:
        unregister_converter("Clamp", domain="com.example")
    with pytest.raises(FileNotFoundError, match="no plug-in"):
        load_plugin(tmp_path / "missing.py")
    with pytest.raises(ModuleNotFoundError):
        load_plugin("no_such_module_of_mine")
