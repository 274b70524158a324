"""Sequences and optionals of the machine, and loops that it runs itself, iteration by iteration.

What XLA cannot hold as a value (a list of tensors, a value that may not be there) is an object of
the function (``R.sequence``). A loop that carries such a value, or tensors whose shape changes, is
a local function that calls itself last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onnx import TensorProto, TypeProto

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.known_values import scalar
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.loops import NotInvariant
from relax2xla.ir import (
    Call,
    Expr,
    FuncStructInfo,
    Function,
    If,
    ObjectStructInfo,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.tir import Dim

TEXT = "string"
# Before the dtype of its values, for a map.
MAP = "map of "
# The rank of the tensors of a sequence that has none yet.
NO_RANK = -2


@dataclass(frozen=True, slots=True)
class Kind:
    """What an object holds: a tensor, or a sequence of such; ``optional``: or nothing.

    ``dtype``: of the tensors, ``TEXT`` for strings, ``MAP`` for maps, "" where it is not known;
    ``ndim``: their rank, -1 where it is not known, ``NO_RANK`` where there are none.
    """

    sequence: bool = False
    optional: bool = False
    dtype: str = ""
    ndim: int = -1

    @staticmethod
    def of(proto: TypeProto, what: str) -> Kind:
        """The kind of a declared type. ``Unsupported`` for nested sequences."""
        sequence = optional = False
        inner = proto
        if inner.WhichOneof("value") == "optional_type":
            inner, optional = inner.optional_type.elem_type, True
        if inner.WhichOneof("value") == "sequence_type":
            inner, sequence = inner.sequence_type.elem_type, True
        form = inner.WhichOneof("value")
        if form is None:
            return Kind(sequence, optional)
        if form == "map_type":
            values = Kind.of(inner.map_type.value_type, what)
            return Kind(sequence, optional, MAP + values.dtype)
        if form != "tensor_type":
            raise Unsupported(f"{what}: {form} in a sequence or optional")
        tensor = inner.tensor_type
        ndim = len(tensor.shape.dim) if tensor.HasField("shape") else -1
        if tensor.elem_type == TensorProto.UNDEFINED:
            return Kind(sequence, optional, "", ndim)
        if tensor.elem_type == TensorProto.STRING:
            return Kind(sequence, optional, TEXT, ndim)
        return Kind(sequence, optional, dtype_of_code(tensor.elem_type, what).name, ndim)

    def holding(self, x: Expr) -> Kind:
        """The kind of a sequence of this kind into which the tensor ``x`` is put."""
        own = tensor_kind(x)
        ndim = _rank(self.ndim, own.ndim) if self.dtype else own.ndim
        return replace(self, dtype=self.dtype or own.dtype, ndim=ndim)

    def known_by(self, declared: Kind) -> Kind:
        """With what another source says where this one says nothing."""
        return replace(
            self,
            optional=self.optional or declared.optional,
            dtype=self.dtype or declared.dtype,
            ndim=declared.ndim if self.ndim == -1 else self.ndim,
        )

    def joined(self, other: Kind) -> Kind:
        """What is true of a value that is of one of two kinds."""
        return Kind(
            self.sequence or other.sequence,
            self.optional or other.optional,
            self.dtype or other.dtype,
            _rank(self.ndim, other.ndim) if other.dtype else self.ndim,
        )


def _rank(a: int, b: int) -> int:
    """The rank of tensors of which some have the rank ``a`` and others ``b``."""
    if NO_RANK in (a, b):
        return max(a, b)
    return a if a == b else -1


def tensor_kind(x: Expr) -> Kind:
    """The kind of a tensor."""
    info = x.struct_info
    if isinstance(info, TensorStructInfo):
        return Kind(dtype=info.dtype, ndim=info.ndim)
    return Kind(dtype=TEXT)


def kind_of(ctx: Context, x: Expr) -> Kind:
    """What is known of a value."""
    found = ctx.kinds.get(x)
    if found is not None:
        return found
    if isinstance(x, Tuple):
        kind = Kind(sequence=True)
        for field in x.fields:
            kind = kind.holding(field)
        return kind
    return tensor_kind(x)


def held(ctx: Context, x: Expr, kind: Kind) -> Expr:
    """An object, bound, of this kind. It runs on the host, which a loop of XLA cannot."""
    if not ctx.host:
        raise Unsupported("a sequence, optional or string in the body of a loop of XLA")
    var = ctx.emit(x)
    ctx.kinds[var] = kind
    return var


def as_value(ctx: Context, x: Expr) -> Expr:
    """A bound value; a sequence of known length as an object."""
    if isinstance(x, Var):
        return x
    if not isinstance(x, Tuple):
        return ctx.emit(x)
    return held(ctx, R.sequence.construct(*x.fields), kind_of(ctx, x))


def tensor_from(ctx: Context, x: Expr, kind: Kind) -> Expr:
    """A tensor that an operator of ``R.sequence`` gives, with a shape that can be computed with."""
    if kind.dtype == TEXT:
        return held(ctx, x, Kind(dtype=TEXT, ndim=kind.ndim))
    if not ctx.host:
        raise Unsupported("a sequence or optional in the body of a loop of XLA")
    return ctx.pinned(x, [None] * kind.ndim) if kind.ndim > 0 else ctx.emit(x)


def typed(kind: Kind, what: str) -> tuple[str, int]:
    """``dtype`` and ``ndim`` as the operators take them."""
    if not kind.dtype or kind.dtype.startswith(MAP):
        raise Unsupported(f"{what} whose tensors have no declared dtype")
    return "" if kind.dtype == TEXT else kind.dtype, max(kind.ndim, -1)


# -- loops ---------------------------------------------------------------------------------------
Step = Callable[[Expr, Expr, Sequence[Expr]], tuple[Expr, Sequence[Expr], Sequence[Expr]]]


@dataclass(frozen=True, slots=True)
class Looped:
    """Values after a loop, the rows of its iterations as sequences, and what one row is."""

    last: list[Expr]
    rows: list[Expr]
    infos: list[StructInfo]


@dataclass(frozen=True, slots=True)
class Shaped:
    """A tensor that a loop carries; None stands for a size that changes."""

    dtype: str
    dims: tuple[Dim | None, ...]

    @property
    def open(self) -> TensorStructInfo:
        """The info of a parameter: sizes are checked, and bound, in the body."""
        ndim = len(self.dims)
        return TensorStructInfo(None if ndim else (), self.dtype, ndim=ndim if ndim else -1)

    def joined(self, other: Shaped) -> Shaped:
        """With the sizes that are the same in both."""
        pairs = zip(self.dims, other.dims, strict=True)
        return Shaped(self.dtype, tuple(a if a is not None and a == b else None for a, b in pairs))


Carried = Shaped | Kind


def _carried(ctx: Context, x: Expr) -> Carried:
    info = x.struct_info
    if isinstance(info, ObjectStructInfo):
        return kind_of(ctx, x)
    if not isinstance(info, TensorStructInfo) or info.ndim < 0:
        raise NotInvariant(f"the loop carries {info}")
    return Shaped(info.dtype, tuple(info.dims or [None] * info.ndim))


def _seen(ctx: Context, x: Expr, what: Carried) -> Expr:
    """A carried value as what it is known to be."""
    if isinstance(what, Shaped):
        return ctx.pinned(x, what.dims) if what.dims else x
    ctx.kinds[x] = what
    return x


def host_loop(
    ctx: Context,
    limit: Expr | None,
    going: Expr,
    starts: Sequence[Expr],
    declared: Sequence[Kind],
    rows: int,
    step: Step,
) -> Looped:
    """``while going and at < limit``, by the machine.

    step: from the number of the iteration, ``going`` and the values: whether it goes on, the new
        values and ``rows`` more
    declared: what the body says of its values, beyond what is known of them

    A value keeps its dtype and rank, else :class:`NotInvariant`.
    """
    values = [as_value(ctx, x) for x in starts]
    carried = [_carried(ctx, x) for x in values]
    carried = [
        c.known_by(d) if isinstance(c, Kind) else c for c, d in zip(carried, declared, strict=True)
    ]
    # Each round finds sizes that change, or that a kind was too narrow: both only grow.
    while True:
        undo = ctx.mark()
        loop = _Loop(ctx, limit, carried, rows, step)
        if loop.after == carried:
            break
        undo()
        carried = loop.after
    ctx.builder.emit_normalized(VarBinding(loop.self, loop.function))
    none = [ctx.emit(R.sequence.construct()) for _ in range(rows)]
    made = ctx.emit(Call(loop.self, [scalar(0, "int64"), going, *values, *none]))
    fields = [ctx.emit(TupleGetItem(made, i)) for i in range(len(values) + rows)]
    last = [_seen(ctx, x, c) for x, c in zip(fields, carried, strict=False)]
    stacks = fields[len(values) :]
    for x, info in zip(stacks, loop.row_infos, strict=True):
        ctx.kinds[x] = Kind(True).holding(Var("row", info))
    return Looped(last, stacks, loop.row_infos)


class _Loop:
    """The local function ``self`` of a loop. ``after``: what its body makes of what is carried;

    where this is not what it was called with, the function is of no use.
    """

    def __init__(
        self,
        ctx: Context,
        limit: Expr | None,
        carried: Sequence[Carried],
        rows: int,
        step: Step,
    ) -> None:
        builder = ctx.builder
        at, going = Var("step", TensorStructInfo((), "int64")), Var("going", FLAG)
        infos = [c.open if isinstance(c, Shaped) else ObjectStructInfo() for c in carried]
        values = [Var(f"carried_{i}", info) for i, info in enumerate(infos)]
        stacks = [Var(f"rows_{i}", ObjectStructInfo()) for i in range(rows)]
        params = [at, going, *values, *stacks]
        result = TupleStructInfo([p.struct_info for p in params[2:]])
        self.self = Var("loop", FuncStructInfo([p.struct_info for p in params], result))
        builder.begin_scope(params)
        try:
            flag = going if limit is None else R.logical_and(going, R.less(at, limit))
            flag = builder.emit(flag)
            builder.begin_scope()
            try:
                end = self._body(ctx, at, going, values, stacks, carried, step)
            finally:
                then = builder.end_scope()
            rest = Tuple([*values, *stacks])
            out = builder.emit(If(flag, SeqExpr(then, end), SeqExpr([], rest)))
        finally:
            blocks = builder.end_scope()
        self.function = Function(params, SeqExpr(blocks, out), result)

    def _body(
        self,
        ctx: Context,
        at: Expr,
        going: Expr,
        values: Sequence[Expr],
        stacks: Sequence[Expr],
        carried: Sequence[Carried],
        step: Step,
    ) -> Expr:
        seen = [_seen(ctx, p, c) for p, c in zip(values, carried, strict=True)]
        again, new, rows = step(at, going, seen)
        new = [as_value(ctx, x) for x in new]
        rows = [as_value(ctx, x) for x in rows]
        self.row_infos = [x.struct_info for x in rows]
        self.after = [_joined(c, _carried(ctx, x)) for c, x in zip(carried, new, strict=True)]
        grown = [R.sequence.insert(s, x, at) for s, x in zip(stacks, rows, strict=True)]
        following = R.add(at, scalar(1, "int64"))
        operands = [following, R.reshape(again, ()), *new, *grown]
        return ctx.emit(Call(self.self, [as_value(ctx, x) for x in operands]))


def _joined(before: Carried, after: Carried) -> Carried:
    if isinstance(before, Shaped) and isinstance(after, Shaped):
        if before.dtype == after.dtype and len(before.dims) == len(after.dims):
            return before.joined(after)
    elif isinstance(before, Kind) and isinstance(after, Kind):
        return before.joined(after)
    raise NotInvariant(f"the loop carries {before}, and its body gives {after}")


FLAG = TensorStructInfo((), "bool")


def stacked(ctx: Context, rows: Expr, info: StructInfo) -> Expr:
    """The rows of a loop along a new first axis, which may have the size 0."""
    if not isinstance(info, TensorStructInfo) or info.ndim < 0:
        raise Unsupported("a loop whose rows are strings, sequences, or of no known rank")
    known = [d if isinstance(d, int) else None for d in info.dims or [None] * info.ndim]
    empty = tuple(d or 0 for d in known)
    return ctx.pinned(R.sequence.stack(rows, empty, info.dtype), [None, *known])


def is_absent(ctx: Context, x: Expr) -> bool:
    """Whether ``x`` is known not to be there."""
    value = ctx.builder.lookup_binding(x) if isinstance(x, Var) else None
    return isinstance(value, Call) and value.op is R.null_value
