"""CallOneDnn: convolutions and products, with what follows them, as composites.

A composite is a function with a name that says what it computes, and its body says how: in the
operators that it was made of, which the passes behind this one and LegalizeOps lower as they do
anywhere. Where oneDNN is at hand, the compiler calls it for such a name
(:mod:`relax2xla.vm.pjrt.onednn`); wherever it is not, XLA compiles the body. So programs, files and
derivatives hold rows, and the choice is made on the machine that runs.

What is fused is exact up to rounding. A relu is not among it: oneDNN's gives 0 for what is no
number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_deep, bindings_of, reads
from relax2xla.kernels import depthwise, products, recurrences, squeezes
from relax2xla.kernels.onednn import choice
from relax2xla.kernels.onednn.calls import FORMS, Convolution, Product
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import tensor_of

# Operators to what oneDNN calls them.
_FUNCTIONS: Final[Mapping[str, str]] = {
    "relax.sigmoid": "SIGMOID",
    "relax.tanh": "TANH",
    "relax.nn.gelu": "GELU_ERF",
    "relax.nn.gelu_tanh": "GELU_TANH",
}
_FORMS_OF: Final = (depthwise.FAMILY, products.FAMILY, recurrences.FAMILY, squeezes.FAMILY)
_SPATIAL: Final = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW", "relax.nn.conv3d": "DHW"}
# Calls of either kind in one.
Described = Convolution | Product


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallOneDnn(Pass):
    """Make composites of the convolutions and products that oneDNN computes faster, static shapes.

    Where the environment has ``RELAX2XLA_ONEDNN=1``. Exact up to the order of the additions. Which
    these are says a table of measurements (``relax2xla/kernels/onednn/choice.py``).
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if not choice.may_call():
            return mod
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            if any(f.forms in gvar.name_hint for f in _FORMS_OF):
                continue  # what a call of a function in C++ is in rows
            calls = _Calls(gvar.name_hint)
            new[gvar] = calls.function(func)
            new.update(calls.made)
        return mod.replace(new) if len(new) > len(mod.functions) else mod


class _Site(NamedTuple):
    """A call that can be made in the place of a binding: what it is, and what it takes.

    replaced: the operands in whose place it takes others, of which they are conversions; orders:
    by which axes of the operands, and of the result, the call has in its places; empty: as they are
    """

    described: Described
    operands: list[Expr]
    replaced: list[Expr]
    orders: list[list[int]]


@dataclass(frozen=True)
class _Group:
    """Bindings that become one composite: the first is ``site``, the others follow each other."""

    site: _Site
    bindings: list[VarBinding]
    described: Described
    operands: list[Expr]


