"""The reverse walk over a dataflow block: gradients of all variables that the target depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from relax2xla.builder import BlockBuilder
from relax2xla.errors import NoExpression, TransformError, TVMError
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    Expr,
    MatchCast,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import of_numbers
from relax2xla.ir.op import Op
from relax2xla.ir.struct_info import show
from relax2xla.op.intrinsic import call_tir_with_grad_op
from relax2xla.op.shared.gradients.table import OF_TABLE, is_differentiable
from relax2xla.op.shared.lowering import relax
from relax2xla.te.gradients import GRADIENTS
from relax2xla.transform.grad.checkpoints import Again
from relax2xla.transform.grad.formulas import Flat, Formulas, wanted

Fallback = Callable[[Call, Expr], Sequence[Expr]]
"""Gradients of a call's operands where the operator has no rule: of the call, and the gradient."""


# Up to here an adjoint is a new tuple for each field that is read, as in TVM; so the cost of wide
# tuples would be quadratic.
FEW_FIELDS: Final = 16


class Adjoints:
    """Emits, for every variable that has one, its adjoint: the gradient of the target by it.

    ``of``: the newest adjoint of each variable. An adjoint is of the variable's kind; that of a
    tuple is a tuple. ``fields``: what has been said of single fields of wide tuples, which become
    part of the tuple's adjoint when that is asked for, all at once. ``sums``: by struct info a sum
    of two adjoints, like which others are made.
    """

    def __init__(self, builder: BlockBuilder, again: Again | None, fallback: Fallback) -> None:
        self.builder, self.again, self.fallback = builder, again, fallback
        self.formulas = Formulas()
        self.sums: dict[StructInfo, Call] = {}
        self.of: dict[Var, Var] = {}
        self.fields: dict[Var, dict[int, Expr]] = {}
        self.bind = builder.binder()

    def start(self, target: Var) -> None:
        """The gradient of the target by itself is 1."""
        info = target.struct_info
        assert isinstance(info, TensorStructInfo)
        self.add(target, relax("ones", info.dims, info.dtype))

    def binding(self, b: Binding) -> None:
        """What the adjoint of a bound variable says of what its value reads."""
        if self.fields:
            self._settle(b.var)
        adjoint = self.of.get(b.var)
        if adjoint is None:
            return None
        call = b.value
        if type(b) is VarBinding and isinstance(call, Call):  # as most are
            span = b.span or call.span
            if span is None:
                return self._call(b.var, call, adjoint)
            with self.builder.source(span):
                return self._call(b.var, call, adjoint)
        match b:
            case MatchCast():
                self.add(b.value, adjoint)
            case VarBinding(value=TupleGetItem() as item):
                self._field(item, adjoint)
            case VarBinding(value=Var() | Tuple() as value):
                self.add(value, adjoint)
            case VarBinding(value=Constant() | ShapeExpr() | PrimValue()):
                pass
            case _:
                kind = type(b.value).__name__
                raise TransformError(
                    f"Gradient: `{b.var.name_hint}` is bound to a value of kind {kind}, which has "
                    "no gradient here; only calls, tuples, their fields and variables have"
                )
        return None

    def _call(self, var: Var, call: Call, adjoint: Var) -> None:
        seen, forward = (var, call) if self.again is None else self.again.call(var, call)
        if forward.op is call_tir_with_grad_op:
            self._of_te(forward, adjoint)
            return
        made = self._partials(seen, forward, adjoint)
        if isinstance(made, Flat):
            self._flat(made, call.args)
            return
        for operand, partial in zip(call.args, made, strict=False):
            if partial is not None:
                self.add(operand, partial)

    def _flat(self, made: Flat, operands: Sequence[Expr]) -> None:
        """Bind gradients step by step, and add them to the adjoints of the operands."""
        of, bind, values = self.of, self.bind, made.values
        for place, before, root, step in made.plan:
            for at, node, pick in before:
                kids = pick(values)
                values[at] = bind(Call.make(node, kids)) if type(node) is Call else Tuple(kids)
            partial = values[root] if step is None else Call.make(step[0], step[1](values))
            operand = operands[place]
            assert isinstance(operand, Var)
            known = of.get(operand)
            if known is not None:
                if step is not None:
                    partial = bind(partial)
                partial = self._sum(known, partial)
            of[operand] = bind(partial, f"{operand.name_hint}_adjoint")

    def _partials(self, var: Var, call: Call, adjoint: Var) -> Sequence[Expr | None] | Flat:
        op = call.op
        if not isinstance(op, Op) or op.primal_gradient is None:
            return wanted(self.fallback(call, adjoint))
        rule = op.primal_gradient
        made: Sequence[Expr | None] | Flat
        try:
            if rule in OF_TABLE:
                made = self.formulas.partials(rule, var, call, adjoint)
            else:
                made = wanted(rule(var, call, adjoint, self.builder))
        except NoExpression:
            return wanted(self.fallback(call, adjoint))
        except TVMError as e:
            e.add_note(f"  in the gradient of `{var.name_hint}`, {op.describe(call)}")
            raise
        if not isinstance(made, Flat) and len(made) > len(call.args):
            raise TransformError(
                f"Gradient: the rule of {op!r} gives {len(made)} gradients of {len(call.args)} "
                "operands"
            )
        return made

    def _sum(self, a: Var, b: Expr) -> Expr:
        """:func:`total` of adjoints, of which most are of the very same struct info as others."""
        info = a.struct_info_
        if info is None or info is not b.struct_info_:
            return total(a, b)
        like = self.sums.get(info)
        if like is not None:
            return Call.make(like, (a, b))
        made = total(a, b)
        if isinstance(made, Call) and made.struct_info_ is info:
            self.sums[info] = made
        return made

    def _of_te(self, call: Call, adjoint: Var) -> None:
        """Add the gradients that the call names, those of a function of te."""
        name, operands = call.attrs["te_grad_name"], call.args[1]
        func = GRADIENTS.get(name)
        if func is None:
            raise TransformError(
                f"Gradient: a call of call_tir_with_grad names the gradient {name!r}, which is not "
                "registered; register it with relax2xla.training.utils.register_te_gradient"
            )
        given = list(operands) if isinstance(operands, Tuple) else [operands]
        more = dict(call.attrs.get("te_grad_kwargs") or {})
        made = self.builder.emit_te(func, adjoint, *given, primfunc_name_hint=name, **more)
        parts = list(made) if isinstance(made.struct_info, TupleStructInfo) else [made]
        if len(parts) != len(given):
            raise TransformError(
                f"Gradient: {name} gives {len(parts)} gradients of {len(given)} operands"
            )
        for operand, partial in zip(given, parts, strict=True):
            self.add(operand, partial)

    def _field(self, item: TupleGetItem, adjoint: Var) -> None:
        """``b = a[i]``: the adjoint goes to one field of that of ``a``."""
        whole, info = item.tuple_value, item.tuple_value.struct_info
        assert isinstance(info, TupleStructInfo)
        if not isinstance(whole, Var):
            return self.add(Tuple(list(whole)).fields[item.index], adjoint)
        fields = self.fields.setdefault(whole, {})
        before = fields.get(item.index)
        if before is not None:
            made = self.builder.normalize(total(before, adjoint))
            adjoint = self.builder.emit(made, f"{whole.name_hint}_{item.index}_adjoint")
        fields[item.index] = adjoint
        if len(info.fields) <= FEW_FIELDS:
            self._settle(whole)
        return None

    def _settle(self, whole: Var) -> None:
        """Put what has been said of fields of ``whole`` into its adjoint."""
        fields = self.fields.pop(whole, None)
        if fields is None:
            return
        info = whole.struct_info
        assert isinstance(info, TupleStructInfo)
        known = self.of.get(whole)
        made = [zeros(f) for f in info.fields] if known is None else list(known)
        for i, adjoint in fields.items():
            made[i] = adjoint if known is None else total(made[i], adjoint)
        self._emit(whole, Tuple(made))

    def add(self, operand: Expr, partial: Expr) -> None:
        """Add ``partial`` to the adjoints of the variables that ``operand`` is made of."""
        if not isinstance(operand, Var | Tuple):
            return
        # What is emitted as it is, is normalised there.
        whole = isinstance(operand, Var) and isinstance(partial, Call)
        part = partial if whole else self.builder.normalize(partial)
        todo: list[tuple[Expr, Expr]] = [(operand, part)]
        while todo:
            leaf, part = todo.pop()
            if isinstance(leaf, Tuple):
                todo.extend(reversed(list(zip(leaf.fields, part, strict=True))))
            elif isinstance(leaf, Var):
                if is_differentiable(leaf.struct_info):
                    known = self.of.get(leaf)
                    self._emit(leaf, part if known is None else total(known, part))
            elif not isinstance(leaf, Constant | ShapeExpr | PrimValue | StringImm):
                raise TransformError(f"Gradient: {leaf!r}, inside an operand, is no variable")

    def _emit(self, var: Var, adjoint: Expr) -> None:
        self.of[var] = self.builder.emit(adjoint, f"{var.name_hint}_adjoint")

    def output(self, var: Var) -> Var:
        """The final adjoint of ``var``, visible outside of the block; zeros if it has none."""
        self._settle(var)
        if var not in self.of:
            self._emit(var, zeros(var.struct_info))
        return self.builder.emit_output(self.of[var], f"{var.name_hint}_adjoint_out")


