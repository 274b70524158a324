"""ONNX Runtime on one thread, as every benchmark has it."""

from __future__ import annotations

from typing import Any


def one_thread() -> Any:
    """Options of a session on one thread that says nothing but errors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options
