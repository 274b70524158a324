"""Saved executables: one file, ``model.r2x``, that needs neither torch, onnx nor the source model.

A zip file without pickle (see ``vm.archive``):

* ``manifest.json``: versions, checksums, flags, the signature of each function, its weights;
* ``tensors.safetensors``: every array once, uncompressed and aligned; it is mapped into memory;
* ``module.relax``: the functions as Relax text, for call shapes that have no program yet;
* ``code.json``: bytecode, where there is any;
* ``programs/*``: StableHLO of functions of static shapes (portable artefacts where possible);
* ``compiled/*``: their machine code, for a machine like the one that saved them.

Machine code is run as it is, like a shared library's: load it from files that you trust, or pass
``compiled=False``; everything else in a file is only data.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.analysis.variables import all_global_vars, called_by_symbol
from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.errors import EmitError, FileFormatError, TVMError, UnsupportedError
from relax2xla.ir import (
    Call,
    Constant,
    FuncStructInfo,
    Function,
    GlobalVar,
    IRModule,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    no_collection,
)
from relax2xla.ir.base import EMPTY_ATTRS
from relax2xla.ir.rewrite import post_order_deep, rewrite_function
from relax2xla.runtime.device import Device, device
from relax2xla.runtime.weights import CODES, Writer, read_safetensors, write_safetensors
from relax2xla.script.entry import from_source
from relax2xla.script.tables import script_tables
from relax2xla.stablehlo.gate import check_module
from relax2xla.stablehlo.prelude import derived
from relax2xla.stablehlo.serialize import parse, serialize
from relax2xla.stablehlo.shardings import without_shardings
from relax2xla.stablehlo.targets import checked_targets
from relax2xla.transform.core import Pass, PassContext
from relax2xla.transform.params.lift_weights import Lifted
from relax2xla.transform.pipeline import STATIC
from relax2xla.vm.call.machine import BoundFunction, VirtualMachine
from relax2xla.vm.call.packing import checked_packs
from relax2xla.vm.call.specialise import packer
from relax2xla.vm.call.state import declared
from relax2xla.vm.executable import Entry, State, VMExecutable
from relax2xla.vm.pjrt import xla
from relax2xla.vm.save.archive import Archive, write_archive
from relax2xla.vm.save.manifest import (
    check_manifest,
    info_data,
    is_array_key,
    is_shape,
    key_data,
    read_info,
    read_key,
    read_places,
    read_tree,
    tree_data,
)
from relax2xla.vm.save.plain_json import decode, encode

log = logging.getLogger("relax2xla.vm")

FORMAT: Final = 1
MODULE: Final = "module.relax"
CODE: Final = "code.json"
# Passes over specialised functions that a file can name: ConvolvePlanes as convolve_planes.
PASSES: Final = {re.sub(r"(?<!^)(?=[A-Z])", "_", p.__name__).lower(): p for p in STATIC}
_NO_FORM: Final = "its manifest or its bytecode does not have the form that export_library writes"
WEIGHTS: Final = ("computed", "raw")

Array = npt.NDArray[Any]


# -- saving ----------------------------------------------------------------------------------------
def collect(executable: VMExecutable, compiled: bool = True, weights: str = "computed") -> Saved:
    """What a file of ``executable`` holds; see ``VMExecutable.export_library``. XLA compiles here.

    Raises TVMError for what cannot be saved.
    """
    if weights not in WEIGHTS:
        raise ValueError(f"weights is one of {', '.join(WEIGHTS)}; got {weights!r}")
    made = Saved(executable, compiled, weights == "raw")
    made.collect()
    return made


class Saved:
    """What is collected for one file; ``write`` writes it."""

    def __init__(self, executable: VMExecutable, compiled: bool, raw: bool) -> None:
        self.executable = executable
        self.compiled = compiled
        self.raw = raw
        self.machine = VirtualMachine(executable)
        self.tensors: dict[str, Array] = {}
        self.members: dict[str, bytes] = {}
        self._known: dict[int, tuple[Array, dict[str, Any]]] = {}
        self._computed: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.functions: dict[GlobalVar, Any] = {}

    def write(self, path: Path) -> None:
        """Write the file, which appears complete or not at all; OSError where that fails."""
        write_archive(path, self.manifest, self.members, self.write_tensors)

    @no_collection()
    def collect(self) -> None:
        """Compile, and collect all that is written."""
        ex = self.executable
        entries = [("entry", e) for e in ex.entries.values()]
        entries += [("region", e) for e in ex.regions.values()]
        rows = [self.entry(i, kind, e) for i, (kind, e) in enumerate(entries)]
        signatures = {name: f"r2x_signature_{i}" for i, name in enumerate(ex.signatures)}
        for name, stub in signatures.items():
            made = Function(ex.params(name), Tuple([]), TupleStructInfo([]))
            self.functions[GlobalVar(stub)] = made
        saved = derived(ex.mod, {**self.callees(), **self.functions})
        text, tables = script_tables(saved)
        self.members[MODULE] = text.encode()
        self.manifest: dict[str, Any] = {
            "format": FORMAT,
            "versions": _versions(),
            "device": None if ex.device is None else str(ex.device),
            "devices": {n: str(d) for n, d in ex.devices.items()},
            "platform": xla.jax_device(ex.device).platform,
            "static": _pass_names(ex.static),
            "opt_level": ex.context.opt_level,
            "required_pass": list(ex.context.required_pass),
            "disabled_pass": list(ex.context.disabled_pass),
            "notes": {n: list(lines) for n, lines in ex.notes.items()},
            "donated": {n: list(at) for n, at in ex.donated.items()},
            "platforms": dict(ex.platforms),
            "narrowed": {n: list(at) for n, at in ex.narrowed.items()},
            "states": {
                n: [
                    [k, *at, self.tensor(v)]
                    for (k, at), v in zip(s.places.items(), s.values, strict=True)
                ]
                for n, s in ex.states.items()
            },
            "functions": rows,
            "signatures": signatures,
            "tables": {k: [self.table_item(v) for v in items] for k, items in tables.items()},
            "fingerprint": xla.fingerprint(self.machine.device) if self.compiled else None,
            "custom_calls": sorted(check_module(saved, ex.allowed).outside),
        }
        if ex.code.functions:
            plain = encode(ex.code, self.tensor)
            self.members[CODE] = json.dumps(plain).encode()

    def write_tensors(self, file: Writer) -> None:
        write_safetensors(file, self.tensors)

    def callees(self) -> dict[GlobalVar, Any]:
        """The functions of the module that are not saved as entries, with what these call."""
        mod = self.executable.mod
        needed: dict[GlobalVar, Any] = {}
        todo = [f for f in self.functions.values() if isinstance(f, Function)]
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

    def entry(self, index: int, kind: str, entry: Entry) -> dict[str, Any]:
        """The manifest's row for one function; its members and tensors are collected."""
        bound = self.machine[entry.name]
        assert isinstance(bound, BoundFunction)
        lifted = entry.lifted
        main = GlobalVar(f"r2x_main_{index}")
        self.functions[main] = lifted.main.without_attr("global_symbol")
        transform = None
        if lifted.transform is not None:
            transform = GlobalVar(f"r2x_transform_{index}")
            self.functions[transform] = lifted.transform
        params = entry.params
        infos = [p.struct_info for p in params]
        return {
            "name": entry.name,
            "kind": kind,
            "main": main.name_hint,
            "transform": None if transform is None else transform.name_hint,
            "params": [[p.name_hint, info_data(p.struct_info)] for p in params],
            "result": info_data(entry.func.ret_struct_info),
            "weights": [w if isinstance(w, int) else self.tensor(w, n) for w, n in _named(lifted)],
            "names": list(lifted.names),
            "raw_names": list(lifted.raw_names),
            "aliases": dict(lifted.aliases),
            "raw_infos": [
                info_data(p.struct_info)
                for p in (lifted.transform.params if lifted.transform else ())
            ],
            "raw": [
                self.tensor(a, n) if a is not None and self.wants_raw(lifted) else None
                for a, n in zip(lifted.raw, _padded(lifted.raw_names, lifted.raw), strict=True)
            ],
            "packs": entry.packs,
            "ready": {} if self.wants_raw(lifted) else self.ready(bound, lifted),
            "programs": self.programs(index, bound, infos) if entry.is_static else [],
        }

    def wants_raw(self, lifted: Lifted) -> bool:
        """Whether the raw arrays are saved rather than what is computed from them."""
        return self.raw and all(a is not None for a in lifted.raw)

    def ready(self, bound: BoundFunction, lifted: Lifted) -> dict[str, Any]:
        """What is computed at load, computed now."""
        made: dict[str, Any] = {}
        for w, array in zip(lifted.weights, bound.weights(), strict=True):
            if isinstance(w, int):
                # Arrays on the device are shared between functions; their views are not.
                if id(array) not in self._computed:
                    self._computed[id(array)] = (array, self.tensor(np.asarray(array)))
                made[str(w)] = self._computed[id(array)][1]
        return made

    def programs(
        self, index: int, bound: BoundFunction, infos: Sequence[StructInfo]
    ) -> list[dict[str, Any]]:
        """The programs of a static function: itself, and with the state that it declares."""
        made = [self.program(f"{index}", bound, infos)]
        keeping = declared(self.machine, bound.name)
        return made if keeping is None else [*made, self.program(f"{index}s", keeping, infos)]

    def program(
        self, index: str, bound: BoundFunction, infos: Sequence[StructInfo]
    ) -> dict[str, Any]:
        """A static program, and its machine code if asked for."""
        module, program = bound.lowered(infos)
        row: dict[str, Any] = {
            "file": f"programs/{index}.mlirbc",
            "variant": bound.variant,
            "key": [key_data(k) for k in bound.key_of(infos)],
            "outputs": [[list(o.dims or ()), o.dtype] for o in program.outputs],
            "tree": tree_data(program.tree),
        }
        # Machine code is for one device, and the file names the machine's.
        if self.compiled and bound.device == self.machine.device:
            code = xla.machine_code(module, bound.device, self.executable.allowed)
            if code is None:
                log.info("%s: XLA cannot write its machine code; it is compiled anew", bound.name)
            else:
                row["compiled"] = f"compiled/{index}.xla"
                self.members[row["compiled"]] = code
        # Writing a portable artefact takes the module apart, so it comes last.
        try:
            data = serialize(without_shardings(module), "portable")
        except EmitError:  # operations beyond StableHLO's own
            data = serialize(bound.lowered(infos)[0], "bytecode")
        assert isinstance(data, bytes)
        self.members[row["file"]] = data
        return row

    def tensor(self, array: Array, name: str = "") -> dict[str, Any]:
        """A reference to an array, which is saved once."""
        found = self._known.get(id(array))
        if found is not None:
            return found[1]
        row: dict[str, Any] = {"dtype": dtype_name(array.dtype), "shape": list(array.shape)}
        held = array
        if array.size > 1 and not any(array.strides):
            row["splat"] = True
            held = array.reshape(-1)[:1].copy()
        plain = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
        key = name if name and name not in self.tensors else f"r2x.{len(self.tensors)}"
        self.tensors[key] = held if _has_code(held) else plain
        row["tensor"] = key
        self._known[id(array)] = (array, row)
        return row

    def table_item(self, item: Any) -> dict[str, Any]:
        """A constant or array that the Relax text refers to."""
        if not isinstance(item, Constant):
            return self.tensor(item)
        info = item.struct_info_
        assert isinstance(info, TensorStructInfo)
        return {**self.tensor(item.data), "constant": info.dtype}


