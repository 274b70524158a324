"""Which blocks and loops there are after the steps of a schedule, and what names them.

Blocks are followed by name, by the loops around them and by the buffers that they read and write,
so that a step that names what is not there is an error, as in TVM. Statements are not rewritten:
sizes that only a rewriting would tell (of loops that ``compute_at`` makes) are None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from relax2xla.errors import ScheduleError
from relax2xla.tir.buffer import Buffer, BufferRegion
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.functor import substitute
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var
from relax2xla.tir.stmt import Block, BlockRealize, For, IterVar, Stmt, children
from relax2xla.tir.stmt_functor import post_order_visit


@dataclass(slots=True, eq=False)
class Loop:
    """A loop: of the kernel (``stmt``), or one that a step has made. ``extent`` None: unknown."""

    name: str
    extent: Dim | None
    reduces: bool = False
    stmt: For | None = None

    def like(self) -> Loop:
        """Another loop of the same size."""
        return Loop(self.name, self.extent, self.reduces)


# Places of a block that are no loop, which a step may draw: where it is, and in its consumers.
ROOT: Final = Loop("root", None)
INLINE: Final = Loop("inline", None)


@dataclass(slots=True, eq=False)
class Place:
    """A block, and where it is. Buffers are those of the kernel, or names of those of steps.

    ``axes``: for each axis of the block, whether it is reduced; a loop each, where a step has made
    the block.
    """

    name: str
    func: str
    loops: list[Loop]
    reads: list[Buffer | str]
    writes: list[Buffer | str]
    stmt: Block | None = None
    scope: Place | None = None
    axes: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        if self.stmt is not None:
            self.axes = [a.iter_type == IterVar.CommReduce for a in self.stmt.iter_vars]
        elif not self.axes:
            self.axes = [x.reduces for x in self.loops]


@dataclass(frozen=True, slots=True)
class LoopRV:
    """A loop, as a schedule names it; equal to another name of the same loop."""

    loop: Loop

    @property
    def name(self) -> str:
        return self.loop.name

    def __repr__(self) -> str:
        return f"LoopRV({self.name})"


@dataclass(frozen=True, slots=True)
class BlockRV:
    """A block, as a schedule names it; equal to another name of the same block."""

    place: Place

    @property
    def name(self) -> str:
        return self.place.name

    def __repr__(self) -> str:
        return f"BlockRV({self.name})"


# A number that a schedule has drawn, which is an expression to the program.
ExprRV: TypeAlias = PrimExpr


class Nest:
    """The blocks of the functions of a module, outer ones first, in the order of the text."""

    def __init__(self, mod: Mapping[Any, Any]) -> None:
        self.funcs = {
            str(getattr(k, "name_hint", k)): f for k, f in mod.items() if isinstance(f, PrimFunc)
        }
        self.places = [p for name, f in self.funcs.items() for p in _places(name, f)]
        self.drawn: dict[Var, int] = {}
        self.shapes: dict[str, tuple[Dim, ...]] = {}  # of the buffers of steps

    # -- what there is -----------------------------------------------------------------------------
    def block(self, name: str, func: str | None = None) -> Place:
        """The block ``name`` of a function; ScheduleError where there is none."""
        known = [p for p in self.places if func in (None, p.func)]
        for place in known:
            if place.name == name:
                return place
        raise ScheduleError(
            f"there is no block {name!r}; there are {', '.join(p.name for p in known) or 'none'}"
        )

    def check(self, given: Any) -> None:
        """ScheduleError where a handle names what an earlier step has taken away."""
        if isinstance(given, LoopRV) and given.loop not in (ROOT, INLINE):
            self.around(given.loop)
        elif isinstance(given, BlockRV) and given.place not in self.places:
            raise ScheduleError(
                f"the block {given.name!r} is no longer in {given.place.func!r}: a step before "
                "this one removed it"
            )

    def around(self, loop: Loop) -> list[Place]:
        """The blocks in ``loop``; ScheduleError where an earlier step has replaced it."""
        found = [p for p in self.places if loop in p.loops]
        if not found:
            raise ScheduleError(
                f"the loop {loop.name!r} is no longer there: a step before this one put others in "
                "its place; name these"
            )
        return found

    def nested(self, loops: Sequence[Loop]) -> Place:
        """A block in all of ``loops``; ScheduleError where they are not one nest."""
        for place in self.around(loops[0]):
            if all(x in place.loops for x in loops):
                return place
        names = ", ".join(x.name for x in loops)
        raise ScheduleError(f"the loops {names} are not around one block")

    def value(self, given: Any) -> Any:
        """The number that an expression of drawn numbers is; anything else as it is."""
        known = substitute(given, self.drawn) if isinstance(given, PrimExpr) else given
        return known.value if isinstance(known, IntImm) else known

    def draw(self, value: int) -> Var:
        """An expression that stands for ``value``."""
        var = Var(f"v{len(self.drawn)}", "int32")
        self.drawn[var] = value
        return var

    def inner(self, scope: Place) -> list[Place]:
        """The blocks that are directly in ``scope``."""
        return [p for p in self.places if p.scope is scope]

    def beside(self, place: Place) -> list[Place]:
        """The other blocks of its scope."""
        return [p for p in self.places if p.scope is place.scope and p is not place]

    def producers(self, place: Place) -> list[Place]:
        """The other blocks of its scope that write what ``place`` reads."""
        return [p for p in self.beside(place) if _meet(p.writes, place.reads)]

    def consumers(self, place: Place) -> list[Place]:
        """The other blocks of its scope that read what ``place`` writes."""
        return [p for p in self.beside(place) if _meet(place.writes, p.reads)]

    # -- what steps do -----------------------------------------------------------------------------
    def replace(self, old: Sequence[Loop], new: Sequence[Loop]) -> None:
        """``new`` where the first of ``old`` is, which are all gone then."""
        for place in self.around(old[0]):
            at = place.loops.index(old[0])
            rest = [x for x in place.loops[at:] if x not in old]
            place.loops[at:] = [*new, *rest]

    def add(self, place: Place, beside: Place, *, after: bool = False) -> BlockRV:
        """A block that a step makes before ``beside``, or after it."""
        self.places.insert(self.places.index(beside) + after, place)
        return BlockRV(place)

    def remove(self, place: Place) -> None:
        """A block whose work others do: who reads what it wrote reads what it read."""
        for reader in self.consumers(place):
            reader.reads = [
                b for x in reader.reads for b in (place.reads if _meet([x], place.writes) else [x])
            ]
        self.places.remove(place)


def plain(size: Dim) -> Dim:
    """A size that is a literal as a number."""
    return size.value if isinstance(size, IntImm) else size


def _buffers(regions: Sequence[BufferRegion]) -> list[Buffer | str]:
    return list(dict.fromkeys(r.buffer for r in regions))


def _places(name: str, func: PrimFunc) -> list[Place]:
    reduced = _reduced(func.body)
    found: list[Place] = []
    stack: list[tuple[Stmt, tuple[Loop, ...], Place | None]] = [(func.body, (), None)]
    while stack:
        node, loops, scope = stack.pop()
        match node:
            case BlockRealize(block=block):
                reads, writes = _buffers(block.reads), _buffers(block.writes)
                place = Place(block.name_hint, name, list(loops), reads, writes, block, scope)
                found.append(place)
                stack.append((node.block, (), place))
            case For():
                reduces = node.loop_var in reduced
                loop = Loop(node.loop_var.name, plain(node.extent), reduces, node)
                stack.append((node.body, (*loops, loop), scope))
            case _:
                stack += [(x, loops, scope) for x in reversed(children(node))]
    return found


def _reduced(body: Stmt) -> set[Var]:
    """The loop variables of which an axis that is reduced is made."""
    found: set[Var] = set()

    def visit(node: Any) -> None:
        if isinstance(node, BlockRealize):
            for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                if axis.iter_type == IterVar.CommReduce:
                    post_order_visit(value, lambda e: found.add(e) if isinstance(e, Var) else None)

    post_order_visit(body, visit)
    return found


def _meet(one: Iterable[Buffer | str], other: Iterable[Buffer | str]) -> bool:
    return any(a is b or (isinstance(a, str) and a == b) for a in one for b in other)
