"""Rows over symbolic dimensions become StableHLO's dynamic operations (design decision D7).

A lowering over symbolic dimensions builds the rows that it always builds; where a row's result or
attribute holds a symbolic dimension, StableHLO wants it as the value of an operand. This pass puts
the dynamic operation in the row's place by the table ``RULES``, and computes the operands at the
head of the function: a symbolic variable is the size of the first dimension of a parameter that
defines it, all else is integer arithmetic. What has no rule states its type with ``?``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import LegalizeError, TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    Op,
    PrimStructInfo,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import (
    Mismatch,
    SymMap,
    definable_vars,
    erase,
    free_symbolic_vars,
    map_dims,
    unify,
)
from relax2xla.ir.rewrite import Rewriter, bindings_deep, bindings_of, holders_deep, joined
from relax2xla.ir.struct_info import show
from relax2xla.op.shared.checks import same_dim
from relax2xla.op.shared.lowering import hlo
from relax2xla.tir import Dim
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.lower.dimension_values import (
    INDEX,
    SCALAR,
    Scope,
    Sizes,
    Sources,
    is_open,
    symbolic_dim,
)


# ---- before lowering
def is_symbolic(func: Function) -> bool:
    """Whether shapes of parameters or of values are not known, so ``func`` serves several."""
    if any(is_open(p.struct_info) for p in func.params):
        return True
    return any(
        isinstance(b, MatchCast) and bool(free_symbolic_vars(b.struct_info))
        for node in holders_deep(func.body)
        if isinstance(node, SeqExpr)
        for b in bindings_of(node)
    )


def computes_sizes(func: Function) -> bool:
    """Whether ``func`` names sizes, or a number, that are computed while it runs.

    The machine knows them before it compiles what follows.
    """
    return any(
        isinstance(b, MatchCast)
        and isinstance(b.struct_info, ShapeStructInfo | PrimStructInfo)
        and not _is_known(b.value.struct_info_)
        for b in bindings_deep(func)
    )


def _is_known(info: StructInfo | None) -> bool:
    match info:
        case ShapeStructInfo():
            return info.values is not None
        case PrimStructInfo():
            return info.value is not None
        case _:
            return False


def name_dimensions(func: Function) -> Function:
    """``func`` with a symbolic variable for each dimension that a parameter leaves unknown.

    Variables that an ``R.match_cast`` defines are replaced by what they are equal to.
    """
    params = {p: Var(p.vid, _named(p.struct_info, p.name_hint), p.span) for p in func.params}
    changed: dict[Var, Expr] = {
        p: new for p, new in params.items() if new.struct_info_ is not p.struct_info_
    }
    named = [params[p] if p in changed else p for p in func.params]
    return _Namer(named, changed).function(func.replace(params=named))


def _named(info: StructInfo, name: str) -> StructInfo:
    if isinstance(info, TupleStructInfo):
        fields = [_named(f, f"{name}_{i}") for i, f in enumerate(info.fields)]
        same = all(a is b for a, b in zip(fields, info.fields, strict=True))
        return info if same else TupleStructInfo(fields)
    if isinstance(info, TensorStructInfo) and info.dims is None and info.ndim >= 0:
        dims = tuple(tir.Var(f"{name}_{i}") for i in range(info.ndim))
        return TensorStructInfo(dims, info.dtype, info.vdevice)
    return info


class _Namer(Rewriter):
    """A Rewriter for which every match_cast binds the symbolic variables that it names."""

    def __init__(self, params: Sequence[Var], values: Mapping[Var, Expr]) -> None:
        super().__init__(values=values)
        self.defined = {v for p in params for v in free_symbolic_vars(p.struct_info)}

    def binding(self, b: Binding) -> Binding:
        if isinstance(b, MatchCast):
            found: SymMap = {v: v for v in self.defined}
            value = self.expr(b.value)
            # Where the value does not fit, the legaliser says so.
            with contextlib.suppress(Mismatch):
                unify(self.info(b.struct_info), value.struct_info, found)
            new = {v: d for v, d in found.items() if v not in self.defined}
            if new.keys() - self.symbolic.keys():
                self.symbolic.update(new)
                self._infos.clear()
        return super().binding(b)


# ---- after lowering
@register(needed=True)
class DynamicRows(Pass):
    """Put StableHLO's dynamic operations where a module of rows has symbolic dimensions.

    ``sources``: of functions, the parameters whose values are symbolic variables. A function whose
    sizes the machine computes (a ``match_cast`` of a shape that is not known) stays as it is: the
    machine knows them before it compiles what follows. Raises :class:`LegalizeError` for a row that
    has no dynamic form, and for a symbolic variable that no parameter defines.
    """

    def __init__(self, sources: Mapping[GlobalVar, Sources] | None = None) -> None:
        self.sources = dict(sources or {})

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            if computes_sizes(func):
                continue
            with in_function(gvar):
                new[gvar] = _dynamic(func, new, self.sources.get(gvar, {}))
        return mod.replace(new)


def _dynamic(func: Function, callees: Mapping[GlobalVar, Any], sources: Sources) -> Function:
    sizes = Sizes(func.params, sources)
    body = Writer(sizes, callees).seq(func.body)
    blocks = [BindingBlock(sizes.bindings), *body.blocks] if sizes.bindings else body.blocks
    func = func.replace(body=SeqExpr(joined(blocks), body.body, body.span))
    return func.with_attr("relax.force_pure", True) if sizes.asserts and func.is_pure else func


@contextlib.contextmanager
def in_function(gvar: GlobalVar) -> Generator[None, None, None]:
    """Name the function in a note on errors."""
    try:
        yield
    except TVMError as e:
        e.add_note(f"  in the function {gvar.name_hint}")
        raise


# ---- the table
Bind = Callable[[str, Expr], Expr]
Rule = Callable[[Call, TensorStructInfo, Sizes, Bind], Call | None]


def _shape_operand(name: str) -> Rule:
    """The row NAME takes the shape of its result as its last operand."""

    def rule(call: Call, info: TensorStructInfo, sizes: Sizes, bind: Bind) -> Call | None:
        if info.dims is None or not any(map(symbolic_dim, info.dims)):
            return None
        return hlo(name, *call.args, sizes.vector(info.dims), out=info, **call.attrs)

    return rule


def _attr_operands(name: str, *moved: str) -> Rule:
    """The attributes ``moved`` become operands, in this order, where one holds symbols."""

    def rule(call: Call, info: TensorStructInfo, sizes: Sizes, bind: Bind) -> Call | None:
        if not any(symbolic_dim(v) for m in moved for v in call.attrs[m]):
            return None
        rest = {k: v for k, v in call.attrs.items() if k not in moved}
        vectors = [sizes.vector(call.attrs[m]) for m in moved]
        return hlo(name, *call.args, *vectors, out=info, **rest)

    return rule


def _dynamic_slice(call: Call, info: TensorStructInfo, sizes: Sizes, bind: Bind) -> Call | None:
    """``dynamic_slice`` of symbolic sizes: ``real_dynamic_slice`` from clamped starts."""
    lengths = call.attrs["slice_sizes"]
    if not any(map(symbolic_dim, lengths)):
        return None
    operand, *starts = call.args
    shape = operand.struct_info
    if not isinstance(shape, TensorStructInfo) or shape.dims is None:
        raise LegalizeError(f"a slice of {show(shape)}, whose shape is unknown")
    one = TensorStructInfo.make((1,), INDEX)
    wide = [bind("start", hlo("convert", s, out=SCALAR)) for s in starts]
    flat = [bind("start", hlo("reshape", s, out=one)) for s in wide]
    start = bind("starts", hlo("concatenate", *flat, dimension=0)) if len(flat) > 1 else flat[0]
    rank = len(flat)
    last = sizes.vector([_simple(d - n) for d, n in zip(shape.dims, lengths, strict=True)])
    start = bind("starts", hlo("clamp", sizes.vector([0] * rank), start, last))
    limit = bind("limits", hlo("add", start, sizes.vector(lengths)))
    return hlo("real_dynamic_slice", operand, start, limit, sizes.vector([1] * rank), out=info)


def _dynamic_conv(call: Call, info: TensorStructInfo, sizes: Sizes, bind: Bind) -> Call | None:
    padding = call.attrs.get("padding") or ()
    if not any(symbolic_dim(p) for pair in padding for p in pair):
        return None
    rest = {k: v for k, v in call.attrs.items() if k != "padding"}
    pairs = TensorStructInfo.make((len(padding), 2), INDEX)
    flat = sizes.vector([p for pair in padding for p in pair])
    pads = bind("padding", hlo("reshape", flat, out=pairs))
    return hlo("dynamic_conv", *call.args, pads, out=info, **rest)


def _shape_to_tensor(call: Call, info: TensorStructInfo, sizes: Sizes, bind: Bind) -> Call | None:
    (shape,) = call.args
    assert isinstance(shape, ShapeExpr)
    return hlo("convert", sizes.vector(shape.values), out=info)


RULES: Final[dict[str, Rule]] = {
    "relax.stablehlo.broadcast_in_dim": _shape_operand("dynamic_broadcast_in_dim"),
    "relax.stablehlo.reshape": _shape_operand("dynamic_reshape"),
    "relax.stablehlo.iota": _shape_operand("dynamic_iota"),
    "relax.stablehlo.slice": _attr_operands(
        "real_dynamic_slice", "start_indices", "limit_indices", "strides"
    ),
    "relax.stablehlo.pad": _attr_operands(
        "dynamic_pad", "edge_padding_low", "edge_padding_high", "interior_padding"
    ),
    "relax.stablehlo.gather": _attr_operands("dynamic_gather", "slice_sizes"),
    "relax.stablehlo.dynamic_slice": _dynamic_slice,
    "relax.stablehlo.convolution": _dynamic_conv,
    "relax.shape_to_tensor": _shape_to_tensor,
}


def _simple(d: Any) -> Dim:
    return d if isinstance(d, int) else tir.as_dim(tir.simplify(d))


class Writer:
    """Rewrites the bindings of a function and of the regions in it."""

    def __init__(self, sizes: Sizes, callees: Mapping[GlobalVar, Any]) -> None:
        self.sizes, self.callees = sizes, callees
        self.out: list[Binding] = []
        self.dataflow = False
        # What the match_casts of a block say, and of calls what the callee returns.
        self.casts: dict[Var, StructInfo] = {}
        self.returned: dict[Expr, Expr] = {}

    @nests
    def seq(self, seq: SeqExpr, params: Sequence[Var] = ()) -> SeqExpr:
        """A function's or region's body."""
        scope = Scope([])
        self.sizes.scopes.append(scope)
        for p in params:
            self.sizes.define(p)
        for b in bindings_of(seq):
            if isinstance(b, MatchCast) and isinstance(b.value, Var):
                self.casts.setdefault(b.value, b.struct_info)
        blocks: list[BindingBlock] = []
        outer = self.out, self.dataflow
        for block in seq.blocks:
            self.out = scope.bindings = []
            self.dataflow = isinstance(block, DataflowBlock)
            for b in block.bindings:
                self.binding(b)
            blocks.append(type(block)(self.out, block.span))
        self.out, self.dataflow = outer
        self.sizes.scopes.pop()
        return SeqExpr(joined(blocks), seq.body, seq.span)

    def function(self, func: Function) -> Function:
        """A region."""
        before, self.sizes.asserts = self.sizes.asserts, False
        made = func.replace(body=self.seq(func.body, func.params))
        if self.sizes.asserts and func.is_pure:
            made = made.with_attr("relax.force_pure", True)
        self.sizes.asserts |= before
        return made

    def binding(self, b: Binding) -> None:
        value = b.value
        if isinstance(b, MatchCast):
            self.match_cast(b)
            return
        if isinstance(value, Call):
            value = self.call(value, b)
        elif isinstance(value, Function):
            value = self.function(value)
        if value is b.value or not isinstance(b, VarBinding):
            self.out.append(b)
        else:
            self.out.append(VarBinding(b.var, value, b.span))

    # ---- what is said of shapes
    def match_cast(self, b: MatchCast) -> None:
        """Unknown shapes get dimensions, which are known from here on; known ones are compared."""
        value, info = self.returned.get(b.value, b.value), b.struct_info
        if _is_weak(value.struct_info):
            self.out.append(b)
            self.sizes.define(b.var)
            return
        made = self.retyped(value, info)
        if all(map(self.sizes.defined, definable_vars(info))):
            self.out.append(VarBinding(b.var, made, b.span))
        else:
            self.out.append(MatchCast(b.var, self.bind("cast", made), info, b.span))
        self.sizes.define(b.var)

    def retyped(self, value: Expr, info: StructInfo) -> Expr:
        """``value`` as an ``info``; that it is one is asserted where it may not be."""
        own = value.struct_info
        if isinstance(info, TupleStructInfo) and isinstance(own, TupleStructInfo):
            parts = [self.bind("part", value[i]) for i in range(len(info.fields))]
            made = [self.retyped(p, f) for p, f in zip(parts, info.fields, strict=True)]
            return Tuple([m if isinstance(m, Var) else self.bind("part", m) for m in made])
        if not isinstance(info, TensorStructInfo) or not isinstance(own, TensorStructInfo):
            return value
        for axis, (d, e) in enumerate(zip(own.dims or (), info.dims or (), strict=False)):
            self.require(d, e, axis)
        if own == info:
            return value
        places = [self.sizes.defined(v) for v in free_symbolic_vars(info)]
        return hlo("convert", value, out=info if all(places) else _weak(info))

    def require(self, got: Dim, wanted: Dim, axis: int) -> None:
        """A shape assertion, unless both are equal or one is not known."""
        if not same_dim(got, wanted) and all(map(self.sizes.defined, (got, wanted))):
            what = f"R.match_cast: dimension {axis} is {got} = {{0}}; expected {wanted} = {{1}}"
            self.sizes.require(got, wanted, what, self.dataflow)

    def call(self, call: Call, b: Binding) -> Expr:
        """What takes the place of one bound call."""
        op = call.op
        if isinstance(op, GlobalVar):
            return self.function_call(op, call, b.var)
        if not isinstance(op, Op):
            return call
        if any(isinstance(a, Function) for a in call.args):
            args = [self.function(a) if isinstance(a, Function) else a for a in call.args]
            info = call.struct_info_
            call = Call(op, args, call.attrs, call.sinfo_args, call.span, struct_info=info)
        rule, info = RULES.get(op.name), call.struct_info
        made = None
        if rule is not None and isinstance(info, TensorStructInfo):
            made = rule(call, info, self.sizes, self.bind)
        if made is not None:
            return Call(made.op, made.args, made.attrs, made.sinfo_args, call.span)
        stuck = [n for n, v in call.attrs.items() if _holds_symbol(v)]
        if stuck or op.name in _STATIC:
            if stuck or is_open(info):
                what = f"`{stuck[0]}` is {call.attrs[stuck[0]]}" if stuck else show(info)
                raise LegalizeError(
                    f"{op.name} has no form for symbolic dimensions in StableHLO: {what}. "
                    "Bind them (Function.bind_symbolic_vars)"
                )
        return call

    def bind(self, name: str, value: Expr) -> Expr:
        """A variable beside the row that is being rewritten."""
        var = Var(name, value.struct_info)
        self.out.append(VarBinding(var, value))
        return var

    def function_call(self, gvar: GlobalVar, call: Call, var: Var) -> Expr:
        """A call of a function of the module, of whose parameters MLIR wants the very types."""
        callee = self.callees.get(gvar)
        if not isinstance(callee, Function):
            return call
        args = [
            self.bridged(a, p.struct_info) for a, p in zip(call.args, callee.params, strict=True)
        ]
        made = call
        if any(a is not b for a, b in zip(args, call.args, strict=True)):
            made = Call(gvar, args, call.attrs, (), call.span, struct_info=call.struct_info)
        returned = callee.body.struct_info
        own = self.casts.get(var, call.struct_info)
        if _same_type(returned, own):
            return made
        # The call has the callee's types; a match_cast says so, as it does where it was read.
        weak = Call(gvar, args, call.attrs, (), call.span, struct_info=_weak(returned))
        held = self.bind("called", weak)
        known = Var("called", _forgetting(own, returned))
        self.out.append(MatchCast(known, held, known.struct_info))
        self.returned[var] = known
        return known if var in self.casts else self.retyped(known, own)

    def bridged(self, value: Expr, wanted: StructInfo) -> Expr:
        """``value`` in the type of a parameter: a known dimension is forgotten."""
        own = value.struct_info
        if _same_type(own, wanted):
            return value
        if not isinstance(own, TensorStructInfo) or not isinstance(wanted, TensorStructInfo):
            raise LegalizeError(f"{show(own)} cannot be passed as {show(wanted)}")

        # The ``?`` stand for no known size; so, as the reader does, a match_cast names them.
        info = _forgetting(own, wanted)
        weak = self.bind("passed", hlo("convert", value, out=_weak(info)))
        var = Var("passed", info)
        self.out.append(MatchCast(var, weak, info))
        return var


# Rows whose result is random bits or a window of symbolic size: nothing dynamic there.
_STATIC: Final = frozenset({"relax.stablehlo.rng_bit_generator"})


def _holds_symbol(value: Any) -> bool:
    if isinstance(value, tir.PrimExpr):
        return not isinstance(value, tir.IntImm)
    if isinstance(value, tuple | list):
        items: Iterable[Any] = value
        return any(map(_holds_symbol, items))
    return False


def _same_type(a: StructInfo, b: StructInfo) -> bool:
    """Whether two struct infos are one MLIR type: ``?`` at the same places."""
    return _erased(a) == _erased(b)


_MARK: Final = tir.Var("unknown")


def _erased(info: StructInfo) -> StructInfo:
    return map_dims(info, lambda d: d if isinstance(d, int) else _MARK)


def _forgetting(info: StructInfo, like: StructInfo) -> StructInfo:
    """``info`` with ``?`` where ``like`` has it, and known dimensions where ``like`` has them."""
    if isinstance(info, TupleStructInfo) and isinstance(like, TupleStructInfo):
        pairs = zip(info.fields, like.fields, strict=True)
        return TupleStructInfo([_forgetting(a, b) for a, b in pairs])
    if not isinstance(info, TensorStructInfo) or not isinstance(like, TensorStructInfo):
        return like
    if like.dims is None:
        return TensorStructInfo.make(tuple(tir.Var("any") for _ in range(like.ndim)), like.dtype)
    dims = [m if isinstance(m, int) else tir.Var("any") for m in like.dims]
    return TensorStructInfo.make(tuple(dims), info.dtype)


def _weak(info: StructInfo) -> StructInfo:
    """``info`` without symbolic dimensions."""
    return erase(info, lambda v: False)


def _is_weak(info: StructInfo) -> bool:
    """Whether a shape is not known."""
    if isinstance(info, TupleStructInfo):
        return any(map(_is_weak, info.fields))
    return isinstance(info, TensorStructInfo) and info.dims is None
