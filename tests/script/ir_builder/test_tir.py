"""T for IRBuilder: functions and parts of functions, against scripts that say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import tir
from relax2xla.errors import BuilderError, DiagnosticError, LegalizeError, OpError
from relax2xla.ir import (
    PointerType,
    PrimType,
    assert_structural_equal,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
)
from relax2xla.script import from_source
from relax2xla.script.ir_builder import IRBuilder
from relax2xla.script.ir_builder import tir as T
from relax2xla.tir.kernel.interpret import interpret
from tests.stablehlo.loops.test_kernels import run


def parsed(text: str) -> tir.PrimFunc:
    made = from_source("from relax2xla.script import tir as T\n" + text)
    assert isinstance(made, tir.PrimFunc)
    return made


def test_a_function_is_that_of_its_script() -> None:
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        a = T.arg("A", T.Buffer((4, 8), "float32"))
        b = T.arg("B", T.Buffer((4,), "float32"))
        with T.grid(4, 8) as (i, j), T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                T.buffer_store(b, 0.0, [vi])
            with T.If(vj < 5), T.Then():
                T.buffer_store(b, b[vi] + a[vi, vj], [vi])
    assert_structural_equal(
        builder.get(),
        parsed(
            """@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            if vj < 5:
                B[vi] = B[vi] + A[vi, vj]
