"""``T`` of TVMScript: symbolic integers and functions on them.

``T.int64()`` makes a symbolic variable (in TVMScript it takes the name that it is assigned to),
``T.int64(3)`` a literal. ``T.max``, ``T.if_then_else``, ``T.floordiv`` ... are those of
``relax2xla.tir``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, Final

from relax2xla import tir as lib
from relax2xla.dtypes import DTYPES
from relax2xla.ir import PrimValue
from relax2xla.script.markers import Decorator, Marker, Namespace


class Dtype:
    """``T.int64``: of nothing a variable, of a number a literal, of an expression a cast."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any = None, *, is_size_var: bool = False) -> lib.PrimExpr:
        if value is None:
            return (lib.SizeVar if is_size_var else lib.Var)("", self.name)
        if isinstance(value, PrimValue):
            value = value.value
        if isinstance(value, lib.PrimExpr):
            return lib.cast(self.name, value)
        return lib.const(float(value) if isinstance(value, str) else value, self.name)

    def __repr__(self) -> str:
        return f"T.{self.name}"


def declared_dtypes(body: Iterable[ast.stmt]) -> dict[str, str]:
    """The dtypes that statements such as ``k = T.int32()`` state, by name.

    A signature names its symbols in strings, which do not say them.
    """
    found: dict[str, str] = {}
    for s in body:
        if not isinstance(s, ast.Assign) or len(s.targets) != 1:
            continue
        target, value = s.targets[0], s.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        targets = target.elts if several and isinstance(target, ast.Tuple) else [target]
        values = value.elts if several and isinstance(value, ast.Tuple) else [value]
        for t, v in zip(targets, values, strict=False):
            if isinstance(t, ast.Name) and isinstance(v, ast.Call) and not v.args:
                if isinstance(v.func, ast.Attribute) and v.func.attr in DTYPES:
                    found[t.id] = v.func.attr
    return found


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "index_map": lib.IndexMap.from_func,
    "max": lib.max,
    "min": lib.min,
    "floordiv": lib.floordiv,
    "floormod": lib.floormod,
    "truncdiv": lib.truncdiv,
    "truncmod": lib.truncmod,
    "ceildiv": lib.ceildiv,
    "div": lib.div,
    "Div": lib.Div.make,
    "Select": lib.Select,
    "if_then_else": lib.if_then_else,
    "all": lib.all,
    "any": lib.any,
    "And": lib.And.make,
    "Or": lib.Or.make,
    "Not": lib.Not,
    "EQ": lib.EQ.make,
    "NE": lib.NE.make,
    "Cast": lambda dtype, value: lib.cast(dtype, value),
    "cast": lambda value, dtype: lib.cast(dtype, value),
    "reinterpret": lib.reinterpret,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda a: ~a,
    "Var": lambda name, dtype="int64": lib.Var(name, getattr(dtype, "name", dtype)),
}


def _prim_func(
    func: Any, private: bool = False, check_well_formed: bool = True, s_tir: bool = False
) -> Any:
    # s_tir: see relax2xla.script.functions.
    from relax2xla.script.entry import decorate_function

    return decorate_function(func, private, True, check_well_formed)


def _macro(*args: Any, **options: Any) -> Any:
    from relax2xla.script.entry import decorate_macro

    return decorate_macro(*args, **options)


def _buffer(*args: Any, **kwargs: Any) -> lib.Buffer | None:
    """A buffer of its own. In a signature the parser reads the text, and says what is wrong."""
    from relax2xla.script.prim_func.buffers import make

    try:
        made = make(lambda name: lib.Var(name, "int64"), *args, **kwargs)
    except (TypeError, ValueError):
        return None
    object.__setattr__(made, "name", "buffer")
    return made


_MARKERS: Final[dict[str, Any]] = {
    "prim_func": Decorator("T.prim_func", _prim_func),
    "macro": Decorator("T.macro", _macro),
    "func_attr": Marker("T.func_attr"),
    "Buffer": _buffer,
}
_DTYPES: Final = {name: Dtype(name) for name in DTYPES}
CALLABLE: Final = list(FUNCTIONS.values())


def _of_scripts(name: str) -> Any:
    """What the parser of loop-level functions knows: functions, and statements while it reads."""
    from relax2xla.script.prim_func import active, forms, values

    if name in values.FUNCTIONS:
        return values.FUNCTIONS[name]
    if name in values.DTYPE_NAMES:
        return values.DTYPE_NAMES[name]
    if name in forms.FORMS:
        return active.form(name)
    raise AttributeError(f"T has no {name!r}")


tir: Final = Namespace("T", {**FUNCTIONS, **_DTYPES, **_MARKERS}, _of_scripts)
