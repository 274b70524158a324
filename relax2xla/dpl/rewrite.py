"""Rewriting under TVM's names: matches are replaced until nothing matches any more.

A rewriter works on stretches of a function in which order does not matter: a dataflow block, or the
bindings between two impure calls. A pattern sees what lies in the same stretch. After a round,
copies and values that are computed twice or not used are cleared away, and the next round begins.
Source of the semantics: ``tvm.relax.dpl``, version 0.20.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from relax2xla.dpl.context import GraphMatcher, PatternContext
from relax2xla.dpl.emit import Emitter, refitted, retyped
from relax2xla.dpl.from_module import as_rule
from relax2xla.dpl.implicit_tuples import matched_tuples
from relax2xla.dpl.pattern import DFPattern, OrPattern, TuplePattern
from relax2xla.dpl.rules import Index, Match, Rule, Sweep
from relax2xla.dpl.tidy import tidied
from relax2xla.errors import TransformError
from relax2xla.ir.check import LEAVES, is_impure_call
from relax2xla.ir.deep import nests
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.module import BaseFunc, IRModule
from relax2xla.ir.rewrite import Rewriter, bindings_of, reads
from relax2xla.transform import Pass, PassContext, PassInfo

CallRewriter: TypeAlias = Callable[[Expr, dict[DFPattern, Expr]], Expr | None]
"""Gets the value that matched and what each pattern node has matched; gives what takes its place,
the value itself if nothing."""
BindingRewriter: TypeAlias = Callable[[dict[DFPattern, Var], dict[Var, Expr]], Mapping[Var, Expr]]
"""Gets what each pattern has matched and what variables are bound to; gives new values of some."""
Subroutines: TypeAlias = Mapping[GlobalVar, BaseFunc]

Target = TypeVar("Target", bound=Expr | IRModule)


class PatternMatchingRewriter(Pass):
    """A rewrite as an object: called with an expression or a module, composed by ``|``, a pass.

    The rewriter on the left of ``|`` goes first. Where replacements call subroutines of their own,
    the rewriter has to be given a whole module, which gets them.
    """

    info = PassInfo("PatternMatchingRewriter")

    @staticmethod
    def from_pattern(pattern: DFPattern, func: CallRewriter) -> PatternMatchingRewriter:
        """What :func:`rewrite_call` does with ``pattern`` and ``func``.

        A tuple pattern also matches values that no tuple holds, up to three, if nothing but the
        replacement would use them.
        """
        return _from_pattern(pattern, func, (), {})

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """A rewriter that puts the function ``replacement`` in the place of what ``pattern`` does.

        Both are Relax functions of ``mod`` with the same signature: KeyError where one is missing,
        TypeError where it is none, ValueError where the signatures differ. Its other functions must
        be private (else ValueError); they go to modules in which they are needed.
        """
        pattern, func, subroutines = as_rule(mod)
        return _from_pattern(pattern, func, (), subroutines)

    def steps(self) -> Sequence[_Step]:
        """The rewrites of one round, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    def __call__(self, obj: Target) -> Target:
        """``obj``, a module or an expression, rewritten; itself if nothing matches."""
        if isinstance(obj, IRModule):
            return super().__call__(obj)
        walk = _Walk(self.steps())
        made: Any = walk.expr(obj)
        if walk.subroutines:
            names = ", ".join(sorted(g.name_hint for g in walk.subroutines))
            raise TransformError(
                f"the replacement calls subroutines ({names}), which need a module; give the "
                "rewriter the whole IRModule"
            )
        return made

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """Every Relax function rewritten, and the subroutines that they then need."""
        walk = _Walk(self.steps())
        changed: dict[GlobalVar, BaseFunc] = {}
        for gvar, func in mod.relax_functions().items():
            new = walk.function(func)
            if new is not func:
                changed[gvar] = new
        return _with_subroutines(mod, changed, walk.subroutines) if changed else mod

    def __or__(self, other: PatternMatchingRewriter) -> OrRewriter:
        return OrRewriter(self, other)


class ExprPatternRewriter(PatternMatchingRewriter):
    """Replaces each value that ``pattern`` matches by what ``func`` gives for it."""

    def __init__(
        self,
        pattern: DFPattern,
        func: CallRewriter,
        additional: Iterable[DFPattern] = (),
        subroutines: Subroutines | None = None,
    ) -> None:
        super().__init__()
        self.pattern, self.func = pattern, func
        self._step = _ExprStep(pattern, func, tuple(additional), subroutines or {})

    def steps(self) -> Sequence[_Step]:
        return (self._step,)


