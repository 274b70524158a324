"""``relax2xla compile``: a model as a saved executable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relax2xla.cli.commands.inspect import weights
from relax2xla.cli.process.console import note, out, print_json, size, status, table
from relax2xla.cli.reading.model import load_model, parse_device, parse_shapes
from relax2xla.errors import FileFormatError
from relax2xla.importers.files import check_target, symbols

if TYPE_CHECKING:
    from relax2xla.vm.save.executable import VMExecutable


def run_compile(
    file: Path,
    output: Path,
    compiled: bool,
    raw_weights: bool,
    device_name: str,
    trust: bool,
    shape: Sequence[str],
    as_json: bool = False,
) -> None:
    """Build ``file`` and save it as ``output``; says what is in it."""
    if output.suffix.lower() != ".r2x":
        raise FileFormatError(f"{output}: saved executables have the extension .r2x")
    check_target(output, file)
    device = parse_device(device_name)
    mod = load_model(file, trust, parse_shapes(shape))
    from relax2xla.vm.plan.build import build
    from relax2xla.vm.save.writer import collect

    start = time.perf_counter()
    executable = build(mod, device)
    with status("compiling"):
        made = collect(executable, compiled, "raw" if raw_weights else "computed")
    with status(f"writing {output.name}"):
        made.write(output)
    took = time.perf_counter() - start
    kinds = {n: _kind(executable, n, compiled) for n in executable}
    names = symbols([p.struct_info for e in executable.entries.values() for p in e.params])
    if as_json:
        print_json(
            {
                "file": str(file),
                "output": str(output),
                "bytes": output.stat().st_size,
                "seconds": took,
                "machine_code": compiled,
                "functions": [{"name": n, "is": kind} for n, kind in kinds.items()],
                "symbolic_dimensions": names,
                "weights": weights(list(mod.relax_functions().values())),
            }
        )
    else:
        table(("function", "is"), list(kinds.items()))
        out()
    note(f"wrote {output} ({size(output.stat().st_size)}) in {took:.2f} s")
    if names and compiled:
        sizes = " ".join(f"--shape {n}=4" for n in names)
        note(f"what has symbolic dimensions is compiled when it is run; to compile it now: {sizes}")


def _kind(executable: VMExecutable, name: str, compiled: bool) -> str:
    entry = executable.entries.get(name)
    if entry is None:
        return f"bytecode over {len(executable.regions)} XLA programs"
    if not entry.is_static:
        return "one XLA program for each call shape"
    return "one XLA program, compiled" if compiled else "one XLA program"
