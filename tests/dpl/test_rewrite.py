"""Rewriters: what TVM promises of them, values against numpy, and how often they look."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relax2xla as relax
from relax2xla import op
from relax2xla.analysis import well_formed
from relax2xla.dpl import (
    DFPattern,
    ExprPatternRewriter,
    PatternMatchingRewriter,
    TupleRewriter,
    is_const,
    is_op,
    is_tuple,
    rewrite_call,
    wildcard,
)
from relax2xla.dpl.rewrite import _Walk
from relax2xla.dpl.rules import Rule, rewrite
from relax2xla.dpl.tidy import tidied
from relax2xla.errors import TransformError
from relax2xla.ir import (
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    SeqExpr,
    Var,
    VarBinding,
    assert_structural_equal,
)
from relax2xla.ir.rewrite import bindings_of
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.testing import evaluate
from relax2xla.transform import PassContext, Sequential

INFO = relax.TensorStructInfo((2, 3), "float32")
A, B = wildcard(), wildcard()
ADD_ZERO = is_op("relax.add")(A, is_const())


def without_zero(expr: Expr, found: dict[DFPattern, Expr]) -> Expr:
    """``x + 0`` is ``x``."""
    constant = next(e for p, e in found.items() if p is ADD_ZERO.args[1])
    assert isinstance(constant, relax.Constant)
    return expr if constant.data.any() else found[A]


def graph(steps: list[tuple[int, int, int]]) -> Function:
    """Two inputs, then a value for each step: what it does, and with which earlier values."""
    params = [Var("x", INFO), Var("y", INFO)]
    made: list[Var] = list(params)
    zero, one = relax.const(np.zeros((), "f")), relax.const(np.ones((), "f"))
    bindings = []
    kinds: list[Callable[[Expr, Expr], relax.Call]] = [
        lambda a, b: op.add(a, zero),
        lambda a, b: op.add(zero, a),
        lambda a, b: op.add(a, one),
        lambda a, b: op.subtract(a, b),
        lambda a, b: op.sin(a),
        lambda a, b: op.maximum(a, b),
    ]
    for kind, a, b in steps:
        value = kinds[kind % len(kinds)](made[a % len(made)], made[b % len(made)])
        bindings.append(VarBinding(DataflowVar("v", value.struct_info), value))
        made.append(bindings[-1].var)
    last = Var("last", INFO)
    bindings.append(VarBinding(last, op.cos(made[-1])))
    return Function(
        params, SeqExpr([DataflowBlock(bindings)], last), attrs={"global_symbol": "main"}
    )


STEPS = st.lists(st.tuples(*[st.integers(0, 60)] * 3), max_size=30)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_the_identity_changes_nothing(steps: list[tuple[int, int, int]]) -> None:
    func = graph(steps)
    anything = is_op("relax.add")(A, B) | is_op("relax.sin")(A) | wildcard()
    assert rewrite_call(anything, lambda expr, found: expr, func) is func
    assert rewrite_call(anything, lambda expr, found: None, func) is func


@settings(deadline=None, max_examples=15)
@given(STEPS)
def test_values_stay_and_zeros_go(steps: list[tuple[int, int, int]]) -> None:
    func = graph(steps)
    after = rewrite_call(ADD_ZERO, without_zero, func)
    assert well_formed(IRModule({"main": after}))
    for b in bindings_of(after.body):
        found = ADD_ZERO.extract_matched_expr(b.value)
        if found is not None:
            assert without_zero(b.value, found) is b.value
    x, y = np.float32([[1, -2, 3], [0, 5, 6]]), np.float32([[2, 2, 2], [-1, 0, 9]])
    values: list[np.ndarray] = [x, y]
    numpy_kinds = [
        lambda a, b: a,
        lambda a, b: a,
        lambda a, b: a + 1,
        lambda a, b: a - b,
        lambda a, b: np.sin(a),
        np.maximum,
    ]
    for kind, a, b in steps:
        rule = numpy_kinds[kind % len(numpy_kinds)]
        values.append(rule(values[a % len(values)], values[b % len(values)]))
    np.testing.assert_allclose(evaluate(after, [x, y]), np.cos(values[-1]), rtol=1e-5, atol=1e-5)


def chain(length: int, every: int = 1) -> Function:
    """A chain of sines, ``x + 0`` at each ``every``-th place."""
    x, zero = Var("x", INFO), relax.const(np.zeros((), "f"))
    last, bindings = x, []
    plus, sine = op.add(x, zero).op, op.sin(x).op
    for i in range(length):
        args = [last, zero] if i % every == 0 else [last]
        value = relax.Call(plus if i % every == 0 else sine, args, struct_info=INFO)
        last = (Var if i == length - 1 else DataflowVar)("v", INFO)
        bindings.append(VarBinding(last, value))
    return Function([x], SeqExpr([DataflowBlock(bindings)], last))


def visits(length: int, every: int) -> tuple[int, int]:
    """Comparisons for a rewrite of a chain, and the bindings after it."""
    rewriter = PatternMatchingRewriter.from_pattern(ADD_ZERO, without_zero)
    walk = _Walk(rewriter.steps())
    new = walk.function(chain(length, every))
    return walk.visits, len(list(bindings_of(new.body)))


@pytest.mark.parametrize("every", [1, 50])
def test_visits_are_linear_in_what_can_match(every: int) -> None:
    small, _ = visits(500, every)
    large, left = visits(2000, every)
    assert large <= 4 * small
    assert large <= 6 * 2000 / every
    assert left == 2000 - 2000 // every


def test_a_block_of_which_nothing_is_left_goes() -> None:
    after = rewrite_call(ADD_ZERO, without_zero, chain(5))
    assert after.body.blocks == ()
    assert after.body.body is after.params[0]


def test_a_hundred_thousand_bindings() -> None:
    func = chain(100_000, 25_000)
    after, modified = rewrite(func, [Rule(ADD_ZERO, lambda m: m[A])])
    assert modified == 4
    assert len(list(bindings_of(after.body))) == 100_000
    never = is_op("relax.matmul")(A, B)
    assert rewrite_call(never, lambda expr, found: None, func) is func


def test_a_long_cascade_is_one_round() -> None:
    """A factor goes down a chain of sums; each step makes what the next one matches."""
    weights = [Var(f"w{i}", INFO) for i in range(300)]
    two = relax.const(np.float32(2))
    total: Expr = weights[0]
    bindings = []
    for w in weights[1:]:
        value = op.add(total, w)
        total = DataflowVar("s", INFO)
        bindings.append(VarBinding(total, value))
    out = Var("out", INFO)
    bindings.append(VarBinding(out, op.multiply(total, two)))
    func = Function(weights, SeqExpr([DataflowBlock(bindings)], out))
    c = is_const()
    pattern = is_op("relax.multiply")(is_op("relax.add")(A, B), c)
    rewriter = PatternMatchingRewriter.from_pattern(
        pattern, lambda _, m: op.add(op.multiply(m[A], m[c]), op.multiply(m[B], m[c]))
    )
    walk = _Walk(rewriter.steps())
    after = walk.function(func)
    assert walk.visits <= 20 * len(weights)
    names = [b.value.op.name for b in bindings_of(after.body)]
    assert names.count("relax.multiply") == 300
    assert names.count("relax.add") == 299


def test_what_does_not_end_is_an_error() -> None:
    add = is_op("relax.add")(A, B)
    swap = PatternMatchingRewriter.from_pattern(add, lambda _, m: op.add(m[B], m[A]))
    with pytest.raises(TransformError, match="does not come to an end"):
        swap(graph([(3, 0, 1), (2, 2, 2)]))
    # Nor where the result holds the very value that has matched.
    wrap = PatternMatchingRewriter.from_pattern(add, lambda value, _: op.negative(value))
    with pytest.raises(TransformError, match="does not come to an end"):
        wrap(graph([(2, 0, 1)]))
    # What is written anew but is the same is no rewrite.
    same = PatternMatchingRewriter.from_pattern(add, lambda _, m: op.add(m[A], m[B]))
    func = graph([(2, 0, 0)])
    assert same(func) is func
    with pytest.raises(TypeError, match="gives an expression, or None"):
        rewrite_call(add, lambda _, m: 3, func)  # pyright: ignore


@I.ir_module
class Several:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), flag: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.sin(x)
            b = R.negative(a)
            R.output(b)
        with R.dataflow():
            c = R.negative(b)
            d = R.sin(c)
            R.output(d)
        e = R.match_cast(d, R.Tensor((2, 3), "float32"))
        if flag:
            f = R.negative(e)
            g = R.negative(f)
        else:
            g = R.cos(e)
        return g


def test_blocks_casts_and_branches() -> None:
    twice = is_op("relax.negative")(is_op("relax.negative")(A))
    after = PatternMatchingRewriter.from_pattern(twice, lambda _, m: m[A])(Several)
    text = after["main"].script()
    # Blocks are on their own; the branch loses both.
    assert text.count("R.negative") == 2
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    for flag in (np.array(True), np.array(False)):
        assert well_formed(after)
        np.testing.assert_allclose(
            evaluate(after, [x, flag]), evaluate(Several, [x, flag]), rtol=1e-6
        )
    assert (
        PatternMatchingRewriter.from_pattern(is_op("relax.tan")(A), lambda _, m: m[A])(Several)
        is Several
    )


def test_struct_info_of_what_depends_on_it() -> None:
    @R.function(private=True)
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.sin(x)
            b = R.exp(a)
            R.output(b)
        return b

    widened = rewrite_call(
        is_op("relax.sin")(A), lambda _, m: op.astype(op.cos(m[A]), "float64"), before
    )
    assert widened.ret_struct_info == relax.TensorStructInfo((2, 3), "float64")
    assert well_formed(IRModule({"main": widened}))


def test_a_returned_tuple_of_a_dataflow_block() -> None:
    @R.function(private=True)
    def before(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.sin(x)
            b = R.cos(x)
            R.output(a, b)
        return (a, b)

    s, c = is_op("relax.sin")(A), is_op("relax.cos")(A)
    pattern = is_tuple([s, c])
    after = rewrite_call(
        pattern, lambda _, m: relax.Tuple([op.exp(m[A]), op.exp(op.exp(m[A]))]), before
    )
    assert well_formed(IRModule({"main": after}))
    text = after.script()
    assert "sin" not in text
    assert text.count("R.exp") == 2


def test_implicit_tuples_find_their_partner_by_what_they_share() -> None:
    count = 60
    xs = [Var(f"x{i}", INFO) for i in range(count)]
    bindings = [VarBinding(DataflowVar("s", INFO), op.sin(x)) for x in xs]
    bindings += [VarBinding(DataflowVar("c", INFO), op.cos(x)) for x in xs]
    out = relax.Tuple([b.var for b in bindings])
    last = Var("out", out.struct_info)
    func = Function(xs, SeqExpr([DataflowBlock([*bindings, VarBinding(last, out)])], last))
    asked: list[Expr] = []

    def both(whole: Expr, m: dict[DFPattern, Expr]) -> Expr:
        asked.append(whole)
        return op.split(op.concat([m[A], m[A]], 0), 2, 0)

    patterns = [is_op("relax.sin")(A), is_op("relax.cos")(A)]
    after = TupleRewriter(patterns, both)(func)
    assert len(asked) == count
    assert after.script().count("R.split") == count
    with pytest.raises(ValueError, match="one to three patterns"):
        TupleRewriter([A] * 4, both)


def test_rewriters_compose_and_are_passes() -> None:
    sine = ExprPatternRewriter(is_op("relax.sin")(A), lambda _, m: op.cos(m[A]))
    cosine = ExprPatternRewriter(is_op("relax.cos")(A), lambda _, m: op.tan(m[A]))
    func = graph([(4, 0, 0)])
    text = (sine | cosine)(func).script()
    assert text.count("R.tan") == 2
    assert "cos" not in text
    mod = IRModule({"main": func})
    assert_structural_equal(Sequential([sine, cosine])(mod), (sine | cosine)(mod))
    assert sine.info.name == "PatternMatchingRewriter"
    with PassContext(disabled_pass=["PatternMatchingRewriter"]):
        assert Sequential([sine])(mod) is mod


def test_a_module_says_attributes_and_results() -> None:
    @R.rewriter
    class Halves:
        @R.function
        def pattern(x: R.Tensor(("n", 4), "float32")):
            return R.sum(x, axis=[1])

        @R.function
        def replacement(x: R.Tensor(("n", 4), "float32")):
            return R.multiply(R.mean(x, axis=[1]), R.const(4, "float32"))

    assert isinstance(Halves, PatternMatchingRewriter)

    @R.function(private=True)
    def before(x: R.Tensor((4, 4), "float32"), y: R.Tensor(("k", 4), "float32")):
        a = R.sum(x, axis=[0])
        b = R.sum(x, axis=[1])
        c = R.sum(y, axis=[1])
        return (a, b, c)

    text = Halves(before).script()
    assert text.count("R.sum") == 1
    assert text.count("R.mean") == 2
    assert '("k",)' in text
    with pytest.raises(TypeError, match="a text, a class or a function; got int"):
        R.rewriter(3)


def test_subroutines_need_a_module() -> None:
    @R.rewriter
    class Rule:
        @R.function
        def pattern(x: R.Tensor((2, 3), "float32")):
            return R.sin(x)

        @R.function
        def replacement(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return Rule.helper(x)

        @R.function(private=True)
        def helper(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.cos(x)

    func = graph([(4, 0, 0)])
    with pytest.raises(TransformError, match=r"helper.*which need a module"):
        Rule(func)
    mod = Rule(IRModule({"main": func, "helper": graph([])}))
    assert [g.name_hint for g in mod] == ["main", "helper", "helper_1"]
    assert "cls.helper_1(" in mod.script() or "helper_1(x)" in mod.script()
    x = np.ones((2, 3), "f")
    np.testing.assert_allclose(evaluate(mod, [x, x]), np.cos(np.cos(x)), rtol=1e-6)
    again = Rule(IRModule({**dict(mod.items()), relax.GlobalVar("other"): graph([(4, 0, 0)])}))
    assert len(again) == 4  # the helper is there already


def test_memory_is_not_shared_as_values_are() -> None:
    builder = relax.BlockBuilder()
    x = Var("x", relax.TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        memory = [builder.emit(op.builtin.alloc_tensor((2,), "float32", 0)) for _ in range(2)]
        values = [builder.emit(op.exp(x)) for _ in range(2)]
        builder.emit_func_output(relax.Tuple([*memory, *values]))
    made = [b.value for b in bindings_of(tidied(builder.get()["main"].body))]
    names = [value.op.name for value in made if isinstance(value, relax.Call)]
    assert sorted(names) == ["relax.builtin.alloc_tensor"] * 2 + ["relax.exp"]
