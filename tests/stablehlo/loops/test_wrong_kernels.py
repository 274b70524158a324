"""Kernels that are wrong in the parser's or the lowering's eyes: the line and the reason.

Those of which no error is said here are in ``test_errors``; TVM refuses each of these, too, but for
the cases that say otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import tir
from relax2xla.errors import OperandTypeError, OpError, TVMError
from relax2xla.ir import IRModule
from relax2xla.script import from_source
from relax2xla.tir.kernel.interpret import interpret
from relax2xla.tir.kernel.well_formed import verify_well_formed
from relax2xla.tvm.runtime.executables import build

HEAD = "from relax2xla.script import tir as T, ir as I\n"
FLOATS = 'A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")'
INTEGERS = FLOATS.replace("float32", "int32")
BLOCK = """for i in range(4):
    with T.block("b"):
        vi = T.axis.spatial(4, i)
        BODY"""


def kernel(body: str, params: str = FLOATS) -> str:
    """A script whose body begins in its line 4."""
    indented = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"{HEAD}@T.prim_func\ndef main({params}):\n{indented}"


def block(body: str, head: str = 'T.block("b")') -> str:
    return BLOCK.replace('T.block("b")', head).replace("BODY", body.replace("\n", "\n        "))


def run(text: str) -> list[np.ndarray]:
    """What the kernel leaves in its buffers, by XLA; the interpreter leaves the same."""
    made = from_source(text)
    func = made["main"] if isinstance(made, IRModule) else made
    assert isinstance(func, tir.PrimFunc)
    args = [np.arange(1, 5).astype(b.dtype) for b in func.buffer_map.values()]
    wanted = [a.copy() for a in args]
    build(made)["main"](*args)
    interpret(func, *wanted)
    for got, want in zip(args, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return args


COPY = "B[vi] = A[vi]"
BUFFERS = [
    ("B = T.alloc_buffer((4,), scope=3)", ":4:9: the scope of a buffer is a string; got int 3"),
    ("B = T.decl_buffer((4,), data=3)", ":4:9: data= is a pointer such as A.data .* got int 3"),
    ("B = T.decl_buffer((4,), data=A)", ":4:9: data= is a pointer such as A.data"),
    ("B = T.alloc_buffer((4,), strides=(1, 1))", ":4:9: 2 strides for 1 axes"),
    ("B = T.alloc_buffer((4,), align='x')", ":4:9: align= is a number of Python; got str 'x'"),
    ("B = T.alloc_buffer((4,), axis_separators=[7])", r":4:9: the axis_separators \[7\] do not"),
    ("B = T.alloc_buffer((4,), axis_separators=[1, 0])", r":4:9: .* \[1, 0\] do not part 1 axes"),
    ("B = T.alloc_buffer((4,), colour='red')", r":4:9: a buffer takes \(shape, .* 'colour'"),
    ("B = T.alloc_buffer('x')", ":4:5: .*: the variable x is not defined"),
    ("B = T.alloc_buffer(('x * 2',))", ":4:9: 'x [*] 2' is no name of a symbolic variable"),
    ("B = T.alloc_buffer((4,), scope='nonsense')", "line 4: .* B is in the memory 'nonsense'"),
    ("B = T.decl_buffer((4,), scope='nonsense')", "line 4: .* B is in the memory 'nonsense'"),
    ("b = T.allocate([4], 'float32', 'nonsense')", "line 4: .* b is in the memory 'nonsense'"),
    ("b = T.allocate([4], 'float32', 3)", ":4:9: the scope of T.allocate is a string"),
    ("b = T.allocate(4, 'float32')", ":4:9: the extents of T.allocate are a list; got int 4"),
    ("b = T.allocate([4], 'float32', annotations=3)", ":4:9: .* is a dictionary; got int 3"),
    ("b = T.allocate_const([1], 'int8', [3])", ":4:9: T.allocate_const: 1 numbers"),
    ("b = T.allocate_const(['x'], 'int8', [1])", ":4:9: .* takes numbers; got str 'x'"),
]


@pytest.mark.parametrize(("statement", "message"), BUFFERS)
def test_a_buffer(statement: str, message: str) -> None:
    with pytest.raises(TVMError, match=message):
        run(kernel(f"{statement}\n{block('C[vi] = A[vi]')}"))


PARAMETERS = [
    ('A: T.Buffer((4,), "float32", scope="nonsense")', "line 4: .* A is in the memory 'nonsense'"),
    ('A: T.Buffer((4,), "float32", strides=(-1,))', r"line 4: the buffer A has strides \[-1\]"),
    ('A: T.Buffer((4,), "float32", elem_offset=-1)', "line 4: the buffer A starts at element"),
    ('A: T.Buffer((-4,), "float32")', r":4:17: the buffer has the shape \(-4\); no size"),
    ('A: T.Buffer(("n * 2",), "float32")', ":4:17: 'n [*] 2' is no name of a symbolic"),
    ('A: T.Buffer((4,), "float32"), p: T.handle', "line 6: main takes the pointer p"),
    ('A: T.Buffer((4,), "float32"), p: T.handle("int8")', "line 6: main takes the pointer p"),
]


@pytest.mark.parametrize(("parameter", "message"), PARAMETERS)
def test_a_parameter(parameter: str, message: str) -> None:
    """The line is that of the parameter, not of the function."""
    text = kernel("C[0] = A[0]", f'\n             {parameter},\n    C: T.Buffer((4,), "float32")')
    with pytest.raises(TVMError, match=message):
        run(text)


MATCHES = [
    ("a: T.handle", "B = T.match_buffer(a, (4,))", ":5:9: the parameter a is a buffer already"),
    ("a: T.int32", "", ":4:9: the parameter a is int32; T.match_buffer takes a T.handle"),
]


@pytest.mark.parametrize(("parameter", "more", "message"), MATCHES)
def test_a_match(parameter: str, more: str, message: str) -> None:
    text = f"A = T.match_buffer(a, (4,))\n{more}\nC[0] = A[0]"
    with pytest.raises(TVMError, match=message):
        run(kernel(text, f'{parameter}, C: T.Buffer((4,), "float32")'))


BLOCKS = [
    ("T.block(3)", "", ":5:14: the name of a block is a string; got int 3"),
    ("T.block(i)", "", ":5:14: the name of a block is a string; got Var i"),
    ("T.block(None)", "", ":5:14: the name of a block is a string"),
    ("T.block(['a'])", "", ":5:14: the name of a block is a string"),
    ("T.block('b', 'c')", "", ":5:14: no_realize= of T.block is a bool; got 'c'"),
    ("T.block('b', colour=1)", "", r":5:14: T.block takes \(name='', .*\): .* 'colour'"),
    ("", "T.block_attr(3)", ":7:13: T.block_attr is a dictionary; got int 3"),
    ("", "T.block_attr({3: 1})", ":7:13: the keys of T.block_attr are strings; got int 3"),
    ("", "T.reads(x=A[vi])", r":7:13: T.reads takes \(\*regions\): .* 'x'"),
    ("", "T.where(vi < 2)", ":5:9: .* the variable vi is not defined"),
    ("", "T.reads(A[i])", ":5:9: .* the loop variable i is used in the block 'b', which has axes"),
    ("", "B = T.match_buffer(A[vi:vi + 1], (1,), 'int32')", ":7:17: .* A holds float32, .* int32"),
    ("", "vj = T.axis.reduce(4, i, dtype='float32')", ":7:18: an axis is an integer; .* float32"),
    ("", "vj = T.axis.reduce((0, 4, 1), i)", ":7:18: a range is a size, or where .*; got 3"),
    ("", "vj = T.axis.reduce((0, 4.0), i)", ":7:18: an axis runs over integers; got `T.float32"),
    ("", "vj = T.axis.reduce()", r":7:18: T.axis.reduce takes \(dom, binding, dtype='int32'\)"),
    ("", "vj = T.axis.remap('', [])", ":7:18: T.axis.remap takes a list of one loop variable"),
    ("", "vj = T.axis.remap('R', i)", ":7:18: T.axis.remap takes a list of one loop .* got Var i"),
    ("", "vj = T.axis.remap(3, [i])", ":7:18: the first argument of T.axis.remap is a string"),
    ("", "C[vi] = A[vi]\nvj = T.axis.reduce(4, i)", ":8:18: .* in a block, before its statements"),
    ("", "C[vi] = A[i]", ":5:9: .* the loop variable i is used in the block 'b'"),
]


@pytest.mark.parametrize(("head", "body", "message"), BLOCKS)
def test_a_block(head: str, body: str, message: str) -> None:
    text = block(f"{body}\nC[vi] = A[vi]".lstrip(), head or 'T.block("b")')
    with pytest.raises(TVMError, match=message):
        run(kernel(text))


LOOPS = [
    ("for i in range():", "", r":4:14: range takes \(start, stop=None, .*: missing .* 'start'"),
    ("for i, j in T.grid(4, 2.0):", "", ":4:17: a loop runs over integers; got `T.float32"),
    ("for i in T.serial(4, annotations=[1]):", "", ":4:14: annotations= of a loop is a dictionary"),
    ("for i in T.serial(4, annotations={3: 4}):", "", ":4:14: the keys of annotations= of a loop"),
    ("for i in T.thread_binding(4, thread=3):", "", ":4:14: thread= is a string; got int 3"),
    ('for i in T.thread_binding(-4, "threadIdx.x"):', "", ":4:14: -4 threads of threadIdx.x"),
    ('with T.launch_thread("threadIdx.x", -4) as i:', "", ":4:10: -4 threads of threadIdx.x"),
    ("with T.launch_thread(T.env_thread(3), 4) as i:", "", ":4:26: the name of a thread is a str"),
    ("with T.attr(A.data, 3, 4):", "", ":4:10: the key of T.attr is a string; got int 3"),
    (
        "with T.attr():",
        "",
        r":4:10: T.attr takes \(node, .*\): missing a required argument: 'node'",
    ),
    # TVM forgets the statements of `else`.
    ("for i in range(4):", "else:\n    C[0] = A[0]", ":7:9: a loop of a T.prim_func has no `else`"),
    (
        "while C[0] < T.float32(0):",
        "else:\n    C[0] = A[0]",
        ":7:9: a loop of a T.prim_func has no `else`",
    ),
]


@pytest.mark.parametrize(("head", "tail", "message"), LOOPS)
def test_a_loop(head: str, tail: str, message: str) -> None:
    with pytest.raises(TVMError, match=message):
        run(kernel(f"{head}\n    C[0] = A[1]\n{tail}"))


VALUES = [
    ("C[0] = T.exp()", ":4:12: T.exp takes 1 operand.*; got 0"),
    ("C[0] = T.exp(A[0], A[1])", ":4:12: T.exp takes 1 operand.*; got 2"),
    ("C[0] = T.fmod(A[0])", ":4:12: T.fmod takes 2 operand.*; got 1"),
    ("C[0] = T.Cast('float32', T.clz())", ":4:30: T.clz takes 1 operand.*; got 0"),
    ("C[0] = T.max(A[0])", r":4:12: T.max takes \(a, b\): missing a required argument: 'b'"),
    ("C[0] = T.Select(A[0] > T.float32(0), A[0])", r":4:12: T.Select takes .* 'false_value'"),
    ("C[0] = T.__dict__['x']", ":4:12: the private name '__dict__'"),
    ("C[0] = {'a': A[0]}['b']", ":4:12: `{'a': A.0.}` has no item 'b'"),
    ("C[0:-4] = A[0:-4]", ":4:15: the slice has -4 elements; a vector has one or more"),
    ("C[T.Ramp(0, 1, -4)] = A[0:4]", ":4:7: a vector has one lane or more; got -4"),
    ("C[0] = A[0] + T.Cast('float32', T.bool(2))", ":4:37: literal 2 does not fit bool"),
    ("x: T.int32 = 3.5\nC[0] = A[0] + T.Cast('float32', x)", ":4:5: .* is float32, its name int32"),
    ("x: T.int32 = A[0]\nC[0] = A[0]", ":4:5: the value .* is float32, its name int32; cast it"),
    ("T.func_attr({1: 2})\nC[0] = A[0]", ":4:[0-9]+: .*keys of .* strings"),
    ("T.func_attr({'global_symbol': 3})\nC[0] = A[0]", ":4:5: global_symbol is a string; got int"),
]


@pytest.mark.parametrize(("body", "message"), VALUES)
def test_a_value(body: str, message: str) -> None:
    with pytest.raises(TVMError, match=message):
        run(kernel(body))


@pytest.mark.parametrize("call", ["Module.sub(A.data, C.data)", "Module.main(A.data, C.data)"])
def test_a_kernel_that_only_calls_others(call: str) -> None:
    text = f"""{HEAD}@I.ir_module
