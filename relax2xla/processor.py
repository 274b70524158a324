"""What the processor of this machine can do, and what XLA:CPU makes of it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import platform
from collections.abc import Mapping
from typing import Final

#: The option of XLA that says what YNNPACK computes; it and its values are XLA's own business.
YNNPACK: Final = "xla_cpu_experimental_ynn_fusion_type"
#: The option of XLA that says how many bits its loops take at a time.
WIDTH: Final = "xla_cpu_prefer_vector_width"
#: The versions of jaxlib whose options and calls are known.
KNOWN: Final = ("0.10.", "0.11.", "0.12.")


@functools.cache
def description() -> Mapping[str, str]:
    """The first processor by Linux's names ("model name", "flags"), in order; empty elsewhere."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        # The first processor's paragraph; the others are like it.
        for line in file:
            name, _, value = line.partition(":")
            if not line.strip():
                break
            found[name.strip()] = value.strip()
    return found


@functools.cache
def features() -> frozenset[str]:
    """Names of the instruction sets, such as "avx2" or "avx512f"; empty where none are listed."""
    return frozenset(description().get("flags", description().get("Features", "")).split())


def kind() -> str:
    """The name under which tables of measurements know this processor; "" where none does."""
    if "avx512f" in features():
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= features() else ""


def count() -> int:
    """The number of processors that this process may use."""
    own = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if own else os.cpu_count() or 1


@functools.cache
def machine() -> str:
    """What compiled code depends on in this machine: architecture, processor, its features."""
    parts = [platform.system(), platform.machine()]
    known = description()
    if not known:
        parts.append(platform.processor())  # may start a process
    for name, value in known.items():
        if name in ("vendor_id", "cpu family", "model", "model name", "stepping"):
            parts.append(value)
        elif name in ("flags", "Features"):
            parts += sorted(value.split())
    return " ".join(parts)


def vector_options() -> Mapping[str, int]:
    """XLA's option for loops over vectors of 512 bits, where they are faster than the usual 256.

    On AMD's processors with AVX-512 (measured on Zen 5: EfficientNet-B0 by 15 %, ConvNeXt by 6 %;
    LLVM, too, takes 512 bits for them). Intel's lower their clock for such vectors. Not where the
    user's XLA_FLAGS say it.
    """
    if WIDTH in os.environ.get("XLA_FLAGS", "") or not jaxlib_version().startswith(KNOWN):
        return {}
    wide = "avx512f" in features() and description().get("vendor_id") == "AuthenticAMD"
    return {WIDTH: 512} if wide else {}


def eigen_multiplies() -> bool:
    """Whether Eigen multiplies float32 matrices faster than YNNPACK, whatever their sizes.

    It does on AVX-512 (measured: ``python -m benchmarks dots``).
    """
    return "avx512f" in features() and eigen_may_multiply()


def eigen_may_multiply() -> bool:
    """Whether the choice between Eigen and YNNPACK is ours, and has been measured here.

    Not where the user's XLA_FLAGS say what YNNPACK computes, and not without AVX2.
    """
    if YNNPACK in os.environ.get("XLA_FLAGS", "") or not features() & {"avx2", "avx512f"}:
        return False
    return jaxlib_version().startswith(KNOWN)


@functools.cache
def jaxlib_version() -> str:
    """The version of jaxlib, without importing it."""
    # Not imported above: it is slow to import, and not every processor asks for it.
    return importlib.import_module("importlib.metadata").version("jaxlib")
