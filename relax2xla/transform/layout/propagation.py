"""Layout propagation: values kept beside themselves with their axes in another order.

A *twin* of a value is the same value with its axes permuted; a twin of order (1, 2, 0) has the
value's axis 1 first. Passes that prefer another order of axes (:mod:`convert_layout`,
:mod:`feature_major`) make twins at the operators that gain; the interpreter here carries them along
through everything that does not care, as operators say by their traits: element-wise operators,
reductions, normalisation, softmax, reshapes that keep the order of elements, permutations (which
cost nothing: they only rename the order). The value itself is made where something asks for it,
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    Op,
    SeqExpr,
    ShapeExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs, trait_of
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.struct_info import Dims
from relax2xla.ir.traits import (
    AlongAxis,
    Broadcasting,
    Channelwise,
    Joins,
    Normalises,
    Pads,
    Permutes,
    Pointwise,
    Reduction,
    Reshapes,
    Trait,
    axes_of,
)
from relax2xla.tir import Dim

Order = tuple[int, ...]
# A value in an order of axes; the expression is new and still to be bound, or a bound twin.
Ordered = tuple[Expr, Order]
Rule = Callable[[Any, Call], Ordered | None]


def dims_of(value: Expr) -> Dims | None:
    """Dimensions of a tensor if its shape is known."""
    info = value.struct_info_
    return info.dims if isinstance(info, TensorStructInfo) else None


def reordered(info: StructInfo, order: Order) -> StructInfo | None:
    """Struct info of a value with its axes in ``order``; None where the shape is unknown."""
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    return TensorStructInfo.make(tuple(info.dims[a] for a in order), info.dtype, info.vdevice)


def identity(ndim: int) -> Order:
    """The order that a value itself has."""
    return tuple(range(ndim))


class Twins:
    """Rewrites one function; ``rules`` are those of the pass, by an operator's name or a trait."""

    def __init__(self, rules: Mapping[str | type[Trait], Rule]) -> None:
        self.rules = {**ANY_ORDER, **rules}
        self.twins: dict[Expr, tuple[Var, Order]] = {}
        # Tuples that a value was split into, of its twin, and their bindings in the plain order.
        self.parts: dict[Expr, tuple[Var, Order, VarBinding]] = {}
        # Variables that have a twin, but whose own binding is not written yet.
        self.due: set[Expr] = set()
        self.out: list[Binding] = []
        self.new_var: type[Var] = Var
        self.span: Span | None = None

    def function(self, func: Function) -> Function:
        """``func`` with its values in the orders that the rules ask for."""
        blocks: list[BindingBlock] = []
        for block in func.body.blocks:
            self.out = []
            self.new_var = DataflowVar if isinstance(block, DataflowBlock) else Var
            for b in block.bindings:
                self.binding(b)
            # What leaves the block leaves it as it is; what nobody reads is dead code.
            for var in [v for v in self.due if not isinstance(v, DataflowVar)]:
                self.plain(var)
            self.due.clear()
            self.twins.clear()
            self.parts.clear()
            blocks.append(type(block)(self.out, block.span))
        return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))

    def binding(self, b: Binding) -> None:
        """One binding: in another order if a rule says so, else as it is."""
        self.span = b.var.span
        if isinstance(b, VarBinding) and (self.split(b) or self.part(b)):
            return
        if isinstance(b, VarBinding) and isinstance(b.value, Call) and isinstance(b.value.op, Op):
            rule = self.rule(b.value, b.value.op)
            made = rule(self, b.value) if rule is not None else None
            if made is not None:
                value, order = made
                if order == identity(len(order)):
                    self.write(VarBinding(b.var, value, b.span))
                    return
                twin = value if isinstance(value, Var) else self.bind(value, b.var.name_hint)
                self.twins[b.var] = (twin, order)
                self.due.add(b.var)
                return
        self.write(b)

    def split(self, b: VarBinding) -> bool:
        """Whether ``b`` splits a value that has a twin: the twin is split in its place."""
        call = b.value
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return False
        info, order = call.struct_info_, self.order_of(call.args[0]) if call.args else None
        if not isinstance(info, TupleStructInfo) or not call.op.has(AlongAxis) or order is None:
            return False
        fields = [reordered(f, order) for f in info.fields]
        known = [f for f in fields if f is not None]
        if len(known) < len(fields):
            return False
        name = trait_of(call, AlongAxis).axis
        attrs = {**call.attrs, name: _moved(call_attrs(call)[name], order)}
        args = [self.twins[call.args[0]][0], *call.args[1:]]
        made = Call(call.op, args, attrs, None, call.span, struct_info=TupleStructInfo(known))
        self.parts[b.var] = self.bind(made, b.var.name_hint), order, b
        self.due.add(b.var)
        return True

    def part(self, b: VarBinding) -> bool:
        """Whether ``b`` takes a part of a value that was split by its twin: that of the twin."""
        value = b.value
        if not isinstance(value, TupleGetItem) or value.tuple_value not in self.parts:
            return False
        made, order, _ = self.parts[value.tuple_value]
        taken = self.bind(TupleGetItem(made, value.index), b.var.name_hint)
        self.twins[b.var] = taken, order
        self.due.add(b.var)
        return True

    def rule(self, call: Call, op: Op[...]) -> Rule | None:
        """How ``call``, of the operator ``op``, takes part; None: it does not."""
        if not isinstance(call.struct_info_, TensorStructInfo) or "discardable" in call.attrs:
            return None
        named = self.rules.get(op.name)
        of_traits = (self.rules[type(t)] for t in op.traits if type(t) in self.rules)
        return named or next(of_traits, None)

    # -- values in an order

    def write(self, b: Binding) -> None:
        """Write a binding, after those of the variables that it reads."""
        if self.due:
            for node in post_order_deep(b.value):
                if isinstance(node, Var):
                    self.plain(node)
        self.out.append(b)

    def bind(self, value: Expr, name: str) -> Var:
        """A new variable for ``value``."""
        var = self.new_var(name, value.struct_info, self.span)
        self.write(VarBinding(var, value, self.span))
        return var

    def call(self, name: str, *args: Any, **attrs: Any) -> Call:
        """A call of the operator ``relax.NAME``."""
        return Op.get(f"relax.{name}")(*args, **attrs)

    def again(self, call: Call, args: Sequence[Expr], order: Order, **attrs: Any) -> Call:
        """``call`` with other operands and some other attributes, its result in ``order``."""
        new = {**call.attrs, **attrs} if attrs else call.attrs
        info = reordered(call.struct_info, order)
        stated = [info] if call.sinfo_args and info is not None else None
        return Call(call.op, args, new, stated, call.span, struct_info=info)

    def permuted(self, value: Expr, order: Order) -> Call:
        """``value`` with its axes in ``order``."""
        info = reordered(value.struct_info, order)
        return Call(Op.get("relax.permute_dims"), [value], {"axes": order}, struct_info=info)

    def einsum(self, call: Call, operands: Sequence[Expr], subscripts: str, order: Order) -> Call:
        """An einsum whose result is that of ``call`` in ``order``."""
        info = reordered(call.struct_info, order)
        attrs = {"subscripts": subscripts}
        return Call(Op.get("relax.einsum"), [Tuple(operands)], attrs, struct_info=info)

    def plain(self, var: Expr) -> None:
        """Write the binding of a variable itself, from its twin, if it is still due."""
        if var in self.due and isinstance(var, Var):
            self.due.discard(var)
            if var in self.parts:
                self.write(self.parts[var][2])
                return
            twin, order = self.twins[var]
            back = tuple(order.index(i) for i in range(len(order)))
            self.out.append(VarBinding(var, self.permuted(twin, back), var.span))

    def order_of(self, value: Expr) -> Order | None:
        """The order of the twin of ``value``; None without one."""
        return self.twins[value][1] if value in self.twins else None

    def ordered(self, value: Expr, order: Order) -> Expr:
        """``value`` with its axes in ``order``."""
        twin = self.twins.get(value)
        if twin is not None and twin[1] == order:
            return twin[0]
        if order == identity(len(order)):
            self.plain(value)
            return value
        name = getattr(value, "name_hint", "const")
        if twin is not None and value in self.due:
            axes = tuple(twin[1].index(a) for a in order)
            return self.bind(self.permuted(twin[0], axes), name)
        made = self.bind(self.permuted(value, order), name)
        if isinstance(value, Var) and twin is None:
            self.twins[value] = (made, order)
        return made

    def aligned(self, value: Expr, order: Order) -> Expr | None:
        """An operand of a broadcasting operator whose result has its axes in ``order``."""
        if isinstance(value, ShapeExpr):
            sizes = value.values
            return ShapeExpr([sizes[a] for a in order]) if len(sizes) == len(order) else None
        if not isinstance(value.struct_info_, TensorStructInfo):
            return value
        dims = dims_of(value)
        if dims is None or len(dims) > len(order):
            return None
        if not dims:
            return value
        if len(dims) == len(order):
            return self.ordered(value, order)
        full: list[Dim] = [1] * (len(order) - len(dims)) + list(dims)
        if sum(d != 1 for d in full) <= 1:
            return self.bind(self.call("reshape", value, [full[a] for a in order]), "operand")
        return self.ordered(self.bind(self.call("reshape", value, full), "operand"), order)

    # -- rules for operators that take any order

    def broadcasting(self, call: Call) -> Ordered | None:
        """An element-wise operator, in the order of the largest twin."""
        result = dims_of(call)
        known = [(a, o) for a in call.args if (o := self.order_of(a)) is not None]
        fitting = [(a, o) for a, o in known if result is not None and len(o) == len(result)]
        if not fitting:
            return None
        order = max(fitting, key=lambda ao: _size(ao[0]))[1]
        args = [self.aligned(a, order) for a in call.args]
        kept = [a for a in args if a is not None]
        return (self.again(call, kept, order), order) if len(kept) == len(args) else None

    def channelwise(self, call: Call) -> Ordered | None:
        """An element-wise operator with vectors along one axis."""
        return self.along(call, trait_of(call, Channelwise).axis)

    def one_axis(self, call: Call) -> Ordered | None:
        """An operator along one axis, or along some."""
        return self.along(call, trait_of(call, AlongAxis).axis)

    def along(self, call: Call, name: str) -> Ordered | None:
        """An operator whose attribute ``name`` says axes of its first operand."""
        order, axes = self.order_of(call.args[0]), call_attrs(call)[name]
        if order is None or axes is None:
            return None
        moved = _moved(axes, order)
        args = [self.twins[call.args[0]][0], *call.args[1:]]
        return self.again(call, args, order, **{name: moved}), order

    def reduction(self, call: Call) -> Ordered | None:
        """A reduction over some axes."""
        order = self.order_of(call.args[0])
        attrs, trait = call_attrs(call), trait_of(call, Reduction)
        given = attrs[trait.axis]
        if order is None or (given is None and trait.places):
            return None
        axes = axes_of(given, len(order))
        moved = None if given is None else _moved(given, order)
        if not attrs[trait.keepdims]:
            kept = [a for a in order if a not in axes]
            order = tuple(sorted(kept).index(a) for a in kept)
        operand = self.twins[call.args[0]][0]
        return self.again(call, [operand], order, **{trait.axis: moved}), order

    def norm(self, call: Call) -> Ordered | None:
        """A normalisation over one axis, with its vectors of weights."""
        name = trait_of(call, Normalises).axes
        return self.along(call, name) if len(call_attrs(call)[name]) == 1 else None

    def norm_of_channels(self, call: Call) -> Ordered | None:
        """A normalisation over space, by channel or by group of channels."""
        order, attrs = self.order_of(call.args[0]), call_attrs(call)
        if order is None:
            return None
        places = {name: _moved(attrs[name], order) for name in ("axes", "channel_axis")}
        args = [self.twins[call.args[0]][0], *call.args[1:]]
        return self.again(call, args, order, **places), order

    def concat(self, call: Call) -> Ordered | None:
        """A concatenation of values that are written out as a tuple."""
        parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
        order = next((o for p in parts if (o := self.order_of(p)) is not None), None)
        if order is None:
            return None
        name = trait_of(call, Joins).axis
        axis = _moved(call_attrs(call)[name] or 0, order)
        fields = Tuple([self.ordered(p, order) for p in parts])
        return self.again(call, [fields], order, **{name: axis}), order

    def pad(self, call: Call) -> Ordered | None:
        """Padding, given as (before, after) for each axis."""
        order = self.order_of(call.args[0])
        if order is None:
            return None
        name = trait_of(call, Pads).widths
        width = list(call_attrs(call)[name])
        moved = [n for a in order for n in width[2 * a : 2 * a + 2]]
        args = [self.twins[call.args[0]][0], *call.args[1:]]
        return self.again(call, args, order, **{name: moved}), order

    def permute_dims(self, call: Call) -> Ordered | None:
        """A permutation: the twin stays, its order gets other names."""
        order = self.order_of(call.args[0])
        if order is None:
            return None
        axes = call_attrs(call)[trait_of(call, Permutes).axes]
        ndim = len(order)
        axes = list(range(ndim))[::-1] if axes is None else [a % ndim for a in axes]
        renamed = tuple(axes.index(a) for a in order)
        return self.twins[call.args[0]][0], renamed

    def reshape(self, call: Call) -> Ordered | None:
        """A reshape that splits and merges axes which lie together, in order, in the twin."""
        order, old, new = self.order_of(call.args[0]), dims_of(call.args[0]), dims_of(call)
        if order is None or old is None or new is None:
            return None
        groups = _groups(old, new)
        if groups is None:
            return None
        # Axes of size 1 lie anywhere; the others give the order of the groups.
        walk = [a for a in order if old[a] != 1]
        sequence: list[tuple[list[int], list[int]]] = []
        while walk:
            group = next(g for g in groups if walk[0] in g[0])
            members = [a for a in group[0] if old[a] != 1]
            if walk[: len(members)] != members:
                return None
            walk = walk[len(members) :]
            sequence.append(group)
        wide = [a for _, outs in sequence for a in outs if new[a] != 1]
        # Each axis of size 1 stays in its place: an order that other axes give up later is none.
        for a in range(len(new)):
            if new[a] == 1:
                wide.insert(a, a)
        result = tuple(wide)
        twin = self.twins[call.args[0]][0]
        return self.call("reshape", twin, [new[a] for a in result]), result