"""
        ),
    )


def test_parts_stand_alone_and_print() -> None:
    n = tir.Var("n", "int32")
    with IRBuilder() as builder, T.While(n > 0), T.allocate([4], "float32", "local") as data:
        IRBuilder.name("data", data)
        T.evaluate(n)
    made = builder.get()
    assert isinstance(made, tir.While)
    assert made.script() == (
        "n = T.int32()\nwhile n > 0:\n"
        '    data = T.allocate([4], "float32", "local")\n    T.evaluate(n)'
    )
    assert data.type_annotation == PointerType(PrimType("float32"), "local")
    with IRBuilder() as builder, T.block("b", no_realize=True):
        IRBuilder.name("i", T.axis.spatial(8, n))
        T.reads()
        T.writes()
        T.evaluate(0)
    assert builder.get().script().split("\n")[:2] == [
        'with T.block("b", no_realize=True):',
        "    i = T.axis.spatial(8)",
    ]


def test_mistakes_are_errors() -> None:
    with pytest.raises(BuilderError, match="no IRBuilder is open"):
        T.evaluate(0)
    with IRBuilder(), pytest.raises(BuilderError, match=r"T\.arg outside of a function"):
        T.arg("a", T.int32())
    inner = T.prim_func()
    with (
        IRBuilder(),
        pytest.raises(BuilderError, match="a function in a function"),
        T.prim_func(),
        inner,
    ):
        pass


CONSTANT = """@T.prim_func
def main(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    data = T.allocate_const([3, -1, 4, 1], "int32", [4])
    K = T.Buffer((4,), "int32", data=data)
    for i in range(4):
        B[i] = A[i] * K[i]
"""


def test_constants_run_print_and_are_saved() -> None:
    func = parsed(CONSTANT)
    assert 'T.allocate_const([3, -1, 4, 1], "int32", [4])' in func.script()
    assert_structural_equal(parsed("\n".join(func.script().split("\n")[1:])), func)
    assert_structural_equal(load_json(save_json(func)), func)
    a, b = np.arange(4, dtype="int32") + 2, np.zeros(4, "int32")
    (got,) = run(CONSTANT, [a, b])[0]
    interpret(func, a, b)
    np.testing.assert_array_equal(got, [6, -3, 16, 5])
    np.testing.assert_array_equal(b, got)


MASKED = """@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    B.vstore([T.Ramp(0, 1, LANES)], A.vload([T.Ramp(0, 1, LANES)], predicate=MASK), predicate=MASK)
"""


@pytest.mark.parametrize("lanes", ["4", "T.vscale() * 4"])
def test_predicates_are_kept_and_refused(lanes: str) -> None:
    text = MASKED.replace("MASK", f"T.Broadcast(T.bool(True), {lanes})").replace("LANES", lanes)
    func = parsed(text)
    assert func.script().strip().endswith(text.strip().split("\n")[-1].strip())
    assert_structural_equal(load_json(save_json(func)), func)
    with pytest.raises(LegalizeError, match="predicate cannot be lowered"):
        run(text, [np.zeros(16, "float32"), np.zeros(16, "float32")])


def test_lanes_and_masks_are_checked() -> None:
    assert tir.Ramp(0, 1, tir.vscale() * 4).dtype == "int32xvscalex4"
    assert (tir.Broadcast(2, 4 * tir.vscale()) + 1).dtype == "int32xvscalex4"
    with pytest.raises(OpError, match=r"T.vscale\(\) times a number"):
        tir.Ramp(0, 1, tir.vscale() + 3)
    buffer = tir.decl_buffer((24,), "int32")
    index = tir.Ramp(0, 1, 4)
    with pytest.raises(OpError, match="must be boolean values, but got int32"):
        tir.BufferLoad(buffer, [index], tir.Broadcast(1, 4))
    with pytest.raises(OpError, match="with 8 lanes, but trying to load a vector with 4 lanes"):
        tir.BufferLoad(buffer, [index], tir.Broadcast(tir.IntImm("bool", 1), 8))


def test_a_reducer_is_printed_and_saved() -> None:
    made = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
    assert made.script() == "T.comm_reducer(lambda x, y: x + y, [T.float32(0.0)])"
    first = T.comm_reducer(
        lambda i, x, j, y: (tir.Select(x >= y, i, j), tir.max(x, y)),
        identity=[T.int32(-1), T.min_value("float32")],
    )
    text = load_json(save_json(first)).script()
    assert text.startswith("T.comm_reducer(lambda i, x, j, y: (T.Select(x >= y, i, j), T.max(x, y)")
    statement = tir.AttrStmt(made, "reduce_scope", tir.const(0, "int32"), tir.Evaluate(0))
    assert "T.comm_reducer" in load_json(save_json(statement)).script()


@pytest.mark.parametrize(
    ("combiner", "identity", "message"),
    [
        (lambda x: x, [0.0], "takes 1 values; identity has 1, so it takes 2"),
        (lambda x, y: (x, y), [0.0], "gives 2 values; identity has 1"),
    ],
)
def test_a_reducer_of_other_numbers(combiner: Any, identity: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T.comm_reducer(combiner, identity)


def test_a_reducer_in_a_script_is_read() -> None:
    text = """
# from relax2xla.script import tir as T

@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    with T.attr(T.comm_reducer(lambda i, x, j, y: (T.Select(x >= y, i, j), T.max(x, y)), [-1, T.float32(-1.0)]), "reduce_scope", 0):
        A[0] = T.float32(1.0)
"""  # noqa: E501
    func = parsed(text)
    (attr,) = [n for n in tir.stmt.walk(func.body) if isinstance(n, tir.AttrStmt)]
    assert isinstance(attr.node, tir.CommReducer)
    assert [v.dtype for v in attr.node.lhs] == ["int32", "float32"]
    assert text.split("with ")[1].split(', "reduce')[0] in func.script()
    again = parsed(func.script())
    assert_structural_equal(again, func)
    assert structural_hash(again) == structural_hash(func)
    for changed in (text.replace(">=", ">"), text.replace("[-1,", "[-2,")):
        assert not structural_equal(parsed(changed), func)
    with pytest.raises(DiagnosticError, match="takes 1 values; identity has 1, so it takes 2"):
        parsed(text.replace("i, x, j, y: (T.Select(x >= y, i, j), T.max(x, y))", "x: x").replace(
            "[-1, T.float32(-1.0)]", "[T.float32(0)]"
        ))  # fmt: skip
