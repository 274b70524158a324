"""ONNX Runtime on as many threads as a benchmark has cores."""

from __future__ import annotations

from typing import Any


def one_thread() -> Any:
    """Options of a session on one thread that says nothing but errors."""
    return on_threads(1)


def on_threads(count: int) -> Any:
    """The same on some threads, which share operators out."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = count, 1
    options.log_severity_level = 3
    return options
