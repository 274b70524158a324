"""Which layouts of other buffers go with given layouts of the buffers that a function writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from relax2xla import tir
from relax2xla.errors import TVMError, UnsupportedError
from relax2xla.tir import stmt as s
from relax2xla.tir.arith.iterators import is_bijective, iterators_of
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.stmt_functor import pre_order_visit

Layouts: TypeAlias = dict[s.Block | Buffer, tir.IndexMap]


def suggest_layout_transforms(
    func: tir.PrimFunc,
    write_buffer_transforms: Sequence[tir.IndexMap | Callable[..., Any]],
) -> dict[s.Block, Layouts]:
    """Layouts of what blocks of ``func`` read, and orders of their axes, that suit their results'.

    ``write_buffer_transforms``: an index map, or the Python function of one, for each of the last
    parameters. By block: the map of its axes, under itself, that of the buffer that it writes, and
    those of the buffers that it reads in the order of its axes. Source of the semantics: TVM's
    ``relax.analysis.suggest_layout_transforms``.

    A block is left out where its order cannot be told: if it has blocks inside, writes several
    buffers, or one whose layout is not known or that it does not write in the order of its axes;
    and where the map would not be one-to-one on the axes. Raises TypeError for what is no index
    map, TVMError for maps that are too many or that do not fit their buffers, UnsupportedError for
    a function that was kept as text.
    """
    want_kernel("suggest_layout_transforms", func)
    known: dict[Buffer, tir.IndexMap] = {}
    maps = [_index_map(x) for x in write_buffer_transforms]
    if len(maps) > len(func.params):
        raise TVMError(
            "suggest_layout_transforms: Incompatible PrimFunc and write_transformations: "
            f"{len(maps)} index maps for {len(func.params)} parameters; give one for each buffer "
            "that the function writes"
        )
    for param, made in zip(func.params[len(func.params) - len(maps) :], maps, strict=True):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            raise TVMError(
                f"suggest_layout_transforms: the parameter {param.name} is no buffer; index maps "
                "are for the last parameters, the buffers that the function writes"
            )
        if len(made.initial_indices) != len(buffer.shape):
            raise TVMError(
                "suggest_layout_transforms: Mismatch between output buffer shape and index map: "
                f"{buffer.name} has {len(buffer.shape)} dimensions, and {made} takes "
                f"{len(made.initial_indices)} indices"
            )
        known[buffer] = made
    found: dict[s.Block, Layouts] = {}
    for block in _outer_blocks(func.body) if maps else ():
        layouts = _layouts(block, known)
        if layouts is not None:
            found[block] = layouts
            known |= {x: made for x, made in layouts.items() if isinstance(x, Buffer)}
    return found


def want_kernel(name: str, func: object) -> None:
    """TypeError for what is no loop-level function, UnsupportedError for one that is only text."""
    if not isinstance(func, tir.PrimFunc):
        raise TypeError(f"{name} takes a tir.PrimFunc; got {type(func).__name__}")
    if isinstance(func.body, tir.Text):
        raise UnsupportedError(f"{name}: the function was kept as text, for {func.body.why}")


def _index_map(given: object) -> tir.IndexMap:
    if isinstance(given, tir.IndexMap):
        return given
    if not callable(given):
        raise TypeError(
            "suggest_layout_transforms: write_buffer_transforms are tir.IndexMaps or functions of "
            f"indices; got {type(given).__name__}"
        )
    return tir.IndexMap.from_func(given)


def _outer_blocks(body: s.Stmt) -> Iterator[s.Block]:
    """The blocks of a function, without those inside of others; the root block is no block."""
    todo = [body]
    while todo:
        node = todo.pop()
        if isinstance(node, s.BlockRealize) and node.block.name_hint != "root":
            yield node.block
        else:
            todo += reversed(s.children(node))


# By dimension of a buffer the axis of the block that it is read or written along, if there is one.
_Order: TypeAlias = Sequence[tir.Var | None]


def _layouts(block: s.Block, known: Mapping[Buffer, tir.IndexMap]) -> Layouts | None:
    """The maps that go with that of the buffer that ``block`` writes; None where none do."""
    if len(block.writes) != 1 or block.writes[0].buffer not in known:
        return None
    written = block.writes[0].buffer
    orders = _orders(block)
    if orders is None:
        return None
    axes = [axis.var for axis in block.iter_vars]
    order = [v for v in orders.get(written) or () if v is not None]
    if len(order) != len(written.shape) or not order or not _sequential(order, axes):
        return None
    of_block = _carried(order, known[written], axes)
    if of_block is None:
        return None
    domains = {
        index: axis.dom
        for index, axis in zip(of_block.initial_indices, block.iter_vars, strict=True)
        if axis.dom is not None
    }
    if not is_bijective(of_block.final_indices, domains):
        return None
    found: Layouts = {block: of_block, written: known[written]}
    for buffer in (region.buffer for region in block.reads):
        read = orders.get(buffer)
        if buffer not in known and read and _sequential(read, axes):
            made = _carried(order, known[written], read)
            if made is not None:
                found[buffer] = made
    return found


def _orders(block: s.Block) -> dict[Buffer, _Order | None] | None:
    """By buffer the order in which ``block`` accesses it, None where there is not one.

    None for a block that has others inside, or stores to more than the one buffer it says.
    """
    kinds = {axis.iter_type for axis in block.iter_vars}
    if not kinds <= {"spatial", "reduce"} or any(axis.dom is None for axis in block.iter_vars):
        return None
    domains = {
        axis.var: axis.dom
        for axis in block.iter_vars
        if axis.dom is not None and axis.iter_type == "spatial"
    }
    found: dict[Buffer, _Order | None] = {}
    whole = True

    def visit(node: Any) -> bool:
        nonlocal whole
        stored = isinstance(node, s.BufferStore)
        if isinstance(node, s.BlockRealize) or (stored and node.buffer != block.writes[0].buffer):
            whole = False
        elif isinstance(node, s.BufferStore | BufferLoad):
            order = iterators_of(node.indices, domains) or None
            found[node.buffer] = order if found.get(node.buffer, order) == order else None
        # What a load reads at a place that it loads, too, is in no order.
        return whole and not isinstance(node, BufferLoad)

    pre_order_visit(block.body, visit)
    return found if whole else None


def _sequential(order: _Order, axes: Sequence[tir.Var]) -> bool:
    places = [axes.index(v) for v in order if v is not None]
    return all(a < b for a, b in pairwise(places))


def _carried(order: Sequence[tir.Var], given: tir.IndexMap, target: _Order) -> tir.IndexMap | None:
    """``given``, of indices along the axes ``order``, for indices along ``target``.

    Axes that are not in ``target`` go, with what is made of them; indices of ``target`` that
    ``order`` lacks stay where they are. None where a final index mixes indices that go and stay.
    """
    pairs = zip(order, given.initial_indices, strict=True)
    initial = [index for axis, index in pairs if axis in target]
    final: list[tir.PrimExpr] = []
    for index in given.final_indices:
        kept = [v in initial for v in tir.free_vars(index)]
        if not kept or any(kept) != all(kept):
            return None
        if all(kept):
            final.append(index)
    place = 0
    for n, axis in enumerate(target):
        if axis in order:
            place = min(place + 1, len(final))
            continue
        new = tir.Var(f"d{n}", given.initial_indices[0].dtype)
        initial.insert(n, new)
        final.insert(place, new)
        place += 1
    return tir.IndexMap(tuple(initial), tuple(final))
