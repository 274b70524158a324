"""ONNX models run by others, and compared with them value by value."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from relax2xla.cli._reference import Reference
from relax2xla.importers.onnx import file as onnx_file


def runtimes(
    file: Path, flat: Sequence[Any], threads: int | None, taps: Sequence[str] = ()
) -> dict[str, Callable[[], Reference]]:
    """Ways to run an .onnx file on its inputs ``flat``, by name.

    ``taps``: values inside of the graph that are results too, after its outputs
    """

    def model() -> ModelProto:
        read = onnx.load(file)
        onnx_file.add_outputs(read, taps)
        return read

    found: dict[str, Callable[[], Reference]] = {}
    if importlib.util.find_spec("onnxruntime") is not None:
        found["ONNX Runtime"] = lambda: _session(
            model().SerializeToString() if taps else str(file), flat, threads
        )
    found["onnx.reference"] = lambda: _evaluator(model(), flat)
    return found


def _session(model: str | bytes, flat: Sequence[Any], threads: int | None) -> Reference:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip([i.name for i in session.get_inputs()], flat, strict=True))
    return Reference("ONNX Runtime", lambda: list(session.run(None, feeds)))


def _evaluator(model: ModelProto, flat: Sequence[Any]) -> Reference:
    from onnx.reference import ReferenceEvaluator

    feeds = dict(zip(onnx_file.input_names(model.graph), flat, strict=True))
    evaluator: Any = ReferenceEvaluator(model)
    return Reference("onnx.reference", lambda: list(evaluator.run(None, feeds)))
