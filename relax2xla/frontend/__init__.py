"""Front ends: ways into Relax, under the names that TVM's users know."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from relax2xla.dtypes import Array
from relax2xla.ir import Function, IRModule

if TYPE_CHECKING:
    from relax2xla.frontend import nn as nn
    from relax2xla.frontend import onnx as onnx
    from relax2xla.frontend import stablehlo as stablehlo
    from relax2xla.frontend import torch as torch


def __getattr__(name: str) -> Any:
    """The front ends themselves, which load their frameworks when they are first named."""
    if name not in ("nn", "onnx", "stablehlo", "torch"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Array]]]:
    """Take the attribute ``params`` off every function of ``mod``.

    Gives a module without it, and the lists of arrays by function name, for the functions that had
    one. ``mod`` itself stays as it is. Raises ``ValueError`` where ``params`` is not a list of
    arrays.
    """
    detached = mod.clone()
    params: dict[str, list[Array]] = {}
    for gvar, func in mod.items():
        if not isinstance(func, Function) or "params" not in func.attrs:
            continue
        values = func.attrs["params"]
        if not isinstance(values, tuple) or not all(isinstance(v, np.ndarray) for v in values):
            raise ValueError(
                f"the attribute `params` of {gvar.name_hint!r} must be a list of arrays; "
                f"got {type(values).__name__}"
            )
        detached[gvar] = func.without_attr("params")
        params[gvar.name_hint] = list(values)
    return detached, params
