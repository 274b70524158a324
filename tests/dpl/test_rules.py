"""The driver of rules: what a rule sees, what it leaves, and what looking costs."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import relax2xla as relax
from relax2xla import op
from relax2xla.analysis import well_formed
from relax2xla.dpl import is_const, is_op, wildcard
from relax2xla.dpl.rules import Index, Match, Rule, rewrite, rule
from relax2xla.errors import TransformError
from relax2xla.ir import Expr, Function, IRModule, Span, VarBinding
from relax2xla.ir.rewrite import bindings_of
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.testing import evaluate
from tests.dpl.test_rewrite import chain

A, B = wildcard(), wildcard()
INNER = is_op("relax.sin")(A)


@rule(is_op("relax.cos")(INNER))
def cosine_of_sine(m: Match) -> Expr:
    """Some other computation, with a variable of its own."""
    assert m.called(INNER).op.name == "relax.sin"
    return op.add(m.bind("half", op.multiply(m[A], relax.const(0.5, "float32"))), m[INNER])


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32"), flag: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.sin(x)
            b = R.cos(a)
            hidden = R.exp(x)
            seen = R.sin(hidden)
            R.output(b, seen)
        with R.dataflow():
            c = R.cos(seen)
            R.output(c)
        if flag:
            d = R.sin(c)
            e = R.cos(d)
        else:
            e = R.add(b, c)
        return e


def test_a_rule_sees_what_is_in_sight() -> None:
    after, modified = rewrite(Module, [cosine_of_sine])
    # Not the cosine of `seen`: what that is computed from is of another block.
    assert modified == 2
    assert well_formed(after)
    text = after.script()
    assert text.count("R.multiply") == 2
    assert "b_half" in text
    outer, modified = rewrite(Module, [cosine_of_sine], inside=False)
    assert modified == 1
    x = np.float32([1, 2, 3])
    for flag in (np.array(True), np.array(False)):
        s = np.sin(x)
        b, c = x / 2 + s, np.cos(np.sin(np.exp(x)))
        want = c / 2 + np.sin(c) if flag else b + c
        np.testing.assert_allclose(evaluate(after, [x, flag]), want, rtol=1e-5)
    assert rewrite(Module, [])[0] is Module
    assert rewrite(outer["main"], [rule(is_op("relax.tan")(A))(lambda m: m[A])])[1] == 0


def test_the_first_rule_that_applies() -> None:
    asked: list[str] = []

    def note(name: str, made: Expr | None) -> Rule:
        def action(m: Match) -> Expr | None:
            asked.append(name)
            return made

        return Rule(is_op("relax.sin")(A), action)

    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    y = relax.Var("y", relax.TensorStructInfo((3,), "float32"))
    body = relax.SeqExpr([relax.BindingBlock([VarBinding(y, op.sin(x))])], y)
    func = Function([x], body)
    after, modified = rewrite(func, [note("no", None), note("yes", op.cos(x)), note("late", x)])
    assert asked == ["no", "yes"]
    assert modified == 1
    assert "R.cos" in after.script()
    # What a rule has bound goes again when it refuses after all, or gives the same.
    for refuse in (lambda m: m.bind("t", op.exp(m[A])) and None, lambda m: op.sin(m[A])):
        assert rewrite(func, [rule(is_op("relax.sin")(A))(refuse)]) == (func, 0)


def test_again_goes_on_with_what_was_made() -> None:
    zero = relax.const(np.float32(0))

    @rule(is_op("relax.exp")(A))
    def to_sine(m: Match) -> Expr:
        return op.add(op.sin(m[A]), zero)

    @rule(is_op("relax.add")(A, is_const()))
    def nothing(m: Match) -> Expr:
        return m[A]

    @rule(is_op("relax.sin")(A))
    def to_tan(m: Match) -> Expr:
        return op.tan(m[A])

    rules = [to_sine, nothing, to_tan]
    once, modified = rewrite(Module, rules)
    assert modified == 4
    assert "R.add" in once.script()
    assert "R.tan" in once.script()
    after, modified = rewrite(Module, rules, again=True)
    assert modified == 6
    assert after.script().count("R.sin") == 0
    swap = rule(is_op("relax.add")(A, B))(lambda m: op.add(m[B], m[A]))
    with pytest.raises(TransformError, match="does not come to an end"):
        rewrite(Module, [swap], again=True)
    assert rewrite(Module, [swap])[1] == 1


def test_spans_and_struct_infos() -> None:
    span = Span("model.py", 3, 4)
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    y = relax.Var("y", x.struct_info, span)
    z = relax.Var("z", x.struct_info)
    bindings = [VarBinding(y, op.cos(x), span), VarBinding(z, op.exp(y))]
    func = Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], z))
    wider = rule(is_op("relax.cos")(A))(lambda m: op.astype(op.sin(m[A]), "float64"))
    after, _ = rewrite(func, [wider])
    made = list(bindings_of(after.body))
    assert [b.span for b in made] == [span, span, None]
    assert made[1].value.span == span
    assert after.ret_struct_info == relax.TensorStructInfo((3,), "float64")
    assert well_formed(IRModule({"main": after}))


def test_dropping_and_uses_and_constants() -> None:
    facts: list[tuple[int, bool]] = []

    @rule(is_op("relax.cos")(INNER))
    def merged(m: Match) -> Expr | None:
        facts.append((m.uses(m[INNER]), m.from_constants(m[INNER])))
        if m.uses(m[INNER]) > 1:
            return None
        m.drop(m[INNER])
        return op.exp(m[A])

    @R.function(private=True)
    def func(x: R.Tensor((), "float32")):
        a = R.sin(x)
        b = R.cos(a)
        c = R.add(b, a)
        d = R.sin(c)
        e = R.cos(d)
        f = R.sin(R.const(1.0, "float32"))
        g = R.cos(f)
        h = R.add(e, g)
        return h

    after, modified = rewrite(func, [merged])
    assert facts == [(2, False), (1, False), (1, True)]
    assert modified == 2
    assert [b.var.name_hint for b in bindings_of(after.body)] == ["a", "b", "c", "e", "g", "h"]
    assert well_formed(IRModule({"main": after}))


def test_looking_costs_one_call_a_binding() -> None:
    func = chain(2000, 10**9)
    index = [Rule(is_op("relax.matmul")(A, B), lambda m: None), cosine_of_sine]
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        rewrite(func, index)
    finally:
        sys.setprofile(None)
    assert calls < 2000 + 300


def test_the_index() -> None:
    anything = Rule(wildcard(), lambda m: None)
    sine = Rule(is_op("relax.sin")(A), lambda m: None)
    either = Rule((is_op("relax.sin") | is_op("relax.cos"))(A), lambda m: None)
    index = Index([sine, anything, either])
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    assert index.get(op.sin(x)) == (sine, anything, either)
    assert index.get(op.cos(x)) == (anything, either)
    assert index.get(op.exp(x)) == index.get(x) == (anything,)
