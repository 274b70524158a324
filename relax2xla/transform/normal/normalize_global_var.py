"""NormalizeGlobalVar: public functions have the name of their symbol."""

from __future__ import annotations

from relax2xla.builder import BlockBuilder
from relax2xla.ir import IRModule
from relax2xla.transform.core import Pass, PassContext, register


@register()
class NormalizeGlobalVar(Pass):
    """Rename functions so that each public one has the name of its ``global_symbol``.

    A private function whose name a public one needs gets a number after its name. BuilderError
    where two functions have one symbol.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return BlockBuilder(mod).finalize()
