"""What a raised module was read from.

A program that is read for editing holds high-level operators, whose lowering is not the text that
was read. While nobody has changed the module, it is written as it was read.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from relax2xla.ir.module import IRModule

# The functions of a raised module when it was made, and the module of rows.
_READ: Final[WeakKeyDictionary[IRModule, tuple[list[tuple[Any, Any]], IRModule]]] = (
    WeakKeyDictionary()
)


def remember(mod: IRModule, rows: IRModule) -> IRModule:
    """``mod``, of which ``rows`` is to be written as long as it is not changed."""
    _READ[mod] = list(mod.functions.items()), rows
    return mod


def as_read(mod: IRModule) -> IRModule:
    """The rows that ``mod`` was raised from if it holds the very same functions, else ``mod``."""
    made, rows = _READ.get(mod, (None, mod))
    if made is None or mod.attrs is not rows.attrs or len(made) != len(mod):
        return mod
    same = all(
        g is other and f is held
        for (g, f), (other, held) in zip(made, mod.functions.items(), strict=True)
    )
    return rows if same else mod
