"""``inspect --forms``: what computes each convolution, product, attention and the like here.

The program is the one that is compiled: behind all passes, for the processor that this runs on. The
share of a call is reckoned as for layers (:mod:`relax2xla.cli.figures.layers`): the larger of what
its FLOPs and its bytes take at the machine's best rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from relax2xla.cli.figures.costs import Cost, add, row_costs
from relax2xla.cli.figures.layers import MOST, NAMELESS, cells, rates, roofline, shares
from relax2xla.cli.process.console import out, table
from relax2xla.ir import Call, Function, IRModule, Op, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.kernels import recurrences
from relax2xla.stablehlo.table import TABLE
from relax2xla.transform.cpu.calls.sites import named_forms
from relax2xla.vm.plan.host_reasons import place

_COMPOSITE: Final = "stablehlo.composite"
#: By the beginning of a composite's name, what runs it.
_FORMS: Final[Mapping[str, str]] = {
    "relax2xla.products.convolution": "C++",
    "relax2xla.products.product": "C++",
    "relax2xla.products.joined": "C++, of several",
    "relax2xla.products.winograd": "C++, Winograd {size}x{size}",
    "relax2xla.attention.": "C++, all heads",
    "relax2xla.depthwise.": "C++",
    "relax2xla.integers.": "C++, 8 bits",
    "relax2xla.recurrences.": "C++, all steps",
    "relax2xla.gradients.": "C++",
    "relax2xla.moments.": "C++",
    "relax2xla.norms.": "C++",
    "relax2xla.slices.": "C++",
    "relax2xla.squeezes.": "C++",
    "relax2xla.transposes.": "C++",
    "relax2xla.onednn.": "oneDNN",
}
_KINDS: Final[Mapping[str, str]] = {
    "stablehlo.convolution": "convolution",
    "stablehlo.dot_general": "product",
    "stablehlo.dot": "product",
}
# What calls compute, where it is not what they are named.
_OPERATIONS: Final[Mapping[str, str]] = {
    "expanded": "product and convolution",
    "joined": "product",
    "winograd": "convolution",
}
_REST: Final = "(other operations)"
_XLA: Final = "XLA"
# What moves nothing, or becomes part of what reads it.
_FREE: Final = ("reshape", "constant", "tuple", "get_tuple_element", "broadcast_in_dim", "iota")


@dataclass(slots=True)
class Form:
    """A call: the name of its source, what it is, of which shape it makes what, and its form."""

    layer: str
    operation: str
    result: str
    form: str
    flops: int
    bytes: int


def forms(mod: IRModule) -> tuple[list[Form], list[str]]:
    """The calls of all functions of static shapes, and the names of the functions of others."""
    from relax2xla.vm.call.specialise import specialise
    from relax2xla.vm.pjrt import xla
    from relax2xla.vm.plan.build import build

    made, others = list[Form](), list[str]()
    built = build(mod)
    platform = xla.jax_device(built.device).platform
    passes = [p for p in built.static if p.info.is_for(platform)]
    for entry in built.compiled:
        if not entry.is_static:
            others.append(entry.name)
            continue
        with built.context.resumed():
            program = specialise(built.mod, entry.name, entry.func, {}, passes).module
        made += _forms_of(program)
    return made, others


def _forms_of(program: IRModule) -> Iterator[Form]:
    functions, rest = program.relax_functions(), Cost()
    # Their calls count what they compute.
    named = {name for func in functions.values() for name in named_forms(func)}
    for gvar, func in functions.items():
        if gvar.name_hint in named:
            continue
        for b in bindings_deep(func):
            call = b.value
            if not isinstance(call, Call) or not isinstance(call.op, Op):
                continue
            if call.op.name not in TABLE:
                continue
            row, layer = TABLE[call.op.name].mlir_name, place(call.span or b.span or b.var.span)
            cost = Cost()
            add(cost, call)
            if row == _COMPOSITE:
                yield _composite(program, call, layer or NAMELESS, cost.bytes)
            elif row in _KINDS:
                result = _shape(call)
                yield Form(layer or NAMELESS, _KINDS[row], result, _XLA, cost.flops, cost.bytes)
            elif row.rpartition(".")[2] not in _FREE:
                rest.flops += cost.flops
                rest.bytes += cost.bytes
    if rest.bytes:
        yield Form(_REST, "", "", _XLA, rest.flops, rest.bytes)


def _composite(program: IRModule, call: Call, layer: str, moved: int) -> Form:
    attrs = call_attrs(call)
    name, given = str(attrs["name"]), attrs["composite_attributes"]
    form = next((f for start, f in _FORMS.items() if name.startswith(start)), _XLA)
    func = program[str(attrs["decomposition"])]
    assert isinstance(func, Function)
    flops = sum(cost.flops for cost in row_costs([func]).values())
    if name == recurrences.Recurrence.name:
        flops *= _steps(call)  # a loop's body is counted once
    operation = name.rpartition(".")[2].replace("_", " ")
    operation = _OPERATIONS.get(operation, operation)
    return Form(layer, operation, _shape(call), form.format(**given), flops, moved)


def _steps(call: Call) -> int:
    info = call.args[0].struct_info
    dims = info.dims or () if isinstance(info, TensorStructInfo) else ()
    return next((d for d in dims if isinstance(d, int)), 1)


def _shape(call: Call) -> str:
    info = call.struct_info
    dims = info.dims or () if isinstance(info, TensorStructInfo) else ()
    return "x".join(map(str, dims))


def form_report(mod: IRModule) -> dict[str, Any]:
    """Rows by call, and the rates that their shares are reckoned with, as plain data."""
    flops, rate = roofline()
    calls, others = forms(mod)
    costs = [Cost(flops=c.flops, bytes=c.bytes) for c in calls]
    found = zip(calls, shares(costs, flops, rate), strict=True)
    rows = [{**asdict(c), "share": share} for c, share in found]
    return {"flops_per_s": flops, "bytes_per_s": rate, "rows": rows, "dynamic": others}


def print_forms(found: Mapping[str, Any]) -> None:
    """The calls that take most, the others in one row, and the sum for each form."""
    rows = sorted(found["rows"], key=lambda r: -r["share"])
    shown = [(r["layer"], r["operation"], r["result"], r["form"], *cells([r])) for r in rows[:MOST]]
    if rest := rows[MOST:]:
        shown.append((f"other ({len(rest)})", "", "", "", *cells(rest)))
    out()
    table(("layer", "operation", "result", "form", "FLOPs", "bytes", "%"), shown)
    out()
    by_form: dict[str, list[Any]] = {}
    for r in rows:
        by_form.setdefault(r["form"], []).append(r)
    table(
        ("form", "calls", "FLOPs", "bytes", "%"),
        [(f, str(len(rs)), *cells(rs)) for f, rs in by_form.items()],
    )
    out(f"\n{rates(found)}; FLOPs are those of the operation, of which Winograd's form does fewer")
    if found["dynamic"]:
        names = ", ".join(found["dynamic"])
        out(f"the forms of {names} depend on sizes that only a call knows: give --shape")
