"""Branches and loops. A loop whose rounds can be counted is a scan, which has every derivative."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.dtypes import numpy_dtype
from relax2xla.interop.lax_rows.arithmetic import RULES as ARITHMETIC
from relax2xla.interop.lax_rows.drawing import drawing_in_round, draws_here
from relax2xla.interop.lax_rows.site import (
    Region,
    Rule,
    Site,
    in_jax_width,
    number,
    short_name,
)
from relax2xla.interop.lax_rows.sorting import RULES as SORTING
from relax2xla.ir import Attrs, Call, Expr, TensorStructInfo
from relax2xla.vm.pjrt.own_derivatives import rule_of
from relax2xla.vm.pjrt.varying import axes_of, is_mapped, over, settled

#: A round of a loop.
Step = Callable[[Sequence[Any]], list[Any]]


def _if(site: Site, pred: Any, true: Region, false: Region) -> Any:
    return lax.cond(pred, *_alike(site, pred, [true, false]))


def _case(site: Site, index: Any, *branches: Region) -> Any:
    last = len(branches) - 1
    index = jnp.where((index < 0) | (index > last), last, index)
    return lax.switch(index, _alike(site, index, branches))


def _alike(site: Site, index: Any, branches: Sequence[Region]) -> Sequence[Callable[[], Any]]:
    """Branches whose results have the same types.

    A policy may lower those of some, and devices may differ in what they give, or in which they
    take.
    """
    made: list[Callable[[], Any]] = [lambda b=b: b() for b in branches]
    low = site.runner.dtype
    if low is None and not is_mapped():
        return made

    def common(*xs: Any) -> Any:
        return low if any(x.dtype == low for x in xs) else xs[0].dtype

    types = [jax.eval_shape(b) for b in made]
    wanted = jax.tree.map(common, *types)
    axes = jax.tree.map(lambda *xs: axes_of((index, xs)), *types)

    def cast(x: Any, dtype: Any, axes: frozenset[Any]) -> Any:
        return over(axes, lax.convert_element_type(x, dtype))

    return [lambda b=b: jax.tree.map(cast, b(), wanted, axes) for b in made]


def _while(site: Site, *operands: Any) -> Any:
    *init, condition, body = operands
    assert isinstance(condition, Region)
    assert isinstance(body, Region)
    # What no round changes is no part of the carry, of which a scan keeps copies for derivatives.
    params, fields = body.func.params, body.fields
    whole = len(fields) == len(params)
    live = [i for i, p in enumerate(params) if not (whole and fields[i] is p)]

    def full(carry: Sequence[Any]) -> list[Any]:
        values = list(init)
        for i, value in zip(live, carry, strict=True):
            values[i] = value
        return values

    def once(carry: Sequence[Any]) -> list[Any]:
        made = body.several(*full(carry))
        return [made[i] for i in live]

    def goes_on(carry: Sequence[Any]) -> Any:
        return condition(*full(carry))

    rounds = _rounds(site.call, condition, body)
    start, step = _settled([jnp.asarray(init[i]) for i in live], once, site.runner.dtype)
    # Where devices stop in different rounds, they have other values from then on.
    step, start = settled(step, start, goes_on if rounds is None else None)
    if draws_here(condition, body):
        end = _drawing_while(start, step, goes_on, rounds)
    elif rounds is not None and live:
        end, _ = lax.scan(lambda carry, _: (step(carry), None), start, None, length=rounds)
    else:
        end = lax.while_loop(goes_on, step, start)
    return site.result(full(end))


def _drawing_while(
    start: list[Any], step: Step, condition: Callable[[Sequence[Any]], Any], rounds: int | None
) -> list[Any]:
    """The end of a loop that draws random numbers: in each round others."""

    def once(carry: Sequence[Any], number: Any) -> list[Any]:
        with drawing_in_round(number):
            return step(carry)

    def goes_on(state: tuple[Any, Any]) -> Any:
        with drawing_in_round(state[0]):
            return condition(state[1])

    if rounds is not None:
        numbers = lax.iota(np.uint32, rounds)
        return lax.scan(lambda carry, number: (once(carry, number), None), start, numbers)[0]
    counted = np.uint32(0), start
    return lax.while_loop(goes_on, lambda s: (s[0] + np.uint32(1), once(s[1], s[0])), counted)[1]


def _settled(start: list[Any], step: Step, low: Any) -> tuple[list[Any], Step]:
    """A loop whose values keep their dtypes, where ``low`` of a policy comes in during a round."""
    if low is None:
        return start, step
    while True:
        made = jax.eval_shape(step, start)
        lowered = [i for i, m in enumerate(made) if m.dtype == low != start[i].dtype]
        if not lowered:
            break
        for i in lowered:
            start[i] = lax.convert_element_type(start[i], low)
    dtypes = [x.dtype for x in start]
    return start, lambda carry: list(map(lax.convert_element_type, step(carry), dtypes))


def _rounds(call: Call, condition: Region, body: Region) -> int | None:
    """How often ``for (i = number; i < number; i += number)`` goes round; None for another loop."""
    params: list[Expr] = list(condition.func.params)
    if len(body.fields) != len(params):
        return None

    def always(expr: Expr) -> int | None:
        """What a value of the condition is in each round, where it is one number."""
        if expr not in params:
            return number(condition, expr)
        at = params.index(expr)
        first = number(condition, call.args[at])
        kept = body.fields[at] is body.func.params[at]
        return first if kept or number(body, body.fields[at]) == first else None

    test = condition.values.get(condition.func.body.body)
    # ONNX's loops also ask whether to go on, which many always say.
    while isinstance(test, Call) and short_name(test) == "and_":
        rest = [a for a in test.args if not always(a)]
        if len(rest) != 1:
            return None
        test = condition.values.get(rest[0])
    if not isinstance(test, Call) or short_name(test) != "compare":
        return None
    left, right = test.args
    direction = test.attrs["comparison_direction"]
    if left not in params or direction not in ("LT", "LE"):
        return None
    counter = params.index(left)
    limit, start = always(right), number(condition, call.args[counter])
    step = _step(body, body.fields[counter], counter)
    if limit is None or start is None or not step or step < 0:
        return None
    info = call.args[counter].struct_info
    assert isinstance(info, TensorStructInfo)
    rounds = max(0, -(-(limit + (direction == "LE") - start) // step))
    most = np.iinfo(in_jax_width(numpy_dtype(info.dtype))).max
    return rounds if start + rounds * step <= most else None


def _step(body: Region, expr: Expr, counter: int) -> int | None:
    """What a round adds to the counter."""
    update = body.values.get(expr)
    if not isinstance(update, Call) or short_name(update) != "add":
        return None
    own = body.func.params[counter]
    first, second = update.args
    rest = second if first is own else first if second is own else None
    return number(body, rest) if rest is not None else None


def _composite(site: Site, *operands: Any) -> Any:
    arrays = [x for x in operands if not isinstance(x, Region)]
    own = rule_of(site.attrs["name"])
    if own is not None:
        made = own(_Decomposed(site), site.attrs.get("composite_attributes") or {}, arrays)
        return site.result(made)
    # What jax.export writes for a row of CHLO is that row, with its own derivative: through its
    # decomposition there is that of a polynomial, or none.
    attributes = site.attrs.get("composite_attributes") or {}
    rule = _CHLO.get(site.attrs["name"])
    if rule is not None and sorted(attributes) == _OPTIONS.get(site.attrs["name"], []):
        own = copy.copy(site)
        own.attrs = Attrs(attributes)
        return rule(own, *arrays)
    return site.runner.call(site.runner.named(site.attrs["decomposition"]), arrays, {})


class _Decomposed:
    """What a composite decomposes into: all of it, or what some of its results need."""

    def __init__(self, site: Site) -> None:
        self._site, self.results = site, len(site.outputs)

    def __call__(self, xs: Sequence[Any], fields: slice = slice(None)) -> Sequence[Any]:
        runner = self._site.runner
        whole = runner.named(self._site.attrs["decomposition"])
        made = runner.call(runner.part(whole, range(self.results)[fields]), xs, {})
        return made if isinstance(made, tuple) else (made,)

    def reads(self, begin: int) -> bool:
        """Whether anything reads a result of the composite from number ``begin`` on."""
        read = self._site.runner.fields_read(self._site.call)
        return read is None or any(i >= begin for i in read)


def _named(site: Site, *operands: Any) -> Any:
    *arrays, region = operands
    return region(*arrays)


_CHLO: dict[str, Rule] = {
    name: rule for name, rule in (ARITHMETIC | SORTING).items() if name.startswith("chlo.")
}
_OPTIONS = {"chlo.top_k": ["k"]}

RULES: dict[str, Rule] = {
    "stablehlo.if_": _if,
    "stablehlo.case": _case,
    "stablehlo.while_": _while,
    "stablehlo.composite": _composite,
    "sdy.named_computation": _named,
}
