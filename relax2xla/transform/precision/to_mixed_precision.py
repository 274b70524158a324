"""ToMixedPrecision: products and convolutions in float16, in float32 what needs its range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from relax2xla import op
from relax2xla.analysis.variables import free_vars
from relax2xla.dpl.emit import Emitter, refitted, retyped
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.base import Attrs
from relax2xla.ir.normal import with_info
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.traits import (
    Broadcasting,
    Channelwise,
    Contraction,
    Fills,
    Joins,
    Normalises,
    Pads,
    Permutes,
    Pointwise,
    Reshapes,
    Stacks,
    Window,
)
from relax2xla.op.shared.checks import with_dtype
from relax2xla.stablehlo.table import TABLE
from relax2xla.transform.core import FunctionPass, PassContext, register

HALF: Final = "float16"
FULL: Final = "float32"
LARGEST: Final = float(np.finfo(HALF).max)
FOLLOWING: Final = (
    Pointwise,
    Broadcasting,
    Channelwise,
    Permutes,
    Reshapes,
    Joins,
    Stacks,
    Pads,
    Window,
    Fills,
    Normalises,
)
# Their traits say less than that they hold elements as they are, or normalise them.
ALSO_FOLLOWING: Final = frozenset(
    f"relax.{name}"
    for name in (
        "dynamic_strided_slice",
        "flip",
        "layout_transform",
        "nn.group_norm",
        "nn.instance_norm",
        "repeat",
        "split",
        "strided_slice",
        "take",
        "tile",
    )
)
Policy: TypeAlias = Literal["half", "follow", "keep"]
Dtypes: TypeAlias = "str | tuple[Dtypes, ...] | None"
"""The dtype of a tensor (None: any, or no tensor); of a tuple those of its fields."""


@register()
class ToMixedPrecision(FunctionPass):
    """Compute float32 dataflow blocks partly in float16.

    Products, convolutions and attention (``Contraction``) take float16 operands, give
    ``out_dtype`` and are stored in float16. What works element by element, moves or normalises
    elements does so in float16 where all operands are that, or constants in its range. All else,
    such as sums and softmax, and what leaves a block, stays float32. Values that only the former
    read are stored in float16. Results change by float16's rounding (about three digits) and its
    range (65504).

    ``out_dtype``: "float32" or "float16", in which products are summed up; ``fp16_input_names``:
    parameters that become float16 themselves. ``wrap_param(w)`` becomes ``w``.

    For GPUs and TPUs. XLA:CPU has no float16 products of its own and converts around them, so that
    programs become slower there.

    Measured: four layers 512x512 with relu on 16 rows, weights constants: 4.0, 4.9
    """

    def __init__(
        self, out_dtype: str = FULL, fp16_input_names: Sequence[str] | None = None
    ) -> None:
        if out_dtype not in (HALF, FULL):
            raise ValueError(f"out_dtype is {FULL!r} or {HALF!r}; got {out_dtype!r}")
        if isinstance(fp16_input_names, str):
            raise TypeError(f"fp16_input_names is a list of names; got {fp16_input_names!r}")
        self.out_dtype = out_dtype
        self.fp16_input_names = frozenset(fp16_input_names or ())

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Mixed(func, self.out_dtype, self.fp16_input_names).function()


def _policy(call: Call) -> Policy | None:
    """How a call is computed; None for calls of functions."""
    return _policy_of(call.op) if isinstance(call.op, Op) else None


@cache
def _policy_of(operator: Op[Any]) -> Policy:
    if operator.name in TABLE:
        return "keep"
    if operator.has(Contraction):
        return "half"
    follows = operator.name in ALSO_FOLLOWING or any(map(operator.has, FOLLOWING))
    return "follow" if follows else "keep"


# ---- dtypes of tensors and tuples of them
def _dtypes(info: StructInfo | None, dtype: str | None = None) -> Dtypes:
    """Those that ``info`` says, or ``dtype`` for all of its tensors."""
    if isinstance(info, TensorStructInfo):
        return dtype or info.dtype
    if isinstance(info, TupleStructInfo):
        return tuple(_dtypes(f, dtype) for f in info.fields)
    return None


def _wider(a: Dtypes, b: Dtypes) -> Dtypes:
    """What serves both."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(_wider(x, y) for x, y in zip(a, b, strict=True))
    return b if a is None or (a == HALF and b is not None) else a


