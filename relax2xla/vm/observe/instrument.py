"""Instruments: a function that sees every call that a machine makes, before and after."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from relax2xla.errors import CallError

# ``instrument(func, func_symbol, before_run, ret_value, *args)``.
Instrument = Callable[..., Any]
# ``hook(func, func_symbol, *args)`` makes the call.
Hook = Callable[..., Any]


class VMInstrumentReturnKind(enum.IntEnum):
    """What an instrument may return before a call: go on, or leave the call out."""

    NO_OP = 0
    SKIP_RUN = 1


def hook_of(instrument: Instrument) -> Hook:
    """Makes calls as ``instrument`` says; a call that is left out gives None, as in TVM.

    The instrument is not asked again after a call that it left out. What it returns after a call
    means nothing. CallError for what is no kind, before a call.
    """

    def hook(func: Callable[..., Any], symbol: str, /, *args: Any) -> Any:
        kind = instrument(func, symbol, True, None, *args)
        if kind is not None and kind != VMInstrumentReturnKind.NO_OP:
            if kind != VMInstrumentReturnKind.SKIP_RUN:
                raise CallError(
                    f"the instrument returned {kind!r} before {symbol}; expected a "
                    "VMInstrumentReturnKind (NO_OP or SKIP_RUN) or None"
                )
            return None
        result = func(*args)
        instrument(func, symbol, False, result, *args)
        return result

    return hook
