"""Several sizes of a dimension in one program: arguments are padded, results cut back.

That is right only where nothing of a result reads the padded part, so :func:`seen` has to prove it:
every operator must treat the axes of that dimension as a batch, each position by itself, as its
trait says. The analysis is small and refuses what it does not know. Padding repeats the last
element, so a padded position meets no value (such as a division by zero) that the others do not
meet as well.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.ir import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    Function,
    MatchCast,
    Op,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.ir.traits import (
    AlongAxis,
    Broadcasting,
    Channelwise,
    Convolution,
    Einsum,
    Fills,
    Joins,
    MatMul,
    Normalises,
    Permutes,
    Pointwise,
    Reduction,
    Reshapes,
    Stacks,
    Takes,
    Trait,
    Window,
    axes_of,
)
from relax2xla.vm.pjrt import xla

Attributes = Mapping[str, Any]
# The axes of a value that have the padded dimension.
Axes = frozenset[int]
# Why an operator may show padding, None where it cannot: the call, what its trait says, its
# attributes, axes by operand.
Rule = Callable[[Call, Any, Attributes, Sequence[Axes]], str | None]


class _Unknown(Exception):
    """A value whose padded axes cannot be told."""


def seen(
    func: Function,
    dim: tir.Var,
    apart: Callable[[Call, Sequence[Axes]], bool] = lambda call, operands: False,
) -> str | None:
    """Why padding along ``dim`` could be seen in the result of ``func``; None: it cannot.

    ``apart``: of calls, with the padded axes of their operands, whether they are known to keep the
    positions apart, whatever their traits say.
    """
    try:
        for p in func.params:
            _axes(p.struct_info, dim)
        for b in bindings_of(func.body):
            if isinstance(b, MatchCast):
                return f"R.match_cast of {b.var.name_hint} looks at the size"
            reason = _value(b.value, dim, apart)
            if reason is not None:
                return f"{reason} (`{b.var.name_hint}`)"
            _axes(b.var.struct_info, dim)
        return _operand(func.body.body, dim)
    except _Unknown as e:
        return str(e)


def _axes(info: StructInfo, dim: tir.Var) -> Axes:
    """Where ``dim`` is among the axes of a tensor; of other values nowhere."""
    if isinstance(info, TupleStructInfo):
        for f in info.fields:
            _axes(f, dim)
        return frozenset()
    if not isinstance(info, TensorStructInfo):
        if dim in _free(info):
            raise _Unknown(f"{show(info)} is a value that depends on {dim}")
        return frozenset()
    if info.dims is None:
        raise _Unknown(f"the shape of a value is not known ({show(info)})")
    for d in info.dims:
        if d is not dim and isinstance(d, tir.PrimExpr) and dim in tir.free_vars(d):
            raise _Unknown(f"a dimension is {d}, not {dim} itself")
    return frozenset(i for i, d in enumerate(info.dims) if d is dim)


def _free(info: StructInfo) -> set[tir.Var]:
    return set(free_symbolic_vars(info))


def _operand(value: Expr, dim: tir.Var) -> str | None:
    """Why a value that is used as it is may show the padded size."""
    if isinstance(value, Tuple):
        return next((r for f in value.fields if (r := _operand(f, dim)) is not None), None)
    if isinstance(value, ShapeExpr):
        used = any(isinstance(d, tir.PrimExpr) and dim in tir.free_vars(d) for d in value.values)
        return f"a shape with {dim} is a value" if used else None
    if isinstance(value, PrimValue):
        return f"a number with {dim} is a value" if dim in tir.free_vars(value.value) else None
    if isinstance(value, TupleGetItem):
        return _operand(value.tuple_value, dim)
    if isinstance(value, Var | Constant | StringImm | DataTypeImm):
        return None
    return f"{type(value).__name__} is not analysed"


def _value(value: Expr, dim: tir.Var, apart: Callable[[Call, Sequence[Axes]], bool]) -> str | None:
    if not isinstance(value, Call):
        return _operand(value, dim)
    if apart(value, [_axes_of(a, dim) for a in value.args]):
        return None
    traits = value.op.traits if isinstance(value.op, Op) else ()
    trait = next((t for t in traits if type(t) in RULES), None)
    if not isinstance(value.op, Op) or trait is None:
        name = value.op.name if isinstance(value.op, Op) else "a call of a function"
        return f"{name} is not known to keep the positions of {dim} apart"
    attrs = call_attrs(value)
    if any(_mentions(v, dim) for v in attrs.values()):
        return f"{value.op.name} has {dim} in an attribute"
    for a in value.args:
        # Shapes say what a result looks like; the rule compares that.
        reason = None if isinstance(a, ShapeExpr) else _operand(a, dim)
        if reason is not None:
            return f"{value.op.name}: {reason}"
    args = value.args
    if value.op.has(Einsum) and isinstance(args[0], Tuple):
        args = args[0].fields
    operands = [_axes_of(a, dim) for a in args]
    reason = RULES[type(trait)](value, trait, attrs, operands)
    return None if reason is None else f"{value.op.name} {reason}"


def _axes_of(value: Expr, dim: tir.Var) -> Axes:
    if isinstance(value, ShapeExpr | PrimValue | StringImm | DataTypeImm):
        return frozenset()
    info = value.struct_info
    if isinstance(info, TupleStructInfo):
        # Concatenated or stacked: all fields have the same rank.
        return frozenset().union(*(_axes(f, dim) for f in info.fields))
    return _axes(info, dim)


def _mentions(value: Any, dim: tir.Var) -> bool:
    if isinstance(value, tir.PrimExpr):
        return dim in tir.free_vars(value)
    if isinstance(value, tuple | list):
        return any(_mentions(v, dim) for v in value)
    return False


# ---- rules
def _free_pass(call: Call, trait: Trait, attrs: Attributes, operands: Sequence[Axes]) -> None:
    """Position by position."""


def _rank(value: Expr) -> int:
    info = value.struct_info
    if isinstance(info, TupleStructInfo) and info.fields:
        info = info.fields[0]
    return info.ndim if isinstance(info, TensorStructInfo) else -1


def _works_along(call: Call, axes: Any, operands: Sequence[Axes]) -> str | None:
    """Why the first operand may not be padded; ``axes``: None means all."""
    if axes is None:
        return "works along all axes" if operands[0] else None
    padded = operands[0] & {*axes_of(axes, _rank(call.args[0]))}
    return "works along the padded axis" if padded else None


def _along(
    call: Call, trait: AlongAxis | Reduction, attrs: Attributes, operands: Sequence[Axes]
) -> str | None:
    return _works_along(call, attrs[trait.axis], operands)


def _matmul(call: Call, trait: Trait, attrs: Attributes, operands: Sequence[Axes]) -> str | None:
    left, right = (_rank(a) for a in call.args[:2])
    inner = (left - 1 in operands[0]) or (max(right - 2, 0) in operands[1])
    return "sums over the padded axis" if inner else None


def _take(call: Call, trait: Takes, attrs: Attributes, operands: Sequence[Axes]) -> str | None:
    found = _works_along(call, attrs[trait.axis], operands)
    return "looks up in the padded axis" if found else None


def _reshape(call: Call, trait: Trait, attrs: Attributes, operands: Sequence[Axes]) -> str | None:
    old, new = call.args[0].struct_info, call.struct_info
    assert isinstance(old, TensorStructInfo)
    assert isinstance(new, TensorStructInfo)
    if old.dims is None or new.dims is None:
        return "moves the padded axis"
    if not operands[0]:
        fresh = any(not isinstance(d, int) and all(d is not o for o in old.dims) for d in new.dims)
        return "makes the padded axis of others" if fresh else None
    for at in operands[0]:
        places = [i for i, d in enumerate(new.dims) if d is old.dims[at]]
        if not any(_same_product(old.dims[:at], new.dims[:i]) for i in places):
            return "moves the padded axis"
    return None


def _einsum(call: Call, trait: Trait, attrs: Attributes, operands: Sequence[Axes]) -> str | None:
    inputs, arrow, output = str(attrs["subscripts"]).replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not any(operands):
        return None
    if not arrow or "." in inputs or len(terms) != len(operands):
        return "does not say its result's axes one by one"
    padded = {t[i] for t, axes in zip(terms, operands, strict=True) for i in axes}
    if not padded <= set(output):
        return "sums over the padded axis"
    if any(len(set(t)) != len(t) for t in (*terms, output)):
        return "takes a diagonal"
    return None


def _same_product(a: Sequence[Any], b: Sequence[Any]) -> bool:
    a, b = ([d for d in dims if d != 1] for dims in (a, b))
    if all(isinstance(d, int) for d in (*a, *b)):
        return math.prod(a) == math.prod(b)
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b, strict=True))


def _norm(call: Call, trait: Normalises, attrs: Attributes, operands: Sequence[Axes]) -> str | None:
    if any(operands[1:]):
        return "has the padded dimension in its weights"
    return _works_along(call, attrs[trait.axes], operands)


def _window(call: Call, trait: Window, attrs: Attributes, operands: Sequence[Axes]) -> str | None:
    """The padded axis may be the batch alone, which weights do not have."""
    batch = {re.sub(r"\d", "", str(attrs.get(trait.layout))).find("N")}
    images = operands[:1] if isinstance(trait, Convolution) else operands
    weights = operands[len(images) :]
    return "works along the padded axis" if any(weights) or any(a - batch for a in images) else None


RULES: Final[dict[type[Trait], Rule]] = {
    **dict.fromkeys((Pointwise, Broadcasting, Channelwise, Fills, Permutes, Stacks), _free_pass),
    **dict.fromkeys((Reduction, AlongAxis, Joins), _along),
    **dict.fromkeys((Window, Convolution), _window),
    Normalises: _norm,
    MatMul: _matmul,
    Einsum: _einsum,
    Takes: _take,
    Reshapes: _reshape,
}


# ---- calls
class Bucketed:
    """A function whose arguments are padded to the next of some sizes, and its results cut back.

    ``buckets``: ascending sizes by dimension. A size above the last, and zero, is taken as it is.
    """

    def __init__(self, function: Any, buckets: Mapping[tir.Var, Sequence[int]]) -> None:
        self.name = function.name
        self._function, self._buckets = function, dict(buckets)
        self._params = [leaf for p in function.params for leaf in flatten_info(p.struct_info)]
        self._result: StructInfo = function.entry.func.ret_struct_info

    def named(self, args: Sequence[Any]) -> Any:
        """The program for the sizes that ``args`` are padded to, with the source's names."""
        return self._function.named(self._padded(args)[0])

    def __call__(self, /, *args: Any) -> Any:
        """Run with padded arguments; the results have the sizes that the arguments ask for."""
        padded, sizes = self._padded(self._function.placed(args, {}))
        result = self._function(*padded)
        return cut(result, self._result, sizes, self._function.device) if sizes else result

    def _padded(self, args: Sequence[Any]) -> tuple[list[Any], dict[tir.Var, int]]:
        """The arguments padded, and the true sizes of the dimensions that this changed."""
        sizes: dict[tir.Var, int] = {}
        for p, a in zip(self._function.params, args, strict=True):
            _read(p.struct_info, a, self._buckets, sizes)
        wanted: dict[tir.Var, int] = {}
        for dim, size in sizes.items():
            known = self._buckets[dim]
            at = bisect.bisect_left(known, size)
            if size > 0 and at < len(known) and known[at] != size:
                wanted[dim] = known[at]
        made = [
            padded(p.struct_info, a, wanted, self._function.device)
            for p, a in zip(self._function.params, args, strict=True)
        ]
        return made, {d: sizes[d] for d in wanted}