class OrRewriter(PatternMatchingRewriter):
    """Two rewriters; the first goes first."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        super().__init__()
        self.lhs, self.rhs = lhs, rhs

    def steps(self) -> Sequence[_Step]:
        return (*self.lhs.steps(), *self.rhs.steps())


class TupleRewriter(PatternMatchingRewriter):
    """Replaces values that match ``patterns``, one each, as if a tuple held them.

    ``func`` gets a tuple of them and gives a tuple. ValueError for more than three patterns.
    """

    def __init__(
        self,
        patterns: Iterable[DFPattern],
        func: CallRewriter,
        additional: Iterable[DFPattern] = (),
        subroutines: Subroutines | None = None,
    ) -> None:
        super().__init__()
        self.patterns, self.func = tuple(patterns), func
        self._step = _TupleStep(self.patterns, func, tuple(additional), subroutines or {})

    def steps(self) -> Sequence[_Step]:
        return (self._step,)


class _ContextRewriter(PatternMatchingRewriter):
    """Replaces what a PatternContext matches."""

    def __init__(self, context: PatternContext, func: BindingRewriter) -> None:
        super().__init__()
        self._step = _ContextStep(context, func)

    def steps(self) -> Sequence[_Step]:
        return (self._step,)


def _from_pattern(
    pattern: DFPattern,
    func: CallRewriter,
    additional: tuple[DFPattern, ...],
    subroutines: Subroutines,
) -> PatternMatchingRewriter:
    """Sides of ``|`` are tried one after the other, so that ``func`` may refuse the first."""
    if isinstance(pattern, OrPattern):
        more = (*additional, pattern)
        left = _from_pattern(pattern.left, func, more, subroutines)
        return OrRewriter(left, _from_pattern(pattern.right, func, more, subroutines))
    whole = ExprPatternRewriter(pattern, func, additional, subroutines)
    if isinstance(pattern, TuplePattern) and 0 < len(pattern.fields) <= 3:
        more = (*additional, pattern)
        return OrRewriter(whole, TupleRewriter(pattern.fields, func, more, subroutines))
    return whole


def rewrite_call(pattern: DFPattern, rewriter: CallRewriter, func: Function) -> Function:
    """``func`` with what ``rewriter`` gives for each value that ``pattern`` matches.

    ::

        x = wildcard()


        def twice(expr, matches):
            return R.multiply(matches[x], R.const(2, "float32"))


        rewrite_call(is_op("relax.add")(x, x), twice, func)
    """
    return PatternMatchingRewriter.from_pattern(pattern, rewriter)(func)


def rewrite_bindings(ctx: PatternContext, rewriter: BindingRewriter, func: Function) -> Function:
    """``func`` with other values for variables that the patterns of ``ctx`` match.

    ``rewriter`` gets the variable that each pattern has matched and what variables are bound to; it
    gives a dictionary from variables to their new values.
    """
    return _ContextRewriter(ctx, rewriter)(func)


# ---- one round -----------------------------------------------------------------------------------
class _Stretch:
    """Bindings among which order does not matter, and what a round does to them."""

    def __init__(self, bindings: Sequence[Binding], dataflow: bool, walk: _Walk) -> None:
        self.bindings, self.dataflow, self.walk = bindings, dataflow, walk

    def replace(self, values: Mapping[Var, Expr]) -> None:
        """Bind some variables to other values, which may need what is bound later."""
        out: list[Binding] = []
        emitter = Emitter(out, self.dataflow, share=True)
        for b in self.bindings:
            if isinstance(b, VarBinding) and b.var not in values:
                emitter.note(b.var, b.value)
        for b in self.bindings:
            new = values.get(b.var)
            if new is None:
                out.append(b)
                continue
            value = emitter.flat(new, b.span)
            if isinstance(b, MatchCast):
                out.append(MatchCast(b.var, value, b.struct_info, b.span))
            else:
                out.append(VarBinding(retyped(b.var, value, self.walk.renamed), value, b.span))
        self.bindings = _in_order(out)


def _in_order(bindings: list[Binding]) -> list[Binding]:
    """``bindings``, those that need later ones behind them; the others as they are."""
    place = {b.var: i for i, b in enumerate(bindings)}
    needs = [{place[v] for v in reads(b.value, inside=True) if v in place} for b in bindings]
    if all(not need or max(need) < i for i, need in enumerate(needs)):
        return bindings
    missing = [len(need) for need in needs]
    waiting: dict[int, list[int]] = {}
    for i, need in enumerate(needs):
        for j in need:
            waiting.setdefault(j, []).append(i)
    ready = [i for i, count in enumerate(missing) if not count]
    done: list[Binding] = []
    while ready:
        at = heapq.heappop(ready)
        done.append(bindings[at])
        for i in waiting.get(at, ()):
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, i)
    if len(done) < len(bindings):
        stuck = next(b for b, count in zip(bindings, missing, strict=True) if count)
        raise TransformError(
            f"the new value of {stuck.var.name_hint} needs a value that is computed from it; a "
            "replacement may use only what does not depend on what it replaces"
        )
    return done


class _Step:
    """One rewrite of a round."""

    subroutines: Subroutines = MappingProxyType({})

    def apply(self, stretch: _Stretch) -> bool:
        """Rewrite a stretch; whether anything has changed."""
        raise NotImplementedError


class _ExprStep(_Step):
    def __init__(
        self,
        pattern: DFPattern,
        func: CallRewriter,
        additional: tuple[DFPattern, ...],
        subroutines: Subroutines,
    ) -> None:
        self.func, self.additional, self.subroutines = func, additional, subroutines
        self.index = Index([Rule(pattern, self._action)])

    def _action(self, m: Match) -> Expr | None:
        found = {**m.found, **dict.fromkeys(self.additional, m.bound(m.value))}
        return wanted(self.func(m.value, found))

    def apply(self, stretch: _Stretch) -> bool:
        if not any(self.index.get(b.value) for b in stretch.bindings):
            return False
        sweep = Sweep(self.index, again=True, share=True)
        emitter = Emitter([], stretch.dataflow, share=True)
        for b in stretch.bindings:
            sweep.binding(b, emitter)
        stretch.walk.visits += sweep.matcher.visits
        if sweep.modified:
            stretch.bindings = emitter.out
            stretch.walk.renamed.update(sweep.renamed)
        return bool(sweep.modified)


class _TupleStep(_Step):
    def __init__(
        self,
        patterns: tuple[DFPattern, ...],
        func: CallRewriter,
        additional: tuple[DFPattern, ...],
        subroutines: Subroutines,
    ) -> None:
        if not 0 < len(patterns) <= 3:
            raise ValueError(f"a tuple of values has one to three patterns; got {len(patterns)}")
        self.patterns, self.func, self.additional = patterns, func, additional
        self.subroutines = subroutines

    def _replace(self, whole: Tuple, found: dict[DFPattern, Expr]) -> Expr | None:
        return wanted(self.func(whole, {**found, **dict.fromkeys(self.additional, whole)}))

    def apply(self, stretch: _Stretch) -> bool:
        made = matched_tuples(self.patterns, stretch.bindings, self._replace)
        if made:
            stretch.replace(made)
        return bool(made)


class _ContextStep(_Step):
    def __init__(self, context: PatternContext, func: BindingRewriter) -> None:
        self.context, self.func = context, func

    def apply(self, stretch: _Stretch) -> bool:
        graph = GraphMatcher(self.context, stretch.bindings)
        bound = {b.var: b.value for b in stretch.bindings}
        made: dict[Var, Expr] = {}
        while (found := graph.match()) is not None:
            new = self.func(found, {v: e for v, e in bound.items() if v not in made})
            for var, value in new.items():
                if var not in bound:
                    raise TransformError(
                        "the rewriter gives a new value for "
                        f"{getattr(var, 'name_hint', var)}, which the block does not bind"
                    )
                wanted(value)
            if new:
                made.update(new)
                graph.remove(new)
            else:
                graph.skip()
        stretch.walk.visits += graph.visits
        if made:
            stretch.replace(made)
        return bool(made)


def wanted(value: Expr | None) -> Expr | None:
    """What a user's function has given; TypeError if it is no expression."""
    if value is not None and not isinstance(value, Expr):
        raise TypeError(
            f"a rewriter gives an expression, or None to leave it; got {type(value).__name__}"
        )
    return value


