"""``tvm.dlight``: schedules say how loops run, which XLA decides; here they change nothing."""

from __future__ import annotations

from typing import Any

from relax2xla.ir import IRModule
from relax2xla.transform.core import Pass, PassContext, PassInfo


class ScheduleRule:
    """A rule for a kind of loop nest."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class _Rules:
    """Rules by any name: ``dl.gpu.Matmul()``."""

    def __getattr__(self, name: str) -> type[ScheduleRule]:
        if name.startswith("__"):
            raise AttributeError(name)
        return ScheduleRule


gpu = _Rules()
cpu = _Rules()
base = _Rules()


class ApplyDefaultSchedule(Pass):
    """Give the module back: XLA schedules kernels."""

    info = PassInfo("ApplyDefaultSchedule", 0)

    def __init__(self, *rules: Any) -> None:
        super().__init__()

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod
