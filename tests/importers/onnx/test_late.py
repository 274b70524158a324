"""Inputs that say a shape, computed when the model runs: against ONNX Runtime, one node each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from relax2xla.errors import CallError, OpNotImplemented, TVMError
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir import TensorStructInfo
from relax2xla.op.image import resampling
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.plan.build import build
from tests.importers.onnx.support import agree, model_of, one, ours, value

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


def n(number: int) -> Any:
    return np.array(number, np.int64)


BOXES = [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]
SCORES = [[[0.9, 0.75, 0.6, 0.95, 0.5]]]

# operator, inputs, what one() takes beyond them
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Reshape", [f(2, 3, 4), i(4, -1)], {}),
    ("Reshape", [f(2, 3, 4), i(0, 0, -1)], {}),
    ("Reshape", [f(2, 3, 4), i(24)], {}),
    ("Reshape", [f(0, 3), i(3, 0)], {"allowzero": 1}),
    ("Expand", [f(3, 1), i(2, 1, 4)], {}),
    ("Expand", [f(3, 1), i(4)], {}),
    ("Tile", [f(2, 3), i(2, 1)], {}),
    ("ConstantOfShape", [i(2, 3)], {}),
    ("Range", [n(2), n(11), n(3)], {}),
    ("Range", [n(11), n(2), n(-4)], {}),
    ("Range", [np.float32(0), np.float32(1), np.float32(0.3)], {}),
    ("Range", [n(1), n(5), n(1)], {"known": [0, 2]}),
    ("Trilu", [f(3, 4), n(-1)], {}),
    ("OneHot", [i(0, -1, 9), n(3), f(2)], {}),
    ("OneHot", [i(0, -1, 9), np.float32(3), f(2)], {"axis": 0}),
    ("TopK", [f(3, 6), i(2)], {"outputs": 2, "axis": 1, "largest": 0}),
    ("Squeeze", [f(1, 3, 1), i(0)], {}),
    ("Squeeze", [f(1, 3, 1), i(-1, 0)], {}),
    ("Unsqueeze", [f(3, 2), i(-1, 0)], {}),
    ("Slice", [f(4, 5), i(1, -3), i(100, -1)], {}),
    # Of nothing at the front: the end of a stepping slice must not count from the back.
    ("Slice", [f(3, 2), i(0), i(0), i(0), i(2)], {"known": [2, 3, 4]}),
    ("Slice", [f(4, 5), i(-9), i(2**62), i(-1)], {}),
    ("Slice", [f(4, 5), i(3, 0), i(-100, 4), i(0, 1), i(-2, 3)], {}),
    ("Slice", [f(4, 5), i(3, 0), i(-100, 4), i(0, 1), i(2, 3)], {"known": [3]}),
    ("Slice", [f(4, 5), i(3, 0), i(-1, 5), i(0, 1), i(2, 3)], {"known": [3, 4]}),
    ("Slice", [f(4, 5), i(1), i(3)], {"known": [1]}),
    ("Pad", [f(2, 3), i(0, -1, 1, 2), np.float32(2)], {}),
    ("Pad", [f(2, 3), i(0, 1, 1, 2)], {"mode": "edge"}),
    ("Pad", [f(4, 5), i(1, 2), None, i(-1)], {"mode": "reflect"}),
    ("Pad", [i(0, 1, 2, 3).reshape(2, 2), i(0, 1, 1, 2), n(2**60)], {}),
    ("Pad", [f(2, 3) > 0, i(0, 1, 1, 2), np.array(True)], {}),
    *(
        (f"Reduce{name}", [abs(f(2, 3, 4)), i(*axes)], {"keepdims": keep})
        for name in ("Sum", "Mean", "Max", "LogSumExp", "LogSum", "L2", "SumSquare")
        for axes, keep in (((-1, 0), 0), ((1,), 1))
    ),
    ("Split", [f(2, 6), i(2, 4)], {"axis": 1, "outputs": 2}),
    ("CumSum", [f(3, 4), n(-1)], {"exclusive": 1, "reverse": 1}),
    ("CenterCropPad", [f(5, 8, 3), i(7, 4)], {"axes": [0, -2]}),
    ("Compress", [f(3, 4), np.array([True, False, True])], {"axis": 0}),
    ("Compress", [f(3, 4), np.array([False, True, False, True, True])], {}),
    ("NonZero", [np.array([[0, 3], [5, 0]], np.float32)], {}),
    ("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {"outputs": 4, "sorted": 0}),
    ("Unique", [np.float32([[1, 0, 0], [1, 0, 0], [2, 3, 4]])], {"outputs": 4, "axis": 0}),
    (
        "NonMaxSuppression",
        [np.float32([BOXES]), np.float32(SCORES), i(3), np.float32([0.5]), np.float32([0])],
        {},
    ),
    ("Resize", [f(1, 1, 4, 5), None, None, i(1, 1, 8, 3)], {"mode": "cubic"}),
    ("Resize", [f(1, 1, 4, 5), None, None, i(1, 1, 8, 3)], {"mode": "linear"}),
    ("Resize", [f(1, 1, 4, 5), None, np.float32([1, 1, 2, 3])], {}),
]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}_{at}")
def test_one_operator(at: int) -> None:
    op, arrays, more = CASES[at]
    agree(*one(op, [None if a is None else np.asarray(a) for a in arrays], **more))


def test_one_program_serves_every_value() -> None:
    """The input stays one: the machine specialises on its values."""
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["x", "s"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    model = model_of(nodes, [value("x", f(3, 4)), value("s", i(0, 0))])
    vm = VirtualMachine(build(from_onnx(model), "cpu"), "cpu")
    x = f(3, 4)
    for shape in ((4, 3), (-1, 2), (0, 4), (12, 1)):
        want = np.maximum(x, 0) + x
        want = want.reshape(tuple(d or x.shape[j] for j, d in enumerate(shape)))
        np.testing.assert_array_equal(vm["main"](x, i(*shape)), want)
    with pytest.raises(TVMError):
        vm["main"](x, i(5, 5))


def test_values_out_of_range_are_errors_at_run_time() -> None:
    for op, arrays, match in (
        ("ConstantOfShape", [i(-2)], "`x0`: a dimension must not be negative"),
        ("Resize", [f(1, 1, 4, 5), None, np.float32([1, 1, -1.3, 1])], "the scale -1.29"),
    ):
        with pytest.raises(CallError, match=match):
            ours(*one(op, arrays))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_no_symbol_can_say_names_the_input_and_a_way_out() -> None:
    model, _ = one("Reshape", [f(2, 3), i(3, 2)])
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(OpNotImplemented, match="input shape, whose number of values") as e:
        from_onnx(model)
    assert "fold it to a constant" in e.value.gaps[0].hint


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("count", [0, 3])
def test_a_shape_that_is_computed_inside_a_loop(count: int) -> None:
    """XLA's loops cannot look at a value on the host, so the machine runs this one."""
    body = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "s"], ["r"]),
            helper.make_node("Add", ["v", "r"], ["w"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("go", 9, []),
            helper.make_tensor_value_info("v", 1, [2, 3]),
        ],
        [value(o, a) for o, a in (("on", np.array(True)), ("w", f(2, 3)))],
    )
    nodes = [helper.make_node("Loop", ["m", "", "v0"], ["y"], body=body)]
    named = {"x": f(6), "s": i(2, 3), "m": n(count), "v0": f(2, 3)}
    model = model_of(nodes, [value(name, a) for name, a in named.items()])
    agree(model, list(named.values()))


