"""Tensors of te as loop-level functions: their text is TVM's, their values are numpy's."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import te, tir
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.ir import assert_structural_equal, load_json, save_json
from relax2xla.script import tir as T
from relax2xla.tir.kernel.interpret import interpret


def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), name="k")
    rows, columns = a.shape[0], b.shape[1]
    return te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product"
    )


def test_a_product_and_a_sum_in_tvms_form() -> None:
    a, b = te.placeholder((4, 8), name="A"), te.placeholder((8, 5), name="B")
    c = product(a, b)
    d = te.compute((4, 5), lambda *i: c(*i) + 1.0, name="D")

    @T.prim_func
    def main(
        A: T.Buffer((4, 8), "float32"),
        B: T.Buffer((8, 5), "float32"),
        D: T.Buffer((4, 5), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        C = T.alloc_buffer((4, 5))
        for i, j, k in T.grid(4, 5, 8):
            with T.block("product"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(A[v_i, v_k], B[v_k, v_j])
                T.writes(C[v_i, v_j])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        for i0, i1 in T.grid(4, 5):
            with T.block("D"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(C[v_i0, v_i1])
                T.writes(D[v_i0, v_i1])
                D[v_i0, v_i1] = C[v_i0, v_i1] + T.float32(1.0)

    assert_structural_equal(te.create_prim_func([a, b, d]), main)


def test_indices_of_another_dtype() -> None:
    a = te.placeholder((4, 8), name="A")
    p = te.compute(
        (4, 8),
        lambda i, j: tir.if_then_else(tir.all(i > 1, j < 4), a[i - 1, j], tir.const(0.0)),
        name="P",
    )

    @T.prim_func
    def main(
        A: T.Buffer((T.int64(4), T.int64(8)), "float32"),
        P: T.Buffer((T.int64(4), T.int64(8)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i, j in T.grid(T.int64(4), T.int64(8)):
            with T.block("P"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.reads(A[v_i - T.int64(1), v_j])
                T.writes(P[v_i, v_j])
                P[v_i, v_j] = T.if_then_else(
                    T.int64(1) < v_i and v_j < T.int64(4), A[v_i - T.int64(1), v_j], T.float32(0.0)
                )

    assert_structural_equal(te.create_prim_func([a, p], "int64"), main)


def larger(x: Any, y: Any) -> Any:
    first = x[1] >= y[1]
    return tir.Select(first, x[0], y[0]), tir.Select(first, x[1], y[1])


def largest(a: te.Tensor) -> list[te.Tensor]:
    """Where the largest element of each row is, and what it is."""
    reducer = te.comm_reducer(larger, lambda i, v: (tir.const(-1, i), tir.const(-1e30, v)))
    k = te.reduce_axis((0, a.shape[1]), "k")
    return list(te.compute((a.shape[0],), lambda i: reducer((k.var, a[i, k]), axis=k)))


def shifted_powers(a: te.Tensor) -> te.Tensor:
    rows = te.reduce_axis((0, a.shape[0]), "r")
    total = te.compute((), lambda: te.prod(a[rows, 0], axis=rows), name="total")
    return te.compute(a.shape, lambda i, j: a[i, j] * total() + tir.cast("float32", i * 10 + j))


def above(a: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((1, a.shape[1]), "k")
    return te.compute((a.shape[0],), lambda i: te.max(a[i, k], axis=k, where=a[i, k] < 0.5))


def running(a: te.Tensor) -> list[te.Tensor]:
    """Two states, and what is computed of one in between."""
    states = [te.placeholder(a.shape, name=n) for n in "ST"]
    s, t = states
    first = (1, a.shape[1])
    inits = [
        te.compute(first, lambda _, j: a[0, j]),
        te.compute(first, lambda _, j: a[0, j] * 2.0),
    ]
    twice = te.compute(a.shape, lambda i, j: s[i - 1, j] * 2.0, name="twice")
    steps = [
        te.compute(a.shape, lambda i, j: s[i - 1, j] + a[i, j]),
        te.compute(a.shape, lambda i, j: t[i - 1, j] * a[i, j] + twice[i, j]),
    ]
    return te.scan(inits, steps, states)


def running_of(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t = [a[0] * 2]
    sums = a.cumsum(0)
    for row, before in zip(a[1:], sums, strict=False):
        t.append(t[-1] * row + before * 2)
    return sums, np.stack(t)


def triangles(a: te.Tensor) -> te.Tensor:
    """Sums whose ranges depend on the element, and on one another."""

    def element(i: Any) -> Any:
        j = te.reduce_axis(tir.Range.from_min_extent(0, i + 1), "j")
        k = te.reduce_axis(tir.Range.from_min_extent(0, j + 1), "k")
        return te.sum(a[j, k], axis=[j, k])

    return te.compute((a.shape[0],), element)


X = np.random.default_rng(0).uniform(-1, 1, (3, 5)).astype(np.float32)
Y = np.random.default_rng(1).uniform(-1, 1, (5, 4)).astype(np.float32)
CASES: list[tuple[Any, tuple[Any, ...], Any]] = [
    (product, (X, Y), X @ Y),
    (largest, (X,), (X.argmax(1), X.max(1))),
    (shifted_powers, (X,), X * X[:, 0].prod() + np.add.outer(10 * np.arange(3), np.arange(5))),
    (running, (X,), running_of(X)),
    (triangles, (X,), np.tril(X).sum(1).cumsum()),
    (above, (X,), np.where(X[:, 1:] < 0.5, X[:, 1:], -np.inf).max(1)),
]


@pytest.mark.parametrize("symbolic", [False, True])
def test_values(symbolic: bool) -> None:
    """All cases are functions of one module."""
    bb = rx.BlockBuilder()
    for func, args, _ in CASES:
        sizes = {n: tir.Var(f"n{n}", "int64") if symbolic else n for n in (3, 4, 5)}
        params = [
            rx.Var(f"p{i}", rx.TensorStructInfo([sizes[d] for d in a.shape], "float32"))
            for i, a in enumerate(args)
        ]
        with bb.function(f"run_{func.__name__}", params):
            bb.emit_func_output(bb.emit_te(func, *params))
    vm = rx.VirtualMachine(rx.build(bb.get()))
    for func, args, want in CASES:
        got = vm[f"run_{func.__name__}"](*args)
        for g, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6, err_msg=func.__name__)


def test_what_a_function_of_te_is_given() -> None:
    n = tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo([n], "float32"))
    s = rx.Var("s", rx.PrimStructInfo("float32"))
    seen: list[Any] = []

    def func(
        items: Any, named: Any, shape: Any, scalar: Any, half: Any, word: str, axis: int
    ) -> te.Tensor:
        seen.extend([items, named, shape, scalar, word, axis])
        return te.compute((half,), lambda i: items[0][i] * scalar + named["b"][i], name="out")

    bb = rx.BlockBuilder()
    with bb.function("main", [x, s]):
        shape = rx.ShapeExpr([n, 2])
        call = bb.call_te(
            func, [x], {"b": x}, shape, s, n // 2, "w", axis=1, primfunc_name_hint="scaled"
        )
        bb.emit_func_output(bb.emit(call))
    mod = bb.get()
    items, named, sizes, scalar, word, axis = seen
    assert isinstance(items[0], te.Tensor)
    assert isinstance(named["b"], te.Tensor)
    assert (len(sizes), scalar.dtype, word, axis) == (2, "float32", "w", 1)
    assert "scaled" in mod
    got = rx.VirtualMachine(rx.build(mod))["main"](np.float32([1, 2, 3, 4]), 10.0)
    np.testing.assert_array_equal(got, [11, 22])


def test_extern_calls_a_packed_function_by_name() -> None:
    a = te.placeholder((4,), name="A")

    def body(ins: Any, outs: Any) -> Any:
        return tir.Call("int32", "tir.tvm_call_packed", [tir.StringImm("f"), ins[0][0]])

    b = te.extern((4,), [a], body, name="B", dtype="float32")
    text = te.create_prim_func([a, b]).script()
    assert 'T.call_packed("f", A[0])' in text
    with pytest.raises(ValueError, match="dtype of the results"):
        te.extern((4,), [], body)


def test_values_side_by_side() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: te.max(a[i], 0.0) + te.sum(a[i], a[i], 1.0))
    text = te.create_prim_func([a, b]).script()
    assert "T.max(A[v_i], T.float32(0.0)) + (A[v_i] + A[v_i] + T.float32(1.0))" in text


def test_errors() -> None:
    a = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    with pytest.raises(ValueError, match="takes 1 indices, the shape has 2 axes"):
        te.compute((4, 8), lambda i: a[i, 0])
    with pytest.raises(ValueError, match="A has 2 axes; got 3 indices"):
        a(1, 2, 3)
    with pytest.raises(TVMError, match="a reduction must be the whole element"):
        te.compute((4,), lambda i: te.sum(a[i, k], axis=k) + 1.0)
    with pytest.raises(TypeError, match="use topi"):
        te.sum(a, axis=k)
    with pytest.raises(TypeError, match="not the tensor A of 2 axes"):
        te.compute((4,), lambda i: a)
    with pytest.raises(TVMError, match="A is read, and is no argument"):
        te.create_prim_func([te.compute((4, 8), lambda i, j: a[i, j], name="B")])

    condition = tir.floormod(k.var, 2) == 0  # outside of te.compute this compares expressions
    with pytest.raises(TypeError, match="where= is False, not an expression"):
        te.compute((4,), lambda i: te.sum(a[i, k], axis=k, where=condition))
    s = te.placeholder((4, 8), name="S")
    init = te.compute((1, 8), lambda _, j: a[0, j])
    with pytest.raises(ValueError, match=r"te\.scan: 1 init, 2 update and 1 state_placeholder"):
        te.scan(init, [a, a], s)
    with pytest.raises(ValueError, match="are of one rank, at least 1, and of one dtype"):
        te.scan(te.compute((8,), lambda j: a[0, j]), a, s)
    with pytest.raises(ValueError, match="the shape of A is that of T"):
        te.scan(init, a, te.placeholder((5, 8), name="T"))
    for back in (-1, 0, 2):
        step = te.compute((4, 8), lambda t, j, k=back: s[t - k, j], name="step")
        with pytest.raises(TVMError, match=r"step reads S at .*; a step reads states at t - k"):
            te.create_prim_func([a, te.scan(init, step, s)])
    x = rx.Var("x", rx.TensorStructInfo(ndim=1, dtype="float32"))
    bb = rx.BlockBuilder()
    with bb.testing_scope([]):
        with pytest.raises(TVMError, match="known shape and dtype"):
            bb.call_te(lambda t: t, x)
        with pytest.raises(TypeError, match="gives a tensor or a list"):
            bb.call_te(lambda: [1])


def test_a_result_is_no_argument() -> None:
    a = te.placeholder((4,), name="A")
    with pytest.raises(TVMError, match="A is twice among the arguments"):
        te.create_prim_func([a, a])


def test_arguments_whose_layout_is_free_are_named_by_the_function() -> None:
    a, b = te.placeholder((4, 8), name="A"), te.placeholder((4, 8), name="B")
    attrs = {"layout_free_placeholders": [b]}
    c = te.compute((4, 8), lambda i, j: a[i, j] + b[i, j], name="C", attrs=attrs)
    free = {"layout_free_placeholders": [c]}
    d = te.compute((4, 8), lambda i, j: c[i, j] + 1.0, name="D", attrs=free)
    func = te.create_prim_func([a, b, d])
    assert func.attrs["layout_free_buffers"] == [1]
    assert func.script().count("layout_free_placeholders") == 1


def test_the_init_of_ranges_that_depend_stands_once() -> None:
    """Where the first of them is: a later one would start anew for each of the former."""
    a = te.placeholder((3, 5), name="a")
    text = te.create_prim_func([a, triangles(a)]).script()
    assert text.count("T.init()") == 1
    assert [text.index(f'T.block("compute{n}")') for n in ("_2", "_1", "")] == sorted(
        text.index(f'T.block("compute{n}")') for n in ("_2", "_1", "")
    )
    assert text.index('"compute_1"') < text.index("T.init()") < text.index('"compute")')


def test_a_reducer_reads_the_axes_around_it() -> None:
    a = te.placeholder((5, 5), name="a")
    k = te.reduce_axis((0, 5), "k")
    first = te.comm_reducer(
        lambda x, y: te.if_then_else(a[0, k] < y, x, k.var), lambda t: te.const(0, t)
    )
    made = te.compute((5,), lambda i: first(a[i, k], axis=k), name="r")
    assert 'T.Cast("float32", v_k)' in te.create_prim_func([a, made]).script()


def test_buffers_of_extern_start_anywhere() -> None:
    a = te.placeholder((4,), name="a")
    b = te.extern(a.shape, [a], lambda ins, _: tir.Evaluate(ins[0].elem_offset), name="b")
    func = te.create_prim_func([a, b])
    offsets = [buffer.elem_offset for buffer in func.buffer_map.values()]
    assert [str(offset) for offset in offsets] == ["elem_offset"] * 2
    assert offsets[0] is not offsets[1]
    assert "offset_factor=1" in func.script()  # parameters say so, too


def test_what_extern_reads_inside_starts_at_the_front() -> None:
    """A tensor that the function allocates has no offset, which nobody would say."""
    a = te.placeholder((4,), name="a")
    between = te.compute((4,), lambda i: a(i) + 1, name="between")
    made = te.extern(a.shape, [between], lambda ins, _: tir.Evaluate(ins[0].elem_offset), name="b")
    func = te.create_prim_func([a, made])
    assert "elem_offset" not in func.script()
    interpret(func, np.zeros(4, "float32"), np.zeros(4, "float32"))


def test_conditions_compare_indices_of_one_dtype() -> None:
    """As those of TVM's wheel do, where all indices are int64; so does what has no axes."""
    c = te.placeholder((4,), "bool", name="c")
    b = te.placeholder((4,), "int32", name="b")
    x = te.placeholder((4,), name="x")
    chosen = te.compute(
        (4,), lambda i: tir.Select(tir.cast("int32", c(i)) > 0, x(i), -x(i)), name="chosen"
    )
    also = te.compute((4,), lambda i: tir.if_then_else(b(i) < 3, x(i), -x(i)), name="also")
    read = te.compute((4,), lambda i: tir.if_then_else(b(i) < b(0), x(i), -x(i)), name="read")
    scalar = te.compute((), lambda: x(0), name="scalar")
    text = te.create_prim_func([c, b, x, chosen, also, read, scalar], "int64").script()
    assert 'T.Select(T.int64(0) < T.Cast("int64", c[v_i]), ' in text
    assert 'T.if_then_else(T.Cast("int64", b[v_i]) < T.int64(3), ' in text
    assert "T.if_then_else(b[v_i] < b[T.int64(0)], " in text
    assert "T.axis.spatial(1, T.int64(0))" in text


