"""Statements in the bodies of functions, blocks and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.forms.owner import Owner
from relax2xla.script.prim_func.frames import Branch, Opener
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.node import element_of, is_int, lanes_of
from relax2xla.tir.vector import with_lanes


class MetaVar:
    """``T.meta_var(value)``: a value that only the parser has; the program does not show it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __iter__(self) -> Iterator[MetaVar]:
        held: Any = self.value
        return (MetaVar(x) for x in held)


def _attr(owner: Owner, node: Any, attr_key: str = "", value: object = None) -> Opener:
    if isinstance(node, dict):  # as TVM 0.25 writes attributes of no node
        if len(node) != 1:
            raise v.Unread(None, "T.attr with several attributes is not read")
        ((attr_key, value),) = node.items()
        node = 0
    held, line = v.number(value), owner.line
    attr_key = v.text(attr_key, "the key of T.attr")
    if isinstance(node, int | float | str):
        node = v.number(node)
    return Opener(lambda body: s.AttrStmt(node, attr_key, held, body, line=line))


def _assert(owner: Owner, condition: object, message: object = "") -> Opener:
    held, line = v.number(condition), owner.line
    text = message if isinstance(message, tir.StringImm) else tir.StringImm(str(message or ""))
    return Opener(lambda body: s.AssertStmt(held, text, body, line=line))


def let(value: object, var: tir.Var | None, line: int) -> Opener:
    """``var = value`` for what follows; a number becomes a literal of the variable's dtype."""
    held = v.number(value)
    if var is not None and type(value) in (int, float):
        if is_float(var.dtype) or (is_int(var.dtype) and isinstance(value, int)):
            held = v.cast(value, var.dtype)
    bound = tir.Var("", held.dtype) if var is None else var
    if bound.dtype not in (held.dtype, "handle"):
        raise TypeError(f"the value `{held}` is {held.dtype}, its name {bound.dtype}; cast it")
    return Opener(lambda body: s.LetStmt(bound, held, body, line=line), bound)


def _let_stmt(
    owner: Owner, value: object, type_annotation: Any = None, *, var: tir.Var | None = None
) -> Opener:
    if var is None and type_annotation is not None:
        var = type_annotation if isinstance(type_annotation, tir.Var) else type_annotation()
    return let(value, var, owner.line)


def _if(owner: Owner, condition: object) -> Branch:
    held = v.number(condition)
    if held.dtype != "bool":
        raise TypeError(f"T.If takes a condition; got an expression of dtype {held.dtype}")
    return Branch(owner.frames, "if", owner.line, held)


def _then(owner: Owner) -> Branch:
    return Branch(owner.frames, "then", owner.line)


def _else(owner: Owner) -> Branch:
    return Branch(owner.frames, "else", owner.line)


def _evaluate(owner: Owner, value: object) -> None:
    owner.frames[-1].entries.append(s.Evaluate(v.number(value), line=owner.line))


def store(
    owner: Owner,
    buffer: object,
    value: object,
    indices: object,
    predicate: tir.PrimExpr | None = None,
) -> None:
    """``buffer[indices] = value``; the value is cast to what the buffer holds."""
    if not isinstance(buffer, Buffer):
        raise TypeError(f"only elements of buffers are assigned; got {buffer!r}")
    places = indices if isinstance(indices, tuple | list) else (indices,)
    at = BufferLoad(buffer, [v.vector_index(i) for i in places])
    # A number is a literal of what the buffer holds, and has to fit.
    element = element_of(buffer.dtype)
    held = v.cast(value, element) if isinstance(value, float) else v.number(value)
    if lanes_of(held.dtype) != lanes_of(at.dtype):
        raise TypeError(
            f"{held.dtype} is stored where {buffer.name} holds {at.dtype}: the lanes differ"
        )
    if held.dtype == "handle" and buffer.dtype != "handle":
        raise TypeError(f"a handle is stored in {buffer.name}, which holds {buffer.dtype}")
    held = v.cast(held, with_lanes(element, lanes_of(at.dtype)))
    made = s.BufferStore(buffer, held, at.indices, predicate, line=owner.line)
    owner.frames[-1].entries.append(made)


def _buffer_store(
    owner: Owner, buffer: object, value: object, indices: object, predicate: object = None
) -> None:
    store(owner, buffer, value, indices, None if predicate is None else v.number(predicate))


def _func_attr(owner: Owner, attrs: dict[str, Any]) -> None:
    for key, value in v.mapping(attrs, "T.func_attr").items():
        if key == "global_symbol":
            value = v.text(value, "global_symbol")
        if key in owner.func.attrs and owner.func.attrs[key] is not value:
            raise ValueError(f"the attribute {key!r} of the function is said twice")
        owner.func.attrs[key] = value


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "attr": _attr,
    "Assert": _assert,
    "If": _if,
    "Then": _then,
    "Else": _else,
    "LetStmt": _let_stmt,
    "evaluate": _evaluate,
    "buffer_store": _buffer_store,
    "func_attr": _func_attr,
    "meta_var": lambda owner, value: MetaVar(value),
}
