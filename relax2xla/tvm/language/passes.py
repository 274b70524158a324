"""Passes of ``tvm.relax.transform`` that do something else here by default."""

from __future__ import annotations

from typing import Any

from relax2xla import transform


class LegalizeOps(transform.LegalizeOps):
    """Operators become calls of loop-level functions, on which programs for TVM go on to work."""

    def __init__(
        self,
        customize_legalize_map: Any = None,
        enable_warning: bool = False,
        *,
        to: str = "kernels",
        **options: Any,
    ) -> None:
        super().__init__(customize_legalize_map, enable_warning, to=to, **options)
