"""BlockBuilder: names, blocks, A-normal form, spans, scopes and its errors."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed, well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.errors import BuilderError, TVMError
from relax2xla.ir import (
    Call,
    DataflowBlock,
    DataflowVar,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    ObjectStructInfo,
    SeqExpr,
    ShapeExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.base import Attrs
from relax2xla.ir.equal import assert_structural_equal, structural_equal
from relax2xla.ir.expr import BindingBlock
from tests.work import calls

n = tir.Var("n")
INFO = TensorStructInfo((n, 4))


def tensor(name: str = "x") -> Var:
    return Var(name, INFO)


def lines(seq: SeqExpr) -> list[str]:
    """Bindings as text, a dataflow block's after a bar."""
    return [
        ("| " if isinstance(block, DataflowBlock) else "") + repr(b)
        for block in seq.blocks
        for b in block.bindings
    ]


def main_of(bb: BlockBuilder) -> Function:
    func = bb.get()["main"]
    check_well_formed(bb.get())
    return func


def test_names_blocks_and_normal_form() -> None:
    """The bindings that TVM's builder makes of the same program (its names too)."""
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(op.add(op.exp(x), x))
            t = bb.emit((a, x))
            b = bb.emit(TupleGetItem(t, 0))
            c = bb.emit(TupleGetItem(Tuple([b, x]), 1))
            g = bb.emit_output(op.negative(c))
            h = bb.emit_output((g, b))
        y = bb.emit(op.sin(g), name_hint="y")
        bb.emit(y)
        gvar = bb.emit_func_output((op.cos(y), h))
    func = main_of(bb)
    assert lines(func.body) == [
        "| lv = relax.exp(x)",
        "| lv1 = relax.add(lv, x)",
        "| lv2 = (lv1, x)",
        "| lv3 = lv2[0]",
        "| lv4 = <Tuple>[1]",
        "| gv = relax.negative(lv4)",
        "| gv1 = (gv, lv3)",
        "y = relax.sin(gv)",
        "gv2 = y",
        "gv3 = relax.cos(y)",
    ]
    assert [type(b.var) for b in func.body.blocks[0].bindings] == [DataflowVar] * 5 + [Var] * 2
    assert repr(func.body.body) == "(gv3, gv1)"
    assert func.attrs == {"global_symbol": "main"}
    assert gvar.struct_info == func.struct_info
    assert func.ret_struct_info == TupleStructInfo([INFO, TupleStructInfo([INFO, INFO])])


def test_a_tuple_may_stay_an_argument() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        bb.emit_func_output(op.concat((op.exp(x), x)))
    (exp, concat) = main_of(bb).body.blocks[0].bindings
    assert isinstance(concat.value, Call)
    (arg,) = concat.value.args
    assert isinstance(arg, Tuple)
    assert arg.fields == (exp.var, x)


def test_a_shared_expression_is_bound_once() -> None:
    bb, x = BlockBuilder(), tensor()
    shared = op.exp(x)
    with bb.function("main", [x]):
        with bb.dataflow():
            first = bb.emit(op.add(shared, shared))
            again = bb.emit(op.multiply(shared, first))
            out = bb.emit_output(again)
        bb.emit_func_output(op.add(out, shared))
    # The variable of the dataflow block is not visible after it, so there it is computed anew.
    assert lines(main_of(bb).body) == [
        "| lv = relax.exp(x)",
        "| lv1 = relax.add(lv, lv)",
        "| lv2 = relax.multiply(lv, lv1)",
        "| gv = lv2",
        "gv1 = relax.exp(x)",
        "gv2 = relax.add(gv, gv1)",
    ]


def test_a_shared_dag_of_exponential_size_as_a_tree() -> None:
    bb, x = BlockBuilder(), tensor()
    y: object = x
    for _ in range(200):
        y = op.add(y, y)
    with bb.function("main", [x]):
        bb.emit_func_output(y)
    assert len(main_of(bb).body.blocks[0].bindings) == 200


