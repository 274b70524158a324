"""How patterns stand to each other: which uses which, and which have the same shape.

Patterns make these themselves (``conv >> relu``); :mod:`context` matches them with programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, NamedTuple, Self

from relax2xla.errors import TVMError
from relax2xla.ir.expr import Var
from relax2xla.ir.lattice import dims_equal
from relax2xla.ir.struct_info import dims_of

if TYPE_CHECKING:
    from relax2xla.dpl.pattern import DFPattern

_CONTEXTS: ContextVar[tuple[Relations, ...]] = ContextVar("relax2xla_patterns", default=())


class Edge(NamedTuple):
    """One pattern uses another: ``only`` it does, and as argument ``place`` (-1: any)."""

    only: bool
    place: int


class PatternSeq:
    """Patterns each of which uses the one before it.

    only_use: nothing else of the block uses it. Inside a PatternContext, this is noted there.
    """

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False) -> None:
        if not patterns:
            raise ValueError("PatternSeq needs at least one pattern")
        self.patterns = tuple(patterns)
        self.edges = (Edge(only_use, -1),) * (len(patterns) - 1)
        self._note()

    def _note(self) -> None:
        """Tell the current context of the edges."""
        context = Relations.current()
        if context is not None:
            for i, edge in enumerate(self.edges):
                context.add_edge(self.patterns[i], self.patterns[i + 1], edge)

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """This sequence, then ``other``, which uses its last value."""
        return self._then(other, Edge(False, index))

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """This sequence, then ``other``, which alone uses its last value."""
        return self._then(other, Edge(True, index))

    def _then(self, other: DFPattern | PatternSeq, edge: Edge) -> PatternSeq:
        rest = other if isinstance(other, PatternSeq) else PatternSeq([other])
        context = Relations.current()
        if context is not None:
            context.add_edge(self.patterns[-1], rest.patterns[0], edge)
        return self._of(self.patterns + rest.patterns, (*self.edges, edge, *rest.edges))

    @classmethod
    def _of(cls, patterns: tuple[DFPattern, ...], edges: tuple[Edge, ...]) -> PatternSeq:
        """A sequence whose edges the context knows."""
        made = cls(patterns[:1])
        made.patterns, made.edges = patterns, edges
        return made

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]

    def __len__(self) -> int:
        return len(self.patterns)

    def dup(self) -> PatternSeq:
        """The same sequence of other pattern nodes."""
        made = self._of(tuple(p.dup() for p in self.patterns), self.edges)
        made._note()
        return made

    def __repr__(self) -> str:
        text = repr(self.patterns[0])
        for edge, pattern in zip(self.edges, self.patterns[1:], strict=True):
            text += f" {'>>' if edge.only else '^'} {pattern!r}"
        return f"[{text}]"


class DFConstraint:
    """Base class of what is asked of several patterns together."""


class SameShapeConstraint(DFConstraint):
    """All of the patterns match values of the same shape, provably."""

    def __init__(self, *args: DFPattern) -> None:
        self.args = args
        context = Relations.current()
        if context is not None:
            context.constraints.append(self)

    def may_hold(self, matched: Callable[[DFPattern], Var | None]) -> bool:
        """Whether nothing speaks against it yet; ``matched``: the values that are known."""
        found = [matched(p) for p in self.args]
        shapes = [dims_of(v.struct_info_) for v in found if v is not None]
        if any(s is None or len(s) != len(shapes[0] or ()) for s in shapes):
            return False
        if len(shapes) == len(found):
            return all(dims_equal(shapes[0], s) for s in shapes)
        first = shapes[0] if shapes else ()
        return not any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for s in shapes
            for a, b in zip(first or (), s or (), strict=True)
        )


class Relations:
    """What a PatternContext collects: how the patterns written inside it use each other."""

    def __init__(self, incremental: bool = False) -> None:
        self.edges: dict[DFPattern, dict[DFPattern, list[Edge]]] = {}
        self.constraints: list[SameShapeConstraint] = []
        if incremental:
            around = Relations.current()
            if around is None:
                raise TVMError(
                    "PatternContext(incremental=True) goes on from the context around it; there "
                    "is none"
                )
            for producer, consumers in around.edges.items():
                self.edges[producer] = {c: list(edges) for c, edges in consumers.items()}
            self.constraints += around.constraints
        self._tokens: list[Token[tuple[Relations, ...]]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_CONTEXTS.set((*_CONTEXTS.get(), self)))
        return self

    def __exit__(self, *error: object) -> None:
        _CONTEXTS.reset(self._tokens.pop())

    @staticmethod
    def current() -> Relations | None:
        """The innermost context that is open, or None."""
        stack = _CONTEXTS.get()
        return stack[-1] if stack else None

    def add_edge(self, producer: DFPattern, consumer: DFPattern, edge: Edge) -> None:
        """``consumer`` uses ``producer``; TVMError where just that has been said before."""
        known = self.edges.setdefault(producer, {}).setdefault(consumer, [])
        if edge in known:
            raise TVMError(f"that {consumer!r} uses {producer!r} in this way is said twice")
        known.append(edge)
