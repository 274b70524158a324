"""CanonicalizeBindings: every value by one name, as local as it can be.

Source of the semantics: TVM's pass of that name. A check at run time never goes, unless the program
shows that it holds, or that the same is checked where its branch ends.
"""

from __future__ import annotations

import operator

from relax2xla import tir
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    IRModule,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import (
    Mismatch,
    SymMap,
    definable_vars,
    free_symbolic_vars,
    held_shapes,
    unify,
)
from relax2xla.ir.normal import outside_dataflow
from relax2xla.ir.rewrite import Rewriter, bindings_deep, joined
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.blocks import Precise, refined, with_blocks
from relax2xla.transform.normal.homes import Homes


@register(opt_level=1)
class CanonicalizeBindings(FunctionPass):
    """Read values by one name: copies, fields of known tuples and casts that say nothing new go.

    A name that a dataflow block gives to the outside is the name of its value inside, too; what
    only the block reads becomes a variable of its own. Constants are read directly, and
    calls read shapes directly (which TVM's pass leaves, and layout passes here need). Symbolic
    variables that a match_cast defines become what its value shows them to be; ValueError where
    two casts show different sizes. What is bound to a constant, or to a tuple, stays bound:
    DeadCodeElimination removes it if nothing reads it any more.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return canonical(func)


def canonical(func: Function) -> Function:
    """``func`` as the pass makes it; itself where there is nothing to do."""
    casts = any(isinstance(b, MatchCast) for b in bindings_deep(func))
    new = _SizesKnown().function(func) if casts else func
    plan = _Plan(new)
    if not plan.empty:
        new = _Canonical(plan).function(new)
    return func if new is func else refined(new)


# ---- symbolic variables ------------------------------------------------------------------------
class _SizesKnown(Rewriter):
    """Symbolic variables of casts become the sizes of what is cast, as far as their scope goes."""

    def __init__(self) -> None:
        super().__init__()
        self._defined: set[tir.Var] = set()
        self._source: dict[tir.Var, Var] = {}  # the cast that showed a size
        self._learnt: list[tir.Var] = []  # in order, to forget at the end of a scope
        # Variables whose sizes are checked where the branch ends.
        self._checked: set[tir.Var] = set()

    @nests
    def function(self, func: Function) -> Function:
        mark, checked, self._checked = len(self._learnt), self._checked, set()
        for p in func.params:
            self._defined.update(definable_vars(p.struct_info))
        try:
            return super().function(func)
        finally:
            self._forget(mark)
            self._checked = checked

    def binding(self, b: Binding) -> Binding:
        if isinstance(b, MatchCast):
            self._learn(b)
        elif isinstance(b.value, If):
            return self._branches(b, b.value)
        return super().binding(b)

    def _learn(self, b: MatchCast) -> None:
        """Note what ``b`` shows of its symbolic variables."""
        found: SymMap = {}
        value = self.expr(b.value).struct_info_
        try:
            if value is not None:
                unify(b.struct_info, value, found)
        except Mismatch:
            return  # a cast that fails, if it is reached, says so when the program runs
        new = False
        for var, size in found.items():
            known = self.symbolic.get(var)
            if known is not None:
                apart = tir.simplify(tir.as_dim(known) - size)
                if isinstance(apart, int) and apart != 0:
                    raise _inconsistent(
                        b.var,
                        f"it shows {var} to be {size}, and {self._source[var].name_hint} showed "
                        f"{known}",
                    )
            elif size is not var and (var not in self._defined or var in self._checked):
                self.symbolic[var] = size
                self._source[var] = b.var
                self._learnt.append(var)
                new = True
        self._defined.update(definable_vars(b.struct_info))
        if new:
            self._infos.clear()

    def _forget(self, mark: int) -> None:
        if len(self._learnt) > mark:
            for var in self._learnt[mark:]:
                del self.symbolic[var]
            del self._learnt[mark:]
            self._infos.clear()

    def _branches(self, b: Binding, value: If) -> Binding:
        """A binding of an If; its branches end in what they gave before they knew more."""
        info = value.struct_info_
        outer = self.info(info) if info is not None else None
        made: list[SeqExpr] = []
        before = self._checked
        if outer is not None:
            self._checked = before | set(free_symbolic_vars(outer))
        for branch, name in ((value.true_branch, "then"), (value.false_branch, "else")):
            mark = len(self._learnt)
            new = self.seq(branch)
            self._forget(mark)
            if new is not branch and outer is not None and new.struct_info_ != outer:
                new = _cast_at_end(new, outer, f"{name}_branch_with_dyn")
            made.append(new)
        self._checked = before
        cond = self.expr(value.cond)
        yes, no = made
        if cond is value.cond and yes is value.true_branch and no is value.false_branch:
            return super().binding(b) if info is not outer else b
        new_if = If(cond, yes, no, value.span)
        return VarBinding(self.var(b.var, new_if.struct_info_), new_if, b.span)


def _inconsistent(var: Var, why: str) -> ValueError:
    return ValueError(
        f"MatchCast statements must be consistent; that of {var.name_hint} is not: {why}"
    )


def _cast_at_end(seq: SeqExpr, info: StructInfo, name: str) -> SeqExpr:
    var = Var(name, info)
    last = BindingBlock([MatchCast(var, seq.body, info, seq.span)], seq.span)
    return SeqExpr(joined([*seq.blocks, last]), var, seq.span)


# ---- names -------------------------------------------------------------------------------------
class _Plan(Homes):
    """What becomes of each variable of a function.

    ``defined``: another variable at its definition. ``aliases``: those that are read as another.
    ``gone``: bindings that are copies. ``constants``: what is read in the place of a variable;
    ``shapes``: what calls read in the place of one.
    """

    def __init__(self, func: Function) -> None:
        super().__init__()
        self._values: dict[Var, Expr] = {}
        self._roots: dict[Var, Var] = {}
        self.gone: set[Var] = set()
        self.constants: dict[Var, Constant] = {}
        self.shapes: dict[Expr, ShapeExpr] = {}
        self.walk(func.body)
        self.defined: dict[Var, Var] = {}
        self.aliases: dict[Var, list[Var]] = {}
        for var, home in self.home.items():
            if isinstance(home, DataflowBlock) and type(var) is Var and var not in self.outside:
                if var not in self._roots:
                    self.defined[var] = DataflowVar(var.vid, var.struct_info_, var.span)
        for alias, root in self._roots.items():
            self.aliases.setdefault(root, []).append(alias)
            local = isinstance(self.defined.get(root, root), DataflowVar)
            if local and alias in self.outside and not isinstance(alias, DataflowVar):
                self.defined[root] = alias

        self.constants = {v: c for v, c in self.constants.items() if v not in self.defined}
        for alias, root in self._roots.items():
            if root in self.constants:
                self.constants[alias] = self.constants[root]

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.defined or self.aliases or self.constants or self.shapes)

    def bound(self, b: Binding) -> None:
        """Note what ``b`` says of its variable."""
        if isinstance(b.value, If | Function):
            return
        if isinstance(b.value, Call):
            return
        if isinstance(b, MatchCast) and b.var.struct_info_ != b.value.struct_info_:
            return
        value = self._unwrapped(b.value)
        if isinstance(value, Var):
            value = self._roots[b.var] = self._roots.get(value, value)
            self.gone.add(b.var)
        elif isinstance(value, Constant):
            self.constants[b.var] = value
        elif isinstance(value, ShapeExpr):
            self.shapes[b.var] = value
        self._values[b.var] = value

    def _known(self, expr: Expr) -> Expr:
        """What a variable is bound to, or was bound to before that; other expressions stay."""
        while isinstance(expr, Var):
            value = self._values.get(expr)
            if value is None:
                break
            expr = value
        return expr

    def _unwrapped(self, value: Expr) -> Expr:
        """``value`` where it is a field of a known tuple, or all fields of one; else itself."""
        if isinstance(value, TupleGetItem):
            whole = self._known(value.tuple_value)
            return whole.fields[value.index] if isinstance(whole, Tuple) else value
        if not isinstance(value, Tuple) or not value.fields:
            return value
        source: Expr | None = None
        for i, field in enumerate(value.fields):
            at = self._known(field)
            if not isinstance(at, TupleGetItem) or at.index != i:
                return value
            known = self._known(at.tuple_value)
            if source is not None and known is not source:
                return value
            source = known
        info = None if source is None else source.struct_info_
        whole = isinstance(info, TupleStructInfo) and len(info.fields) == len(value.fields)
        return source if whole and isinstance(source, Var) else value


class _Canonical(Precise):
    """A function under a plan."""

    def __init__(self, plan: _Plan) -> None:
        super().__init__(rule=self._read_shapes if plan.shapes else None)
        self.plan = plan
        for root, aliases in plan.aliases.items():
            # For those of a parameter; what is bound says so where it is.
            self.env.update((alias, root) for alias in aliases)
        self.env.update(plan.constants)

    def _read_shapes(self, node: Expr) -> Expr | None:
        shapes = self.plan.shapes
        if not isinstance(node, Call) or not any([a in shapes for a in node.args]):
            return None
        args = [shapes.get(a, a) for a in node.args]
        info = node.struct_info_
        return Call(node.op, args, node.attrs, node.sinfo_args, node.span, struct_info=info)

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        new = super().seq(seq)
        return new if new is seq else with_blocks(new, joined(new.blocks))

    def block(self, block: BindingBlock) -> BindingBlock:
        gone = self.plan.gone
        kept = [self.binding(b) for b in block.bindings if b.var not in gone]
        if len(kept) == len(block.bindings) and all(map(operator.is_, kept, block.bindings)):
            return block
        return type(block)(kept, block.span)

    def binding(self, b: Binding) -> Binding:
        plan = self.plan
        target = plan.defined.get(b.var, b.var)
        if target is not b.var and isinstance(b.value, Function):
            self.env[b.var] = target  # it may call itself
        new = super().binding(b)
        aliases = plan.aliases.get(b.var, ())
        if new is b and target is b.var and not aliases:
            return b
        info = new.var.struct_info_
        if info is not None and not isinstance(target, DataflowVar) and held_shapes(info):
            info = outside_dataflow(info)
        var = target
        if target.struct_info_ != info:
            var = type(target)(target.vid, info, target.span)
        if b.var in plan.shapes:
            plan.shapes[var] = plan.shapes[b.var]
        for name in (b.var, *aliases):
            self.env[name] = plan.constants.get(name, var)
        if var is new.var:
            return new
        if isinstance(new, MatchCast):
            return MatchCast(var, new.value, new.struct_info, new.span)
        return VarBinding(var, new.value, new.span)
