"""What each pattern matches, and what the matcher remembers, counts and solves."""

from __future__ import annotations

import pytest

import relax2xla as relax
from relax2xla import dpl, op, tir
from relax2xla.analysis import get_var2val
from relax2xla.dpl import is_const, is_op, is_tuple, is_tuple_get_item, is_var, wildcard
from relax2xla.dpl.match import Matcher
from relax2xla.errors import TVMError
from relax2xla.ir import DataflowVar, Expr, GlobalVar, Tuple, TupleGetItem, Var
from relax2xla.script import relax as R

INFO = relax.TensorStructInfo((2, 3), "float32")
X, Y, Z = (Var(name, INFO) for name in "xyz")
N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
A = wildcard()
CONV = op.nn.conv2d(
    Var("i", relax.TensorStructInfo((1, 3, 8, 8))), Var("w", relax.TensorStructInfo((4, 3, 3, 3)))
)


def test_every_name_is_there() -> None:
    assert all(getattr(dpl, name) is not None for name in dpl.__all__)
    assert set(dpl.__all__) <= set(dir(dpl))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dpl.nothing


CASES = [
    (is_op("relax.add")(A, A), op.add(X, X), op.add(X, Y)),
    (is_op("relax.add")(is_var("y"), is_var("x")), op.add(X, Y), op.add(X, Z)),
    (is_op("relax.subtract")(is_var("x"), is_var("y")), op.subtract(X, Y), op.subtract(Y, X)),
    (is_op("relax.nn.conv2d")(A, varg_default_wildcard=True), CONV, op.add(X, Y)),
    (is_op("relax.nn.conv2d")(wildcard(), wildcard()), CONV, op.nn.relu(X)),
    (is_op("relax.add") | is_op("relax.multiply"), op.add(X, X).op, op.subtract(X, X).op),
    (is_const(), relax.const(1.0), X),
    (dpl.is_expr(relax.const(1.0)), relax.const(1.0), relax.const(2.0)),
    (dpl.is_dfv(), DataflowVar("d", INFO), X),
    (dpl.is_gv("main"), GlobalVar("the_main_one"), GlobalVar("other")),
    (dpl.is_call_packed("f"), relax.Call(relax.ExternFunc("f"), [X]), op.add(X, X)),
    (is_tuple([is_var("x"), A]), Tuple([X, Y]), Tuple([Y, X])),
    (is_tuple([is_var("x"), is_const()], unordered=True), Tuple([relax.const(1), X]), Tuple([X])),
    (is_tuple([A, is_var("x")], unordered=True), Tuple([X, Y]), Tuple([Y, Z])),
    (is_tuple_get_item(A), TupleGetItem(Tuple([X]), 0), X),
    (is_tuple([A, wildcard()])[-1], TupleGetItem(Tuple([X, Y]), 1), TupleGetItem(Tuple([X, Y]), 0)),
    (~is_var("x"), Y, X),
    (wildcard() & is_var("x"), X, Y),
    (wildcard().has_dtype("float32"), X, relax.const(1)),
    (wildcard().has_shape((2, 3)), X, relax.const(1.0)),
    (wildcard().has_type(relax.TensorType(2, "float32")), X, relax.const(1.0)),
    (dpl.is_shape([2, N + M]), relax.ShapeExpr([2, M + N]), relax.ShapeExpr([2, N])),
    (wildcard().has_struct_info(R.Tensor((2, N))), X, relax.const(1.0)),
    (wildcard().has_struct_info(R.Tensor(ndim=2)), X, relax.const(1.0)),
    (wildcard().has_attr({"groups": 1, "strides": [1, 1]}), CONV, op.add(X, X)),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), CASES, ids=range(len(CASES)))
def test_matches(pattern: dpl.DFPattern, yes: Expr, no: Expr) -> None:
    assert pattern.match(yes)
    assert not pattern.match(no)
    assert pattern.dup().match(yes)
    assert pattern.dup() is not pattern
    found = pattern.extract_matched_expr(yes)
    assert found is not None
    assert found[pattern] is yes
    assert pattern.extract_matched_expr(no) is None
    assert type(pattern).__name__ in repr(pattern)


