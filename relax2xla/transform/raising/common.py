"""What patterns share: holes, ends in a narrower dtype, how numbers and axes are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla.dtypes import dtype_info, is_float
from relax2xla.ir import Call, Expr, TensorStructInfo
from relax2xla.op.shared.lowering import full_like, hlo
from relax2xla.transform.raising.graph import Graph, bits, dtype_of, row_name
from relax2xla.transform.raising.match import Guess, Hole

Guesses = Iterator[Guess]
Look = Callable[[Graph, Any], Guesses]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Guesses for a last row: ``look`` makes them, ``name`` says which operators they are.

    It is asked only where one of the rows ``wanted`` (0: none is) lies at most ``depth`` steps
    before the last row's operands (see :meth:`Graph.rows`), and, for ``narrow`` ones, where the
    result is a float of less than 32 bits. So a row that no operator ends in costs next to nothing.
    """

    name: str
    look: Look
    depth: int = 0
    wanted: int = 0
    narrow: bool = False

    def fits(self, graph: Graph, value: Expr) -> bool:
        """Whether it is worth asking."""
        if self.narrow and not narrow_float(dtype_of(value)):
            return False
        return not self.wanted or graph.near(value, self.depth, self.wanted)


def narrow_float(dtype: str) -> bool:
    """Whether ``dtype`` is a float of less than 32 bits."""
    return bool(dtype) and is_float(dtype) and dtype_info(dtype).bits < 32


def rule(name: str, look: Look, depth: int = 0, *rows: str, narrow: bool = False) -> Pattern:
    """A :class:`Pattern`, the rows by name."""
    return Pattern(name, look, depth, bits(*rows), narrow)


def hole(shape: Sequence[int], dtype: str, name: str = "x") -> Hole:
    """A hole for a tensor."""
    return Hole(name, TensorStructInfo.make(tuple(shape), dtype))


def like(e: Expr, name: str = "x") -> Hole:
    """A hole for a tensor of the struct info of ``e``."""
    return Hole(name, e.struct_info)


def last(axis: int, ndim: int) -> int:
    """``axis``, the last one as -1, which is how it is usually written."""
    return -1 if axis == ndim - 1 else axis


def core(graph: Graph, call: Call) -> Call:
    """The row before a conversion from float32 to a narrower float, which narrow operators end in;
    otherwise ``call``.
    """
    if row_name(call) == "convert" and narrow_float(dtype_of(call)):
        inner = graph.value(call.args[0])
        if isinstance(inner, Call):
            return inner
    return call


def shortest(number: Any) -> float:
    """The shortest decimal number that rounds to ``number`` in its dtype."""
    if number.dtype.name in ("float32", "float16"):
        return float(str(number[()]))
    if number.dtype.name == "float64":
        return number.item()
    return float(format(float(number), ".3g")) if number.dtype.itemsize < 4 else float(number)


def times(x: Expr, value: float) -> Expr:
    """``x * value``."""
    return hlo("multiply", x, full_like(x, value))


def plus(x: Expr, value: float) -> Expr:
    """``x + value``."""
    return hlo("add", x, full_like(x, value))
