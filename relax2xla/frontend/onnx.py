"""``relax2xla.frontend.onnx``: the home of the ONNX importer."""

from __future__ import annotations

from relax2xla.importers.onnx import Context as Context
from relax2xla.importers.onnx import Floats as Floats
from relax2xla.importers.onnx import Ints as Ints
from relax2xla.importers.onnx import Known as Known
from relax2xla.importers.onnx import Sizes as Sizes
from relax2xla.importers.onnx import Support as Support
from relax2xla.importers.onnx import from_onnx as from_onnx
from relax2xla.importers.onnx import load_plugin as load_plugin
from relax2xla.importers.onnx import register_converter as register_converter
from relax2xla.importers.onnx import support as support
from relax2xla.importers.onnx import unregister_converter as unregister_converter