def _moved(axes: Any, order: Order) -> Any:
    """Where an axis lies in ``order``, or each of several."""
    if isinstance(axes, int):
        return order.index(axes % len(order))
    return sorted(order.index(a % len(order)) for a in axes)


def _size(value: Expr) -> int:
    return math.prod(d if isinstance(d, int) else 1024 for d in dims_of(value) or ())


def _groups(old: Dims, new: Dims) -> list[tuple[list[int], list[int]]] | None:
    """Runs of axes of ``old`` and ``new`` with the same number of elements, as fine as possible.

    None where symbolic or empty dimensions leave it open.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        ins: list[int] = []
        outs: list[int] = []
        if i < len(old) and j < len(new) and old[i] == new[j]:
            groups.append(([i], [j]))
            i, j = i + 1, j + 1
            continue
        a = b = 1
        while a != b or not (ins or outs):
            take_old = i < len(old) and (a <= b or j >= len(new))
            if not take_old and j >= len(new):
                return None
            size = old[i] if take_old else new[j]
            if not isinstance(size, int) or size == 0:
                return None
            if take_old:
                ins.append(i)
                a, i = a * size, i + 1
            else:
                outs.append(j)
                b, j = b * size, j + 1
        groups.append((ins, outs))
    return groups


ANY_ORDER: dict[str | type[Trait], Rule] = {
    Pointwise: Twins.broadcasting,
    Broadcasting: Twins.broadcasting,
    Channelwise: Twins.channelwise,
    Reduction: Twins.reduction,
    AlongAxis: Twins.one_axis,
    Normalises: Twins.norm,
    "relax.nn.group_norm": Twins.norm_of_channels,
    "relax.nn.instance_norm": Twins.norm_of_channels,
    Joins: Twins.concat,
    Pads: Twins.pad,
    Permutes: Twins.permute_dims,
    Reshapes: Twins.reshape,
}
