"""CallAttention: attention as one composite, whether it is one operator or written out.

XLA:CPU multiplies queries and keys head by head, writes all scores, reads them for their softmax,
in kernels of their own for the largest, the powers and the sums, and multiplies again, each time
with all threads woken up; operands are transposed before and behind. A function in C++ keeps the
scores of some queries in the nearest cache, and reads rows of heads where they lie
(:mod:`relax2xla.transform.cpu.calls.strided`), as in the result of one product for queries, keys
and values.

As with products (:mod:`relax2xla.transform.cpu.calls.products`) programs hold composites with their
forms in rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Call, Expr, Function, IRModule, Op
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.kernels.attention import FAMILY, MOST_BIASES, Attention, Lie, Rotation, pays
from relax2xla.kernels.native import may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import number_of, own_call, tensor_of
from relax2xla.transform.cpu.calls.rotations import Turned, for_all_heads, halves
from relax2xla.transform.cpu.calls.sites import Sites, with_composites
from relax2xla.transform.cpu.calls.strided import Strided, as_it_lies, strided

_x, _w = wildcard(), wildcard()

# Axes of [batch, rows, heads, width] in themselves, in [batch, heads, rows, width], and in keys as
# a product takes them, [batch, heads, width, rows].
_ROWS_FIRST: Final = (0, 1, 2, 3)
_HEADS_FIRST: Final = (0, 2, 1, 3)
_TURNED: Final = (0, 3, 1, 2)
# Operators between two products that scores pass through, at most.
_LONGEST: Final = 8


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallAttention(Pass):
    """Make composites of attention, static shapes, in float32.

    Of the operators of attention without a window, and of a softmax between two products, where
    scores are only multiplied by a number and added to. Exact up to the order of the additions, and
    in powers within 1e-7. Which these are says :func:`relax2xla.kernels.attention.pays`.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Operand(NamedTuple):
    """A tensor that rows of heads are read from.

    given: its value, maybe under other axes than ``shape``; rows: (batch, rows, heads, width)
    """

    given: Expr
    shape: tuple[int, ...]
    lie: Lie
    rows: tuple[int, ...]


