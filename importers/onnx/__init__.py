"""ONNX to Relax: ``from_onnx`` for models, files and bytes; converters of one's own."""

from __future__ import annotations

from relax2xla.importers.onnx.engine.context import Context as Context
from relax2xla.importers.onnx.engine.converters import Floats as Floats
from relax2xla.importers.onnx.engine.converters import Ints as Ints
from relax2xla.importers.onnx.engine.converters import Known as Known
from relax2xla.importers.onnx.engine.converters import Sizes as Sizes
from relax2xla.importers.onnx.engine.converters import register_converter as register_converter
from relax2xla.importers.onnx.engine.converters import unregister_converter as unregister_converter
from relax2xla.importers.onnx.engine.model import from_onnx as from_onnx
from relax2xla.importers.onnx.read.initializers import load_initializers as load_initializers
from relax2xla.importers.onnx.report import Support as Support
from relax2xla.importers.onnx.report import support as support
from relax2xla.importers.plugins import load_plugin as load_plugin
