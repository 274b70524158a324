"""``tvm.contrib.{ndk,xcode,nvcc,emcc}``: compilers of what TVM generates, which is not here.

Programs import them, and name their functions in settings; calling one is an error.
"""

from __future__ import annotations

from typing import Any, Final

from relax2xla.tvm.refusing import refusing

_WHY: Final = (
    "it makes libraries of code that TVM generates; here XLA compiles. Save what relax.build gives "
    "with export_library(path), without fcompile"
)
_NAMES: Final = (
    "create_shared",
    "create_staticlib",
    "create_executable",
    "create_dylib",
    "cross_compiler",
    "compile_metal",
    "compile_coreml",
    "compile_cuda",
    "create_tvmjs_wasm",
    "tar",
    "untar",
)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(name)
    return refusing(f"tvm.contrib's {name}", _WHY)


def __dir__() -> list[str]:
    return list(_NAMES)
