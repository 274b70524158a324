"""New values into a block: what they compute on the way gets variables, and nothing twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from relax2xla.ir.base import Attrs
from relax2xla.ir.check import LEAVES, is_impure_call
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.expr import (
    Binding,
    Call,
    Constant,
    DataflowVar,
    DataTypeImm,
    Expr,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import is_base_of, result_info
from relax2xla.ir.normal import with_info
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import LEAF_TYPES, Rewriter, bindings_of, children, post_order
from relax2xla.ir.traits import Allocates

# What, over leaves, has nothing to be bound before.
_FLAT: Final = (Call, TupleGetItem, Tuple)


class Emitter:
    """Bindings of one block under construction.

    out: the bindings so far; dataflow: whether new variables are those of a dataflow block;
    share: whether what is computed already is read and not computed again
    """

    def __init__(self, out: list[Binding], dataflow: bool, share: bool = False) -> None:
        self.out, self.dataflow, self.share = out, dataflow, share
        # Where values are; each with itself, so that its id stays its own.
        self._at: dict[int, tuple[Expr, Var]] = {}
        self._by_key: dict[Hashable, Var] = {}

    def note(self, var: Var, value: Expr) -> None:
        """``var`` holds ``value``: an expression that has this object in it reads ``var``."""
        if isinstance(value, LEAVES):
            return
        self._at[id(value)] = (value, var)
        if self.share:
            key = value_key(value)
            if key is not None:
                self._by_key.setdefault(key, var)

    def bind(self, value: Expr, name: str = "", span: Any = None) -> Var:
        """A new variable for a value whose operands are operands."""
        kind = DataflowVar if self.dataflow else Var
        var = kind(name or ("lv" if self.dataflow else "gv"), with_info(value).struct_info, span)
        self.out.append(VarBinding(var, value, span))
        self.note(var, value)
        return var

    def drop(self, start: int) -> None:
        """Take back the bindings from ``start`` on."""
        for b in self.out[start:]:
            self._at.pop(id(b.value), None)
            key = value_key(b.value) if self.share else None
            if self._by_key.get(key) is b.var:
                del self._by_key[key]
        del self.out[start:]

    def flat(self, root: Expr, span: Any = None) -> Expr:
        """``root`` over operands; what its operands compute is bound before."""
        if isinstance(root, LEAVES):
            return root
        known = self._at.get(id(root))
        if known is not None:
            return known[1]
        kids = children(root)
        if isinstance(root, _FLAT) and LEAF_TYPES.issuperset(map(type, kids)):
            if root.struct_info_ is not None:
                if root.span is not None or span is None:
                    return root
                if type(root) is Call and isinstance(root.op, Op):
                    return Call.make(root, kids, span)
            return _over(root, kids, span)
        done: dict[int, Expr] = {}
        for node in post_order(root, below=self._below):
            known = self._at.get(id(node))
            if known is not None:
                new: Expr = known[1]
            elif isinstance(node, SeqExpr):
                new = self._spliced(node, span)
            else:
                new = _over(node, [done[id(k)] for k in children(node)], span)
            if node is not root and not isinstance(new, (*LEAVES, Tuple)):
                new = self._shared(new) or self.bind(new, span=new.span or span)
            done[id(node)] = new
        return done[id(root)]

    def operand(self, root: Expr, span: Any = None) -> Expr:
        """``root`` as an operand: a leaf or a variable."""
        new = self.flat(root, span)
        return new if isinstance(new, LEAVES) else self._shared(new) or self.bind(new, span=span)

    def _below(self, node: Expr) -> Sequence[Expr]:
        return () if id(node) in self._at or isinstance(node, LEAVES) else children(node)

    def _shared(self, value: Expr) -> Var | None:
        key = value_key(value) if self.share else None
        return None if key is None else self._by_key.get(key)

    def _spliced(self, seq: SeqExpr, span: Any) -> Expr:
        """The result of ``seq``, whose bindings come here under new variables."""
        seq = copy_with_new_vars(seq, symbolic=False)
        rename = Rewriter()
        for b in bindings_of(seq):
            value = self.flat(rename.expr(b.value), b.span or span)
            if isinstance(b, MatchCast):
                info = rename.info(b.struct_info)
                kind = DataflowVar if self.dataflow else Var
                var = kind(b.var.name_hint, info, b.var.span)
                self.out.append(MatchCast(var, value, info, b.span))
                rename.env[b.var] = var
            elif isinstance(value, LEAVES):
                rename.env[b.var] = value
            else:
                shared = self._shared(value)
                rename.env[b.var] = shared or self.bind(value, b.var.name_hint, b.span or span)
        return self.flat(rename.expr(seq.body), span)


def _over(node: Expr, new: Sequence[Expr], span: Any) -> Expr:
    """``node`` over operands that hold the same values; with a span, if it has none."""
    same = all(a is b for a, b in zip(children(node), new, strict=True))
    at = node.span or span
    if same and at is node.span:
        return with_info(node)
    if isinstance(node, Call):
        op, args = (node.op, new) if isinstance(node.op, Op) else (new[0], new[1:])
        return Call(op, args, node.attrs, node.sinfo_args, at, struct_info=node.struct_info_)
    if isinstance(node, Tuple):
        return Tuple(new, at)
    if isinstance(node, TupleGetItem):
        value = new[0]
        return (
            value.fields[node.index]
            if isinstance(value, Tuple)
            else TupleGetItem(value, node.index, at)
        )
    return node


def value_key(value: Expr) -> Hashable | None:
    """What two values have in common that are the same; None of one that is not to be shared.

    Calls, tuples and fields are told by their operator and operands; variables by themselves.
    """
    if isinstance(value, Call):
        if is_impure_call(value):
            return None
        if isinstance(value.op, Op) and value.op.has(Allocates):
            return None
        key = (Call, *map(part_key, (value.op, *value.args)), value.sinfo_args)
        return (*key, _exact(value.attrs)) if value.attrs else key
    return part_key(value) if isinstance(value, Tuple | TupleGetItem) else None


def part_key(node: Expr) -> Hashable:
    """An operand in a key: by what it holds, where that is small."""
    if isinstance(node, Var | Op):
        return node
    if isinstance(node, Tuple):
        return (Tuple, *map(part_key, node.fields))
    if isinstance(node, TupleGetItem):
        return (TupleGetItem, part_key(node.tuple_value), node.index)
    if isinstance(node, Constant):
        small = node.data.nbytes <= 64 and node.data.dtype != object
        # The bits, so that -0.0 is not 0.0.
        return (node.struct_info_, node.data.tobytes()) if small else node
    if isinstance(node, PrimValue | StringImm | DataTypeImm):
        return (type(node), node.value)
    return node


def _exact(value: Any) -> Hashable:
    """An attribute in a key; 0.0 is neither 0 nor -0.0 nor False."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    if isinstance(value, Attrs):
        return tuple((k, _exact(v)) for k, v in sorted(value.items()))
    if isinstance(value, float):
        return value.hex()
    return (type(value), value if isinstance(value, Hashable) else id(value))


# ---- struct infos of what has changed ------------------------------------------------------------
def retyped(var: Var, value: Expr, renamed: dict[Var, Var]) -> Var:
    """``var``, or a variable in its place (noted in ``renamed``) that its new value fits.

    A weaker declaration is the user's choice and stays.
    """
    info, declared = value.struct_info_, var.struct_info_
    if info is declared or info is None or declared is None or is_base_of(declared, info):
        return var
    new = renamed[var] = type(var)(var.vid, info, var.span)
    return new


def refitted(func: Function) -> Function:
    """``func``, which says of its result what its body, that may have changed, gives."""
    info = func.body.struct_info_
    if info is None or is_base_of(func.ret_struct_info, info):
        return func
    return func.replace(ret_struct_info=result_info(func.params, info))