class _Scores(NamedTuple):
    """What a softmax is taken of.

    key: as a product takes it; between: what is read for the softmax alone
    """

    query: Expr
    key: Expr
    scale: float
    biases: tuple[Expr, ...] = ()
    between: tuple[Expr, ...] = ()


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.nn.attention")(varg_default_wildcard=True), self._operator),
            Rule(is_op("relax.nn.attention_bias")(varg_default_wildcard=True), self._operator),
            Rule(is_op("relax.matmul")(_x, _w), self._written),
            Rule(is_op("relax.add")(_x, _w), self._rotated),
        ]

    def rows(self, described: Attention | Rotation, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        if isinstance(described, Rotation):
            return _turned(described, *params)
        d = described
        query = _heads_of(params[0], d.query, d.heads, d.depth)
        key = _heads_of(params[1], d.key, d.heads, d.depth)
        value = _heads_of(params[2], d.value, d.heads, d.wide)
        bias = None
        for more in params[3 : 3 + len(d.biases)]:
            bias = more if bias is None else R.add(bias, more)
        return R.nn.attention(query, key, value, bias, d.scale, d.mask or None)

    def _operator(self, m: Match) -> Expr | None:
        attrs = call_attrs(m.call)
        operands = [_operand(m, e, _ROWS_FIRST) for e in m.call.args[:3]]
        if attrs["window_size"] is not None:
            return None
        return self._called(
            m, operands, attrs["scale"], m.call.args[3:], attrs["causal_mask"] or ""
        )

    def _written(self, m: Match) -> Expr | None:
        """A softmax, and the product behind it."""
        weights, made = own_call(m, m[_x], "relax.nn.softmax"), tensor_of(m.var)
        if weights is None or made is None or made.dtype != "float32":
            return None
        rank = len(made.shape)
        if rank not in (3, 4) or call_attrs(weights)["axis"] not in (-1, rank - 1):
            return None
        found = _scores(m, weights.args[0])
        if found is None:
            return None
        operands = [
            _operand(m, found.query, _HEADS_FIRST),
            _operand(m, found.key, _TURNED),
            _operand(m, m[_w], _HEADS_FIRST),
        ]
        call = self._called(m, operands, found.scale, found.biases, "", rank)
        if call is None:
            return None
        for v in (m[_x], *found.between):
            m.drop(v)
        turned = R.permute_dims(m.bind("heads", call), _HEADS_FIRST)
        return turned if rank == 4 else R.reshape(m.bind("turned", turned), made.shape)

    def _rotated(self, m: Match) -> Expr | None:
        """Rows of heads that are turned by angles."""
        for plain, crossed in ((m[_x], m[_w]), (m[_w], m[_x])):
            found = halves(m, plain, crossed)
            made = None if found is None else self._turn(m, found)
            if made is not None:
                return made
        return None

    def _turn(self, m: Match, found: Turned) -> Expr | None:
        tensor, tables = tensor_of(found.x), [tensor_of(t) for t in (found.cosine, found.sine)]
        if tensor is None or len(tensor.shape) != 4 or tensor != tensor_of(m.var):
            return None
        shapes = [(*[1] * (4 - len(t.shape)), *t.shape) for t in tables if t is not None]
        orders = (_HEADS_FIRST, _ROWS_FIRST)
        axes = next((o for o in orders if for_all_heads(shapes, tensor.shape, o)), ())
        operand = _operand(m, found.x, axes) if axes and len(shapes) == 2 else None
        if operand is None:
            return None
        batch, rows, heads, width = operand.rows
        described = Rotation(batch, rows, heads, width, operand.lie, shapes[0][0], shapes[1][0])
        if described.problem() or not pays(described):
            return None
        given = [
            _under(m, value, (shape[0], rows, width))
            for value, shape in zip((found.cosine, found.sine), shapes, strict=True)
        ]
        made = self.call(described, [_under(m, operand.given, operand.shape), *given])
        for v in found.between:
            m.drop(v)
        return made if axes == _ROWS_FIRST else R.permute_dims(m.bind("rows", made), _HEADS_FIRST)

    def _called(
        self,
        m: Match,
        operands: Sequence[_Operand | None],
        scale: float | None,
        biases: Sequence[Expr],
        mask: str,
        rank: int = 4,
    ) -> Call | None:
        """The composite; None where there is none. ``rank``: of scores, of 3 without heads."""
        known = [o for o in operands if o is not None]
        if len(known) < 3 or len(biases) > MOST_BIASES:
            return None
        query, key, value = known
        batch, queries, heads, depth = query.rows
        keys, wide = value.rows[1], value.rows[3]
        if key.rows != (batch, keys, heads, depth) or value.rows[::2] != (batch, heads):
            return None
        added = [_bias(m, b, rank) for b in biases]
        described = Attention(
            batch,
            heads,
            queries,
            keys,
            depth,
            wide,
            query.lie,
            key.lie,
            value.lie,
            1 / math.sqrt(depth) if scale is None else float(scale),
            tuple((b, h, q, k) for _, (b, h, q, k) in filter(None, added)),
            mask,
        )
        if None in added or described.problem() or not pays(described):
            return None
        given = [(o.given, o.shape) for o in known] + [b for b in added if b is not None]
        taken = [_under(m, value, shape) for value, shape in given]
        none = const(np.zeros(1, "float32"))
        return self.call(described, [*taken, *[none] * (MOST_BIASES - len(added))])


def form(call: Attention | Rotation) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)


def _heads_of(operand: Expr, lie: Lie, heads: int, width: int) -> Expr:
    """Rows of heads [batch, rows, heads, width], of an operand in which they lie so."""
    if not lie.pitch:
        return R.permute_dims(operand, _HEADS_FIRST)
    tensor = tensor_of(operand)
    assert tensor is not None
    rows, end = operand, lie.offset + heads * width
    if end - lie.offset < lie.pitch:
        rows = R.strided_slice(operand, (2,), (lie.offset,), (end,))
    return R.reshape(rows, (*tensor.shape[:2], heads, width))


def _under(m: Match, value: Expr, shape: tuple[int, ...]) -> Expr:
    """``value`` under other axes."""
    tensor = tensor_of(value)
    if tensor is not None and tensor.shape == shape:
        return value
    return m.bind("rows", R.reshape(value, shape))