def test_attributes_are_compared_as_numbers() -> None:
    split = op.split(X, 3, axis=1)
    assert wildcard().has_attr({"indices_or_sections": tir.IntImm("int64", 3)}).match(split)
    assert wildcard().has_attr({}).match(split)
    assert not wildcard().has_attr({"axis": 0}).match(split)
    assert not wildcard().has_attr({"nothing": 0}).match(split)
    func = relax.Function([X], X).with_attr("Codegen", "dnnl")
    assert dpl.FunctionPattern([A], A).has_attr({"Codegen": "dnnl"}).match(func)


def test_one_node_is_one_value_and_what_failed_is_forgotten() -> None:
    # add(a, b) in either order: the first order binds a, then fails at b.
    a, b = wildcard(), is_op("relax.nn.relu")(X_PATTERN := wildcard())
    pattern = is_op("relax.add")(a, b)
    value = op.add(op.nn.relu(X), Y)
    found = pattern.extract_matched_expr(value)
    assert found is not None
    assert found[a] is Y
    assert found[X_PATTERN] is X
    assert not is_op("relax.add")(b, is_op("relax.nn.relu")(X_PATTERN)).match(
        op.add(op.nn.relu(X), op.nn.relu(Y))
    )
    left = is_op("relax.add")(is_var("y"), A)
    either = left | A
    found = either.extract_matched_expr(op.add(X, Z))
    assert found is not None
    assert left not in found


def test_division_of_products_that_are_nested() -> None:
    x, y, z = is_var("x"), is_var("y"), is_var("z")
    quotient = is_op("relax.divide")(is_op("relax.multiply")(x, y), z)
    assert quotient.match(op.divide(op.multiply(X, Y), Z))
    assert quotient.match(op.multiply(X, op.divide(Y, Z)))
    assert not quotient.match(op.multiply(X, op.divide(Z, Y)))
    product = is_op("relax.multiply")(is_op("relax.divide")(x, y), z)
    assert product.match(op.divide(op.multiply(X, Z), Y))


def test_symbols_stand_for_one_number() -> None:
    square = wildcard().has_struct_info(R.Tensor((N, N)))
    assert square.match(Var("s", relax.TensorStructInfo((4, 4))))
    assert not square.match(X)
    assert square.match(Var("s", relax.TensorStructInfo((M * 2, M * 2))))
    half = is_tuple(
        [wildcard().has_struct_info(R.Tensor((N,))), wildcard().has_struct_info(R.Tensor((N * 2,)))]
    )
    four, eight, nine = (Var("v", relax.TensorStructInfo((d,))) for d in (4, 8, 9))
    assert half.match(Tuple([four, eight]))
    assert not half.match(Tuple([four, nine]))
    # Also where the product is seen before its factor.
    other = is_tuple(list(half.fields)[::-1])
    assert other.match(Tuple([eight, four]))
    assert not other.match(Tuple([nine, four]))
    # A number is no symbol: a program's dimension may be another.
    assert (
        not wildcard().has_struct_info(R.Tensor((4,))).match(Var("v", relax.TensorStructInfo((N,))))
    )


@R.function(private=True)
def chain(x: R.Tensor((2, 3), "float32"), w: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        a = R.add(x, w)
        cast = R.match_cast(a, R.Tensor((2, 3), "float32"))
        b = R.nn.relu(a)
        c = R.nn.relu(cast)
        R.output(b, c)
    return b, c


def test_variables_are_looked_through_but_checks_are_not() -> None:
    bindings = chain.body.blocks[0].bindings
    values = get_var2val(chain)
    pattern = is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard()))
    assert pattern.match(bindings[2].value, values)
    assert not pattern.match(bindings[2].value)
    assert not pattern.match(bindings[3].value, values)


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_depth_costs_no_frames_and_visits_are_linear(depth: int) -> None:
    sine = op.sin(X)
    values: dict[Var, Expr] = {}
    value: Expr = X
    pattern: dpl.DFPattern = is_var("x")
    relu = is_op("relax.sin")
    for _ in range(depth):
        var = Var("v", INFO)
        values[var] = relax.Call(sine.op, [value], struct_info=INFO)
        value, pattern = var, relu(pattern)
    m = Matcher(values)
    assert m.match(pattern, value)
    assert m.visits == 2 * depth + 1


