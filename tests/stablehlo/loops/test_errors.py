"""Kernels that are wrong: one error, with the line of the script."""

from __future__ import annotations

import pytest

import relax2xla
from relax2xla import tir
from relax2xla.errors import DiagnosticError, LegalizeError, TVMError
from relax2xla.ir import IRModule, TensorStructInfo, Var
from relax2xla.script import from_source
from relax2xla.stablehlo import loops

FOUR = 'A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")'
SCRIPT = """from relax2xla.script import tir as T
@T.prim_func
def main({parameters}):
    for i in {loop}:
        {body}
"""


def lower(loop: str, body: str, shape: tuple[int, ...] = (4,)) -> None:
    func = from_source(SCRIPT.format(parameters=FOUR, loop=loop, body=body))
    assert isinstance(func, tir.PrimFunc)
    loops.lower(func, [Var(p.name, TensorStructInfo(shape, "float32")) for p in func.params])


@pytest.mark.parametrize(
    ("loop", "body", "message"),
    [
        ("range(4)", "C[i] = A[7]", "line 5: the index `.*7.*` of A is 7, but the axis has 4"),
        ("range(4)", "C[i] = A[i - 1]", "line 5: the index .* of A runs from -1 to 2"),
        ("range(5)", "C[i] = T.float32(1)", "line 5: the index `i` of C runs from 0 to 4"),
        ("T.vectorized(4)", "C[0] = A[i]", r"line 5: .* at once \\(vectorized\\), .* element of C"),
        ("T.parallel(4)", "C[1] = A[i] * A[i]", r"line 5: .* loop i, .* \\(parallel\\), write"),
        ('T.thread_binding(4, "threadIdx.x")', "C[0] = A[i]", "line 5: .* any of them may stay"),
        ("range(4)", "C[i] = A[1.5]", r"line 5: the index `T.float32\(1.5\)` of A is float32"),
        ("range(4)", "C[A[i]] = A[i]", r"line 5: the index `A\[i\]` of C is float32"),
        ("range(4)", "C[i] = A['x']", 'line 5: the index `"x"` of A is handle'),
        ("T.vectorized(4)", "C[i // 2] = A[i]", "line 5: .* one element of C"),
        ("T.parallel(4)", "C[i % 2] = A[i]", "line 5: .* one element of C"),
        ('T.thread_binding(4, "threadIdx.x")', "C[i // 2] = A[i]", "line 5: .* one element of C"),
        ("T.parallel(3)", "C[i + 1] = C[i]", r"line 5: .* \\(parallel\\), read elements of C"),
        ("T.vectorized(4)", "C[3 - i] = C[i]", "line 5: .* read elements of C that other steps"),
        (
            'T.thread_binding(4, "foo.x")',
            "C[i] = A[i]",
            "line 4: the loop i is bound to .* 'foo.x'",
        ),
        ("range(1 << 62)", "C[0] = C[0] * A[0] + A[1]", "line 4: the 4611686018427387904 steps"),
        ("range(4)", "C[i] = T.exp(i)", "line 5: T.exp takes floats; got int32"),
        (
            "range(4)",
            "C[i] = A[i] + T.Cast('float32', T.clz(A[i]))",
            "line 5: T.clz takes integers",
        ),
    ],
)
def test_a_kernel_that_cannot_be_run(loop: str, body: str, message: str) -> None:
    with pytest.raises(LegalizeError, match=message.replace("\\\\", "\\")):
        lower(loop, body)


def test_threads_that_read_what_others_write_do_not_run_in_turn() -> None:
    body = "with T.block():\n            if A[i] > T.float32(0):\n                C[0] = A[i]"
    with pytest.raises(LegalizeError, match="read what others have written to C"):
        lower('T.thread_binding(4, "threadIdx.x")', body + "\n            A[i] = C[0]")


@pytest.mark.parametrize(
    ("condition", "body"),
    [
        ("T.bool(True)", "C[i] = C[i] + A[i]"),
        ("A[i] > T.float32(0)", "C[i] = C[i] + A[i]"),
        ("C[i] > T.float32(0)", "with T.block():\n                A[i] = A[i] + C[i]"),
    ],
)
def test_a_loop_without_an_end(condition: str, body: str) -> None:
    with pytest.raises(LegalizeError, match=r"line 5: the condition .* the loop never ends"):
        lower("range(4)", f"while {condition}:\n            {body}")


