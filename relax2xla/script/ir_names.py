"""``I`` of TVMScript: modules and what they hold beside functions."""

from __future__ import annotations

from typing import Any, Final

from relax2xla import tir
from relax2xla.ir import DummyGlobalInfo, GlobalVar, VDevice
from relax2xla.script.markers import Decorator, Namespace, Statement
from relax2xla.script.metadata import decode


def vdevice(target: Any = "cpu", vdevice_id: int = 0, memory_scope: str = "global") -> VDevice:
    """A virtual device; ``target`` is a kind such as "cuda" or a dictionary that has one."""
    if isinstance(target, dict):
        if "kind" not in target:
            raise ValueError(f'a target needs a "kind" such as "cuda"; got {target}')
        target = target["kind"]
    if isinstance(getattr(target, "kind", None), str):
        target = str(target)  # a Target
    return VDevice(target, vdevice_id, memory_scope)


ir_module: Final = Decorator("I.ir_module")
ir: Final = Namespace(
    "I",
    {
        "ir_module": ir_module,
        "module_attrs": Statement("I.module_attrs"),
        "module_global_infos": Statement("I.module_global_infos"),
        "dummy_global_info": DummyGlobalInfo,
        "GlobalVar": GlobalVar,
        "Range": tir.Range,
        "vdevice": vdevice,
        "metadata": decode,
    },
)
CALLABLE: Final = [vdevice, DummyGlobalInfo, decode, tir.Range]
