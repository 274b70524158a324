"""Passes that choose kernels and threads of a GPU: operators and kernels stay XLA's here."""

from __future__ import annotations

from relax2xla.ir import IRModule
from relax2xla.transform.core import Pass, PassContext, PassInfo


class _Unchanged(Pass):
    """A pass that gives the module back."""

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod


class DispatchSampling(_Unchanged):
    """``tvm.relax.backend.DispatchSampling``: sampling is operators, on every device."""

    info = PassInfo("DispatchSampling")


class DispatchSortScan(_Unchanged):
    """``tvm.relax.backend.DispatchSortScan``: sorts and scans are operators, on every device."""

    info = PassInfo("DispatchSortScan")


class DefaultGPUSchedule(_Unchanged):
    """``tvm.tir.transform.DefaultGPUSchedule``: XLA decides which thread runs what."""

    info = PassInfo("DefaultGPUSchedule")
