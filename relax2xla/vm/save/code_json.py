"""Bytecode as JSON, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from relax2xla.errors import TVMError
from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.code.wellformed import check_classes

# The classes of operands and instructions by their tags; the fields follow in order.
_CLASSES: Final[dict[str, type[Any]]] = {
    "call": bc.Call,
    "const": bc.Const,
    "func": bc.Func,
    "goto": bc.Goto,
    "if": bc.If,
    "imm": bc.Imm,
    "reg": bc.Reg,
    "ret": bc.Ret,
    "row": bc.FunctionRow,
    "special": bc.Special,
}
_TAGS: Final = {c: t for t, c in _CLASSES.items()}

Tensor = Callable[[Any], Any]


def encode(code: bc.Code, tensor: Tensor) -> Any:
    """``code`` as JSON data; ``tensor`` gives what stands for an array.

    Raises TVMError for constants that are no plain data.
    """
    rows = [_plain(row, tensor) for row in code.functions]
    return {"functions": rows, "constants": [_plain(c, tensor) for c in code.constants]}


def decode(data: Any, array: Tensor) -> bc.Code:
    """The inverse of :func:`encode`; ``array`` gives the array that something stands for.

    Raises BytecodeError, ValueError, TypeError or KeyError for what is no valid code.
    """
    rows = tuple(_read(row, array) for row in data["functions"])
    code = bc.Code(rows, tuple(_read(c, array) for c in data["constants"]))
    check_classes(code)
    bc.verify(code)
    return code


def _plain(value: Any, tensor: Tensor) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_plain(v, tensor) for v in value]
    if isinstance(value, list):
        return {"list": [_plain(v, tensor) for v in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_plain(k, tensor), _plain(v, tensor)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        items = value.reshape(-1).tolist() if value.dtype.kind in "OUT" else [None]
        if value.dtype.kind in "OUT" and all(isinstance(i, str) for i in items):
            kind = "object" if value.dtype.kind == "O" else "text"
            return {kind: items, "shape": list(value.shape)}
        return {"array": tensor(value)}
    tag = _TAGS.get(type(value))
    if tag is None:
        raise TVMError(
            f"a constant of the bytecode is a {type(value).__name__}, which cannot be saved; "
            "register it as a packed function, or pass it as an argument"
        )
    fields = type(value).__dataclass_fields__
    return {tag: [_plain(getattr(value, f), tensor) for f in fields]}


def _read(value: Any, array: Tensor) -> Any:
    if isinstance(value, list):
        return tuple(_read(v, array) for v in value)
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "list" in value:
        return [_read(v, array) for v in value["list"]]
    if "dict" in value:
        return {_read(k, array): _read(v, array) for k, v in value["dict"]}
    if "array" in value:
        return array(value["array"])
    for kind, dtype in (("text", np.str_), ("object", np.object_)):
        if kind in value:
            return np.array([str(i) for i in value[kind]], dtype).reshape(value["shape"])
    ((tag, fields),) = value.items()
    return _CLASSES[tag](*(_read(f, array) for f in fields))
