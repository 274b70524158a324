"""Loops that XLA keeps apart: functions of their own, whose calls are not inlined.

XLA fuses a loop into each of its readers, and computes it once for each: a depthwise convolution is
computed twice where the mean of its activations scales them, as in a squeeze-and-excitation. It
also takes the order of a loop from the last of what is fused, which spoils one in blocks. What a
call computes, it computes once and in its own order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from relax2xla.analysis.variables import used_vars
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Binding, Call, Expr, Function, GlobalVar, IRModule, Op, Var
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.traits import Broadcasting, Channelwise, Normalises, Pointwise, Trait
from relax2xla.stablehlo.rows import DISCARDABLE

#: Binds a value to a variable with a name.
Bind: TypeAlias = Callable[[str, Expr], Var]

_POINTWISE: Final = (Pointwise, Broadcasting, Channelwise)
_KEPT: Final = {DISCARDABLE: {"mhlo.frontend_attributes": {"inlineable": "false"}}}


class Apart:
    """The functions of their own that a function of a module calls.

    name: what theirs begin with; made: the functions, by their names
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: dict[GlobalVar, Function] = {}

    def call(self, args: Sequence[Expr], body: Callable[[list[Var], Bind], Expr]) -> Call:
        """A call of a new function: ``body`` makes its value from its parameters."""
        params = [Var(f"x{i}", a.struct_info) for i, a in enumerate(args)]
        builder = BlockBuilder()
        with builder.function("main", params):
            value = body(params, lambda name, value: builder.emit(value, name))
            builder.emit_func_output(builder.emit(value))
        func = builder.get()["main"]
        assert isinstance(func, Function)
        symbol = GlobalVar(f"{self.name}{len(self.made)}")
        self.made[symbol] = func.without_attr("global_symbol")
        return Call(symbol, [*args], _KEPT, struct_info=func.ret_struct_info)


def each_apart(mod: IRModule, kind: str, change: Callable[[Function, Apart], Function]) -> IRModule:
    """``mod`` with its functions as ``change`` makes them, and the functions that these call.

    kind: what these are, in their names
    """
    new = dict(mod.functions)
    for gvar, func in mod.relax_functions().items():
        apart = Apart(f"{gvar.name_hint}_{kind}")
        new[gvar] = change(func, apart)
        new.update(apart.made)
    return mod if all(new[g] is f for g, f in mod.functions.items()) else mod.replace(new)


def computed_again(func: Function) -> Callable[[Var], bool]:
    """Whether XLA would fuse a loop into more than one: asked of the loops' variables in ``func``.

    Into one for each value behind it that is more than a pointwise function of it and is read; a
    normalisation reads three times, for the mean, the variance and itself.
    """
    readers: Mapping[Var, list[Binding | None]] = readers_of(func)

    def again(var: Var) -> bool:
        todo, seen, read = [var], {var}, 0
        while todo and read < 2:
            found = readers[todo.pop()]
            if any(b is not None and has_trait(b.value, Normalises) for b in found):
                return True
            behind = [b.var for b in found if b is not None and has_trait(b.value, *_POINTWISE)]
            read += len(behind) < len(found)
            todo += [v for v in dict.fromkeys(behind) if v not in seen]
            seen.update(behind)
        return read > 1

    return again


def readers_of(func: Function) -> Mapping[Var, list[Binding | None]]:
    """Variables to the bindings that read them; None stands for the function's result."""
    found: defaultdict[Var, list[Binding | None]] = defaultdict(list)
    for b in bindings_of(func.body):
        for var in used_vars(b.value):
            found[var].append(b)
    for var in used_vars(func.body.body):
        found[var].append(None)
    return found


def has_trait(value: Expr, *kinds: type[Trait]) -> bool:
    """Whether it is a call of an operator of one of these kinds."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return False
    return any(value.op.has(kind) for kind in kinds)
