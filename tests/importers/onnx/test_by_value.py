"""Inputs that an operator needs as numbers, given when the model runs: against ONNX Runtime,

or ONNX's reference for what ONNX Runtime lacks. One machine takes all the values.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import relax2xla
from relax2xla.errors import CallError
from relax2xla.frontend.onnx import from_onnx
from tests.importers.onnx import suite
from tests.importers.onnx.support import agree, model_of, one, theirs, value

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
NAMES = ["x0", "x1", "x2"]
RNG = np.random.default_rng(0)
INFO = helper.make_tensor_value_info


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def n(number: int) -> Any:
    return np.array(number, np.int64)


def machine(model: Any) -> Any:
    return relax2xla.VirtualMachine(relax2xla.build(from_onnx(model), "cpu"), "cpu")


def as_tuple(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


X = f(1, 2, 4, 5)
SIGNAL = f(1, 12, 1)
BLOCKS = f(1, 5, 5)
# operator, inputs, inputs of later calls by place, attributes; whether ONNX Runtime has it
CASES: list[tuple[str, list[Any], list[dict[int, Any]], dict[str, Any], bool]] = [
    ("Resize", [X, None, floats(1, 1, 1.3, 0.6)], [{2: floats(1, 1, 2, 3)}], {}, True),
    ("Resize", [X, None, floats(1, 1, 0.7, 1.6)], [], {"mode": "linear"}, True),
    ("Resize", [X, None, floats(1, 1, 0.6, 0.8)], [], {"mode": "cubic", "antialias": 1}, True),
    ("Resize", [X, None, None, i(1, 2, 9, 3)], [{3: i(1, 2, 2, 2)}], {"mode": "cubic"}, True),
    ("Resize", [X, None, None, i(1, 2, 3, 2)], [], {"mode": "linear", "antialias": 1}, True),
    (
        "Resize",
        [X, None, None, i(7, 8)],
        [{3: i(3, 3)}],
        {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
        False,
    ),
    (
        "Resize",
        [X, floats(0, 0, 0.4, 0.6, 1, 1, 0.6, 0.8), None, i(1, 2, 3, 3)],
        [{1: floats(0, 0, -0.5, 0, 1, 1, 1.4, 0.8)}],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        True,
    ),
    ("Resize", [f(4, 5), None, floats(2, 1.5)], [], {"mode": "linear"}, True),
    ("Col2Im", [BLOCKS, i(5, 5), i(1, 5)], [], {}, True),
    ("DFT", [f(1, 4, 6, 1), None, n(1)], [{2: n(2)}, {2: n(-2)}], {}, False),
    ("DFT", [f(1, 4, 6, 2), n(5), n(1)], [{1: n(3)}], {"inverse": 1}, False),
    ("STFT", [SIGNAL, n(4), None, n(6)], [{1: n(2)}, {3: n(8)}], {}, False),
    (
        "MelWeightMatrix",
        [n(8), n(16), n(8192), np.float32(0), np.float32(4096)],
        [{0: n(4)}, {4: np.float32(2000)}],
        {},
        False,
    ),
]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}_{at}")
def test_one_machine_for_all_values(at: int) -> None:
    op, arrays, later, attributes, in_runtime = CASES[at]
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    model, _ = one(op, arrays, opset=20, **attributes)
    vm = machine(model)
    for change in ({}, *later):
        given = [np.asarray(change.get(k, a)) for k, a in enumerate(arrays) if a is not None]
        if in_runtime:
            (want,) = theirs(model, given)
        else:
            names = [v.name for v in model.graph.input]
            made = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
            want = np.asarray(made[0])
        got = np.asarray(vm["main"](*given))
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_upsample_by_scales() -> None:
    model, arrays = one("Upsample", [X, floats(1, 1, 2, 1.5)], opset=9)
    vm = machine(model)
    for scales in (arrays[1], floats(1, 2, 1, 3)):
        (want,) = theirs(model, [X, scales])
        np.testing.assert_array_equal(vm["main"](X, scales), want)


def test_max_unpool_to_a_shape() -> None:
    x, at = f(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]], np.int64)
    model, arrays = one("MaxUnpool", [x, at, i(1, 1, 5, 5)], kernel_shape=[2, 2], strides=[2, 2])
    (want,) = ReferenceEvaluator(model).run(
        None, dict(zip(["x0", "x1", "x2"], arrays, strict=True))
    )
    np.testing.assert_array_equal(machine(model)["main"](*arrays), np.asarray(want))


def test_dropout_in_both_modes() -> None:
    model, _ = one("Dropout", [X, np.float32(0.5), np.array(True)], outputs=2, seed=0)
    vm = machine(model)
    for ratio, training in ((0.5, True), (0.0, True), (0.25, True), (0.5, False)):
        given = [X, np.float32(ratio), np.array(training)]
        made, mask = map(np.asarray, vm["main"](*given))
        want, kept = ReferenceEvaluator(model).run(None, dict(zip(NAMES, given, strict=True)))
        np.testing.assert_array_equal(mask, np.asarray(kept))
        np.testing.assert_allclose(made, np.asarray(want), rtol=1e-6)
    with pytest.raises(CallError, match=r"x1_0 = 1.5.*outside of \[0.0, 1.0\)"):
        vm["main"](X, np.float32(1.5), np.array(True))


def test_a_value_that_is_computed() -> None:
    nodes = [
        helper.make_node("Mul", ["half", "two"], ["scales"]),
        helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
    ]
    half = floats(0.5, 0.5, 0.8, 1.1)
    model = model_of(nodes, [value("x", X), value("half", half)], weights={"two": floats(2)})
    agree(model, [X, half])


def test_what_is_known_of_a_shape_stays_known() -> None:
    """A size at run time beside constants, which say the rest of the result's shape."""
    nodes = [
        helper.make_node("Concat", ["count", "rest"], ["shape"], axis=0),
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Squeeze", ["wide"], ["y"]),
    ]
    x = f(1, 3)
    weights = {"rest": i(1, 3)}
    model = model_of(nodes, [value("x", x), value("count", i(4))], weights=weights)
    assert 'R.Tensor((shape_0, 3), dtype="float32")' in from_onnx(model).script()
    agree(model, [x, i(4)])
    with pytest.raises(CallError, match="ndim 1, expected 2"):
        machine(model)["main"](x, i(1))


