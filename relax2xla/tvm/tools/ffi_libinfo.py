"""``tvm._ffi.libinfo`` of TVM 0.20: folders that C++ sources compile with."""

from __future__ import annotations

from relax2xla.frontend.nn.extern import SourceModule


def find_include_path() -> list[str]:
    """Relax2xla's headers, or TVM's where the environment variable TVM_HOME names it."""
    return [str(path) for path in SourceModule.get_includes()]
