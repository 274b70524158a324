"""What a rewrite leaves behind is cleared away: copies, known fields, values computed twice, values
that nothing uses. Source of the semantics: ``CanonicalizeBindings``, ``EliminateCommonSubexpr`` and
``RemoveAllUnused``, which TVM runs between the rounds of a rewrite.
"""

from __future__ import annotations

from collections.abc import Hashable

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.emit import value_key
from relax2xla.ir.check import LEAVES
from relax2xla.ir.deep import nests
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import Rewriter, reads
from relax2xla.ir.struct_info import TupleStructInfo


def tidied(seq: SeqExpr) -> SeqExpr:
    """``seq`` without copies, repeated and unused values; itself if there are none."""
    while True:
        new = remove_all_unused(_Tidy().seq(seq))
        if new is seq:
            return seq
        seq = new


class _Tidy(Rewriter):
    """One walk, front to back; operands are replaced before values are compared."""

    def __init__(self) -> None:
        super().__init__(rule=self._field)
        # Read outside of the block that binds them, as far as the sequence has been entered.
        self._outside: set[Var] = set()
        self._values: dict[Expr, Expr] = {}  # tuples and fields
        self._known: dict[Hashable, Var] = {}
        self._added: list[Hashable] = []  # keys of _known, in order

    def _field(self, node: Expr) -> Expr | None:
        """What a field of a known tuple, or a tuple of all fields of another, is."""
        if isinstance(node, TupleGetItem):
            whole = self._values.get(node.tuple_value)
            return whole.fields[node.index] if isinstance(whole, Tuple) else None
        if not isinstance(node, Tuple) or not node.fields:
            return None
        source = None
        for i, field in enumerate(node.fields):
            at = self._values.get(field)
            if not isinstance(at, TupleGetItem) or at.index != i:
                return None
            if source is not None and at.tuple_value is not source:
                return None
            source = at.tuple_value
        info = None if source is None else source.struct_info_
        whole = isinstance(info, TupleStructInfo) and len(info.fields) == len(node.fields)
        return source if whole else None

    @nests
    def function(self, func: Function) -> Function:
        """A function of its own: values around it are not read in place of its own."""
        known, added = self._known, self._added
        self._known, self._added = {}, []
        try:
            return super().function(func)
        finally:
            self._known, self._added = known, added

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        """A sequence; what it computes is known inside it only."""
        home: dict[Var, int] = {}
        for i, block in enumerate(seq.blocks):
            for b in block.bindings:
                home[b.var] = i
                self._outside.update(v for v in reads(b.value, inside=True) if home.get(v, i) != i)
        self._outside.update(reads(seq.body, inside=True))
        mark = len(self._added)
        try:
            new = super().seq(seq)
            if all(block.bindings for block in new.blocks):
                return new
            return SeqExpr([b for b in new.blocks if b.bindings], new.body, new.span)
        finally:
            for key in self._added[mark:]:
                self._known.pop(key, None)
            del self._added[mark:]

    def block(self, block: BindingBlock) -> BindingBlock:
        """One block; its variables that only it reads become DataflowVars."""
        dataflow = isinstance(block, DataflowBlock)
        kept: list[Binding] = []
        renamed: dict[Var, Expr] = {}
        mark = len(self._added)
        own: set[Var] = set()
        for old in block.bindings:
            b = self.binding(old)
            if dataflow and type(b.var) is Var and old.var not in self._outside:
                b = self._local(old.var, b)
            own.add(b.var)
            known = self._replacement(b)
            if known is not None:
                if not isinstance(known, DataflowVar) or isinstance(b.var, DataflowVar):
                    self.env[old.var] = self.env[b.var] = known
                    continue
                if known in own:
                    # The value takes the name by which it is known outside.
                    renamed[known] = self.env[known] = b.var
                    self._move(known, b.var)
                    continue
                b = VarBinding(b.var, known, b.span)
            kept.append(b)
        if dataflow:
            for key in self._added[mark:]:
                if isinstance(self._known.get(key), DataflowVar):
                    del self._known[key]
        if renamed:
            rename = Rewriter(values=renamed)
            kept = [_named(rename, b, renamed) for b in kept]
        if len(kept) == len(block.bindings) and all(
            a is b for a, b in zip(kept, block.bindings, strict=True)
        ):
            return block
        return type(block)(kept, block.span)

    def _local(self, old: Var, b: Binding) -> Binding:
        var = DataflowVar(b.var.vid, b.var.struct_info_, b.var.span)
        self.env[old] = self.env[b.var] = var
        if isinstance(b, MatchCast):
            return MatchCast(var, b.value, b.struct_info, b.span)
        return VarBinding(var, b.value, b.span)

    def _replacement(self, b: Binding) -> Expr | None:
        """What can be read in place of the variable of ``b``; None: nothing."""
        value = b.value
        if isinstance(b, MatchCast):
            same = isinstance(value, LEAVES) and value.struct_info_ == b.struct_info
            return value if same else None
        if isinstance(value, LEAVES):
            return value if value.struct_info_ == b.var.struct_info_ else None
        if isinstance(value, Tuple | TupleGetItem):
            self._values[b.var] = value
        key = value_key(value)
        if key is None:
            return None
        known = self._known.get(key)
        if known is not None and known.struct_info_ == b.var.struct_info_:
            return self.env.get(known, known)
        if known is None:
            self._known[key] = b.var
            self._added.append(key)
        return None

    def _move(self, old: Var, new: Var) -> None:
        if old in self._values:
            self._values[new] = self._values[old]


def _named(rename: Rewriter, b: Binding, renamed: dict[Var, Expr]) -> Binding:
    """``b`` under other names, its own too."""
    new = rename.binding(b)
    var = renamed.get(b.var)
    if not isinstance(var, Var):
        return new
    if isinstance(new, MatchCast):
        return MatchCast(var, new.value, new.struct_info, new.span)
    return VarBinding(var, new.value, new.span)