def test_a_deep_expression_needs_no_recursion() -> None:
    bb, x = BlockBuilder(), tensor()
    y: object = x
    assert sys.getrecursionlimit() < 10_000
    for _ in range(50_000):
        y = op.sin(y)
    with bb.function("main", [x]):
        bb.emit_func_output(y)
    assert len(bb.get()["main"].body.blocks[0].bindings) == 50_000


def test_emit_is_the_same_work_in_long_functions() -> None:
    """Time is of the machine; ``benchmarks torch_models`` has that of whole imports."""

    def build(count: int) -> None:
        bb, x = BlockBuilder(), tensor()
        value = op.sin(x)
        with bb.function("main", [x]):
            for _ in range(count):
                bb.emit(Call(value.op, [x], struct_info=INFO))
            bb.emit_func_output(x)

    build(1)  # what is imported and registered at first use
    assert calls(lambda: build(4000)) < 2.1 * calls(lambda: build(2000)) < 2.1 * 2000 * 60


def test_branches_are_sequences_of_their_own() -> None:
    bb, x, cond = BlockBuilder(), tensor(), Var("c", TensorStructInfo((), "bool"))
    shared = op.exp(x)
    with bb.function("main", [x, cond]):
        bb.emit(shared)
        both = If(cond, op.add(op.sin(shared), x), op.sin(shared))
        bb.emit_func_output(op.add(both, x))
    func = main_of(bb)
    assert lines(func.body) == ["gv = relax.exp(x)", "gv4 = <if c>", "gv5 = relax.add(gv4, x)"]
    branch = func.body.blocks[0].bindings[1].value
    assert isinstance(branch, If)
    assert lines(branch.true_branch) == ["gv1 = relax.sin(gv)", "gv2 = relax.add(gv1, x)"]
    assert lines(branch.false_branch) == ["gv3 = relax.sin(gv)"]


def test_a_symbol_of_a_branch_does_not_leave_it() -> None:
    m = tir.Var("m")
    bb, x, cond = BlockBuilder(), tensor(), Var("c", TensorStructInfo((), "bool"))
    inner = Var("inner", TensorStructInfo((m, 4)))
    cast = BindingBlock([MatchCast(inner, x, TensorStructInfo((m, 4)))])
    with bb.function("main", [x, cond]):
        out = bb.emit(If(cond, SeqExpr([cast], inner), SeqExpr([], inner)))
        assert out.struct_info == TensorStructInfo(ndim=2)
        bb.emit_func_output(x)


def test_the_result_shows_only_symbols_that_parameters_define() -> None:
    m = tir.Var("m")
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        y = bb.match_cast(x, TensorStructInfo((m, 4)))
        assert y.struct_info == TensorStructInfo((m, 4))
        bb.emit_func_output((x, y))
    assert main_of(bb).ret_struct_info == TupleStructInfo([INFO, TensorStructInfo(ndim=2)])


def test_nested_functions_become_local() -> None:
    bb, x, y = BlockBuilder(), tensor(), tensor("y")
    inner = Function([y], op.sin(op.exp(y)))
    with bb.function("main", [x]):
        bb.emit_func_output(Call(inner, [x]))
    func = main_of(bb)
    assert lines(func.body) == ["gv2 = function(y)", "gv3 = gv2(x)"]
    made = func.body.blocks[0].bindings[0].value
    assert isinstance(made, Function)
    assert lines(made.body) == ["gv = relax.exp(y)", "gv1 = relax.sin(gv)"]
    assert isinstance(func.body.blocks[0].bindings[0].var.struct_info, FuncStructInfo)


def test_the_same_function_twice_gets_variables_of_its_own() -> None:
    bb, x, y, v = BlockBuilder(), tensor(), tensor("y"), tensor("v")
    inner = Function([y], SeqExpr([BindingBlock([VarBinding(v, op.sin(y))])], v))
    with bb.function("main", [x]):
        f = bb.emit(inner)
        g = bb.emit(inner)
        bb.emit_func_output(Call(g, [Call(f, [x])]))
    main_of(bb)


