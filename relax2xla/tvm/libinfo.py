"""``tvm.libinfo``: the folders that C++ sources of external modules are compiled with."""

from __future__ import annotations

from relax2xla.frontend.nn.extern import SourceModule


def find_include_path() -> list[str]:
    """Folders for a compiler's ``-I``: relax2xla's headers, or TVM's where TVM_HOME is set."""
    return [str(path) for path in SourceModule.get_includes()]
