"""CombineParallelMatmul: several products with the same matrix on the left become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relax2xla import op
from relax2xla.analysis.variables import free_vars, get_var2val
from relax2xla.dpl.emit import Emitter
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
    Op,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.algebra.common import one_dtype, shape, tensor
from relax2xla.transform.core import FunctionPass, PassContext, register

Check: TypeAlias = Callable[[Var, list[Expr], list[Expr], Mapping[Var, Expr]], bool]
ACTIVATIONS = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu")


@register()
class CombineParallelMatmul(FunctionPass):
    """Write products ``matmul(x, w1)``, ``matmul(x, w2)`` of a dataflow block as one with both
    weights side by side, and split the result.

    Weights of one rank, dtype and batch go together; at most one may have a symbolic number of
    columns. Where all products of ``x`` are followed by an addition of a vector (or of anything of
    their own shape), or by the same activation (relu, gelu, gelu_tanh, silu), or by both, that is
    done once, too. ``check(x, weights, biases, values)``: whether to combine these; ``values`` are
    what variables are bound to. Results change by rounding.

    One large product keeps a machine busier than several small ones. The weights are joined once,
    if they are constants (LiftWeights) or LiftTransformParams comes after this pass; if they are
    arguments, at every call, and then it may cost more than it saves.

    Measured: three projections 512 to 512 of 64 rows, weights constants: 2.69, 2.46; eight of 256
    to 64 of one row: 0.040, 0.038
    """

    def __init__(self, check: Check | None = None) -> None:
        self.check = check

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Combiner(func, self.check).function(func)


@dataclass(slots=True)
class _Branch:
    """A product and what follows it.

    steps: the bindings of the product, the addition and the activation, as far as they are there;
    bias: what is added; activation: the operator's name
    """

    weight: Expr
    steps: list[VarBinding]
    bias: Expr | None = None
    activation: str = ""

    @property
    def columns(self) -> object:
        """The size of the last axis."""
        known = shape(self.weight)
        return known[-1] if known else None


@dataclass(slots=True)
class _Group:
    """Branches that become one, with those of the steps that all have."""

    branches: list[_Branch]
    biased: bool
    activation: str

    def steps(self, branch: _Branch) -> list[VarBinding]:
        """The steps of a branch that the joined product does; the last of them is replaced."""
        return branch.steps[: 1 + self.biased + bool(self.activation)]

    def last(self, branch: _Branch) -> VarBinding:
        """The step whose value is replaced."""
        return self.steps(branch)[-1]

    def operands(self) -> list[Expr]:
        """What the joined product needs beside ``x``."""
        biases = [b.bias for b in self.branches if b.bias is not None] if self.biased else []
        return [*(b.weight for b in self.branches), *biases]


class _Combiner(Rewriter):
    """Walks a function and combines in each dataflow block, inside of branches too."""

    def __init__(self, func: Function, check: Check | None) -> None:
        super().__init__()
        self.check = check
        self._func = func
        self._values: Mapping[Var, Expr] | None = None

    def block(self, block: BindingBlock) -> BindingBlock:
        if isinstance(block, DataflowBlock):
            block = self._combined(block)
        return super().block(block)

    def _combined(self, block: DataflowBlock) -> DataflowBlock:
        branches = _branches(block)
        if not branches:
            return block
        place = {b.var: i for i, b in enumerate(block.bindings)}
        inside = _Order(block, branches, place)
        groups: dict[Var, _Group] = {}  # by the variable that is bound first
        for x, found in branches.items():
            for alike in _alike(x, found):
                group = inside.possible(_group(alike))
                if len(group.branches) > 1 and self._wanted(x, group):
                    first = min((group.last(b).var for b in group.branches), key=place.__getitem__)
                    groups[first] = group
        return _emitted(block, groups, inside) if groups else block

    def _wanted(self, x: Var, group: _Group) -> bool:
        if self.check is None:
            return True
        if self._values is None:
            self._values = get_var2val(self._func)
        operands, count = group.operands(), len(group.branches)
        return bool(self.check(x, operands[:count], operands[count:], self._values))


def _branches(block: DataflowBlock) -> dict[Var, list[_Branch]]:
    """The products of a block by what is on their left, if it is there more than once."""
    readers: dict[Var, list[VarBinding | None]] = {}
    found: dict[Var, list[_Branch]] = {}
    products: list[_Branch] = []
    for b in block.bindings:
        for v in free_vars(b.value):
            readers.setdefault(v, []).append(b if isinstance(b, VarBinding) else None)
        if not isinstance(b, VarBinding) or not is_op(b.value, "relax.matmul"):
            continue
        assert isinstance(b.value, Call)
        x, weight = b.value.args
        known = shape(weight)
        if isinstance(x, Var) and tensor(x) is not None and known is not None and len(known) > 1:
            branch = _Branch(weight, [b])
            found.setdefault(x, []).append(branch)
            products.append(branch)
    for branch in products:
        _follow(branch, readers)
    return {x: some for x, some in found.items() if len(some) > 1}


def _follow(branch: _Branch, readers: Mapping[Var, Sequence[VarBinding | None]]) -> None:
    """Add what alone reads the product, and what alone reads that."""
    for _ in range(2):
        var = branch.steps[-1].var
        users = readers.get(var, ())
        if len(users) != 1 or users[0] is None or not isinstance(var, DataflowVar):
            return
        call = users[0].value
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return
        if is_op(call, "relax.add") and branch.bias is None and call.args[0] is var:
            bias = call.args[1]
            if not _is_bias(bias, branch, call):
                return
            branch.bias = bias
        elif call.op.name in ACTIVATIONS:
            branch.activation = call.op.name
            branch.steps.append(users[0])
            return
        else:
            return
        branch.steps.append(users[0])


def _is_bias(bias: Expr, branch: _Branch, added: Call) -> bool:
    """Whether what is added has a part for each column, and leaves the product's shape."""
    product, known = branch.steps[0].value, shape(bias)
    if known is None or bias is branch.steps[0].var or not one_dtype(bias, product):
        return False
    return bool(known) and known[-1] == branch.columns and shape(product) == shape(added)


