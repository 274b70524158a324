"""``relax2xla.frontend.onnx``: the home of the ONNX importer."""

from __future__ import annotations

from relax2xla.importers.onnx import from_onnx as from_onnx