class _Calls:
    """The composites of one function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: dict[GlobalVar, Function] = {}

    def function(self, func: Function) -> Function:
        """``func`` with composites; itself where there is nothing to call."""
        bound = {b.var: b.value for b in bindings_of(func.body) if isinstance(b, VarBinding)}
        sites = {v: s for v, value in bound.items() if (s := _site(value, bound)) is not None}
        if not sites:
            return func
        uses = _uses(func)
        blocks = [self._block(block, sites, uses) for block in func.body.blocks]
        return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))

    def _block(
        self, block: BindingBlock, sites: Mapping[Var, _Site], uses: Counter[Var]
    ) -> BindingBlock:
        readers = _readers(block.bindings)
        groups: dict[Var, _Group] = {}
        taken: set[Var] = set()
        for b in block.bindings:
            if b.var in sites and isinstance(b, VarBinding):
                group = _grown(sites[b.var], b, readers, uses)
                groups[group.bindings[-1].var] = group
                taken.update(x.var for x in group.bindings)
        if not groups:
            return block
        out: list[Binding] = []
        for b in block.bindings:
            if b.var in groups:
                out += self._composite(groups[b.var])
            elif b.var not in taken:
                out.append(b)
        return type(block)(out, block.span)

    def _composite(self, group: _Group) -> Iterator[Binding]:
        """The bindings in the place of the last of a group."""
        last = group.bindings[-1]
        orders = group.site.orders
        given: list[Expr] = []
        for i, operand in enumerate(group.operands):
            value = _arranged(operand, orders[i] if orders and i < 2 else [], group.described, i)
            if value is operand:
                given.append(operand)
            else:
                var = type(last.var)(f"{last.var.name_hint}_operand", value.struct_info, last.span)
                yield VarBinding(var, value, last.span)
                given.append(var)
        symbol = f"{self.name}{FORMS}{len(self.made)}"
        body = _form(group, [g.struct_info for g in given])
        self.made[GlobalVar(symbol)] = body
        described, info = group.described, body.ret_struct_info
        value = Op.get("relax.stablehlo.composite")(
            *given,
            name=described.name,
            composite_attributes=described.attributes,
            decomposition=symbol,
            sinfo_args=[info],
            span=last.value.span,
        )
        if orders:
            var = type(last.var)(f"{last.var.name_hint}_called", info, last.span)
            yield VarBinding(var, value, last.span)
            value = _permuted(var, _inverse(orders[2]))
        yield VarBinding(last.var, value, last.span)


def _form(group: _Group, infos: Sequence[Any]) -> Function:
    """The function that a composite names: the bindings of the group on parameters."""
    orders = group.site.orders
    params = [Var(f"x{i}", info) for i, info in enumerate(infos)]
    values: dict[Expr, Var] = {}
    bindings: list[Binding] = []
    read = [*group.site.replaced, *group.operands[2:]]
    for i, (operand, param) in enumerate(zip(read, params, strict=True)):
        values[operand] = param
        if i < 2:
            value = _permuted(param, _inverse(orders[i])) if orders else param
            if _dtype(operand) != _dtype(param):
                value = Op.get("relax.astype")(param, dtype=_dtype(operand))
            if value is not param:
                values[operand] = Var(f"x{i}_given", value.struct_info)
                bindings.append(VarBinding(values[operand], value))
    for b in group.bindings:
        call = b.value
        assert isinstance(call, Call)
        args = [values.get(a, a) for a in call.args]
        made = Call(call.op, args, call.attrs, call.sinfo_args, call.span)
        values[b.var] = Var(b.var.name_hint, b.var.struct_info, b.span)
        bindings.append(VarBinding(values[b.var], made, b.span))
    result = values[group.bindings[-1].var]
    if orders:
        var = Var("result", _permuted(result, orders[2]).struct_info)
        bindings.append(VarBinding(var, _permuted(result, orders[2])))
        result = var
    return Function(params, SeqExpr([BindingBlock(bindings)], result), result.struct_info)


# -- what can be called ----------------------------------------------------------------------------
def _site(value: Expr, bound: Mapping[Var, Expr]) -> _Site | None:
    """The call that is faster than ``value`` on some processor; None where there is none."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None
    if value.op.name in _SPATIAL:
        site = _convolution(value)
    elif value.op.name == "relax.matmul":
        site = _product(value, bound)
    else:
        return None
    if site is None or site.described.problem():
        return None
    return site if choice.is_faster_somewhere(site.described) else None


def _convolution(call: Call) -> _Site | None:
    image, window, result = (tensor_of(v) for v in (*call.args[:2], call))
    if image is None or window is None or result is None:
        return None
    if {image.dtype, window.dtype, result.dtype} != {"float32"}:
        return None
    assert isinstance(call.op, Op)
    attrs, spatial = call_attrs(call), _SPATIAL[call.op.name]
    data = str(attrs["data_layout"])
    given = (data, str(attrs["kernel_layout"]), str(attrs["out_layout"] or data))
    wanted = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    if any(sorted(g) != sorted(w) for g, w in zip(given, wanted, strict=True)):
        return None  # packed
    orders = [[g.index(axis) for axis in w] for g, w in zip(given, wanted, strict=True)]
    low, high = (attrs["padding"][at:][: len(spatial)] for at in (0, len(spatial)))
    described = Convolution(
        tuple(image.shape[a] for a in orders[0]),
        tuple(window.shape[a] for a in orders[1]),
        tuple(attrs["strides"]),
        tuple(int(p) for pair in zip(low, high, strict=True) for p in pair),
        tuple(attrs["dilation"]),
        attrs["groups"],
    )
    plain = given == wanted
    operands = list(call.args[:2])
    return _Site(described, operands, operands, [] if plain else orders)