def _alike(x: Var, branches: Sequence[_Branch]) -> list[list[_Branch]]:
    """Branches whose weights can stand side by side, with at most one symbolic size, the last.

    As in TVM, weights of one rank whose batches differ are not combined at all.
    """
    by_kind: dict[object, list[_Branch]] = {}
    for branch in branches:
        known, info = shape(branch.weight), branch.weight.struct_info
        assert known is not None
        assert isinstance(info, TensorStructInfo)
        result = branch.steps[0].value.struct_info_
        dtype = result.dtype if isinstance(result, TensorStructInfo) else ""
        by_kind.setdefault((len(known), info.dtype, info.vdevice, dtype), []).append(branch)
    found: list[list[_Branch]] = []
    for some in by_kind.values():
        if len({(shape(b.weight) or ())[:-1] for b in some}) > 1:
            continue
        fixed = [b for b in some if isinstance(b.columns, int)]
        free = [b for b in some if not isinstance(b.columns, int)]
        found.append([*fixed, *free[:1]])
    return found


def _group(branches: list[_Branch]) -> _Group:
    """What of the steps of ``branches`` is the same for all of them."""
    shapes = [None if b.bias is None else (shape(b.bias) or ())[:-1] for b in branches]
    biased = None not in shapes and len(set(shapes)) == 1
    activations = {b.activation for b in branches}
    # Without the additions, an activation behind one is not that of the product.
    whole = biased or all(b.bias is None for b in branches)
    return _Group(branches, biased, activations.pop() if whole and len(activations) == 1 else "")


class _Order:
    """What in a block must come before what.

    A joined product stands where the first of its branches has stood. What its operands are
    computed from may have stood behind that, and moves before it; this is allowed where it depends
    on no product that may be joined itself.
    """

    def __init__(
        self, block: DataflowBlock, branches: Mapping[Var, list[_Branch]], place: Mapping[Var, int]
    ) -> None:
        self.bindings, self.place = block.bindings, place
        self.late: set[Var] = {s.var for bs in branches.values() for b in bs for s in b.steps}
        for b in block.bindings:
            if not self.late.isdisjoint(free_vars(b.value)):
                self.late.add(b.var)

    def possible(self, group: _Group) -> _Group:
        """Those of a group that can be joined; without additions, where these hinder."""
        first = min(self.place[group.last(b).var] for b in group.branches)

        def early(value: Expr | None) -> bool:
            if isinstance(value, Constant) or value is None:
                return True
            return isinstance(value, Var) and (value not in self.late or self.place[value] < first)

        if group.biased and not all(early(b.bias) for b in group.branches):
            return self.possible(_Group(group.branches, False, ""))
        group.branches = [b for b in group.branches if early(b.weight)]
        return group


def _emitted(block: DataflowBlock, groups: Mapping[Var, _Group], order: _Order) -> DataflowBlock:
    """``block`` with joined products in the place of the groups."""
    out: list[Binding] = []
    emitter = Emitter(out, True)
    done: set[Var] = set()
    fields: dict[Var, Expr] = {}
    spare = {s.var for g in groups.values() for b in g.branches for s in g.steps(b)[:-1]}

    def before(values: Sequence[Expr]) -> None:
        """The bindings that ``values`` need and that have not come yet."""
        todo = [v for v in reversed(values) if isinstance(v, Var)]
        while todo:
            var = todo[-1]
            if var in done or var not in order.place:
                todo.pop()
                continue
            b = order.bindings[order.place[var]]
            missing = [v for v in free_vars(b.value) if v in order.place and v not in done]
            if missing:
                todo += reversed(missing)
                continue
            todo.pop()
            done.add(var)
            out.append(b)

    for b in block.bindings:
        if b.var in groups:
            group = groups[b.var]
            before(group.operands())
            parts = emitter.operand(_joined(group), b.span)
            for i, branch in enumerate(group.branches):
                fields[group.last(branch).var] = TupleGetItem(parts, i)
        if b.var in spare or b.var in done:
            continue
        done.add(b.var)
        value = fields.get(b.var)
        out.append(b if value is None else VarBinding(b.var, value, b.span))
    return DataflowBlock(out, block.span)


def _joined(group: _Group) -> Expr:
    """The tuple of the results of a group."""
    first = group.branches[0].steps[0].value
    assert isinstance(first, Call)
    info = first.struct_info
    assert isinstance(info, TensorStructInfo)
    operands, count = group.operands(), len(group.branches)
    weights, biases = operands[:count], operands[count:]
    rank, ends = len(shape(weights[0]) or ()), 0
    value = op.matmul(first.args[0], op.concat(weights, rank - 1), info.dtype or None)
    if group.biased:
        value = op.add(value, op.concat(biases, len(shape(biases[0]) or ()) - 1))
    if group.activation:
        value = Op.get(group.activation)(value)
    sections: list[int] = []
    for branch in group.branches[:-1]:
        assert isinstance(branch.columns, int)
        ends += branch.columns
        sections.append(ends)
    # Each part is what the product was; inference cannot tell that symbolic sizes are not negative.
    parts = op.split(value, sections, info.ndim - 1)
    known = TupleStructInfo([b.steps[0].value.struct_info for b in group.branches])
    return Call(parts.op, parts.args, parts.attrs, struct_info=known)
