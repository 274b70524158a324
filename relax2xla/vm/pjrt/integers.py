"""Composites of integers that a function in C++ takes over: custom calls, made before compiling.

Programs hold composites with their forms in rows (:mod:`relax2xla.transform.cpu.integers`), and so
do files. Here, behind the gate that refuses such custom calls of any program, one becomes the
other, where the operands are what the call needs. The library is compiled at its first use and kept
beside compiled programs; where it cannot be, XLA compiles the forms in rows.
"""

from __future__ import annotations

import functools
import logging
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from relax2xla import processor
from relax2xla.errors import TVMError
from relax2xla.kernels.integers import calls
from relax2xla.kernels.integers.packing import Packing, may_call, packing
from relax2xla.runtime.compiler import INCLUDE, find_compiler, run_compiler
from relax2xla.runtime.native import NativeFunction, NativeModule
from relax2xla.stablehlo.codecs import dtype_of, read_any
from relax2xla.stablehlo.mlir import ir, operations
from relax2xla.stablehlo.untrusted.targets import TYPED
from relax2xla.vm.pjrt import cache
from relax2xla.vm.pjrt.external_calls import TARGET, bind
from relax2xla.vm.pjrt.onednn import COMPOSITE, copied

log = logging.getLogger("relax2xla.vm")

_CUSTOM_CALL: Final = "stablehlo.custom_call"
_SOURCES: Final = ("integers.cpp", "integers/product.h", "integers/image.h")
# Sums are of integers, and each step of float32 is rounded by itself, as XLA's are.
_OPTIONS: Final = ("-shared", "-fPIC", "-O3", "-march=native", "-std=c++17", "-ffp-contract=off")


def with_calls(module: ir.Module) -> ir.Module | None:
    """``module`` with custom calls in the place of composites of integers; None: it has none.

    The module that is given stays as it is.
    """
    if not may_call() or not _has_composites(module):
        return None
    with module.context, ir.Location.unknown():
        if not any(map(_wanted, operations(module))):
            return None
        keys = functions()
        if keys is None:
            return None
        made = copied(module)
        for op in operations(made):
            call = _wanted(op)
            if call is not None:
                _replace(op, call, keys[call.symbol])
    return made


def _has_composites(module: ir.Module) -> bool:
    named = (op.attributes for op in module.body.operations if "sym_name" in op.attributes)
    return any(calls.FORMS in ir.StringAttr(attrs["sym_name"]).value for attrs in named)


def _wanted(op: ir.Operation) -> calls.Call | None:
    """The call that a composite asks for; None where it is none that can be made here."""
    if op.name != COMPOSITE:
        return None
    name = ir.StringAttr(op.attributes["name"]).value
    if not name.startswith(calls.PREFIX):
        return None
    attributes = op.attributes
    given = (
        read_any(attributes["composite_attributes"]) if "composite_attributes" in attributes else {}
    )
    operands, results = (
        [_tensor(v.type) for v in op.operands],
        [_tensor(v.type) for v in op.results],
    )
    known = [t for t in operands if t]
    if len(known) != len(operands) or len(results) != 1 or results[0] is None:
        return None
    call = calls.read(name, given, known, [results[0]])
    if isinstance(call, str):
        log.info("a composite %s stays in rows: %s", name, call)
        return None
    elsewhere = isinstance(call, calls.Convolution) and call.packed != packing()
    return None if elsewhere else call


def _tensor(kind: Any) -> calls.Tensor | None:
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    return calls.Tensor(tuple(kind.shape), dtype_of(kind.element_type))


def _replace(op: ir.Operation, call: calls.Call, key: str) -> None:
    items = ["t"] * len(call.operands) + [f"i{n}" for n in call.numbers]
    config = {"arguments": " ".join(items), "function": key}
    attributes: dict[str, ir.Attribute] = {
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED),
        "backend_config": ir.DictAttr.get({k: ir.StringAttr.get(v) for k, v in config.items()}),
        "call_target_name": ir.StringAttr.get(str(TARGET)),
        "operand_layouts": _layouts(call.operands),
        "result_layouts": _layouts([call.result]),
    }
    types, given = [v.type for v in op.results], list(op.operands)
    made = ir.Operation.create(
        _CUSTOM_CALL, types, given, attributes, loc=op.location, ip=ir.InsertionPoint(op)
    )
    op.results[0].replace_all_uses_with(made.results[0])
    op.erase()


def _layouts(tensors: list[calls.Tensor]) -> ir.Attribute:
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
def functions() -> Mapping[str, str] | None:
    """By symbol the keys by which programs call the functions; None, and a notice, without them."""
    try:
        found = library(packing())
    except (TVMError, OSError) as e:
        log.warning("products of integers run in rows: %s", e)
        return None
    keys = {name: bind(function) for name, function in found.items()}
    bound = {name: key for name, key in keys.items() if key is not None}
    return bound if len(bound) == len(keys) else None


def library(packed: Packing) -> Mapping[str, NativeFunction]:
    """The functions, compiled for a packing, from the cache of programs where they are there.

    Raises CompilerError where there is no compiler, or it fails.
    """
    home = INCLUDE / "relax2xla"
    compiler = find_compiler()
    content = b"\n".join((home / name).read_bytes() for name in _SOURCES)
    circumstances = [processor.machine(), *compiler, _version(compiler), *_OPTIONS, *packed.flags]
    store = cache.current()
    key = cache.key_of("integers", content, "\n".join(circumstances))
    kept = None if store is None else store.get(key)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "integers.so"
        if kept is None:
            given = [*packed.flags, "-I", str(INCLUDE), str(home / _SOURCES[0]), "-o", str(made)]
            run_compiler([*compiler, *_OPTIONS, *given], "the products of integers do not compile")
            if store is not None:
                store.put(key, made.read_bytes())
        else:
            made.write_bytes(kept)
        named = content + " ".join(packed.flags).encode()
        return NativeModule(made, calls.SYMBOLS, named).functions


def _version(compiler: list[str]) -> str:
    """What the compiler says of itself, so that a newer one compiles again."""
    try:
        done = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