class _Walk(Rewriter):
    """Rewrites every sequence of an expression, those inside first, each until nothing changes.

    renamed: variables whose new values do not have their struct info; visits: pairs of pattern and
    value that were compared
    """

    def __init__(self, steps: Sequence[_Step]) -> None:
        super().__init__()
        self.steps = steps
        self.subroutines: dict[GlobalVar, BaseFunc] = {}
        self.renamed: dict[Var, Var] = {}
        self.visits = 0

    @nests
    def function(self, func: Function) -> Function:
        new = super().function(func)
        return new if new is func else refitted(new)

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        seq = super().seq(seq)
        rounds = 0
        while (new := self._round(seq)) is not seq:
            new = tidied(new)
            if structural_equal(new, seq):
                return seq
            seq, rounds = new, rounds + 1
            if rounds > 1000 + sum(1 for _ in bindings_of(seq)):
                raise TransformError(
                    "a rewrite does not come to an end: its results match again and again"
                )
        return seq

    def _round(self, seq: SeqExpr) -> SeqExpr:
        blocks = list(seq.blocks)
        result: Var | None = None
        if not isinstance(seq.body, LEAVES):
            # A tuple that is returned is a value like others.
            result = Var("result", seq.body.struct_info_)
            last = blocks.pop() if blocks else BindingBlock(())
            blocks.append(type(last)((*last.bindings, VarBinding(result, seq.body)), last.span))
        self.renamed = {}
        new = [self._block(block) for block in blocks]
        if all(a is b for a, b in zip(blocks, new, strict=True)):
            return seq
        body = seq.body
        if result is not None:
            new[-1], body = _without(new[-1], result, seq.body)
        made = SeqExpr([block for block in new if block.bindings], body, seq.span)
        return Rewriter(values=self.renamed).seq(made) if self.renamed else made

    def _block(self, block: BindingBlock) -> BindingBlock:
        dataflow = isinstance(block, DataflowBlock)
        new: list[Binding] = []
        changed = False
        for bindings, movable in _stretches(block):
            stretch = _Stretch(bindings, dataflow, self)
            for step in self.steps if movable else ():
                if step.apply(stretch):
                    changed = True
                    self.subroutines.update(step.subroutines)
            new += stretch.bindings
        return type(block)(new, block.span) if changed else block