def _named(lifted: Lifted) -> Iterable[tuple[Array | int, str]]:
    return zip(lifted.weights, _padded(lifted.names, lifted.weights), strict=True)


def _padded(names: Sequence[str], to: Sequence[Any]) -> Sequence[str]:
    return names or ("",) * len(to)


def _has_code(array: Array) -> bool:
    """Whether safetensors has a name for the dtype; others are saved as bytes."""
    return array.dtype.newbyteorder("=") in CODES


def _versions() -> dict[str, str]:
    from relax2xla import __version__

    return {"relax2xla": __version__, **xla.versions()}


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


# -- loading ---------------------------------------------------------------------------------------
def load_module(
    path: str | Path, compiled: bool = True, *, allow_custom_calls: Sequence[str] = ()
) -> VMExecutable:
    """The executable that ``export_library`` saved.

    ``compiled``: use the machine code in the file, if jaxlib, platform and processor are those that
    it was made for; otherwise XLA compiles at the first call, and a warning is logged once. Load
    machine code from files that you trust only; the rest of a file is data. The file may be
    replaced while its executable is in use, but not changed in place. ``allow_custom_calls``: as of
    ``build``; what it allowed for a program is not allowed by the program's file.

    Raises FileFormatError for a file that is truncated, altered, hostile or something else, and
    UnsupportedError for one that says it makes custom calls which are not allowed here.
    """
    allowed = checked_targets(allow_custom_calls)
    archive = Archive(Path(path))
    try:
        made = _Loader(archive, compiled, allowed).load()
        outside = [str(t) for t in archive.manifest.get("custom_calls", ()) if t not in allowed]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as e:
        if isinstance(e, FileFormatError):
            raise
        raise archive.problem(str(e) if isinstance(e, ValueError) else _NO_FORM) from e
    except TVMError as e:
        raise archive.problem(str(e)) from None
    if outside:
        raise UnsupportedError(
            f"{path} makes custom calls that are not known to do nothing but compute: "
            f"{', '.join(outside)}. If you trust them, and this process has registered them, load "
            f"it from Python with allow_custom_calls={outside!r}"
        )
    return made


