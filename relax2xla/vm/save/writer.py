"""What a saved executable holds, collected and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.analysis.variables import all_global_vars, called_by_symbol
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Call,
    Function,
    GlobalVar,
    StructInfo,
    Tuple,
    TupleStructInfo,
    no_collection,
)
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.source_names import source_name
from relax2xla.runtime.device import Mesh
from relax2xla.runtime.weights import Writer, write_safetensors
from relax2xla.script.tables import script_tables, with_names_of_text
from relax2xla.stablehlo.prelude import derived
from relax2xla.stablehlo.untrusted.gate import check_module
from relax2xla.transform.core import Pass
from relax2xla.transform.params.lift_weights import Lifted
from relax2xla.transform.pipeline import STATIC
from relax2xla.version import __version__
from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.call.executable import Entry, Executable
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.call.object_function import takes_objects
from relax2xla.vm.pjrt import compiler, xla
from relax2xla.vm.save.archive import write_archive
from relax2xla.vm.save.arrays import ArrayWriter
from relax2xla.vm.save.code_json import encode
from relax2xla.vm.save.manifest import (
    CODE,
    FORMAT,
    MODULE,
    PASSES,
    device_name,
    info_data,
    mesh_data,
)
from relax2xla.vm.save.native import native_rows
from relax2xla.vm.save.programs import program_row

WEIGHTS: Final = ("computed", "raw")


def collect(
    executable: Executable,
    compiled: bool = True,
    weights: str = "computed",
    native: bool = True,
) -> Saved:
    """What a file of ``executable`` holds; see ``VMExecutable.export_library``. XLA compiles here.

    Raises TVMError for what cannot be saved.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights is one of {', '.join(WEIGHTS)}; got {weights!r}")
    return Saved(executable, compiled, weights == "raw", native)