def _stretches(block: BindingBlock) -> Iterable[tuple[Sequence[Binding], bool]]:
    """The bindings of a block in order, with whether those of a stretch may move."""
    if isinstance(block, DataflowBlock):
        yield block.bindings, True
        return
    start = 0
    for i, b in enumerate(block.bindings):
        if isinstance(b.value, If) or is_impure_call(b.value):
            yield block.bindings[start:i], True
            yield (b,), False
            start = i + 1
    yield block.bindings[start:], True


def _without(block: BindingBlock, result: Var, old: Expr) -> tuple[BindingBlock, Expr]:
    """``block`` without the variable that stood for the result, and the result."""
    names = {result.vid}
    value = next(b.value for b in block.bindings if b.var.vid in names)
    rest = [b for b in block.bindings if b.var.vid not in names]
    if value is not old:
        seen = isinstance(value, (*LEAVES, Tuple))
        if not seen or any(isinstance(v, DataflowVar) for v in reads(value, inside=True)):
            output = Var("gv", value.struct_info_)
            rest.append(VarBinding(output, value, value.span))
            value = output
    return type(block)(rest, block.span), value


# ---- subroutines ---------------------------------------------------------------------------------
def _with_subroutines(
    mod: IRModule, changed: Mapping[GlobalVar, BaseFunc], subroutines: Subroutines
) -> IRModule:
    """``mod`` with changed functions and the subroutines that they call, each under a free name."""
    functions = {**dict(mod.items()), **changed}
    taken = {g.name_hint for g in functions}
    known = {id(f): g for g, f in functions.items()}
    names: dict[Expr, GlobalVar] = {}
    for gvar, func in subroutines.items():
        if id(func) in known:
            # A module that has been rewritten before.
            names[gvar] = known[id(func)]
            continue
        name, count = gvar.name_hint, 0
        while name in taken:
            count += 1
            name = f"{gvar.name_hint}_{count}"
        taken.add(name)
        names[gvar] = gvar if not count else GlobalVar(name, gvar.struct_info_, gvar.span)
        functions[names[gvar]] = func
    if any(a is not b for a, b in names.items()):
        rename = _Renamed(names)
        for gvar in (*changed, *names.values()):
            func = functions[gvar]
            functions[gvar] = rename.function(func) if isinstance(func, Function) else func
    return mod.replace(functions)


class _Renamed(Rewriter):
    """Other GlobalVars in the place of some."""

    def __init__(self, names: Mapping[Expr, GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def leaf(self, node: Expr) -> Expr:
        return self._names.get(node) or super().leaf(node)
