"""A fixed sample of the onnx package's own cases, within the suite's tolerances.

Where a shape depends on the value of an input, that input is made an initializer first.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from relax2xla.errors import OpNotImplemented
from tests.importers.onnx.support import ours

# One case in so many of those that are supported, spread over the alphabet.
STEP = 11
# Operators, inputs or attributes that are not converted yet, by the start of the cases' names.
# fmt: off
LATER = (
    "adagrad", "adam", "affine_grid_2d", "ai_onnx_ml", "basic_", "bernoulli_seed",
    "bitcast_bool", "blackman", "cast_FLOAT", "castlike_FLOAT", "col2im", "cumsum",
    "deform_conv", "dft", "gridsample", "gru", "identity_opt", "identity_sequence",
    "image_decoder", "layer_normalization_4d_axis_negative_5",
    "linear_attention", "loop", "lstm",
    "melweightmatrix", "momentum", "nesterov", "nonmaxsuppression", "nonzero", "onehot_",
    "optional",
    "quantizelinear_e", "quantizelinear_float", "dequantizelinear_e", "dequantizelinear_float",
    "random", "range_", "regex", "reversesequence_9", "rnn", "roialign", "scan", "sequence",
    "simple_rnn", "split_to_sequence", "stft", "string", "strnorm", "strnormalizer",
    "tensorscatter", "tfidf", "training_dropout", "unique", "equal_string", "if_opt", "if_seq",
    "bernoulli", "cast_no_saturate", "castlike_no_saturate", "cast_STRING", "castlike_STRING",
    "cast_e8m0", "qlinearconv_", "concat_string",
)
# fmt: on


@functools.cache
def cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, while the suite makes its data
        return {c.name.removeprefix("test_"): c for c in load_model_tests(kind="node")}


def sample() -> list[str]:
    """Names only; they are the same in every run of one onnx release."""
    return [n for n in sorted(cases())[::STEP] if not n.startswith(LATER)]


def array(v: Any) -> Any:
    return numpy_helper.to_array(v) if isinstance(v, TensorProto) else v


def with_initializers(model: ModelProto, arrays: list[Any]) -> tuple[ModelProto, list[Any]]:
    """Small integer inputs, and what Resize calls scales and roi, as initializers."""
    made = ModelProto()
    made.CopyFrom(model)
    del made.graph.input[:]
    left: list[Any] = []
    for info, a in zip(model.graph.input, arrays, strict=True):
        if (a.dtype.kind in "ib" and a.size <= 64) or info.name in ("scales", "roi"):
            made.graph.initializer.append(numpy_helper.from_array(a, info.name))
        else:
            made.graph.input.append(info)
            left.append(a)
    return made, left


@pytest.mark.parametrize("at", range(136))
def test_the_suites_case(at: int) -> None:
    names = sample()
    if at >= len(names):
        pytest.skip("this onnx release has fewer cases")
    case = cases()[names[at]]
    for inputs, outputs in case.data_sets:
        arrays = [array(v) for v in inputs]
        model = case.model
        try:
            got = ours(model, arrays)
        except OpNotImplemented:
            model, arrays = with_initializers(model, arrays)
            got = ours(model, arrays)
        assert len(got) == len(outputs), names[at]
        for g, w in zip(got, map(array, outputs), strict=True):
            w = np.asarray(w)
            assert (g.dtype, g.shape) == (w.dtype, w.shape), names[at]
            low = g.dtype.itemsize <= 2 and g.dtype.kind not in "iub"
            rtol, atol = (1e-2, 1e-3) if low else (case.rtol, max(case.atol, 1e-7))
            if g.dtype.kind not in "iub":
                g, w = g.astype(np.float64), w.astype(np.float64)
            np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=names[at])


def test_the_suite_is_the_one_that_was_counted() -> None:
    assert onnx.defs.onnx_opset_version() >= 24
