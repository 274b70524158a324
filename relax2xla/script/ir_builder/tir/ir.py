"""The statements of ``T`` for IRBuilder; other names are those of TVMScript's ``T``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relax2xla import tir
from relax2xla.script.ir_builder.base import IRBuilder
from relax2xla.script.ir_builder.tir.frame import (
    FRAMES,
    PrimFuncFrame,
    result_dtype,
    statements,
)
from relax2xla.script.prim_func import forms, values
from relax2xla.script.tir_names import tir as names
from relax2xla.tir import buffer as buffers


def prim_func(is_private: bool = False) -> PrimFuncFrame:
    """The frame of a function, for ``with``; a private one has no ``global_symbol``."""
    return PrimFuncFrame(is_private)


def func_name(name: str) -> None:
    """Name the function under construction."""
    PrimFuncFrame.current("T.func_name").name = name


def func_ret(ret_type: Any) -> Any:
    """Say what the function returns: ``T.int32``, the name of a dtype or a PrimType."""
    PrimFuncFrame.current("T.func_ret").ret = result_dtype(ret_type)
    return ret_type


def func_attr(attrs: Mapping[str, Any]) -> None:
    """Give the function attributes; the same key twice is an error."""
    PrimFuncFrame.current("T.func_attr")
    forms.FORMS["func_attr"](statements(), dict(attrs))


def arg(name: str, obj: Any) -> Any:
    """Add a parameter: a variable, or a buffer, which stands for a handle of its own."""
    PrimFuncFrame.current("T.arg")
    head = statements().func
    IRBuilder.name(name, obj)
    if isinstance(obj, buffers.Buffer):
        handle = tir.Var(f"{name}_handle", "handle")
        head.params.append(handle)
        head.buffer_map[handle] = obj
    elif isinstance(obj, tir.Var):
        head.params.append(obj)
    else:
        raise TypeError(f"T.arg takes a variable or a T.Buffer; got {type(obj).__name__}")
    return obj


def _form(name: str) -> Callable[..., Any]:
    """A statement of ``T``: a frame where it opens something, else what it gives."""

    def call(*args: Any, **kwargs: Any) -> Any:
        state = statements()
        made = forms.FORMS[name](state, *args, **kwargs)
        frame = FRAMES.get(type(made))
        if frame is not None:
            return frame(made)
        if len(state.frames) == 1 and state.frames[0].entries:
            state.flush(IRBuilder.current())
        return made

    call.__name__ = call.__qualname__ = name
    return call


def __getattr__(name: str) -> Any:
    if name == "axis":
        return forms.Axes(statements())
    if name in forms.FORMS:
        return _form(name)
    found = values.FUNCTIONS.get(name) or values.DTYPE_NAMES.get(name)
    return getattr(names, name) if found is None else found


def __dir__() -> list[str]:
    own = ("prim_func", "func_name", "func_ret", "func_attr", "arg", "axis")
    return sorted({*own, *forms.FORMS, *values.FUNCTIONS, *values.DTYPE_NAMES})
