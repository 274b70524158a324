"""ComputeInIntegers: quantised models in arithmetic of 8 bits, through their whole network.

Importers say what a quantised operator computes: its bytes become int32 or float32, are multiplied,
scaled, rounded and cut. XLA:CPU has nothing fast for products of int32, and where a model says it
with DequantizeLinear and QuantizeLinear the products are of float32. Here each such operator
becomes one composite, from bytes to bytes, which a function in C++ takes over
(``vm/pjrt/integers.py``); its form in rows serves where there is none. Images stay channels last
from one to the next.

Sums of integers are exact, and those of the rows. Quotients are those of a division, as ONNX says;
XLA multiplies with inverses where rows divide by one number, which differs where a quotient is a
half. Where a model dequantises, its numbers are summed up exactly instead of in float32, as those
of quantised operators are: where a result lies between two numbers, it may be the other one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relax2xla import op as R
from relax2xla.dpl.emit import Emitter
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    Span,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import bindings_deep, reads
from relax2xla.kernels.integers import calls
from relax2xla.kernels.integers.packing import Packing, packing
from relax2xla.kernels.native import Tensor, may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.calls.sites import composite_of, named_forms
from relax2xla.transform.cpu.integers.rows import form, integers_of, packed, scalar, vector
from relax2xla.transform.cpu.integers.values import (
    Addition,
    Description,
    Number,
    Pooled,
    Product,
    Quantised,
    Quotient,
    Values,
    dims_of,
    dtype_of,
    is_single,
    pooled,
)

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class ComputeInIntegers(Pass):
    """Make composites of quantised operators, and of those between dequantise and quantise.

    Static shapes, in dataflow. Exact on integers; numbers that a model dequantises are summed up in
    integers too, so that results may differ by one unit from sums in float32.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if not may_call():
            return mod
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            if calls.FAMILY.forms in gvar.name_hint:
                continue  # what a composite is in rows
            made = _Composites(gvar.name_hint, {*(g.name_hint for g in new), *named_forms(func)})
            new[gvar] = made.function(func)
            new.update(made.forms)
        return mod.replace(new) if len(new) > len(mod.functions) else mod


