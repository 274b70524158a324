"""DataflowUseInplaceCalls, a name that pipelines for TVM use."""

from __future__ import annotations

from relax2xla.ir import IRModule
from relax2xla.transform.core import Pass, PassContext, register


@register()
class DataflowUseInplaceCalls(Pass):
    """Leave it to XLA which operators write into their operands: the module stays as it is.

    XLA gives results the memory of values that nothing needs any more, in every program.
    ``relax2xla.analysis.dataflow_inplace`` says what a block would allow.
    """

    kind = "identity"

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod
