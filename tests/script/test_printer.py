"""Text of programs: TVM's own for a table of programs, options, names, metadata, large programs."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from relax2xla import ir, tir
from relax2xla.errors import TVMError
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.script import from_source, script
from relax2xla.script import relax as R
from tests.ir.chains import COUNT

TEXTS = Path(__file__).with_name("tvm_texts.txt").read_text("utf-8").split("=====\n")[1:]


def body_of(text: str) -> str:
    """The text without its header."""
    return "\n".join(x for x in text.split("\n") if not x.startswith("# from")).strip("\n")


@pytest.mark.parametrize("index", range(len(TEXTS)))
def test_text_is_that_of_tvm(index: int) -> None:
    program, expected = TEXTS[index].split("-----\n")
    made = from_source(program)
    assert body_of(made.script()) == expected.strip("\n")
    again = from_source(made.script(show_meta=True))
    assert_structural_equal(made, again)
    assert again.script(show_meta=True) == made.script(show_meta=True)


def chain(length: int) -> ir.Function:
    x = ir.Var("x", R.Tensor((4,), "float32"))
    info = x.struct_info
    bindings = []
    value = x
    for _ in range(length):
        call = ir.Call(ir.Op.get("relax.add"), [value, x], struct_info=info)
        value = ir.Var("lv", info)
        bindings.append(ir.VarBinding(value, call))
    seq = ir.SeqExpr([ir.BindingBlock(bindings)], value)
    return ir.Function([x], seq, attrs={"global_symbol": "main"})


def test_a_long_chain() -> None:
    lines = chain(COUNT).script().split("\n")
    last = f"lv_{COUNT - 1}"
    shown = f'{last}: R.Tensor((4,), dtype="float32") = R.add(lv_{COUNT - 2}, x)'
    assert lines[-2].strip() == shown
    assert lines[-1].strip() == f"return {last}"


def test_deep_expression() -> None:
    x = ir.Var("x", R.Tensor((4,), "float32"))
    value: ir.Expr = x
    for _ in range(20_000):
        value = ir.Call(ir.Op.get("relax.exp"), [value], struct_info=x.struct_info)
    assert script(value).count("R.exp(") == 20_000


def test_names_are_unique_valid_and_not_taken() -> None:
    info = R.Tensor((), "float32")
    hints = ["x", "x", "R", "cls", "lambda", "a.b", "1st", "", "é"]
    params = [ir.Var(h, info) for h in hints]
    func = ir.Function(params, ir.Tuple(params), attrs={"global_symbol": "x"})
    text = func.script()
    names = [p.split(":")[0] for p in text.split("(", 1)[1].split("), ")]
    names = [n.strip() for n in names]
    assert "def x(x_1: " in text
    assert_structural_equal(from_source(text), func)
    for name in ("x_2", "R_1", "cls_1", "_lambda", "a_b", "_1st", "_"):
        assert f"{name}: " in text


def test_options() -> None:
    func = chain(1)
    mod = ir.IRModule({"main": func})
    text = mod.script(name="Net", relax_prefix="rx", ir_prefix="I2", indent_spaces=2)
    assert text.split("\n")[:6] == [
        "# from relax2xla.script import ir as I2",
        "# from relax2xla.script import relax as rx",
        "",
        "@I2.ir_module",
        "class Net:",
        "  @rx.function",
    ]
    assert "lv = R.add(x, x)" in func.script(show_all_struct_info=False)
    with pytest.raises(TypeError, match="colour"):
        func.script(colour=True)
    with pytest.raises(TypeError, match="no text for a int"):
        script(3)


def test_options_of_tvm() -> None:
    func = chain(1)
    lines = func.script(print_line_numbers=True).split("\n")
    assert lines[0].startswith("1 # from relax2xla")
    assert [x[2:] for x in lines] == func.script().split("\n")
    assert func.script(verbose_expr=True, int_dtype="int32", obj_to_underline=[]) == func.script()
    with pytest.raises(ValueError, match=r"int_dtype is supported as 'int32' only"):
        func.script(int_dtype="int64")
    with pytest.raises(TypeError, match=r"no option 'show_metta'; it has .*show_meta"):
        func.script(show_metta=True)


def test_struct_info_and_expressions_alone() -> None:
    n = tir.Var("n")
    info = ir.TensorStructInfo((n, 4), "int8")
    assert info.script() == 'R.Tensor((n, 4), dtype="int8")'
    assert info.script(verbose_expr=True) == 'n = T.int64()\nR.Tensor((n, 4), dtype="int8")'
    x = ir.Var("x", R.Tensor((4,), "float32"))
    assert R.exp(x).script() == "R.exp(x)"
    assert R.exp(x).script(verbose_expr=True) == 'x: R.Tensor((4,), dtype="float32")\nR.exp(x)'
    call = ir.Call(ir.GlobalVar("f"), [x], sinfo_args=[info])
    assert call.script(relax_prefix="rx") == 'f(x, sinfo_args=(rx.Tensor((n, 4), dtype="int8"),))'


def test_statements_alone_declare_what_they_mention() -> None:
    n = tir.Var("n")
    x, y = (ir.Var(name, ir.TensorStructInfo((n,), "int8")) for name in "xy")
    binding = ir.VarBinding(y, R.add(x, x))
    declared = 'n = T.int64()\nx: R.Tensor((n,), dtype="int8")\n'
    bound = 'y: R.Tensor((n,), dtype="int8") = R.add(x, x)'
    assert binding.script() == declared + bound
    assert ir.BindingBlock([binding]).script() == declared + bound
    seq = ir.SeqExpr([ir.BindingBlock([binding])], y)
    assert seq.script() == f"{declared}{bound}\ny"
    cond = ir.Var("c", ir.TensorStructInfo((), "bool"))
    branch = 'x: R.Tensor((n,), dtype="int8")'
    assert ir.If(cond, seq, x).script().split("\n") == [
        'c: R.Tensor((), dtype="bool")',
        "n = T.int64()",
        "if c:",
        *(f"    {line}" for line in (branch, bound, "y")),
        "else:",
        f"    {branch}",
        "    x",
    ]


def test_types() -> None:
    tensor = ir.TensorType(3, "float16")
    callee = ir.FuncType([ir.ObjectType(), ir.ShapeType(2)], tensor)
    assert ir.TupleType([callee, ir.PackedFuncType(), ir.PrimType("int8")]).script() == (
        'R.Tuple(R.Callable((R.Object, R.Shape(ndim=2)), R.Tensor(ndim=3, dtype="float16")), '
        "R.PackedFunc, T.int8)"
    )
    assert ir.TensorType(dtype="").script() == "R.Tensor(ndim=-1)"


def test_annotations_that_the_parser_infers() -> None:
    source = """
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor("float32", ndim=1)):
    a = x
    b: R.Tensor((4,), "float32") = R.add(x, y)
    c = (a, b)
    return c
