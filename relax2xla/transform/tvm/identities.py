"""Passes of TVM's pipelines that XLA makes pointless: their names, and modules as they are.

Memory planning, schedules, lowering to TVM's machine: XLA and ``build`` do what these are for.
Pipelines and programs for TVM name them, so they exist, take TVM's arguments, and change nothing.
"""

from __future__ import annotations

from typing import Any

from relax2xla.ir import IRModule
from relax2xla.transform.core import Pass, PassContext, register


class Unchanged(Pass):
    """A pass that gives its module back."""

    kind = "identity"

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod


@register()
class AllocateWorkspace(Unchanged):
    """Leave working memory of external kernels to these: nothing is changed."""


@register()
class AttachAttrLayoutFreeBuffers(Unchanged):
    """Leave the layout of weights to LiftWeights and XLA: nothing is changed."""


@register()
class FewShotTuning(Unchanged):
    """Tune no schedules: XLA decides how loops run."""

    def __init__(self, valid_count: int = 1, benchmark: bool = False) -> None:
        super().__init__()


@register()
class IPCAllReduceRewrite(Unchanged):
    """Choose no implementation of collectives: XLA does."""

    def __init__(self, allreduce_strategy: int = 0) -> None:
        super().__init__()


@register()
class KillAfterLastUse(Unchanged):
    """Free nothing by hand: XLA and Python do after the last use."""


@register()
class LowerAllocTensor(Unchanged):
    """Leave allocations as they are: the machine knows ``R.builtin.alloc_tensor``."""


@register()
class LowerGPUIPCAllocStorage(Unchanged):
    """Leave memory between processes to XLA's collectives: nothing is changed."""


@register()
class MetaScheduleApplyDatabase(Unchanged):
    """Apply no schedules: XLA decides how loops run."""

    def __init__(self, work_dir: str | None = None, enable_warning: bool = False) -> None:
        super().__init__()


@register()
class MetaScheduleTuneIRMod(Unchanged):
    """Tune no schedules: XLA decides how loops run."""

    def __init__(
        self,
        params: Any = None,
        work_dir: str = "",
        max_trials_global: int = 0,
        max_trials_per_task: int | None = None,
        op_names: Any = None,
    ) -> None:
        super().__init__()


@register()
class MetaScheduleTuneTIR(Unchanged):
    """Tune no schedules: XLA decides how loops run."""

    def __init__(self, work_dir: str = "", max_trials_global: int = 0) -> None:
        super().__init__()


@register()
class RewriteCUDAGraph(Unchanged):
    """Capture no graphs: XLA's GPU runtime makes command buffers itself."""


@register()
class SplitLayoutRewritePreproc(Unchanged):
    """Leave the preparation of weights to LiftWeights: nothing is changed."""


@register()
class StaticPlanBlockMemory(Unchanged):
    """Plan no memory: XLA assigns buffers in each program."""


@register()
class VMBuiltinLower(Unchanged):
    """Leave operators on memory and shapes as they are: ``build`` lowers them."""


@register()
class VMShapeLower(Unchanged):
    """Leave shapes symbolic: the machine specialises programs for the shapes of a call."""

    def __init__(self, emit_err_ctx: bool = True) -> None:
        super().__init__()
