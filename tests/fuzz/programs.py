"""Damaged programs in every form: ONNX, StableHLO as text, bytecode and artefact, Relax text.

What can still be read is printed and parsed again, and one in four is built and run: programs that
nobody meant to write reach places that tests do not.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fuzz.mutate import some_bytes, some_text
from tests.fuzz.target import Target, Wrong

# Elements that the parameters of a program may have together for it to be run.
LARGEST: Final = 1 << 20
# One program of so many is run.
EVERY: Final = 4
# The size that symbolic dimensions get.
SIZE: Final = 2


class _Program(Target):
    """A program in a file."""

    def attempt(self, made: bytes, folder: Path) -> str:
        from relax2xla.importers.files import load

        path = folder / f"program{self.suffix}"
        path.write_bytes(made)
        self.phase("read")
        mod = load(path)
        self.check(mod)
        return "read" if sum(made) % EVERY else run(mod, path, self.phase)

    def check(self, mod: Any) -> None:
        """What holds for every module that was read: its text says what it is."""
        from relax2xla.errors import StructuralEqualError, TVMError
        from relax2xla.ir.equal import assert_structural_equal
        from relax2xla.script.entry import from_source
        from relax2xla.script.tables import script_tables

        self.phase("print")
        text, tables = script_tables(mod)
        self.phase("parse")
        try:
            again = from_source(text, {"metadata": tables})
            assert_structural_equal(mod, again)
        except StructuralEqualError as e:
            raise Wrong(f"its text says something else: {e}") from None
        except TVMError as e:
            raise Wrong(f"its text cannot be read: {e}") from None


def run(mod: Any, file: Path, phase: Callable[[str], None]) -> str:
    """Build what ``file`` holds, and call its first function where arguments are small."""
    import relax2xla

    phase("build")
    executable = relax2xla.build(mod)
    names = [g.name_hint for g in mod.functions if g.name_hint in set(executable)]
    if not names:
        return "built"
    return call(executable, names[0], file, phase)


def call(executable: Any, name: str, file: Path, phase: Callable[[str], None]) -> str:
    """Call a function of what was made of ``file`` where its arguments are known and small."""
    import jax
    import numpy as np

    from relax2xla import VirtualMachine
    from relax2xla.cli.reading.model import inputs_of, nest
    from relax2xla.ir.lattice import free_symbolic_vars, substitute
    from relax2xla.vm.call.machine import BoundFunction

    phase("load")
    machine = VirtualMachine(executable)
    function = machine[name]
    infos = [p.struct_info for p in function.params]
    sizes = {v: SIZE for i in infos for v in free_symbolic_vars(i)}
    infos = [substitute(i, sizes) for i in infos]
    if sum(map(_elements, infos)) > LARGEST:
        return "built"
    shapes = {v.name: SIZE for v in sizes}
    given = nest(function.params, inputs_of(machine, name, file, (), 0, shapes))
    phase("compile")
    if isinstance(function, BoundFunction):
        machine.warm(name, *map(_typed, infos))
    else:
        machine.warm(name)
    phase("run")
    for leaf in jax.tree.leaves(function(*given)):
        if isinstance(leaf, jax.Array):
            array = np.asarray(leaf)
            if array.shape != leaf.shape or array.dtype != leaf.dtype:
                raise Wrong(f"a result of shape {leaf.shape} holds an array of {array.shape}")
    return "ran"


def _typed(info: Any) -> Any:
    """Struct info with the dtype that the arguments made for it have."""
    from relax2xla.ir import TensorStructInfo, TupleStructInfo

    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_typed(f) for f in info.fields])
    if isinstance(info, TensorStructInfo) and info.dims is not None and not info.dtype:
        return TensorStructInfo(info.dims, "float32", info.vdevice)
    return info


def _elements(info: Any) -> int:
    import math

    from relax2xla.ir import TensorStructInfo, TupleStructInfo

    if isinstance(info, TupleStructInfo):
        return sum(map(_elements, info.fields))
    dims = info.dims if isinstance(info, TensorStructInfo) else None
    return math.prod(d for d in dims or () if isinstance(d, int))


# -- ONNX ------------------------------------------------------------------------------------------
class Onnx(_Program):
    """Five models of many operators, and those of ONNX's own tests of operators."""

    name, title, suffix = "onnx", "ONNX models with damaged fields or bytes", ".onnx"

    def prepare(self, folder: Path) -> None:
        from tests.importers.onnx.mutants import MODELS

        self.models = [make() for make in MODELS.values()]
        self.tests = node_tests()

    def make(self, draw: random.Random) -> bytes:
        from tests.importers.onnx.mutants import mutated

        return mutated(draw.choice(self.models if draw.random() < 0.4 else self.tests), draw)


def node_tests() -> list[Any]:
    """The models of the tests of operators in the package onnx, which makes them."""
    import numpy as np
    from onnx.backend.test.case.node import collect_testcases

    with np.errstate(all="ignore"):
        return [case.model for case in collect_testcases(None) if case.model is not None]


# -- StableHLO -------------------------------------------------------------------------------------
class _StableHLO(_Program):
    """Programs of JAX, and some by hand."""

    def prepare(self, folder: Path) -> None:
        self.texts = stablehlo_texts()

    def check(self, mod: Any) -> None:
        from relax2xla.stablehlo import emit, read
        from relax2xla.transform import RaiseStableHLO

        self.phase("emit")
        once = emit(mod)
        again = str(emit(read(once)))
        if again != str(once):
            raise Wrong("writing what was read gives another text")
        super().check(mod)
        self.phase("raise")
        RaiseStableHLO()(mod)


