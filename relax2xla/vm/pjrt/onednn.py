"""Composites that oneDNN takes over: XLA's custom calls, made in the last step before compiling.

Programs hold composites with their forms in rows (:class:`relax2xla.transform.cpu.CallOneDnn`), so
do files, and whatever differentiates or maps a program sees these forms. Only here, behind the gate
that refuses such custom calls of any program, one becomes the other: where the operands are what
the call needs, where a table says that it is faster on this processor, and where each feature of
oneDNN that it needs has given right values in a child process. The others stay, and XLA compiles
their forms.

XLA:CPU cannot write the code of a program with such calls, so it is not in the disk cache, and a
program that gains little keeps its rows.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relax2xla import processor
from relax2xla.kernels.onednn import choice
from relax2xla.kernels.onednn.calls import FEATURES, FORMS, PREFIX, Call, read
from relax2xla.stablehlo.mlir import ir, operations
from relax2xla.vm.pjrt import cache
from relax2xla.vm.pjrt.composites import asked, copied, names_forms, replaced_by_call

log = logging.getLogger("relax2xla.vm")

_PROBE: Final = "relax2xla.vm.pjrt.onednn_probe"
# A child that takes longer has hung.
_SECONDS: Final = 60


def with_calls(module: ir.Module) -> ir.Module | None:
    """``module`` with custom calls for those composites that oneDNN makes faster; None: for none.

    The module that is given stays as it is.
    """
    if not choice.may_call() or not names_forms(module, [FORMS]):
        return None
    with module.context, ir.Location.unknown():
        found = operations(module)
        calls = list(map(_wanted, found))
        # Nothing has to be known of oneDNN where nothing is wanted of it.
        calls = [call if call and call.features <= features() else None for call in calls]
        gained = sum(choice.gain(call) for call in calls if call)
        if not gained or not (cache.current() is None or choice.pays(gained, len(found))):
            return None
        made = copied(module)
        for op, call in zip(operations(made), calls, strict=True):
            if call is not None:
                _replace(op, call)
    return made


def _wanted(op: ir.Operation) -> Call | None:
    """The call that a composite asks for, where it may be made and is faster."""
    given = asked(op, [PREFIX])
    if given is None:
        return None
    call = read(*given)
    if isinstance(call, str):
        log.info("oneDNN is not called for a composite %s: %s", given.name, call)
        return None
    return call if choice.gain(call) else None


def _replace(op: ir.Operation, call: Call) -> None:
    attributes: dict[str, ir.Attribute] = {
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        "backend_config": ir.StringAttr.get(call.config()),
        "call_target_name": ir.StringAttr.get(call.target),
    }
    replaced_by_call(op, attributes)


# -- what oneDNN has -------------------------------------------------------------------------------
@functools.cache
def features() -> frozenset[str]:
    """What oneDNN computes rightly in this jaxlib and on this processor, by a child process.

    The answer is kept beside compiled programs.
    """
    store = cache.current()
    key = cache.key_of("onednn", _circumstances())
    kept = None if store is None else store.get(key)
    if kept is not None:
        return frozenset(json.loads(kept)) & FEATURES.keys()
    found = _probe([name for name, call in FEATURES.items() if not choice.may_hang(call)])
    log.info("oneDNN: %d of %d features can be used", len(found), len(FEATURES))
    if store is not None:
        store.put(key, json.dumps(sorted(found)).encode())
    return found


def _circumstances() -> str:
    """All that the answer depends on."""
    flags = [f"{n}={os.environ.get(n, '')}" for n in ("XLA_FLAGS", *_ISA)]
    tried = [f"{name}: {call}" for name, call in FEATURES.items()]
    return "\n".join([processor.jaxlib_version(), processor.machine(), *flags, *tried])


# What makes oneDNN take the code of other processors.
_ISA: Final = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def _probe(names: Sequence[str]) -> frozenset[str]:
    """Those of the features that work."""
    found = _child(names)
    if found is None:
        # One that ends on the simplest call has no oneDNN.
        found = _in_halves(names) if _child(names[:1]) else []
    return frozenset(found)


def _in_halves(names: Sequence[str]) -> list[str]:
    """Those of the features that work, where a child with all of them did not say so."""
    if len(names) == 1:
        log.info("oneDNN: trying %r ended its process, or hung", names[0])
        return []
    middle = len(names) // 2
    found: list[str] = []
    for half in (names[:middle], names[middle:]):
        own = _child(half)
        found += _in_halves(half) if own is None else own
    return found


def _child(names: Sequence[str]) -> list[str] | None:
    """The features that a child process names; None where it ended otherwise, or hung."""
    if not sys.executable or getattr(sys, "frozen", False):
        log.info("oneDNN is not used: this program has no Python that could try it")
        return []
    home = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    # -P: nothing that lies in the working directory is imported.
    command = [sys.executable, "-P", "-m", _PROBE, *names]
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except (OSError, subprocess.SubprocessError) as e:
        log.info("oneDNN is not used: no child process could try it (%s)", e)
        return []
    if done.returncode:
        return None
    return [line for line in done.stdout.decode().splitlines() if line in FEATURES]
