"""One StableHLO program there and back: read, written, compared as text and as XLA computes it."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from relax2xla.cli.reading.model import Array, make_inputs
from relax2xla.dtypes import DTYPES
from relax2xla.errors import StableHLOParseError, TVMError
from relax2xla.importers.files import check_file, symbols
from relax2xla.ir import Call, Function, IRModule, StructInfo, TensorStructInfo, Var
from relax2xla.ir.lattice import SymMap, free_symbolic_vars, substitute
from relax2xla.ir.rewrite import post_order_deep

Status = Literal["same", "identical", "differs", "unparsed", "error"]

# The line that separates the programs of one file, as mlir-opt's --split-input-file has it.
SPLIT: Final = re.compile(rb"(?m)^// -----[^\n]*\n?")
BYTECODE: Final = b"ML\xefR"
# The size that symbolic dimensions get.
SIZE: Final = 4
# How custom calls that only compare are called.
ASSERTION: Final = '"check.'


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program.

    ``status``: "same" (text and results), "identical" (the text; not run, ``detail`` says why),
    "differs", "unparsed" (MLIR does not take it), "error". ``ops``: operations in the program.
    ``died``: the process that did the work ended, or had to be ended.
    """

    status: Status
    detail: str = ""
    ops: int = 0
    seconds: float = 0.0
    died: bool = False


def split(data: bytes) -> list[bytes]:
    """The programs in a file; text may hold several."""
    if data.startswith(BYTECODE):
        return [data]
    return [part for part in SPLIT.split(data) if part.strip()] or [data]


def check_program(file: Path, part: int, run: bool, seed: int) -> Outcome:
    """The outcome of program number ``part`` of ``file``; only exits and Ctrl-C are raised."""
    start = time.perf_counter()
    try:
        check_file(file)
        found = _check(_whole(split(file.read_bytes())[part], file.parent), run, seed)
    except StableHLOParseError as e:
        found = Outcome("unparsed", str(e).splitlines()[0][:300])
    except Exception as e:  # whatever it is, it is one row
        known = isinstance(e, TVMError)
        found = Outcome("error", _line(e) if known else f"{type(e).__name__}: {_line(e)}")
    return replace(found, seconds=time.perf_counter() - start)


def _whole(data: bytes, folder: Path) -> bytes | str:
    """The program with the weights in it that it names in another file of ``folder``."""
    from relax2xla.importers.beside import Found
    from relax2xla.importers.stablehlo import WEIGHTS, from_stablehlo
    from relax2xla.stablehlo import parse, to_stablehlo

    if WEIGHTS not in parse(data).operation.attributes:
        return data
    return to_stablehlo(from_stablehlo(data, raise_ops=False, weights=Found(folder)))


