"""Rows over symbolic dimensions become StableHLO's dynamic operations (design decision D7).

A lowering over symbolic dimensions builds the rows that it always builds; where a row's result or
attribute holds a symbolic dimension, StableHLO wants it as the value of an operand. This pass puts
the dynamic operation in the row's place by the table ``RULES``, and computes the operands at the
head of the function: a symbolic variable is the size of the first dimension of a parameter that
defines it, all else is integer arithmetic. What has no rule states its type with ``?``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    MatchCast,
    Op,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, map_dims, unify
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.struct_info import show
from relax2xla.op._lower import hlo
from relax2xla.tir import Dim

# Symbolic variables by the parameter that holds them: a tensor of rank 0, or a place in a vector.
Sources = dict[tir.Var, tuple[Var, int | None]]
INDEX: Final = "int64"
_SCALAR: Final = TensorStructInfo.make((), INDEX)
_FLAG: Final = TensorStructInfo.make((), "bool")


# ---- before lowering
def is_symbolic(func: Function) -> bool:
    """Whether a parameter's shape is not known, so that ``func`` serves several."""
    return any(is_open(p.struct_info) for p in func.params)


def is_open(info: StructInfo) -> bool:
    """Whether a shape in ``info`` is unknown or symbolic."""
    if isinstance(info, TupleStructInfo):
        return any(map(is_open, info.fields))
    if isinstance(info, TensorStructInfo) and info.dims is None:
        return True
    return bool(free_symbolic_vars(info))


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
def dynamic_rows(
    func: Function,
    callees: Mapping[GlobalVar, Any] | None = None,
    sources: Sources | None = None,
) -> Function:
    """``func``, a function of rows, with dynamic operations where dimensions are symbolic.

    ``callees``: the functions of its module; ``sources``: parameters whose values are symbolic
    variables. Raises :class:`LegalizeError` for a row that has no dynamic form,
    and for a symbolic variable that no parameter defines.
    """
    sizes = Sizes(func.params, sources or {})
    body = _Writer(sizes, callees or {}).seq(func.body)
    blocks = [BindingBlock(sizes.bindings), *body.blocks] if sizes.bindings else body.blocks
    return func.replace(body=SeqExpr(blocks, body.body, body.span))


def symbolic_dim(d: Any) -> bool:
    """Whether a dimension is no number."""
    return isinstance(d, tir.PrimExpr)


