"""``tir.Schedule``, refused: XLA decides how loops run."""

from __future__ import annotations

from typing import Any

from relax2xla.errors import UnsupportedError


class Schedule:
    """Refused with UnsupportedError: a schedule says how loops run, which XLA decides here.

    A program that TVM has scheduled already is read and run as it is.
    """

    def __init__(self, mod: Any, **options: Any) -> None:
        raise UnsupportedError(
            "tir.Schedule is not part of relax2xla: how the loops of a kernel run is XLA's "
            "decision. Leave the schedule out; kernels that TVM has scheduled are taken as they are"
        )
