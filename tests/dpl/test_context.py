"""Patterns of blocks: relations, constraints and the cost of matching them."""

from __future__ import annotations

import pytest

import relax2xla as relax
from relax2xla import op
from relax2xla.analysis import well_formed
from relax2xla.dpl import (
    PatternContext,
    PatternSeq,
    is_op,
    is_var,
    rewrite_bindings,
    wildcard,
)
from relax2xla.dpl.context import GraphMatcher
from relax2xla.errors import TransformError, TVMError
from relax2xla.ir import DataflowBlock, DataflowVar, Function, SeqExpr, Var, VarBinding
from relax2xla.script import relax as R

INFO = relax.TensorStructInfo((4, 4), "float32")
SIN, COS, ADD = is_op("relax.sin"), is_op("relax.cos"), is_op("relax.add")


@R.function(private=True)
def fork(x: R.Tensor((4, 4), "float32"), y: R.Tensor(("n", 4), "float32")):
    with R.dataflow():
        a = R.sin(x)
        b = R.cos(a)
        c = R.add(a, b)
        d = R.sin(c)
        R.output(d)
    return d


BLOCK = fork.body.blocks[0]
assert isinstance(BLOCK, DataflowBlock)
NAMES = {b.var.name_hint: b.var for b in BLOCK.bindings}


def test_used_by_and_only_used_by() -> None:
    with PatternContext() as ctx:
        a, b = SIN(wildcard()), COS(wildcard(), add_constraint=False)
        a ^ b
        found = ctx.match_dfb(BLOCK)
        assert found is not None
        assert found[a] is NAMES["a"]
        assert found[b] is NAMES["b"]
    with PatternContext() as ctx:
        SIN(wildcard()) >> COS(wildcard(), add_constraint=False)  # `add` uses the sine, too
        assert ctx.match_dfb(BLOCK) is None
    with PatternContext() as ctx:
        added = ADD(wildcard(), wildcard(), add_constraint=False)
        last = SIN(wildcard(), add_constraint=False)
        added >> last
        found = ctx.match_dfb(BLOCK)
        assert found == {added: NAMES["c"], last: NAMES["d"]}


def test_the_place_of_an_argument() -> None:
    for place, matches in ((0, True), (1, False)):
        with PatternContext() as ctx:
            SIN(wildcard(), add_constraint=False).used_by(
                ADD(wildcard(), wildcard(), add_constraint=False), place
            )
            assert (ctx.match_dfb(BLOCK) is not None) == matches


def test_sequences_and_contexts() -> None:
    with PatternContext() as ctx:
        assert PatternContext.current() is ctx
        seq = is_var("x") ^ SIN(wildcard(), add_constraint=False)
        more = seq.used_by(COS(wildcard(), add_constraint=False))
        assert len(more) == 3
        assert more[0] is seq[0]
        assert repr(more).count(" ^ ") == 2
        assert ctx.match_dfb(BLOCK) is not None
        with PatternContext(incremental=True) as inner:
            more[2].used_by(SIN(wildcard(), add_constraint=False))
            assert inner.match_dfb(BLOCK) is None
        twin = more.dup()
        assert twin[0] is not more[0]
        assert ctx.match_dfb(BLOCK) is None  # there is one chain only
        with pytest.raises(TVMError, match="said twice"):
            seq[0].used_by(seq[1])
    assert PatternContext.current() is None
    with pytest.raises(TVMError, match="there is none"):
        PatternContext(incremental=True)
    with pytest.raises(ValueError, match="at least one pattern"):
        PatternSeq([])


def test_same_shape() -> None:
    @R.function(private=True)
    def func(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((1, 4), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            c = R.sin(a)
            b = R.add(a, c)
            out = (a, b)
            R.output(out)
        return out

    block = func.body.blocks[0]
    assert isinstance(block, DataflowBlock)
    with PatternContext() as ctx:
        lhs, rhs = wildcard(), wildcard()
        total = ADD(lhs, rhs)
        lhs.same_shape_as(rhs)
        found = ctx.match_dfb(block)
        assert found is not None
        assert found[total].name_hint == "b"
        lhs.same_shape_as(wildcard())
        with pytest.raises(TVMError, match="same_shape_as names"):
            ctx.match_dfb(block)


def groups(count: int) -> Function:
    """``count`` inputs, each times three weights of its own."""
    weights = [Var(f"w{i}", INFO) for i in range(3)]
    inputs = [Var(f"x{i}", INFO) for i in range(count)]
    bindings = []
    for x in inputs:
        for w in weights:
            value = op.matmul(x, w)
            bindings.append(VarBinding(DataflowVar("m", value.struct_info), value))
    out = relax.Tuple([b.var for b in bindings])
    last = Var("out", out.struct_info)
    block = DataflowBlock([*bindings, VarBinding(last, out)])
    return Function([*inputs, *weights], SeqExpr([block], last))


def test_visits_are_linear_in_the_matches() -> None:
    with PatternContext() as ctx:
        inp = wildcard()
        for _ in range(3):
            is_op("relax.matmul")(inp, wildcard())
    visits: dict[int, int] = {}
    for count in (10, 100):
        graph = GraphMatcher(ctx, groups(count).body.blocks[0].bindings)
        matches = 0
        while (found := graph.match()) is not None:
            matches += 1
            graph.remove(v for p, v in found.items() if p.keys() is not None)
        assert matches == count
        visits[count] = graph.visits
    assert visits[100] <= 11 * visits[10]


def test_new_values_may_need_later_ones() -> None:
    @R.function(private=True)
    def before(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.sin(x)
            b = R.exp(a)
            t = R.permute_dims(w)
            c = R.cos(t)
            out = (b, c)
            R.output(out)
        return out

    with PatternContext() as ctx:
        x, t = wildcard(), is_op("relax.permute_dims")(wildcard(), add_constraint=False)
        a, c = SIN(x), COS(t)
        a.used_by(is_op("relax.exp")(wildcard(), add_constraint=False))

    def both(found, values):
        added = op.add(found[x], found[t])
        return {found[a]: op.sin(added), found[c]: op.cos(added)}

    after = rewrite_bindings(ctx, both, before)
    assert well_formed(relax.IRModule({"main": after}))
    text = after.script()
    assert text.index("permute_dims") < text.index("R.add") < text.index("R.sin")
    assert text.count("R.add") == 1

    with pytest.raises(TransformError, match="does not bind"):
        rewrite_bindings(ctx, lambda found, _: {before.params[0]: found[a]}, before)
    with pytest.raises(TypeError, match="gives an expression"):
        rewrite_bindings(ctx, lambda found, _: {found[a]: 3}, before)
    assert rewrite_bindings(ctx, lambda found, _: {}, before) is before
