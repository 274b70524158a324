"""``tir.Schedule``: holds a module; XLA decides how loops run, so every primitive is refused."""

from __future__ import annotations

from typing import Any, NoReturn

from relax2xla.errors import UnsupportedError


class Schedule:
    """A module (or a function) under a schedule of no steps: ``mod`` is what it was made of.

    Everything else is refused with UnsupportedError: a schedule says how loops run, which XLA
    decides here. A program that TVM has scheduled already is read and run as it is.
    """

    def __init__(self, mod: Any, **options: Any) -> None:
        self.mod = mod
        """The module, unchanged."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedError(
            f"tir.Schedule.{name} is not part of relax2xla: how the loops of a kernel run is XLA's "
            "decision. Leave the schedule out; kernels that TVM has scheduled are taken as they are"
        )
