"""What lowering a kernel keeps: the memory of each buffer, and the scope of a statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from relax2xla.errors import LegalizeError
from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import dtype_of, hlo, reshape
from relax2xla.stablehlo.loops.affine import Form
from relax2xla.stablehlo.loops.axes import Axis, Value, elementwise
from relax2xla.tir.buffer import Buffer, BufferRegion
from relax2xla.tir.node import PrimExpr, Var
from relax2xla.tir.stmt import Stmt

Bindings = Mapping[Var, "Form | Value"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a statement stands.

    ``env``: what variables are; ``axes``: the vector loops around it; ``mask``: where it runs;
    ``fixed``: axes that are at one place; ``unrolled``: how often loops around it are repeated;
    ``guarded``: whether it may stand where it is not run, so that indices may be out of range;
    ``threads``: forms of the threads by tag; ``rounded``: whether an expression is part of what is
    rounded to an integer, so that its last bit may decide.
    """

    env: Bindings = field(default_factory=lambda: MappingProxyType({}))
    axes: tuple[Axis, ...] = ()
    mask: Value | None = None
    fixed: Mapping[Axis, int] = field(default_factory=lambda: MappingProxyType({}))
    unrolled: int = 1
    guarded: bool = False
    threads: Mapping[str, Form] = field(default_factory=lambda: MappingProxyType({}))
    rounded: bool = False

    def but(self, **changes: Any) -> Scope:
        """A scope that differs in some fields."""
        return replace(self, **changes)

    def bind(self, var: Var, to: Form | Value) -> Scope:
        """This scope with a variable."""
        return replace(self, env={**self.env, var: to})

    def where(self, mask: Value | None) -> Scope:
        """This scope where ``mask`` holds, too."""
        if mask is None:
            return self
        return replace(self, mask=both(self.mask, mask), guarded=True)


def both(a: Value | None, b: Value) -> Value:
    """Where both masks hold."""
    return b if a is None else elementwise(lambda x, y: hlo("and", x, y), a, b)


@dataclass(frozen=True, slots=True)
class Memory:
    """The contents of a buffer: ``axes`` of threads that have one each, then its own ``shape``."""

    expr: Expr
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """dtype of the elements."""
        return dtype_of(self.expr)

    def viewed(self, shape: tuple[int, ...]) -> Memory:
        """The same contents in another shape."""
        if shape == self.shape:
            return self
        sizes = [a.size for a in self.axes]
        return Memory(reshape(self.expr, (*sizes, *shape)), self.axes, shape)


@dataclass(frozen=True, slots=True)
class StayedLoop:
    """A loop that is a ``while``: its variable, how many steps (None: data says), why, its line."""

    name: str
    steps: int | None
    why: str
    line: int


class Kernel:
    """One PrimFunc while it is lowered.

    ``memory``: contents by the buffer's data variable; ``views``: buffers that are regions of
    others; ``parameters``: data variables that the caller gives; ``uses``: how often the kernel
    names each memory; ``line``: of the statement at work; ``loops``: loops that stayed
    sequential, each with its reason; ``forms``: what became of what, counted.

    Expressions have loads in them, loads have indices, and indices are expressions again; so are
    loops statements, and have statements in them. ``evaluate`` and ``run`` are the ways back up.
    """

    def __init__(
        self,
        name: str,
        evaluate: Callable[[Kernel, PrimExpr, Scope, bool], Value],
        run: Callable[[Kernel, Stmt, Scope], None],
    ) -> None:
        self.name = name
        self._evaluate = evaluate
        self._run = run
        self.memory: dict[Var, Memory] = {}
        self.views: dict[Buffer, BufferRegion] = {}
        self.parameters: set[Var] = set()
        self.uses: Counter[Var] = Counter()
        self.line = 0
        self.loops: list[StayedLoop] = []
        self.forms: dict[str, int] = {}

    def count(self, form: str) -> None:
        """One more row of a kind."""
        self.forms[form] = self.forms.get(form, 0) + 1

    def evaluate(self, e: PrimExpr, scope: Scope, exact: bool = False) -> Value:
        """The value of ``e``. With ``exact``, ``e`` itself is not taken as an affine form."""
        return self._evaluate(self, e, scope, exact)

    def run(self, s: Stmt, scope: Scope) -> None:
        """Run a statement."""
        self._run(self, s, scope)

    def error(self, what: str) -> LegalizeError:
        """The error for what cannot be lowered, with its line."""
        at = f", line {self.line}" if self.line else ""
        return LegalizeError(f"{self.name}{at}: {what}")
