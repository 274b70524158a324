"""Random graphs with sizes 0 and 1 against ONNX Runtime and the reference (tests/fuzz)."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

pytest.importorskip("onnxruntime")

from tests.fuzz.onnx_graphs import graph, inputs
from tests.fuzz.onnx_operators import RULES
from tests.importers.onnx.support import ours, theirs

SEEDS = range(24)


def same(got: Any, want: Any) -> bool:
    """dtype, shape and values, floats to their rounding."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind != "f":
        return np.array_equal(got, want)
    return np.allclose(got, want, rtol=2e-5, atol=1e-5, equal_nan=True)


def reference(proto: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    """Outputs by ONNX's own evaluator."""
    names = [i.name for i in proto.graph.input]
    return list(ReferenceEvaluator(proto).run(None, dict(zip(names, arrays, strict=True))))


@pytest.mark.parametrize("seed", SEEDS)
def test_values(seed: int) -> None:
    proto = graph(seed)
    given = inputs(proto, seed)
    wanted: list[Any] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for run in (theirs, reference):
            # Each lacks some dtypes, or has faults of its own.
            with contextlib.suppress(Exception):
                wanted.append(run(proto, list(given.values())))
    assert wanted
    made = ours(proto, list(given.values()))
    for at, got in enumerate(made):
        assert any(same(got, np.asarray(w[at])) for w in wanted), proto.graph.output[at].name


def test_a_seed_is_a_model() -> None:
    """The same twice, valid, and all of the table before long."""
    met: set[str] = set()
    for seed in range(150):
        proto = graph(seed)
        met.update(n.op_type for n in proto.graph.node)
        if seed % 10 == 0:
            onnx.checker.check_model(proto)
            assert graph(seed) == proto
            assert list(inputs(proto, seed)) == [i.name for i in proto.graph.input]
    assert len(met & set(RULES)) > 80