class Sizes:
    """Symbolic dimensions as tensors, computed once each by ``bindings``."""

    def __init__(self, params: Sequence[Var], sources: Sources) -> None:
        self.bindings: list[Binding] = []
        self.scalars: dict[Dim, Expr] = {}
        self.vectors: dict[tuple[Dim, ...], Expr] = {}
        self.sources = sources
        # Where a variable stands alone, it is read off; else the equation is solved for it.
        self.places: dict[tir.Var, tuple[Expr, int, Dim]] = {}
        dims = [place for p in params for place in _dims_of(p)]
        for expr, axis, d in sorted(dims, key=lambda place: not isinstance(place[2], tir.Var)):
            for v in tir.free_vars(d):
                if v not in self.places and (d is v or _linear(d, v) is not None):
                    self.places[v] = expr, axis, d

    def bind(self, name: str, value: Expr) -> Var:
        """A variable at the head of the function."""
        var = Var(name, value.struct_info)
        self.bindings.append(VarBinding(var, value))
        return var

    def scalar(self, dim: Dim) -> Expr:
        """A dimension as a tensor of rank 0 and dtype int64."""
        known = self.scalars.get(dim)
        if known is None:
            if not isinstance(dim, tir.PrimExpr):
                known = Constant(np.asarray(dim, np.int64))
            else:
                for node in tir.post_order(dim):
                    if node not in self.scalars:
                        self.scalars[node] = self._node(node)
                known = self.scalars[dim]
            self.scalars[dim] = known
        return known

    def vector(self, dims: Sequence[Dim]) -> Expr:
        """Dimensions as a tensor of rank 1 and dtype int64."""
        key = tuple(tir.as_dim(d) for d in dims)
        known = self.vectors.get(key)
        if known is None:
            known = self.vectors[key] = self._vector(key)
        return known

    def _vector(self, dims: tuple[Dim, ...]) -> Expr:
        parts: list[Expr] = []
        numbers: list[int] = []

        def flush() -> None:
            if numbers:
                parts.append(Constant(np.asarray(numbers, np.int64)))
                numbers.clear()

        for d in dims:
            if isinstance(d, int):
                numbers.append(d)
                continue
            flush()
            one = TensorStructInfo.make((1,), INDEX)
            parts.append(self.bind("dim", hlo("reshape", self.scalar(d), out=one)))
        flush()
        if not parts:
            return Constant(np.zeros(0, np.int64))
        if len(parts) == 1:
            return parts[0]
        return self.bind("dims", hlo("concatenate", *parts, dimension=0))

    def _node(self, node: tir.PrimExpr) -> Expr:
        if isinstance(node, tir.IntImm):
            return Constant(np.asarray(node.value, np.bool_ if node.dtype == "bool" else np.int64))
        if isinstance(node, tir.Var):
            return self._var(node)
        operands = [self.scalars[c] for c in node.children()]
        conditional = isinstance(node, tir.Call) and node.op == "tir.if_then_else"
        rule = _ARITHMETIC.get(tir.Select if conditional else type(node))
        if rule is None:
            raise LegalizeError(
                f"the dimension `{node}` cannot be computed in a StableHLO program "
                f"({type(node).__name__}); bind its variables (Function.bind_symbolic_vars)"
            )
        return rule(self, node, operands)

    def _var(self, var: tir.Var) -> Expr:
        # Sizes come before values: a size is known where the program is specialised.
        place = self.places.get(var)
        if place is None and var in self.sources:
            return self._held(var, *self.sources[var])
        if place is None:
            raise LegalizeError(
                f"no dimension of a parameter defines the symbolic variable {var}; bind it "
                "(Function.bind_symbolic_vars). Shapes and numbers that are parameters become "
                "tensors in relax2xla.to_stablehlo only"
            )
        tensor, axis, dim = place
        if isinstance(tensor, TupleGetItem):
            tensor = self.bind("part", tensor)
        size = self.bind("size", hlo("get_dimension_size", tensor, dimension=axis))
        value: Expr = self.bind(var.name, hlo("convert", size, out=_SCALAR))
        if dim is var:
            return value
        solved = _linear(dim, var)
        assert solved is not None
        slope, rest = solved
        rest_value = self.scalar(rest)
        value = self.bind("rest", hlo("subtract", value, rest_value))
        return self.bind(var.name, hlo("divide", value, self.scalar(slope)))

    def _held(self, var: tir.Var, tensor: Expr, place: int | None) -> Expr:
        """A variable that is the value of a parameter."""
        if place is not None:
            row = hlo(
                "slice",
                tensor,
                start_indices=(place,),
                limit_indices=(place + 1,),
                strides=(1,),
            )
            part = self.bind("part", row)
            tensor = self.bind(var.name, hlo("reshape", part, out=_SCALAR))
        return self.bind(var.name, hlo("convert", tensor, out=_SCALAR))


def _dims_of(param: Var) -> list[tuple[Expr, int, Dim]]:
    """The symbolic dimensions of a parameter: the tensor, the axis and the dimension."""
    found: list[tuple[Expr, int, Dim]] = []
    todo: list[tuple[Expr, StructInfo]] = [(param, param.struct_info)]
    while todo:
        expr, info = todo.pop(0)
        if isinstance(info, TupleStructInfo):
            if isinstance(expr, Var):
                todo[:0] = [(TupleGetItem(expr, i), f) for i, f in enumerate(info.fields)]
        elif isinstance(info, TensorStructInfo):
            found += [(expr, i, d) for i, d in enumerate(info.dims or ()) if symbolic_dim(d)]
    return found


