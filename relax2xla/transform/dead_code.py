"""DeadCodeElimination: bindings that nothing needs and that have no side effect go."""

from __future__ import annotations

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.ir import Function, IRModule
from relax2xla.transform._pass import Pass, PassContext, PassInfo


class DeadCodeElimination(Pass):
    """Remove unused pure bindings of every function.

    Casts (``R.match_cast``) stay: they are checks, and may define symbolic variables.
    """

    def __init__(self) -> None:
        super().__init__(PassInfo("DeadCodeElimination", opt_level=1), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        new = {g: remove_all_unused(f) if isinstance(f, Function) else f for g, f in mod.items()}
        return mod.replace(new)
