"""Random ONNX graphs against ONNX Runtime and the reference implementation."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.fuzz.target import Target, Wrong


class OnnxValues(Target):
    """placeholder until onnx_graphs arrives"""

    name, title, suffix = "onnx-values", "random ONNX graphs against ONNX Runtime", ".onnx"

    def make(self, draw: random.Random) -> Any:
        return None

    def attempt(self, made: Any, folder: Path) -> str:
        return "same"