"""
    func = from_source(source)
    lines = [x.strip() for x in func.script(show_all_struct_info=False).split("\n")]
    assert lines[-4:] == [
        "a = x",
        'b: R.Tensor((4,), dtype="float32") = R.add(x, y)',
        "c = a, b",
        "return c",
    ]


def test_void_call_keeps_its_name_where_it_is_used() -> None:
    func = from_source(
        """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")) -> R.Tuple():
    a = R.print(x, format="{}")
    b = R.print(x, format="{}")
    return b
"""
    )
    assert isinstance(func, ir.Function)
    lines = [x.strip() for x in func.script().split("\n")]
    assert 'R.print(x, format=R.str("{}"))' in lines
    assert 'b: R.Tuple = R.print(x, format=R.str("{}"))' in lines


ARRAYS = [
    np.arange(6, dtype="float32").reshape(2, 3),
    np.array([np.nan, -0.0, np.inf]),
    np.zeros((0, 3), "int8"),
    np.array([True, False]),
    np.array([1, -2], "int64"),
    np.array([1 + 2j, 3], "complex64"),
    np.array([1.5, -2], ml_dtypes.bfloat16),
    np.array([1, -8], ml_dtypes.int4),
    np.array([0.5], ml_dtypes.float8_e4m3fn),
    np.broadcast_to(np.float32(3), (5, 7)),
    np.array(1 + 1j, "complex128"),
    np.arange(6).reshape(2, 3).T,
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_constants_round_trip_through_metadata(array: np.ndarray) -> None:
    const = ir.Constant(array)
    func = ir.Function([], ir.Tuple([const, const]), attrs={"global_symbol": "main"})
    short = func.script()
    assert short.count('metadata["relax.expr.Constant"][0]') == 2
    assert short.endswith("# Metadata omitted. Use show_meta=True in script() method to show it.")
    again = from_source(func.script(show_meta=True))
    assert isinstance(again, ir.Function)
    back = again.body.body.fields[0].data
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert again.body.body.fields[0] is again.body.body.fields[1]


SCALARS = [
    *(np.array(v, d) for d in ("int8", "uint64", "int32") for v in (0, 100)),
    *(np.array(v, d) for d in ("float16", "float32", "float64") for v in (0.1, -0.0, 1e4, np.inf)),
    np.array(np.nan, "float32"),
    np.array(1e300),
    np.array(1.5, ml_dtypes.bfloat16),
    np.array(True),
]


@pytest.mark.parametrize("value", SCALARS, ids=str)
def test_scalars_are_exact_text(value: np.ndarray) -> None:
    func = ir.Function([], ir.Constant(value), attrs={"global_symbol": "main"})
    text = func.script()
    assert "R.const(" in text
    back = from_source(text).body.body.data
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()


def test_nan_with_a_payload_is_not_text() -> None:
    odd = np.array(0x7FC00001, "uint32").view("float32")
    func = ir.Function([], ir.Constant(odd), attrs={"global_symbol": "main"})
    assert from_source(func.script(show_meta=True)).body.body.data.tobytes() == odd.tobytes()


@pytest.mark.parametrize("option", ["ir_prefix", "tir_prefix", "relax_prefix"])
def test_prefixes_are_names(option: str):
    with pytest.raises(TVMError, match=f"{option} must be a name; got '2I'"):
        ir.IRModule().script(**{option: "2I"})