def test_a_sequence_is_spliced() -> None:
    bb, x, v = BlockBuilder(), tensor(), tensor("v")
    seq = SeqExpr([BindingBlock([VarBinding(v, op.sin(op.exp(x)))])], op.cos(v))
    with bb.function("main", [x]):
        a = bb.emit(seq)
        b = bb.emit(op.negative(seq))  # known already
        bb.emit_func_output(op.add(a, b))
    assert lines(main_of(bb).body) == [
        "gv = relax.exp(x)",
        "v = relax.sin(gv)",
        "gv1 = relax.cos(v)",
        "gv2 = relax.negative(gv1)",
        "gv3 = relax.add(gv1, gv2)",
    ]


def test_match_cast_of_an_expression_binds_it_first() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        y = bb.match_cast(op.exp(x), TensorStructInfo((3, 4)), "y")
        bb.emit_func_output(y)
    first, second = main_of(bb).body.blocks[0].bindings
    assert isinstance(second, MatchCast)
    assert second.value is first.var
    assert bb.lookup_binding(y) is first.var


def test_normalize_leaves_normal_functions_alone() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        bb.emit_func_output(op.sin(bb.emit(op.exp(x))))
    func = bb.get()["main"]
    assert BlockBuilder().normalize(func) is func
    x2 = tensor()
    raw = Function([x2], op.sin(op.exp(x2)), attrs={"global_symbol": "main"})
    assert not well_formed(raw)
    normal = BlockBuilder().normalize(raw)
    assert_structural_equal(normal, func, map_free_vars=True)
    assert well_formed(normal)  # pyright: ignore[reportArgumentType]


def test_spans() -> None:
    bb, x = BlockBuilder(), tensor()
    mine, outer = Span("mine"), Span("outer")
    e = op.sin(op.exp(x))
    own = Call(e.op, e.args, span=mine)
    with bb.function("main", [x]):
        with bb.source("outer"):
            a = bb.emit(own)
            b = bb.emit(op.cos(op.tanh(a)))
            c = bb.emit(op.cos(b), span=Span("given"))
        d = bb.match_cast(op.tan(c), INFO, span=mine)
        bb.emit_func_output(op.cos(d))
    bindings = main_of(bb).body.blocks[0].bindings
    assert [b.span for b in bindings] == [
        *(mine, mine),
        *(outer, outer),
        Span("given"),
        *(mine, mine),
        None,
    ]
    assert all(b.var.span == b.span for b in bindings)


def test_current() -> None:
    assert BlockBuilder.current() is None
    outer, inner = BlockBuilder(), BlockBuilder()
    x, y = tensor(), tensor("y")
    with outer.function("f", [x]):
        assert BlockBuilder.current() is outer
        with inner.function("g", [y]):
            assert BlockBuilder.current() is inner
            inner.emit_func_output(y)
        assert BlockBuilder.current() is outer
        outer.emit_func_output(x)
    assert BlockBuilder.current() is None


def test_a_function_inside_a_function() -> None:
    bb, x, y = BlockBuilder(), tensor(), Var("y", TensorStructInfo((3,)))
    with bb.function("main", [x]):
        a = bb.emit(op.exp(x))
        with bb.function("helper", [y], private=True):
            helper = bb.emit_func_output(op.sin(y))
        bb.emit(Call(helper, [const(np.ones(3, "float32"))]))
        bb.emit_func_output(a)
    assert [g.name_hint for g in bb.get()] == ["helper", "main"]
    main_of(bb)


def test_parameters_may_come_last() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main"):
        bb.emit_func_output(op.sin(x), params=x)
    assert main_of(bb).params == (x,)


def test_current_block_and_names() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x], attrs={"a": 1}, private=True, pure=False):
        assert not bb.current_block_is_dataflow()
        with bb.dataflow():
            assert bb.current_block_is_dataflow()
        names = [bb.get_unique_name(p) for p in ("a", "a", "a1", "lv", "a-b.c", "")]
        # As TVM gives them.
        assert names == ["a", "a1", "a11", "lv", "a-b_c", "v"]
        assert bb.emit(x, "a").name_hint == "a2"
        bb.emit_func_output(x)
    func = bb.get()["main"]
    assert func.attrs == Attrs({"a": 1})
    assert not func.is_pure