class _Composites:
    """The composites of one function; ``forms``: the functions that they name.

    ``taken``: names of functions, among them those that composites of the function name: where some
    shapes were symbolic, there are such of those that were not, and the functions are elsewhere.
    """

    def __init__(self, name: str, taken: set[str]) -> None:
        self.name, self.taken = name, taken
        self.forms: dict[GlobalVar, Function] = {}
        self.by = packing()
        # Images that are channels first, and the same channels last.
        self.last: dict[Expr, Expr] = {}
        self.known: dict[calls.Call, str] = {}

    def function(self, func: Function) -> Function:
        """``func`` with composites; itself where there is nothing to compute in integers."""
        values = Values(_uses(func))
        for block in func.body.blocks:
            for b in block.bindings:
                if isinstance(b, VarBinding):
                    values.see(b.var, b.value)
        if not any(isinstance(d, Product | Quantised | Pooled) for d in values.found.values()):
            return func
        plans = {v: p for v, d in values.found.items() if (p := self._plan(values, v, d))}
        needed = {*reads(func.body.body)}
        known = values.found.keys()
        kept = [_kept(b, plans, known, needed) for b in reversed(func.body.blocks)][::-1]
        blocks = [
            self._block(block, own, plans)
            for block, own in zip(func.body.blocks, kept, strict=True)
        ]
        return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))

    def _block(
        self, block: BindingBlock, kept: Sequence[Binding], plans: dict[Var, Plan]
    ) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return block
        out: list[Binding] = []
        emitter = Emitter(out, dataflow=True, share=True)
        for b in kept:
            plan = plans.get(b.var)
            if plan is None:
                out.append(b)
                continue
            value = plan.emitted(self, emitter, b.var)
            out.append(VarBinding(b.var, emitter.flat(value, b.var.span), b.var.span))
        return type(block)(out, block.span)

    def call(
        self, call: calls.Call, operands: Sequence[Expr], emitter: Emitter, span: Span | None
    ) -> Var:
        """A variable for the result of a composite."""
        symbol = self.known.get(call)
        if symbol is None:
            names = (f"{self.name}{calls.FAMILY.forms}{i}" for i in itertools.count())
            symbol = next(n for n in names if n not in self.taken)
            self.taken.add(symbol)
            self.known[call] = symbol
            self.forms[GlobalVar(symbol)] = form(call)
        value = composite_of(call, [emitter.operand(o, span) for o in operands], symbol, span)
        return emitter.bind(value, span=span)

    # -- which composites can be made --------------------------------------------------------------
    def _plan(self, values: Values, var: Var, d: Description) -> Plan | None:
        """How a variable is computed by a composite; None where its own binding stays."""
        if isinstance(d, Pooled):
            return _Pool.of(d)
        if isinstance(d, Product):
            if d.relu or d.pool or (d.real and d.factor is None):
                return None
            return self._multiplied(values, d, None, dtype_of(var))
        if not isinstance(d, Quantised):
            return None
        found = d.value
        if isinstance(found, Product):
            return self._multiplied(values, found, d.zero, d.dtype)
        of = found.value
        if isinstance(of, Product):
            assert of.factor is not None
            rest = of.rest
            if rest is not None:
                assert rest.scale is not None
                rest = replace(rest, scale=found.divided(rest.scale))
            addend = None if of.addend is None else found.divided(of.addend)
            scaled = replace(of, factor=found.divided(of.factor), addend=addend, rest=rest)
            return self._multiplied(values, scaled, d.zero, d.dtype)
        if isinstance(of, Addition):
            # The call divides, and an inverse decides otherwise where a quotient is a half.
            return None if found.inverse else _Sum(of, found.scale, d)
        if isinstance(of, Number) and _is_same(values, of, found, d):
            pool = pooled(of.bytes)
            return (None if pool is None else _Pool.of(pool)) or _Same(of.bytes)
        return _Quantisation(found, d) if dtype_of(found.x) == "float32" else None

    def _multiplied(self, values: Values, p: Product, zero: Expr | None, dtype: str) -> Plan | None:
        if not values.is_fixed(p.right.bytes):
            whole = p.bias is None and p.addend is None and not p.relu and is_single(p.factor)
            batch = dims_of(p.left.bytes), dims_of(p.right.bytes)
            if not whole or batch[0] is None or batch[1] is None or len(batch[0]) < 2:
                return None
            same = batch[0][:-2] == batch[1][:-2] and batch[0][-1] == batch[1][-2]
            return _Both(p, zero, dtype) if same else None
        call = _described(p, self.by, dtype)
        if call is None or call.problem():
            return None
        made = _Convolution(p, call, zero)
        return made if p.pool is None else _PooledConvolution.of(made, p.pool)


def _is_same(values: Values, of: Number, by: Quotient, d: Quantised) -> bool:
    """Whether bytes are quantised as they were before."""
    if dtype_of(of.bytes) != d.dtype or of.scale is None:
        return False
    first, second = (values.number(v) for v in (of.scale, by.scale))
    points = [0.0 if v is None else values.number(v) for v in (of.zero, d.zero)]
    if first is None or second is None or points[0] is None or not 0 < first < float("inf"):
        return False
    # 255 times so small an error is far from a half.
    same = abs(first * second - 1) < 1e-5 if by.inverse else first == second
    return same and points[0] == points[1]


# -- how they are made -----------------------------------------------------------------------------
class Plan:
    """How a variable is computed by a composite."""

    def reads(self) -> Iterator[Expr | None]:
        """What it is computed from."""
        raise NotImplementedError

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        """What ``var`` is bound to; what comes before is bound by the emitter."""
        raise NotImplementedError