def cut(value: Any, info: StructInfo, sizes: Mapping[tir.Var, int], device: Any) -> Any:
    """A result of the declared ``info`` with the true ``sizes`` of dimensions."""
    if isinstance(info, TupleStructInfo):
        return tuple(cut(v, f, sizes, device) for v, f in zip(value, info.fields, strict=True))
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return value
    cuts = tuple(slice(sizes[d]) if d in sizes else slice(None) for d in _vars(info.dims))
    if all(c == slice(None) for c in cuts):
        return value
    return xla.device_put(np.ascontiguousarray(np.asarray(value)[cuts]), device)


def _vars(dims: Sequence[Any]) -> list[Any]:
    return [d if isinstance(d, tir.Var) else None for d in dims]


def _read(
    info: StructInfo, value: Any, wanted: Mapping[tir.Var, Any], sizes: dict[tir.Var, int]
) -> None:
    if isinstance(info, TupleStructInfo):
        for f, v in zip(info.fields, value, strict=True):
            _read(f, v, wanted, sizes)
    elif isinstance(info, TensorStructInfo) and info.dims is not None:
        for d, size in zip(_vars(info.dims), value.shape, strict=True):
            if d in wanted:
                sizes[d] = size


def padded(info: StructInfo, value: Any, wanted: Mapping[tir.Var, int], device: Any) -> Any:
    """An argument for a parameter of ``info``, with dimensions of the ``wanted`` sizes."""
    if isinstance(info, TupleStructInfo):
        return tuple(padded(f, v, wanted, device) for f, v in zip(info.fields, value, strict=True))
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return value
    dims = _vars(info.dims)
    if not any(d in wanted for d in dims):
        return value
    host = np.asarray(value)
    for axis, d in enumerate(dims):
        if d in wanted:
            last = host.take([-1], axis=axis)
            host = np.concatenate(
                [host, np.repeat(last, wanted[d] - host.shape[axis], axis=axis)], axis=axis
            )
    return xla.device_put(np.ascontiguousarray(host), device, copy=False)
