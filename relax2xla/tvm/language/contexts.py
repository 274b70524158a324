"""PassContext for programs written for TVM: what its tuning asks for is there, and unused."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from relax2xla.transform import PassContext


def take_tuning() -> None:
    """Let contexts be made with TVM's arguments of tuning from now on; nothing is tuned here."""
    made: Any = PassContext
    if hasattr(made, "trace_stack"):
        return
    plain = made.__init__

    @functools.wraps(plain)
    def init(
        context: PassContext,
        *args: Any,
        trace_stack: Sequence[Any] | None = None,
        make_traceable: Sequence[str] | None = None,
        num_evals: int = 0,
        tuning_api_database: Any = None,
        **kwargs: Any,
    ) -> None:
        plain(context, *args, **kwargs)

    made.__init__ = init
    made.trace_stack, made.make_traceable, made.num_evals = [], None, 0
    made.get_tuning_api_database = lambda context: None