class _Convolution(Plan):
    """A product with a weight, whatever it is in the program: as a convolution."""

    def __init__(self, p: Product, call: calls.Convolution, zero: Expr | None) -> None:
        self.p, self.described, self.zero = p, call, zero

    def reads(self) -> Iterator[Expr | None]:
        p = self.p
        yield from (p.left.bytes, p.left.zero, p.right.bytes, p.right.zero)
        yield from (p.bias, p.factor, p.addend, self.zero)
        if p.rest is not None:
            yield from (p.rest.bytes, p.rest.zero, p.rest.scale)

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        p, call, span = self.p, self.described, var.span
        # What is named once is computed once, for all that reads it.
        bytes_ = emitter.operand(p.left.bytes, span)
        first = self.first
        image = _channels_last(made, emitter, bytes_) if first else bytes_
        image = R.reshape(image, call.image.shape)
        weight = emitter.operand(_weight(p), span)
        dtype, zero = dtype_of(weight), None if p.right.zero is None else vector(p.right.zero)
        bias = None if p.bias is None else vector(p.bias)
        operands = [
            image,
            packed(weight, zero, call.parts, call.packed, dtype),
            integers_of(bias, weight, zero, call.parts, call.packed, dtype),
            scalar_vector(1.0) if p.factor is None else vector(p.factor),
            scalar_vector(0.0) if p.addend is None else vector(p.addend),
            _points(p.left.zero, self.zero, *([] if p.rest is None else [p.rest.zero])),
        ]
        if p.rest is not None:
            assert p.rest.scale is not None
            rest = emitter.operand(p.rest.bytes, span)
            rest = _channels_last(made, emitter, rest) if first else rest
            operands += [R.reshape(rest, call.result.shape), vector(p.rest.scale)]
        result = made.call(call, operands, emitter, span)
        if first:
            made.last[var] = result
            return R.permute_dims(result, _FIRST)
        return result if dims_of(result) == p.shape else R.reshape(result, p.shape)

    @property
    def first(self) -> bool:
        """Whether images are channels first in the program."""
        return self.p.kind == "conv2d" and str(self.p.attrs["data_layout"]) == "NCHW"


class _PooledConvolution(Plan):
    """The largest results in each window: of bytes, which grow with what they stand for."""

    def __init__(self, convolution: _Convolution, pool: calls.MaxPool) -> None:
        self.convolution, self.pool = convolution, pool

    @staticmethod
    def of(convolution: _Convolution, attrs: Mapping[str, Any]) -> _PooledConvolution | None:
        """The plan, where such a window can be pooled."""
        image = convolution.described.result
        pool = _window_of(image, attrs) if image.dtype in calls.BYTES else None
        return None if pool is None else _PooledConvolution(convolution, pool)

    def reads(self) -> Iterator[Expr | None]:
        return self.convolution.reads()

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        image = self.convolution.emitted(made, emitter, var)
        image = made.last.pop(var) if self.convolution.first else emitter.operand(image)
        result = made.call(self.pool, [image], emitter, var.span)
        if not self.convolution.first:
            return result
        made.last[var] = result
        return R.permute_dims(result, _FIRST)


class _Both(Plan):
    """A product of two matrices that are both computed."""

    def __init__(self, p: Product, zero: Expr | None, dtype: str) -> None:
        self.p, self.zero, self.dtype = p, zero, dtype

    def reads(self) -> Iterator[Expr | None]:
        p = self.p
        yield from (p.left.bytes, p.left.zero, p.right.bytes, p.right.zero, p.factor, self.zero)

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        p, right = self.p, self.p.right.bytes
        turned = _without_turn(right)
        left, other = p.left.bytes, right if turned is None else turned
        shapes = [(-1, *(dims_of(v) or ())[-2:]) for v in (left, other)]
        operands = [
            *(emitter.operand(R.reshape(v, s)) for v, s in zip((left, other), shapes, strict=True)),
            scalar_vector(1.0) if p.factor is None else vector(p.factor),
            _points(p.left.zero, p.right.zero, self.zero),
        ]
        kinds = [Tensor(dims_of(v) or (), dtype_of(v)) for v in operands[:2]]
        call = calls.Product(kinds[0], kinds[1], turned is not None, self.dtype)
        return R.reshape(made.call(call, operands, emitter, var.span), p.shape)