def _linear(dim: Dim, var: tir.Var) -> tuple[int, Dim] | None:
    """``(slope, rest)`` of ``dim = slope * var + rest`` with ``var`` the only variable."""
    if tir.free_vars(dim) != [var]:
        return None
    at = [tir.as_dim(tir.simplify(tir.substitute(dim, {var: i}))) for i in (0, 1)]
    if not all(isinstance(v, int) for v in at):
        return None
    rest, slope = int(at[0]), int(at[1]) - int(at[0])  # pyright: ignore[reportArgumentType]
    if slope <= 0 or not tir.can_prove_equal(dim, var * slope + rest):
        return None
    return slope, rest


# ---- arithmetic
Arithmetic = Callable[[Sizes, tir.PrimExpr, Sequence[Expr]], Expr]


def _row(name: str) -> Arithmetic:
    return lambda sizes, node, args: sizes.bind("dim", hlo(name, *args))


def _compare(direction: str) -> Arithmetic:
    return lambda sizes, node, args: _compared(sizes, args[0], args[1], direction)


def _compared(sizes: Sizes, a: Expr, b: Expr, direction: str) -> Expr:
    row = hlo("compare", a, b, comparison_direction=direction, compare_type="SIGNED")
    return sizes.bind("holds", row)


def _floor_div(sizes: Sizes, node: tir.PrimExpr, args: Sequence[Expr]) -> Expr:
    quotient = sizes.bind("dim", hlo("divide", *args))
    if _never_negative(node.children()[0]):
        return quotient
    rest = sizes.bind("rest", hlo("remainder", *args))
    below = _compared(sizes, rest, sizes.scalar(0), "LT")
    less = sizes.bind("dim", hlo("subtract", quotient, sizes.scalar(1)))
    return sizes.bind("dim", hlo("select", below, less, quotient))


def _floor_mod(sizes: Sizes, node: tir.PrimExpr, args: Sequence[Expr]) -> Expr:
    rest = sizes.bind("rest", hlo("remainder", *args))
    if _never_negative(node.children()[0]):
        return rest
    below = _compared(sizes, rest, sizes.scalar(0), "LT")
    more = sizes.bind("dim", hlo("add", rest, args[1]))
    return sizes.bind("dim", hlo("select", below, more, rest))


def _never_negative(e: tir.PrimExpr) -> bool:
    """Whether ``e`` is at least 0 where all variables, which are sizes, are."""
    env: dict[tir.Var, Dim] = {v: tir.SizeVar(v.name, v.dtype) for v in tir.free_vars(e)}
    sized = tir.substitute(e, env)
    return isinstance(sized, tir.PrimExpr) and tir.Analyzer().can_prove(sized >= 0)


def _cast(sizes: Sizes, node: tir.PrimExpr, args: Sequence[Expr]) -> Expr:
    if node.dtype == "bool":
        raise LegalizeError(f"the dimension `{node}` is a bool")
    return sizes.bind("dim", hlo("convert", args[0], out=_SCALAR))


# Divisors are positive numbers in what operators infer of shapes.
_ARITHMETIC: Final[dict[type[tir.PrimExpr], Arithmetic]] = {
    tir.Add: _row("add"),
    tir.Sub: _row("subtract"),
    tir.Mul: _row("multiply"),
    tir.Max: _row("maximum"),
    tir.Min: _row("minimum"),
    tir.Div: _row("divide"),
    tir.Mod: _row("remainder"),
    tir.FloorDiv: _floor_div,
    tir.FloorMod: _floor_mod,
    tir.And: _row("and"),
    tir.Or: _row("or"),
    tir.Not: _row("not"),
    tir.Select: _row("select"),
    tir.Cast: _cast,
    tir.EQ: _compare("EQ"),
    tir.NE: _compare("NE"),
    tir.LT: _compare("LT"),
    tir.LE: _compare("LE"),
    tir.GT: _compare("GT"),
    tir.GE: _compare("GE"),
}


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
    wide = [bind("start", hlo("convert", s, out=_SCALAR)) for s in starts]
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


