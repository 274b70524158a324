"""The weights of an ONNX file by name, without its network."""

from __future__ import annotations

import os
from typing import Any

import numpy.typing as npt

from relax2xla.importers.onnx.read import tensors
from relax2xla.importers.onnx.read.source import read


def load_initializers(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """The initializers of an ONNX model by name, external data included, for ``set_params``.

    Raises FileFormatError for what is damaged, or points outside of the model's folder.
    """
    source = read(path)
    graph = source.proto.graph
    return {t.name: tensors.tensor(t, source.directory) for t in graph.initializer}