class _Sum(Plan):
    def __init__(self, of: Addition, scale: Expr, d: Quantised) -> None:
        self.of, self.scale, self.d = of, scale, d

    def reads(self) -> Iterator[Expr | None]:
        for n in (self.of.left, self.of.right):
            yield from (n.bytes, n.zero, n.scale)
        yield from (self.scale, self.d.zero)

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        numbers = (self.of.left, self.of.right)
        given = [emitter.operand(n.bytes, var.span) for n in numbers]
        last = any(g in made.last for g in given)
        if last:
            given = [_channels_last(made, emitter, g) for g in given]
        scales = [numbers[0].scale, numbers[1].scale, self.scale]
        operands = [
            *given,
            R.concat([vector(s) for s in scales if s is not None], 0),
            _points(numbers[0].zero, numbers[1].zero, self.d.zero),
        ]
        kinds = [Tensor(dims_of(v) or (), dtype_of(v)) for v in given]
        call = calls.Sum(kinds[0], kinds[1], self.d.dtype, self.of.relu)
        result = made.call(call, operands, emitter, var.span)
        if not last:
            return result
        made.last[var] = result
        return R.permute_dims(result, _FIRST)


class _Pool(Plan):
    def __init__(self, d: Pooled, call: calls.MaxPool) -> None:
        self.d, self.described = d, call

    @staticmethod
    def of(d: Pooled) -> _Pool | None:
        """The plan, where such a window can be pooled."""
        dims, attrs = dims_of(d.bytes), d.attrs
        if dims is None or len(dims) != 4:
            return None
        first = str(attrs["layout"]) == "NCHW"
        shape = tuple(dims[a] for a in _LAST) if first else dims
        call = _window_of(Tensor(shape, dtype_of(d.bytes)), attrs)
        return None if call is None else _Pool(d, call)

    def reads(self) -> Iterator[Expr | None]:
        yield self.d.bytes

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        first = str(self.d.attrs["layout"]) == "NCHW"
        bytes_ = emitter.operand(self.d.bytes, var.span)
        image = _channels_last(made, emitter, bytes_) if first else bytes_
        result = made.call(self.described, [image], emitter, var.span)
        if not first:
            return result
        made.last[var] = result
        return R.permute_dims(result, _FIRST)


class _Quantisation(Plan):
    def __init__(self, of: Quotient, d: Quantised) -> None:
        self.of, self.d = of, d

    def reads(self) -> Iterator[Expr | None]:
        yield from (self.of.x, self.of.scale, self.d.zero)

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        kind = Tensor(dims_of(self.of.x) or (), "float32")
        x, scale = self.of.x, vector(self.of.scale)
        if self.of.inverse:
            x, scale = self.of.divided(x), scalar_vector(1.0)
        operands = [x, scale, _points(self.d.zero)]
        return made.call(calls.Quantisation(kind, self.d.dtype), operands, emitter, var.span)


class _Same(Plan):
    def __init__(self, bytes_: Expr) -> None:
        self.bytes = bytes_

    def reads(self) -> Iterator[Expr | None]:
        yield self.bytes

    def emitted(self, made: _Composites, emitter: Emitter, var: Var) -> Expr:
        value = emitter.operand(self.bytes, var.span)
        if value in made.last:
            made.last[var] = made.last[value]
        return value


def scalar_vector(value: float) -> Expr:
    """A constant of one element."""
    return R.reshape(scalar(value, "float32"), (1,))


def _points(*zeros: Expr | None) -> Expr:
    """Zero points behind each other, int32."""
    made = [
        R.reshape(scalar(0, "int32") if z is None else R.astype(z, "int32"), (1,)) for z in zeros
    ]
    return made[0] if len(made) == 1 else R.concat(made, 0)


def _channels_last(made: _Composites, emitter: Emitter, image: Expr) -> Expr:
    if image not in made.last:
        made.last[image] = emitter.operand(R.permute_dims(image, _LAST))
    return made.last[image]


