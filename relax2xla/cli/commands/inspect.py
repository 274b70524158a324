"""``relax2xla inspect``: what a model holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.figures.costs import custom_calls, row_costs
from relax2xla.cli.figures.parameters import parameter
from relax2xla.cli.process.console import out, print_json, size, status, table, weights_text
from relax2xla.cli.reading.model import load_model, parse_shapes
from relax2xla.errors import TVMError
from relax2xla.importers.files import format_of, symbols
from relax2xla.ir import Call, Constant, ExternFunc, Function, GlobalVar, IRModule, Op
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.source_names import result_names
from relax2xla.ir.struct_info import show

# Formats of programs that are made of rows, whose cost the shapes tell.
STABLEHLO: Final = ("mlir", "mlirbc", "stablehlo", "exported")


def run_inspect(
    file: Path,
    as_json: bool,
    text: bool,
    trust: bool,
    shape: Sequence[str],
    layers: bool = False,
    forms: bool = False,
) -> None:
    """Print the report of ``file``."""
    shapes = parse_shapes(shape)
    if file.suffix.lower() == ".r2x":
        from relax2xla.cli.commands.saved import saved_functions, saved_report

        if shapes:
            raise TVMError("--shape is for models; a saved executable has the sizes that it has")
        found = saved_report(file, text)
        mod = saved_functions(file) if layers or forms else None
    else:
        mod = load_model(file, trust, shapes)
        found = report(file, mod)
        if text:
            found["text"] = mod.script()
    if layers and mod is not None:
        from relax2xla.cli.figures.layers import layer_report

        with status("measuring this machine"):
            found["layers"] = layer_report(mod)
    if forms and mod is not None:
        from relax2xla.cli.figures.forms import form_report

        with status("building, and measuring this machine"):
            found["forms"] = form_report(mod)
    if as_json:
        print_json(found)
    else:
        _print(found)


def report(file: Path, mod: IRModule) -> dict[str, Any]:
    """Everything that ``inspect`` says, as plain data."""
    functions = mod.relax_functions()
    built = runs(mod)
    by_value: dict[str, list[str]] = built.pop("by_value", {})
    found: dict[str, Any] = {
        "file": str(file),
        "format": format_of(file).title,
        "file_bytes": file.stat().st_size,
        "functions": [
            {
                "name": gvar.name_hint,
                "public": "global_symbol" in f.attrs,
                "parameters": [parameter(p) for p in f.params],
                "by_value": by_value.get(gvar.name_hint, []),
                "result": show(f.ret_struct_info),
                "result_names": list(result_names(f)),
                "bindings": sum(len(b.bindings) for b in f.body.blocks),
            }
            for gvar, f in functions.items()
        ],
        "symbolic_dimensions": symbols(
            [p.struct_info for f in functions.values() for p in f.params]
        ),
        "operators": operators(list(functions.values())),
        "weights": weights(list(functions.values())),
        "runs": built,
    }
    if format_of(file).name in STABLEHLO:
        found["costs"] = {n: asdict(c) for n, c in row_costs(functions.values()).items()}
        found["custom_calls"] = custom_calls(functions.values())
    return found


def operators(functions: Sequence[Function]) -> dict[str, int]:
    """How often each operator is called, the most frequent first."""
    counts: Counter[str] = Counter()
    for f in functions:
        for node in post_order_deep(f):
            if not isinstance(node, Call):
                continue
            if isinstance(node.op, Op):
                counts[node.op.name.removeprefix("relax.")] += 1
            elif isinstance(node.op, GlobalVar):
                counts[f"call of {node.op.name_hint}"] += 1
            elif isinstance(node.op, ExternFunc):
                counts[f"packed function {node.op.global_symbol}"] += 1
    return dict(counts.most_common())


def weights(functions: Sequence[Function]) -> dict[str, Any]:
    """Number, elements and bytes of the distinct constant arrays, elements by dtype."""
    arrays = {
        id(node.data): node.data
        for f in functions
        for node in post_order_deep(f)
        if isinstance(node, Constant) and node.data.ndim
    }
    dtypes: Counter[str] = Counter()
    for a in arrays.values():
        dtypes[a.dtype.name] += a.size
    return {
        "arrays": len(arrays),
        "elements": sum(a.size for a in arrays.values()),
        "bytes": sum(a.nbytes for a in arrays.values()),
        "elements_by_dtype": dict(dtypes.most_common()),
    }


def runs(mod: IRModule) -> dict[str, Any]:
    """What runs where after the default pipeline, in words; or why the module cannot be built."""
    from relax2xla.vm.plan.build import build

    try:
        with status("building"):
            made = build(mod)
        return {
            "stats": made.stats().splitlines()[1:],
            "by_value": {name: list(made.by_value(name)) for name in made},
            "kernels": [asdict(k) for k in made.kernels()],
        }
    except (TVMError, NotImplementedError) as e:
        return {"error": str(e)}


def _print_costs(found: dict[str, Any]) -> None:
    """Operations of a StableHLO program, what costs most first."""
    rows = [
        (n, str(c["calls"]), f"{c['flops']:,}", size(c["bytes"]), str(c["dynamic"] or ""))
        for n, c in found["costs"].items()
    ]
    if rows:
        table(("operation", "calls", "FLOPs", "bytes", "of dynamic shape"), rows)
        flops = sum(c["flops"] for c in found["costs"].values())
        moved = sum(c["bytes"] for c in found["costs"].values())
        out(f"\nin all: {flops:,} FLOPs, {size(moved)} read and written before any fusion")
    if found["custom_calls"]:
        named = ", ".join(f"{n} ({c})" for n, c in found["custom_calls"].items())
        out(f"custom calls: {named}")


def _print(found: dict[str, Any]) -> None:
    out(f"{found['file']}: {found['format']}, {size(found['file_bytes'])}")
    if "made_with" in found:
        from relax2xla.cli.commands.saved import print_saved

        print_saved(found)
    for f in found["functions"]:
        count = f", {f['bindings']} bindings" if "bindings" in f else ""
        out(f"\n{f['name']}{'' if f['public'] else ' (private)'}{count}")
        for p in f["parameters"]:
            more = ", specialised by its value" if p["name"] in f.get("by_value", ()) else ""
            own = f" ({p['source_name']})" if p["source_name"] != p["name"] else ""
            out(f"  {p['name']}{own}: {p['struct_info']}{more}")
        if f["result"] is not None:
            names = f"{', '.join(f['result_names'])}: " if any(f.get("result_names", ())) else ""
            out(f"  -> {names}{f['result']}")
    if found["symbolic_dimensions"]:
        out(f"\nsymbolic dimensions: {', '.join(found['symbolic_dimensions'])}")
    w = found["weights"]
    kinds = ", ".join(f"{count:,} {name}" for name, count in w["elements_by_dtype"].items())
    out(f"\n{weights_text(w['arrays'], w['bytes'])}" + (f" ({kinds})" if kinds else ""))
    if "made_with" not in found:
        out()
    if "costs" in found:
        _print_costs(found)
    elif found.get("operators"):
        table(("operator", "calls"), [(n, str(c)) for n, c in found["operators"].items()])
    if "layers" in found:
        from relax2xla.cli.figures.layers import print_layers

        print_layers(found["layers"])
    if "forms" in found:
        from relax2xla.cli.figures.forms import print_forms

        print_forms(found["forms"])
    out("\nwhat runs where")
    if "error" in found["runs"]:
        out(f"  cannot be built: {found['runs']['error']}")
    for line in found["runs"].get("stats", ()):
        out(f"  {line}")
    if "text" in found:
        out(f"\n{found['text']}")
