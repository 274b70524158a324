"""The gate of ``gate.py`` over MLIR modules: the last look before XLA, whatever way they came."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from typing import Any, Final

from relax2xla.errors import BudgetError, UnsupportedError
from relax2xla.ir.traits import ComputesElements, OnlyWhole
from relax2xla.stablehlo.codecs import read_any, read_attr, type_to_sinfo
from relax2xla.stablehlo.locations import read_location
from relax2xla.stablehlo.mlir import ir, operations, stablehlo
from relax2xla.stablehlo.rows import DISCARDABLE
from relax2xla.stablehlo.table import BY_MLIR_NAME, CUSTOM_CALL, TABLE, rows_with
from relax2xla.stablehlo.untrusted.gate import (
    COLLECTIVES,
    COUNTS,
    WATCHED,
    Program,
    Request,
    check,
    gap,
    meshes_of,
    place_of,
    refuse,
)
from relax2xla.stablehlo.untrusted.limits import CALLS, OPERATIONS

# A reference to a function, as text.
_NAME: Final = re.compile(r'@("(?:[^"\\]|\\.)*"|[\w.$-]+)')


# What calls a function of the module by name, and the attribute with the name.
_CALLS: Final = {
    "func.call": "callee",
    CUSTOM_CALL: "called_computations",
    "stablehlo.composite": "decomposition",
}

# What has a computation for each element or pair of them, and what has no place in one.
_OF_ELEMENTS: Final = rows_with(ComputesElements)
_WHOLE: Final[Mapping[str, OnlyWhole]] = {
    **dict.fromkeys(COLLECTIVES, OnlyWhole(vectorised=False)),
    **{row.mlir_name: t for row in TABLE.values() for t in row.traits if isinstance(t, OnlyWhole)},
}


def check_mlir(module: ir.Module, allowed: Iterable[str] = (), run_on: int = 1) -> None:
    """Raise UnsupportedError for a module that asks for what it may not have on so many devices.

    ``allowed``: targets of custom calls that a caller in Python allows beside the safe ones.
    """
    watched: list[ir.Operation] = []
    calls: list[ir.Operation] = []
    whole: list[ir.Operation] = []
    names: list[str] = []
    with module.context:
        stated = module.operation.attributes
        given = {n: ir.IntegerAttr(stated[n]).value for n in COUNTS if n in stated}
        counts = list(given.values())
        every = operations(module)
        for op in every:
            name = op.name
            if name in WATCHED:
                watched.append(op)
            if name in _CALLS:
                calls.append(op)
            elif name in _WHOLE:
                whole.append(op)
            elif name == "func.func":
                names.append(_symbol(op))
        if "main" not in names:
            raise UnsupportedError("the program has no function main, where XLA begins")
        graph: dict[str, Counter[str]] = {}
        nests: dict[str, int] = {}
        for op in calls:
            caller = _function(op)
            graph.setdefault(caller, Counter()).update(_called(op))
            nests[caller] = max(nests.get(caller, 0), _nest(op))
        order = _check_depth(graph, nests)
        _check_size(module, len(every), graph, order)
        if whole:
            _check_elements(whole, calls, graph)
        if not watched and math.prod(counts) == 1:
            return
        meshes = [str(op) for op in module.body.operations if op.operation.name == "sdy.mesh"]
        program = Program(
            frozenset(names),
            frozenset(allowed),
            math.prod(counts) if counts else None,
            given.get(COUNTS[0], 1),
            meshes_of(meshes),
            compiled=True,
            run_on=run_on,
        )
        check(program, [(_function(op), _request(op)) for op in watched])


def _called(op: ir.Operation) -> set[str]:
    """The functions that a call names."""
    if (said := _CALLS[op.name]) not in op.attributes:
        return set()
    return {n.strip('"') for n in _NAME.findall(str(op.attributes[said]))}


def _check_elements(
    whole: Iterable[ir.Operation],
    calls: Iterable[ir.Operation],
    graph: Mapping[str, Iterable[str]],
) -> None:
    """UnsupportedError where the computation of an element has what XLA computes as a whole.

    ``graph``: the functions that each calls.
    """
    # Functions that such computations call, and those that they call, with what has them.
    reached: dict[str, set[str]] = {}
    for op in calls:
        if outers := _computations_of(op):
            for name in _called(op):
                reached.setdefault(name, set()).update(outers)
    waiting = list(reached)
    while waiting:
        name = waiting.pop()
        for inner in graph.get(name, ()):
            known = reached.setdefault(inner, set())
            if not reached[name] <= known:
                known |= reached[name]
                waiting.append(inner)
    found: dict[str, None] = {}
    for op in whole:
        trait = _WHOLE[op.name]
        outers = _computations_of(op)
        outers += sorted(reached.get(_function(op), ())) if reached else []
        if trait.inside:
            outers = [name for name in outers if name == trait.inside]
        if not outers or (trait.vectors and _has_vector(op)):
            continue
        other = "; as a function of JAX (extract_jax) it runs" if trait.vectorised else ""
        reason = (
            f"it is in the computation of a {outers[0]}, which XLA makes for each element, and has "
            f"no code for this there. Compute it before, for all elements{other}"
        )
        where = place_of(read_location(op.location))
        found[gap(_function(op), op.name, where, reason)] = None
    refuse(found)


def _has_vector(dot: ir.Operation) -> bool:
    """Whether one operand of a product is a vector, or several of a batch."""
    lhs, rhs = (tuple(ir.RankedTensorType(v.type).shape) for v in dot.operands)
    contracted, batch = lhs[-1:], ()
    if "dot_dimension_numbers" in dot.attributes:
        numbers = stablehlo.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
        contracted = [lhs[i] for i in numbers.lhs_contracting_dimensions]
        batch = [lhs[i] for i in numbers.lhs_batching_dimensions]
    depth, many = math.prod(contracted), math.prod(batch)
    rows, columns = (math.prod(x) // max(1, depth * many) for x in (lhs, rhs))
    return 1 in (rows, columns)


def _computations_of(op: ir.Operation) -> list[str]:
    """The operations whose computations of elements ``op`` is in, the innermost first."""
    return [o.name for o in _around(op) if o.name in _OF_ELEMENTS]


def _check_depth(graph: Mapping[str, Iterable[str]], nests: Mapping[str, int]) -> list[str]:
    """The functions, those that are called first; neither in a circle nor too many in each other.

    ``graph``: the functions that each calls; ``nests``: in how many regions.
    """
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as e:
        cycle = " > ".join(e.args[1][::-1])
        raise UnsupportedError(
            f"the program's functions call each other in a circle ({cycle}), which XLA does not "
            "survive; use stablehlo.while"
        ) from None
    depths: dict[str, int] = {}
    for name in order:
        inner = (depths[callee] for callee in graph.get(name, ()))
        depths[name] = max(inner, default=0) + nests.get(name, 0)
        if depths[name] > CALLS:
            raise BudgetError(
                f"{name}: calls and regions lie in each other more than {CALLS} times, which XLA "
                "does not survive; have fewer functions, each of which does more"
            )
    return order


def _check_size(
    module: ir.Module, written: int, graph: Mapping[str, Counter[str]], order: list[str]
) -> None:
    """BudgetError where calls of calls make a program of XLA's that no memory holds.

    XLA makes each call a copy of what is called. ``written``: how many operations the module has.
    """
    times = Counter({"main": 1})
    for name in reversed(order):
        for callee, count in graph.get(name, Counter()).items():
            times[callee] += times[name] * count
    most = max(times.values())
    if most == 1 or most * written <= OPERATIONS:
        return
    functions = (op.operation for op in module.body.operations if op.operation.name == "func.func")
    made = sum(len(operations(f)) * times[_symbol(f)] for f in functions)
    if made > OPERATIONS:
        name = max(times, key=times.__getitem__)
        raise BudgetError(
            f"{name} is called {most} times, and XLA copies what is called: {made} operations are "
            f"more than {OPERATIONS}; use stablehlo.while"
        )


def _nest(op: ir.Operation) -> int:
    """How many operations lie around one in its function, with itself."""
    return 1 + sum(1 for _ in takewhile(lambda o: o.name != "func.func", _around(op)))


def _around(op: ir.Operation) -> Iterator[ir.Operation]:
    """The operations that ``op`` is in, the innermost first."""
    parent: Any = op.parent
    while parent is not None:
        parent = getattr(parent, "operation", parent)
        yield parent
        parent = parent.parent


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _function(op: ir.Operation) -> str:
    """The name of the function that an operation is in."""
    functions = (o for o in (op, *_around(op)) if o.name == "func.func")
    found = next(functions, None)
    return "the program" if found is None else _symbol(found)


def _request(op: ir.Operation) -> Request:
    row = BY_MLIR_NAME[op.name]
    attrs: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name in op.attributes:
        try:
            value = op.attributes[name]
        except TypeError as e:  # what jaxlib has no class for
            raise UnsupportedError(f"{op.name}: {name} cannot be read ({e})") from None
        codec = row.attrs.get(name)
        if codec is None:
            rest[name] = read_any(value)
        else:
            attrs[name] = read_attr(codec.removeprefix("?"), value)
    return Request(
        op.name,
        {**attrs, DISCARDABLE: rest},
        [type_to_sinfo(v.type) for v in op.operands],
        [type_to_sinfo(v.type) for v in op.results],
        place_of(read_location(op.location)),
    )
