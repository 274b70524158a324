"""Composites that functions in C++ take over: custom calls, made before compiling.

Programs hold composites with their forms in rows (:mod:`relax2xla.transform.cpu.integers.compute`,
:mod:`relax2xla.transform.cpu.calls.depthwise`), and so do files. Here, behind the gate that refuses
such custom calls of any program, one becomes the other, where the operands are what the call needs.
A library is compiled at its first use and kept beside compiled programs; where it cannot be, XLA
compiles the forms in rows.
"""

from __future__ import annotations

import functools
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from relax2xla.errors import TVMError
from relax2xla.kernels import (
    attention,
    depthwise,
    gradients,
    moments,
    norms,
    products,
    recurrences,
    slices,
    squeezes,
    transposes,
)
from relax2xla.kernels.integers import calls as integers
from relax2xla.kernels.native import Call, Family, Tensor, may_call
from relax2xla.runtime.native import NativeFunction, NativeModule
from relax2xla.stablehlo.mlir import ir, operations
from relax2xla.stablehlo.untrusted.targets import TYPED
from relax2xla.vm.pjrt.composites import asked, copied, names_forms, replaced_by_call
from relax2xla.vm.pjrt.external_calls import TARGET, bind, share_threads
from relax2xla.vm.pjrt.own_library import HOME, shared_library

log = logging.getLogger("relax2xla.vm")

FAMILIES: Final = (
    integers.FAMILY,
    depthwise.FAMILY,
    products.FAMILY,
    recurrences.FAMILY,
    attention.FAMILY,
    norms.FAMILY,
    squeezes.FAMILY,
    gradients.FAMILY,
    transposes.FAMILY,
    slices.FAMILY,
    moments.FAMILY,
)
# A loop from the beginning of a line of the cache on: where it begins elsewhere, products take 1.1
# times as long while another thread of the same core is at work.
_OPTIONS: Final = ("-O3", "-march=native", "-falign-loops=64")
# What a library has that shares its work out.
_THREADS: Final = b"relax2xla/threads.h"


def with_calls(module: ir.Module) -> ir.Module | None:
    """``module`` with custom calls in the place of composites; None: it has none.

    The module that is given stays as it is.
    """
    if not may_call() or not names_forms(module, [f.forms for f in FAMILIES]):
        return None
    with module.context, ir.Location.unknown():
        found = list(map(_wanted, operations(module)))
        wanted = {family for family, _ in filter(None, found)}
        keys = {family: functions(family) for family in wanted}
        if not any(keys.values()):
            return None
        made = copied(module)
        for op, site in zip(operations(made), found, strict=True):
            known = keys[site[0]] if site else None
            if site and known:
                _replace(op, *site, known[site[1].symbol])
    return made


def _wanted(op: ir.Operation) -> tuple[Family, Call] | None:
    """The call that a composite asks for; None where it is none that can be made here."""
    given = asked(op, [f.prefix for f in FAMILIES])
    if given is None:
        return None
    family = next(f for f in FAMILIES if given.name.startswith(f.prefix))
    call = family.read(*given)
    if isinstance(call, str):
        log.info("a composite %s stays in rows: %s", given.name, call)
        return None
    return (family, call) if family.runs_here(call) else None


def _replace(op: ir.Operation, family: Family, call: Call, key: str) -> None:
    numbers = [f"f{n.hex()}" if isinstance(n, float) else f"i{n}" for n in call.numbers]
    items = ["t"] * len(call.operands) + numbers
    config = {"arguments": " ".join(items), "function": key}
    attributes: dict[str, ir.Attribute] = {
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED),
        "backend_config": ir.DictAttr.get({k: ir.StringAttr.get(v) for k, v in config.items()}),
        "call_target_name": ir.StringAttr.get(str(TARGET)),
        "operand_layouts": _layouts(call.operands),
        "result_layouts": _layouts(family.results(call)),
    }
    if family.in_place(call):
        attributes["output_operand_aliases"] = ir.Attribute.parse(_IN_PLACE)
    replaced_by_call(op, attributes)


# The result lies where the first operand does.
_IN_PLACE: Final = (
    "[#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, "
    "operand_tuple_indices = []>]"
)


def _layouts(tensors: list[Tensor]) -> ir.Attribute:
    """Rows first, for all."""
    index = ir.IndexType.get()
    made: list[ir.Attribute] = []
    for t in tensors:
        rank = len(t.shape)
        kind = ir.RankedTensorType.get([rank], index)
        places = ", ".join(str(a) for a in reversed(range(rank)))
        made.append(ir.Attribute.parse(f"dense<[{places}]> : {kind}"))
    return ir.ArrayAttr.get(made)


# -- the library -----------------------------------------------------------------------------------
@functools.cache
def functions(family: Family) -> Mapping[str, str] | None:
    """By symbol the keys by which programs call the functions; None, and a notice, without them."""
    try:
        found = library(family, family.flags())
    except (TVMError, OSError) as e:
        level = logging.WARNING if family.needed else logging.INFO
        log.log(level, "calls of %s run in rows: %s", family.name, e)
        return None
    keys = {name: bind(function) for name, function in found.items()}
    bound = {name: key for name, key in keys.items() if key is not None}
    return bound if len(bound) == len(keys) else None


def require() -> None:
    """Have the functions ready for compiled code that calls some; TVMError where there are none.

    Which ones it calls the code does not tell.
    """
    missing = [family.name for family in FAMILIES if functions(family) is None]
    if missing:
        names = " and ".join(missing)
        raise TVMError(f"it may call functions of {names}, which do not compile here")


def library(family: Family, flags: tuple[str, ...]) -> Mapping[str, NativeFunction]:
    """The functions, compiled with ``flags``, from the cache of programs where they are there.

    Raises CompilerError where there is no compiler, or it fails.
    """
    content = b"\n".join((HOME / n).read_bytes() for n in (family.source, *family.headers))
    options = [*_OPTIONS, *family.options, *flags]
    code = shared_library(family.source, options, f"the calls of {family.name} do not compile")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / f"{family.name}.so"
        made.write_bytes(code)
        module = NativeModule(made, family.symbols, content + " ".join(flags).encode())
        if _THREADS in content:
            share_threads(module)
        return module.functions
