"""CallRecurrences: recurrent layers with constant weights, all their steps as one composite.

Importers step a cell over a sequence in a ``while``. XLA computes what is in its body kernel by
kernel, and a step of one row takes about as long as starting these. A function in C++ takes all
steps, on threads that stay for them. As with products
(:mod:`relax2xla.transform.cpu.calls.products`) programs hold composites with their forms in rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from relax2xla import op as R
from relax2xla.dpl.make import is_op
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs, constant_value
from relax2xla.ir.op import is_op as is_call
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels.native import Tensor, may_call
from relax2xla.kernels.products import PANEL
from relax2xla.kernels.recurrences import CELLS, FAMILY, Recurrence, pays
from relax2xla.op.shared.lowering import region
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.cpu.calls.sites import Sites, with_composites

_WHILE: Final = "relax.stablehlo.while_"
_PUT: Final = "relax.stablehlo.dynamic_update_slice"


@register(opt_level=2, platform="cpu", one_device=True)
class CallRecurrences(Pass):
    """Make composites of recurrent layers whose weight of the state is constant, static shapes.

    LSTMs without peepholes or projections, GRUs that reset behind the product, and cells of tanh or
    relu, in float32, in either direction. Exact up to the order of the additions, and in
    activations within 3e-7 of their size. Which these are says
    :func:`relax2xla.kernels.recurrences.pays`.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [Rule(is_op(_WHILE)(varg_default_wildcard=True), self._loop)]

    def rows(self, described: Recurrence, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        return _Form(described, params).result()

    def _loop(self, m: Match) -> Expr | None:
        found = _read(m)
        if found is None:
            return None
        cell, described = found.cell, found.described
        if described.problem() or not pays(described) or not m.from_constants(cell.weight):
            return None
        wide = described.gates * described.size
        biases = [m.bind("bias", R.reshape(b, (wide,))) for b in cell.biases]
        bias: Expr = const(np.zeros(wide, "float32")) if not biases else biases[0]
        for more in biases[1:]:
            bias = m.bind("bias", R.add(bias, more))
        cells = const(np.zeros(1, "float32")) if found.cells is None else found.cells
        panels = m.bind("panels", packed(cell.weight, described))
        operands = [cell.rows, panels, bias, found.state, cells]
        made = m.bind("states", self.call(described, operands))
        return Tuple([m.bind("last", v) for v in found.results(made)])


# -- a loop that steps a cell ----------------------------------------------------------------------
class _Other(Exception):
    """The loop is another one."""


class _Cell(NamedTuple):
    """What a step computes.

    rows: the input's part of the sums; weight: (H, gates * H); biases: of the state's part, which
    are added up; order: of the gates there
    """

    kind: str
    rows: Expr
    weight: Expr
    biases: Sequence[Expr]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that is a recurrence; ``places``: of the state, the stack, the step and the cells."""

    cell: _Cell
    described: Recurrence
    state: Expr
    cells: Expr | None
    places: Sequence[str]

    def results(self, made: Expr) -> list[Expr]:
        """What the loop gives, of what the call gives."""
        d = self.described
        state = (d.batch, d.size)

        def row(at: int) -> Expr:
            return R.reshape(R.strided_slice(made, (0,), (at,), (at + 1,)), state)

        stack = made if d.cell != "lstm" else R.strided_slice(made, (0,), (0,), (d.steps,))
        values = {
            "stack": stack,
            "step": const(np.array(d.steps, "int64")),
            "state": row(0 if d.backwards else d.steps - 1),
            "cells": row(d.steps) if d.cell == "lstm" else made,
        }
        return [values[p] for p in self.places]


def _read(m: Match) -> _Loop | None:
    """The recurrence that a ``while`` is; None for another loop."""
    *starts, test, step = m.call.args
    found = [m.bound(f) for f in (test, step)]
    if not all(isinstance(f, Function) for f in found):
        return None
    try:
        return _loop_of(starts, *(_Body(f) for f in found if isinstance(f, Function)))
    except _Other:
        return None


def _loop_of(starts: Sequence[Expr], test: _Body, body: _Body) -> _Loop:
    results, params = body.results, body.params
    if len(results) != len(params):
        raise _Other  # a tuple that something else gives
    places = [""] * len(params)
    for i, (p, new) in enumerate(zip(params, results, strict=True)):
        grown, put = body.seen(new, "relax.add"), body.seen(new, _PUT)
        if grown and grown.args[0] is p and body.number(grown.args[1]) == 1:
            places[i] = "step"
        elif put and put.args[0] is p:
            places[i] = "stack"
    if places.count("step") != 1 or places.count("stack") != 1 or len(params) > 4:
        raise _Other
    at_step, at_stack = places.index("step"), places.index("stack")
    body.step = params[at_step]
    put = body.call(results[at_stack], _PUT)
    update = body.call(put.args[1], "relax.expand_dims")
    if tuple(call_attrs(update)["axis"] or ()) != (0,):
        raise _Other
    state = update.args[0]
    for i, new in enumerate(results):
        if not places[i]:
            places[i] = "state" if new is state else "cells"
    if places.count("state") != 1 or places.count("cells") > 1:
        raise _Other
    at_state = places.index("state")
    at_cells = places.index("cells") if "cells" in places else None
    cell = _cell(
        body,
        params[at_state],
        state,
        None if at_cells is None else (params[at_cells], results[at_cells]),
    )
    rows, first = tensor_of(cell.rows), tensor_of(starts[at_state])
    stack = tensor_of(params[at_stack])
    if rows is None or first is None or stack is None or len(rows.shape) != 3:
        raise _Other
    length, batch, wide = rows.shape
    size = wide // CELLS[cell.kind]
    body.length = length
    backwards = body.place(put.args[2:])
    described = Recurrence(cell.kind, length, batch, size, cell.order, backwards)
    begin = None if at_cells is None else starts[at_cells]
    taken = [cell.rows, starts[at_state], *([] if begin is None else [begin])]
    wanted = [described.operands[0], *[described.operands[3]] * (len(taken) - 1)]
    if [tensor_of(v) for v in taken] != wanted or stack.shape != (length, batch, size):
        raise _Other
    if tensor_of(cell.weight) != Tensor((size, wide), "float32"):
        raise _Other
    # The rows are read where the states are written, and each step is one.
    if body.reads != {backwards}:
        raise _Other
    compared = test.call(test.results[0], "relax.less")
    if compared.args[0] is not test.params[at_step] or test.number(compared.args[1]) != length:
        raise _Other
    if test.number(starts[at_step]) != 0 or tensor_of(starts[at_step]) != Tensor((), "int64"):
        raise _Other
    return _Loop(cell, described, starts[at_state], begin, places)


def _cell(body: _Body, state: Var, new: Expr, cells: tuple[Var, Expr] | None) -> _Cell:
    """The cell that makes ``new`` of the state, and the cells if there are any."""
    if cells is not None:
        return _lstm(body, state, new, *cells)
    for kind, name in (("tanh", "relax.tanh"), ("relu", "relax.nn.relu")):
        if call := body.seen(new, name):
            rows, weight, biases = body.sums(call.args[0], state)
            return _Cell(kind, rows, weight, biases, (0,))
    return _gru(body, state, new)


def _lstm(body: _Body, state: Var, new: Expr, before: Var, cell: Expr) -> _Cell:
    gate, seen = body.pair(new, "relax.multiply", "relax.sigmoid", "relax.tanh")
    if seen is not cell:
        raise _Other
    kept, made = body.ordered(cell, "relax.add", lambda e: body.reads_term(e, before))
    _, forget = body.ordered(kept, "relax.multiply", lambda e: e is before)
    i, g = body.pair(made, "relax.multiply", "relax.sigmoid", "relax.tanh")
    f = body.call(forget, "relax.sigmoid").args[0]
    parts = [body.part(e, 4) for e in (i, f, g, gate)]
    sums = {source for source, _ in parts}
    if len(sums) != 1:
        raise _Other
    rows, weight, biases = body.sums(sums.pop(), state)
    return _Cell("lstm", rows, weight, biases, tuple(k for _, k in parts))


def _gru(body: _Body, state: Var, new: Expr) -> _Cell:
    """``(1 - z) n + z h`` with ``n = tanh(x_n + r (h W + b)_n)``."""
    kept, made = body.ordered(new, "relax.add", lambda e: body.reads_term(e, state))
    _, update = body.ordered(kept, "relax.multiply", lambda e: e is state)
    rest, fresh = body.ordered(made, "relax.multiply", lambda e: body.seen(e, "relax.subtract"))
    one, taken = body.terms(rest, "relax.subtract")
    if body.number(one) != 1 or taken is not update:
        raise _Other
    given: list[tuple[Expr, int]] = []
    own: list[tuple[Expr, int]] = []

    def gate(sums: Expr) -> None:
        x, y = body.ordered(sums, "relax.add", lambda e: body.is_row(body.part(e, 3)[0]))
        given.append(body.part(x, 3))
        own.append(body.part(y, 3))

    sums = body.call(fresh, "relax.tanh").args[0]
    b, a = body.ordered(sums, "relax.add", lambda e: body.seen(e, "relax.multiply"))
    reset, hidden = body.ordered(b, "relax.multiply", lambda e: body.seen(e, "relax.sigmoid"))
    gate(body.call(reset, "relax.sigmoid").args[0])
    gate(body.call(update, "relax.sigmoid").args[0])
    given.append(body.part(a, 3))
    own.append(body.part(hidden, 3))
    order = tuple(k for _, k in given)
    if len({s for s, _ in given}) != 1 or len({s for s, _ in own}) != 1:
        raise _Other
    if order != tuple(k for _, k in own):
        raise _Other
    weight, biases = body.product(own[0][0], state)
    return _Cell("gru", body.row(given[0][0]), weight, biases, order)


class _Body:
    """What is bound in the body of a loop, seen as what a cell is made of.

    reads: whether rows are read from the last on, for each that is
    """

    def __init__(self, func: Function) -> None:
        bindings = list(bindings_of(func.body))
        if not all(isinstance(b, VarBinding) for b in bindings):
            raise _Other
        self.values: dict[Expr, Expr] = {b.var: b.value for b in bindings}
        self.params = func.params
        result = self.value(func.body.body)
        self.results = list(result.fields) if isinstance(result, Tuple) else [func.body.body]
        self.step: Expr | None = None
        self.length = 0
        self.reads: set[bool] = set()

    def value(self, expr: Expr) -> Expr:
        """What ``expr`` is bound to here."""
        while expr in self.values:
            expr = self.values[expr]
        return expr

    def seen(self, expr: Expr, name: str) -> Call | None:
        """The call of an operator that computes ``expr``, if one does."""
        value = self.value(expr)
        return value if isinstance(value, Call) and is_call(value, name) else None

    def call(self, expr: Expr, name: str) -> Call:
        """The call of an operator that computes ``expr``."""
        found = self.seen(expr, name)
        if found is None:
            raise _Other
        return found

    def terms(self, expr: Expr, name: str) -> tuple[Expr, Expr]:
        """The two operands of an operator."""
        a, b = self.call(expr, name).args
        return a, b

    def ordered(
        self, expr: Expr, name: str, is_first: Callable[[Expr], object]
    ) -> tuple[Expr, Expr]:
        """The operands of an operator in either order, the one that ``is_first`` before."""
        a, b = self.terms(expr, name)
        if is_first(a):
            return a, b
        if is_first(b):
            return b, a
        raise _Other

    def pair(self, expr: Expr, name: str, first: str, second: str) -> tuple[Expr, Expr]:
        """The operands of two calls that an operator takes, in either order."""
        a, b = self.ordered(expr, name, lambda e: self.seen(e, first))
        return self.call(a, first).args[0], self.call(b, second).args[0]

    def reads_term(self, expr: Expr, term: Expr) -> bool:
        """Whether ``expr`` is a product of which ``term`` is an operand."""
        product = self.seen(expr, "relax.multiply")
        return product is not None and any(a is term for a in product.args)

    def number(self, expr: Expr) -> int | float | None:
        """A number, which may be a difference of some."""
        if difference := self.seen(expr, "relax.subtract"):
            a, b = map(self.number, difference.args)
            return None if a is None or b is None else a - b
        found = constant_value(self.value(expr))
        return None if found is None or np.size(found) != 1 else np.asarray(found).item()

    def outside(self, expr: Expr) -> Expr:
        """``expr``, which no step changes."""
        if expr in self.values or expr in self.params:
            raise _Other
        return expr

    def part(self, expr: Expr, count: int) -> tuple[Expr, int]:
        """Of what ``expr`` is one of ``count`` equal parts along the last axis, and which."""
        value = self.value(expr)
        if isinstance(value, TupleGetItem):
            split = self.call(value.tuple_value, "relax.split")
            attrs, source = call_attrs(split), split.args[0]
            if attrs["indices_or_sections"] == count and attrs["axis"] in (-1, 1):
                return source, value.index
            raise _Other
        cut = self.call(expr, "relax.strided_slice")
        source, *where = cut.args
        tensor, part = tensor_of(source), tensor_of(expr)
        if tensor is None or part is None or len(where) != 3 or len(tensor.shape) != 2:
            raise _Other
        axis, begin, end = (self._one(w) for w in where)
        size = tensor.shape[1] // count
        if axis not in (-1, 1) or part.shape[1] != size or end - begin != size or begin % size:
            raise _Other
        return source, begin // size

    def _one(self, expr: Expr) -> int:
        if not isinstance(expr, Tuple) or len(expr.fields) != 1:
            raise _Other
        number = self.number(expr.fields[0])
        if not isinstance(number, int):
            raise _Other
        return number

    def place(self, starts: Sequence[Expr]) -> bool:
        """Whether a step reads or writes from the last row on; at the step's own row else."""
        first, *others = starts
        if self.step is None or any(self.number(o) != 0 for o in others):
            raise _Other
        if first is self.step:
            return False
        last, step = self.terms(first, "relax.subtract")
        if step is not self.step or self.number(last) != self.length - 1:
            raise _Other
        return True

    def is_row(self, expr: Expr) -> bool:
        """Whether ``expr`` is a row of something."""
        return self.seen(expr, "relax.squeeze") is not None

    def row(self, expr: Expr) -> Expr:
        """Of what ``expr`` is this step's row."""
        squeeze = self.call(expr, "relax.squeeze")
        cut = self.call(squeeze.args[0], "relax.stablehlo.dynamic_slice")
        if tuple(call_attrs(squeeze)["axis"] or ()) != (0,):
            raise _Other
        source, sizes = tensor_of(cut.args[0]), tuple(call_attrs(cut)["slice_sizes"])
        if source is None or len(source.shape) != 3 or sizes != (1, *source.shape[1:]):
            raise _Other
        self.length = source.shape[0]
        self.reads.add(self.place(cut.args[1:]))
        return self.outside(cut.args[0])

    def product(self, expr: Expr, state: Var, rows: int = 0) -> tuple[Expr, list[Expr]]:
        """The weight that a state is multiplied by, and what is added but that many rows."""
        products, biases, others = self._leaves(expr)
        if len(products) != 1 or products[0].args[0] is not state or len(others) != rows:
            raise _Other
        weight = self.outside(products[0].args[1])
        shape = tensor_of(weight)
        if shape is None or shape.dtype != "float32" or len(shape.shape) != 2:
            raise _Other
        for bias in map(tensor_of, map(self.outside, biases)):
            wide = shape.shape[1]
            if bias is None or bias.dtype != "float32" or bias.shape[-1:] != (wide,):
                raise _Other
            if math.prod(bias.shape) != wide:
                raise _Other
        return weight, biases

    def sums(self, expr: Expr, state: Var) -> tuple[Expr, Expr, list[Expr]]:
        """The rows, the weight and the biases of sums that are gates."""
        weight, biases = self.product(expr, state, rows=1)
        return self.row(self._leaves(expr)[2][0]), weight, biases

    def _leaves(self, expr: Expr) -> tuple[list[Call], list[Expr], list[Expr]]:
        """The products in a sum, rows, and what else is in it."""
        products, biases, rows = list[Call](), list[Expr](), list[Expr]()
        for leaf in self._flat(expr):
            if product := self.seen(leaf, "relax.matmul"):
                products.append(product)
            else:
                (rows if self.is_row(leaf) else biases).append(leaf)
        return products, biases, rows

    def _flat(self, expr: Expr) -> list[Expr]:
        leaves, todo = list[Expr](), [expr]
        while todo:
            at = todo.pop()
            if total := self.seen(at, "relax.add"):
                todo += total.args
            else:
                leaves.append(at)
        return leaves


# -- weights, and the form in rows -----------------------------------------------------------------
def packed(weight: Expr, call: Recurrence) -> Expr:
    """A weight (H, gates * H) as the function wants it."""
    size, gates = call.size, call.gates
    panels = -(-size // PANEL)
    apart: Expr = R.reshape(weight, (size, gates, size))
    if call.order != tuple(range(gates)):
        apart = R.take(apart, const(np.array(call.order, "int64")), axis=1)
    if panels * PANEL > size:
        apart = R.nn.pad(apart, (0, 0, 0, 0, 0, panels * PANEL - size))
    return R.permute_dims(R.reshape(apart, (size, gates, panels, PANEL)), (2, 0, 1, 3))


def unpacked(panels: Expr, call: Recurrence) -> Expr:
    """The inverse of :func:`packed`, with the gates in the cell's order."""
    size, gates = call.size, call.gates
    count = -(-size // PANEL)
    apart: Expr = R.reshape(R.permute_dims(panels, (1, 2, 0, 3)), (size, gates, count * PANEL))
    if count * PANEL > size:
        apart = R.strided_slice(apart, (2,), (0,), (size,))
    return R.reshape(apart, (size, gates * size))


class _Form:
    """What a call computes, in operators: the loop again."""

    def __init__(self, described: Recurrence, params: Sequence[Expr]) -> None:
        self.described = described
        self.rows, panels, self.bias, self.state, self.cells = params
        self.weight = unpacked(panels, described)

    def result(self) -> Expr:
        d = self.described
        starts = [self.state, *([self.cells] if d.cell == "lstm" else [])]
        stack = R.zeros((d.steps, d.batch, d.size), "float32")
        # Regions read nothing from outside but what they carry.
        carried = [*starts, stack, _index(0), self.rows, self.weight, self.bias]
        params = [(f"s{i}", v.struct_info) for i, v in enumerate(carried)]
        test = region(params, lambda *v: R.less(v[len(starts) + 1], _index(d.steps)))
        step = region(params, lambda *v: self._step(v, len(starts)))
        made = Op.get(_WHILE)(*carried, test, step)
        states = TupleGetItem(made, len(starts))
        if d.cell != "lstm":
            return states
        last = R.reshape(TupleGetItem(made, 1), (1, d.batch, d.size))
        return R.concat([states, last], axis=0)

    def _step(self, values: Sequence[Expr], states: int) -> list[Expr]:
        d = self.described
        stack, step, rows, weight, bias = values[states:]
        at = R.subtract(_index(d.steps - 1), step) if d.backwards else step
        zero, wide = _index(0), d.gates * d.size
        cut = Op.get("relax.stablehlo.dynamic_slice")
        row = R.reshape(cut(rows, at, zero, zero, slice_sizes=(1, d.batch, wide)), (d.batch, wide))
        sums = R.matmul(values[0], weight)

        def part(x: Expr, axis: int, k: int) -> Expr:
            return R.strided_slice(x, (axis,), (k * d.size,), ((k + 1) * d.size,))

        given = [part(row, 1, k) for k in d.order]
        own = [R.add(part(sums, 1, k), part(bias, 0, at_)) for k, at_ in enumerate(d.order)]
        new = _next(d.cell, given, own, values[:states])
        stack = Op.get(_PUT)(stack, R.expand_dims(new[0], [0]), at, zero, zero)
        return [*new, stack, R.add(step, _index(1)), rows, weight, bias]


def _next(
    cell: str, given: Sequence[Expr], own: Sequence[Expr], states: Sequence[Expr]
) -> list[Expr]:
    """The states behind a step, of the sums of the gates."""
    if cell == "gru":
        reset, update = (R.sigmoid(R.add(given[k], own[k])) for k in range(2))
        made = R.tanh(R.add(given[2], R.multiply(reset, own[2])))
        rest = R.subtract(const(1.0, "float32"), update)
        return [R.add(R.multiply(rest, made), R.multiply(update, states[0]))]
    sums = [R.add(x, y) for x, y in zip(given, own, strict=True)]
    if cell != "lstm":
        return [R.tanh(sums[0]) if cell == "tanh" else R.nn.relu(sums[0])]
    i, f, g, o = sums
    kept, made = R.multiply(R.sigmoid(f), states[1]), R.multiply(R.sigmoid(i), R.tanh(g))
    cells = R.add(kept, made)
    return [R.multiply(R.sigmoid(o), R.tanh(cells)), cells]


def _index(value: int) -> Expr:
    return const(np.array(value, "int64"))


def form(call: Recurrence) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)