def test_tensors_are_saved_with_what_computes_them() -> None:
    a = te.placeholder((3, 5), name="a")
    _, most = largest(a)
    made = te.compute((3,), lambda i: most[i] * 2.0, "twice", tag="t", attrs={"n": 1, "of": [a, 2]})
    copy: Any = tir_json(made)
    assert (copy.op.name, copy.op.tag, copy.op.attrs["n"]) == ("twice", "t", 1)
    (reduced,) = copy.op.inputs
    assert (reduced.value_index, reduced.op.reduce_axis[0].var.name) == (1, "k")
    (given,) = reduced.op.inputs
    assert copy.op.attrs["of"] == (given, 2)
    assert_structural_equal(
        te.create_prim_func([given, copy]), te.create_prim_func([a, made]), map_free_vars=True
    )
    states = running(a)
    again: Any = tir_json(states[1].op)
    assert isinstance(again, te.ScanOp)
    assert [t.name for t in again.outputs] == [t.name for t in states]
    extern = te.extern((3,), [a], lambda ins, outs: tir.Evaluate(0), "e", "float32")
    assert tir_json(extern).op.output_buffers[0].name == "e"


def tir_json(node: Any) -> Any:
    """What is loaded of a saved node, in a process that knows nothing of ``te`` before."""
    program = (
        "import sys; from relax2xla.ir import load_json; "
        "assert 'relax2xla.te' not in sys.modules; print(load_json(sys.stdin.read()))"
    )
    text = save_json(node)
    subprocess.run([sys.executable, "-c", program], input=text, text=True, check=True)
    return load_json(text)


