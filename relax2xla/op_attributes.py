"""Operators that a program defines by attributes, by TVM's names: ``register_op_attr``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpError, TVMError, UnsupportedError
from relax2xla.ir.expr import Call, Expr, SeqExpr
from relax2xla.ir.op import Op, register
from relax2xla.ir.op_param import EXPR, Param
from relax2xla.ir.struct_info import StructInfo

# Attributes with a meaning here, and the fields of Op that have it.
_FIELDS: Final = {
    "FInferStructInfo": "infer",
    "FLegalize": "lowering",
    "FPurity": "pure",
    "FNormalize": "normal",
    "FPrimalGradient": "primal_gradient",
}
_OWN: Final = ("FInferStructInfo", "FLegalize", "FPurity")


class DeclaredOp(Op[...]):
    """An operator that :func:`register_op_attr` has made; calls take any operands and attributes.

    Its calls are impure until ``FPurity`` says otherwise.
    """

    def __init__(self, name: str) -> None:
        signature = inspect.Signature(
            [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)], return_annotation=Call
        )
        params = [Param("args", EXPR, inspect.Parameter.empty, variadic=True)]
        super().__init__(name, None, params, signature, "", pure=False)

    def infer_call(self, call: Call) -> StructInfo | None:
        """What ``sinfo_args`` state, else what FInferStructInfo says; OpError where neither is."""
        if self.infer is None and not call.sinfo_args:
            raise OpError(f"{self.name} has no FInferStructInfo; a call needs sinfo_args")
        return super().infer_call(call)

    def bind(self, call: Call) -> tuple[list[Any], dict[str, Any]]:
        """The rules of such an operator take the call."""
        return [call], {}


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Give the operator ``op_name`` an attribute; an operator that is not there is made.

    These have a meaning; any other is kept for ``Op.get_attr``:

    - ``FInferStructInfo(call, builder)`` gives the struct info of a call,
    - ``FLegalize(builder, call)`` an expression of other operators in its place,
    - ``FPurity`` is whether calls have no effects,
    - ``FNormalize(builder, call)`` gives the call that is to stand in its place in A-normal form,
      the very same object where that is ``call``,
    - ``FPrimalGradient(var, call, gradient, builder)`` the gradients of its operands.

    The first three are those of a program's own operators: UnsupportedError for one of this
    package. A higher ``level`` wins over a lower one; TVMError where the attribute was given with
    the same. Without ``value`` this is a decorator of it.
    """

    def give(value: Any) -> Any:
        try:
            op = Op.get(op_name)
        except TVMError:
            op = register(DeclaredOp(op_name))
        op.set_attr(attr_key, value, level)
        return value

    if value is None:
        return give
    give(value)
    return None


def set_attr(op: Op[...], name: str, value: Any, plevel: int) -> None:
    """``Op.set_attr``; see :func:`register_op_attr`."""
    if name in _OWN and not isinstance(op, DeclaredOp):
        raise UnsupportedError(
            f"{op.name} is an operator of relax2xla, whose {name} cannot be changed; LegalizeOps "
            "takes lowerings of your own (customize_legalize_map)"
        )
    if name in op.attributes:
        before = op.attributes[name][0]
        if before == plevel:
            raise TVMError(
                f"{op.name} has the attribute {name} already, with level {plevel}; give a higher "
                "level, or take it back with reset_attr"
            )
        if before > plevel:
            return
    elif name in _FIELDS:
        _BEFORE[op.name, name] = getattr(op, _FIELDS[name])
    op.attributes[name] = plevel, value
    if name in _FIELDS:
        setattr(op, _FIELDS[name], _WRAPPERS.get(name, _same)(value))


def reset_attr(op: Op[...], name: str) -> None:
    """``Op.reset_attr``."""
    if op.attributes.pop(name, None) is not None and name in _FIELDS:
        setattr(op, _FIELDS[name], _BEFORE.pop((op.name, name)))


# What fields were before an attribute was registered.
_BEFORE: Final[dict[tuple[str, str], Any]] = {}


def _same(value: Any) -> Any:
    return value


def _infer(rule: Callable[[Call, BlockBuilder], StructInfo]) -> Callable[[Call], StructInfo]:
    def infer(call: Call) -> StructInfo:
        made: object = rule(call, BlockBuilder())
        if not isinstance(made, StructInfo):
            raise OpError(
                f"the FInferStructInfo of {call.op!r} must give a StructInfo; got {made!r}"
            )
        return made

    return infer


def _lowering(rule: Callable[[BlockBuilder, Call], Expr]) -> Callable[[Call], Expr]:
    def lower(call: Call) -> Expr:
        builder = BlockBuilder()
        builder.begin_scope([])
        made = builder.as_operand(rule(builder, call))
        blocks = builder.end_scope()
        return SeqExpr(blocks, made) if blocks else made

    return lower


def _normal(
    rule: Callable[[BlockBuilder, Call], Expr],
) -> Callable[[BlockBuilder | None, Call], Expr]:
    return lambda builder, call: rule(BlockBuilder() if builder is None else builder, call)


_WRAPPERS: Final[dict[str, Callable[[Any], Any]]] = {
    "FInferStructInfo": _infer,
    "FLegalize": _lowering,
    "FNormalize": _normal,
    "FPurity": bool,
}