class _Writer:
    """Rewrites the bindings of a function and of the regions in it."""

    def __init__(self, sizes: Sizes, callees: Mapping[GlobalVar, Any]) -> None:
        self.sizes, self.callees = sizes, callees
        self.out: list[Binding] = []

    def seq(self, seq: SeqExpr) -> SeqExpr:
        blocks: list[BindingBlock] = []
        for block in seq.blocks:
            outer, self.out = self.out, []
            for b in block.bindings:
                self.binding(b)
            blocks.append(type(block)(self.out, block.span))
            self.out = outer
        return SeqExpr(blocks, seq.body, seq.span)

    def binding(self, b: Binding) -> None:
        value = b.value
        if isinstance(value, Call):
            value = self.call(value, b)
        elif isinstance(value, Function):
            value = value.replace(body=self.seq(value.body))
        if value is b.value or not isinstance(b, VarBinding):
            self.out.append(b)
        else:
            self.out.append(VarBinding(b.var, value, b.span))

    def call(self, call: Call, b: Binding) -> Expr:
        """What takes the place of one bound call."""
        op = call.op
        if isinstance(op, GlobalVar):
            return self.function_call(op, call)
        if not isinstance(op, Op):
            return call
        if any(isinstance(a, Function) for a in call.args):
            args = [
                a.replace(body=self.seq(a.body)) if isinstance(a, Function) else a
                for a in call.args
            ]
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

    def function_call(self, gvar: GlobalVar, call: Call) -> Expr:
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
        returned, own = callee.body.struct_info, call.struct_info
        if _same_type(returned, own):
            return made
        if not isinstance(own, TensorStructInfo) or not isinstance(returned, TensorStructInfo):
            raise LegalizeError(
                f"{gvar!r} returns {show(returned)}, of which {show(own)} is known here; inline "
                "it (transform.InlinePrivateFunctions) or bind the symbolic dimensions"
            )

        def typed(info: StructInfo) -> Expr:
            return Call(gvar, args, call.attrs, (), call.span, struct_info=info)

        return hlo("convert", self.typed("called", typed, _forgetting(own, returned)), out=own)

    def bridged(self, value: Expr, wanted: StructInfo) -> Expr:
        """``value`` in the type of a parameter: a known dimension is forgotten."""
        own = value.struct_info
        if _same_type(own, wanted):
            return value
        if not isinstance(own, TensorStructInfo) or not isinstance(wanted, TensorStructInfo):
            raise LegalizeError(f"{show(own)} cannot be passed as {show(wanted)}")

        def typed(info: StructInfo) -> Expr:
            return hlo("convert", value, out=info)

        return self.typed("passed", typed, _forgetting(own, wanted))

    def typed(self, name: str, make: Callable[[StructInfo], Expr], info: TensorStructInfo) -> Expr:
        """A variable for the value that ``make`` makes, whose type has the ``?`` of ``info``.

        They stand for no known size; so, as the reader does, a match_cast says what is known.
        """
        weak = self.bind(name, make(TensorStructInfo(None, info.dtype, ndim=info.ndim)))
        var = Var(name, info)
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


def _forgetting(info: TensorStructInfo, like: TensorStructInfo) -> TensorStructInfo:
    """``info`` with ``?`` where ``like`` has it, and known dimensions where ``like`` has them."""
    if info.dims is None or like.dims is None:
        return info
    dims = [m if isinstance(m, int) else tir.Var("any") for m in like.dims]
    return TensorStructInfo.make(tuple(dims), info.dtype)