def test_a_damaged_file_names_a_result_that_there_is_not() -> None:
    text = save_json(te.placeholder((3,), name="a"))
    assert text.count('["te.Tensor",[') == 1
    damaged = re.sub(r'(\["te.Tensor",\[\d+\]),0', r"\1,7", text)
    with pytest.raises(FileFormatError, match="a has no result 7"):
        load_json(damaged)


def test_reducers_of_other_numbers() -> None:
    k = te.reduce_axis((0, 3), "k")
    pair = te.comm_reducer(lambda x, y: (x[0],), lambda i, v: (tir.const(-1, i), tir.const(0, v)))
    with pytest.raises(TVMError, match=r"te\.reduce: the combiner gives 1 values; identity has 2"):
        pair((k.var, tir.const(1.0, "float32")), axis=k)
    with pytest.raises(ValueError, match="combines 2 values; it takes 1"):
        te.comm_reducer(lambda x: x, lambda t: tir.const(0, t))(k.var, axis=k)
    with pytest.raises(ValueError, match="init has 2 values for 1"):
        te.sum(k.var, axis=k, init=[1, 2])
    lone = tir.Reduce(None, [1], [k])
    assert (lone.condition.value, lone.dtype) == (True, "int32")
    with pytest.raises(TVMError, match="the reduction has no combiner"):
        te.create_prim_func([te.compute((2,), lambda i: lone)])