def test_concat_of_dimensions_with_different_names_has_the_known_sizes() -> None:
    a, b = np.ones((3, 2), np.float32), np.zeros((3, 4), np.float32)
    inputs = [value("a", a, ["rows", 2]), value("b", b, ["others", "columns"])]
    model = model_of([helper.make_node("Concat", ["a", "b"], ["y"], axis=1)], inputs)
    result = from_onnx(model)["main"].ret_struct_info
    assert str(result) == 'Tensor((rows, columns + 2), dtype="float32")'
    np.testing.assert_array_equal(ours(model, [a, b])[0], np.concatenate([a, b], 1))
    with pytest.raises(TVMError, match="dimension 0: 3 and 2"):
        ours(model, [a, b[:2]])


def resized(x: Any, dims: list[Any], scales: list[float], opset: int = 21, **form: Any) -> Any:
    node = helper.make_node("Resize", ["x", *[""] * (opset > 10), "scales"], ["y"], **form)
    weights = {"scales": np.array(scales, np.float32)}
    return model_of([node], [value("x", x, dims)], opset=opset, weights=weights)


FLOOR: dict[str, Any] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


@pytest.mark.parametrize(
    ("shape", "dims", "scales", "form"),
    [
        ((1, 2, 4, 3), ["b", 2, "h", "w"], [1, 1, 2, 3], FLOOR),
        ((1, 2, 4, 3), ["b", 2, "h", "w"], [1, 1, 2, 3], {"mode": "cubic"}),
        ((1, 2, 4, 6), ["b", 2, "h", 6], [1, 1, 0.5, 1.5], {"mode": "linear"}),
        ((2, 3, 5), [2, 3, "n"], [1, 1, 4], {"mode": "linear"}),
        ((1, 1, 2, 3, 4), [1, 1, "d", 3, "w"], [1, 1, 2, 1, 0.5], FLOOR),
        ((1, 2, 4, 3), ["b", 2, "h", "w"], [1, 1, 2, 3], {"mode": "nearest", "opset": 10}),
    ],
)
def test_resize_of_symbolic_axes(shape: Any, dims: Any, scales: Any, form: Any) -> None:
    x = f(*shape)
    agree(resized(x, dims, scales, **form), [x])


