"""The one door to jaxlib's MLIR bindings: dialects, contexts, diagnostics.

All other modules of this room import ``ir`` and the dialects from here, so that a jaxlib that moves
something is met in one file (design decision D13).
"""

from __future__ import annotations

import contextlib
import functools
import io
import os

# As jax does when it is imported first: no INFO lines of the runtime on the user's terminal.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from typing import Any

import numpy.typing as npt
from jaxlib.mlir import ir as ir
from jaxlib.mlir import passmanager
from jaxlib.mlir._mlir_libs import _chlo as chlo
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir._mlir_libs import _mlirHlo as mhlo
from jaxlib.mlir._mlir_libs import _stablehlo as stablehlo

# By its dialect: in jaxlib 0.12 the library, imported first, imports that while it is itself half
# there, and JAX, which needs the other half, fails later.
from jaxlib.mlir.dialects import sdy


def context() -> ir.Context:
    """A new MLIR context that knows every dialect a StableHLO program may use.

    Loaded are those whose operations the emitter makes; a program that is read brings the others,
    of which jaxlib registers so many that loading them takes half of a context's time.
    """
    made = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made.append_dialect_registry(registry)
    _ = made.dialects["func"]  # asking for it loads it
    mhlo.register_mhlo_dialect(made)
    sdy.register_dialect(made)
    chlo.register_dialect(made)
    stablehlo.register_dialect(made)
    stablehlo.register_interpreter_dialect(made)
    _load_quant(made)
    # One thread parses and prints as fast for our sizes, and starts none.
    made.enable_multithreading(False)
    return made


def to_bytecode(module: ir.Module) -> bytes:
    """A module as MLIR bytecode, with its locations."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def _load_quant(ctx: ir.Context) -> None:
    """Load the dialect of quantised types.

    jaxlib registers it nowhere, but this pass depends on it, so that running the pass (here on
    nothing) loads it. Where a jaxlib has no such pass, quantised types are a parse error.
    """
    _register_passes()
    with contextlib.suppress(ValueError, ir.MLIRError), ctx, ir.Location.unknown():
        pipeline = passmanager.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)")
        pipeline.run(ir.Module.create().operation)


@functools.cache
def _register_passes() -> None:
    stablehlo.register_stablehlo_passes()


def lower_chlo(module: ir.Module) -> None:
    """Write operations of CHLO as those of StableHLO, in place, where it has passes for them."""
    if not any(op.name.startswith("chlo.") for op in operations(module)):
        return
    _register_passes()
    passes = "chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo"
    with module.context, ir.Location.unknown():
        pipeline = passmanager.PassManager.parse(f"builtin.module(func.func({passes}))")
        pipeline.run(module.operation)
    # Shapes are integers to StableHLO and indices to the passes, which leave casts between these.
    for op in operations(module):
        if op.name == "builtin.unrealized_conversion_cast":
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()


def operations(root: Any) -> list[ir.Operation]:
    """``root`` (a module or an operation) and all operations in it, what is inside first.

    MLIR's own walk calls back into Python, and makes a RuntimeError of a Ctrl-C that comes then.
    """
    found: list[ir.Operation] = []
    stack: list[ir.Operation] = [root.operation]
    while stack:
        op = stack.pop()
        found.append(op)
        for region in op.regions:
            for block in region.blocks:
                stack += [o.operation for o in block.operations]
    found.reverse()
    return found


def dense(values: npt.NDArray[Any], t: ir.Type | None = None) -> ir.Attribute:
    """The dense attribute of a contiguous array, of tensor type ``t`` (jaxlib's stub omits arrays).

    With ``t``, ``values`` are the raw bytes of its elements, or of one element: a splat.
    """
    get: Any = ir.DenseElementsAttr.get
    return get(values) if t is None else get(values, type=t)


def first_line(error: Exception) -> str:
    """An MLIR diagnostic without its Python prefix and location noise, on one line."""
    text = str(error)
    _, _, rest = text.partition("error: ")
    return " ".join((rest or text).split())
