"""What a gradient is made of, and how an operator gets one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla.dtypes import is_float, is_kind
from relax2xla.errors import NoExpression, OpError
from relax2xla.ir.expr import Call, Expr, Var
from relax2xla.ir.lattice import dims_equal
from relax2xla.ir.make import const
from relax2xla.ir.op import OfCall, Op, PrimalGradient
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, show
from relax2xla.op.shared.lowering import relax


@dataclass(frozen=True, slots=True)
class Backward(OfCall):
    """One call to differentiate: ``out`` holds its result, ``grad`` the gradient of that."""

    out: Expr
    call: Call
    grad: Expr

    def number(self, value: float) -> Expr:
        """A scalar constant of the dtype of the first operand."""
        return const(value, tensor_of(self.x).dtype)


Rule = Callable[[Backward], Sequence[Expr] | None]
# The gradients that rules make: they see a call and nothing else, so equal calls have equal ones.
OF_TABLE: set[PrimalGradient] = set()


def gradient(*names: str) -> Callable[[Rule], Rule]:
    """Make a rule the gradient of operators.

    It gives one expression an operand, ``R.grad.no_grad`` of those that get none; operands that
    it leaves out at the end get none either. None: this call has no expression here, and is
    differentiated as an operator without a rule.
    """

    def wrap(rule: Rule) -> Rule:
        def primal_gradient(out: Var, call: Call, grad: Expr, ctx: Any) -> Sequence[Expr]:
            made = rule(Backward(out, call, grad))
            if made is None:
                raise NoExpression(f"{call.op!r}: no gradient in expressions with {call.attrs!r}")
            return list(made)

        for name in names:
            found = Op.get(name)
            assert found.primal_gradient is None, f"{name} has two gradients"
            found.primal_gradient = primal_gradient
        OF_TABLE.add(primal_gradient)
        return rule

    return wrap


def register_gradient(
    op_name: str, fgradient: PrimalGradient | None = None, level: int = 10
) -> Any:
    """Give the operator ``op_name`` a gradient, or another one; also a decorator.

    fgradient: a function of the variable that holds the result, the call, the gradient of the
        result and a BlockBuilder; it returns the gradients of the operands, a list of expressions,
        with ``R.grad.no_grad(operand)`` for those that get none.
    level: as in TVM; the last one registered counts.
    """

    def register(rule: PrimalGradient) -> PrimalGradient:
        Op.get(op_name).primal_gradient = rule
        return rule

    return register if fgradient is None else register(fgradient)


# ---- what the rules share
def tensor_of(x: Expr) -> TensorStructInfo:
    """Struct info of a tensor; OpError of anything else."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise OpError(f"the gradient needs a tensor; got {show(info)}")
    return info


def dims_of(x: Expr) -> Sequence[Any]:
    """The dimensions of a tensor; OpError where they are not known."""
    dims = tensor_of(x).dims
    if dims is None:
        raise OpError(
            f"the gradient needs the shape of {x!r}, which is {show(x.struct_info)}; "
            "give it one with R.match_cast"
        )
    return dims


def sizes_of(x: Expr) -> Sequence[int]:
    """The dimensions of a tensor, as numbers; OpError where one is symbolic."""
    dims = dims_of(x)
    if any(not isinstance(d, int) for d in dims):
        raise OpError(
            f"the gradient needs the sizes of {x!r}, which is {show(x.struct_info)}; "
            "bind the symbolic variables first: BindSymbolicVars"
        )
    return dims


def is_differentiable(info: StructInfo | None) -> bool:
    """Whether a gradient can flow into such a value: it has floats (or complex numbers)."""
    if isinstance(info, TupleStructInfo):
        return any(map(is_differentiable, info.fields))
    if not isinstance(info, TensorStructInfo):
        return False
    return not info.dtype or is_float(info.dtype) or is_kind(info.dtype, "complex")


def fit(grad: Expr, operand: Expr) -> Expr:
    """``grad``, summed over what was broadcast; nothing for an operand that is no float tensor."""
    if not is_differentiable(operand.struct_info):
        return none(operand)
    dims = dims_of(operand)
    if dims_equal(tuple(dims_of(grad)), tuple(dims)):
        return grad
    return relax("collapse_sum_to", grad, dims)


def none(operand: Expr) -> Expr:
    """No gradient for an operand."""
    return relax("grad.no_grad", operand)


def zero(like: Expr) -> Expr:
    """The scalar 0 in the dtype of a tensor."""
    return const(0, tensor_of(like).dtype)
