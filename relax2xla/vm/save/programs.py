"""Programs of static shapes in a saved executable: StableHLO, and machine code of one machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import EmitError, FileFormatError, UnsupportedError
from relax2xla.ir import StructInfo, TensorStructInfo
from relax2xla.runtime.device import Device, Mesh
from relax2xla.stablehlo.serialize import main_types, parse, serialize
from relax2xla.stablehlo.shardings import without_shardings
from relax2xla.vm.call.call_shapes import key_of
from relax2xla.vm.call.programs import Programs
from relax2xla.vm.call.specialise import packer
from relax2xla.vm.pjrt import compiler, xla
from relax2xla.vm.save.archive import Archive
from relax2xla.vm.save.manifest import (
    is_array_key,
    key_data,
    read_info,
    read_key,
    read_tree,
    tree_data,
)

log = logging.getLogger("relax2xla.vm")


def program_row(
    index: str, programs: Programs, infos: Sequence[StructInfo], code: bool
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest's row for one program, and its members; ``code``: with its machine code."""
    module, program = programs.lowered(infos)
    row: dict[str, Any] = {
        "file": f"programs/{index}.mlirbc",
        "variant": programs.variant,
        "key": [key_data(k) for k in key_of(infos)],
        "outputs": [[list(o.dims or ()), o.dtype] for o in program.outputs],
        "tree": tree_data(program.tree),
    }
    members: dict[str, bytes] = {}
    if code:
        compiled = compiler.machine_code(module, programs.device, programs.executable.allowed)
        if compiled is None:
            log.info("%s: XLA cannot write its machine code; it is compiled anew", programs.name)
        else:
            row["compiled"] = f"compiled/{index}.xla"
            members[row["compiled"]] = compiled
    # Writing a portable artefact takes the module apart, so it comes last.
    try:
        spread = isinstance(programs.device, Mesh)
        data = serialize(module if spread else without_shardings(module), "portable")
    except EmitError:  # operations beyond StableHLO's own
        data = serialize(programs.lowered(infos)[0], "bytecode")
    assert isinstance(data, bytes)
    members[row["file"]] = data
    return row, members


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """A program that the file holds; ``row`` is its place in the manifest."""

    outputs: tuple[TensorStructInfo, ...]
    pack: Callable[[Sequence[Any]], Any]
    row: Mapping[str, Any]


class ProgramReader:
    """The programs of a file, loaded when a call needs them; see ``load_module``."""

    def __init__(self, archive: Archive, compiled: bool, allowed: frozenset[str]) -> None:
        self._archive, self._compiled, self._allowed = archive, compiled, allowed
        self._known: dict[tuple[str, Any], SavedProgram] = {}
        self._warned = False

    def add(self, function: str, row: Mapping[str, Any]) -> None:
        """Note a program of ``function``; ValueError for a row that is none."""
        members = (row["file"], row.get("compiled", row["file"]))
        if not all(isinstance(m, str) and m in self._archive for m in members):
            raise ValueError(f"a program of {function} is not in the file")
        outputs = [read_info(["tensor", *o]) for o in row["outputs"]]
        tensors = tuple(o for o in outputs if isinstance(o, TensorStructInfo))
        tree = read_tree(row["tree"], len(tensors))
        key = tuple(read_key(k) for k in row["key"])
        self._known[row["variant"], key] = SavedProgram(tensors, packer(tree), row)

    def find(
        self, variant: str, key: Any, target: Device | None
    ) -> tuple[compiler.Loaded, SavedProgram] | None:
        """The program of a function for a call's key, if the file has it for this platform."""
        saved = self._known.get((variant, key))
        if saved is None or xla.jax_device(target).platform != self._archive.manifest.get(
            "platform"
        ):
            return None
        avals = [xla.aval(o) for o in saved.outputs]
        if self._compiled and "compiled" in saved.row and self._fits(target):
            try:
                loaded = compiler.Loaded(self._archive.read(saved.row["compiled"]), avals, target)
                return self._checked(loaded, saved, key), saved
            except (FileFormatError, UnsupportedError):
                raise
            except Exception as e:  # jaxlib names no class for what it cannot read
                self._warn(f"jaxlib cannot read it ({e})")
        # The file is only data, and damaged bytecode can end the process that reads it.
        module = parse(self._archive.read(saved.row["file"]), isolate=True)
        # What XLA says of a program over a mesh is of one device's part.
        types = main_types(module) if isinstance(target, Mesh) else None
        loaded = compiler.Loaded(module, avals, target, allowed=self._allowed)
        return self._checked(loaded, saved, key, types), saved

    def _checked(
        self, loaded: compiler.Loaded, saved: SavedProgram, key: Any, types: Any = None
    ) -> compiler.Loaded:
        """``loaded``, whose arguments and results are what the manifest says; FileFormatError."""
        takes, gives = types or loaded.types()
        arguments = [k for k in key if isinstance(k, tuple) and is_array_key(k)]
        said = [(o.dims, numpy_dtype(o.dtype)) for o in saved.outputs]
        for what, own, other in (
            ("takes", takes[len(takes) - len(arguments) :], arguments),
            ("gives", gives, said),
        ):
            if own != other:
                raise self._archive.problem(
                    f"the program {saved.row['file']} {what} {_show(own)}, and the manifest says "
                    f"{_show(other)}"
                )
        return loaded

    def _fits(self, target: Device | None) -> bool:
        """Whether the machine code in the file is for this machine."""
        here = compiler.fingerprint(target)
        there = self._archive.manifest["fingerprint"]
        if here == there:
            return True
        differs = [
            f"{b!r} here, {a!r} there"
            for a, b in zip(str(there).splitlines(), here.splitlines(), strict=False)
            if a != b
        ]
        self._warn("; ".join(d if len(d) < 200 else "another processor" for d in differs))
        return False

    def _warn(self, why: str) -> None:
        """Say once that XLA compiles again."""
        if not self._warned:
            self._warned = True
            log.warning(
                "%s: its machine code is not for this machine, so XLA compiles: %s",
                self._archive.path,
                why,
            )


def _show(arrays: Sequence[tuple[Any, Any]]) -> str:
    """Shapes and dtypes for people."""
    return ", ".join(f"{d}{list(s)}" for s, d in arrays) or "nothing"
