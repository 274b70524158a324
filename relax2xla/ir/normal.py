"""A-normal form: operands that compute something are bound to variables first.

Each expression *object* is bound once where it is visible, so that a shared sub-expression stays
shared. The walk is iterative; only branches and nested functions cost a few Python frames a level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, cast

from relax2xla.errors import BuilderError
from relax2xla.ir.base import Span
from relax2xla.ir.check import LEAVES, is_operand
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import definable_vars, erase, held_shapes, infer_call
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import (
    LEAF_TYPES,
    bindings_of,
    children,
    holders_deep,
    inner_children,
    post_order,
)
from relax2xla.ir.struct_info import StructInfo

OPERANDS = (*LEAVES, Tuple)


def is_normal(root: Expr) -> bool:
    """Whether an expression and all that is inside it is in A-normal form."""
    for node in post_order(root, below=_doubtful):
        if isinstance(node, SeqExpr):
            if not is_operand(node.body):
                return False
            for block in node.blocks:
                for b in block.bindings:
                    if isinstance(b.value, SeqExpr):
                        return False
                    if isinstance(b, MatchCast) and not is_operand(b.value):
                        return False
        elif not all(map(is_operand, children(node))) or specific(node, None) is not node:
            return False
    return True


def _doubtful(node: Expr) -> Sequence[Expr]:
    """What is in ``node`` without leaves and calls of leaves that are normal: most nodes are."""
    return [
        k
        for k in inner_children(node)
        if not (_is_flat(k) and getattr(cast(Call, k).op, "normal", None) is None)
    ]


def specific(node: Expr, builder: Normalizer | None) -> Expr:
    """``node``, or what the FNormalize of its operator puts in its place."""
    if isinstance(node, Call) and isinstance(node.op, Op) and node.op.normal is not None:
        return node.op.normal(builder, node)
    return node


def _is_flat(node: Expr) -> bool:
    """Whether ``node`` is a call of leaves."""
    return (
        type(node) is Call
        and isinstance(node.op, LEAVES)
        and all([type(a) in LEAF_TYPES or isinstance(a, Op) for a in node.args])
    )


def with_info(value: Expr) -> Expr:
    """``value``, whose struct info is inferred now if its callee has been declared since."""
    if value.struct_info_ is None and isinstance(value, Call):
        value.struct_info_ = infer_call(value)
    return value


def outside_dataflow(info: StructInfo) -> StructInfo:
    """``info`` of a block's output: without the shapes that the block's own variables hold."""
    return erase(info, lambda v: True, lambda shape: not isinstance(shape, DataflowVar))


# A binding's variable and value.
_PAIR: Final = attrgetter("var", "value")


class NameSupply:
    """Unique names as TVM makes them: ``lv``, ``lv1``, ``lv2``; dots become underscores."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        """Never give out ``name``."""
        self._next.setdefault(name, 0)

    def reserve_all(self, names: Iterable[str]) -> None:
        """Never give out any of ``names``."""
        self._next = {**dict.fromkeys(names, 0), **self._next}

    def fresh(self, prefix: str) -> str:
        """``prefix``, with the lowest number after it that makes it new."""
        known = self._next
        count = known.get(prefix)
        if count is None:
            if "." in prefix or not prefix:
                return self.fresh(prefix.replace(".", "_") or "v")
            known[prefix] = 0
            return prefix
        count += 1
        while (name := f"{prefix}{count}") in known:
            count += 1
        known[prefix] = count
        known[name] = 0
        return name


class Frame:
    """One sequence under construction: a function's body or a branch.

    ``memo`` maps each expression object that was bound here to its variable; ``parent`` is the
    frame whose bindings are visible too (None for a function). ``local`` lists the keys of
    ``memo`` that end with the dataflow block.
    """

    __slots__ = ("bindings", "blocks", "dataflow", "local", "memo", "parent")

    def __init__(self, parent: Frame | None) -> None:
        self.parent = parent
        self.blocks: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.dataflow = False
        self.memo: dict[Expr, Expr] = {}
        self.local: list[Expr] = []

    def known(self, node: Expr) -> Expr | None:
        """The variable that ``node`` is bound to, if it is."""
        frame: Frame | None = self
        while frame is not None:
            found = frame.memo.get(node)
            if found is not None:
                return found
            frame = frame.parent
        return None

    def begin(self, dataflow: bool) -> None:
        """Close the current block and open another."""
        if self.bindings:
            block = DataflowBlock if self.dataflow else BindingBlock
            self.blocks.append(block(self.bindings))
        for node in self.local:
            self.memo.pop(node, None)
        self.bindings, self.local, self.dataflow = [], [], dataflow

    def close(self) -> list[BindingBlock]:
        """Close the current block; gives all blocks."""
        self.begin(dataflow=False)
        return self.blocks


class Normalizer:
    """Bindings under construction: the stack of open sequences, and how expressions get there.

    BlockBuilder is the one that users hold. ``specific``: operators' FNormalize is asked, too;
    TVMScript says what is there, so its parser does without.
    """

    def __init__(self) -> None:
        self.specific = True
        self._names = NameSupply()
        self._frames: list[Frame] = []
        self._values: dict[Var, Expr] = {}
        # Blocks, some of them still open, and how many of their bindings are among the values:
        # few ask for the value of one of many variables that are bound at once.
        self._unlisted: list[tuple[Sequence[Binding], int]] = []
        self._params: set[Var] = set()  # of local functions
        self._source: Span | None = None

    def _frame(self, what: str = "emit") -> Frame:
        if not self._frames:
            raise BuilderError(
                f"{what} outside of a function; open one with `with bb.function(name, params):`"
            )
        return self._frames[-1]

    # -- bindings ---------------------------------------------------------------------------
    def lookup_binding(self, var: Var) -> Expr | None:
        """The value that ``var`` was bound to by this builder, or None."""
        return self._listed().get(var)

    def _listed(self) -> Mapping[Var, Expr]:
        """The value of each variable that was bound by this builder."""
        if self._unlisted:
            for bindings, start in self._unlisted:
                self._values.update(map(_PAIR, bindings[start:]))
            growing = [f.bindings for f in self._frames]
            waiting = [b for b, _ in self._unlisted if any(b is g for g in growing)]
            self._unlisted = [(b, len(b)) for b in waiting]
        return self._values

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding that is in A-normal form already, with its own variable."""
        if type(binding) is not VarBinding and not isinstance(binding, VarBinding | MatchCast):
            raise TypeError(f"emit_normalized takes a binding; got {type(binding).__name__}")
        frame = self._frame("emit_normalized")
        if not frame.dataflow and isinstance(binding.var, DataflowVar):
            raise BuilderError(
                f"the DataflowVar {binding.var.name_hint} is bound outside of a dataflow block"
            )
        self._names.reserve(binding.var.name_hint)
        frame.bindings.append(binding)
        self._values[binding.var] = binding.value

    def emit_all_normalized(self, bindings: Sequence[Binding]) -> None:
        """Append the bindings of a block of the kind that is open, all in A-normal form."""
        self._names.reserve_all([b.var.name_hint for b in bindings])
        self._frame("emit_all_normalized").bindings += bindings
        self._unlisted.append((bindings, 0))

    def _new_var(
        self, hint: str, info: StructInfo, dataflow: bool, span: Span | None
    ) -> Var | DataflowVar:
        name = self._names.fresh(hint or ("lv" if dataflow else "gv"))
        return (DataflowVar if dataflow else Var)(name, info, span)

    def _bind(
        self, origin: Expr, value: Expr, hint: str, output: bool, span: Span | None
    ) -> Var | DataflowVar:
        """Bind ``value``, the normal form of ``origin``, and remember it."""
        frame = self._frames[-1]
        dataflow = frame.dataflow and not output
        info = value.struct_info_
        if info is None:
            info = with_info(value).struct_info
        if output and frame.dataflow:
            info = outside_dataflow(info)
        var = self._new_var(hint, info, dataflow, span)
        frame.bindings.append(VarBinding(var, value, span))
        self._values[var] = value
        if not isinstance(origin, LEAVES):
            frame.memo[origin] = var
            if dataflow:
                frame.local.append(origin)
        return var

    def binder(self) -> Callable[..., Var | DataflowVar]:
        """What binds in the block that is open, for as long as it is: ``bind(value, hint)``.

        It does what ``emit`` does with a leaf, and with a call of leaves whose operator has no
        FNormalize, without looking at ``value``, which is known to be normal; it is not known by
        the variable when it stands in another expression.
        """
        frame = self._frames[-1]
        kind, usual = (DataflowVar, "lv") if frame.dataflow else (Var, "gv")
        append, fresh = frame.bindings.append, self._names.fresh
        self._unlisted.append((frame.bindings, len(frame.bindings)))

        def bind(value: Expr, hint: str = usual) -> Var | DataflowVar:
            span = value.span or self._source
            info = value.struct_info_
            if info is None:
                info = with_info(value).struct_info
            var = kind(fresh(hint), info, span)
            append(VarBinding(var, value, span))
            return var

        return bind

    # -- expressions ------------------------------------------------------------------------
    def _value(self, root: Expr, span: Span | None) -> Expr:
        """``root`` with operands only below it, what they compute emitted before it."""
        # The common cases first: nothing to do, or little.
        if _is_flat(root):
            return self._specific(root, span)
        if isinstance(root, LEAVES):
            return root
        if isinstance(root, Call) and isinstance(root.op, LEAVES):
            # A call of a kernel: its operands are a tuple of leaves.
            known = self._frames[-1].known
            if all([is_operand(a) and known(a) is None for a in root.args]):
                return self._specific(root, span)
            if all([isinstance(a, LEAVES) or _is_flat(a) for a in root.args]):
                new = [self._operand(a, span) for a in root.args]
                op = () if isinstance(root.op, Op) else (root.op,)
                return self._specific(self._rebuilt(root, [*op, *new], span), span)
        done: dict[int, Expr] = {}
        stack: list[tuple[Expr, Span | None, bool]] = [(root, span, False)]
        while stack:
            node, at, ready = stack.pop()
            if id(node) in done:
                continue
            # What TVMScript has as an operand, a region of a row, stays one.
            as_written = isinstance(node, Function) and node is not root and not self.specific
            if as_written or isinstance(node, LEAVES):
                done[id(node)] = node
                continue
            known = None if node is root else self._frames[-1].known(node)
            if known is not None:
                done[id(node)] = known
                continue
            kids = children(node)
            if kids and not ready:
                stack.append((node, at, True))
                stack.extend((k, k.span or at, False) for k in reversed(kids))
                continue
            new = self._specific(self._rebuilt(node, [done[id(k)] for k in kids], at), at)
            if node is not root and not isinstance(new, OPERANDS):
                new = self._bind(node, new, "", False, at)
            done[id(node)] = new
        return done[id(root)]

    def _specific(self, node: Expr, span: Span | None) -> Expr:
        """``node``, whose operands are normal, as its operator wants it."""
        new = specific(node, self) if self.specific else node
        return node if new is node else self._value(new, span)

    def _operand(self, node: Expr, span: Span | None) -> Expr:
        """``node`` as an operand: a leaf, a tuple of leaves, or the variable it is bound to."""
        if is_operand(node):
            return node
        known = self._frames[-1].known(node)
        if known is not None:
            return known
        value = self._value(node, node.span or span)
        if isinstance(value, OPERANDS):
            return value
        return self._bind(node, value, "", False, node.span or span)

    def _rebuilt(self, node: Expr, new: Sequence[Expr], span: Span | None) -> Expr:
        """``node`` over other operands. They hold the same values, so nothing is inferred again."""
        old = children(node)
        same = all(a is b for a, b in zip(old, new, strict=True))
        match node:
            case Call() if not same:
                known = node.struct_info_
                if isinstance(node.op, Op) and known is not None:
                    return Call.make(node, new, node.span)
                op, args = (node.op, new) if isinstance(node.op, Op) else (new[0], new[1:])
                return Call(op, args, node.attrs, node.sinfo_args, node.span, struct_info=known)
            case Tuple() if not same:
                return Tuple(new, node.span)
            case TupleGetItem() if not same:
                return TupleGetItem(new[0], node.index, node.span)
            case If():
                yes, no = self._branch(node.true_branch), self._branch(node.false_branch)
                if same and yes is node.true_branch and no is node.false_branch:
                    return node
                return If(new[0], yes, no, node.span)
            case Function():
                return self._function(node)
            case SeqExpr():
                return self._splice(node, span)
            case _:
                return node

    def _branch(self, seq: SeqExpr) -> SeqExpr:
        """A branch: a sequence that sees what is bound around it."""
        new = self._seq(seq, self._frames[-1])
        bindings = [b for block in new.blocks for b in block.bindings]
        casts = [b.struct_info for b in bindings if isinstance(b, MatchCast)]
        inner = {v for info in casts for v in definable_vars(info)}
        held = {b.var for b in bindings}.intersection(held_shapes(new.struct_info_))
        if (inner or held) and new.struct_info_ is not None:
            outside = erase(new.struct_info_, lambda v: v not in inner, lambda s: s not in held)
            if outside != new.struct_info_:
                new = SeqExpr(new.blocks, new.body, new.span)
                new.struct_info_ = outside
        return new

    @nests
    def _seq(self, seq: SeqExpr, parent: Frame | None = None) -> SeqExpr:
        if self._claim(seq):
            return seq
        self._frames.append(Frame(parent))
        try:
            body = self._operand(self._splice(seq, seq.span), seq.span)
            return SeqExpr(self._frames[-1].close(), body, seq.span)
        finally:
            self._frames.pop()

    @nests
    def _function(self, func: Function) -> Function:
        if self._is_known(func):
            func = copy_with_new_vars(func, symbolic=False)
        self._params.update(func.params)
        body = self._seq(func.body)
        return func if body is func.body else func.replace(body=body)

    def _claim(self, seq: SeqExpr) -> bool:
        """Whether ``seq`` can stay as it is: normal, and its variables are bound nowhere else."""
        if not is_normal(seq) or self._is_known(seq):
            return False
        for node in holders_deep(seq):
            if isinstance(node, SeqExpr):
                self._values.update((b.var, b.value) for b in bindings_of(node))
            elif isinstance(node, Function):
                self._params.update(node.params)
        return True

    def _is_known(self, root: Expr) -> bool:
        """Whether a variable that is defined in ``root`` has been defined here before."""
        values = self._listed()
        for node in holders_deep(root):
            if isinstance(node, SeqExpr):
                if any(b.var in values for b in bindings_of(node)):
                    return True
            elif isinstance(node, Function) and not self._params.isdisjoint(node.params):
                return True
        return False

    @nests
    def _splice(self, seq: SeqExpr, span: Span | None) -> Expr:
        """Emit the bindings of ``seq`` into the current sequence; gives its body's normal form."""
        if self._is_known(seq):
            seq = copy_with_new_vars(seq, symbolic=False)
        frame = self._frames[-1]
        for block in seq.blocks:
            own = isinstance(block, DataflowBlock) and not frame.dataflow
            if own:
                frame.begin(dataflow=True)
            for b in block.bindings:
                at = b.span or self._source or span
                if isinstance(b, MatchCast):
                    value = self._operand(b.value, at)
                    same = value is b.value
                    new = b if same else MatchCast(b.var, value, b.struct_info, b.span)
                else:
                    value = self._value(b.value, at)
                    new = b if value is b.value else VarBinding(b.var, value, b.span)
                self.emit_normalized(new)
            if own:
                frame.begin(dataflow=False)
        return self._value(seq.body, seq.body.span or span)
