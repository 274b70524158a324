"""``export_library`` with TVM's arguments, of which those for generated code have no work here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relax2xla.errors import UnsupportedError
from relax2xla.tvm.tools.compilers import OF_THIS_MACHINE
from relax2xla.vm.save.executable import VMExecutable


def take_compilers() -> None:
    """Let programs tell executables from now on how TVM would make a library of them.

    A compiler of this machine (``tvm.contrib.cc``, ``tar``), its options and a workspace change
    nothing: the file is the one that ``export_library`` writes without them, whatever its name. A
    compiler for other machines, or of the program's own, is an UnsupportedError, and so are addons.
    """
    made: Any = VMExecutable
    plain = made.export_library
    if hasattr(plain, "__wrapped__"):
        return

    @functools.wraps(plain)
    def export_library(
        executable: VMExecutable,
        file_name: str | Path,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[Any] | None = None,
        workspace_dir: str | None = None,
        *,
        compiled: bool = True,
        weights: str = "computed",
        native: bool = True,
        **options: Any,
    ) -> None:
        if fcompile is not None and fcompile not in OF_THIS_MACHINE.values():
            raise UnsupportedError(
                f"export_library: fcompile={getattr(fcompile, '__name__', fcompile)} would make a "
                "library of code that TVM generates; here XLA compiles, for this machine. Leave "
                "fcompile out"
            )
        if addons:
            raise UnsupportedError(
                "export_library: addons are libraries that TVM links in; register their functions "
                "with register_func where the program is loaded"
            )
        if options and fcompile is None:
            raise TypeError(f"export_library takes no {', '.join(options)} without fcompile")
        plain(executable, file_name, compiled=compiled, weights=weights, native=native)

    made.export_library = export_library
