"""What a program may ask of the process that runs it, looked at before XLA sees the program.

XLA trusts its input: it runs custom calls as they are named, waits for an infeed that nobody fills,
and compiles a program for several devices for the one that it is given, in silence. So each of
these is an error here, with its place (design decisions D19 and D25). The rules are over
:class:`Request`, which is a call of a Relax row (here) or an MLIR operation (``gate_mlir``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from relax2xla.errors import UnsupportedError
from relax2xla.ir.base import EMPTY_ATTRS, Span
from relax2xla.ir.expr import Call, Function, SeqExpr
from relax2xla.ir.module import IRModule
from relax2xla.ir.rewrite import bindings_of, post_order_deep
from relax2xla.ir.struct_info import StructInfo, flatten_info
from relax2xla.ir.traits import AsksPlace, Collective, Waits
from relax2xla.stablehlo.rows import DISCARDABLE, RowOp
from relax2xla.stablehlo.table import CUSTOM_CALL, TABLE, rows_with
from relax2xla.stablehlo.untrusted.targets import (
    SAFE,
    AllowedTarget,
    CustomCall,
    devices_between,
    refusal,
)

WAITING: Final = rows_with(Waits)
PLACES: Final = rows_with(AsksPlace)
# With the attribute that names the devices.
COLLECTIVES: Final[Mapping[str, str]] = {
    row.mlir_name: trait.devices
    for row in TABLE.values()
    for trait in row.traits
    if isinstance(trait, Collective)
}
MANUAL: Final = "sdy.manual_computation"
#: The operations that the gate looks at.
WATCHED: Final = frozenset({CUSTOM_CALL, MANUAL}) | WAITING | PLACES | COLLECTIVES.keys()

COUNTS: Final = ("mhlo.num_replicas", "mhlo.num_partitions")
# How many errors one message shows.
_SHOWN: Final = 5
# Elements as text that no codec reads.
_DENSE: Final = re.compile(r"dense<([\[\]\d, -]*)> :")
# Shardings as text: tiles over devices (XLA), axes of a mesh (Shardy).
_TILES: Final = re.compile(r"devices=\[(\d[\d,]*\d|\d)\]")
_MESH: Final = re.compile(r"sdy\.mesh @(\S+) = <\[([^\]]*)\]")
_MESH_OF: Final = re.compile(r"<@([^\s,>]+), ")
# Groups along axes of a mesh, as JAX 0.12 writes them.
_GROUPS_OF: Final = re.compile(r"#stablehlo\.replica_group_mesh_axes<mesh = @([^\s,>]+),")
_INLINE_MESH: Final = re.compile(r"mesh<\[([^\]]*)\]")
_AXIS: Final = re.compile(r'"[^"]*"=(\d+)')


@dataclass(frozen=True, slots=True)
class Request:
    """One operation that the gate looks at. ``where``: its place in the source, for people."""

    name: str
    attrs: Mapping[str, Any]
    operands: Sequence[StructInfo]
    results: Sequence[StructInfo]
    where: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """What the gate has to know of the whole program.

    ``devices``: replicas times partitions as the program states them, None where it does not;
    ``replicas``: how many of them are replicas;
    ``meshes``: sizes of the meshes by name; ``compiled``: XLA sees the program next; ``run_on``:
    how many devices it is to run on.
    """

    functions: frozenset[str]
    allowed: frozenset[str] = frozenset()
    devices: int | None = None
    replicas: int = 1
    meshes: Mapping[str, int] = field(default_factory=dict[str, int])
    compiled: bool = False
    run_on: int = 1


def check(program: Program, requests: Iterable[tuple[str, Request]]) -> None:
    """Raise UnsupportedError for what cannot run, all of it in one message.

    ``requests``: each with the name of its function.
    """
    if program.devices is not None and program.devices not in (1, program.run_on):
        raise UnsupportedError(
            f"the program asks for {program.devices} devices (mhlo.num_replicas times "
            f"mhlo.num_partitions), and it is to run on {program.run_on}; nothing of it was run. "
            f"Build it for a mesh of {program.devices}: build(mod, mesh={program.devices})"
        )
    if program.replicas != 1:
        raise UnsupportedError(
            f"the program is for {program.replicas} replicas (mhlo.num_replicas), as jax.pmap "
            "makes them; over a mesh a program has partitions. Trace it with jax.jit and shardings"
        )
    found: dict[str, None] = {}
    for function, request in requests:
        reason = _reason(program, request)
        if reason:
            found[gap(function, _named(request), request.where, reason)] = None
    refuse(found)


def gap(function: str, what: str, where: str, reason: str) -> str:
    """What is said of something in a function that cannot run."""
    place = f" (at {where})" if where else ""
    return f"{function}: {what} cannot run{place}: {reason}"


def refuse(found: Iterable[str]) -> None:
    """UnsupportedError with what was found to be wrong, if anything was: the first of it."""
    lines = list(found)
    if len(lines) > _SHOWN:
        lines = [*lines[:_SHOWN], f"... and {len(lines) - _SHOWN} more"]
    if lines:
        raise UnsupportedError("\n".join(lines))


def _named(request: Request) -> str:
    if request.name == CUSTOM_CALL:
        return f"the custom call {request.attrs.get('call_target_name')!s}"
    return request.name


def _reason(program: Program, request: Request) -> str:
    """Why ``request`` cannot run; "" where it can."""
    name, attrs = request.name, request.attrs
    if name == CUSTOM_CALL:
        target = attrs.get("call_target_name")
        if not isinstance(target, str):
            return "its target is no text"
        call = CustomCall(target, attrs, request.operands, request.results)
        return refusal(call, program.allowed, program.functions, program.compiled)
    if name in WAITING:
        return (
            "it waits for another host or device, and there is none, so it would wait for ever; "
            "make what it receives an argument of the function, and what it sends a result"
        )
    if name in PLACES:
        if program.devices is not None or program.compiled or program.run_on > 1:
            return ""
        return _unstated("it asks which of several devices this is")
    if name == MANUAL:
        count = _manual_devices(program, attrs)
        return "" if count in (1, program.run_on) else _over(count, program)
    return _collective(program, request)


def _over(count: int | str, program: Program) -> str:
    if program.run_on > 1:
        return f"it is over {count} devices, and the mesh has {program.run_on}"
    return (
        f"it is over {count} devices, and the program runs on one; build it for several with "
        "build(mod, mesh=...)"
    )


def _unstated(what: str) -> str:
    return (
        f"{what}, and the program does not say how many there are; a program runs on one here. If "
        "one is meant, state mhlo.num_replicas = 1 and mhlo.num_partitions = 1 in the module"
    )


def _collective(program: Program, request: Request) -> str:
    groups = request.attrs.get(COLLECTIVES[request.name])
    if isinstance(groups, Mapping):
        text = str(groups.get("mlir", ""))
        named = _GROUPS_OF.match(text)
        if named is not None:
            count = program.meshes.get(named[1], 0)
            return "" if 0 < count <= program.run_on else _over(count or "several", program)
        plain = _DENSE.match(text)
        if plain is None:
            return "its devices are stated in a form that is not known here"
        groups = [re.findall(r"-?\d+", plain[1])]
    # -1 fills groups that are shorter than others.
    ids = {int(i) for group in groups or () for i in group} - {-1}
    channel = request.attrs.get("channel_handle") or {}
    if program.run_on > 1 and ids - {0} and not channel.get("handle"):
        return "it is between replicas (it has no channel_handle), and a mesh has partitions"
    pairs = zip(request.operands, request.results, strict=False)
    count = max([devices_between(a, b) for a, b in pairs], default=1)
    count = max(count, request.attrs.get("split_count") or 1)
    if ids - {0}:
        count = max(count, len(ids), max(ids) + 1)
    silent = program.devices is None and not program.compiled and program.run_on == 1
    if not ids and count == 1 and silent and request.name != "stablehlo.collective_permute":
        return _unstated("it exchanges values between all devices")
    return "" if count <= program.run_on else _over(count, program)


def _manual_devices(program: Program, attrs: Mapping[str, Any]) -> int | str:
    """How many devices the meshes of a manual computation have; "several" if that is not known."""
    text = str(attrs)
    inline = [_mesh_size(axes) for axes in _INLINE_MESH.findall(text)]
    named = _MESH_OF.findall(text)
    if any(name not in program.meshes for name in named):
        return "several"
    return max([*inline, *(program.meshes[name] for name in named)], default=1)


def _mesh_size(axes: str) -> int:
    return math.prod(map(int, _AXIS.findall(axes)))


# ---- Relax
@dataclass(frozen=True, slots=True)
class Passed:
    """What the gate knows of a module that it lets pass.

    ``allowed``: targets of custom calls that are allowed by whatever way; ``outside``: those among
    them that it calls and that are not known to be safe; ``spread``: the most devices that an
    annotation spreads a value over, 1 without any.
    """

    allowed: frozenset[str]
    outside: frozenset[str]
    spread: int


def check_module(mod: IRModule, allowed: Iterable[str] = (), run_on: int = 1) -> Passed:
    """Check every function of ``mod``, which is to run on so many devices.

    ``allowed`` are further targets of custom calls.

    Raises UnsupportedError.
    """
    requests: list[tuple[str, Request]] = []
    meshes = meshes_of(mod.attrs.get("prelude") or ())
    spread = 1
    for gvar, func in mod.relax_functions().items():
        notes = [func.attrs.get("arg_attrs"), func.attrs.get("res_attrs")]
        places: dict[int, Span | None] = {}
        calls: list[Call] = []
        for node in post_order_deep(func):
            if isinstance(node, SeqExpr):
                # What comes from Relax text has its place on the binding.
                places.update({id(b.value): b.var.span for b in bindings_of(node)})
            if not isinstance(node, Call) or not isinstance(node.op, RowOp):
                continue
            name = node.op.row.mlir_name
            if name in WATCHED:
                calls.append(node)
            if name.startswith("sdy.") or DISCARDABLE in node.attrs:
                notes += [node.attrs.get(DISCARDABLE), node.attrs.get("sharding")]
        requests += [(gvar.name_hint, _request(c, c.span or places.get(id(c)))) for c in calls]
        spread = max([spread, *(_devices_in(str(n), meshes) for n in notes if n)])
    targets = [r.attrs.get("call_target_name") for _, r in requests]
    marked = {t for t in targets if isinstance(t, AllowedTarget)}
    program = Program(
        frozenset(_symbols(mod)),
        frozenset(allowed) | marked,
        _stated(mod, COUNTS),
        _stated(mod, COUNTS[:1]) or 1,
        meshes,
        run_on=run_on,
    )
    check(program, requests)
    outside = {str(t) for t in targets if isinstance(t, str) and t not in SAFE}
    return Passed(program.allowed, frozenset(outside), spread)


def devices_of(mod: IRModule) -> int:
    """How many devices a module is written for: it says so, has meshes, or names devices."""
    found = [_stated(mod, COUNTS) or 1, *meshes_of(mod.attrs.get("prelude") or ()).values()]
    for func in mod.relax_functions().values():
        for node in post_order_deep(func):
            if not isinstance(node, Call) or not isinstance(node.op, RowOp):
                continue
            name = node.op.row.mlir_name
            if name == MANUAL:
                found += map(_mesh_size, _INLINE_MESH.findall(str(node.attrs)))
            elif name in COLLECTIVES:
                groups = node.attrs.get(COLLECTIVES[name])
                if groups and not isinstance(groups, Mapping):
                    found.append(1 + max(int(i) for group in groups for i in group))
    return max(found)


def _request(call: Call, span: Span | None) -> Request:
    assert isinstance(call.op, RowOp)
    operands = [i for a in call.args for i in flatten_info(a.struct_info)]
    results = flatten_info(call.struct_info)
    return Request(call.op.row.mlir_name, call.attrs, operands, results, place_of(span))


def place_of(span: Span | None) -> str:
    """A place for people: the name that the source gives it, and where the innermost call is."""
    name = file = ""
    while span is not None and not file:
        name = name or (span.name if span.kind in ("name", "opaque") else "")
        file = f"{span.file}:{span.line}:{span.column}" if span.file else ""
        span = span.children[0] if span.children else None
    return ", ".join(filter(None, (name.rstrip(":"), file)))


def _symbols(mod: IRModule) -> Iterator[str]:
    for gvar, func in mod.items():
        yield gvar.name_hint
        if isinstance(func, Function) and "sym_name" in func.attrs:
            yield func.attrs["sym_name"]


def _stated(mod: IRModule, names: Sequence[str]) -> int | None:
    """The product of what the module states under ``names``; None where it states none of them."""
    stated = mod.attrs.get(DISCARDABLE) or EMPTY_ATTRS
    counts = [_count(stated[name]) for name in names if name in stated]
    return math.prod(counts) if counts else None


def _count(value: Any) -> int:
    """An integer attribute of any width; what is none counts as several."""
    text = value.get("mlir", "") if isinstance(value, Mapping) else str(value)
    found = re.match(r"\d{1,9}(?= :|$)", str(text))
    return int(found[0]) if found else 2


def meshes_of(prelude: Sequence[Any]) -> dict[str, int]:
    """How many devices each mesh has, by the text of what stands before a module's functions."""
    texts = [p if isinstance(p, str) else p[1] for p in prelude]
    return {n: _mesh_size(axes) for t in texts for n, axes in _MESH.findall(t)}


# ---- shardings
def _devices_in(text: str, meshes: Mapping[str, int]) -> int:
    """The most devices that the shardings in the text of attributes name."""
    if "sharding" not in text:
        return 1
    tiles = [math.prod(map(int, t.split(","))) for t in _TILES.findall(text)]
    inline = [_mesh_size(axes) for axes in _INLINE_MESH.findall(text)]
    named = [meshes.get(name, 1) for name in _MESH_OF.findall(text)]
    return max([*tiles, *inline, *named], default=1)