def _cast(expr: Expr, to: Dtypes) -> Expr:
    """``expr``, float16 and float32 tensors in it in the dtypes ``to``; itself where they are."""
    info = expr.struct_info
    if isinstance(info, TensorStructInfo):
        other = isinstance(to, str) and info.dtype != to and info.dtype in (HALF, FULL)
        return _astype(expr, info, to) if other and to in (HALF, FULL) else expr
    if not isinstance(info, TupleStructInfo) or not isinstance(to, tuple):
        return expr
    known = expr.fields if isinstance(expr, Tuple) else None
    fields = [known[i] if known else TupleGetItem(expr, i) for i in range(len(info.fields))]
    new = [_cast(f, d) for f, d in zip(fields, to, strict=True)]
    return expr if all(a is b for a, b in zip(new, fields, strict=True)) else Tuple(new)


def _astype(expr: Expr, info: TensorStructInfo, to: str) -> Call:
    """``expr``, whose struct info is ``info``, in another dtype; without inference, which knows."""
    return Call(_ASTYPE, [expr], _TO[to], struct_info=with_dtype(info, to))


_ASTYPE: Final = Op.get("relax.astype")
_TO: Final = {to: Attrs({"dtype": to}) for to in (HALF, FULL)}


def _only_half(to: Dtypes) -> Dtypes:
    if isinstance(to, tuple):
        return tuple(map(_only_half, to))
    return HALF if to == HALF else None


def _is_full(arg: Expr) -> bool:
    """Whether an operand is a variable for a float32 tensor: most that do not fit are."""
    info = arg.struct_info_
    return isinstance(arg, Var) and type(info) is TensorStructInfo and info.dtype == FULL


def _has_floats(args: Iterable[Expr]) -> bool:
    """Whether tensors among ``args`` are float16 or float32."""
    return any(d in (HALF, FULL) for a in args for d in _leaves(_dtypes(a.struct_info)))


def _fits_half(args: Iterable[Expr]) -> bool:
    """Whether tensors among ``args`` are float16, or constants that it can hold."""
    for a in args:
        if isinstance(a, Tuple):
            if not _fits_half(a.fields):
                return False
        elif isinstance(a.struct_info, TensorStructInfo | TupleStructInfo):
            if a.struct_info == TupleStructInfo([]) or _dtypes(a.struct_info) == HALF:
                continue
            if not isinstance(a, Constant) or a.data.dtype.kind not in "fiu":
                return False
            if a.data.ndim == 0:
                if not abs(float(a.data)) <= LARGEST:
                    return False
            elif a.data.size and not float(np.abs(a.data.astype("float64")).max()) <= LARGEST:
                return False
    return True


def _wanted(func: Function) -> dict[Var, Dtypes]:
    """The dtypes in which the dataflow blocks of a function read its variables."""
    wanted: dict[Var, Dtypes] = {}
    fields: dict[Var, list[Dtypes]] = {}  # of tuples, by whoever reads a field

    def settle(whole: Var) -> None:
        if whole in fields:
            want(whole, tuple(fields.pop(whole)))

    def want(expr: Expr, to: Dtypes) -> None:
        if isinstance(expr, Var):
            wanted[expr] = _wider(wanted.get(expr), to)
        elif isinstance(expr, Tuple) and isinstance(to, tuple):
            for f, d in zip(expr.fields, to, strict=True):
                want(f, d)

    for v in free_vars(func.body.body):
        want(v, _dtypes(v.struct_info, FULL))
    for block in reversed(func.body.blocks):
        for b in reversed(block.bindings) if isinstance(block, DataflowBlock) else ():
            value = b.value
            settle(b.var)
            if isinstance(value, Call) and (policy := _policy(value)) is not None:
                for a in value.args:
                    want(a, _dtypes(a.struct_info_, HALF if policy == "half" else FULL))
            elif isinstance(value, Tuple):
                want(value, wanted.get(b.var))
            elif isinstance(value, TupleGetItem):
                whole, i = value.tuple_value, value.index
                info = whole.struct_info
                assert isinstance(info, TupleStructInfo)
                to = wanted.get(b.var)
                if not isinstance(whole, Var):
                    want(Tuple(list(whole)).fields[i], to)
                    continue
                if whole not in fields:
                    fields[whole] = [_none(f) for f in info.fields]
                fields[whole][i] = _wider(fields[whole][i], to)
            else:
                for v in free_vars(value):
                    want(v, _dtypes(v.struct_info, FULL))
    for whole in list(fields):
        settle(whole)
    return wanted


