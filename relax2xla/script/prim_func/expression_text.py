"""Text of the expressions of a loop-level function, as TVM's printer writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.script.literals import float_text, quote
from relax2xla.script.marks import Marks
from relax2xla.tir.buffer import Buffer, BufferLoad, Let
from relax2xla.tir.intrinsic import dtype_place, name_of
from relax2xla.tir.node import element_of
from relax2xla.tir.vector import Broadcast, Ramp

# Python's precedences.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT = range(1, 7)
_INFIX: Final[dict[type[tir.PrimExpr], tuple[str, int]]] = {
    tir.Or: ("or", _OR),
    tir.And: ("and", _AND),
    tir.EQ: ("==", _COMPARE),
    tir.NE: ("!=", _COMPARE),
    tir.LT: ("<", _COMPARE),
    tir.LE: ("<=", _COMPARE),
    tir.GT: (">", _COMPARE),
    tir.GE: (">=", _COMPARE),
    tir.Add: ("+", _SUM),
    tir.Sub: ("-", _SUM),
    tir.Mul: ("*", _PRODUCT),
    tir.FloorDiv: ("//", _PRODUCT),
    tir.FloorMod: ("%", _PRODUCT),
    tir.Div: ("/", _PRODUCT),
}
_CALLED: Final[dict[type[tir.PrimExpr], str]] = {
    tir.Min: "min",
    tir.Max: "max",
    tir.Mod: "truncmod",
    tir.Select: "Select",
}
_Piece = str | tuple[tir.PrimExpr, int]


class ExpressionText:
    """Writes expressions; ``var`` and ``buffer`` say the names of variables and buffers."""

    def __init__(
        self,
        prefix: Callable[[], str],
        var: Callable[[tir.Var], str],
        buffer: Callable[[Buffer], str],
        function: Callable[[str], str],
        marks: Marks | None = None,
    ) -> None:
        self._marks = marks
        self._prefix = prefix
        self._var = var
        self._buffer = buffer
        self._function = function

    def dim(self, value: tir.Dim) -> str:
        """A size or a bound; an int is an int64."""
        return f"{self._prefix()}.int64({value})" if type(value) is int else self.of(value)

    def of(self, root: tir.Dim) -> str:
        """An expression."""
        if isinstance(root, int):
            return self.dim(root)
        out: list[str] = []
        stack: list[_Piece] = [(root, 0)]
        while stack:
            piece = stack.pop()
            if isinstance(piece, str):
                out.append(piece)
            else:
                pieces = self._pieces(*piece)
                stack.extend(
                    reversed(self._marks.around(piece[0], pieces) if self._marks else pieces)
                )
        return "".join(out)

    def _pieces(self, node: tir.PrimExpr, demanded: int) -> Sequence[_Piece]:
        match node:
            case tir.Var():
                return (self._var(node),)
            case tir.IntImm() | tir.FloatImm() | tir.StringImm():
                return (self.literal(node),)
            case tir.Not():
                if isinstance(node.a, tir.IntImm):
                    return (f"{self._prefix()}.Not(", (node.a, 0), ")")
                inside: tuple[_Piece, ...] = ("not ", (node.a, _NOT))
                return ("(", *inside, ")") if demanded > _NOT else inside
            case tir.BinaryExpr() if (infix := _sugar(node)) is not None:
                sign, precedence = infix
                inside = ((node.a, precedence), f" {sign} ", (node.b, precedence + 1))
                return ("(", *inside, ")") if demanded > precedence else inside
            case tir.Cast():
                return (f'{self._prefix()}.Cast("{node.dtype}", ', (node.value, 0), ")")
            case BufferLoad() if node.predicate is not None:
                return (
                    *(self._buffer(node.buffer), ".vload([", *_listed(node.indices)),
                    *("], predicate=", (node.predicate, 0), ")"),
                )
            case BufferLoad():
                return (self._buffer(node.buffer), "[", *self.indices(node.indices), "]")
            case Ramp():
                t = self._prefix()
                lanes = _lanes(node)
                return (f"{t}.Ramp(", (node.base, 0), ", ", (node.stride, 0), ", ", lanes, ")")
            case Broadcast():
                lanes = _lanes(node)
                return (f"{self._prefix()}.Broadcast(", (node.value, 0), ", ", lanes, ")")
            case Let():
                var = self._var(node.var)
                return (
                    *(f"{self._prefix()}.Let(", (node.body, 0)),
                    *(f", where={{{var}: ", (node.value, 0), "})"),
                )
            case tir.Call():
                return self._call(node)
            case _:
                name = _CALLED.get(type(node), type(node).__name__)
                return (f"{self._prefix()}.{name}(", *_listed(node.children()), ")")

    def _call(self, node: tir.Call) -> Sequence[_Piece]:
        if node.op.startswith("@"):
            return (f"{self._function(node.op[1:])}(", *_listed(node.args), ")")
        parts: list[_Piece] = list(_listed(node.args))
        place = dtype_place(node.op)
        name = name_of(node.op)
        dtype = quote(node.dtype)
        if place == "first" or name == "type_annotation":
            parts = [dtype, *([", "] if parts else []), *parts]
        elif place == "last":
            parts += [*([", "] if parts else []), dtype]
        return (f"{self._prefix()}.{name}(", *parts, ")")

    def literal(self, node: tir.IntImm | tir.FloatImm | tir.StringImm) -> str:
        """A number or a string."""
        match node:
            case tir.StringImm():
                return quote(node.value)
            case tir.IntImm() if node.dtype == "int32":
                return str(node.value)
            case tir.IntImm():
                value = bool(node.value) if node.dtype == "bool" else node.value
                return f"{self._prefix()}.{node.dtype}({value})"
            case tir.FloatImm():
                number = node.written
                text = float_text(number) if math.isfinite(number) else f'"{number}"'
                return f"{self._prefix()}.{node.dtype}({text})"

    def indices(self, indices: Sequence[tir.PrimExpr]) -> Sequence[_Piece]:
        """What stands between the brackets; a ramp with a known step is a slice."""
        if not indices:
            return ("()",)
        pieces: list[_Piece] = []
        for i, index in enumerate(indices):
            if i:
                pieces.append(", ")
            if isinstance(index, Ramp) and isinstance(index.stride, tir.IntImm):
                count = index.lanes
                if isinstance(count, int):
                    count = tir.const(count, index.base.dtype)
                stop = index.base + count * index.stride
                pieces += [(index.base, 0), ":", (stop, 0)]
                if index.stride.value != 1:
                    pieces += [":", (index.stride, 0)]
            else:
                pieces.append((index, 0))
        return pieces

    def at(self, buffer: Buffer, indices: Sequence[tir.PrimExpr]) -> str:
        """``A[i, j]``"""
        inside = "".join(x if isinstance(x, str) else self.of(x[0]) for x in self.indices(indices))
        return f"{self._buffer(buffer)}[{inside}]"

    def region(self, ranges: Sequence[tir.Range]) -> str:
        """``0:4, i``"""
        if not ranges:
            return "()"
        texts: list[str] = []
        for r in ranges:
            low = self.dim(r.min)
            if r.extent == 1:
                texts.append(low)
            else:
                texts.append(f"{low}:{self.dim(end_of(r))}")
        return ", ".join(texts)


def end_of(r: tir.Range) -> tir.Dim:
    """Where a range ends, as TVM adds it up."""
    low, extent = (tir.as_prim_expr(x) for x in (r.min, r.extent))
    return tir.as_dim(low + extent)


def _listed(nodes: Sequence[tir.PrimExpr]) -> Sequence[_Piece]:
    pieces: list[_Piece] = []
    for i, node in enumerate(nodes):
        pieces += [", ", (node, 0)] if i else [(node, 0)]
    return pieces


def _sugar(node: tir.BinaryExpr) -> tuple[str, int] | None:
    """The sign of an operation that its operator would build, just as it is."""
    found = _INFIX.get(type(node))
    if found is None:
        return None
    if isinstance(node, tir.Div) and not is_float(element_of(node.dtype)):
        return None
    try:
        made = node.make(node.a, node.b)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    same = type(made) is type(node) and made.children() == node.children()
    return found if same else None


def _lanes(node: Ramp | Broadcast) -> _Piece:
    return str(node.lanes) if isinstance(node.lanes, int) else (node.lanes, 0)