_ADD: Final = Op.get("relax.add")


def zeros(info: StructInfo) -> Expr:
    """The adjoint of what the target does not depend on."""
    if isinstance(info, TupleStructInfo):
        return Tuple([zeros(f) for f in info.fields])
    if not isinstance(info, TensorStructInfo) or info.dims is None or not info.dtype:
        raise TransformError(
            f"Gradient: zeros as the gradient of {show(info)} need a tensor of known shape"
        )
    return relax("zeros", info.dims, info.dtype)


def total(a: Expr, b: Expr) -> Expr:
    """The sum of two adjoints of one variable."""
    info = a.struct_info_
    if isinstance(info, TupleStructInfo):
        return Tuple([total(x, y) for x, y in zip(a, b, strict=True)])
    if info is not None and info == b.struct_info_ and of_numbers(info):
        return Call(_ADD, [a, b], struct_info=info)  # without inference, which knows
    return relax("add", a, b)


def through_jax(builder: BlockBuilder) -> Fallback:
    """Gradients as JAX derives them; functions that compute them go into the builder's module."""
    made: list[Fallback] = []

    def partials(call: Call, adjoint: Expr) -> Sequence[Expr]:
        if not made:
            from relax2xla.interop.vjp import Vjps

            made.append(Vjps(builder).partials)
        return made[0](call, adjoint)

    return partials
