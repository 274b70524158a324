"""ONNX models run by others, and compared with them value by value."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, TypeProto

from relax2xla.cli.reference import Reference
from relax2xla.cli.values import Declared
from relax2xla.importers.onnx import load as load_onnx
from relax2xla.importers.onnx.read.source import read
from relax2xla.importers.onnx.read.tensors import dtype_of_code


def runtimes(
    file: Path, flat: Sequence[Any], threads: int | None, taps: Sequence[str] = ()
) -> dict[str, Callable[[], Reference]]:
    """Ways to run an .onnx file on its inputs ``flat``, by name.

    ``taps``: values inside of the graph that are results too, after its outputs
    """

    def model() -> ModelProto:
        read = onnx.load(file)
        load_onnx.add_outputs(read, taps)
        return read

    found: dict[str, Callable[[], Reference]] = {}
    if importlib.util.find_spec("onnxruntime") is not None:
        found["ONNX Runtime"] = lambda: _session(
            model().SerializeToString() if taps else str(file), flat, threads
        )
    found["onnx.reference"] = lambda: _evaluator(model(), flat)
    return found


def declared(file: Path) -> dict[str, Declared]:
    """What a model says of its inputs that are no tensors of numbers, by name."""
    graph = read(file).proto.graph
    names = set(load_onnx.input_names(graph))
    found = {i.name: _declared(i.type) for i in graph.input if i.name in names}
    return {name: kind for name, kind in found.items() if kind is not None}


def _declared(proto: TypeProto) -> Declared | None:
    """None for tensors of numbers, and where the type is not stated."""
    optional = proto.HasField("optional_type")
    inner = proto.optional_type.elem_type if optional else proto
    sequence = inner.HasField("sequence_type")
    inner = inner.sequence_type.elem_type if sequence else inner
    keys = ""
    if inner.HasField("map_type"):
        keys = "string" if inner.map_type.key_type == TensorProto.STRING else "int64"
        inner = inner.map_type.value_type
    tensor = inner.tensor_type
    if not inner.HasField("tensor_type") or tensor.elem_type == TensorProto.UNDEFINED:
        return None
    text = tensor.elem_type == TensorProto.STRING
    if not (optional or sequence or keys or text):
        return None
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim
        )
    dtype = "" if text else dtype_of_code(tensor.elem_type, "an input").name
    return Declared(dtype, sequence, optional, keys, dims)


def _feed(value: Any) -> Any:
    """An argument as ONNX Runtime and the reference take it: sequences are lists."""
    return list(value) if isinstance(value, tuple) else value


def _session(model: str | bytes, flat: Sequence[Any], threads: int | None) -> Reference:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip([i.name for i in session.get_inputs()], map(_feed, flat), strict=True))
    return Reference("ONNX Runtime", lambda: list(session.run(None, feeds)))


def _evaluator(model: ModelProto, flat: Sequence[Any]) -> Reference:
    from onnx.reference import ReferenceEvaluator

    feeds = dict(zip(load_onnx.input_names(model.graph), map(_feed, flat), strict=True))
    evaluator: Any = ReferenceEvaluator(model)
    return Reference("onnx.reference", lambda: list(evaluator.run(None, feeds)))
