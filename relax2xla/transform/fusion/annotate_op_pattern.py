"""AnnotateTIROpPattern: loop-level functions say how they may be fused."""

from __future__ import annotations

from relax2xla.analysis.op_pattern import op_pattern_kind
from relax2xla.ir import IRModule
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.fusion.operators import OP_PATTERN


@register()
class AnnotateTIROpPattern(Pass):
    """Set the attribute ``op_pattern`` of loop-level functions: the class by which FuseOps goes.

    The number of an :class:`~relax2xla.analysis.op_pattern.OpPatternKind`; what is set stays.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod.replace(
            {
                g: f.with_attr(OP_PATTERN, int(op_pattern_kind(f)))
                if isinstance(f, PrimFunc) and OP_PATTERN not in f.attrs
                else f
                for g, f in mod.items()
            }
        )
