"""The error classes under the name that TVM gives their home, ``tvm.error``."""

from __future__ import annotations

from relax2xla.errors import DiagnosticError as DiagnosticError
from relax2xla.errors import OpError as OpError
from relax2xla.errors import OpNotImplemented as OpNotImplemented
from relax2xla.errors import TVMError as InternalError
from relax2xla.errors import TVMError as TVMError

__all__ = ["DiagnosticError", "InternalError", "OpError", "OpNotImplemented", "TVMError"]
