"""Values at the edges of dtypes and sizes, at run time and folded, against ONNX Runtime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import helper

pytest.importorskip("onnxruntime")

from tests.importers.onnx.support import agree, model_of, one, ours, theirs, value

INF, NAN = math.inf, math.nan
INTS = [np.int8, np.int16, np.int32, np.int64]
UINTS = [np.uint8, np.uint16, np.uint32, np.uint64]


def both_ways(op: str, arrays: list[Any], **options: Any) -> None:
    """With inputs at run time (but those ``known``), and with all of them in the model."""
    for known in (options.pop("known", ()), range(len(arrays))):
        model, inputs = one(
            op, arrays, known=[i for i in known if arrays[i] is not None], **options
        )
        agree(model, inputs, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*INTS, *UINTS])
def test_integer_division_at_the_ends(dtype: Any) -> None:
    ends = np.iinfo(dtype)
    a = np.array([ends.min, ends.min, ends.min, ends.max, 7, 5], dtype)
    b = np.array([3, ends.max, ends.min or 7, ends.max, 2, ends.max], dtype)
    if ends.min:
        more = np.array([[-7, -7], [2, ends.min]], dtype)
        a, b = np.append(a, more[0]), np.append(b, more[1])
    both_ways("Div", [a, b])
    both_ways("Mod", [a, b])
    both_ways("Mod", [a, b], fmod=1)


def test_fmod_of_floats() -> None:
    a = np.array([-7, 7, -6, 0, -0.0, 1e30, 5.5, INF, 5], np.float32)
    b = np.array([3, -3, 3, 2, 2, 7, -INF, 2, NAN], np.float32)
    both_ways("Mod", [a, b], fmod=1)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
@pytest.mark.parametrize("exponent", [2, 3])
def test_an_exponent_has_its_rank(exponent: int, dtype: Any) -> None:
    base = np.array([2, 3], np.float32)
    both_ways("Pow", [base, np.full((1, 1, 1), exponent, dtype)], known=[1])
    both_ways("Pow", [base.reshape(1, 2, 1), np.full((1, 1), exponent, dtype)], known=[1])


VALUES = [-1.0, -1.5, 0.5, 255.5, 256, 300, -129, 32768, 65535, 65536, 70000, -40000, 2.0**31]
BEYOND = [-(2.0**31) - 1, 2.0**32, 1e10, -1e10, 9.3e18, -9.3e18, 1.9e19, 1e30, -1e30, INF, NAN]


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_floats_that_do_not_fit_integers(source: Any) -> None:
    """The lowest bits of a word of 32 or 64 bits, which is its least integer beyond it."""
    for target in (*INTS, *UINTS):
        # ONNX Runtime's uint32 beyond 32 bits depends on the position in the array.
        values = VALUES if target is np.uint32 else [*VALUES, *BEYOND, -INF]
        x = np.array(values).astype(source)
        x = x[np.isfinite(x)] if target is np.uint32 else x
        both_ways("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
        like = np.zeros(1, target)
        both_ways("CastLike", [x, like])
        both_ways("Cast", [x[:1].reshape(())], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


X = np.array([-3, -1, 0, 0.5, 2, 7, NAN, INF, -INF], np.float32)


@pytest.mark.parametrize("known", [(), (1, 2)], ids=["run time", "known"])
def test_bounds_of_clip(known: tuple[int, ...]) -> None:
    """NaN bounds nothing; where they cross, the upper one wins."""
    for low, high in ((-1, 1), (2, -2), (NAN, 1), (-1, NAN), (NAN, NAN), (-INF, INF), (INF, -INF)):
        bounds = [np.array(v, np.float32) for v in (low, high)]
        both_ways("Clip", [X, *bounds], known=known)
    most = np.finfo(np.float32).max
    both_ways("Clip", [X, np.array(-most), np.array(most)], known=known)
    for dtype in (np.int8, np.uint8, np.int64, np.uint64):
        ends = np.iinfo(dtype)
        x = np.array([ends.min, 0, 3, ends.max], dtype)
        for low, high in ((1, 2), (5, 1), (ends.min, ends.max), (ends.max, ends.min)):
            both_ways("Clip", [x, np.array(low, dtype), np.array(high, dtype)], known=known)


def test_bounds_that_are_attributes_stop_infinities() -> None:
    for bounds in ({}, {"max": 0.0}, {"min": -1.0}):
        both_ways("Clip", [X], opset=6, **bounds)


def test_gather_of_nothing() -> None:
    none = np.zeros((0, 2), np.int64)
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for data in (x, x.astype(np.int64), x[:0]):
        both_ways("Gather", [data, none], known=[1])
    both_ways("Gather", [x, none[:, 0].astype(np.int32)], known=[1], axis=1)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_largest_none(axis: int) -> None:
    k = np.zeros(1, np.int64)
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for known in ((1,), ()):
        both_ways("TopK", [x, k], known=known, outputs=2, axis=axis)
        both_ways("TopK", [x[:0, :0], k], known=known, outputs=2, axis=axis)
    model, inputs = one("TopK", [x, k], outputs=2, axis=axis)
    for count in (0, 2):  # one module serves both
        inputs[1] = np.array([count], np.int64)
        for got, want in zip(ours(model, inputs), theirs(model, inputs), strict=True):
            np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize("op", ["Hardmax", "Softmax", "LogSoftmax", "ArgMax", "ArgMin"])
def test_axes_without_elements(op: str) -> None:
    for shape in ((2, 0), (0, 3), (0, 0)):
        for axis in (0, 1):
            if op.startswith("Arg") and shape[axis] == 0 and shape != (0, 0):
                continue  # a position of nothing is asked for, which ONNX Runtime refuses, too
            both_ways(op, [np.zeros(shape, np.float32)], axis=axis)


@pytest.mark.parametrize("form", [{"mode": "linear"}, {"mode": "cubic"}, {"antialias": 1}])
def test_axes_resized_to_nothing(form: dict[str, Any]) -> None:
    scales = np.array([1, 1, 0.5, 0.3], np.float32)
    x = np.ones((1, 2, 4, 3), np.float32)
    both_ways("Resize", [x, None, scales], known=[2], **{"mode": "linear", **form})


# -- sizes that are known only when the model runs ------------------------------------------------
def dynamic(nodes: list[Any], arrays: dict[str, Any], known: dict[str, Any] | None = None) -> None:
    """Every size of every input is a symbol; the last node's output counts."""
    ins = [value(n, a, [f"{n}_{i}" for i in range(a.ndim)]) for n, a in arrays.items()]
    model = model_of(nodes, ins, nodes[-1].output, 18, known)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    (got,), (want,) = ours(model, list(arrays.values())), theirs(model, list(arrays.values()))
    np.testing.assert_array_equal(got, want, strict=True)


