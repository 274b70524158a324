"""Names of the package ``tvm`` itself that relax2xla's own top level does not have."""

from __future__ import annotations

from relax2xla.tvm.runtime.containers import DataType as DataType
from relax2xla.tvm.runtime.containers import DataTypeCode as DataTypeCode
from relax2xla.tvm.runtime.containers import Object as Object
from relax2xla.tvm.runtime.containers import String as String
from relax2xla.tvm.runtime.executables import build as build
from relax2xla.tvm.runtime.executables import compile as compile

#: The version of TVM's API.
__version__ = "0.20.0"
