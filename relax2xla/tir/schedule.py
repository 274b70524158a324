"""``tir.Schedule``: a program may say how loops are to run; XLA decides, and the kernel stays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.errors import UnsupportedError
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.stmt import Block, BlockRealize, For, Stmt, children

# What a step gives: nothing, a loop, loops, a block. They all keep what a kernel computes.
_NOTHING: Final = """
annotate bind compute_inline enter_postproc parallel reorder_block_iter_var reverse_compute_inline
set_scope storage_align unannotate unroll vectorize work_on
"""
_BLOCK: Final = "blockize cache_inplace cache_read cache_write decompose_reduction rfactor"


@dataclass(frozen=True, slots=True, eq=False)
class LoopRV:
    """A loop, as a schedule names it."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class BlockRV:
    """A block, as a schedule names it."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class StmtSRef:
    """A block where it stands in a kernel: ``stmt``."""

    stmt: Block


class Schedule:
    """Steps that say how loops run. They are checked and not taken: XLA decides how loops run.

    mod: a PrimFunc, or a mapping of names to them. ``sch.mod`` is what was given (an IRModule with
    ``main`` for a PrimFunc). A block may be said by its name. Steps that keep what a kernel
    computes are accepted; others (``tensorize``, ``transform_layout``, sampling) are an
    UnsupportedError.
    """

    def __init__(self, mod: Any, **options: Any) -> None:
        if isinstance(mod, PrimFunc):  # IRModule is of a layer above
            mod = importlib.import_module("relax2xla.ir").IRModule({"main": mod})
        self._mod: Mapping[Any, Any] = mod
        self._loops: dict[BlockRV, list[LoopRV]] = {}
        self._blocks: dict[BlockRV, Block] = {}

    @property
    def mod(self) -> Mapping[Any, Any]:
        """The functions, as they were given."""
        return self._mod

    # -- blocks and loops --------------------------------------------------------------------------
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block ``name``; ValueError where there is none."""
        known: list[str] = []
        for key, func in self._mod.items():
            if not isinstance(func, PrimFunc) or func_name not in (None, _name(key)):
                continue
            for block, loops in _blocks(func.body):
                known.append(block.name_hint)
                if block.name_hint == name:
                    made = BlockRV(name)
                    self._loops[made] = [LoopRV(s.loop_var.name) for s in loops]
                    self._blocks[made] = block
                    return made
        raise ValueError(f"there is no block {name!r}; there are {', '.join(known) or 'none'}")

    get_sblock = get_block

    def _known(self, block: BlockRV | str) -> BlockRV:
        if not isinstance(block, str):
            return block
        return next((b for b in self._blocks if b.name == block), None) or self.get_block(block)

    def get(self, block: BlockRV | str) -> Block:
        """The block of the kernel; ValueError for one that a step has made, as nothing changes."""
        block = self._known(block)
        if block not in self._blocks:
            raise ValueError(f"the block {block.name!r} is of a step, which changes no kernel here")
        return self._blocks[block]

    def get_sref(self, block: BlockRV | str) -> StmtSRef:
        """:meth:`get` as TVM's reference to a statement."""
        return StmtSRef(self.get(block))

    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        """The loops around a block, up to the block around it, the outermost first."""
        return list(self._loops[self._known(block)])

    # -- steps that change which loops there are ---------------------------------------------------
    def split(self, loop: LoopRV, factors: Sequence[Any], **options: Any) -> list[LoopRV]:
        """As many loops as there are factors in the place of one."""
        made = [LoopRV(f"{loop.name}_{i}") for i in range(len(factors))]
        self._replace([loop], made)
        return made

    def fuse(self, *loops: LoopRV, **options: Any) -> LoopRV:
        """One loop in the place of several."""
        made = LoopRV("_".join(x.name for x in loops) + "_fused")
        self._replace(loops, [made])
        return made

    def reorder(self, *loops: LoopRV) -> None:
        """Loops in this order, in the places that they have."""
        for known in self._loops.values():
            order = iter([x for x in loops if x in known])
            known[:] = [next(order) if x in loops else x for x in known]

    def compute_at(self, block: BlockRV | str, loop: LoopRV, *args: Any, **options: Any) -> None:
        """The block below ``loop``, in loops of its own."""
        block = self._known(block)
        own = [LoopRV(f"ax{i}") for i in range(len(self._loops[block]))]
        outer = next((k for k in self._loops.values() if loop in k), [loop])
        self._loops[block] = [*outer[: outer.index(loop) + 1], *own]

    reverse_compute_at = compute_at

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV | str) -> LoopRV:
        """A loop of one step."""
        return LoopRV("u")

    def _replace(self, old: Sequence[LoopRV], new: Sequence[LoopRV]) -> None:
        for known in self._loops.values():
            if old[0] in known:
                at = known.index(old[0])
                rest = [x for x in known[at:] if x not in old]
                known[at:] = [*new, *rest]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _NOTHING.split():
            return _nothing
        if name in _BLOCK.split():
            return self._made
        raise UnsupportedError(
            f"tir.Schedule.{name} is not part of relax2xla: how the loops of a kernel run is XLA's "
            "decision, so a schedule changes nothing here. Leave the step out"
        )

    def _made(self, *args: Any, **options: Any) -> BlockRV:
        made = BlockRV("made")
        given = next((a for a in args if isinstance(a, BlockRV | str)), None)
        source = None if given is None else self._known(given)
        self._loops[made] = [LoopRV(x.name) for x in self._loops.get(source or made, ())]
        return made


def _nothing(*args: Any, **options: Any) -> None:
    """A step that says how loops run."""


def _name(key: Any) -> str:
    return str(getattr(key, "name_hint", key))


def _blocks(root: Stmt) -> list[tuple[Block, tuple[For, ...]]]:
    """Each block with the loops around it, up to the next block."""
    found: list[tuple[Block, tuple[For, ...]]] = []
    stack: list[tuple[Stmt, tuple[For, ...]]] = [(root, ())]
    while stack:
        node, loops = stack.pop()
        match node:
            case BlockRealize():
                found.append((node.block, loops))
                stack.append((node.block, ()))
            case For():
                stack.append((node.body, (*loops, node)))
            case _:
                stack += [(x, loops) for x in reversed(children(node))]
    return found
