"""``tvm.meta_schedule``: databases are kept; XLA decides how loops run, so nothing is tuned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from relax2xla.tvm.gpu import database as database
from relax2xla.tvm.gpu.database import Database as Database
from relax2xla.tvm.refusing import refusing

_WHY: Final = "XLA decides how loops run, so there is nothing to tune; build the module as it is"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return refusing(f"tvm.meta_schedule.{name}", _WHY)
