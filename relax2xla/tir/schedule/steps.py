"""The steps of schedules: what each is given, what it gives, and what it does to the nest.

No step changes a kernel. Those that only say how a loop runs are a table; those that change which
blocks and loops there are follow, as functions of the nest. A step that would change what a
function is to its callers, or of which precision its results are, is an UnsupportedError.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla.errors import ScheduleError, UnsupportedError
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.node import Dim, Var
from relax2xla.tir.op import ceildiv
from relax2xla.tir.schedule.nest import (
    INLINE,
    ROOT,
    BlockRV,
    Loop,
    LoopRV,
    Nest,
    Place,
    plain,
)

# Steps that say how loops run or where buffers are, as TVM writes their arguments.
_NOTHING: Final = """
annotate(block_or_loop, ann_key, ann_val)
annotate_buffer_access(block, buffer_index, buf_type, gen_new_ranges)
bind(loop, thread_axis)
enter_postproc()
pad_einsum(block, padding)
parallel(loop)
reorder_block_iter_var(block, new_order)
rolling_buffer(block, write_buffer_index)
set_axis_separator(block, buffer, axis_separators)
set_scope(block, buffer_index, storage_scope)
storage_align(block, buffer_index, axis, factor, offset)
tensorize(block_or_loop, tensor_intrin, preserve_unit_iters=True)
transform_block_layout(block, index_map)
unannotate(block_or_loop, ann_key)
unroll(loop)
unsafe_hide_buffer_access(block, buf_type, buf_index_array)
vectorize(loop)
"""


def _table(text: str) -> dict[str, inspect.Signature]:
    found: dict[str, inspect.Signature] = {}
    for line in text.strip().splitlines():
        name, _, rest = line.partition("(")
        parts = [p.strip().partition("=") for p in rest.rstrip(")").split(",") if p.strip()]
        found[name] = inspect.Signature(
            [
                inspect.Parameter(
                    p,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=ast.literal_eval(default) if default else inspect.Parameter.empty,
                )
                for p, _, default in parts
            ]
        )
    return found


NOTHING: Final = _table(_NOTHING)
STEPS: Final[dict[str, Callable[..., Any]]] = {}


def _step(function: Callable[..., Any]) -> Callable[..., Any]:
    STEPS[function.__name__] = function
    return function


# -- numbers that are drawn ------------------------------------------------------------------------
# XLA decides; a number that is not given is the one that leaves a loop as it is, or the likeliest.
@_step
def sample_categorical(
    nest: Nest, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
) -> Var:
    """One of ``candidates``: that of the index ``decision``, or the likeliest."""
    if len(candidates) != len(probs):
        raise ScheduleError(f"{len(candidates)} candidates have {len(probs)} probabilities")
    chosen = probs.index(max(probs)) if decision is None else decision
    if not 0 <= chosen < len(candidates):
        raise ScheduleError(f"the decision {chosen} is not one of {len(candidates)} candidates")
    return nest.draw(int(candidates[chosen]))


@_step
def sample_perfect_tile(
    nest: Nest,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
) -> list[Var]:
    """``n`` factors of the extent of a loop; where ``decision`` does not divide it, the rest goes
    to the outermost, as in TVM. Without a decision the outermost has it all."""
    extent = loop.loop.extent
    if decision is not None and len(decision) != n:
        raise ScheduleError(f"a decision of {len(decision)} factors for n={n}")
    if not isinstance(extent, int):
        if decision is None:
            raise ScheduleError(f"the size of the loop {loop.name!r} is not known; give a decision")
        return [nest.draw(int(x)) for x in decision]
    factors = [1] * n if decision is None else [int(x) for x in decision]
    for i in reversed(range(1, n)):
        if extent % factors[i]:
            factors[i], extent = extent, 1
        else:
            extent //= factors[i]
    return [nest.draw(x) for x in (extent, *factors[1:])]


@_step
def sample_partitioned_tile(
    nest: Nest,
    loop: LoopRV,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    decision: Sequence[int] | None = None,
) -> list[Var]:
    """:func:`sample_perfect_tile`, whose factors from ``partition_pos`` on hold a multiple."""
    if decision is None and n:
        decision = [1] * n
        decision[-1] = innerpart_factor
    return sample_perfect_tile(nest, loop, n, 0, decision)


@_step
def sample_compute_location(nest: Nest, block: BlockRV, decision: int | None = None) -> LoopRV:
    """The loop number ``decision`` of the first consumer; -1, or no decision, for where the block
    is, -2 for inside its consumers."""
    readers = nest.consumers(block.place)
    loops = readers[0].loops if readers else []
    if decision in (None, -1, -2):
        return LoopRV(INLINE if decision == -2 else ROOT)
    if not 0 <= decision < len(loops):
        raise ScheduleError(f"the decision {decision} is not one of {len(loops)} loops, -1 or -2")
    return LoopRV(loops[decision])


# -- blocks ----------------------------------------------------------------------------------------
@_step
def get_block(nest: Nest, name: str, func_name: str | None = None) -> BlockRV:
    """The block ``name``; ScheduleError where there is none."""
    return BlockRV(nest.block(name, func_name))


@_step
def get_loops(nest: Nest, block: BlockRV) -> list[LoopRV]:
    """The loops around a block, up to the block around it, the outermost first."""
    return [LoopRV(x) for x in block.place.loops]


@_step
def get_child_blocks(nest: Nest, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
    """The blocks directly in a block, or in a loop."""
    if isinstance(block_or_loop, LoopRV):
        return [BlockRV(p) for p in nest.around(block_or_loop.loop)]
    return [BlockRV(p) for p in nest.inner(block_or_loop.place)]


@_step
def get_producers(nest: Nest, block: BlockRV) -> list[BlockRV]:
    """The blocks that write what this one reads."""
    return [BlockRV(p) for p in nest.producers(block.place)]


@_step
def get_consumers(nest: Nest, block: BlockRV) -> list[BlockRV]:
    """The blocks that read what this one writes."""
    return [BlockRV(p) for p in nest.consumers(block.place)]


@_step
def get_output_blocks(nest: Nest, scope_block: BlockRV) -> list[BlockRV]:
    """The blocks in this one that write a buffer which is not its own."""
    own = set(() if scope_block.place.stmt is None else scope_block.place.stmt.alloc_buffers)
    return [
        BlockRV(p)
        for p in nest.inner(scope_block.place)
        if any(isinstance(b, Buffer) and b not in own for b in p.writes)
    ]


# -- loops -----------------------------------------------------------------------------------------
@_step
def split(
    nest: Nest,
    loop: LoopRV,
    factors: Sequence[Any],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
) -> list[LoopRV]:
    """As many loops as there are factors in the place of one; None for the factor that follows."""
    sizes: list[Dim | None] = [nest.value(f) for f in factors]
    if sizes.count(None) > 1:
        raise ScheduleError(f"split of {loop.name!r}: at most one factor is None, got {factors}")
    extent = loop.loop.extent
    rest = _product([x for x in sizes if x is not None])
    if None in sizes and extent is not None:
        sizes[sizes.index(None)] = (
            -(-extent // rest)
            if isinstance(extent, int) and isinstance(rest, int)
            else ceildiv(extent, rest)
        )
    elif isinstance(extent, int) and isinstance(rest, int) and None not in sizes and rest < extent:
        raise ScheduleError(
            f"split of {loop.name!r}: the product of {factors} is {rest}, less than its {extent} "
            "steps; leave one factor to be None"
        )
    made = [Loop(f"{loop.name}_{i}", x, loop.loop.reduces) for i, x in enumerate(sizes)]
    nest.replace([loop.loop], made)
    return [LoopRV(x) for x in made]


@_step
def fuse(nest: Nest, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
    """One loop in the place of several, each directly in the one before."""
    old = [x.loop for x in loops]
    place = nest.nested(old)
    at = place.loops.index(old[0])
    if place.loops[at : at + len(old)] != old:
        names = ", ".join(x.name for x in loops)
        raise ScheduleError(f"fuse of {names}: each must be directly in the one before")
    sizes = [x.extent for x in old]
    known = None if None in sizes else _product([x for x in sizes if x is not None])
    made = Loop("_".join(x.name for x in old) + "_fused", known, any(x.reduces for x in old))
    nest.replace(old, [made])
    return LoopRV(made)


@_step
def merge(nest: Nest, *loops: LoopRV) -> LoopRV:
    """One loop in the place of several of different nests, which have one size."""
    made = Loop(loops[0].name + "_m", loops[0].loop.extent, loops[0].loop.reduces)
    for loop in loops:
        nest.replace([loop.loop], [made])
    return LoopRV(made)


@_step
def reorder(nest: Nest, *ordered_loops: LoopRV) -> None:
    """Loops of one nest in this order, in the places that they have."""
    moved = [x.loop for x in ordered_loops]
    if len(set(moved)) != len(moved):
        raise ScheduleError(f"reorder: a loop of {', '.join(x.name for x in moved)} stands twice")
    nest.nested(moved)
    for place in nest.places:
        order = iter([x for x in moved if x in place.loops])
        place.loops[:] = [next(order) if x in moved else x for x in place.loops]


@_step
def add_unit_loop(nest: Nest, block_or_loop: BlockRV | LoopRV) -> LoopRV:
    """A loop of one step directly around a block or a loop."""
    made = Loop("u", 1)
    if isinstance(block_or_loop, BlockRV):
        block_or_loop.place.loops.append(made)
    else:
        nest.replace([block_or_loop.loop], [made, block_or_loop.loop])
    return LoopRV(made)


# -- where blocks are ------------------------------------------------------------------------------
def _move(nest: Nest, block: BlockRV, loop: LoopRV) -> None:
    """The block below ``loop``, in loops of its own: one an axis, of sizes that nobody computes."""
    if loop.loop is INLINE:
        nest.remove(block.place)
    around = [p for p in nest.places if loop.loop in p.loops and p is not block.place]
    if around:
        outer = around[0].loops[: around[0].loops.index(loop.loop) + 1]
        own = [Loop(f"ax{i}", None, reduces) for i, reduces in enumerate(block.place.axes)]
        block.place.loops = [*outer, *own]


@_step
def compute_at(
    nest: Nest, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """A producer below a loop of its consumer."""
    _move(nest, block, loop)


@_step
def reverse_compute_at(
    nest: Nest, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """A consumer below a loop of its producer."""
    _move(nest, block, loop)


@_step
def compute_inline(nest: Nest, block: BlockRV) -> None:
    """A block whose consumers compute what it did."""
    nest.remove(block.place)


@_step
def reverse_compute_inline(nest: Nest, block: BlockRV) -> None:
    """A block whose producer writes what it did."""
    for producer in nest.producers(block.place)[:1]:
        producer.writes = list(block.place.writes)
    nest.places.remove(block.place)


# -- blocks that steps make ------------------------------------------------------------------------
@_step
def decompose_reduction(nest: Nest, block: BlockRV, loop: LoopRV) -> BlockRV:
    """The initial values as a block of its own, directly before ``loop``."""
    place = block.place
    if loop.loop not in place.loops:
        raise ScheduleError(f"the loop {loop.name!r} is not around the block {place.name!r}")
    at = place.loops.index(loop.loop)
    own = [x.like() for x in place.loops[at:] if not x.reduces]
    made = Place(
        f"{place.name}_init",
        place.func,
        [*place.loops[:at], *own],
        [],
        place.writes,
        scope=place.scope,
        axes=[reduces for reduces in place.axes if not reduces],
    )
    place.name += "_update"
    return nest.add(made, place)


@_step
def decompose_padding(nest: Nest, block: BlockRV, loop: LoopRV) -> BlockRV:
    """The constant part of a padding as a block of its own."""
    place = block.place
    at = place.loops.index(loop.loop) if loop.loop in place.loops else 0
    loops = [*place.loops[:at], *(x.like() for x in place.loops[at:])]
    made = Place(f"{place.name}_pad_const", place.func, loops, [], place.writes, scope=place.scope)
    return nest.add(made, place)


@_step
def rfactor(nest: Nest, loop: LoopRV, factor_axis: int) -> BlockRV:
    """Partial results along a loop that is reduced, as a block before the one that joins them."""
    place = nest.around(loop.loop)[0]
    made = Place(
        f"{place.name}_rf",
        place.func,
        [x.like() for x in place.loops],
        place.reads,
        [f"{place.name}_rf"],
        scope=place.scope,
    )
    place.loops = [x for x in place.loops if not x.reduces or x is loop.loop]
    place.reads = list(made.writes)
    return nest.add(made, place)


@_step
def blockize(
    nest: Nest, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True
) -> BlockRV:
    """A block around a loop, or around blocks, and what is in it."""
    if isinstance(target, LoopRV):
        inner = nest.around(target.loop)
        at = inner[0].loops.index(target.loop)
    else:
        inner, at = [b.place for b in target], 0
    made = Place(
        f"{inner[0].name}_o",
        inner[0].func,
        inner[0].loops[:at],
        [b for p in inner for b in p.reads],
        [b for p in inner for b in p.writes],
        scope=inner[0].scope,
    )
    found = nest.add(made, inner[0])
    for place in inner:
        place.loops, place.scope = place.loops[at:], made
    return found


def _buffer(place: Place, kind: str, which: Any) -> Buffer | str:
    """The buffer of a block that a step is told: its number, its name, or itself."""
    if isinstance(which, tuple):
        kind, which = which
    if kind not in ("read", "write"):
        raise ScheduleError(f"a buffer is one of 'read' or 'write', got {kind!r}")
    among = place.reads if kind == "read" else place.writes
    if isinstance(which, int) and 0 <= which < len(among):
        return among[which]
    for known in [] if isinstance(which, int) else [*place.reads, *place.writes]:
        if which is known or which == getattr(known, "name", known):
            return known
    names = ", ".join(str(getattr(b, "name", b)) for b in among)
    raise ScheduleError(f"the block {place.name!r} has no {kind} buffer {which!r}; it has {names}")


_REINDEX: Final = "reindex"


def _copy(nest: Nest, place: Place, kind: str, which: Any, suffix: str, readers: Any) -> BlockRV:
    """A block that copies a buffer of ``place`` before it, or its results after it."""
    buffer = _buffer(place, kind, which)
    name = f"{getattr(buffer, 'name', buffer)}_{suffix}"
    shape = buffer.shape if isinstance(buffer, Buffer) else nest.shapes.get(buffer, ())
    nest.shapes[name] = tuple(shape)
    sized = suffix != _REINDEX  # else the sizes are in the order of the block's axes
    loops = [Loop(f"ax{i}", plain(x) if sized else None) for i, x in enumerate(shape)]
    made = Place(name, place.func, loops, [buffer], [name], scope=place.scope)
    kind = which[0] if isinstance(which, tuple) else kind
    reading = kind == "read"
    if not reading:
        made.reads, made.writes = made.writes, made.reads
        place.writes = [name if b is buffer else b for b in place.writes]
        place.reads = [name if b is buffer else b for b in place.reads]
    for reader in [place, *(b.place for b in readers or ())] if reading else []:
        reader.reads = [name if b is buffer else b for b in reader.reads]
    return nest.add(made, place, after=not reading)


@_step
def cache_read(
    nest: Nest,
    block: BlockRV,
    read_buffer_index: Any,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV] | None = None,
) -> BlockRV:
    """A copy of a buffer, which the block reads instead."""
    return _copy(nest, block.place, "read", read_buffer_index, storage_scope, consumer_blocks)


@_step
def cache_write(
    nest: Nest,
    block: BlockRV,
    write_buffer_index: Any,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV] | None = None,
) -> BlockRV:
    """A buffer that the block writes instead, and the block that copies it."""
    return _copy(nest, block.place, "write", write_buffer_index, storage_scope, None)


@_step
def reindex_cache_read(
    nest: Nest, block: BlockRV, read_buffer_index: int, storage_scope: str, index_map: Any
) -> BlockRV:
    """:func:`cache_read` with the elements in another order."""
    return _copy(nest, block.place, "read", read_buffer_index, storage_scope, None)


@_step
def reindex_cache_write(
    nest: Nest, block: BlockRV, write_buffer_index: int, storage_scope: str, index_map: Any
) -> BlockRV:
    """:func:`cache_write` with the elements in another order."""
    return _copy(nest, block.place, "write", write_buffer_index, storage_scope, None)


@_step
def cache_inplace(
    nest: Nest, block: BlockRV, read_buffer_index: Any, storage_scope: str
) -> list[BlockRV]:
    """A copy of a buffer that the block changes, and the block that copies it back."""
    buffer = _buffer(block.place, "read", read_buffer_index)
    read = _copy(nest, block.place, "read", read_buffer_index, storage_scope, None)
    return [read, _copy(nest, block.place, "write", buffer, storage_scope, None)]


@_step
def reindex(nest: Nest, block: BlockRV, buffer: Any) -> BlockRV:
    """A copy of a buffer in the order in which the block goes through it."""
    return _copy(nest, block.place, "read", buffer, _REINDEX, None)


@_step
def read_at(
    nest: Nest, loop: LoopRV, block: BlockRV, read_buffer_index: int, storage_scope: str
) -> BlockRV:
    """:func:`cache_read` below a loop."""
    made = _copy(nest, block.place, "read", read_buffer_index, storage_scope, None)
    made.place.loops = _outer(block.place, loop.loop)
    return made


@_step
def write_at(
    nest: Nest, loop: LoopRV, block: BlockRV, write_buffer_index: int, storage_scope: str
) -> BlockRV:
    """:func:`cache_write` below a loop."""
    made = _copy(nest, block.place, "write", write_buffer_index, storage_scope, None)
    made.place.loops = _outer(block.place, loop.loop)
    return made


def _outer(place: Place, loop: Loop) -> list[Loop]:
    if loop not in place.loops:
        raise ScheduleError(f"the loop {loop.name!r} is not around the block {place.name!r}")
    return place.loops[: place.loops.index(loop) + 1]


@_step
def transform_layout(
    nest: Nest,
    block: BlockRV,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
) -> None:
    """Another order of the elements of a buffer inside the function, which nobody outside sees.

    UnsupportedError for a buffer that is an argument: callers would have to give it otherwise.
    """
    found = _buffer(block.place, "write", buffer)
    func = nest.funcs[block.place.func]
    if found in func.buffer_map.values():
        raise UnsupportedError(
            f"tir.Schedule.transform_layout of {getattr(found, 'name', found)!r}, an argument of "
            f"{block.place.func!r}: a schedule changes no kernel here, and callers would give this "
            "one in another order. Write the function with the layout that it is to have"
        )


def _product(sizes: Sequence[Dim]) -> Dim:
    known: Dim = 1
    for size in sizes:
        known = size if isinstance(known, int) and known == 1 else known * size
    return known
