"""``tvm.contrib.{cc,ndk,xcode,tar,nvcc,emcc}``: compilers of what TVM generates, which is not here.

Programs import them, and name their functions in settings; calling one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from relax2xla.errors import UnsupportedError

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


def _refusing(name: str) -> Callable[..., NoReturn]:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(
            f"tvm.contrib's {name} makes libraries of code that TVM generates; here XLA compiles. "
            "Save what relax.build gives with export_library(path), without fcompile"
        )

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name}`` of ``tvm.contrib``; calling it is an UnsupportedError."
    return call


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(name)
    return _refusing(name)


def __dir__() -> list[str]:
    return list(_NAMES)
