"""Which numbers of a vector are known at import, where others are computed when the model runs.

Exporters put shapes together of both (``Concat(n, [2, 3])``): what is known stays so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla.builder import BlockBuilder
from relax2xla.importers.onnx.engine.known_values import Array
from relax2xla.ir import Call, Constant, Expr, Op, ShapeExpr, TensorStructInfo, Tuple, Var
from relax2xla.ir.traits import Reshapes

# Values of a vector that are looked at, and operators between it and its sources.
COUNT = 64
DEPTH = 32

# On one known number each; what is not listed is not known.
_ONE: dict[str, Callable[..., Any]] = {
    "relax.add": operator.add,
    "relax.subtract": operator.sub,
    "relax.multiply": operator.mul,
    "relax.maximum": max,
    "relax.minimum": min,
    "relax.equal": operator.eq,
    "relax.less": operator.lt,
    "relax.less_equal": operator.le,
    "relax.greater": operator.gt,
    "relax.logical_and": lambda a, b: bool(a and b),
    "relax.logical_or": lambda a, b: bool(a or b),
    "relax.logical_not": operator.not_,
}


def items_of(builder: BlockBuilder, x: Expr) -> list[int | None]:
    """The integers of a small vector, None for those that are not known."""
    found = _items(builder, x, DEPTH)
    if found is None:
        return []
    return [v if type(v) is int else None for v in found.reshape(-1).tolist()]


def _items(builder: BlockBuilder, x: Expr, depth: int) -> Array | None:
    """An array of dtype object: integers, truth values, None; nothing for a large tensor."""
    info = x.struct_info_
    if not isinstance(info, TensorStructInfo) or info.dims is None or not depth:
        return None
    shape = tuple(d for d in info.dims if isinstance(d, int))
    if len(shape) != info.ndim or int(np.prod(shape)) > COUNT:
        return None
    made = None
    if isinstance(x, Constant):
        made = x.data.astype(object) if x.data.dtype.kind in "iub" else None
    elif isinstance(x, Var):
        value = builder.lookup_binding(x)
        made = None if value is None else _items(builder, value, depth - 1)
    elif isinstance(x, Call) and isinstance(x.op, Op):
        made = _called(builder, x, shape, depth)
    unknown = np.full(shape, None, object)
    return unknown if made is None or made.shape != shape else made


def _called(builder: BlockBuilder, call: Call, shape: tuple[int, ...], depth: int) -> Array | None:
    assert isinstance(call.op, Op)
    name = call.op.name
    if name == "relax.shape_to_tensor" and isinstance(call.args[0], ShapeExpr):
        return np.array([d if isinstance(d, int) else None for d in call.args[0].values], object)
    operands = call.args
    if name == "relax.concat" and isinstance(operands[0], Tuple):
        parts = [_items(builder, f, depth - 1) for f in operands[0].fields]
        known = [p for p in parts if p is not None and p.ndim == 1]
        return np.concatenate(known) if len(known) == len(parts) else None
    if call.op.has(Reshapes):
        made = _items(builder, operands[0], depth - 1)
        return None if made is None or made.size != np.prod(shape) else made.reshape(shape)
    if name == "relax.astype":
        made = _items(builder, operands[0], depth - 1)
        return made if call.attrs["dtype"] == "int64" else None
    rule = _where if name == "relax.where" else _ONE.get(name)
    if rule is None:
        return None
    values = [_items(builder, a, depth - 1) for a in operands]
    known = [v for v in values if v is not None]
    return _each(rule, known) if len(known) == len(values) else None


def _each(rule: Callable[..., Any], values: Sequence[Array]) -> Array:
    def one(*given: Any) -> Any:
        if rule is not _where and any(v is None for v in given):
            return None
        return rule(*given)

    return np.asarray(np.frompyfunc(one, len(values), 1)(*values), object)


def _where(condition: Any, a: Any, b: Any) -> Any:
    if condition is None:
        return a if a == b else None
    return a if condition else b