@pytest.mark.parametrize("taken", [True, False])
def test_in_a_branch(taken: bool) -> None:
    one_way = [helper.make_node("Resize", ["x", "", "scales"], ["a"], mode="linear")]
    other = [helper.make_node("Resize", ["x", "", "", "sizes"], ["b"], mode="linear")]
    branches = {
        "then_branch": helper.make_graph(one_way, "t", [], [INFO("a", 1, None)]),
        "else_branch": helper.make_graph(other, "e", [], [INFO("b", 1, None)]),
    }
    named = {"c": np.array(taken), "x": X, "scales": floats(1, 1, 2, 2), "sizes": i(1, 2, 3, 3)}
    inputs = [value(k, a) for k, a in named.items()]
    agree(model_of([helper.make_node("If", ["c"], ["y"], **branches)], inputs), [*named.values()])


def test_in_a_scan() -> None:
    """A loop of XLA looks at no value: what it needs is bound before it."""
    body = helper.make_graph(
        [
            helper.make_node("Tile", ["row", "times"], ["wide"]),
            helper.make_node("Add", ["state", "row"], ["next"]),
        ],
        "body",
        [INFO("state", 1, [3]), INFO("row", 1, [3])],
        [INFO("next", 1, [3]), INFO("wide", 1, None)],
    )
    node = helper.make_node("Scan", ["first", "rows"], ["y", "z"], body=body, num_scan_inputs=1)
    named = {"times": i(2), "first": f(3), "rows": f(5, 3)}
    model = model_of([node], [value(k, a) for k, a in named.items()], ["y", "z"])
    agree(model, [*named.values()])
    assert "calls itself" not in relax2xla.build(from_onnx(model)).stats()


def test_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = one("Resize", [X, None, floats(1, 1, 2, 2)])
    vm = machine(model)
    assert vm.executable.by_value("main") == ("x2",)
    assert "specialised by the value of: x2" in vm.executable.stats()
    with caplog.at_level(logging.INFO, "relax2xla.vm"):
        vm["main"](X, floats(1, 1, 2, 2))
        vm["main"](X, floats(1, 1, 2, 2))
        assert not caplog.records
        vm["main"](X, floats(1, 1, 2, 1.5))
    assert [r.getMessage() for r in caplog.records] == [
        "main_region0: compiling again (2), `x2_3` was 2.0 and is 1.5"
    ]
    with pytest.raises(CallError, match=r"x2_2 = -1.0.*the scale -1.0 of axis 2"):
        vm["main"](X, floats(1, 1, -1, 1))
    sized, _ = one("Resize", [X, None, None, i(1, 2, 3, 3)])
    with pytest.raises(CallError, match=r"`x3`.*got \(1, 2, -3, 3\)"):
        machine(sized)["main"](X, i(1, 2, -3, 3))
    axis, _ = one("DFT", [f(1, 4, 6, 1), None, n(1)], opset=20)
    with pytest.raises(CallError, match=r"x2_0 = 7: axis 7 is out of range"):
        machine(axis)["main"](f(1, 4, 6, 1), n(7))


def test_programs_of_values_are_limited() -> None:
    model, _ = one("Resize", [X, None, floats(1, 1, 2, 2)])
    ex = relax2xla.build(from_onnx(model), "cpu")
    vm = relax2xla.VirtualMachine(ex, "cpu", max_programs=2)
    for scale in (1.0, 2.0, 3.0, 4.0):
        assert vm["main"](X, floats(1, 1, scale, 1)).shape == (1, 2, 4 * scale, 5)
    assert len(vm.programs()["main_region0"]) == 2


def test_saved(tmp_path: Path) -> None:
    """The file needs neither the importer nor the values."""
    model, _ = one("Resize", [X, None, floats(1, 1, 2, 2)], mode="cubic", antialias=1)
    path = tmp_path / "m.r2x"
    relax2xla.build(from_onnx(model), "cpu").export_library(path)
    vm = relax2xla.VirtualMachine(relax2xla.load_module(path), "cpu")
    assert vm.executable.by_value("main") == ("x2",)
    for scales in (floats(1, 1, 0.5, 0.7), floats(1, 1, 2, 3)):
        (want,) = theirs(model, [X, scales])
        np.testing.assert_allclose(vm["main"](X, scales), want, rtol=1e-3, atol=1e-4)


NAMED = ["resize_downsample_scales_cubic_antialias", "affine_grid_2d_expanded", "stft_with_window"]


@pytest.mark.xdist_group("onnx_suite")
@pytest.mark.parametrize("name", NAMED)
def test_a_case_of_the_suite_passes_without_values(name: str) -> None:
    outcome = suite.run(name, *suite.load(run_time=True)[name])
    assert outcome.kind == suite.PASSED, outcome