def test_python_values_and_constants() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        a = bb.emit(2.5)
        b = bb.emit([x, ShapeExpr([n])])
        c = bb.emit(np.arange(3))
        bb.emit_func_output([a, b, c])
    assert a.struct_info == TensorStructInfo((), "float32")
    assert c.struct_info == TensorStructInfo((3,), "int64")
    main_of(bb)


def test_add_func_keeps_one_of_equal_functions() -> None:
    def make(k: int) -> Function:
        x = tensor()
        return BlockBuilder().normalize(Function([x], op.add(x, const(k, "float32"))))  # type: ignore[return-value]

    bb = BlockBuilder()
    one = bb.add_func(make(1), "f")
    assert bb.add_func(make(1), "f") is one
    assert bb.add_func(make(1), "other") is one
    two = bb.add_func(make(2), "f")
    assert two.name_hint == "f1"
    bb.update_func(two, make(3))
    assert bb.add_func(make(3), "g") is two
    assert bb.add_func(make(2), "g").name_hint == "g"
    start = BlockBuilder(bb.get())
    assert start.add_func(make(1), "f") is one
    assert start.add_func(make(9), "f").name_hint == "f2"
    added = GlobalVar("new")
    start.update_func(added, make(7))
    assert start.get()["new"] is start.get()[added]
    assert start.add_func(make(8), "new").name_hint == "new1"


def test_get_is_a_snapshot_and_finalize_renames() -> None:
    x, y = Var("x", TensorStructInfo((2,))), Var("y", TensorStructInfo((2,)))
    bb = BlockBuilder()
    with bb.function("main", [x], private=True):
        helper = bb.emit_func_output(op.sin(x))
    before = bb.get()
    with bb.function("main", [y]):
        gvar = bb.emit_func_output(Call(helper, [y]))
    assert len(before) == 1
    assert gvar.name_hint == "main1"
    assert not well_formed(bb.get())
    mod = bb.finalize()
    check_well_formed(mod)
    assert mod["main"].attrs["global_symbol"] == "main"
    call = mod["main"].body.blocks[0].bindings[0].value
    assert call.op is mod.get_global_var("main1")


def test_testing_scope_and_begin_scope() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.testing_scope([n]):
        assert isinstance(bb.emit(op.sin(x)), DataflowVar)
    bb.begin_scope([x])
    bb.emit(op.sin(x))
    (block,) = bb.end_scope()
    assert len(block.bindings) == 1
    with pytest.raises(ValueError, match=r"tir\.Var"), bb.testing_scope([x]):  # type: ignore[list-item]
        pass


def test_errors() -> None:
    x = tensor()
    bb = BlockBuilder()
    with pytest.raises(BuilderError, match="emit outside of a function"):
        bb.emit(x)
    with pytest.raises(BuilderError, match="end_scope without its begin"):
        bb.end_scope()
    no_output = pytest.raises(BuilderError, match="'main' ends without emit_func_output")
    with no_output, bb.function("main", [x]):
        bb.emit(x)
    with bb.function("f", [x]):
        with pytest.raises(BuilderError, match="emit_output outside of a dataflow block"):
            bb.emit_output(x)
        with bb.dataflow():
            with pytest.raises(BuilderError, match="emit_func_output inside a dataflow block"):
                bb.emit_func_output(x)
            lv = bb.emit(x)
        with pytest.raises(BuilderError, match="parameters of 'f' are given both here"):
            bb.emit_func_output(x, [x])
        with pytest.raises(BuilderError, match="lv is visible only in its dataflow block"):
            bb.emit_func_output(lv)
        with pytest.raises(BuilderError, match="DataflowVar d is bound outside"):
            bb.emit_normalized(VarBinding(DataflowVar("d", INFO), x))
        with pytest.raises(TypeError, match="takes a binding"):
            bb.emit_normalized(x)  # type: ignore[arg-type]
        bb.emit_func_output(x)
        with pytest.raises(BuilderError, match="emit after emit_func_output"):
            bb.emit(x)
    with pytest.raises(BuilderError, match="neither here nor"), bb.function("g"):
        bb.emit_func_output(x)
    with pytest.raises(TypeError, match="must be a Var; got Call"), bb.function("g", [op.sin(x)]):  # type: ignore[list-item]
        pass
    assert BlockBuilder.current() is None
    two = IRModule({GlobalVar(s): Function([x], x).with_attr("global_symbol", "s") for s in "ab"})
    with pytest.raises(BuilderError, match="two functions have the global_symbol 's'"):
        BlockBuilder(two).finalize()


