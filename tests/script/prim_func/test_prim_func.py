"""Loop-level functions: text to tree, tree to text."""

from __future__ import annotations

import pytest

from relax2xla import ir, te, tir
from relax2xla.errors import DiagnosticError, StructuralEqualError
from relax2xla.script import from_source
from relax2xla.script import ir as I
from relax2xla.script import tir as T
from relax2xla.tir.buffer import Buffer, BufferLoad


def parse(text: str) -> tir.PrimFunc:
    made = from_source(text)
    assert isinstance(made, tir.PrimFunc)
    return made


def body_of(*lines: str) -> tir.PrimFunc:
    """A function of two vectors with these statements."""
    head = '@T.prim_func\ndef f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):\n'
    return parse(head + "\n".join("    " + line for line in lines))


def lines_of(func: tir.PrimFunc) -> list[str]:
    """The statements of its text."""
    return [line[4:] for line in func.script().split("\n")[4:]]


MATMUL = """
@T.prim_func
def mm(A: T.Buffer((128, 64), "float32"), b: T.handle, C: T.Buffer((128, 32), "float32")):
    T.func_attr({"tir.noalias": True})
    B = T.match_buffer(b, (64, 32))
    for i, j, k in T.grid(128, 32, 64):
        with T.block("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_a_matrix_product_is_a_tree() -> None:
    func = parse(MATMUL)
    assert [p.dtype for p in func.params] == ["handle"] * 3
    assert [b.name for b in func.buffer_map.values()] == ["A", "B", "C"]
    root = func.body
    assert isinstance(root, tir.BlockRealize)
    assert root.block.name_hint == "root"
    loop = root.block.body
    assert isinstance(loop, tir.For)
    assert (loop.kind, loop.extent, loop.loop_var.dtype) == ("serial", 128, "int32")
    inner = next(s for s in tir.stmt.walk(loop) if isinstance(s, tir.BlockRealize))
    assert [a.iter_type for a in inner.block.iter_vars] == ["spatial", "spatial", "reduce"]
    # With an init the block does not read what it writes.
    assert [r.buffer.name for r in inner.block.reads] == ["A", "B"]
    assert [r.buffer.name for r in inner.block.writes] == ["C"]
    assert isinstance(inner.block.init, tir.BufferStore)
    assert inner.block.line == 7


def test_text_is_that_of_tvm() -> None:
    assert (
        parse(MATMUL).script().split("\n\n")[1]
        == """\
