"""``tvm.libinfo`` and ``tvm_ffi.libinfo`` of TVM 0.25: folders that C++ sources compile with."""

from __future__ import annotations

from relax2xla.runtime.compiler import INCLUDE


def find_include_path() -> str:
    """The folder of relax2xla's headers, those of DLPack among them."""
    return str(INCLUDE)


find_dlpack_include_path = find_include_path
