"""Programs run by StableHLO's reference interpreter: the meaning of each operation, and slow.

It computes element by element (about two microseconds for an addition), knows nothing of XLA, and
ends its process where it meets what it does not know, so that a child process runs it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.dtypes import Array
from relax2xla.errors import UnsupportedError
from relax2xla.ir.module import IRModule
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, flatten_info
from relax2xla.stablehlo.codecs import type_to_sinfo
from relax2xla.stablehlo.constants import read_elements
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.mlir import ir, operations, stablehlo
from relax2xla.stablehlo.serialize import parse, serialize

_SERVE: Final = "from relax2xla.stablehlo.interpreter import serve; serve()"


def interpret(mod: IRModule, args: Sequence[Array], seconds: float = 60.0) -> list[Array]:
    """The results of ``main`` of a program of rows with static shapes, in order.

    args: one array for each parameter, of its dtype and shape

    Raises UnsupportedError for what the interpreter does not run (custom calls, for one), and for
    what takes longer than ``seconds``.
    """
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    program = serialize(emit(_closed(mod, args), resources=False), "bytecode")
    try:
        # -P: nothing that lies in the working directory is imported.
        done = subprocess.run(
            [sys.executable, "-P", "-c", _SERVE],
            input=program,
            capture_output=True,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnsupportedError(
            f"StableHLO's interpreter takes longer than {seconds:g} s for this program"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        telling = [line for line in said if "rror" in line or "not supported" in line]
        raise UnsupportedError(
            f"StableHLO's interpreter does not run this program ({_how(done.returncode)}): "
            f"{(telling or said or ['it says nothing'])[-1][:300]}"
        )
    module = parse(done.stdout)
    with module.context:
        given = iter([op for op in operations(module) if op.name == "stablehlo.constant"])
        return [_joined(given, info) for info in flatten_info(mod["main"].ret_struct_info)]


def _closed(mod: IRModule, args: Sequence[Array]) -> IRModule:
    """``mod`` with ``main`` of no parameters: jaxlib gives the interpreter arrays of few dtypes."""
    main = mod["main"]
    bound = main.bind_params(dict(zip(main.params, args, strict=True)))
    # Names of arguments that are no more.
    attrs = {"global_symbol": "main"}
    return mod.replace({**mod.functions, mod.get_global_var("main"): bound.replace(attrs=attrs)})


def _joined(given: Iterator[Any], info: StructInfo) -> Array:
    """The next result: of a complex one its real parts, then its imaginary ones."""
    assert isinstance(info, TensorStructInfo)
    op = next(given)
    found = type_to_sinfo(op.results[0].type)
    assert isinstance(found, TensorStructInfo)
    data = read_elements(op, found)
    if not info.dtype.startswith("complex"):
        return data
    made = np.empty(data.shape, info.dtype)
    made.real, made.imag = data, read_elements(next(given), found)
    return made


def _how(status: int) -> str:
    if status > 0:
        return f"it ended with status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"


# ---- in the child
def serve() -> None:
    """Run the program of standard input; its results are the constants of another program."""
    answer = os.fdopen(os.dup(1), "wb")
    # What libraries print must not look like the answer.
    os.dup2(2, 1)
    module = parse(sys.stdin.buffer.read())
    with module.context, ir.Location.unknown():
        for op in operations(module):
            if op.name == "stablehlo.scatter":
                _keep_operands(op)
            elif (
                op.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == "main"
            ):
                _split_results(op)
        results: Any = stablehlo.eval_module(module, [])
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            for value in results:
                ir.Operation.create("stablehlo.constant", [value.type], attributes={"value": value})
        found = serialize(made, "bytecode")
    assert isinstance(found, bytes)
    answer.write(found)
    answer.close()


def _keep_operands(scatter: ir.Operation) -> None:
    """Give it copies of what it changes: the interpreter writes the results into its operands."""
    with ir.InsertionPoint(scatter):
        for i, result in enumerate(scatter.results):
            old = scatter.operands[i]
            copied = ir.Operation.create("stablehlo.maximum", [result.type], [old, old])
            scatter.operands[i] = copied.results[0]


def _split_results(main: ir.Operation) -> None:
    """Give the two parts of complex results: jaxlib cannot take arrays of complex elements."""
    (block,) = main.regions[0].blocks
    last = list(block.operations)[-1]
    values: list[Any] = []
    with ir.InsertionPoint(last):
        for value in last.operands:
            t = ir.RankedTensorType(value.type)
            if not isinstance(t.element_type, ir.ComplexType):
                values.append(value)
                continue
            half = ir.RankedTensorType.get(t.shape, t.element_type.element_type)
            for name in ("stablehlo.real", "stablehlo.imag"):
                values.append(ir.Operation.create(name, [half], [value]).results[0])
        if len(values) == len(last.operands):
            return
        ir.Operation.create("func.return", [], values)
    last.operation.erase()
    results = ir.FunctionType.get([], [v.type for v in values])
    main.attributes["function_type"] = ir.TypeAttr.get(results)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
