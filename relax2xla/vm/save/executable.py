"""``VMExecutable``: what ``build`` and ``load_module`` give, which can be saved."""

from __future__ import annotations

from pathlib import Path

from relax2xla.vm.call.executable import Executable
from relax2xla.vm.save.writer import collect


class VMExecutable(Executable):
    """An executable of the machine; see :class:`~relax2xla.vm.call.executable.Executable`."""

    def export_library(
        self,
        file_name: str | Path,
        *,
        compiled: bool = True,
        weights: str = "computed",
        native: bool = True,
    ) -> None:
        """Save as one file (``.r2x``) for :func:`relax2xla.load_module`; see ``vm.save``.

        ``compiled``: with the machine code of functions of static shapes, for machines like this
        one. ``weights``: "computed" saves what is computed from weights at load, "raw" the weights
        themselves, so that each can be updated on its own. ``native``: with the compiled libraries
        of external modules, which are loaded on demand alone. The file appears whole or not at all;
        TVMError for what cannot be saved.
        """
        collect(self, compiled, weights, native).write(Path(file_name))