def _none(info: StructInfo) -> Dtypes:
    return tuple(map(_none, info.fields)) if isinstance(info, TupleStructInfo) else None


class _Mixed:
    """One function on its way.

    outer: what takes the place of variables everywhere; local: inside of the block at hand
    """

    def __init__(self, func: Function, out_dtype: str, half_names: frozenset[str]) -> None:
        self.func, self.out_dtype = func, out_dtype
        self.wanted = _wanted(func)
        self.outer = Rewriter()
        self.local: dict[Var, Expr] = {}
        self.emitter: Emitter | None = None
        self.span: Span | None = None
        self.halves: dict[Var, Var] = {}
        for p in func.params:
            info = p.struct_info
            if p.name_hint in half_names and isinstance(info, TensorStructInfo):
                ndim = info.ndim if info.shape is None else -1
                half = TensorStructInfo(info.shape, HALF, info.vdevice, ndim)
                self.halves[p] = Var(p.vid, half, p.span)

    def function(self) -> Function:
        func = self.func
        blocks: list[BindingBlock] = []
        outside = {v for b in func.body.blocks for v in self._read_outside(b)}
        outside.update(free_vars(func.body.body))
        full: list[Binding] = []
        for p, half in self.halves.items():
            if p in outside:
                var = self.outer.env[p] = Var(f"{p.name_hint}_full", p.struct_info, p.span)
                full.append(VarBinding(var, op.astype(half, FULL), p.span))
        if full:
            blocks.append(BindingBlock(full))
        for block in func.body.blocks:
            dataflow = isinstance(block, DataflowBlock)
            blocks.append(self._dataflow(block) if dataflow else self.outer.block(block))
        body = SeqExpr(blocks, self.outer.expr(func.body.body), func.body.span)
        params = [self.halves.get(p, p) for p in func.params]
        same = all(a is b for a, b in zip(blocks, func.body.blocks, strict=False))
        if same and not self.halves and body.body is func.body.body:
            return func
        return refitted(func.replace(params=params, body=body))

    def _read_outside(self, block: BindingBlock) -> set[Var]:
        if not self.halves or isinstance(block, DataflowBlock):
            return set()
        return {v for b in block.bindings for v in free_vars(b.value)}

    def _dataflow(self, block: DataflowBlock) -> BindingBlock:
        out: list[Binding] = []
        emitter = self.emitter = Emitter(out, True)
        self.local = {**self.outer.env, **self.halves}
        for p in self.func.params:
            self._stored(p, emitter)
        for b in block.bindings:
            start, self.span = len(out), b.span
            if isinstance(b, MatchCast):
                value = emitter.operand(self._as_was(b.value))
                same = value is b.value
                out.append(b if same else MatchCast(b.var, value, b.struct_info, b.span))
            else:
                value = emitter.flat(self._value(b), b.span)
                self._bind(b, value, emitter)
                if len(out) == start + 1 and out[-1].var is b.var and value is b.value:
                    out[-1] = b
            self._stored(b.var, emitter)
        same = len(out) == len(block.bindings)
        if same and all(a is b for a, b in zip(out, block.bindings, strict=True)):
            return block
        return DataflowBlock(out, block.span)

    def _bind(self, b: Binding, value: Expr, emitter: Emitter) -> None:
        if value is b.value and b.var.struct_info_ is value.struct_info_:
            emitter.out.append(b)
            emitter.note(b.var, value)
            return
        renamed: dict[Var, Var] = {}
        var = retyped(b.var, with_info(value), renamed)
        self.local.update(renamed)
        if not isinstance(var, DataflowVar):
            self.outer.env.update(renamed)
        emitter.out.append(VarBinding(var, value, b.span))
        emitter.note(var, value)

    def _stored(self, var: Var, emitter: Emitter) -> None:
        """Hold ``var`` in float16, if whatever reads it in this block wants that."""
        wanted = self.wanted.get(var)
        if wanted is None or wanted == FULL:
            return
        now = self._now(var)
        half = _cast(now, _only_half(wanted))
        if half is not now:
            self.local[var] = emitter.operand(half, var.span)

    def _now(self, expr: Expr) -> Expr:
        """``expr`` over what takes the place of variables here."""
        if isinstance(expr, Var):
            return self.local.get(expr, expr)
        if isinstance(expr, Tuple):
            new = [self._now(f) for f in expr.fields]
            same = all(a is b for a, b in zip(new, expr.fields, strict=True))
            return expr if same else Tuple(new, expr.span)
        return expr

    def _as_was(self, expr: Expr) -> Expr:
        """``expr`` over what takes the place of variables, in the dtypes that it had."""
        now = self._now(expr)
        return now if now is expr else _cast(now, _dtypes(expr.struct_info))

    def _value(self, b: Binding) -> Expr:
        """What takes the place of the value of ``b``."""
        value = b.value
        if isinstance(value, Call):
            policy = _policy(value)
            made = self._call(value, policy)
            if isinstance(b.var, DataflowVar) and policy == "half":
                return _cast(made, _dtypes(made.struct_info, HALF))
        elif isinstance(value, TupleGetItem):
            whole = self._now(value.tuple_value)
            made = value if whole is value.tuple_value else TupleGetItem(whole, value.index)
        elif isinstance(value, Tuple):
            made = self._now(value)
        elif isinstance(value, Var):
            return self._as_was(value)
        else:
            reads = {v: self._now(v) for v in free_vars(value)}
            changed = {v: self._as_was(v) for v, now in reads.items() if now is not v}
            return Rewriter(values=changed).expr(value) if changed else value
        return made if isinstance(b.var, DataflowVar) else _cast(made, _dtypes(b.var.struct_info))

    def _call(self, call: Call, policy: Policy | None) -> Expr:
        if isinstance(call.op, Op) and call.op.name == "relax.wrap_param":
            return self._now(call.args[0])
        if policy == "half":
            attrs = dict(call_attrs(call))
            if "out_dtype" in attrs:
                attrs["out_dtype"] = self.out_dtype
            return self._in(HALF, call, attrs)
        if policy == "follow":
            now = [self._now(a) for a in call.args]
            if not any(map(_is_full, now)) and _has_floats(now) and _fits_half(now):
                assert self.emitter is not None
                start = len(self.emitter.out)
                try:
                    return self._in(HALF, call, call.attrs)
                except TVMError:
                    self.emitter.drop(start)  # it takes no float16
        args = [self._as_was(a) for a in call.args]
        if all(a is b for a, b in zip(args, call.args, strict=True)):
            return call
        return Call(call.op, args, call.attrs, call.sinfo_args, call.span)

    def _in(self, dtype: str, call: Call, attrs: Mapping[str, Any]) -> Expr:
        args = [self._now(a) for a in call.args]
        args = [self._bound(_cast(a, _dtypes(a.struct_info, dtype))) for a in args]
        return with_info(Call(call.op, args, attrs, call.sinfo_args, call.span))

    def _bound(self, expr: Expr) -> Expr:
        """``expr``, a cast bound to a variable."""
        assert self.emitter is not None
        return self.emitter.operand(expr, self.span) if isinstance(expr, Call) else expr


def _leaves(to: Dtypes) -> list[str]:
    if isinstance(to, tuple):
        return [d for part in to for d in _leaves(part)]
    return [] if to is None else [to]