def _line(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory"
    return " ".join(str(error).split())[:300] or type(error).__name__


def _check(data: bytes | str, run: bool, seed: int) -> Outcome:
    from relax2xla.stablehlo import emit, parse, read

    module = parse(data)
    before = str(module)
    mod = read(module)
    again = emit(mod)
    after = str(again)
    ops = sum(1 for f in _functions(mod) for n in post_order_deep(f) if isinstance(n, Call))
    if after != before:
        return Outcome("differs", _first_difference(before, after), ops)
    if not run:
        return Outcome("identical", ops=ops)
    try:
        program, ours, inputs = _runnable(module, again, mod, seed)
        expected = program(inputs)
    except Exception as e:  # XLA's own errors, of many classes, and what cannot be run at all
        return Outcome("identical", f"not run: {_line(e)}", ops)
    try:
        found = ours(inputs)
    except Exception as e:
        return Outcome("differs", f"XLA runs the file, but not what was written: {_line(e)}", ops)
    difference = _different(expected, found)
    if difference and _different(expected, program(inputs)):
        return Outcome("identical", "two runs of the file differ: it is not deterministic", ops)
    return Outcome("differs" if difference else "same", difference, ops)


def _functions(mod: IRModule) -> list[Function]:
    return list(mod.relax_functions().values())


def _first_difference(before: str, after: str) -> str:
    pairs = itertools.zip_longest(before.splitlines(), after.splitlines(), fillvalue="(nothing)")
    for number, (a, b) in enumerate(pairs, 1):
        if a != b:
            return f"line {number}: {a.strip()[:120]} became {b.strip()[:120]}"
    return "only white space differs"


# -- running ---------------------------------------------------------------------------------------
class _Program:
    """A program compiled by XLA: called with numpy arrays it gives its results."""

    def __init__(self, module: Any) -> None:
        from relax2xla.stablehlo.codecs import type_to_sinfo
        from relax2xla.vm.pjrt import compiler, xla

        with module.context:
            infos = [type_to_sinfo(t) for t in _entry(module).type.results]
        if any(not isinstance(i, TensorStructInfo) for i in infos):
            raise TVMError("a result is no array")
        if dynamic := symbols(infos):
            raise TVMError(f"the sizes of results are not known: {', '.join(dynamic)}")
        self.loaded = compiler.Loaded(module, [xla.aval(i) for i in infos], None)  # pyright: ignore[reportArgumentType]

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        from relax2xla.vm.pjrt import xla

        return [np.asarray(a) for a in self.loaded.run([xla.device_put(a, None) for a in inputs])]


def _runnable(
    module: Any, again: Any, mod: IRModule, seed: int
) -> tuple[_Program, _Program, list[Array]]:
    """Both programs compiled, and inputs for them; both MLIR modules are changed."""
    from relax2xla.stablehlo.specialise import specialise
    from relax2xla.stablehlo.untrusted.gate_mlir import check_mlir

    infos: list[StructInfo] = [p.struct_info for p in _main(mod, _entry(module).name.value).params]
    for m in (module, again):
        _call_it_main(m)
        _assertions_as_results(m)
    tensors = [i for i in infos if isinstance(i, TensorStructInfo)]
    if odd := [i.dtype for i in tensors if i.dtype and i.dtype not in DTYPES]:
        raise TVMError(f"no array has the dtype {odd[0]}, so no inputs can be made")
    if dynamic := symbols(infos):
        sizes: SymMap = {v: SIZE for i in infos for v in free_symbolic_vars(i)}
        infos = [substitute(i, sizes) for i in infos]
        tensors = [i for i in infos if isinstance(i, TensorStructInfo)]
        if len(tensors) != len(infos):
            raise TVMError(f"no inputs can be made for {', '.join(dynamic)}")
        module, again = specialise(module, tensors), specialise(again, tensors)
    # Said first: what waits takes tokens, for which no input can be made.
    check_mlir(module)
    inputs = make_inputs([Var(f"arg{i}", info) for i, info in enumerate(infos)], (), seed, {})
    return _Program(module), _Program(again), inputs


def _main(mod: IRModule, name: str) -> Function:
    """The function that is called ``name`` in MLIR; its Relax name is an identifier."""
    for gvar, func in mod.relax_functions().items():
        if func.attrs.get("sym_name", gvar.name_hint) == name:
            return func
    raise TVMError(f"{name} is no function that can be run")


def _entry(module: Any) -> Any:
    """The function ``main``, or the only public one."""
    public: list[Any] = []
    for op in module.body.operations:
        if op.operation.name != "func.func":
            continue
        if op.name.value == "main":
            return op
        if "sym_visibility" not in op.attributes or op.visibility.value != "private":
            public.append(op)
    if len(public) != 1:
        raise TVMError(f"there is no function main, and {len(public)} are public")
    return public[0]


def _call_it_main(module: Any) -> None:
    from relax2xla.stablehlo.mlir import ir

    entry = _entry(module)
    with module.context:
        entry.attributes["sym_name"] = ir.StringAttr.get("main")
        entry.attributes["sym_visibility"] = ir.StringAttr.get("public")


def _assertions_as_results(module: Any) -> None:
    """Let ``main`` return what custom calls ``check.*`` (StableHLO's own tests) compare.

    XLA knows no such call; so their operands are compared too.
    """
    from relax2xla.stablehlo.mlir import ir

    entry = _entry(module)
    block = entry.regions[0].blocks[0]
    checks = [
        op.operation
        for op in block.operations
        if op.operation.name == "stablehlo.custom_call"
        and str(op.operation.attributes["call_target_name"]).startswith(ASSERTION)
        and not len(op.operation.results)
    ]
    if not checks:
        return
    *_, last = block.operations
    outputs = [*last.operation.operands, *(v for c in checks for v in c.operands)]
    with module.context, ir.Location.unknown():
        for op in (*checks, last.operation):
            op.erase()
        ir.Operation.create("func.return", [], outputs, ip=ir.InsertionPoint(block))
        types = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in outputs])
        entry.attributes["function_type"] = ir.TypeAttr.get(types)
        if "res_attrs" in entry.attributes:
            del entry.attributes["res_attrs"]


# -- comparing -------------------------------------------------------------------------------------
def _different(expected: Sequence[Array], found: Sequence[Array]) -> str:
    """How results differ in their bits, any NaN being equal to any other; "" where they do not."""
    if len(expected) != len(found):
        return f"{len(found)} results instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {i} is {b.dtype}{b.shape} instead of {a.dtype}{a.shape}"
        x, y = _parts(a), _parts(b)
        bits = np.dtype(f"u{x.dtype.itemsize}")
        wrong = int(np.sum((x.view(bits) != y.view(bits)) & ~((x != x) & (y != y))))
        if wrong:
            return f"result {i}: {wrong} of {a.size} elements differ"
    return ""


def _parts(a: Array) -> Array:
    """The numbers in order, those of complex ones side by side."""
    flat: Array = np.ascontiguousarray(a).reshape(-1)
    return flat.view(np.real(flat).dtype) if flat.dtype.kind == "c" else flat