class Module:
    @T.prim_func
    def main({FLOATS}):
        {call}

    @T.prim_func
    def sub(a: T.handle, c: T.handle):
        A, C = T.match_buffer(a, (4,)), T.match_buffer(c, (4,))
        C[0] = A[0]
"""
    with pytest.raises(TVMError, match="line 6: main writes none of its buffers"):
        run(text)


def test_what_looks_wrong_and_is_not() -> None:
    """TVM runs these, and so do we."""
    _, c = run(kernel("C[True] = A[False]"))
    assert c.tolist() == [1, 1, 3, 4]
    _, c = run(kernel("C[T.Cast('int32', A[0] > T.float32(9))] = A[3]"))
    assert c.tolist() == [4, 2, 3, 4]
    _, c = run(kernel("for i in range(4):\n    C[A[i] > 2] = A[i]", INTEGERS))
    assert c.tolist() == [2, 4, 3, 4]
    _, c = run(kernel("x: T.int64 = 3\ny: T.float16 = 2\nC[x] = T.Cast('float32', y)"))
    assert c.tolist() == [1, 2, 3, 2]
    _, c = run(kernel("B = T.alloc_buffer((4,), scope='')\nB[0] = A[3]\nC[0] = B[0]"))
    assert c.tolist() == [4, 2, 3, 4]
    _, c = run(kernel("B = T.alloc_buffer((4,), scope='shared.dyn')\nB[0] = A[3]\nC[0] = B[0]"))
    assert c.tolist() == [4, 2, 3, 4]
    _, c = run(kernel("for i in range(-4):\n    C[i] = A[i]"))
    assert c.tolist() == [1, 2, 3, 4]


def test_an_opaque_block_sees_the_loops_around_it() -> None:
    text = "for i in range(4):\n    with T.block('b'):\n        T.reads(A[i])\n        C[i] = A[i]"
    _, c = run(kernel(text))
    assert c.tolist() == [1, 2, 3, 4]
    inner = text.replace("C[i] = A[i]", block("C[vi] = A[vi]", "T.block('c')").replace(
        "\n", "\n        "
    ).replace("for i in range(4)", "for j in range(1)"))  # fmt: skip
    assert verify_well_formed(_parsed(kernel(inner)))


def _parsed(text: str) -> tir.PrimFunc:
    made = from_source(text)
    assert isinstance(made, tir.PrimFunc)
    return made


def test_trees_are_checked_as_they_are_built() -> None:
    x = tir.Var("x", "int32")
    with pytest.raises(OperandTypeError, match="x is int32, and cannot stand for"):
        tir.LetStmt(x, tir.const(3.5, "float32"), tir.Evaluate(0))
    with pytest.raises(OpError, match="2 strides for 1 axes"):
        tir.decl_buffer((4,), strides=(1, 1))