def test_loops_that_end() -> None:
    lower("range(4)", "while C[i] < A[i]:\n            C[i] = C[i] + T.float32(1)")
    lower("range(4)", "while T.bool(False):\n            C[i] = A[i]")


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        ("T.alloc_buffer((1 << 20, 1 << 22))", "line 5: .* B would take .*, 17592186044416 bytes"),
        ("T.decl_buffer((1 << 20, 1 << 22))", "line 5: .* B would take .*, 70368744177664 bytes"),
        ("T.alloc_buffer((-4, 4))", r"line 5: the buffer B has the shape \(-4, 4\)"),
        (
            'T.decl_buffer((2, 2), "int32", data=A.data)',
            "line 6: .* views memory of float32 as int",
        ),
    ],
)
def test_a_buffer_that_cannot_be(buffer: str, message: str) -> None:
    with pytest.raises(LegalizeError, match=message):
        lower("range(4)", f"B = {buffer}\n        C[i] = C[i] + T.Cast('float32', B[0, 0])")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("C[i] = A[i, 0]", ":5:16: the buffer A has 1 axes; got 2 indices"),
        ("C[i] = A[j]", ":5:18: undefined name 'j'"),
        ("C[i] = B[i]", ":5:16: undefined name 'B'"),
        ('C[i] = A[i] + T.Cast("float32", T.int8(300))', ":5:41: literal 300 does not fit int8"),
        ("C[i] = A[i // 0]", ":5:18: division by the literal 0"),
        ("C[i] = T.max(*A)", ":5:22: a Buffer cannot be unpacked with"),
        ("C[i] = " + " + ".join(["A[i]"] * 20000), ":5:9: expressions are nested too deeply"),
        ("C[i] = " + "-" * 20000 + "A[i]", ":5:9: expressions are nested too deeply"),
        ("for j in range(A[i]):\n            C[j] = A[i]", ":5:18: a loop runs over integers"),
    ],
)
def test_a_script_that_is_wrong(body: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        lower("range(4)", body)


def test_recursion() -> None:
    text = """from relax2xla.script import ir as I, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        C[0] = A[0]
        Module.main(A.data, C.data)
"""
    module = from_source(text)
    assert isinstance(module, IRModule)
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    with pytest.raises(LegalizeError, match="line 7: the call of @main for its effect"):
        loops.lower(func, [Var(p.name, TensorStructInfo((4,), "float32")) for p in func.params])


def test_arguments_of_another_rank() -> None:
    with pytest.raises(TVMError, match=r"A has 1 axes; got a tensor of shape \(4, 1\)"):
        lower("range(4)", "C[i] = A[i]", (4, 1))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if A[0]:\n        C[0] = A[0]", "line 5: a condition of dtype float32 is not read"),
        ("import os\n    C[0] = A[0]", "line 5: `Import` is not read"),
        ("for i in range(4):\n        break", "line 6: `Break` is not read"),
        ("C[0] = (x := A[0])", r"line 5: `\(x := A\[0\]\)` is not read"),
    ],
)
def test_a_kernel_that_was_kept_as_text(body: str, why: str) -> None:
    func = from_source(
        f"from relax2xla.script import tir as T\n\n@T.prim_func\ndef main({FOUR}):\n    {body}\n"
    )
    with pytest.raises(TVMError, match=f"main cannot be run: {why}"):
        relax2xla.build(func)


def test_bounds_of_a_loop_are_integers() -> None:
    with pytest.raises(TypeError, match=r"the loop i has the extent `.*`, which is float32"):
        tir.For(tir.Var("i", "int32"), 0, tir.const(1.5, "float32"), "serial", tir.stmt_seq(1))


def test_threads_are_counted_by_integers() -> None:
    with pytest.raises(DiagnosticError, match=r":5:14: T.launch_thread: the extent `T.float32"):
        lower("range(4)", 'tx = T.launch_thread("threadIdx.x", 4.5)\n        C[i] = A[i]')


def test_steps_that_write_elements_of_their_own() -> None:
    lower("T.parallel(4)", "C[i // 2 * 2 + i % 2] = A[i]")
    lower("T.parallel(4)", "C[i] = A[i] + C[i]")
    lower("T.parallel(4)", "C[i // 2] = C[i // 2] + A[i]")
    lower("T.parallel(4)", "C[i] = A[i]")
    lower("T.vectorized(4)", "C[0] = A[0]")
    lower("T.parallel(4)", "C[0] = C[0] + A[i]")
