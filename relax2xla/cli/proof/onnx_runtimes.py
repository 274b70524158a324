"""ONNX models run by others: ONNX Runtime, and ONNX's reference."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import ModelProto

from relax2xla.importers.onnx import load as load_onnx

# Loads the model; what it gives runs it, and gives its results.
Runtime: TypeAlias = Callable[[], Callable[[], list[Any]]]


def runtimes(
    file: Path, flat: Sequence[Any], threads: int | None, taps: Sequence[str] = ()
) -> dict[str, Runtime]:
    """Ways to run an .onnx file on its inputs ``flat``, by name.

    ``taps``: values inside of the graph that are results too, after its outputs
    """

    def model() -> ModelProto:
        read = onnx.load(file)
        load_onnx.add_outputs(read, taps)
        return read

    found: dict[str, Runtime] = {}
    if importlib.util.find_spec("onnxruntime") is not None:
        found["ONNX Runtime"] = lambda: _session(
            model().SerializeToString() if taps else str(file), flat, threads
        )
    found["onnx.reference"] = lambda: _evaluator(model(), flat)
    return found


def _feed(value: Any) -> Any:
    """An argument as ONNX Runtime and the reference take it: sequences are lists."""
    return list(value) if isinstance(value, tuple) else value


def _session(
    model: str | bytes, flat: Sequence[Any], threads: int | None
) -> Callable[[], list[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip([i.name for i in session.get_inputs()], map(_feed, flat), strict=True))
    return lambda: list(session.run(None, feeds))


def _evaluator(model: ModelProto, flat: Sequence[Any]) -> Callable[[], list[Any]]:
    from onnx.reference import ReferenceEvaluator

    feeds = dict(zip(load_onnx.input_names(model.graph), map(_feed, flat), strict=True))
    evaluator: Any = ReferenceEvaluator(model)
    return lambda: list(evaluator.run(None, feeds))