class Text(_StableHLO):
    """StableHLO's pretty and generic text."""

    name, title, suffix = "mlir", "StableHLO text with damaged words, numbers and lines", ".mlir"

    def make(self, draw: random.Random) -> bytes:
        text = some_text(draw.choice(self.texts), draw, STABLEHLO_WORDS, self.texts)
        return text.encode("utf-8", "replace")


class Bytecode(_StableHLO):
    """MLIR's bytecode."""

    name, title, suffix = "mlirbc", "MLIR bytecode with damaged bytes", ".mlirbc"
    form = "bytecode"

    def prepare(self, folder: Path) -> None:
        from relax2xla.errors import TVMError
        from relax2xla.stablehlo import parse, read, to_stablehlo

        self.files: list[bytes] = []
        for text in stablehlo_texts():
            try:
                self.files.append(to_stablehlo(read(parse(text)), self.form))
            except TVMError:  # what portable artefacts cannot hold
                continue

    def make(self, draw: random.Random) -> bytes:
        return some_bytes(draw.choice(self.files), draw)


class Portable(Bytecode):
    """StableHLO's portable artefacts."""

    name, title, suffix = "portable", "portable artefacts with damaged bytes", ".stablehlo"
    form = "portable"


@functools.cache
def stablehlo_texts() -> tuple[str, ...]:
    """Programs in both forms of MLIR's text."""
    import jax

    from relax2xla.stablehlo import parse
    from tests.stablehlo.jax_programs import PROGRAMS
    from tests.stablehlo.test_roundtrip import TEXTS

    made = list(TEXTS.values())
    for _, fn, args in PROGRAMS:
        lowered = str(jax.jit(fn).lower(*args).compiler_ir("stablehlo"))
        made += [lowered, parse(lowered).operation.get_asm(print_generic_op_form=True)]
    return tuple(m for m in made if len(m) < 20_000)


STABLEHLO_WORDS: Final = (
    *("stablehlo.add", "stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose"),
    *("stablehlo.while", "stablehlo.if", "stablehlo.case", "stablehlo.gather", "stablehlo.sort"),
    *("stablehlo.custom_call", "stablehlo.dot_general", "stablehlo.iota", "stablehlo.reduce"),
    *("stablehlo.rng", "stablehlo.dynamic_slice", "stablehlo.pad", "stablehlo.return", "chlo.erf"),
    *("stablehlo.infeed", "stablehlo.all_reduce", "stablehlo.tuple", "stablehlo.constant"),
    *("tensor<f32>", "tensor<2xi32>", "tensor<?xf32>", "tensor<0xi1>", "tensor<2x2xf64>"),
    *("tensor<1048576x1048576xf32>", "tensor<9223372036854775807xi8>", "tensor<2xf6E2M3FN>"),
    *("!stablehlo.token", "tuple<tensor<f32>>", "tensor<*xf32>", "tensor<2xindex>", "none", "i64"),
    *("f32", "bf16", "f8E4M3FN", "f6E3M2FN", "f4E2M1FN", "i4", "ui8", "i1", "complex<f32>"),
    *("%arg0", "%0", "%1", "@main", "@other", "dense<1>", "dense<>", "array<i64: 0, 1>", "unit"),
    *("func.func", "func.call", "return", "module", "public", "private", "loc", "true", "dims"),
)


# -- Relax -----------------------------------------------------------------------------------------
class Relax(_Program):
    """TVMScript text of every feature."""

    name, title, suffix = "relax", "Relax text with damaged words, numbers and lines", ".relax"

    def prepare(self, folder: Path) -> None:
        from tests.parity.corpus import of_operators, written

        self.texts = [p.text for p in (*written(), *of_operators())]

    def make(self, draw: random.Random) -> bytes:
        text = some_text(draw.choice(self.texts), draw, RELAX_WORDS, self.texts)
        return text.encode("utf-8", "replace")


RELAX_WORDS: Final = (
    *("R.add", "R.nn.softmax", "R.matmul", "R.reshape", "R.call_packed", "R.call_tir", "R.shape"),
    *("R.match_cast", "R.Tuple", "R.Tensor", "R.Object", "R.Shape", "R.Prim", "R.Callable"),
    *("R.dataflow", "R.output", "R.func_attr", "R.const", "R.str", "R.prim_value", "R.dtype"),
    *("R.stablehlo.add", "R.stablehlo.while_", "R.call_pure_packed", "R.nonzero", "R.concat"),
    *("R.print", "R.assert_op", "R.function", "R.macro", "R.tuple", "R.ones", "R.strided_slice"),
    *("T.int64", "T.float32", "T.prim_func", "T.Buffer", "I.ir_module", "I.GlobalVar", "Module"),
    *("x", "y", "gv", "lv", "cls", "n", "m", "main", '"float32"', '"int64"', '"n"', "None", "True"),
    *("axis", "dtype", "with", "if", "else", "return", "def", "class", "lambda", "for", "while"),
    *("import", "__import__", "eval", "exec", "open", "(n + 1)", "*", "**", "->", ":", "=", "()"),
)
