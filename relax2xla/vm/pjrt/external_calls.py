"""External functions inside XLA programs: the custom call that runs them, on CPUs.

One handler of XLA's typed interface serves all functions. It is compiled at the first use, since
it needs the headers of the jaxlib that is installed; functions are bound to it by key.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import tempfile
from pathlib import Path
from typing import Any, Final

import jax
from jaxlib import version as jaxlib_version

from relax2xla.errors import TVMError
from relax2xla.runtime.native import NativeFunction, NativeModule
from relax2xla.stablehlo.untrusted.targets import AllowedTarget
from relax2xla.vm.pjrt.own_library import shared_library

log = logging.getLogger("relax2xla.vm")

#: The target of the custom call; that it is allowed is the caller's doing, who brought the code.
TARGET: Final = AllowedTarget("relax2xla_external")
#: A plain C function has at most this many tensors.
LONGEST_PLAIN: Final = 16
#: Dtypes that functions take inside programs.
DTYPES: Final = frozenset(
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    ]
)


def bind(function: NativeFunction) -> str | None:
    """The key by which programs of this process call ``function``; None where they cannot."""
    handler = _handler()
    if handler is None:
        return None
    handler.relax2xla_bind(function.key.encode(), function.address, int(function.typed))
    return function.key


def share_threads(module: NativeModule) -> None:
    """Let functions of ``module`` use the threads of the programs that call them."""
    handler = _handler()
    if handler is not None:
        address = ctypes.cast(handler.relax2xla_in_parts, ctypes.c_void_p).value
        assert address is not None
        module.use_threads(address)


@functools.cache
def _handler() -> Any:
    """The library of the handler, registered with XLA; None, and a notice, where it cannot be."""
    try:
        library = _compiled()
    except (TVMError, OSError) as e:
        log.warning("external functions run outside of XLA's programs: %s", e)
        return None
    library.relax2xla_bind.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]
    library.relax2xla_bind.restype = None
    capsule = jax.ffi.pycapsule(library.relax2xla_external)
    jax.ffi.register_ffi_target(str(TARGET), capsule, platform="cpu")
    return library


def _compiled() -> ctypes.CDLL:
    headers = jax.ffi.include_dir()
    code = shared_library(
        "external_calls.cpp",
        ["-O2", f"-DRELAX2XLA_LONGEST_PLAIN={LONGEST_PLAIN}", "-I", headers],
        "the handler of external calls does not compile",
        beside=jaxlib_version.__version__,
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "external_calls.so"
        made.write_bytes(code)
        return ctypes.CDLL(str(made))