@T.prim_func
def mm(A: T.Buffer((128, 64), "float32"), B: T.Buffer((64, 32), "float32"), \
C: T.Buffer((128, 32), "float32")):
    T.func_attr({"tir.noalias": True})
    # with T.block("root"):
    for i, j, k in T.grid(128, 32, 64):
        with T.block("mm"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0.0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"""
    )


# What is written, and how it is printed where that differs.
STATEMENTS = [
    ("A[0] = 1", "A[0] = T.float32(1.0)"),
    ("A[0] = B[1] + 0.1", "A[0] = B[1] + T.float32(0.10000000000000001)"),
    ("A[0] = B[1] * 2", "A[0] = B[1] * T.float32(2.0)"),
    ("A[0] = T.exp(B[0]) + T.max(B[1], T.float32(0.0))", None),
    ("A[0] = T.if_then_else(B[0] < T.float32(0.0), B[1], B[2])", None),
    ('A[0] = T.Cast("float32", T.Cast("int8", B[0]) + T.int8(1))', None),
    ('A[0] = T.Cast("int8", B[0]) + 1', None),
    ("A[0] += B[0]", "A[0] = A[0] + B[0]"),
    ("A[0] = A[T.truncmod(7, 4)]", "A[0] = A[3]"),
    ("A[0:4] = B[4:8]", None),
    ("A[0:8:2] = T.Broadcast(T.float32(1.5), 4)", None),
    ("A[T.Ramp(0, 2, 4)] = B[0:4]", "A[0:8:2] = B[0:4]"),
    ('T.evaluate(T.call_extern("int32", "f", A.data, 3))', None),
    ('T.call_packed("f", T.address_of(A[0]))', None),
    ('T.tvm_storage_sync("shared")', None),
    ('A[0] = T.float32("inf")', None),
    ("A[0] = T.Select(T.bool(True), B[0], B[1])", None),
    ("A[0] = T.Let(x + B[0], where={x: B[1]})", "unread"),
    ("A[0] = T.isnan(B[0])", None),
    ("A[0] = T.fabs(B[0]) + T.abs(B[1])", "A[0] = T.fabs(B[0]) + T.fabs(B[1])"),
    ('assert B[0] < T.float32(1.0), "too large"', None),
    ("x: T.int32 = 3", None),
]


@pytest.mark.parametrize(("written", "shown"), STATEMENTS, ids=lambda v: str(v)[:30])
def test_statements(written: str, shown: str | None) -> None:
    if "T.Let" in written:
        func = body_of("x = T.float32()", written)
        shown = "A[0] = T.Let(x + B[0], where={x: B[1]})"
    else:
        func = body_of(written)
    printed = lines_of(func)
    expected = written if shown is None else shown
    if expected.startswith("T.evaluate(T.call"):
        expected = expected.removeprefix("T.evaluate(").removesuffix(")")
    if "T.isnan" in expected:
        expected = 'A[0] = T.Cast("float32", T.isnan(B[0]))'
    if 'T.Cast("int8", B[0]) + 1' in expected:
        # An int of Python is an int32, and the wider dtype wins.
        expected = 'A[0] = T.Cast("float32", T.Cast("int32", T.Cast("int8", B[0])) + 1)'
    assert expected in printed
    again = from_source(func.script(), check_well_formed=False)
    ir.assert_structural_equal(func, again, map_free_vars=True)


KERNELS = {
    "alloc": """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), scope="shared")
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("copy"):
                v = T.axis.spatial(8, bx * 4 + tx)
                T.where(bx * 4 + tx < 7)
                C[v] = A[v]
            with T.block("add"):
                v = T.axis.spatial(8, bx * 4 + tx)
                B[v] = C[v]
""",
    "symbolic": """
@T.prim_func(private=True)
def f(a: T.handle, b: T.handle, n: T.int64):
    T.func_attr({"op_pattern": 2})
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float16", strides=("s0", "s1"), offset_factor=1)
    B = T.match_buffer(b, (m,), "float16")
    for j in range(m):
        with T.block("sum"):
            vj = T.axis.spatial(m, j)
            B[vj] = T.float16(0)
            for i in range(n):
                B[vj] = B[vj] + A[i, vj]
""",
    "launch": """