def test_errors() -> None:
    with pytest.raises(TVMError, match="no operator"):
        is_op("relax.nothing")
    with pytest.raises(ValueError, match="has_shape takes a list or tuple"):
        wildcard().has_shape(3)  # pyright: ignore
    with pytest.raises(ValueError, match="is_shape takes a list or tuple"):
        dpl.is_shape(3)  # pyright: ignore
    with pytest.raises(ValueError, match="is_tuple takes a list or tuple"):
        is_tuple(A)  # pyright: ignore
    with pytest.raises(IndexError, match="there is no 2"):
        _ = is_tuple([A, A])[2]
    with pytest.raises(TypeError, match="must be a pattern; got Var"):
        is_op("relax.sin")(X)  # pyright: ignore
    with pytest.raises(TypeError, match="has_struct_info takes a StructInfo"):
        wildcard().has_struct_info(3)


def test_builders_match_what_they_are_named_after() -> None:
    x, w, b = (Var(n, relax.TensorStructInfo((4, 4), "float32")) for n in "xwb")
    out, parts = dpl.make_matmul_pattern(True, "relax.nn.relu", True)
    value = op.nn.relu(op.add(op.matmul(x, op.permute_dims(w)), b))
    found = out.extract_matched_expr(value)
    assert found is not None
    assert [found[parts[n]] for n in ("lhs", "rhs", "bias")] == [x, w, b]
    fused = dpl.make_fused_bias_activation_pattern("relax.matmul", True, "relax.nn.relu")
    assert fused.match(op.nn.relu(op.add(b, op.matmul(x, w))))
    block, parts = dpl.make_residual_block_pattern(
        dpl.make_matmul_pattern(), activation="relax.nn.relu"
    )
    found = block.extract_matched_expr(op.nn.relu(op.add(b, op.matmul(x, w))))
    assert found is not None
    assert found[parts["residual"]] is b
    norm, _ = dpl.make_layer_norm_pattern()
    row = Var("g", relax.TensorStructInfo((4,), "float32"))
    assert norm.match(op.nn.layer_norm(x, row, row, [-1]))
    conv, parts = dpl.make_conv2d_pattern()
    assert conv.match(CONV)
    assert set(parts) == {"input", "weight", "root"}
    deq, parts = dpl.make_matmul_dequantize_pattern()
    assert set(parts) == {"lhs", "rhs", "root", "scale", "zp"}
    assert not deq.match(op.matmul(x, w))
    scaled, _ = dpl.make_matmul_multiply_pattern()
    one = Var("o", relax.TensorStructInfo((1,), "float32"))
    two = Var("p", relax.TensorStructInfo((1,), "float32"))
    assert scaled.match(op.astype(op.multiply(op.matmul(x, w), op.multiply(one, two)), "float16"))
    qkv = [Var(n, relax.TensorStructInfo((2, 4, 8, 16), "float32")) for n in "qkv"]
    assert dpl.make_attention_pattern()[0].match(op.nn.attention(*qkv))
    for start in ("split", "strided_slice"):
        for layout in ("BS3NH", "SBN3H"):
            _, parts = dpl.make_stacked_attention_pattern(start, True, layout)
            assert {"stacked_qkv", "bias", "query_reshape_list"} <= set(parts)
    with pytest.raises(ValueError, match="start_op must be"):
        dpl.make_stacked_attention_pattern("cut")
    with pytest.raises(ValueError, match="layout must be"):
        dpl.make_stacked_attention_pattern("split", layout="NHWC")
    assert set(dpl.make_rms_norm_pattern()[1]) == {"gv", "inp", "rms_norm"}