node = helper.make_node


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_slices_of_symbolic_axes(size: int) -> None:
    """A part that ends before it begins has no elements."""
    x = np.arange(3.0 * size, dtype=np.float32).reshape(size, 3)
    for first, last, step in (
        (1, -1, 1),
        (2, 1, 1),
        (-1, 0, 1),
        (0, 2, -1),
        (-2, 1, -1),
        (-3, -1, 2),
    ):
        bounds = {n: np.array([v]) for n, v in zip("abcd", (first, last, 0, step), strict=True)}
        dynamic([node("Slice", ["x", *"abcd"], ["y"])], {"x": x}, bounds)


def _sizes(of: list[tuple[str, int]]) -> list[Any]:
    """Nodes that make the vector ``s`` of sizes, each of an axis of a value."""
    made: list[Any] = []
    for i, (name, axis) in enumerate(of):
        made.append(node("Shape", [name], [f"s{i}"], start=axis, end=axis + 1))
    return [*made, node("Concat", [f"s{i}" for i in range(len(of))], ["s"], axis=0)]


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (0, 0)])
def test_expand_by_sizes_that_are_one(shape: tuple[int, int]) -> None:
    """A size of 1 keeps the axis as it is, whatever tensor it is of."""
    x, other = np.ones(shape, np.float32), np.zeros((3, 1), np.float32)
    if shape != (0, 0):
        dynamic(
            [*_sizes([("z", 0), ("z", 1)]), node("Expand", ["x", "s"], ["y"])], {"x": x, "z": other}
        )
    one = np.zeros((1, 1), np.float32)
    dynamic([*_sizes([("z", 0), ("z", 1)]), node("Expand", ["x", "s"], ["y"])], {"x": x, "z": one})


def test_reshape_by_sizes_that_are_zero() -> None:
    """A size of 0 copies the one at its place, unless zeros are allowed."""
    x, empty = np.ones((2, 3), np.float32), np.zeros((0, 3), np.float32)
    reshape = node("Reshape", ["x", "s"], ["y"])
    dynamic([*_sizes([("z", 0), ("z", 1)]), reshape], {"x": x, "z": empty})
    minus = node("Concat", ["m", "s"], ["t"], axis=0)
    last = node("Reshape", ["x", "t"], ["y"])
    known = {"m": np.array([-1])}
    dynamic([*_sizes([("z", 0)]), minus, last], {"x": x, "z": empty}, known)
    dynamic([*_sizes([("z", 0)]), minus, last], {"x": x[:0, :1], "z": empty}, known)
    dynamic(
        [node("Reshape", ["x", "t"], ["y"], allowzero=1)],
        {"x": x[:1, :0]},
        {"t": np.array([2, 2, 0])},
    )


@pytest.mark.parametrize("size", [0, 1, 3])
def test_numbers_that_may_be_negative(size: int) -> None:
    """What is computed of a shape need not be one."""
    shape = [node("Shape", ["x"], ["n"]), node("Sub", ["n", "two"], ["y"])]
    dynamic(shape, {"x": np.ones(size, np.float32)}, {"two": np.array([2])})
    shape = [node("Size", ["x"], ["n"]), node("Min", ["n", "two"], ["y"])]
    dynamic(shape, {"x": np.ones(size, np.float32)}, {"two": np.array([-2, 5])})


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (0, 3), (2, 0)])
def test_maxima_along_symbolic_axes(shape: tuple[int, int]) -> None:
    x = np.array([[1, 5, 5], [7, 2, 7]], np.float32)[: shape[0], : shape[1]]
    for axis in (0, 1):
        dynamic([node("Hardmax", ["x"], ["y"], axis=axis)], {"x": x})
        if shape[axis]:
            dynamic([node("ArgMax", ["x"], ["y"], axis=axis, select_last_index=1)], {"x": x})
