"""Passes of TVM that have no meaning for XLA, and whose absence would be felt: they say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla.errors import UnsupportedError
from relax2xla.ir import IRModule
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, register


@register()
class SplitCallTIRByPattern(Pass):
    """Refuse to split kernels: raises UnsupportedError where a kernel would be looked at.

    In TVM, source code of ``fcodegen`` takes the place of the part of a loop-level function that
    one of ``patterns`` matches. XLA takes no such code; FuseOpsByPattern with RunCodegen puts
    functions of one's own in the place of operators.
    """

    kind = "refused"

    def __init__(self, patterns: Sequence[PrimFunc], fcodegen: Callable[..., Any]) -> None:
        self.patterns, self.fcodegen = tuple(patterns), fcodegen

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if not self.patterns or not any(isinstance(f, PrimFunc) for f in mod.functions.values()):
            return mod
        raise UnsupportedError(
            "SplitCallTIRByPattern puts source code in the place of parts of kernels, and XLA takes"
            " none; match operators with FuseOpsByPattern(annotate_codegen=True), and register what"
            " stands for them with relax2xla.transform.register_codegen"
        )