def _turned(call: Rotation, x: Expr, cosine: Expr, sine: Expr) -> Expr:
    """The rotation in operators."""
    rows = _heads_of(x, call.lie, call.heads, call.width)
    first, second = (
        R.strided_slice(rows, [3], [begin], [begin + call.width // 2])
        for begin in (0, call.width // 2)
    )
    crossed = R.concat((R.negative(second), first), axis=3)
    cosine, sine = (R.expand_dims(t, [2]) for t in (cosine, sine))
    return R.add(R.multiply(rows, cosine), R.multiply(crossed, sine))


# -- where rows lie --------------------------------------------------------------------------------
def _operand(m: Match, value: Expr, axes: Sequence[int]) -> _Operand | None:
    """Where rows of heads are read of a value that has them under ``axes``; None if it has not.

    Those of a value of three axes have one head.
    """
    tensor, view = tensor_of(value), strided(value, m.bound)
    if tensor is None or view is None or tensor.dtype != "float32":
        return None
    if len(tensor.shape) not in (3, 4):
        return None
    found = _found(view, axes) or _found(as_it_lies(value, tensor.shape), axes)
    if found is not None:
        return found
    # Keys whose rows lie across: they are exchanged, as any product of theirs would do.
    last = len(tensor.shape) - 1
    order = (*range(last - 1), last, last - 1)
    turned = as_it_lies(R.permute_dims(value, order), [tensor.shape[a] for a in order])
    return _found(turned, _HEADS_FIRST)


def _found(view: Strided, axes: Sequence[int]) -> _Operand | None:
    """The rows of heads of a view, where a call can read them."""
    if len(view.shape) == 3:
        view = view.expanded(1)
    view = view.permuted(axes)
    batch, rows, heads, width = view.shape
    if not view.size:
        return None
    first = (batch, heads, rows, width)
    if view.is_all() and view.lies((heads * rows * width, width, rows * width, 1)):
        return _Operand(view.base, first, Lie(0), view.shape)
    pitch, rest = divmod(view.size, batch * rows)
    if rest or not view.lies((rows * pitch, pitch, width, 1)):
        return None
    return _Operand(view.base, (batch, rows, pitch), Lie(pitch, view.offset), view.shape)


# -- what a softmax is taken of --------------------------------------------------------------------
def _scores(m: Match, value: Expr, left: int = _LONGEST) -> _Scores | None:
    """The product that ``value`` is made of, and what happens to it; None for another value."""
    call = m.bound(value)
    if not left or not isinstance(call, Call) or m.uses(value) != 1:
        return None
    found = _step(m, value, call, left)
    return None if found is None else found._replace(between=(value, *found.between))


def _step(m: Match, value: Expr, call: Call, left: int) -> _Scores | None:
    if not isinstance(call.op, Op):
        return None
    if call.op.name == "relax.matmul":
        return _product(m, call)
    if call.op.name == "relax.reshape":
        # More axes of one number before the others, or fewer, as for what has other axes.
        shapes = [_significant(e) for e in (value, call.args[0])]
        return _scores(m, call.args[0], left - 1) if shapes[0] == shapes[1] else None
    if call.op.name == "relax.add":
        for one, other in (call.args, call.args[::-1]):
            found = _scores(m, one, left - 1)
            if found is not None:
                return found._replace(biases=(*found.biases, other))
        return None
    inner, factor = _multiplied(call)
    found = None if inner is None else _scores(m, inner, left - 1)
    # What has been added would be multiplied as well.
    if found is None or found.biases:
        return None
    return found._replace(scale=found.scale * factor)


def _product(m: Match, call: Call) -> _Scores | None:
    query, key = call.args
    tensors = tensor_of(query), tensor_of(key)
    shapes = [t.shape for t in tensors if t is not None]
    if len(shapes) < 2 or shapes[0][:-2] != shapes[1][:-2]:
        return None
    found = _Scores(query, key, 1.0)
    for name, operand in (("query", query), ("key", key)):
        value = m.bound(operand)
        inner, factor = _multiplied(value) if isinstance(value, Call) else (None, 1.0)
        if inner is not None and m.uses(operand) == 1:
            found = found._replace(
                **{name: inner},
                scale=found.scale * factor,
                between=(operand, *found.between),
            )
    return found


def _multiplied(call: Call) -> tuple[Expr | None, float]:
    """What is multiplied by a number, or divided by one, and the factor; None where nothing is."""
    if not isinstance(call.op, Op) or call.op.name not in ("relax.multiply", "relax.divide"):
        return None, 1.0
    a, b = call.args
    factor = number_of(b)
    if call.op.name == "relax.multiply":
        if factor is None:
            a, factor = b, number_of(a)
    elif factor:
        factor = 1 / factor
    tensors = tensor_of(a), tensor_of(call)
    if not factor or tensors[0] != tensors[1]:
        return None, 1.0
    return a, factor


def _significant(value: Expr) -> tuple[int, ...]:
    """The sizes of a value from the first on that is not 1."""
    tensor = tensor_of(value)
    shape = () if tensor is None else tensor.shape
    return tuple(itertools.dropwhile(lambda size: size == 1, shape))


def _bias(m: Match, value: Expr, rank: int) -> tuple[Expr, tuple[int, ...]] | None:
    """What is added to scores, before it is spread, and its shape under their four axes."""
    spread = m.bound(value)
    if isinstance(spread, Call) and spread.op is Op.get("relax.broadcast_to"):
        value = spread.args[0]
    tensor = tensor_of(value)
    if tensor is None or tensor.dtype != "float32":
        return None
    more = len(tensor.shape) - rank
    if any(size != 1 for size in tensor.shape[: max(0, more)]):
        return None
    shape = (*[1] * -more, *tensor.shape[max(0, more) :])
    return value, shape if rank == 4 else (shape[0], 1, *shape[1:])