@T.prim_func
def f(A: T.Buffer((64,), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 16)
    A_local = T.allocate([1], "float32", "local")
    A_1 = T.decl_buffer((1,), data=A_local, scope="local")
    A_1[0] = A[bx * 16 + tx]
    T.attr(0, "pragma_unroll", 1)
    if tx < 8:
        A[bx * 16 + tx] = A_1[0] * T.float32(2.0)
    else:
        A[bx * 16 + tx] = A_1[0]
""",
    "while": """
@T.prim_func
def f(A: T.Buffer((8,), "int32")) -> T.int32:
    i = T.decl_buffer((1,), "int32")
    i[0] = 0
    while A[i[0]] < 3 and i[0] < 7:
        i[0] = i[0] + 1
    for k in T.serial(2, annotations={"pragma": 1}):
        for v in T.vectorized(4):
            for u in T.unroll(1, 3):
                for p in T.parallel(2):
                    A[k + v] = u + p
    return i[0]
""",
    "regions": """
@T.prim_func
def f(A: T.Buffer((16, 16), "float32")):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.opaque(4, i)
            T.block_attr({"axis": 1})
            A0 = T.match_buffer(A[vi * 4:vi * 4 + 4, 0:16], (4, 16), strides=(16, 1), \
offset_factor=4)
            for j, k in T.grid(4, 16):
                with T.block("inner"):
                    vj, vk = T.axis.remap("SS", [j, k])
                    A0[vj, vk] = T.float32(1)
""",
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_a_fixed_point(name: str) -> None:
    func = parse(KERNELS[name])
    assert not isinstance(func.body, tir.Text)
    text = func.script()
    again = parse(text)
    assert again.script() == text
    ir.assert_structural_equal(func, again)
    assert ir.structural_hash(func) == ir.structural_hash(again)
    loaded = ir.load_json(ir.save_json(func))
    ir.assert_structural_equal(func, loaded)
    assert loaded.script() == text


def test_regions_are_those_of_the_loops_inside() -> None:
    func = parse(KERNELS["regions"])
    text = func.script()
    assert "T.writes(A[vi * 4:vi * 4 + 4, 0:16])" in text
    assert "T.reads()" in text
    func = body_of(
        "for i in range(4):",
        '    with T.block("b"):',
        "        vi = T.axis.spatial(4, i)",
        "        for j in range(3):",
        "            B[vi * 4 + j] = A[vi + j] + A[0]",
    )
    assert "T.writes(B[vi * 4:vi * 4 + 3])" in func.script()
    func = body_of(
        "for i in range(16):",
        '    with T.block("c"):',
        "        vi = T.axis.spatial(16, i)",
        '        A[vi] = B[T.Cast("int32", T.round(A[vi]))]',
    )
    assert "T.reads(B[0:16], A[vi])" in func.script()


def test_what_memory_of_the_block_says_is_any_element() -> None:
    func = body_of(
        "for i in range(16):",
        '    with T.block("b"):',
        "        v = T.axis.spatial(16, i)",
        '        at = T.alloc_buffer((1,), "int32", scope="local")',
        "        at[0] = v // 2",
        "        B[v] = A[at[0] + 1]",
    )
    assert "T.reads(A[0:16])" in func.script()
    ir.assert_structural_equal(parse(func.script()), func)


def test_a_value_in_reads() -> None:
    """TVM 0.25 keeps ``x: T.int32 = ...`` in memory, and says of blocks that they read it."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    x: T.int32 = A[0]
    for i in range(8):
        with T.block("c"):
            vi = T.axis.spatial(8, i)
            T.reads(x.buffer[0], A[vi])
            T.writes(C[vi])
            C[vi] = A[vi] + x
""")
    assert "T.reads(A[vi])" in func.script()


def test_dtypes_of_loops_and_axes() -> None:
    func = body_of(
        "for i, j in T.grid(T.int64(2), 8):",
        '    with T.block("b"):',
        "        vi = T.axis.spatial(T.int64(2), i)",
        "        vj = T.axis.spatial(8, j)",
        "        B[vi * 8 + vj] = A[vj]",
    )
    loops = [s for s in tir.stmt.walk(func.body) if isinstance(s, tir.For)]
    assert [x.loop_var.dtype for x in loops] == ["int64", "int32"]
    # An int64 literal is a plain int, another a literal of its dtype.
    assert [type(x.extent) for x in loops] == [int, tir.IntImm]
    assert 'B[vi * T.int64(8) + T.Cast("int64", vj)] = A[vj]' in func.script()


SIZE, SCALES = 8, (2, 3)


def test_tvm_says_that_functions_have_blocks() -> None:
    @T.prim_func(private=True, s_tir=True)
    def doubled(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("y"):
                k = T.axis.spatial(4, i)
                y[k] = x[k] * T.float32(2)

    @I.ir_module(s_tir=True)
    class Module:
        @T.prim_func(s_tir=True)
        def doubled(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            y[0] = x[0]

    assert isinstance(doubled, tir.PrimFunc)
    assert "doubled" in Module


def test_decorators_name_values_around_them() -> None:
    dtype = "int8"

    @T.macro
    def twice(buffer, index):  # type: ignore[no-untyped-def]
        buffer[index] = buffer[index] * SCALES[0]
        buffer[index] = buffer[index] * SCALES[1]

    @T.prim_func(private=True)
    def kernel(A: T.Buffer((SIZE,), dtype)):  # type: ignore[valid-type, name-defined]
        for i in range(SIZE):
            twice(A, i)

    assert isinstance(kernel, tir.PrimFunc)
    assert "global_symbol" not in kernel.attrs
    text = kernel.script()
    assert "for i in range(8):" in text
    assert text.count('A[i] = T.Cast("int8", ') == 2

    @I.ir_module
    class Module:
        @T.prim_func
        def inner(A: T.Buffer((SIZE,), "float32")):  # type: ignore[valid-type]
            A[0] = T.float32(0)

        @T.prim_func
        def outer(A: T.Buffer((SIZE,), "float32")):  # type: ignore[valid-type]
            Module.inner(A.data)

    assert isinstance(Module, ir.IRModule)
    assert "Module.inner(A.data)" in Module.script()
    ir.assert_structural_equal(Module, from_source(Module.script()))
    info = Module.get_global_var("outer").struct_info
    tensor = ir.TensorStructInfo([8], "float32")
    assert info == ir.FuncStructInfo([tensor], ir.TupleStructInfo(()), False)


WRONG = [
    ("A[0, 1] = 0", 3, "the buffer A has 1 axes; got 2 indices"),
    ("A[0] = unknown", 3, "undefined name 'unknown'"),
    ("for i in T.serail(3):\n        A[i] = 0", 3, "T has no 'serail'; did you mean 'serial'"),
    ("A[0] = T.exq(B[0])", 3, "T has no 'exq'; did you mean 'exp'"),
    ("vi = T.axis.spatial(4, 0)", 3, "T.axis stands in a block"),
    ("A[0] = B[0] % B[1]", 3, "FloorMod: expected integer operands"),
    ("T.reads(A[0])", 3, "T.reads stands in a block"),
    ("C = T.match_buffer(A, (4,))", 3, "T.match_buffer takes a parameter"),
    ("for i in T.grid():\n        A[0] = 0", 3, "T.grid takes one extent or more"),
    ('A[0] = T.Var("x", "float32")', 3, "not well-formed: the variable x is not defined"),
    ("A[0:4] = B[0:8]", 3, "the lanes differ"),
    ("x = A[0]\n    x = A[1]", 4, "'x' is already defined in this scope"),
    ("x, x = A[0], A[1]", 3, "'x' is already defined in this scope"),
    ("C = T.alloc_buffer((4, 4))\n    A[0] = C[0:2, 0]", 4, "a vector (a slice) for index 0"),
    (
        'with T.block("c"):\n        T.call_extern("int32", "f", A.data)',
        3,
        "the block 'c' hands on A.data",
    ),
    (
        'with T.block("m"):\n        C = T.match_buffer(A[0:4], (5,))',
        4,
        "the region of A has the extents (4), the buffer that views it the shape (5)",
    ),
]


@pytest.mark.parametrize(("line", "at", "message"), WRONG, ids=lambda v: str(v)[:24])
def test_mistakes_are_shown_with_their_line(line: str, at: int, message: str) -> None:
    with pytest.raises(DiagnosticError) as e:
        body_of(line)
    assert message in str(e.value)
    assert str(e.value).startswith(f"<str>:{at}:")


UNREAD = [
    ("A[0] = T.Shuffle([A[0]], [0])", "T.Shuffle is not read"),
    ("for x in [1, 2]:\n        A[x] = 0", "a loop over a sequence"),
    ("for i in T.serial(0, 8, 2):\n        A[i] = 0", "a loop with a step"),
]


@pytest.mark.parametrize(("line", "why"), UNREAD, ids=lambda v: str(v)[:24])
def test_what_cannot_be_read_stays_a_text(line: str, why: str) -> None:
    func = body_of(line)
    assert isinstance(func.body, tir.Text)
    assert func.body.why.startswith("line 3: ")
    assert why in func.body.why
    text = func.script()
    assert line.split("\n")[0] in text
    assert parse(text).script() == text
    ir.assert_structural_equal(func, ir.load_json(ir.save_json(func)))


def test_comparison_says_where_functions_differ() -> None:
    one = body_of("A[0] = B[0]", "A[1] = B[2]")
    ir.assert_structural_equal(one, body_of("A[0] = B[0]", "A[1] = B[2]"))
    with pytest.raises(StructuralEqualError) as e:
        ir.assert_structural_equal(one, body_of("A[0] = B[0]", "A[1] = B[3]"))
    assert ".body.seq[1].value" in str(e.value)
    assert not ir.structural_equal(one, body_of("A[0] = A[0]", "A[1] = B[2]"))


def test_what_says_its_accesses_may_use_pointers() -> None:
    call = 'T.call_extern("int32", "f", A.data)'
    stated = body_of(
        f'with T.block("c"):\n        T.reads(A[0])\n        T.writes()\n        {call}'
    )
    assert "T.reads(A[0])" in stated.script()
    pointer = 'T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 4, 1)'
    body_of(f'with T.block("c"):\n        T.evaluate({pointer})')


def test_a_function_has_the_name_of_its_symbol() -> None:
    func = body_of("A[0] = B[0]")
    assert func.__name__ == func.attrs["global_symbol"]
    with pytest.raises(AttributeError, match="a private PrimFunc has no __name__"):
        _ = func.without_attr("global_symbol").__name__


def test_names_do_not_count() -> None:
    text = KERNELS["alloc"]
    other = text.replace("bx", "block").replace("C", "cache").replace('"copy"', '"other"')
    ir.assert_structural_equal(parse(text), parse(other))
    assert ir.structural_hash(parse(text)) == ir.structural_hash(parse(other))


def test_a_long_body_needs_no_depth() -> None:
    lines = [f"x{i}: T.float32 = A[{i % 16}] + T.float32({i}.0)" for i in range(3000)]
    func = body_of(*lines, "B[0] = x2999")
    assert isinstance(func.body, tir.LetStmt)
    again = parse(func.script())
    ir.assert_structural_equal(func, again)
    assert tir.stmt_functor.substitute(func.body, {}) is func.body
    buffers = {b.name: b for b in func.buffer_map.values()}
    loads: list[Buffer] = []
    tir.stmt_functor.post_order_visit(
        func.body, lambda n: loads.append(n.buffer) if isinstance(n, BufferLoad) else None
    )
    assert len(loads) == 3000
    assert all(b is buffers["A"] for b in loads)


def test_functions_may_call_those_that_follow() -> None:
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((2,), "float32")):
        T.evaluate(Module.square(A[0]) + Module.square(A[1]))

    @T.prim_func
    def square(x: T.float32) -> T.float32:
        return x * x
"""
    mod = from_source(text)
    root = mod["main"].body
    call = root.block.body if isinstance(root, tir.BlockRealize) else root
    value = call.value
    assert isinstance(value, tir.Add)
    assert [c.dtype for c in (value, *value.children())] == ["float32"] * 3
    ir.assert_structural_equal(from_source(mod.script()), mod)


def test_sizes_of_te_and_hosts_of_targets() -> None:
    host = T.target({"kind": "llvm", "keys": ["cpu"]})

    @T.prim_func
    def func(a: T.handle) -> None:
        T.func_attr({"target": T.target({"kind": "cuda", "arch": "sm_80"}, host)})
        n = te.size_var("n")
        A = T.match_buffer(a, (te.var("m"), n), offset_factor=1)
        T.evaluate(A[0, 0])

    assert not isinstance(func.body, tir.Text)
    (buffer,) = func.buffer_map.values()
    assert [type(d) for d in buffer.shape] == [tir.Var, tir.SizeVar]
    ir.assert_structural_equal(from_source(func.script()), func)
