"""FeatureMajor: linear layers on few rows with the features as the first axis.

XLA:CPU runs ``W (out, in) · X (in, rows)`` faster than ``X (rows, in) · W'``, which reads the same
weight: always on AVX-512, where Eigen multiplies (:mod:`relax2xla.vm.pjrt.dot_library`), elsewhere
where the rows are few (up to about 128: short sequences, small batches). Where Eigen multiplies and
the rows are known when a program is planned, weights copied as (in, out) at load are better still
(:func:`reads_weights_as_they_lie`), so there the pass serves sizes that come with the call, and
products that a source writes in this form.

The pass makes every linear layer produce its result with the features first, and the other
operators follow (see :mod:`relax2xla.transform.layout.propagation`), so that attention runs in that
order too; it keeps the result only if few values had to be transposed, or if what products gain is
worth more.

It needs static shapes, so the machine runs it on each specialised function.
"""

from __future__ import annotations

import math
from string import ascii_lowercase
from typing import NamedTuple

from relax2xla import processor
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Call, Expr, Function, IRModule, Op, Tuple, VarBinding
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.traits import Einsum, MatMul, Permutes, Trait
from relax2xla.op.shared.lowering import dtype_of
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.layout.propagation import Ordered, Rule, Twins, dims_of, identity

# Measured on XLA:CPU without AVX-512: at 128 rows 6 to 10 % faster, at 16 nearly twice as fast, at
# 197 slower; a single row gains nothing, and small matrices are not worth a transposition.
MAX_ROWS = 128
MIN_ROWS = 2
MIN_WEIGHT = 1 << 14
# Full-size values transposed for each linear layer that gains: so few that they need no account.
MAX_TRANSPOSED = 0.35
# The account beyond: seconds gained for each element of a large weight with few rows, and otherwise
# for each multiplication, on AVX-512 and elsewhere; seconds lost for each transposition, and for
# each element of it.
FEW_ROWS = 16
LARGE_WEIGHT = 1 << 18
GAIN_OF_WEIGHT = 2e-10
GAIN = {True: 3e-12, False: 2e-12}
LOSS = 2e-6
LOSS_OF_ELEMENT = 2e-9


@register(opt_level=2, stage="static", platform="cpu")
class FeatureMajor(FunctionPass):
    """Give linear layers on few rows the feature axis first; exact up to rounding.

    ``eigen``: whether Eigen may multiply (:mod:`relax2xla.vm.pjrt.dot_library`), which programs of
    others' options, such as functions of JAX, do not let it.
    """

    def __init__(self, eigen: bool = True) -> None:
        self.eigen = eigen

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return feature_major(func, self.eigen and processor.eigen_multiplies())


class Linear(NamedTuple):
    """A linear layer that gains, ``..i,oi->..o``: subscripts, rows, and elements of the weight."""

    x: str
    weight: str
    rows: int
    elements: int

    @property
    def read_once(self) -> bool:
        """Whether what counts is that the weight is read once, at the speed of memory."""
        return self.rows <= FEW_ROWS and self.elements >= LARGE_WEIGHT

    def gain(self, eigen: bool) -> float:
        """Seconds gained beside the same weight read with the rows first."""
        if self.read_once:
            return GAIN_OF_WEIGHT * self.elements
        return GAIN[eigen] * self.rows * self.elements


def feature_major(func: Function, eigen: bool) -> Function:
    """``func`` with features first where that is faster; itself where it is not."""
    linears = _linears(func, eigen)
    if not linears:
        return func
    made = remove_all_unused(_FeatureMajor(eigen).function(func))
    before, after = _transposed(func), _transposed(made)
    count = len(after) - len(before)
    lost = count * LOSS + (sum(after) - sum(before)) * LOSS_OF_ELEMENT
    pays = (
        count <= MAX_TRANSPOSED * len(linears) or sum(each.gain(eigen) for each in linears) > lost
    )
    return rewrite(made, [_held])[0] if pays else func


_product = is_op("relax.einsum")(wildcard())
_turned = is_op("relax.permute_dims")(_product)


@rule(_turned)
def _held(m: Match) -> Expr | None:
    """A product of few rows that is transposed at once, as a program's logits are.

    XLA would make the transposition part of the product, and have the rows first again. A barrier
    keeps it out; what it keeps from being fused is small. A step of a language model of 125 M
    parameters for four texts takes 0.91 of the time (32000 features, AVX-512).
    """
    call = m.called(_product)
    operands = call.args[0]
    subscripts = str(call_attrs(call)["subscripts"])
    weight, _, rest = subscripts.partition(",")
    x, _, result = rest.partition("->")
    if not isinstance(operands, Tuple) or len(operands.fields) != 2:
        return None
    if len(weight) != 2 or not x.startswith(weight[1]) or result != weight[0] + x[1:]:
        return None
    matrix, dims = (dims_of(f) for f in operands.fields)
    if matrix is None or dims is None:
        return None
    sizes = [d for d in (*matrix, *dims[1:]) if isinstance(d, int)]
    if len(sizes) != len(dims) + 1:
        return None
    linear = Linear(x, weight, math.prod(sizes[2:]), math.prod(sizes[:2]))
    if linear.rows < MIN_ROWS or not linear.read_once:
        return None
    product = m[_product]
    barrier = Op.get("relax.stablehlo.optimization_barrier")(product, span=call.span)
    turned = m.called(_turned)
    given = (turned.attrs, turned.sinfo_args, turned.span)
    return Call(turned.op, [m.bind("product", barrier)], *given, struct_info=m.value.struct_info)


