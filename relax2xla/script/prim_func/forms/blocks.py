"""Blocks, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.forms.owner import Owner, innermost
from relax2xla.script.prim_func.frames import BlockOpener, InitOpener, flat


def _block(owner: Owner, name: str = "", no_realize: bool = False) -> BlockOpener:
    if not isinstance(no_realize, bool):
        raise TypeError(f"no_realize= of T.block is a bool; got {no_realize!r}")
    return BlockOpener(v.text(name, "the name of a block"), realized=not no_realize)


def _reads(owner: Owner, *regions: object) -> None:
    block = innermost(owner, "T.reads")
    if block.reads is not None:
        raise ValueError(f"the block {block.name!r} says twice what it reads")
    block.reads = tuple(v.region_of(r) for r in flat(regions) if not isinstance(r, v.ValueRead))


def _writes(owner: Owner, *regions: object) -> None:
    block = innermost(owner, "T.writes")
    if block.writes is not None:
        raise ValueError(f"the block {block.name!r} says twice what it writes")
    block.writes = tuple(v.region_of(r) for r in flat(regions))


def _where(owner: Owner, predicate: object) -> None:
    block = innermost(owner, "T.where")
    if block.predicate is not None:
        raise ValueError(f"the block {block.name!r} has two predicates")
    if isinstance(predicate, int):
        predicate = bool(predicate)
    made = v.number(predicate)
    if made.dtype != "bool":
        raise TypeError(f"a predicate is a bool; got `{made}` of dtype {made.dtype}")
    block.predicate = made


def _block_attr(owner: Owner, attrs: dict[str, Any]) -> None:
    block = innermost(owner, "T.block_attr")
    if block.annotations is not None:
        raise ValueError(f"the block {block.name!r} has its attributes twice")
    block.annotations = v.mapping(attrs, "T.block_attr")


def _init(owner: Owner) -> InitOpener:
    if innermost(owner, "T.init").init is not None:
        raise ValueError("a block has one T.init")
    return InitOpener()


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "block": _block,
    "sblock": _block,
    "init": _init,
    "reads": _reads,
    "writes": _writes,
    "where": _where,
    "block_attr": _block_attr,
    "sblock_attr": _block_attr,
}