class SavedExecutable(VMExecutable):
    """An executable from a file; Relax text is parsed when a call needs it."""

    loader: _Loader

    @property
    def mod(self) -> IRModule:
        """The functions that those of the executable call."""
        return self.loader.module()

    @mod.setter
    def mod(self, value: IRModule) -> None:
        pass  # the base class's constructor; it comes from the file


class SavedFunction(Function):
    """A function whose body is read from the file when it is needed."""

    __slots__ = ("_body", "_make")

    def __init__(
        self, params: Sequence[Var], result: StructInfo, make: Callable[[], Function]
    ) -> None:
        self.params = tuple(params)
        self.ret_struct_info = result
        self.is_pure = True
        self.attrs = EMPTY_ATTRS
        self.span = None
        self.struct_info_ = FuncStructInfo([p.struct_info for p in params], result, True)
        self._make = make
        self._body: SeqExpr | None = None

    @property
    def body(self) -> SeqExpr:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The body over this function's own parameters."""
        if self._body is None:
            made = self._make()
            if len(made.params) != len(self.params):
                raise FileFormatError(
                    f"a saved function takes {len(made.params)} arguments, weights among them, and "
                    f"the manifest says {len(self.params)}"
                )
            for own, said in zip(made.params, self.params, strict=True):
                a, b = info_data(own.struct_info), info_data(said.struct_info)
                if a != b and None not in (a, b):
                    raise FileFormatError(
                        f"a saved function takes {own.struct_info} as {own.name_hint}, and the "
                        f"manifest says {said.struct_info}"
                    )
            values = dict(zip(made.params, self.params, strict=True))
            self._body = rewrite_function(made.replace(params=self.params), values=values).body
        return self._body


