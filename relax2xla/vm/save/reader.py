"""Saved executables read: data at once, functions and programs when a call needs them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from relax2xla.dtypes import dtype_name
from relax2xla.errors import FileFormatError, TVMError, UnsupportedError
from relax2xla.ir import (
    FuncStructInfo,
    Function,
    IRModule,
    SeqExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.base import EMPTY_ATTRS
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.runtime.device import device
from relax2xla.runtime.weights import read_safetensors
from relax2xla.script.entry import from_source
from relax2xla.stablehlo.untrusted.targets import checked_targets
from relax2xla.transform.core import PassContext
from relax2xla.transform.params.lift_weights import Lifted
from relax2xla.vm.call.executable import Entry, State
from relax2xla.vm.call.packing import checked_packs
from relax2xla.vm.pjrt.external_calls import TARGET
from relax2xla.vm.save.archive import Archive
from relax2xla.vm.save.arrays import Array, ArrayReader
from relax2xla.vm.save.code_json import decode
from relax2xla.vm.save.executable import VMExecutable
from relax2xla.vm.save.manifest import (
    CODE,
    FORMAT,
    MODULE,
    PASSES,
    check_manifest,
    info_data,
    read_device,
    read_info,
    read_places,
)
from relax2xla.vm.save.native import load_native
from relax2xla.vm.save.programs import ProgramReader

_NO_FORM: Final = "its manifest or its bytecode does not have the form that export_library writes"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SavedExecutable(VMExecutable):
    """An executable from a file: what the file says of it, and its arrays by name."""

    manifest: Mapping[str, Any]
    tensors: Mapping[str, Array]


def load_module(
    path: str | Path,
    compiled: bool = True,
    *,
    native: bool = False,
    allow_custom_calls: Sequence[str] = (),
) -> SavedExecutable:
    """The executable that ``export_library`` saved.

    ``compiled``: use the machine code in the file, if jaxlib, platform and processor are those that
    it was made for; otherwise XLA compiles at the first call, and a warning is logged once. Load
    machine code from files that you trust only; the rest of a file is data. The file may be
    replaced while its executable is in use, but not changed in place. ``native``: load the
    libraries of external modules (C++ of its model) that the file has, which are code of whoever
    wrote it, and let its programs call them. ``allow_custom_calls``: as of
    ``build``; what it allowed for a program is not allowed by the program's file.

    Raises FileFormatError for a file that is truncated, altered, hostile or something else, and
    UnsupportedError for one that says it makes custom calls which are not allowed here, and for
    native code of another machine.
    """
    archive = Archive(Path(path))
    libraries = archive.manifest.get("native", ())
    allowed = checked_targets(allow_custom_calls)
    if native and libraries:
        allowed = frozenset([*allowed, TARGET])
    made = _read(archive, compiled, allowed)
    outside = [t for t in made.manifest.get("custom_calls", ()) if t not in allowed]
    if TARGET in outside and libraries:
        named = ", ".join(s for row in libraries for s in row["symbols"])
        raise UnsupportedError(
            f"{path} calls native code that is in it: {named}. If you trust the file, load it with "
            "load_module(path, native=True), or on the command line with --trust"
        )
    if outside:
        raise UnsupportedError(
            f"{path} makes custom calls that are not known to do nothing but compute: "
            f"{', '.join(outside)}. If you trust them, and this process has registered them, load "
            f"it from Python with allow_custom_calls={outside!r}"
        )
    return replace(made, external=load_native(archive, libraries)) if native else made


def shown_module(path: str | Path) -> SavedExecutable:
    """The executable of a file, to look at: what it may call is refused when it runs, not before.

    Raises FileFormatError as ``load_module``.
    """
    return _read(Archive(Path(path)), compiled=False, allowed=frozenset())


def _read(archive: Archive, compiled: bool, allowed: frozenset[str]) -> SavedExecutable:
    try:
        return _load(archive, compiled, allowed)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as e:
        if isinstance(e, FileFormatError):
            raise
        raise archive.problem(str(e) if isinstance(e, ValueError) else _NO_FORM) from e
    except TVMError as e:
        raise archive.problem(str(e)) from None


def _load(archive: Archive, compiled: bool, allowed: frozenset[str]) -> SavedExecutable:
    manifest = archive.manifest
    if manifest["format"] != FORMAT:
        raise archive.problem(
            f"its format is {manifest['format']!r}, and this version reads {FORMAT}; "
            f"it was saved by relax2xla {manifest['versions']['relax2xla']}"
        )
    check_manifest(manifest)
    if not all(row["file"] in archive for row in manifest.get("native", ())):
        raise ValueError("native code that the manifest names is not there")
    arrays = ArrayReader(read_safetensors(archive.tensors(), f"{archive.path}"))
    functions = _Functions(archive, arrays)
    programs = ProgramReader(archive, compiled, allowed)
    found: dict[str, dict[str, Entry]] = {"entry": {}, "region": {}}
    for row in manifest["functions"]:
        found[row["kind"]][row["name"]] = _entry(row, arrays, functions)
        for program in row["programs"]:
            programs.add(row["name"], program)
    donated = {n: read_places(at) for n, at in manifest["donated"].items()}
    for name, at in donated.items():
        if not all(i < len(found["entry"][name].params) for i in at):
            raise ValueError(f"{name} donates a parameter that it does not have")
    in_place = {
        n: tuple(read_places(row, 2) for row in rows)
        for n, rows in manifest.get("in_place", {}).items()
    }
    for name, rows in in_place.items():
        entry = found["entry"].get(name)
        if entry is not None and not all(i < len(entry.params) for i, _ in rows):
            raise ValueError(f"{name} writes to a parameter that it does not have")
    code = {}
    if CODE in archive:
        code["code"] = decode(json.loads(archive.read(CODE)), arrays.array)
    prim_funcs = tuple(manifest.get("prim_funcs", ()))
    for name in prim_funcs:
        if name not in found["entry"] and ("code" not in code or code["code"].find(name) is None):
            raise ValueError(f"there is no function for the PrimFunc {name}")
    return SavedExecutable(
        functions.module,
        found["entry"],
        read_device(manifest["device"], manifest.get("mesh")),
        tuple(PASSES[n]() for names in manifest["static"].values() for n in names),
        **code,
        regions=found["region"],
        notes=manifest["notes"],
        results={n: tuple(names) for n, names in manifest.get("results", {}).items()},
        donated=donated,
        narrowed={n: read_places(at) for n, at in manifest.get("narrowed", {}).items()},
        in_place=in_place,
        states={
            name: State(
                {k: (param, result) for k, param, result, _ in rows},
                tuple(arrays.array(value) for *_, value in rows),
            )
            for name, rows in manifest["states"].items()
        },
        platforms={str(n): str(p) for n, p in manifest.get("platforms", {}).items()},
        signatures={
            n: functools.partial(functions.params, stub)
            for n, stub in manifest.get("signatures", {}).items()
        },
        devices={n: device(d) for n, d in manifest.get("devices", {}).items()},
        allowed=allowed,
        prim_funcs=prim_funcs,
        find_program=programs.find,
        context=PassContext(
            manifest.get("opt_level", 2),
            manifest.get("required_pass"),
            manifest.get("disabled_pass"),
        ),
        manifest=manifest,
        tensors=arrays.tensors,
    )


def _entry(row: Mapping[str, Any], arrays: ArrayReader, functions: _Functions) -> Entry:
    """One function, without its body."""
    infos = [info for _, info in row["params"]]
    weights = [w if isinstance(w, int) else arrays.array(w) for w in row["weights"]]
    raw = [None if a is None else arrays.array(a) for a in row["raw"]]
    ready = {int(w): arrays.array(a) for w, a in row["ready"].items()}
    if None in infos or row["result"] is None:
        main = functions.find(row["main"])
    else:
        sources = row.get("sources", [""] * len(infos))
        params = [
            Var(hint, read_info(info), Span(source) if source else None)
            for (hint, info), source in zip(row["params"], sources, strict=True)
        ]
        for i, w in enumerate(weights):
            params.append(Var(f"w{i}", _weight_info(row, w, ready, functions)))
        main = LazyFunction(params, read_info(row["result"]), lambda: functions.find(row["main"]))
    transform = None
    if row["transform"] is not None:
        params = [Var(f"w{i}", read_info(info)) for i, info in enumerate(row["raw_infos"])]
        name = row["transform"]
        transform = LazyFunction(params, TupleStructInfo([]), lambda: functions.find(name))
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


def _weight_info(
    row: Mapping[str, Any], weight: Array | int, ready: Mapping[int, Array], functions: _Functions
) -> StructInfo:
    """Struct info of a weight: an array, or the place of one that is computed at load."""
    array = ready.get(weight) if isinstance(weight, int) else weight
    if array is not None:
        return TensorStructInfo.make(array.shape, dtype_name(array.dtype))
    assert isinstance(weight, int)
    result = functions.find(row["transform"]).ret_struct_info
    assert isinstance(result, TupleStructInfo)
    return result.fields[weight]


class _Functions:
    """The functions of a file's Relax text, parsed at the first use."""

    def __init__(self, archive: Archive, arrays: ArrayReader) -> None:
        self._archive, self._arrays = archive, arrays
        self._module: IRModule | None = None
        self._functions: dict[str, Function] = {}

    def module(self) -> IRModule:
        """The functions that those of the executable call, parsed at the first use."""
        if self._module is None:
            try:
                made = self._read()
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
                if isinstance(e, TVMError):
                    raise
                raise self._archive.problem(f"{MODULE}: {e}") from None
            rows = self._archive.manifest["functions"]
            own = {r["main"] for r in rows} | {r["transform"] for r in rows}
            own.update(self._archive.manifest.get("signatures", {}).values())
            functions = made.relax_functions()
            self._functions = {g.name_hint: f for g, f in functions.items()}
            rest = {g: f for g, f in made.items() if g.name_hint not in own}
            self._module = made.replace(rest)
        return self._module

    def _read(self) -> IRModule:
        """What the text says."""
        tables = {
            kind: [self._arrays.table_item(item) for item in items]
            for kind, items in self._archive.manifest["tables"].items()
        }
        text = self._archive.read(MODULE).decode()
        made = from_source(text, {"metadata": tables}, filename=f"{self._archive.path}")
        if not isinstance(made, IRModule):
            raise self._archive.problem(f"{MODULE} holds no module")
        return made

    def params(self, name: str) -> Sequence[Var]:
        """The parameters of one function of the text."""
        return self.find(name).params

    def find(self, name: str) -> Function:
        """One function of the text."""
        self.module()
        if name not in self._functions:
            raise self._archive.problem(f"{MODULE} has no function {name!r}")
        return self._functions[name]


class LazyFunction(Function):
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