@pytest.mark.parametrize(
    ("scales", "form"),
    [
        ([1, 1, 0.5, 1.5], {"mode": "linear"}),
        ([1, 1, 2.5, 0.6], {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}),
        ([1, 1, 1.3, 2], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ([1, 1, 0.7, 1.7], {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ([1, 1, 0.7, 1.5], FLOOR),
        (
            [1, 1, 2.6, 1],
            {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
        ),
        ([1, 1, 2.5, 1], {"nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}),
    ],
)
def test_resize_of_symbolic_axes_to_sizes_that_are_rounded(scales: Any, form: Any) -> None:
    """The scale says where the points are, not the sizes (of ONNX Runtime's aligned corners)."""
    x = f(1, 2, 3, 5)
    model = resized(x, [1, 2, "h", "w"], scales, **form)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(ours(model, [x])[0], want, rtol=1e-4, atol=1e-5)


def test_a_minute_of_sound() -> None:
    x = f(1, 1, 1 << 17)
    np.testing.assert_array_equal(
        ours(resized(x, [1, 1, 1 << 17], [1, 1, 24], **FLOOR), [x])[0], x.repeat(24, 2)
    )


def test_antialiasing_of_long_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "MATRIX_LIMIT", 0)
    x = f(1, 1, 40, 40)
    form: dict[str, Any] = {"mode": "cubic", "antialias": 1}
    agree(resized(x, [1, 1, 40, 40], [1, 1, 0.2, 0.1], **form), [x])


def test_expand_to_a_size_that_is_one_at_most() -> None:
    """As torch writes index_add: an axis is expanded to the size of ``y[0:1]``."""
    nodes = [
        helper.make_node("Slice", ["y", "zero", "one"], ["first"]),
        helper.make_node("Shape", ["first"], ["shape"]),
        helper.make_node("Expand", ["x", "shape"], ["z"]),
    ]
    x, y = f(5), f(3)
    inputs = [value("x", x, ["n"]), value("y", y, ["m"])]
    agree(model_of(nodes, inputs, ["z"], weights={"zero": i(0), "one": i(1)}), [x, y])


@pytest.mark.parametrize("rows", [5, 6])
def test_pad_by_what_the_sizes_say(rows: int) -> None:
    """Odd sides are made even, then cut again, as a U-Net meets them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Div", ["shape", "two"], ["half"]),
        helper.make_node("Mul", ["half", "two"], ["even"]),
        helper.make_node("Sub", ["shape", "even"], ["odd"]),
        helper.make_node("Concat", ["zeros", "odd"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["y"]),
        helper.make_node("Sub", ["zeros", "odd"], ["less"]),
        helper.make_node("Concat", ["less", "odd"], ["moves"], axis=0),
        helper.make_node("Pad", ["y", "moves"], ["z"], mode="edge"),
    ]
    x = f(rows, 7)
    weights = {"two": i(2), "zeros": i(0, 0)}
    agree(model_of(nodes, [value("x", x, ["h", "w"])], ["y", "z"], weights=weights), [x])


@pytest.mark.parametrize(
    ("op", "form"),
    [
        ("Conv", {"auto_pad": "SAME_UPPER"}),
        ("Conv", {"auto_pad": "SAME_LOWER"}),
        ("MaxPool", {"auto_pad": "SAME_UPPER", "kernel_shape": [3, 4]}),
        ("AveragePool", {"auto_pad": "SAME_LOWER", "kernel_shape": [3, 2]}),
        ("AveragePool", {"auto_pad": "SAME_UPPER", "kernel_shape": [2, 3], "count_include_pad": 1}),
        ("LpPool", {"auto_pad": "SAME_UPPER", "kernel_shape": [3, 4], "p": 3}),
        ("LpPool", {"auto_pad": "SAME_LOWER", "kernel_shape": [3, 2]}),
    ],
)
def test_windows_as_wide_as_symbolic_sizes_need(op: str, form: Any) -> None:
    """Convolution or pooling, and a sum with what has the size that SAME promises."""
    weights = {"w": f(2, 2, 3, 2)} if op == "Conv" else {}
    nodes = [
        helper.make_node(op, ["x", *weights], ["a"], strides=[2, 3], **form),
        helper.make_node("MaxPool", ["x"], ["b"], strides=[2, 3], kernel_shape=[1, 1]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    for x in (f(1, 2, 5, 7), f(1, 2, 4, 6)):
        agree(model_of(nodes, [value("x", x, [1, 2, "h", "w"])], weights=weights), [x])


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("sizes", [[5, 4], ["h", "w"], ["h", 4]])
def test_positions_of_maxima_in_a_symbolic_batch(storage_order: int, sizes: list[Any]) -> None:
    form = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    node = helper.make_node("MaxPool", ["x"], ["y", "at"], storage_order=storage_order, **form)
    # Equal ones, of which the first counts, and some less than any that is padded.
    for x in (f(2, 3, 5, 4), np.round(f(2, 3, 5, 4)), np.full((1, 1, 5, 4), -np.inf, np.float32)):
        agree(model_of([node], [value("x", x, ["n", "c", *sizes])], ["y", "at"]), [x])


def test_maxima_go_back_to_where_they_were_in_open_sizes() -> None:
    form = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "at"], **form),
        helper.make_node("MaxUnpool", ["p", "at"], ["y"], **form),
    ]
    model = model_of(nodes, [value("x", f(1, 2, 4, 6), ["n", 2, "h", "w"])])
    for x in (f(1, 2, 4, 6), f(2, 2, 8, 2)):
        agree(model, [x])


def test_a_grid_whose_coordinates_are_not_counted() -> None:
    node = helper.make_node("GridSample", ["x", "grid"], ["y"])
    x, grid = f(1, 2, 5, 4), np.clip(f(1, 3, 2, 2), -1, 1)
    given = [value("x", x), value("grid", grid, [1, 3, 2, None])]
    model = model_of([node], given)
    agree(model, [x, grid])
    with pytest.raises(CallError):
        ours(model, [x, f(1, 3, 2, 3)])


@pytest.mark.parametrize(
    "form",
    [
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"output_shape": [9, 12]},
        {"output_shape": [8, 14], "auto_pad": "SAME_UPPER"},
        {"output_shape": [10, 15], "auto_pad": "SAME_LOWER"},
    ],
)
def test_transposed_convolutions_to_a_size_over_symbolic_ones(form: Any) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 3], **form)
    weights, x = {"w": f(2, 2, 3, 4), "b": f(2)}, f(1, 2, 4, 4)
    agree(model_of([node], [value("x", x, [1, 2, "h", "w"])], weights=weights), [x])


def test_a_size_beside_a_symbolic_one_is_the_results() -> None:
    """What is broadcast keeps the sizes that are known for certain."""
    weights = {"c": np.array([[[1]], [[0]], [[1]]], bool), "w": f(3, 5, 4)}
    nodes = [
        helper.make_node("MatMul", ["w", "x"], ["a"]),
        helper.make_node("Where", ["c", "a", "x"], ["y"]),
    ]
    x = f(3, 4, 2)
    ins = [value("x", x, ["n", 4, 2])]
    product = model_of(nodes[:1], ins, ["a"], weights=weights)
    chosen = model_of(nodes[1:], [value("a", x, [1, 4, 2]), *ins], weights=weights)
    for model, inputs, size in ((product, [x], 5), (chosen, [x[1:2], x], 4)):
        info = from_onnx(model)["main"].ret_struct_info
        assert isinstance(info, TensorStructInfo)
        assert info.dims == (3, size, 2)
        agree(model, inputs)


def test_the_result_of_a_loop_that_the_machine_runs_has_sizes() -> None:
    """Its body does not say its sizes; a function's body, that of a norm, asks for them."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "h"], ["next"]),
            helper.make_node("Identity", ["c"], ["on"]),
        ],
        "body",
        [info("i", 7, []), info("c", 9, []), info("v", 1, None)],
        [info("on", 9, []), info("next", 1, None)],
    )
    nodes = [
        helper.make_node("Loop", ["n", "", "x"], ["l"], body=body),
        helper.make_node("LayerNormalization", ["l", "w"], ["y"]),
    ]
    x, h = f(3, 4), f(1, 4)
    ins = [value("x", x, ["a", 4]), value("h", h, ["b", 4])]
    agree(model_of(nodes, ins, opset=17, weights={"n": n(2), "w": f(4)}), [x, h])
