"""``T`` of TVMScript: symbolic integers and functions on them.

``T.int64()`` makes a symbolic variable (in TVMScript it takes the name that it is assigned to),
``T.int64(3)`` a literal. ``T.max``, ``T.if_then_else``, ``T.floordiv`` ... are those of
``relax2xla.tir``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Final

from relax2xla import tir as lib
from relax2xla.dtypes import DTYPES
from relax2xla.script.markers import Decorator, Marker, Namespace
from relax2xla.script.tir_functions import FUNCTIONS, Dtype


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
    "prim_func": Decorator("T.prim_func"),
    "macro": Decorator("T.macro"),
    "func_attr": Marker("T.func_attr"),
    "Buffer": _buffer,
}
_DTYPES: Final = {name: Dtype(name) for name in DTYPES}
# Literals by their classes, of which the dtype comes first.
_LITERALS: Final[dict[str, Any]] = {"FloatImm": lib.FloatImm, "IntImm": lib.IntImm}
CALLABLE: Final = [*FUNCTIONS.values(), *_LITERALS.values()]


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


tir: Final = Namespace("T", {**FUNCTIONS, **_LITERALS, **_DTYPES, **_MARKERS}, _of_scripts)
