"""Packed functions: Python functions that programs call by name."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from relax2xla.errors import TVMError

Packed = Callable[..., Any]

# Names that TVM and MLC-LLM bring, and the rooms whose ``BUILTINS`` serve them, imported if asked.
_BUILTIN = ("vm.builtin.", "mlc.create_paged_kv_cache_", "runtime.TVM", "tvm.relax.struct_info.")
_ROOMS = (
    "relax2xla.runtime.vm_builtins",
    "relax2xla.kv_state.builtins",
    "relax2xla.runtime.tensor_views",
    "relax2xla.runtime.tensor_cache",
)
_functions: dict[str, Packed] = {}
_lock = threading.Lock()


def register_func(
    func_name: str | Callable[..., Any], f: Packed | None = None, override: bool = False
) -> Any:
    """Register ``f`` under a name; also a decorator, with the name or bare.

    ``override`` replaces a function of that name; without it a name that is taken is a TVMError.
    Returns ``f``. Programs that a machine has linked already keep the function that they found.
    """
    if callable(func_name):
        name = getattr(func_name, "__name__", None)
        if name is None:
            raise TypeError("register_func needs a name for a callable without __name__")
        return _register(name, func_name, override)
    if not isinstance(func_name, str):
        raise TypeError(f"register_func takes a name; got {type(func_name).__name__}")
    if f is not None:
        return _register(func_name, f, override)

    def wrap(fn: Packed) -> Packed:
        return _register(func_name, fn, override)

    return wrap


def _register(name: str, fn: Any, override: bool) -> Any:
    if not callable(fn):
        raise TypeError(f"{name}: a packed function must be callable; got {type(fn).__name__}")
    with _lock:
        if name in _functions and not override:
            raise TVMError(
                f"the packed function {name!r} is registered already; give override=True to "
                "replace it"
            )
        _functions[name] = fn
    return fn


def get_global_func(name: str, allow_missing: bool = False) -> Packed | None:
    """The packed function ``name``; TVMError, or None if ``allow_missing``, where there is none."""
    found = _functions.get(name)
    if found is None and name.startswith(_BUILTIN):
        tables = (importlib.import_module(room).BUILTINS for room in _ROOMS)
        found = next((t[name] for t in tables if name in t), None)
    if found is None and not allow_missing:
        raise TVMError(
            f"there is no packed function {name!r}; register it with "
            f"relax2xla.register_func({name!r}, function)"
        )
    return found


def list_global_func_names() -> list[str]:
    """Names of all registered functions, sorted."""
    return sorted(_functions)


def remove_global_func(name: str) -> None:
    """Forget the packed function ``name``; TVMError where there is none."""
    with _lock:
        if _functions.pop(name, None) is None:
            raise TVMError(f"there is no packed function {name!r}")