def _product(call: Call, bound: Mapping[Var, Expr]) -> _Site | None:
    """A product of integers of 8 bits: converted before, or by the product itself."""
    result = tensor_of(call)
    if result is None or result.dtype != "int32":
        return None
    operands = [_narrow(a, bound) for a in call.args]
    kinds = [tensor_of(o) for o in operands]
    if not all(k is not None and k.dtype in ("int8", "uint8") for k in kinds):
        return None
    left, right = [k for k in kinds if k is not None]
    return _Site(Product(left, right), operands, list(call.args), [])


def _narrow(operand: Expr, bound: Mapping[Var, Expr]) -> Expr:
    """What is converted to int32 there, where that is all that is done; else the operand."""
    value = bound.get(operand) if isinstance(operand, Var) else None
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == "relax.astype":
        return value.args[0]
    return operand


# -- what follows ----------------------------------------------------------------------------------
def _grown(
    site: _Site,
    first: VarBinding,
    readers: Mapping[Var, list[VarBinding]],
    uses: Counter[Var],
) -> _Group:
    """``site`` with as many of the bindings behind it as one call can take."""
    group = _Group(site, [first], site.described, list(site.operands))
    # In another order of axes a bias is no vector of the last.
    while not site.orders:
        var = group.bindings[-1].var
        following = readers.get(var, [])
        if uses[var] != 1 or len(following) != 1:
            break
        grown = _with(group, var, following[0])
        if grown is None or grown.described.problem():
            break
        group = grown
    return group


def _with(group: _Group, var: Var, b: VarBinding) -> _Group | None:
    call = b.value
    if not isinstance(call, Call) or not isinstance(call.op, Op):
        return None
    extra: list[Expr] = []
    fusion = _FUNCTIONS.get(call.op.name)
    if call.op.name == "relax.add":
        (other,) = [a for a in call.args if a is not var]
        fusion = _addition(group, other)
        extra = [other]
    if fusion is None or tensor_of(call) != group.described.result:
        return None
    described = replace(group.described, fusions=(*group.described.fusions, fusion))
    return _Group(group.site, [*group.bindings, b], described, [*group.operands, *extra])


def _addition(group: _Group, other: Expr) -> str | None:
    """What an addition to the result of a group is; None where it is nothing that can be fused."""
    given, result = tensor_of(other), group.described.result
    if given is None or given.dtype != result.dtype or not isinstance(other, Var):
        return None
    if given.shape == result.shape:
        return "BINARY_ADD"
    ones = given.shape[:-1] == (1,) * (len(given.shape) - 1)
    channels = ones and given.shape[-1:] == result.shape[-1:] and len(given.shape) >= 1
    return "BIAS" if channels and not group.described.fusions else None


def _arranged(operand: Expr, order: Sequence[int], described: Described, place: int) -> Expr:
    """An operand as the call takes it."""
    if order:
        return _permuted(operand, order)
    wanted = described.operands[place]
    given = tensor_of(operand)
    assert given is not None
    if given.shape != wanted.shape:
        return Op.get("relax.reshape")(operand, wanted.shape)
    return operand


# -- small things ----------------------------------------------------------------------------------
def _dtype(value: Expr) -> str:
    info = value.struct_info
    assert isinstance(info, TensorStructInfo)
    return info.dtype


def _permuted(value: Expr, order: Sequence[int]) -> Call:
    return Op.get("relax.permute_dims")(value, list(order))


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


def _readers(bindings: Sequence[Binding]) -> dict[Var, list[VarBinding]]:
    """By variable the bindings that read it, in order, each once."""
    found: dict[Var, list[VarBinding]] = {}
    for b in bindings:
        if isinstance(b, VarBinding):
            for var in dict.fromkeys(reads(b.value)):
                found.setdefault(var, []).append(b)
    return found


def _uses(func: Function) -> Counter[Var]:
    """How often variables are read in a function, wherever."""
    found: Counter[Var] = Counter()
    for b in bindings_deep(func):
        found.update(reads(b.value))
    found.update(reads(func.body.body))
    return found
