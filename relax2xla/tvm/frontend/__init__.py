"""``tvm.relax.frontend``, where its arrays are those of programs for TVM."""

from __future__ import annotations

from relax2xla.frontend import detach_params as detach
from relax2xla.ir import IRModule
from relax2xla.tvm.runtime.arrays import HostArray


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[HostArray]]]:
    """``relax2xla.frontend.detach_params``, with arrays that have ``.numpy()``."""
    made, params = detach(mod)
    return made, {name: [v.view(HostArray) for v in values] for name, values in params.items()}
