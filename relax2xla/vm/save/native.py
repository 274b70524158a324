"""Native code in saved executables: the libraries of external modules, for who trusts the file."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relax2xla import processor
from relax2xla.errors import TVMError, UnsupportedError
from relax2xla.runtime.native import NativeModule
from relax2xla.vm.pjrt.external_calls import bind
from relax2xla.vm.save.archive import Archive


def native_rows(external: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The manifest's rows of what is native among external modules, and the file's members."""
    rows: list[dict[str, Any]] = []
    members: dict[str, bytes] = {}
    for module in external:
        if not isinstance(module, NativeModule):
            continue
        name = f"native/{len(rows)}.so"
        members[name] = module.library
        rows.append(
            {
                "file": name,
                "symbols": list(module.functions),
                "digest": module.digest,
                "machine": _machine(module.tuned),
                "tuned": module.tuned,
            }
        )
    return rows, members


def load_native(archive: Archive, rows: Sequence[Mapping[str, Any]]) -> tuple[NativeModule, ...]:
    """The modules, loaded into this process, and their functions ready for programs.

    Raises UnsupportedError for code of another machine.
    """
    made: list[NativeModule] = []
    for row in rows:
        symbols, here = row["symbols"], _machine(row["tuned"])
        if row["machine"] != here:
            raise UnsupportedError(
                f"{archive.path}: the native code of {', '.join(symbols)} is for a machine of "
                f"another kind ({row['machine']:.80}), and this is {here:.80}; build and save the "
                "model here, or compile its sources without -march=native"
            )
        try:
            module = NativeModule.from_library(archive.read(row["file"]), symbols, row["digest"])
        except TVMError as e:
            raise UnsupportedError(f"{archive.path}: {e}") from None
        module.tuned = row["tuned"]
        for function in module.functions.values():
            bind(function)
        made.append(module)
    return tuple(made)


def _machine(tuned: bool) -> str:
    """For which machines native code is."""
    return processor.machine() if tuned else f"{platform.system()} {platform.machine()}"
