"""Spectra, sampling, regions, random numbers, determinants: against ONNX Runtime and numpy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("onnxruntime")

from relax2xla.errors import FileFormatError, OpError, OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.plan.build import build
from tests.importers.onnx.support import agree, model_of, one, ours, theirs, value

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


GRID = (RNG.random((2, 4, 5, 2), np.float32) - 0.5) * 3
SCALAR = {"length": np.array(7, np.int64), "axis": np.array(1, np.int64)}
# operator, inputs, what one() takes beyond them
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *(
        (
            "GridSample",
            [f(2, 3, 6, 7), GRID],
            {"mode": mode, "padding_mode": padding, "align_corners": align},
        )
        for mode, padding, align in (
            ("linear", "reflection", 0),
            ("nearest", "border", 1),
            ("cubic", "zeros", 0),
            ("cubic", "reflection", 1),
            ("cubic", "border", 0),
            ("cubic", "border", 1),
        )
    ),
    ("GridSample", [f(1, 2, 4, 4), GRID[:1]], {"mode": "bilinear", "opset": 16}),
    ("DFT", [f(2, 8, 3, 1), SCALAR["length"], SCALAR["axis"]], {"known": [1, 2]}),
    ("DFT", [f(2, 8, 2), SCALAR["length"]], {"known": [1], "opset": 17, "inverse": 1}),
    ("DFT", [f(2, 8, 1)], {"opset": 17, "onesided": 1}),
    ("RoiAlign", [f(2, 3, 9, 8), np.abs(f(4, 4)) * [1, 1, 5, 5], i(0, 1, 1, 0)],
     {"output_height": 3, "output_width": 2, "sampling_ratio": 0}),
    ("RoiAlign", [f(2, 3, 9, 8), np.abs(f(4, 4)) * [1, 1, 5, 5], i(0, 1, 1, 0)],
     {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": "max",
      "coordinate_transformation_mode": "output_half_pixel"}),
    ("MaxRoiPool", [f(2, 3, 9, 8), np.array([[0, 1, 1, 5, 6], [1, 0, 2, 7, 3.0]])],
     {"pooled_shape": [3, 2], "spatial_scale": 0.8, "opset": 21}),
    ("Col2Im", [f(2, 12, 15), i(5, 6), i(2, 2)],
     {"known": [1, 2], "strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]}),
    ("Det", [f(2, 5, 5)], {}),
    ("Det", [np.array([[0, 1, 2, 0], [1, 0, 0, 1], [0, 0, 0, 2], [3, 1, 0, 0]], np.float32)], {}),
    ("LpPool", [f(1, 2, 7, 7)],
     {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0], "p": 3, "opset": 18}),
    ("ReverseSequence", [f(4, 3, 2), i(1, 4, 2)], {}),
    ("ReverseSequence", [f(3, 4), i(1, 4, 2)], {"batch_axis": 0, "time_axis": 1}),
    ("QuantizeLinear", [f(2, 6), np.array([0.1, 0.2], np.float32), np.array([3, 5], np.int8)],
     {"axis": 0}),
    ("TfIdfVectorizer", [np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)],
     {"mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
      "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
      "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7], "weights": [1.0, 2, 3, 4, 5, 6, 7]}),
    ("BitShift", [np.array([1, 200], np.uint8), np.array([3, 1], np.uint8)], {"direction": "LEFT"}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda k: CASES[k][0])
def test_against_onnxruntime(at: int) -> None:
    op, arrays, form = CASES[at]
    arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
    model, inputs = one(op, arrays, **form)
    agree(model, inputs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("length", [20, "length"])
def test_stft_with_a_window(length: Any) -> None:
    frame, step = 8, 3
    window = np.hanning(frame).astype(np.float32)
    x = f(2, 20, 1)
    model, inputs = one(
        "STFT", [x, np.array(step), window, np.array(frame)], opset=17, known=[1, 3]
    )
    dim = model.graph.input[0].type.tensor_type.shape.dim[1]
    setattr(dim, "dim_value" if isinstance(length, int) else "dim_param", length)
    got = ours(model, inputs)[0]
    frames = np.stack([x[:, s : s + frame, 0] * window for s in range(0, 13, step)], 1)
    want = np.fft.rfft(frames)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, rtol=1e-4, atol=1e-4)


def named_axes(at: int) -> tuple[onnx.ModelProto, list[Any]]:
    """A case whose image has sides that are known by name only."""
    op, arrays, form = CASES[at]
    model, inputs = one(op, [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays],
                        **form)  # fmt: skip
    for axis, name in ((2, "h"), (3, "w")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    return model, inputs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "at", [k for k, c in enumerate(CASES) if c[0] in ("GridSample", "RoiAlign", "MaxRoiPool")][1:]
)
def test_images_of_symbolic_size(at: int) -> None:
    agree(*named_axes(at), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("later", "name"), [("linear", "bilinear"), ("cubic", "bicubic")])
def test_the_later_names_of_modes_stand_in_older_models(later: str, name: str) -> None:
    """The runtime refuses them; exporters write them."""
    arrays = [f(1, 2, 4, 4), GRID[:1]]
    (got, inputs), (want, _) = (
        one("GridSample", arrays, mode=mode, opset=16) for mode in (later, name)
    )
    np.testing.assert_array_equal(ours(got, inputs)[0], ours(want, inputs)[0])


@pytest.mark.filterwarnings("ignore")
def test_deform_conv_without_offsets_is_a_convolution() -> None:
    x, w, b = f(1, 4, 6, 6), f(6, 2, 3, 3), f(6)
    offset = np.zeros((1, 18, 3, 3), np.float32)
    form: dict[str, Any] = {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}
    model, inputs = one("DeformConv", [x, w, offset, b], **form)
    plain, others = one("Conv", [x, w, b], **form)
    got, want = ours(model, inputs)[0], theirs(plain, others)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_circular_writes_into_a_cache() -> None:
    cache, new = f(2, 3, 4, 2), f(2, 3, 2, 2)
    model, inputs = one("TensorScatter", [cache, new, i(3, 1)], opset=24, mode="circular")
    want = cache.copy()
    for b, start in enumerate((3, 1)):
        for s in range(2):
            want[b, :, (start + s) % 4] = new[b, :, s]
    np.testing.assert_array_equal(ours(model, inputs)[0], want)


# -- random numbers ------------------------------------------------------------------------------
def drawn_by(op: str, inputs: list[Any], **form: Any) -> Any:
    model, rest = one(op, inputs, **form)
    return ours(model, rest)[0]


# Drawn by XLA from a key of the host, by numpy at import, and by XLA from a seed.
@pytest.mark.parametrize("seed", [{}, {"seed": 5.0}, {"seed": 6.0}], ids=["none", "small", "large"])
def test_random_numbers_have_their_distribution(seed: dict[str, float]) -> None:
    # Unseeded numbers differ at each run: so many that the bounds are six standard deviations.
    shape = [100, 100] if seed.get("seed") == 5 else [300, 400]
    drawn = functools.partial(drawn_by, **seed)
    normal = drawn("RandomNormal", [], shape=shape, mean=2.0, scale=3.0)
    assert normal.shape == tuple(shape)
    np.testing.assert_allclose([normal.mean(), normal.std()], [2, 3], rtol=0.03)
    flat = drawn("RandomUniform", [], shape=shape, low=-1.0, high=3.0)
    assert flat.min() >= -1
    assert flat.max() < 3
    np.testing.assert_allclose(np.quantile(flat, [0.25, 0.5, 0.75]), [0, 1, 2], atol=0.06)
    chance = np.full(shape, 0.3, np.float32)
    hits = drawn("Bernoulli", [chance], dtype=onnx.TensorProto.INT64)
    assert hits.dtype == np.int64
    np.testing.assert_allclose(hits.mean(), 0.3, atol=0.02)


def test_the_outermost_of_random_numbers_is_finite() -> None:
    """The largest fraction that this seed draws rounds up to 1 if half a step is added to it."""
    drawn = drawn_by("RandomNormal", [], shape=[260, 260], seed=35.0)
    assert 4 < drawn.max() < 5.5


def program(model: Any) -> Any:
    return VirtualMachine(build(from_onnx(model), "cpu"), "cpu")["main"]


def test_numbers_without_a_seed_differ_at_each_run_and_in_each_iteration() -> None:
    nodes = [
        helper.make_node("RandomUniform", [], ["r"], shape=[4000]),
        helper.make_node("Identity", ["on"], ["on2"]),
        helper.make_node("Identity", ["v"], ["v2"]),
    ]
    bool_, float_ = onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", bool_, ()),
            helper.make_tensor_value_info("v", float_, ()),
        ],
        [
            helper.make_tensor_value_info("on2", bool_, ()),
            helper.make_tensor_value_info("v2", float_, ()),
            helper.make_tensor_value_info("r", float_, [4000]),
        ],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["last", "rows"], body=body)
    plain = helper.make_node("RandomUniform", [], ["y"], shape=[4000])
    inputs = [value("x", np.array(0, np.float32))]
    known = {"count": np.array(2, np.int64)}
    static = program(model_of([loop, plain], inputs, ["rows", "y"], weights=known))
    inputs.append(value("count", np.array(2, np.int64)))
    dynamic = program(model_of([loop, plain], inputs, ["rows", "y"]))
    x, two = np.array(0, np.float32), np.array(2, np.int64)
    seen: list[Any] = []
    for _ in range(2):
        for rows, y in (static(x), dynamic(x, two)):
            seen += [*np.asarray(rows), np.asarray(y)]
    assert len({v.tobytes() for v in seen}) == len(seen) == 12
    related = np.corrcoef(np.stack(seen)) - np.eye(12)
    assert np.abs(related).max() < 0.1
    np.testing.assert_allclose([v.mean() for v in seen], 0.5, atol=0.03)


def test_the_state_of_numpy_makes_runs_repeatable() -> None:
    run = program(one("RandomNormal", [], shape=[8])[0])
    state = np.random.get_state()
    try:
        made: list[Any] = []
        for seed in (1, 1, 2):
            np.random.seed(seed)
            made.append(np.asarray(run()).tolist())
    finally:
        np.random.set_state(state)
    assert made[0] == made[1] != made[2]


def test_seeds() -> None:
    drawn = drawn_by
    first, again = (drawn("RandomNormal", [], shape=[8], seed=3.0) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != drawn("RandomNormal", [], shape=[8], seed=4.0)).any()
    nodes = [helper.make_node("RandomUniform", [], [n], shape=[8], name=n) for n in ("a", "b")]
    a, b = ours(model_of(nodes, [], ["a", "b"]), [])
    assert (a != b).any()


def test_multinomial_draws_classes_by_their_chance() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    got = drawn_by("Multinomial", [logits], sample_size=5000)
    assert got.dtype == np.int32
    np.testing.assert_allclose(np.bincount(got[0], minlength=3) / 5000, [0.1, 0.6, 0.3], atol=0.03)


def test_dropout_in_training_mode() -> None:
    x = np.ones((50, 50), np.float32)
    model, inputs = one(
        "Dropout", [x, np.array(0.2, np.float32), np.array(True)], known=[1, 2], outputs=2
    )
    y, mask = ours(model, inputs)
    np.testing.assert_allclose(y[mask], 1.25)
    assert not y[~mask].any()
    np.testing.assert_allclose(mask.mean(), 0.8, atol=0.03)


@pytest.mark.filterwarnings("ignore")
def test_nonsense_is_an_error() -> None:
    model, _ = one("Det", [f(2, 3)])
    with pytest.raises((OpError, ValueError), match="matrices of 2 by 3"):
        from_onnx(model)


@pytest.mark.filterwarnings("ignore")
def test_integers_divided_by_a_known_zero_are_an_error() -> None:
    """XLA's constant folding would end the process."""
    for op in ("Div", "Mod"):
        model, _ = one(op, [i(4, 6), i(2, 0)], known=[1])
        with pytest.raises(FileFormatError, match="divided by zero"):
            from_onnx(model)


@pytest.mark.filterwarnings("ignore")
def test_an_input_that_is_left_out_is_a_gap() -> None:
    model, _ = one("Concat", [f(2), f(2)], axis=0)
    model.graph.node[0].input[1] = ""
    with pytest.raises(OpNotImplemented, match="left out"):
        from_onnx(model)