def test_an_exception_in_a_scope_leaves_the_builder_usable() -> None:
    bb, x = BlockBuilder(), tensor()
    with pytest.raises(ZeroDivisionError), bb.function("main", [x]), bb.dataflow():
        raise ZeroDivisionError
    with bb.function("main", [x]):
        bb.emit_func_output(op.sin(x))
    assert structural_equal(main_of(bb), bb.get()["main"])


def test_nested_dataflow_scopes_are_one_block() -> None:
    """As in TVM: the end of the inner scope ends the block."""
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(op.exp(x))
            with bb.dataflow():
                b = bb.emit_output(op.sin(a))
            assert not bb.current_block_is_dataflow()
            with pytest.raises(BuilderError, match="emit_output outside of a dataflow block"):
                bb.emit_output(b)
            c = bb.emit(op.cos(b))
        bb.emit_func_output(c)
    assert lines(main_of(bb).body) == [
        "| lv = relax.exp(x)",
        "| gv = relax.sin(lv)",
        "gv1 = relax.cos(gv)",
    ]


def test_wrong_parameters_are_refused_before_the_scope_opens() -> None:
    bb = BlockBuilder()
    with pytest.raises(TypeError, match="must be a Var; got Call"):
        bb.function("main", [op.sin(tensor())])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"tir\.Var"):
        bb.testing_scope([tensor()])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="must be a Var; got int"):
        bb.begin_scope([1])  # type: ignore[list-item]


def test_none_is_a_null_value() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        a = bb.emit(None)
        bb.emit_func_output((a, (None,)))
    func = main_of(bb)
    assert lines(func.body) == ["gv = relax.null_value()", "gv1 = relax.null_value()"]
    assert func.ret_struct_info == TupleStructInfo(
        [ObjectStructInfo(), TupleStructInfo([ObjectStructInfo()])]
    )


@pytest.mark.parametrize(
    "target",
    [
        TupleStructInfo([]),
        TensorStructInfo((n, 4), "int8"),
        TensorStructInfo((n, 4, 4)),
        TensorStructInfo((n, 5)),
    ],
)
def test_a_cast_that_no_value_passes(target: StructInfo) -> None:
    """TVM refuses the same four."""
    bb, x = BlockBuilder(), tensor()
    with bb.testing_scope([n]), pytest.raises(TVMError, match="can never be cast to"):
        bb.match_cast(x, target)


def test_casts_that_a_value_may_pass() -> None:
    bb, x, o = BlockBuilder(), tensor(), Var("o", ObjectStructInfo())
    with bb.testing_scope([n]):
        for value, target in [
            (x, TensorStructInfo((3, 4))),
            (x, TensorStructInfo(ndim=2)),
            (x, ObjectStructInfo()),
            (o, TensorStructInfo((tir.Var("k"),))),
            (Tuple([x]), TupleStructInfo([TensorStructInfo((3, 4))])),
        ]:
            assert bb.match_cast(value, target).struct_info == target


def test_tensor_expressions_take_functions() -> None:
    """Their values are tested in tests/te."""
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        for method in (bb.emit_te, bb.call_te):
            with pytest.raises(TypeError, match="takes a function over tensors first; got 1"):
                method(1)  # type: ignore[arg-type]
        bb.emit_func_output(x)