class Saved:
    """What is collected for one file; ``write`` writes it."""

    @no_collection()
    def __init__(self, executable: Executable, compiled: bool, raw: bool, native: bool) -> None:
        # Machine code is for the devices of this process; over a mesh XLA compiles at load.
        compiled = compiled and not isinstance(executable.device, Mesh)
        self._executable, self._compiled, self._raw = executable, compiled, raw
        self._native = native_rows(executable.external if native else ())
        self._machine = VirtualMachine(executable)
        self._arrays = ArrayWriter()
        self._computed: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._functions: dict[GlobalVar, Any] = {}
        self.members: dict[str, bytes] = {}
        self.manifest = self._collect()

    @property
    def tensors(self) -> dict[str, Any]:
        """The arrays, by name."""
        return self._arrays.tensors

    def write(self, path: Path) -> None:
        """Write the file, which appears complete or not at all; OSError where that fails."""
        write_archive(path, self.manifest, self.members, self.write_tensors)

    def write_tensors(self, file: Writer) -> None:
        """Write the arrays alone."""
        write_safetensors(file, self._arrays.tensors)

    def _collect(self) -> dict[str, Any]:
        """The manifest; members and arrays are collected on the way."""
        ex = self._executable
        entries = [("entry", e) for e in ex.entries.values()]
        entries += [("region", e) for e in ex.regions.values()]
        rows = [self._entry(i, kind, e) for i, (kind, e) in enumerate(entries)]
        signatures = {name: f"r2x_signature_{i}" for i, name in enumerate(ex.signatures)}
        for name, stub in signatures.items():
            made = Function(ex.params(name), Tuple([]), TupleStructInfo([]))
            self._functions[GlobalVar(stub)] = made
            if takes_objects(ex, name) and isinstance(source := ex.mod[name], Function):
                # The machine makes programs of it when it sees the objects.
                self._functions[ex.mod.get_global_var(name)] = source
        saved = derived(ex.mod, {**self._callees(), **self._functions})
        text, tables = script_tables(with_names_of_text(saved))
        self.members[MODULE] = text.encode()
        self.members.update(self._native[1])
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "versions": _versions(),
            "device": device_name(ex.device),
            "mesh": mesh_data(ex.device),
            "devices": {n: str(d) for n, d in ex.devices.items()},
            "platform": xla.jax_device(ex.device).platform,
            "static": _pass_names(ex.static),
            "opt_level": ex.context.opt_level,
            "required_pass": list(ex.context.required_pass),
            "disabled_pass": list(ex.context.disabled_pass),
            "notes": {n: list(lines) for n, lines in ex.notes.items()},
            "results": {n: list(names) for n, names in ex.results.items() if n in set(ex)},
            "donated": {n: list(at) for n, at in ex.donated.items()},
            "platforms": dict(ex.platforms),
            "narrowed": {n: list(at) for n, at in ex.narrowed.items()},
            "in_place": {n: list(map(list, places)) for n, places in ex.in_place.items()},
            "states": {
                n: [
                    [k, *at, self._arrays.row(v)]
                    for (k, at), v in zip(s.places.items(), s.values, strict=True)
                ]
                for n, s in ex.states.items()
            },
            "functions": rows,
            "signatures": signatures,
            "tables": {k: list(map(self._arrays.table_row, v)) for k, v in tables.items()},
            "prim_funcs": list(ex.prim_funcs),
            "fingerprint": compiler.fingerprint(self._machine.device) if self._compiled else None,
            "native": self._native[0],
            "custom_calls": sorted(check_module(saved, ex.allowed, xla.count(ex.device)).outside),
        }
        if ex.code.functions:
            plain = encode(ex.code, self._arrays.row)
            self.members[CODE] = json.dumps(plain).encode()
        return manifest

    def _callees(self) -> dict[GlobalVar, Any]:
        """The functions of the module that are not saved as entries, with what these call."""
        mod = self._executable.mod
        needed: dict[GlobalVar, Any] = {}
        todo = [f for f in self._functions.values() if isinstance(f, Function)]
        while todo:
            func = todo.pop()
            calls = (n for n in post_order_deep(func) if isinstance(n, Call))
            named = [g for c in calls for g in called_by_symbol(mod, c)]
            for gvar in (*all_global_vars(func), *named):
                if gvar not in needed and gvar in mod.functions:
                    needed[gvar] = mod[gvar]
                    if isinstance(mod[gvar], Function):
                        todo.append(mod[gvar])
        return needed

    def _entry(self, index: int, kind: str, entry: Entry) -> dict[str, Any]:
        """The manifest's row for one function; its members and tensors are collected."""
        bound = self._machine[entry.name]
        assert isinstance(bound, BoundFunction)
        lifted = entry.lifted
        main = GlobalVar(f"r2x_main_{index}")
        self._functions[main] = lifted.main.without_attr("global_symbol")
        transform = None
        if lifted.transform is not None:
            transform = GlobalVar(f"r2x_transform_{index}")
            self._functions[transform] = lifted.transform
        # The raw arrays are saved, rather than what is computed from them.
        wants_raw = self._raw and all(a is not None for a in lifted.raw)
        params = entry.params
        infos = [p.struct_info for p in params]
        return {
            "name": entry.name,
            "kind": kind,
            "main": main.name_hint,
            "transform": None if transform is None else transform.name_hint,
            "params": [[p.name_hint, info_data(p.struct_info)] for p in params],
            "sources": [source_name(p) for p in params],
            "result": info_data(entry.func.ret_struct_info),
            "weights": [
                w if isinstance(w, int) else self._arrays.row(w, n)
                for w, n in _named(lifted.weights, lifted.names)
            ],
            "names": list(lifted.names),
            "raw_names": list(lifted.raw_names),
            "aliases": dict(lifted.aliases),
            "raw_infos": [
                info_data(p.struct_info)
                for p in (lifted.transform.params if lifted.transform else ())
            ],
            "raw": [
                self._arrays.row(a, n) if a is not None and wants_raw else None
                for a, n in _named(lifted.raw, lifted.raw_names)
            ],
            "packs": entry.packs,
            "ready": {} if wants_raw else self._ready(bound, lifted),
            "programs": self._programs(index, bound, infos) if entry.is_static else [],
        }

    def _ready(self, bound: BoundFunction, lifted: Lifted) -> dict[str, Any]:
        """What is computed at load, computed now."""
        made: dict[str, Any] = {}
        for w, array in zip(lifted.weights, bound.weights(), strict=True):
            if isinstance(w, int):
                # Arrays on the device are shared between functions; their views are not.
                if id(array) not in self._computed:
                    self._computed[id(array)] = (array, self._arrays.row(np.asarray(array)))
                made[str(w)] = self._computed[id(array)][1]
        return made

    def _programs(
        self, index: int, bound: BoundFunction, infos: Sequence[StructInfo]
    ) -> list[dict[str, Any]]:
        """The programs of a static function: itself, and with the state that it declares."""
        keeping = self._machine.declared_state(bound.name)
        several = (
            {f"{index}": bound} if keeping is None else {f"{index}": bound, f"{index}s": keeping}
        )
        # Machine code is for one device, and the file names the machine's.
        code = self._compiled and bound.device == self._machine.device
        rows: list[dict[str, Any]] = []
        for number, function in several.items():
            row, members = program_row(number, function.specialised, infos, code)
            rows.append(row)
            self.members.update(members)
        return rows


def _named(values: Sequence[Any], names: Sequence[str]) -> zip[tuple[Any, str]]:
    """Arrays with their names, "" where there are none."""
    return zip(values, names or ("",) * len(values), strict=True)


def _versions() -> dict[str, str]:
    return {"relax2xla": __version__, **compiler.versions()}


def _pass_names(passes: Sequence[Pass]) -> dict[str, list[str]]:
    """The passes by platform, under their names in files."""
    found: dict[str, list[str]] = {}
    for p in passes:
        name = next((n for n, kind in PASSES.items() if kind is type(p)), None)
        if name is None:
            raise TVMError(
                f"the pipeline's pass {p.info.name} over specialised functions cannot be saved; a "
                f"file can name {', '.join(c.__name__ for c in STATIC)}. Apply it to the module "
                "before build"
            )
        found.setdefault(p.info.platform, []).append(name)
    return found