def _without_turn(value: Expr) -> Expr | None:
    """What a value is with its last two axes exchanged; None where it is not written so."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None
    if value.op.name != "relax.permute_dims":
        return None
    axes = [int(a) for a in value.attrs["axes"] or ()]
    rank = len(axes)
    if rank < 2 or sorted(axes[-2:]) != [rank - 2, rank - 1] or axes[-1] == rank - 1:
        return None
    return value.args[0] if axes[:-2] == list(range(rank - 2)) else None


def _weight(p: Product) -> Expr:
    """The weight as [height, width, channels of a group, results]."""
    w = p.right.bytes
    if p.kind == "conv2d":
        layout = str(p.attrs["kernel_layout"])
        return w if layout == "HWIO" else R.permute_dims(w, [layout.index(a) for a in "HWIO"])
    depth, results = _matrix(p)
    if p.kind == "pixels":
        w = R.permute_dims(w, (1, 0))
    return R.reshape(w, (1, 1, depth, results))


def _window_of(image: Tensor, attrs: Mapping[str, Any]) -> calls.MaxPool | None:
    top, left, bottom, right = (int(p) for p in attrs["padding"])
    size, strides, dilation = (_pair(attrs[n]) for n in ("pool_size", "strides", "dilation"))
    call = calls.MaxPool(image, size, strides, (top, left, bottom, right), dilation)
    return None if call.problem() else call


def _matrix(p: Product) -> tuple[int, int]:
    dims = dims_of(p.right.bytes)
    assert dims is not None
    return (dims[-1], dims[-2]) if p.kind == "pixels" else (dims[-2], dims[-1])


def _described(p: Product, by: Packing, dtype: str) -> calls.Convolution | None:
    dims, weight = dims_of(p.left.bytes), dims_of(p.right.bytes)
    if dims is None or weight is None:
        return None
    kind = dtype_of(p.left.bytes)
    factors, addends = (
        1 if v is None or is_single(v) else p.shape[p.channel] for v in (p.factor, p.addend)
    )
    ends = (by, dtype, factors, addends, p.addend is not None, p.relu)
    one = ((1, 1), (0, 0, 0, 0), (1, 1), 1)
    if p.kind != "conv2d":
        depth, results = _matrix(p)
        if not dims or dims[-1] != depth or (p.kind == "matmul" and len(p.shape) < len(dims)):
            return None
        rows = 1
        for d in dims[:-1]:
            rows *= d
        image = Tensor((1, 1, rows, depth), kind)
        return _with_rest(p, calls.Convolution(image, (1, 1), results, *one, *ends))
    attrs = p.attrs
    data, made = str(attrs["data_layout"]), str(attrs["out_layout"] or attrs["data_layout"])
    layout = str(attrs["kernel_layout"])
    if data not in ("NCHW", "NHWC") or made != data or sorted(layout) != sorted("OIHW"):
        return None
    image = Tensor(tuple(dims[data.index(a)] for a in "NHWC"), kind)
    sizes = [weight[layout.index(a)] for a in "HWO"]
    top, left, bottom, right = (int(v) for v in attrs["padding"])
    where = (_pair(attrs["strides"]), (top, left, bottom, right), _pair(attrs["dilation"]))
    groups = int(attrs["groups"])
    call = calls.Convolution(image, (sizes[0], sizes[1]), sizes[2], *where, groups, *ends)
    return _with_rest(p, call)


def _with_rest(p: Product, call: calls.Convolution) -> calls.Convolution:
    return call if p.rest is None else calls.ConvolutionSum.of(call, dtype_of(p.rest.bytes))


def _pair(given: Sequence[int]) -> tuple[int, int]:
    a, b = (int(v) for v in given)
    return a, b


# -- what is read ----------------------------------------------------------------------------------
def _kept(
    block: BindingBlock, plans: dict[Var, Plan], known: Collection[Var], needed: set[Var]
) -> list[Binding]:
    """The bindings of a block without those of ``known`` that nothing reads any more.

    ``needed``, what is read, grows. Other bindings stay: they may do more than compute.
    """
    kept: list[Binding] = []
    for b in reversed(block.bindings):
        if isinstance(block, DataflowBlock) and b.var in known and b.var not in needed:
            continue
        kept.append(b)
        plan = plans.get(b.var) if isinstance(block, DataflowBlock) else None
        if plan is None:
            needed.update(reads(b.value))
            if not isinstance(b, VarBinding):
                needed.update(reads(b.var))
        else:
            for value in plan.reads():
                needed.update(() if value is None else reads(value))
    return kept[::-1]


def _uses(func: Function) -> Counter[Var]:
    found: Counter[Var] = Counter()
    for b in bindings_deep(func):
        found.update(reads(b.value))
    found.update(reads(func.body.body))
    return found
