"""Front ends: ways into Relax, under the names that TVM's users know."""

from __future__ import annotations

import numpy as np

from relax2xla.dtypes import Array
from relax2xla.ir import Function, IRModule


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
