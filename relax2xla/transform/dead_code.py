"""DeadCodeElimination: bindings that nothing needs and that have no side effect go."""

from __future__ import annotations

from relax2xla.analysis.foreign import ForeignCalls
from relax2xla.analysis.unused import remove_all_unused, remove_unused
from relax2xla.ir import Function, IRModule
from relax2xla.transform._pass import Pass, PassContext, PassInfo


class DeadCodeElimination(Pass):
    """Remove unused pure bindings of every function.

    Casts (``R.match_cast``) stay: they are checks, and may define symbolic variables.
    ``keep_foreign``: outside dataflow blocks, calls of packed functions and closures stay, too, and
    those of functions that hold such calls. The pipelines of ``build`` ask for it: what a packed
    function does is seen outside, even where (as of ``call_dps_packed``) its caller promises that
    it is pure. TVM's pass removes these.
    """

    def __init__(self, *, keep_foreign: bool = False) -> None:
        self.keep_foreign = keep_foreign
        super().__init__(PassInfo("DeadCodeElimination", opt_level=1), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        foreign = ForeignCalls(mod)

        def clean(func: Function) -> Function:
            return remove_unused(func, foreign) if self.keep_foreign else remove_all_unused(func)

        return mod.replace({g: clean(f) if isinstance(f, Function) else f for g, f in mod.items()})
