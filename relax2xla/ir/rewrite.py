"""Rebuilding expressions: one iterative rebuild that every substitution and pass shares.

The cost is linear in the number of nodes and independent of how deeply plain expressions nest;
only nested functions and branches recurse (one Python frame a level).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.ir import lattice
from relax2xla.ir.base import Attrs
from relax2xla.ir.deep import nests
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.op import Op
from relax2xla.ir.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo

Rule = Callable[[Expr], Expr | None]

VAR_TYPES: Final = frozenset({Var, DataflowVar})
LEAF_TYPES: Final = frozenset(
    {
        *(Var, DataflowVar, Constant, ShapeExpr, PrimValue),
        *(GlobalVar, StringImm, DataTypeImm, ExternFunc),
    }
)

# What a rule is asked about that sees no leaves.
_RULED: Final = (Call, TupleGetItem)


def children(node: Expr) -> Sequence[Expr]:
    """Sub-expressions of a plain expression, in order of evaluation.

    Operators are not children. The insides of functions and of branches are not, either: they
    hold bindings, and whoever walks them decides how.
    """
    if type(node) in LEAF_TYPES:  # most nodes are
        return ()
    if isinstance(node, Call):
        return node.args if isinstance(node.op, Op) else (node.op, *node.args)
    if isinstance(node, Tuple):
        return node.fields
    if isinstance(node, TupleGetItem):
        return (node.tuple_value,)
    if isinstance(node, If):
        return (node.cond,)
    return ()


def rebuild(node: Expr, new: Sequence[Expr]) -> Expr:
    """``node`` with other children; itself where they are the same objects."""
    old = children(node)
    if all(map(operator.is_, old, new)):
        return node
    if isinstance(node, Call):
        alike = all(map(_infer_alike, old, new))
        if isinstance(node.op, Op):
            if alike and node.struct_info_ is not None:
                return Call.make(node, new, node.span)
            return Call(node.op, new, node.attrs, node.sinfo_args, node.span)
        info = node.struct_info_ if alike else None
        return Call(new[0], new[1:], node.attrs, node.sinfo_args, node.span, struct_info=info)
    if isinstance(node, Tuple):
        return Tuple(new, node.span)
    if isinstance(node, TupleGetItem):
        value = new[0]
        return (
            value.fields[node.index]
            if isinstance(value, Tuple)
            else TupleGetItem(value, node.index, node.span)
        )
    if isinstance(node, If):
        return If(new[0], node.true_branch, node.false_branch, node.span)
    return node


def _infer_alike(old: Expr, new: Expr) -> bool:
    """Whether inference of a call cannot tell ``new`` from ``old``.

    Of variables it sees the struct info alone, and of numbers that are no integers too.
    """
    if old is new:
        return True
    info = old.struct_info_
    if not isinstance(new, Var) or info != new.struct_info_:
        return False
    if isinstance(old, Var):
        # The struct info of the call may name the variable as its shape.
        return not isinstance(info, ShapeStructInfo)
    return isinstance(old, Constant) and is_float(getattr(info, "dtype", ""))


def post_order(
    root: Expr,
    seen: set[int] | None = None,
    below: Callable[[Expr], Sequence[Expr]] = children,
) -> Iterator[Expr]:
    """Plain sub-expressions of ``root``, children first, each object once; iterative.

    ``seen`` holds the ids of nodes to leave out and gets those that were given; ``below`` says
    what the children of a node are.
    """
    done: set[int] = set() if seen is None else seen
    # Where leaves have nothing below them, a call of leaves needs no stack; most nodes are such.
    plain = below is children or below is deep_children
    # None stands above a node whose children come before it.
    stack: list[Expr | None] = [root]
    while stack:
        node = stack.pop()
        if node is None:
            node = cast(Expr, stack.pop())
        elif id(node) in done:
            continue
        elif kids := below(node):
            if plain and all(type(k) in LEAF_TYPES for k in kids):
                for k in kids:
                    if id(k) not in done:
                        done.add(id(k))
                        yield k
                done.add(id(node))
                yield node
                continue
            stack += (node, None)
            stack += reversed(kids)
            continue
        done.add(id(node))
        yield node


def deep_children(node: Expr) -> Sequence[Expr]:
    """Sub-expressions of ``node``, those inside functions, branches and sequences included.

    Of a function its body, of a sequence the bound values and the result, in order. Variables at
    their definitions are not among them.
    """
    kind = type(node)
    if kind in LEAF_TYPES:  # most nodes are, and of the others most are calls
        return ()
    if kind is Call:
        return children(node)
    if isinstance(node, If):
        return (node.cond, node.true_branch, node.false_branch)
    if isinstance(node, SeqExpr):
        return [*(b.value for block in node.blocks for b in block.bindings), node.body]
    if isinstance(node, Function):
        return (node.body,)
    return children(node)


def inner_children(node: Expr) -> Sequence[Expr]:
    """:func:`deep_children` that are no leaves: what is below most calls is left out."""
    return [k for k in deep_children(node) if type(k) not in LEAF_TYPES]


def reads(value: Expr, *, inside: bool = False) -> list[Var]:
    """Variables that ``value`` reads, in order, each as often as it does.

    Those that functions, branches and sequences in it read are among them where ``inside``.
    """
    parts = deep_children if inside else children
    found: list[Var] = []
    todo: list[Expr] = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, Var):
            found.append(node)
        else:
            todo.extend(reversed(parts(node)))
    return found


def post_order_deep(root: Expr) -> Iterator[Expr]:
    """All expressions in ``root``, insides included, children first, each object once."""
    return post_order(root, below=deep_children)


def _is_flat(node: Expr) -> bool:
    """Whether ``node`` is a call of leaves and of tuples of leaves, as calls of kernels are."""
    if type(node) is not Call or not (type(node.op) is Op or type(node.op) in LEAF_TYPES):
        return False
    if LEAF_TYPES.issuperset(map(type, node.args)):
        return True
    for a in node.args:
        if type(a) in LEAF_TYPES:
            continue
        if type(a) is not Tuple:
            return False
        for f in a.fields:
            if type(f) not in LEAF_TYPES:
                return False
    return True


def holders_deep(root: Expr) -> Iterator[Expr]:
    """Functions, branches and sequences in ``root``, outer ones first, each object once."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        if isinstance(node, SeqExpr | Function | If):
            seen.add(id(node))
            yield node
        stack += [k for k in deep_children(node) if type(k) not in LEAF_TYPES and not _is_flat(k)]


