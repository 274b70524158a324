"""``relax2xla.onnx_backend``: the onnx package's ``Backend`` interface.

``prepare``, ``run_model``, ``run_node``, ``supports_device``; see
:mod:`relax2xla.importers.onnx.backend`.
"""

from __future__ import annotations

from relax2xla.importers.onnx.backend import Prepared as Prepared
from relax2xla.importers.onnx.backend import Relax2XLABackend as Relax2XLABackend
from relax2xla.importers.onnx.backend import is_compatible as is_compatible
from relax2xla.importers.onnx.backend import prepare as prepare
from relax2xla.importers.onnx.backend import run_model as run_model
from relax2xla.importers.onnx.backend import run_node as run_node
from relax2xla.importers.onnx.backend import supports_device as supports_device
