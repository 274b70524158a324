"""When oneDNN is called: a table of measurements for each kind of processor.

``python -m benchmarks forms`` measures the forms of convolutions and products in turn. A form in
rows stands where the table has nothing, so a processor that was not measured keeps these.

Calls are off unless ``RELAX2XLA_ONEDNN=1`` asks for them: with jaxlib 0.10.2 what oneDNN shares out
among threads within a part of a call waits for that call, for ever, or breaks memory. Which of
oneDNN's forms do that is not known from outside; depthwise convolutions of lines do, and products
of 8 bits without AVX-512.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from relax2xla import processor
from relax2xla.kernels.onednn.calls import Call, Convolution, Product

_VARIABLE: Final = "RELAX2XLA_ONEDNN"
_ON: Final = ("1", "on", "true", "yes")
# Channels of the images that networks begin with.
_FEW_CHANNELS: Final = 4


class Faster(NamedTuple):
    """Calls that are faster than their form in rows.

    least: the multiplications from which they are; gain: seconds for each multiplication, the least
    that was measured
    """

    least: int
    gain: float


#: Kind of processor to kind of call to when it is faster. Ratios of times, call to rows, one core:
#:
#: * avx2 (Zen 3): groups 0.22 to 0.61, several taps 0.69 to 0.93, few channels 0.74 to 1.00, one
#:   tap 0.70 to 0.97, depthwise 0.67 to 0.89 where they are large, and 0.82 to 1.5 where not.
#:   Products of float32 take what they take in rows; those of 8 bits saturate, and are refused.
#: * avx512 (Zen 4): groups 0.14 to 0.63, few channels 0.37 to 0.86, products of int8 0.42 to 0.61,
#:   of uint8 by int8 0.10 to 0.66, depthwise 0.53 to 0.87 where they are large, and up to 1.7 where
#:   not. Several taps take 0.83 to 0.92, but those with steps of 1 are Winograd's before they come
#:   here, and XLA cannot keep the code of a program with calls. One tap is a product.
TABLE: Final[Mapping[str, Mapping[str, Faster]]] = {
    "avx2": {
        "one tap": Faster(2_000_000, 7e-12),
        "several taps": Faster(5_000_000, 4e-12),
        "few channels": Faster(5_000_000, 4e-12),
        "groups": Faster(200_000, 6e-11),
        "depthwise": Faster(2_500_000, 2e-11),
    },
    "avx512": {
        "few channels": Faster(5_000_000, 4e-12),
        "groups": Faster(200_000, 3e-11),
        "depthwise": Faster(3_500_000, 1e-11),
        "int8": Faster(1_000_000, 8e-12),
        "uint8": Faster(1_000_000, 3e-11),
    },
}
# XLA cannot write the code of a program with calls, so each process compiles it: seconds for each
# of its operations, and the calls of the program that have to earn it back.
_COMPILE: Final = 4e-3
_CALLS: Final = 1000


def may_call() -> bool:
    """Whether oneDNN is asked for, jaxlib on this machine may have it, and the calls are known."""
    if os.environ.get(_VARIABLE, "").strip().lower() not in _ON:
        return False
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(processor.kind()) and processor.jaxlib_version().startswith(processor.KNOWN)


def may_hang(call: Call) -> bool:
    """Whether oneDNN is known to wait for ever within a call on this processor."""
    if isinstance(call, Product):
        return call.left.dtype != "float32" and processor.kind() != "avx512"
    assert isinstance(call, Convolution)
    return call.is_depthwise and len(call.window) != 4


def kind_of(call: Call) -> str:
    """The column of the table for a call."""
    if isinstance(call, Product):
        return call.left.dtype
    assert isinstance(call, Convolution)
    if call.is_depthwise:
        return "depthwise"
    if call.groups > 1:
        return "groups"
    if math.prod(call.window[:-2]) == 1:
        return "one tap"
    return "few channels" if call.image[-1] <= _FEW_CHANNELS else "several taps"


def gain(call: Call, on: str = "") -> float:
    """Seconds that a call is faster than its form in rows on a kind of processor, by default this.

    0 where it is not.
    """
    found = TABLE.get(on or processor.kind(), {}).get(kind_of(call))
    if found is None or call.multiplications < found.least:
        return 0.0
    return found.gain * call.multiplications


def is_faster_somewhere(call: Call) -> bool:
    """Whether a call is faster than its form in rows on any kind of processor."""
    return any(gain(call, on) for on in TABLE)


def pays(gained: float, operations: int) -> bool:
    """Whether what the calls of a program gain in all is worth its compilation in each process."""
    return gained * _CALLS >= operations * _COMPILE