def reads_weights_as_they_lie(func: Function) -> bool:
    """Whether the linear layers of ``func``, ``..i,oi->..o``, are best left with those weights.

    Yes where YNNPACK multiplies, which takes weights either way, and where features may come first.
    Eigen is fastest with weights (in, out), which are copied so once, at load: beside features
    first, the time of networks of 8 to 197 rows is 0.6 to 1.0 (AMD, AVX-512: davit_tiny 0.63,
    swin_t 0.71, BERT at 16 rows 0.78, ViT-B/16 0.89, BERT at 128 rows 0.98, Llama 1.0). Where the
    number of rows is symbolic they stay: a single row reads them as fast, without a copy.
    """
    return not processor.eigen_multiplies() or not _linears(func, eigen=True)


def _linears(func: Function, eigen: bool) -> list[Linear]:
    """The linear layers that gain from having their features first."""
    calls = (b.value for b in bindings_of(func.body) if isinstance(b, VarBinding))
    found = (linear_of(call, eigen) for call in calls if isinstance(call, Call))
    return [each for each in found if each is not None]


def is_linear(subscripts: str, weight: str = "oi") -> bool:
    """Whether an einsum is a linear layer, ``..i,oi->..o``, or with its weight the other way."""
    inputs, _, result = subscripts.partition("->")
    x, _, w = inputs.partition(",")
    if len(w) != 2 or len(x) < 2:
        return False
    inner, outer = w[weight.index("i")], w[weight.index("o")]
    return x[-1] == inner and result == x[:-1] + outer and len({*x, *w}) == len(x) + 1


def linear_of(call: Call, eigen: bool) -> Linear | None:
    """What ``call`` is if it is a linear layer that gains, where Eigen multiplies or YNNPACK."""
    if not isinstance(call.op, Op) or not call.op.has(Einsum):
        return None
    operands = call.args[0]
    subscripts = str(call_attrs(call)["subscripts"])
    if not isinstance(operands, Tuple) or len(operands.fields) != 2 or not is_linear(subscripts):
        return None
    x, _, w = subscripts.partition("->")[0].partition(",")
    dims, matrix = dims_of(operands.fields[0]), dims_of(operands.fields[1])
    if dims is None or matrix is None:
        return None
    sizes = [d for d in (*dims, *matrix) if isinstance(d, int)]
    if len(sizes) != len(dims) + 2:
        return None
    rows = math.prod(sizes[: len(dims) - 1])
    few = rows <= MAX_ROWS or eigen
    elements = math.prod(sizes[-2:])
    gains = rows >= MIN_ROWS and few and elements >= MIN_WEIGHT
    return Linear(x, w, rows, elements) if gains else None


def _transposed(func: Function) -> list[int]:
    """Elements of each value that is permuted, where more than axes of size 1 move.

    Values of unknown size count as one element.
    """
    found: list[int] = []
    for b in bindings_of(func.body):
        value = b.value if isinstance(b, VarBinding) else None
        if isinstance(value, Call) and isinstance(value.op, Op):
            permutes = value.op.trait(Permutes)
            if permutes is None:
                continue
            dims = dims_of(value.args[0])
            axes = call_attrs(value)[permutes.axes]
            if dims is None or axes is None:
                found.append(1)
                continue
            wide = [a for a in axes if dims[a] != 1]
            if wide != sorted(wide):
                found.append(math.prod(d for d in dims if isinstance(d, int)))
    return found


class _FeatureMajor(Twins):
    """The interpreter with rules for linear layers and for products of activations."""

    def __init__(self, eigen: bool) -> None:
        super().__init__(RULES)
        self.eigen = eigen

    def linear(self, call: Call) -> Ordered | None:
        """A linear layer: ``oi,i..->o..``, the result's features first."""
        found = linear_of(call, self.eigen)
        operands = call.args[0]
        if found is None or not isinstance(operands, Tuple):
            return None
        x, w = found.x, found.weight
        value, weight = operands.fields
        last = len(x) - 1
        order = self.order_of(value)
        if order is None or order[0] != last:
            order = (last, *range(last))
        ordered = self.ordered(value, order)
        letters = "".join(x[a] for a in order)
        subscripts = f"{w},{letters}->{w[0]}{letters[1:]}"
        return self.einsum(call, (weight, ordered), subscripts, order), order

    def matmul(self, call: Call) -> Ordered | None:
        """A product of two activations, with the columns of the result first."""
        a, b = call.args
        left, right, result = dims_of(a), dims_of(b), dims_of(call)
        if left is None or right is None or result is None:
            return None
        ndim = len(left)
        first, second = self.order_of(a), self.order_of(b)
        if len(right) != ndim or ndim < 3 or left[:-2] != right[:-2]:
            return None
        if first is None and second is None:
            return None
        if call_attrs(call)["out_dtype"] not in (None, dtype_of(a)):
            return None
        letters = ascii_lowercase[: ndim - 2]
        order_a, order_b = first or identity(ndim), second or identity(ndim)
        in_a = "".join((letters + "yz")[i] for i in order_a)
        in_b = "".join((letters + "zx")[i] for i in order_b)
        batch = "".join(c for c in in_b if c in letters)
        operands = (self.ordered(b, order_b), self.ordered(a, order_a))
        order = tuple((letters + "yx").index(c) for c in batch + "xy")
        return self.einsum(call, operands, f"{in_b},{in_a}->{batch}xy", order), order


RULES: dict[str | type[Trait], Rule] = {
    Einsum: _FeatureMajor.linear,
    MatMul: _FeatureMajor.matmul,
}