def test_a_result_may_be_named_as_in_its_dataflow_block() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.exp(x))
            z = bb.emit(op.exp(y))
            out = bb.emit_output(y)
        bb.emit_func_output([y, x])
    body = bb.get()["main"].body.body
    assert isinstance(body, Tuple)
    assert list(body.fields) == [out, x]
    with bb.function("other", [x]):
        with bb.dataflow():
            z = bb.emit(op.exp(x))
        with pytest.raises(BuilderError, match="visible only in its dataflow block"):
            bb.emit_func_output(z)
        bb.emit_func_output(x)


def test_normalize_without_a_scope() -> None:
    """As in TVM: what needs no binding needs no scope."""
    bb, x = BlockBuilder(), tensor()
    call = op.exp(x)
    assert bb.normalize(call) is call
    with pytest.raises(BuilderError, match="normalize outside of a function"):
        bb.normalize(op.exp(call))
    late = GlobalVar("late")
    call = Call(late, [x])
    assert call.struct_info_ is None
    late.struct_info_ = FuncStructInfo([INFO], INFO)
    assert bb.normalize(call).struct_info == INFO


def test_parameters_are_lifted_at_the_end() -> None:
    """Symbols of parameters that come last still show in the result."""
    bb, x, w = BlockBuilder(), tensor(), tensor("w")
    with bb.function("main"):
        with bb.dataflow():
            out = bb.emit_output(op.add(x, w))
        bb.emit_func_output(out, params=[x, w])
    assert main_of(bb).ret_struct_info == INFO
    assert main_of(bb).params == (x, w)


def test_calls_of_global_functions_with_symbols() -> None:
    """The result's shape is that of the arguments, through the callee's symbols."""
    m = tir.Var("m")
    y = Var("y", TensorStructInfo((m, 4)))
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((n + 1, 4)))
    with bb.function("twice", [y], private=True):
        twice = bb.emit_func_output(op.concat([y, y], axis=0))
    with bb.function("main", [x, tensor("unused")]):
        out = bb.emit(Call(twice, [x]))
        with pytest.raises(TVMError, match="argument 0 has 5 in dimension 1, expected 4"):
            Call(twice, [Var("z", TensorStructInfo((3, 5)))])
        with pytest.raises(TVMError, match="takes 1 arguments; got 2"):
            Call(twice, [x, x])
        bb.emit_func_output(out)
    assert str(out.struct_info) == 'Tensor((n * 2 + 2, 4), dtype="float32")'


def test_emit_output_twice_and_two_results() -> None:
    bb, x = BlockBuilder(), tensor()
    with bb.function("main", [x]):
        bb.emit_func_output(x)
        with pytest.raises(BuilderError, match="emit_func_output after emit_func_output"):
            bb.emit_func_output(x)
    with pytest.raises(RuntimeError, match="emit_func_output outside of a function"):
        bb.emit_func_output(x)
    with pytest.raises(TVMError, match="emit_output outside of a function"):
        bb.emit_output(x)


def test_a_local_function_in_two_branches() -> None:
    bb, x, y, c = BlockBuilder(), tensor(), tensor("y"), Var("c", TensorStructInfo((), "bool"))
    call = Call(Function([y], y), [x])
    with bb.function("main", [x, c]):
        bb.emit_func_output(If(c, call, op.add(call, x)))
    main_of(bb)


def test_a_condition_is_normal_outside_of_functions() -> None:
    c = Var("c", TensorStructInfo((), "bool"))
    x = Var("x", TensorStructInfo((2,), "float32"))
    plain = If(c, x, x)
    assert BlockBuilder().normalize(plain) is plain
    made = BlockBuilder().normalize(If(c, op.exp(op.negative(x)), x))
    assert isinstance(made, If)
    assert [b.value.op.name for b in made.true_branch.blocks[0].bindings] == [
        "relax.negative",
        "relax.exp",
    ]
    with pytest.raises(BuilderError, match="normalize outside of a function"):
        BlockBuilder().normalize(If(op.logical_not(c), x, x))


def test_a_call_of_what_has_no_struct_info_yet() -> None:
    x = Var("x")
    call = op.add(x, x)
    assert call.struct_info_ is None
    x.struct_info_ = TensorStructInfo((2,), "float32")
    bb = BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(call))
    assert bb.get()["main"].ret_struct_info == TensorStructInfo((2,), "float32")