def bindings_of(seq: SeqExpr) -> Iterator[Binding]:
    """All bindings of a sequence, block after block."""
    for block in seq.blocks:
        yield from block.bindings


def bindings_deep(root: Expr) -> Iterator[Binding]:
    """All bindings in ``root``; those of branches and functions come before what holds them."""
    seqs = [node for node in holders_deep(root) if isinstance(node, SeqExpr)]
    if len(seqs) > 1:
        seqs = [node for node in post_order_deep(root) if isinstance(node, SeqExpr)]
    for seq in seqs:
        yield from bindings_of(seq)


def joined(blocks: Sequence[BindingBlock]) -> list[BindingBlock]:
    """``blocks`` without empty ones; neighbours of one kind are one block."""
    groups: list[list[BindingBlock]] = []
    for block in blocks:
        if not block.bindings:
            continue
        if groups and type(groups[-1][0]) is type(block):
            groups[-1].append(block)
        else:
            groups.append([block])
    return [_one(group) for group in groups]


def _one(group: Sequence[BindingBlock]) -> BindingBlock:
    first = group[0]
    if len(group) == 1:
        return first
    return type(first)([b for block in group for b in block.bindings], first.span)


class Rewriter:
    """Rebuild functions under a substitution and an optional rule.

    ``values`` maps variables to expressions, ``symbolic`` symbolic variables to dimensions;
    ``rule`` sees every rebuilt plain expression and may give another in its place; without
    ``leaves`` it is asked about calls and fields of tuples alone. Variables whose struct info
    changes are replaced by new ones of the same name.
    """

    def __init__(
        self,
        symbolic: Mapping[tir.Var, tir.Dim] | None = None,
        values: Mapping[Var, Expr] | None = None,
        rule: Rule | None = None,
        leaves: bool = True,
    ) -> None:
        self.symbolic = dict(symbolic or {})
        self.env: dict[Var, Expr] = dict(values or {})
        self.rule = rule
        self._leaf_rule = rule if leaves else None
        self._binds = bool(values)
        # Whether nothing but ``env`` and ``symbolic`` changes leaves.
        own = type(self)
        same = own.leaf is Rewriter.leaf and own._node is Rewriter._node
        self._plain = same and self._leaf_rule is None
        self._own_vars = own.var is Rewriter.var
        # Whether a binding stays that reads nothing of ``env``.
        self._keeps = self._plain and rule is None and self._own_vars and own.expr is Rewriter.expr
        self._infos: dict[int, tuple[StructInfo, StructInfo]] = {}

    def info(self, info: StructInfo) -> StructInfo:
        """Struct info under the substitution; itself if that changes nothing."""
        if not self.symbolic and not (self.env and lattice.held_shapes(info)):
            return info
        known = self._infos.get(id(info))
        if known is None:
            new = lattice.substitute(info, self.symbolic, self.leaf)
            # The key is kept alive with the result, so that its id stays its own.
            known = self._infos[id(info)] = (info, info if new == info else new)
        return known[1]

    def attr(self, value: Any) -> Any:
        """An attribute's value under the substitution."""
        if isinstance(value, tir.PrimExpr):
            made = tir.simplify(tir.substitute(value, self.symbolic))
            # A number that was symbolic is one of Python, as an attribute has it.
            if isinstance(made, tir.FloatImm) and not isinstance(value, tir.FloatImm):
                return made.value
            return made
        if isinstance(value, StructInfo):
            return self.info(value)
        if isinstance(value, tuple):
            return tuple(map(self.attr, value))
        if isinstance(value, Attrs):
            new = {k: self.attr(v) for k, v in value.items()}
            same = all(map(operator.is_, new.values(), value.values()))
            return value if same else Attrs(new)
        return value

    def symbols_in(self, call: Call) -> Call:
        """``call``, whose operands are done, with its own symbols replaced."""
        if not self.symbolic and not call.attrs:
            if not any(map(lattice.held_shapes, call.sinfo_args)):
                return call  # as most calls of kernels are
        infos = [self.info(i) for i in call.sinfo_args]
        attrs = self.attr(call.attrs) if call.attrs else call.attrs
        known = call.struct_info_
        if (
            attrs == call.attrs
            and all(a is b for a, b in zip(infos, call.sinfo_args, strict=True))
            and (known is None or self.info(known) is known)
        ):
            return call
        return Call(call.op, call.args, attrs, infos, call.span)

    def dim(self, d: tir.Dim) -> tir.Dim:
        """A dimension under the substitution."""
        if isinstance(d, int) or not self.symbolic:
            return d
        return tir.as_dim(tir.simplify(tir.substitute(d, self.symbolic)))

    def var(self, var: Var, info: StructInfo | None) -> Var:
        """The variable that takes the place of ``var`` at its definition."""
        if info is None or var.struct_info_ == info:
            return var
        new = type(var)(var.vid, info, var.span)
        self.env[var] = new
        return new

    def leaf(self, node: Expr) -> Expr:
        """A node without children."""
        if isinstance(node, Var):
            return self.env.get(node, node)
        if isinstance(node, ShapeExpr):
            dims = tuple(map(self.dim, node.values))
            return node if dims == node.values else ShapeExpr(dims, node.span)
        if isinstance(node, PrimValue):
            if not self.symbolic:
                return node
            value = tir.simplify(tir.substitute(node.value, self.symbolic))
            return node if value == node.value else PrimValue(value, node.span)
        if isinstance(node, Function):
            return self.function(node)
        return self.seq(node) if isinstance(node, SeqExpr) else node

    def expr(self, root: Expr) -> Expr:
        """A plain expression under the substitution and the rule; iterative."""
        if type(root) in LEAF_TYPES:
            return self._node(root, ())
        if self._plain and not self.symbolic and type(root) is Call and isinstance(root.op, Op):
            # What most bindings hold: an operator on variables, constants, and tuples of these.
            args = self.flat_args(root.args)
            if args is not None:
                return self._ruled(root if args is root.args else rebuild(root, args))
        kids = children(root)
        if all([type(k) in LEAF_TYPES for k in kids]):
            # A-normal form: no walk is needed.
            if self._plain and not self.symbolic and isinstance(root, Call | TupleGetItem | Tuple):
                env = self.env
                new = [env.get(k, k) if isinstance(k, Var) else k for k in kids]
                return self._ruled(rebuild(root, new))
            return self._node(root, [self._node(k, ()) for k in kids])
        if _is_flat(root):
            new = [self._node(k, [self._node(f, ()) for f in children(k)]) for k in kids]
            return self._node(root, new)
        done: dict[int, Expr] = {}
        for node in post_order(root):
            done[id(node)] = self._node(node, [done[id(k)] for k in children(node)])
        return done[id(root)]

    def _ruled(self, node: Expr) -> Expr:
        """A node over leaves that are done, under a rule that sees no leaves."""
        if self.env and isinstance(node, Call) and node.sinfo_args:
            node = self.symbols_in(node)
        return self.rule(node) or node if self.rule and isinstance(node, _RULED) else node

    def flat_args(self, args: Sequence[Expr]) -> Sequence[Expr] | None:
        """Leaves, and tuples of leaves, with variables replaced; None where there is more.

        ``args`` themselves where nothing is.
        """
        env = self.env
        changed = False
        made: list[Expr] = []
        for a in args:
            if type(a) in LEAF_TYPES:
                new = env.get(a, a) if isinstance(a, Var) else a
            elif type(a) is Tuple and all([type(f) in LEAF_TYPES for f in a.fields]):
                fields = [env.get(f, f) if isinstance(f, Var) else f for f in a.fields]
                new = a if all(map(operator.is_, fields, a.fields)) else Tuple(fields, a.span)
            else:
                return None
            changed = changed or new is not a
            made.append(new)
        return made if changed else args

    def _node(self, node: Expr, kids: Sequence[Expr]) -> Expr:
        """One node of a plain expression, whose children are done, under the rule."""
        if not kids and not isinstance(node, Call | Tuple):
            new = self.leaf(node)
            if type(new) in LEAF_TYPES:  # most nodes are
                return new if self._leaf_rule is None else self._leaf_rule(new) or new
        else:
            new = rebuild(node, kids)
        if isinstance(new, If):
            a, b = self.seq(new.true_branch), self.seq(new.false_branch)
            if a is not new.true_branch or b is not new.false_branch:
                new = If(new.cond, a, b, new.span)
        elif isinstance(new, Call) and (self.symbolic or (self.env and new.sinfo_args)):
            new = self.symbols_in(new)
        if self._leaf_rule is None:
            return self.rule(new) or new if self.rule and isinstance(new, _RULED) else new
        return new if isinstance(new, Function | SeqExpr) else self._leaf_rule(new) or new

    def binding(self, b: Binding) -> Binding:
        """One binding; later uses see the new variable."""
        if self._keeps and not self.symbolic and type(b) is VarBinding and self._stays(b):
            return b
        if isinstance(b, MatchCast):
            info = self.info(b.struct_info)
            value = self.expr(b.value)
            var = self.var(b.var, info)
            if value is b.value and var is b.var and info == b.struct_info:
                return b
            return MatchCast(var, value, info, b.span)
        if not isinstance(b, VarBinding):
            raise TypeError(f"unknown binding {type(b).__name__}")
        declared = b.var.struct_info_
        if isinstance(b.value, Function) and declared is not None:
            # The variable first: a recursive local function refers to it.
            var = self.var(b.var, self.info(declared))
            value = self.expr(b.value)
            return b if var is b.var and value is b.value else VarBinding(var, value, b.span)
        value = self.expr(b.value)
        if value is b.value and self._own_vars and not self.symbolic:
            if not (self.env and lattice.held_shapes(declared)):
                return b
        info = value.struct_info_ if value is not b.value else declared
        if info is not None and declared is not None and not self.symbolic:
            # A weaker declaration is the user's choice and stays; what was known says more now. Of
            # values that are bound the value tells, as in TVM.
            weaker = declared != b.value.struct_info_ and not self._binds
            declared = self.info(declared)
            info = declared if weaker and lattice.is_base_of(declared, info) else info
        elif info is None and declared is not None:
            info = self.info(declared)
        var = self.var(b.var, info)
        return b if var is b.var and value is b.value else VarBinding(var, value, b.span)

    def _stays(self, b: VarBinding) -> bool:
        """Whether ``b`` is a call of an operator on leaves of which ``env`` has none.

        Most bindings are, where a pass changes few; False where that takes longer to tell.
        """
        call, env = b.value, self.env
        if type(call) is not Call or type(call.op) is not Op:
            return False
        for a in call.args:
            if type(a) in VAR_TYPES:
                if a in env:
                    return False
            elif type(a) not in LEAF_TYPES:
                return False
        if not env:
            return True
        info = b.var.struct_info_
        known = type(info) is TensorStructInfo and info.dims is not None
        return known and not call.sinfo_args

    def block(self, block: BindingBlock) -> BindingBlock:
        """All bindings of a block, in order."""
        new = [self.binding(b) for b in block.bindings]
        if all(a is b for a, b in zip(new, block.bindings, strict=True)):
            return block
        return type(block)(new, block.span)

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        """A sequence: its blocks, then its body."""
        blocks = [self.block(b) for b in seq.blocks]
        body = self.expr(seq.body)
        if body is seq.body and all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
            return seq
        return SeqExpr(blocks, body, seq.span)

    @nests
    def function(self, func: Function) -> Function:
        """A function: parameters, body, result."""
        params = [
            p if p.struct_info_ is None else self.var(p, self.info(p.struct_info_))
            for p in func.params
        ]
        body = self.seq(func.body)
        ret = self.info(func.ret_struct_info)
        same = all(a is b for a, b in zip(params, func.params, strict=True))
        if same and body is func.body and ret == func.ret_struct_info:
            return func
        return Function(params, body, ret, func.is_pure, func.attrs, func.span)


def rewrite_function(
    func: Function,
    symbolic: Mapping[tir.Var, tir.Dim] | None = None,
    values: Mapping[Var, Expr] | None = None,
    rule: Rule | None = None,
    leaves: bool = True,
) -> Function:
    """``func`` under a substitution of symbolic variables and of variables; see Rewriter."""
    return Rewriter(symbolic, values, rule, leaves).function(func)
