"""Parsing: every construct round-trips, names come from the surroundings."""

import textwrap

import numpy as np
import pytest

from relax2xla import VirtualMachine, build, cpu, ir, tir, topi
from relax2xla import nd as rx_nd
from relax2xla import op as rx_op
from relax2xla.analysis import well_formed
from relax2xla.errors import DiagnosticError
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.script import from_source
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T
from tests.ir.chains import COUNT

PROGRAMS = {
    "tuple target": """
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            n, m = T.int64(), T.int64()
            a, b = R.split(x, 2, axis=0)
            (c, d) = (a, b)
            return R.shape([n, m])
    """,
    "python operators": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
            n = T.int64()
            m = n * 2 + 1
            a = (x + y) * x - y / 2.0
            b = -a
            c = a < b
            d = R.zeros(R.shape([m, n // 2, n % 3]), "float32")
            return (c, d)
    """,
    "symbolic functions": """
        @R.function
        def main(x: R.Tensor(("T.max(n, 1)", "n"), "float32"), s: R.Shape(["(n + 1) * 2"])):
            n = T.int64()
            a = R.shape([T.min(n, 4), T.ceildiv(n, 2), T.if_then_else(n > 3, n, 3), -n + 9])
            return a
    """,
    "match_cast defines symbols": """
        @R.function
        def main(x: R.Object):
            y = R.match_cast(x, R.Tensor(("h", "w"), "float32"))
            h = T.int64()
            z: R.Tensor(("h", "w"), "float32") = R.add(y, y)
            return R.shape([h])
    """,
    "nested if": """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
            if c:
                if c:
                    y = R.add(x, x)
                else:
                    y = R.exp(x)
            elif c:
                y = (x, x)[0]
            else:
                z = R.log(x)
                y = z
            return y
    """,
    "recursive local function": """
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
            @R.function
            def loop(i: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                if c:
                    j = R.add(i, x)
                    r = loop(j)
                else:
                    r = i
                return r
            return loop(x)
    """,
    "local function with symbols of its own": """
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            @R.function
            def inner(i: R.Tensor(("n",), "float32"), j: R.Tensor((n,))) -> R.Shape(["n"]):
                n = T.int64()
                return R.shape([n])
            s = inner(x, x)
            return x
    """,
    "dataflow names end with the block": """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            lv = R.exp(x)
            with R.dataflow():
                lv = R.add(x, x)
                lv = R.add(lv, x)
                gv = R.exp(lv)
                R.output(gv)
            return R.add(gv, lv)
    """,
    "an output bound twice": """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                gv = R.add(x, x)
                gv = R.add(gv, x)
                R.output(gv)
            return gv
    """,
    "module": """
        @I.ir_module
        class Module:
            '''Documentation is skipped.'''

            I.module_attrs({"a": {"b": [1, 2.5, None, True, "x"]}})
            I.module_global_infos({"vdevice": [I.vdevice("cuda", 0), I.vdevice("cuda", 1)]})
            packed = R.ExternFunc("my.packed")

            @R.function(private=True)
            def f(x: R.Tensor(("n",), "float32", "cuda:1")):
                return Module.g(x)

            @R.function
            def g(x: R.Tensor(("m",), "float32", "cuda:1")):
                cls = Module
                m = T.int64()
                return (x, R.shape([m]), R.prim_value(m))

            @T.prim_func
            def tile(a: T.handle, B: T.Buffer((4,), "float32"), n: T.int64):
                T.func_attr({"tir.noalias": True})
                A = T.match_buffer(a, (4,), "float32")
                for i in range(4):
                    with T.block("b"):
                        B[i] = A[i]
    """,
    "stablehlo": """
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((3, 4), "float32")):
            a = R.stablehlo.dot_general(
                x,
                y,
                dot_dimension_numbers={
                    "lhs_batching_dimensions": [],
                    "rhs_batching_dimensions": [],
                    "lhs_contracting_dimensions": [1],
                    "rhs_contracting_dimensions": [0],
                },
                discardable={"mhlo.x": {"mlir": "#sdy.sharding<@m>"}, "k": float("-inf")},
            )
            @R.function
            def region(i: R.Tensor((), "float32"), j: R.Tensor((), "float32")):
                k = R.stablehlo.add(i, j)
                return k
            b = R.stablehlo.reduce(
                a,
                R.const(0, "float32"),
                region,
                dimensions=[0],
                sinfo_args=(R.Tensor((4,), "float32"),),
            )
            c = R.chlo.erf(b)
            return c
    """,
    "calls": """
        @R.function(pure=False)
        def main(f: R.Callable(ret=R.Tensor((2,), "float32")), x: R.Tensor((2,), "float32")):
            a = f(x)
            b = R.call_packed("p", x, (x, x), "text", 3, sinfo_args=R.Object, flag=True)
            c = R.call_packed("q")
            g = R.ExternFunc("p")
            d = g(x)
            e = I.GlobalVar("other")
            h = R.tuple(x, x)
            i = R.tuple()
            R.print(x, format="{}")
            return (a, R.str("s"), R.dtype("int8"), R.prim_value(1.5), R.prim_value(True))
    """,
}


def parse(text: str, **names: object) -> ir.IRModule | ir.Function:
    return from_source(textwrap.dedent(text), names)


@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip(name: str) -> None:
    made = parse(PROGRAMS[name])
    text = made.script(show_meta=True)
    again = from_source(text)
    assert_structural_equal(made, again)
    assert again.script(show_meta=True) == text


def test_symbols_are_shared_by_name() -> None:
    func = parse(PROGRAMS["match_cast defines symbols"])
    block = func.body.blocks[0]
    cast, add = block.bindings
    assert cast.struct_info.dims == add.var.struct_info.dims
    assert func.body.body.values == cast.struct_info.dims[:1]
    # The caller cannot know what only a match_cast defines.
    assert func.ret_struct_info == ir.ShapeStructInfo(ndim=1)


def test_forward_references_without_annotation() -> None:
    mod = parse(PROGRAMS["module"])
    f = mod["f"]
    assert isinstance(f.ret_struct_info, ir.TupleStructInfo)
    assert f.ret_struct_info.fields[0] == f.params[0].struct_info
    assert f.params[0].struct_info.vdevice == ir.VDevice("cuda", 1)
    assert mod.get_global_var("g").struct_info == mod["g"].struct_info
    assert mod["tile"].params[1].name == "B_handle"
    tile = mod["tile"]
    assert tile.buffer_map[tile.params[1]].name == "B"


def test_weaker_annotation_is_kept() -> None:
    """For a variable. A result says what the body says, as in TVM."""
    func = parse("""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Object:
            y: R.Tensor(ndim=1) = R.exp(x)
            return y
    """)
    assert func.body.body.struct_info == R.Tensor(ndim=1)
    assert func.ret_struct_info == R.Tensor(ndim=1)


def test_weaker_annotation_of_what_is_computed_in_steps() -> None:
    """As in TVM: it counts for a call of variables alone."""
    func = parse("""
        @R.function
        def main(x: R.Tensor((2,), "float16")):
            y: R.Tensor([2]) = R.exp(R.exp(x))
            pair: R.Tuple(R.Tensor, R.Object) = (y, x)
            first: R.Object = pair[0]
            other: R.Tensor = first
            last: R.Tensor([2]) = R.exp(other)
            return last
    """)
    kind = R.Tensor((2,), "float16")
    found = {b.var.name_hint: b.var.struct_info for b in func.body.blocks[0].bindings}
    assert [found[name] for name in ("y", "first", "other")] == [kind] * 3
    assert found["pair"] == R.Tuple(kind, kind)
    assert found["last"] == R.Tensor((2,))


def test_spans() -> None:
    text = "@R.function\ndef main(é: R.Tensor((2,))):\n    y = R.add(é, R.exp(é))\n    return y\n"
    func = from_source(text, filename="net.py")
    inner, outer = func.body.blocks[0].bindings
    assert outer.span == ir.Span("", "net.py", 3, 5, 3, 27, "file")
    assert inner.span == outer.span
    assert func.params[0].span.column == 10


WEIGHT = np.arange(3, dtype="float32")
SIZE = 3


def test_decorators_see_globals_and_closures() -> None:
    scale = R.const(2.0, "float32")
    dims = (SIZE, "n")

    @R.function
    def main(x: R.Tensor(dims, "float32")) -> R.Tensor((SIZE,), "float32"):
        y = R.multiply(x, scale)
        return R.const(WEIGHT)

    assert main.attrs["global_symbol"] == "main"
    assert main.body.blocks[0].bindings[0].value.args[1] is scale
    assert main.span is not None
    assert main.span.file == __file__

    @I.ir_module
    class Module:
        @R.function
        def f(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            return Module.g(x, R.shape([n + SIZE]))

        @R.function
        def g(x: R.Tensor(("n",), "float32"), s: R.Shape(ndim=1)):
            return R.multiply(x, scale)

        @T.prim_func(private=True)
        def tile(a: T.handle, b: T.Buffer((4,), "float32")):
            T.evaluate(0)

    assert sorted(g.name_hint for g in Module) == ["f", "g", "tile"]

    # A second definition of the same name in the same function.
    @I.ir_module
    class Module:
        @R.function
        def h(x: R.Object):
            return x

    assert [g.name_hint for g in Module] == ["h"]


def test_plain_python_use_of_the_namespaces() -> None:
    x = ir.Var("x", R.Tensor((2, "n"), "float32"))
    assert isinstance(R.nn.relu(x), ir.Call)
    assert R.ShapeExpr((2, 3)).values == (2, 3)
    call = R.call_py_func("f", x, x, out_sinfo=R.Tensor((2,), "int8"))
    assert call.struct_info == R.Tensor((2,), "int8")
    with pytest.raises(TypeError, match="takes out_sinfo"):
        R.call_py_func("f", x)
    assert isinstance(T.int64(), tir.Var)
    assert str(T.max(T.int64(), 3)).startswith("T.max(")
    assert {"add", "nn", "Tensor"} <= set(dir(R))
    assert "relu" in dir(R.nn)
    with pytest.raises(AttributeError, match=r"there is no operator R\.nonsense"):
        _ = R.nonsense
    with pytest.raises(TypeError, match=r"R\.output works only in TVMScript"):
        R.output(x)


def test_no_source() -> None:
    names = {"R": R}
    code = "@R.function\ndef f(x: R.Object):\n    return x\n"
    with pytest.raises(DiagnosticError, match="source of 'f' is not available"):
        exec(code, names)


def test_a_long_chain() -> None:
    lines = ["@R.function", "def main(x: R.Tensor((4,), 'float32')):", "    y = R.add(x, x)"]
    lines += ["    y: R.Tensor((4,), dtype='float32') = R.add(y, x)"] * COUNT
    func = from_source("\n".join([*lines, "    return y"]))
    assert len(func.body.blocks[0].bindings) == COUNT + 1


def test_a_statement_does_not_take_the_name_of_a_variable() -> None:
    func = parse("""
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            _ = R.exp(x)
            R.print(x, format="")
            return _
    """)
    assert func.body.body is func.body.blocks[0].bindings[0].var


def test_attributes_and_infos_of_a_class() -> None:
    """Python runs the class's body before the parser sees it."""

    @I.ir_module
    class M:
        I.module_attrs({"attr": 10})
        I.module_global_infos(
            {
                "dummy": [I.dummy_global_info()],
                "vdevice": [I.vdevice("llvm"), I.vdevice("cuda"), I.vdevice("cuda -arch=sm_80")],
            }
        )

        @R.function
        def f(x: R.Tensor((4,), "float32", "cuda:1"), y: R.Tensor((4,), "float32", "vdevice:2")):
            return R.add(x, y)

    cuda = ir.VDevice("cuda -arch=sm_80")
    assert dict(M.attrs) == {"attr": 10}
    assert M.global_infos["dummy"] == (ir.DummyGlobalInfo(),)
    assert [p.struct_info.vdevice for p in M["f"].params] == [cuda, cuda]
    assert_structural_equal(from_source(M.script(show_meta=True)), M)
    expected = ir.IRModule(dict(M.functions), {"attr": 10})
    expected.update_global_info("dummy", [ir.DummyGlobalInfo()])
    expected.update_global_info("vdevice", [ir.VDevice("llvm"), ir.VDevice("cuda"), cuda])
    assert_structural_equal(M, expected)
    with pytest.raises(TypeError, match="in the body of a class below"):
        I.module_attrs({"attr": 10})


def test_a_device_beyond_those_of_the_module() -> None:
    text = """
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    I.module_global_infos({"vdevice": [I.vdevice("llvm")]})
    @R.function
    def f(x: R.Tensor((4,), "float32", "vdevice:1")):
        return x
"""
    with pytest.raises(DiagnosticError, match=r"'vdevice:1' names no device.* has 1 of them"):
        from_source(text)


def test_a_branch_may_end_with_what_gives_nothing() -> None:
    func = parse("""
@R.function(pure=False)
def main(x: R.Tensor((), "int32"), c: R.Tensor((), "bool")):
    if c:
        R.print(x, format="yes: {}")
    else:
        R.print(x, format="no: {}")
    return x
""")
    same = parse("""
@R.function(pure=False)
def main(x: R.Tensor((), "int32"), c: R.Tensor((), "bool")):
    if c:
        y = R.print(x, format="yes: {}")
    else:
        y = R.print(x, format="no: {}")
    return x
""")
    assert_structural_equal(func, same)
    assert_structural_equal(from_source(func.script(show_meta=True)), func)


def test_a_dataflow_block_may_return() -> None:
    func = parse("""
@R.function
def main(x: R.Tensor((16,), "float32")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.multiply(a, a)
        return (b, x)
""")
    same = parse("""
@R.function
def main(x: R.Tensor((16,), "float32")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.multiply(a, a)
        R.output(b)
    return (b, x)
""")
    assert_structural_equal(func, same)


def test_symbolic_conditions_are_asserted() -> None:
    func = parse("""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    _ = R.assert_op(n % 16 == 0)
    return x
""")
    (binding,) = func.body.blocks[0].bindings
    assert isinstance(binding.value.args[0], ir.PrimValue)
    machine = VirtualMachine(build(func))
    np.testing.assert_array_equal(machine["main"](np.ones(16, np.float32)), np.ones(16))
    with pytest.raises(AssertionError):
        machine["main"](np.ones(15, np.float32))


def test_a_branch_may_call_its_result_underscore() -> None:
    source = """
@R.function(pure=False)
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    if c:
        _ = R.add(x, x)
    else:
        _ = x
    return _
"""
    func = from_source(source)
    assert isinstance(func, ir.Function)
    assert_structural_equal(from_source(func.script()), func)
    assert func.body.body is func.body.blocks[-1].bindings[-1].var


def test_a_result_may_be_declared_as_some_tuple() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        pair = Module.twice(x)
        return pair[1]

    @R.function
    def twice(x: R.Tensor((4,), "float32")) -> R.Tuple:
        return (x, x)
"""
    mod = from_source(source)
    assert isinstance(mod, ir.IRModule)
    twice = mod["twice"].ret_struct_info
    assert isinstance(twice, ir.TupleStructInfo)
    assert len(twice.fields) == 2
    with pytest.raises(DiagnosticError, match="index out of range"):
        from_source(source.replace("R.Tuple:", "R.Tuple():"))
    with pytest.raises(DiagnosticError, match="declared as Tuple"):
        from_source(source.replace("return (x, x)", "return x"))


def test_dimensions_are_int64() -> None:
    with pytest.raises(DiagnosticError, match="dtype of int64"):
        from_source(
            """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int32()
    return x
"""
        )


def test_another_name_keeps_what_is_known() -> None:
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    y: R.Object = x
    z: R.Object = R.add(x, x)
    return (y, z)
"""
    )
    assert isinstance(func, ir.Function)
    y, z = (b.var.struct_info for b in func.body.blocks[0].bindings[:2])
    assert y == func.params[0].struct_info
    assert z == ir.ObjectStructInfo()


def test_numpy_may_be_called_in_python_files_only() -> None:
    @R.function
    def main(x: R.Tensor((3,), "int64")):
        return R.add(x, R.const(np.arange(3) * 2 + np.array([1.0, 0, 0]).astype("int64")))

    (value,) = [b.value for b in main.body.blocks[0].bindings]
    assert value.args[1].data.tolist() == [1, 2, 4]
    text = "@R.function\ndef main(x: R.Tensor((3,))):\n    return R.add(x, R.const(np.zeros(3)))"
    with pytest.raises(DiagnosticError, match=r"np\.zeros cannot be called"):
        from_source(text, {"np": np})


def test_expressions_and_devices_are_made_in_python_files_only() -> None:
    @R.function
    def main(x: R.Tensor((3,))):
        y = ir.Call(ir.Op.get("relax.exp"), [x])
        return R.hint_on_device(y, cpu(0))

    first, second = (b.value for b in main.body.blocks[0].bindings)
    assert first.op.name == "relax.exp"
    assert second.attrs["dst_vdevice"] is not None

    @R.function
    def moved(x: R.Tensor((3,))):
        device = ir.VDevice("llvm", 0, "global")
        return R.to_vdevice(x, device)

    assert moved.ret_struct_info.vdevice == ir.VDevice("llvm")
    text = "@R.function\ndef main(x: R.Tensor((3,))):\n    return ir.Tuple([x])"
    with pytest.raises(DiagnosticError, match=r"ir\.Tuple cannot be called"):
        from_source(text, {"ir": ir})


def test_a_variable_may_say_where_its_value_is() -> None:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y: R.Tensor((3,), "float32", "cpu") = R.exp(x)
        return y

    assert well_formed(main)
    assert main.body.struct_info.vdevice is not None


def test_a_dataflow_block_may_give_nothing() -> None:
    def program(end: str) -> ir.IRModule | ir.Function:
        head = "@R.function\ndef main(x: R.Tensor((3,))):\n    with R.dataflow():\n"
        return from_source(f"{head}        y = R.exp(x)\n{end}    return x")

    short, full = program(""), program("        R.output()\n")
    assert_structural_equal(short, full)
    assert isinstance(short, ir.Function)
    (block,) = short.body.blocks
    assert isinstance(block.bindings[0].var, ir.DataflowVar)


def test_other_functions_are_never_called() -> None:
    called: list[int] = []
    with pytest.raises(DiagnosticError, match="cannot be called"):

        @R.function
        def main(x: R.Tensor((3,), "int64")):
            return R.add(x, called.append(1))

    assert not called


def test_names_of_relax_and_tir_in_files() -> None:
    """What R has under a function's name, symbols that say their names, arrays and scalars."""

    @I.ir_module
    class Written:
        @T.prim_func(private=True)
        def more(a: T.Buffer((4,), "int32"), b: T.Buffer((4,), "int32")):
            for i in range(4):
                b[i] = a[i] + 1

        @R.function
        def main(x: R.Tensor((4,), "int32"), y: R.Tensor(("n",), "int32")):
            cls = Written
            n = T.Var("n", "int64")
            a = rx_op.call_tir(cls.more, (x,), R.Tensor((4,), "int32"))
            b = R.reshape(y, (n * tir.const(1, "int64"),))
            c = R.add(a, R.const(rx_nd.array(np.arange(4, dtype="int32"))))
            return (b, c)

    main = Written["main"]
    assert well_formed(Written)
    a, b, c = (b.value for b in main.body.blocks[0].bindings)
    assert a.sinfo_args == (ir.TensorStructInfo((4,), "int32"),)
    assert b.struct_info.dims == main.params[1].struct_info.dims
    assert isinstance(c.args[1], ir.Constant)


def test_a_branch_may_end_in_a_dataflow_block() -> None:
    @R.function
    def short(c: R.Tensor((), "bool"), x: R.Tensor((3,))):
        if c:
            with R.dataflow():
                y = R.exp(x)
                out = R.sin(y)
                R.output(out)
        else:
            out = R.cos(x)
        return out

    @R.function
    def full(c: R.Tensor((), "bool"), x: R.Tensor((3,))):
        if c:
            with R.dataflow():
                y = R.exp(x)
                z = R.sin(y)
                R.output(z)
            out = z
        else:
            out = R.cos(x)
        return out

    assert well_formed(short)
    assert_structural_equal(short, full.with_attr("global_symbol", "short"))


def test_decorators_above_ours_are_pythons() -> None:
    seen: list[object] = []

    def note(made: object) -> object:
        seen.append(type(made))
        return made

    @note
    @R.function
    def whole(x: R.Tensor((2,), "float32")):
        return x

    @note
    @I.ir_module
    class Module:
        @note
        @R.function
        def whole(x: R.Tensor((2,), "float32")):
            return x

        @note
        @T.prim_func
        def kernel(a: T.Buffer((2,), "float32")):
            a[0] = T.float32(1)

    assert seen[0] is ir.Function
    assert seen[-1] is ir.IRModule
    assert_structural_equal(whole, Module["whole"])
    with pytest.raises(DiagnosticError, match="must have a decorator"):
        from_source("@I.ir_module\nclass M:\n    def f(x: R.Object):\n        return x")


def test_names_of_functions_around_are_told_and_joined() -> None:
    """As TVM's tests of operators write them."""
    dtype, name = "float32", "double"

    def outer() -> ir.IRModule:
        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((2,), dtype)):
                nonlocal dtype
                slope = T.FloatImm("float32", 0.5)
                y = R.nn.leakyrelu(x, slope)
                return R.emit_te(topi.add, y, y, primfunc_name_hint=f"tir_{name}")

        return Module

    assert {g.name_hint for g in outer().functions} == {"main", "tir_double"}
    assert "R.nn.leakyrelu(x, alpha=0.5)" in outer().script()
    assert dtype == "float32"
