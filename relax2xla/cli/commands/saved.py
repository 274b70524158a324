"""``relax2xla inspect model.r2x``: what a saved executable holds, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relax2xla.cli.figures.parameters import parameter
from relax2xla.cli.process.console import out
from relax2xla.errors import DeviceError, TVMError
from relax2xla.importers.files import check_file, symbols
from relax2xla.ir import IRModule, Var
from relax2xla.ir.struct_info import show
from relax2xla.vm.pjrt import compiler
from relax2xla.vm.save.reader import SavedExecutable, shown_module


def saved_report(file: Path, text: bool) -> dict[str, Any]:
    """Everything that ``inspect`` says of a .r2x file, as plain data. Nothing in it is run."""
    check_file(file)
    executable = shown_module(file)
    manifest = executable.manifest
    functions = [_function(executable, name) for name in executable]
    arrays = {id(a): a for e in executable.compiled for a in e.lifted.arrays()}
    dtypes: Counter[str] = Counter()
    for a in arrays.values():
        dtypes[a.dtype.name] += a.size
    found: dict[str, Any] = {
        "file": str(file),
        "format": "saved executable",
        "file_bytes": file.stat().st_size,
        "made_with": dict(manifest["versions"]),
        "platform": manifest["platform"],
        "device": manifest["device"],
        "machine_code": _machine_code(executable, manifest),
        "native_code": [s for row in manifest.get("native", ()) for s in row["symbols"]],
        "functions": functions,
        "symbolic_dimensions": symbols(
            [p.struct_info for name in executable for p in _params(executable, name)]
        ),
        "weights": {
            "arrays": len(arrays),
            "elements": sum(a.size for a in arrays.values()),
            "bytes": sum(a.nbytes for a in arrays.values()),
            "elements_by_dtype": dict(dtypes.most_common()),
        },
        "runs": {"stats": executable.stats().splitlines()[1:]},
    }
    if text:
        found["text"] = executable.as_text()
    return found


def saved_functions(file: Path) -> IRModule:
    """The functions of a .r2x file that XLA compiles, as a module. Nothing in it is run."""
    check_file(file)
    executable = shown_module(file)
    functions = {e.name: e.func for e in executable.compiled}
    if not functions:
        raise TVMError(
            f"{file} has bytecode over several programs, and no functions to show; give the model "
            "that it was compiled from"
        )
    return IRModule(functions)


def _params(executable: SavedExecutable, name: str) -> tuple[Var, ...]:
    try:
        return executable.params(name)
    except TVMError:  # bytecode that was written by hand states no parameters
        return ()


def _function(executable: SavedExecutable, name: str) -> dict[str, Any]:
    entry = executable.entries.get(name)
    return {
        "name": name,
        "public": True,
        "parameters": [parameter(p) for p in _params(executable, name)],
        "result": None if entry is None else show(entry.func.ret_struct_info),
        "result_names": list(executable.results.get(name, ())),
    }


def _machine_code(executable: SavedExecutable, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """How many programs have it, for which machine, and whether that is one like this."""
    programs = [p for row in manifest["functions"] for p in row["programs"]]
    made_for = manifest["fingerprint"]
    try:
        usable = made_for is not None and made_for == compiler.fingerprint(executable.device)
    except DeviceError:
        usable = False
    return {
        "programs": len(programs),
        "compiled": sum("compiled" in p for p in programs),
        "made_for": made_for.splitlines() if isinstance(made_for, str) else [],
        "fits_this_machine": usable,
    }


def print_saved(found: dict[str, Any]) -> None:
    """The part of the report that only saved executables have."""
    versions = ", ".join(f"{name} {version}" for name, version in found["made_with"].items())
    out(f"made with {versions}, for {found['device'] or found['platform']}")
    if found["native_code"]:
        out(f"functions in C++: {', '.join(found['native_code'])} (they run with --trust)")
    code = found["machine_code"]
    if not code["compiled"]:
        out("machine code: none; XLA compiles its programs when they are run")
        return
    fits = "fits this machine (run it with --trust)"
    if not code["fits_this_machine"]:
        fits = "is for another jaxlib or processor, so that XLA compiles anew here"
    out(f"machine code: of {code['compiled']} of {code['programs']} programs; it {fits}")
