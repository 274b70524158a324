"""Where variables are bound, and which are read outside of the dataflow block that binds them."""

from __future__ import annotations

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
    MatchCast,
    Op,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import held_shapes
from relax2xla.ir.rewrite import Rewriter, post_order


class Homes:
    """A walk over a function, its branches and local functions.

    ``home``: the block of each variable. ``outside``: variables that are read anywhere but in
    bindings of a dataflow block that binds them; local functions count as elsewhere.
    """

    def __init__(self) -> None:
        self.home: dict[Var, BindingBlock] = {}
        self.outside: set[Var] = set()

    def bound(self, b: Binding) -> None:
        """Called with each binding, after what it reads has been noted."""

    @nests
    def walk(self, seq: SeqExpr) -> None:
        """Note all that ``seq`` binds and reads."""
        for block in seq.blocks:
            inside = block if isinstance(block, DataflowBlock) else None
            for b in block.bindings:
                self.home[b.var] = block
                self._reads(b.value, inside)
                for shape in held_shapes(b.var.struct_info_):
                    self._read(shape, inside if isinstance(b.var, DataflowVar) else None)
                self.bound(b)
        self._reads(seq.body, None)

    def _reads(self, value: Expr, block: BindingBlock | None) -> None:
        """Note where the variables of a plain expression are read; None is no dataflow block."""
        if isinstance(value, Call) and isinstance(value.op, Op) and not value.sinfo_args:
            if all([isinstance(a, Var | Constant) for a in value.args]):
                # What most bindings hold.
                for a in value.args:
                    self._read(a, block)
                return
        for node in post_order(value):
            if isinstance(node, Var):
                self._read(node, block)
            elif isinstance(node, If):
                self.walk(node.true_branch)
                self.walk(node.false_branch)
            elif isinstance(node, Function):
                self.walk(node.body)
            elif isinstance(node, SeqExpr):
                self.walk(node)
            elif isinstance(node, Call):
                for info in node.sinfo_args:
                    for shape in held_shapes(info):
                        self._read(shape, block)

    def _read(self, node: Expr, block: BindingBlock | None) -> None:
        if isinstance(node, Var) and (block is None or self.home.get(node) is not block):
            self.outside.add(node)


def exposed(func: Function) -> Function:
    """``func`` with ordinary variables for the DataflowVars that are read outside of their block.

    So they are where a block has been cut in two.
    """
    homes = Homes()
    homes.walk(func.body)
    local: set[Var] = {v for v in homes.outside if isinstance(v, DataflowVar) and v in homes.home}
    # Local functions of the block may read what is its own.
    return Ordinary(local).function(func) if local else func


class Ordinary(Rewriter):
    """A Rewriter that makes ordinary variables of some DataflowVars (None: of all)."""

    def __init__(self, chosen: set[Var] | None = None) -> None:
        super().__init__()
        self.chosen = chosen

    def binding(self, b: Binding) -> Binding:
        if not isinstance(b.var, DataflowVar):
            return super().binding(b)
        if self.chosen is not None and b.var not in self.chosen:
            return super().binding(b)
        if isinstance(b.value, Function):
            self._ordinary(b.var, b.var)  # it may call itself
        new = super().binding(b)
        var = self._ordinary(b.var, new.var)
        if isinstance(new, MatchCast):
            return MatchCast(var, new.value, new.struct_info, new.span)
        return VarBinding(var, new.value, new.span)

    def _ordinary(self, old: Var, var: Var) -> Var:
        known = self.env.get(old)
        if isinstance(known, Var) and type(known) is Var:
            return known
        made = self.env[old] = Var(var.vid, var.struct_info_, var.span)
        return made
