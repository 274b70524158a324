"""ONNX to Relax: ``from_onnx`` for models, files and bytes."""

from __future__ import annotations

from relax2xla.importers.onnx.model import from_onnx as from_onnx
