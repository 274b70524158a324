"""Which results of a function took the place of its arguments, by ``call_tir_inplace``.

In TVM such a result *is* the argument. Values are immutable here; where a caller gives memory of
its own (``runtime.convert.SharedArray``), ``vm.call.in_place`` keeps up what TVM promises.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_of
from relax2xla.op.intrinsic import call_tir_inplace_op


@dataclass(frozen=True, slots=True)
class _Memory:
    """The memory of a parameter, and whether a call wrote to it."""

    param: int
    written: bool = False


# What is known of a value: whose memory it is, or that of its fields. None: its own.
_Value = _Memory | tuple["_Value", ...] | None


def results_in_place(mod: IRModule) -> dict[str, tuple[tuple[int, int], ...]]:
    """By function: pairs of a parameter and of the field of the result that took its place.

    A result that is no tuple is field 0. A parameter whose memory several fields are is left out:
    they are different values here.
    """
    known = _Summaries(mod)
    found = {gvar.name_hint: _places(known.of(gvar)) for gvar in mod.relax_functions()}
    return {name: places for name, places in found.items() if places}


def _places(value: _Value) -> tuple[tuple[int, int], ...]:
    fields = value if isinstance(value, tuple) else (value,)
    places = [(v.param, i) for i, v in enumerate(fields) if isinstance(v, _Memory) and v.written]
    times = Counter(param for param, _ in places)
    return tuple(place for place in places if times[place[0]] == 1)


@dataclass(slots=True)
class _Summaries:
    """The result of each function in terms of its parameters; of a recursive one nothing."""

    mod: IRModule
    made: dict[GlobalVar, _Value] = field(default_factory=dict[GlobalVar, _Value])

    def of(self, gvar: GlobalVar) -> _Value:
        if gvar not in self.made:
            self.made[gvar] = None
            func = self.mod.functions.get(gvar)
            if isinstance(func, Function):
                self.made[gvar] = self._result(func)
        return self.made[gvar]

    def _result(self, func: Function) -> _Value:
        values: dict[Expr, _Value] = {p: _Memory(i) for i, p in enumerate(func.params)}
        for b in bindings_of(func.body):
            if isinstance(b, VarBinding):
                values[b.var] = self._value(b.value, values)
        return self._value(func.body.body, values)

    def _value(self, e: Expr, values: dict[Expr, _Value]) -> _Value:
        match e:
            case Var():
                return values.get(e)
            case Tuple():
                return tuple(self._value(f, values) for f in e.fields)
            case TupleGetItem():
                whole = self._value(e.tuple_value, values)
                return whole[e.index] if isinstance(whole, tuple) else None
            case Call(op=GlobalVar() as callee):
                given = [self._value(a, values) for a in e.args]
                return _in_terms(self.of(callee), given)
            case Call() if e.op is call_tir_inplace_op:
                operands = self._value(e.args[1], values)
                assert isinstance(operands, tuple)
                places = call_attrs(e)["inplace_indices"]
                fields = tuple(_written(operands[i]) if i >= 0 else None for i in places)
                return fields if isinstance(e.struct_info, TupleStructInfo) else fields[0]
            case _:
                return None


def _written(value: _Value) -> _Value:
    return _Memory(value.param, True) if isinstance(value, _Memory) else None


def _in_terms(value: _Value, given: list[_Value]) -> _Value:
    """A value over parameters as one over what is given for them."""
    match value:
        case _Memory():
            return _written(given[value.param]) if value.written else given[value.param]
        case tuple():
            return tuple(_in_terms(v, given) for v in value)
        case None:
            return None
