"""Programs that JAX exported for several platforms: which of these they run on.

Such a program takes the place of its platform among them (``stablehlo.exported``). It is known when
the program is built, and has to be: branches for other platforms may hold what this one lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relax2xla.errors import DeviceError
from relax2xla.ir import Function, IRModule
from relax2xla.runtime.device import Device
from relax2xla.stablehlo.exported import PLATFORMS, platform_param
from relax2xla.vm.pjrt import xla


def bind_platforms(mod: IRModule, device: Device | None) -> tuple[IRModule, dict[str, str]]:
    """``mod`` for the platform of ``device``, and what that is by the functions that ask for it.

    Raises DeviceError for a program that was exported for other platforms.
    """
    made: dict[Any, Any] = {}
    found: dict[str, str] = {}
    for gvar, func in mod.relax_functions().items():
        param = platform_param(func) if PLATFORMS in func.attrs else None
        if param is None:
            continue
        own, known = xla.platform(device), tuple(func.attrs[PLATFORMS])
        if own not in known:
            raise DeviceError(
                f"{gvar.name_hint} was exported for {', '.join(known)}, not for {own}; build it "
                "with the target of one of them, or export it with "
                f"jax.export.export(f, platforms=[..., {own!r}])"
            )
        made[gvar] = _bound(func, param.name_hint, known.index(own))
        found[gvar.name_hint] = own
    return (mod.replace({**mod.functions, **made}) if made else mod), found


def _bound(func: Function, name: str, index: int) -> Function:
    bound = func.bind_params({name: np.asarray(index, np.int32)})
    return bound.without_attr(PLATFORMS)


def check_platforms(built: Mapping[str, str], device: Device | None) -> None:
    """DeviceError where functions were built for another platform than that of ``device``."""
    for name, platform in built.items():
        if (own := xla.platform(device)) != platform:
            raise DeviceError(
                f"{name} was exported for several platforms and built for {platform}; this machine "
                f"is on {own}. Build it for that, as in build(mod, target={own!r})"
            )