@dataclass(frozen=True, slots=True)
class _SavedProgram:
    """A program that the file holds; ``row`` is its place in the manifest."""

    outputs: tuple[TensorStructInfo, ...]
    pack: Callable[[Sequence[Any]], Any]
    row: Mapping[str, Any]


class _Loader:
    """One file that is being loaded, and read from later."""

    def __init__(self, archive: Archive, compiled: bool, allowed: frozenset[str]) -> None:
        self.archive = archive
        self.allowed = allowed
        self.compiled = compiled
        self.manifest = archive.manifest
        if self.manifest["format"] != FORMAT:
            raise archive.problem(
                f"its format is {self.manifest['format']!r}, and this version reads {FORMAT}; "
                f"it was saved by relax2xla {self.manifest['versions']['relax2xla']}"
            )
        check_manifest(self.manifest)
        self.tensors = read_safetensors(archive.tensors(), f"{archive.path}")
        self._arrays: dict[str, Array] = {}
        self._module: IRModule | None = None
        self._functions: dict[str, Function] = {}
        self._warned = False
        self.programs: dict[tuple[str, Any], _SavedProgram] = {}

    def load(self) -> VMExecutable:
        manifest = self.manifest
        found: dict[str, dict[str, Entry]] = {"entry": {}, "region": {}}
        for row in manifest["functions"]:
            found[row["kind"]][row["name"]] = self.entry(row)
        code = None
        if CODE in self.archive:
            code = decode(json.loads(self.archive.read(CODE)), self.array)
        named = manifest["device"]
        made = SavedExecutable(
            IRModule(),
            found["entry"],
            None if named is None else device(named),
            [PASSES[n]() for names in manifest["static"].values() for n in names],
            code=code,
            regions=found["region"],
            notes=manifest["notes"],
            context=PassContext(
                manifest.get("opt_level", 2),
                manifest.get("required_pass"),
                manifest.get("disabled_pass"),
            ),
        )
        made.allowed = self.allowed
        made.devices = {n: device(d) for n, d in manifest.get("devices", {}).items()}
        made.signatures = {
            n: functools.partial(self.params, stub)
            for n, stub in manifest.get("signatures", {}).items()
        }
        made.donated = {n: read_places(at) for n, at in manifest["donated"].items()}
        made.platforms = {str(n): str(p) for n, p in manifest.get("platforms", {}).items()}
        made.narrowed = {n: read_places(at) for n, at in manifest.get("narrowed", {}).items()}
        made.states = {
            name: State(
                {k: (param, result) for k, param, result, _ in rows},
                tuple(self.array(value) for *_, value in rows),
            )
            for name, rows in manifest["states"].items()
        }
        for name, at in made.donated.items():
            if not all(i < len(made.entries[name].params) for i in at):
                raise ValueError(f"{name} donates a parameter that it does not have")
        made.loader = self
        made.find_program = self.program
        return made

    def entry(self, row: Mapping[str, Any]) -> Entry:
        """One function, without its body."""
        infos = [info for _, info in row["params"]]
        weights = [w if isinstance(w, int) else self.array(w) for w in row["weights"]]
        raw = [None if a is None else self.array(a) for a in row["raw"]]
        ready = {int(w): self.array(a) for w, a in row["ready"].items()}
        if None in infos or row["result"] is None:
            main = self.function(row["main"])
        else:
            params = [Var(hint, read_info(info)) for hint, info in row["params"]]
            for i, w in enumerate(weights):
                array = ready[w] if isinstance(w, int) and w in ready else w
                known = isinstance(array, np.ndarray)
                info = _array_info(array) if known else self.field_info(row, w)
                params.append(Var(f"w{i}", info))
            main = SavedFunction(
                params, read_info(row["result"]), lambda: self.function(row["main"])
            )
        for program in row["programs"]:
            members = (program["file"], program.get("compiled", program["file"]))
            if not all(isinstance(m, str) and m in self.archive for m in members):
                raise ValueError(f"a program of {row['name']} is not in the file")
            outputs = [read_info(["tensor", *o]) for o in program["outputs"]]
            tensors = tuple(o for o in outputs if isinstance(o, TensorStructInfo))
            tree = read_tree(program["tree"], len(tensors))
            key = tuple(read_key(k) for k in program["key"])
            saved = _SavedProgram(tensors, packer(tree), program)
            self.programs[program["variant"], key] = saved
        transform = None
        if row["transform"] is not None:
            params = [Var(f"w{i}", read_info(info)) for i, info in enumerate(row["raw_infos"])]
            name = row["transform"]
            transform = SavedFunction(params, TupleStructInfo([]), lambda: self.function(name))
        names, raw_names = tuple(row["names"]), tuple(row["raw_names"])
        for what, found, of in (("names", names, weights), ("raw_names", raw_names, raw)):
            if len(found) not in (0, len(of)) or not all(isinstance(n, str) for n in found):
                raise ValueError(f"{what} of {row['name']} are not those of its {len(of)} arrays")
        lifted = Lifted(
            main,
            len(infos),
            tuple(weights),
            transform,
            tuple(raw),
            names,
            raw_names,
            ready,
            {str(n): str(of) for n, of in row.get("aliases", {}).items()},
        )
        # Files of versions without packs have programs without them.
        own = [p.struct_info for p in main.params[len(infos) :]]
        return Entry(row["name"], lifted, checked_packs(row.get("packs", ()), own))

    def field_info(self, row: Mapping[str, Any], field: int | Array) -> StructInfo:
        """Struct info of what is computed at load."""
        assert isinstance(field, int)
        result = self.function(row["transform"]).ret_struct_info
        assert isinstance(result, TupleStructInfo)
        return result.fields[field]

    def array(self, row: Any) -> Array:
        """An array of the file: the same object for the same row."""
        key = json.dumps(row, sort_keys=True)
        if key not in self._arrays:
            self._arrays[key] = self.read_array(row)
        return self._arrays[key]

    def read_array(self, row: Mapping[str, Any]) -> Array:
        """The array of one reference in the manifest."""
        dtype, shape = numpy_dtype(row["dtype"]), row["shape"]
        if not is_shape(shape):
            raise ValueError(f"no shape: {shape!r}")
        held = self.tensors[row["tensor"]]
        plain = held.reshape(-1).view(np.uint8).view(dtype)
        if row.get("splat"):
            return np.broadcast_to(plain.reshape(()), shape)
        return plain.reshape(shape)

    def module(self) -> IRModule:
        """The functions that those of the executable call, parsed at the first use."""
        if self._module is None:
            try:
                made = self.read_module()
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
                if isinstance(e, TVMError):
                    raise
                raise self.archive.problem(f"{MODULE}: {e}") from None
            rows = self.manifest["functions"]
            own = {r["main"] for r in rows} | {r["transform"] for r in rows}
            own.update(self.manifest.get("signatures", {}).values())
            functions = made.relax_functions()
            self._functions = {g.name_hint: f for g, f in functions.items()}
            rest = {g: f for g, f in made.items() if g.name_hint not in own}
            self._module = made.replace(rest)
        return self._module

    def read_module(self) -> IRModule:
        """What the text says."""
        tables = {
            kind: [self.table_item(item) for item in items]
            for kind, items in self.manifest["tables"].items()
        }
        text = self.archive.read(MODULE).decode()
        made = from_source(text, {"metadata": tables}, filename=f"{self.archive.path}")
        if not isinstance(made, IRModule):
            raise self.archive.problem(f"{MODULE} holds no module")
        return made

    def table_item(self, row: Mapping[str, Any]) -> Any:
        """A constant or array that the text refers to."""
        if "constant" not in row:
            return self.array(row)
        array = self.array({k: v for k, v in row.items() if k != "constant"})
        return Constant(array, TensorStructInfo.make(array.shape, row["constant"]))

    def params(self, name: str) -> Sequence[Var]:
        """The parameters of one function of the text."""
        return self.function(name).params

    def function(self, name: str) -> Function:
        """One function of the text."""
        self.module()
        if name not in self._functions:
            raise self.archive.problem(f"{MODULE} has no function {name!r}")
        return self._functions[name]

    def program(
        self, variant: str, key: Any, target: Device | None
    ) -> tuple[xla.Loaded, _SavedProgram] | None:
        """The program of a function for a call's key, if the file has it for this platform."""
        saved = self.programs.get((variant, key))
        if saved is None or xla.jax_device(target).platform != self.manifest["platform"]:
            return None
        avals = [xla.aval(o) for o in saved.outputs]
        if self.compiled and "compiled" in saved.row and self.fits(target):
            try:
                loaded = xla.Loaded(self.archive.read(saved.row["compiled"]), avals, target)
                return self.checked(loaded, saved, key), saved
            except (FileFormatError, UnsupportedError):
                raise
            except Exception as e:  # jaxlib names no class for what it cannot read
                self.warn(f"jaxlib cannot read it ({e})")
        # The file is only data, and damaged bytecode can end the process that reads it.
        module = parse(self.archive.read(saved.row["file"]), isolate=True)
        loaded = xla.Loaded(module, avals, target, allowed=self.allowed)
        return self.checked(loaded, saved, key), saved

    def checked(self, loaded: xla.Loaded, saved: _SavedProgram, key: Any) -> xla.Loaded:
        """``loaded``, whose arguments and results are what the manifest says; FileFormatError."""
        takes, gives = loaded.types()
        arguments = [k for k in key if isinstance(k, tuple) and is_array_key(k)]
        said = [(o.dims, numpy_dtype(o.dtype)) for o in saved.outputs]
        for what, own, other in (
            ("takes", takes[len(takes) - len(arguments) :], arguments),
            ("gives", gives, said),
        ):
            if own != other:
                raise self.archive.problem(
                    f"the program {saved.row['file']} {what} {_show(own)}, and the manifest says "
                    f"{_show(other)}"
                )
        return loaded

    def fits(self, target: Device | None) -> bool:
        """Whether the machine code in the file is for this machine."""
        here = xla.fingerprint(target)
        there = self.manifest["fingerprint"]
        if here == there:
            return True
        differs = [
            f"{b!r} here, {a!r} there"
            for a, b in zip(str(there).splitlines(), here.splitlines(), strict=False)
            if a != b
        ]
        self.warn("; ".join(d if len(d) < 200 else "another processor" for d in differs))
        return False

    def warn(self, why: str) -> None:
        """Say once that XLA compiles again."""
        if not self._warned:
            self._warned = True
            log.warning(
                "%s: its machine code is not for this machine, so XLA compiles: %s",
                self.archive.path,
                why,
            )


def _show(arrays: Sequence[tuple[Any, Any]]) -> str:
    """Shapes and dtypes for people."""
    return ", ".join(f"{d}{list(s)}" for s, d in arrays) or "nothing"


def _array_info(array: Any) -> TensorStructInfo:
    return TensorStructInfo.make(array.shape, dtype_name(array.dtype))
