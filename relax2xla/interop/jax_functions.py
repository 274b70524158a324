"""Functions that JAX writes out in rows, though it knows them: evaluated as JAX's own again.

JAX 0.12 lowers ``lax.lgamma`` of float32 to a private function that takes numbers apart by their
bits, and through bits there is no derivative. Where a private function is, row for row, what this
JAX writes for a function, it is that function, with JAX's derivative.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
from jax import lax

from relax2xla.ir import Call, Function, GlobalVar, IRModule, structural_equal
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.struct_info import dims_of
from relax2xla.stablehlo import parse, read
from relax2xla.transform import InlinePrivateFunctions
from relax2xla.vm.pjrt.xla import aval

# By the name of the private function, which JAX numbers where it has several.
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"lgamma_impl": lax.lgamma}
_NUMBER: Final = re.compile(r"_\d+$")


def jax_function(mod: IRModule, name: str) -> Callable[..., Any] | None:
    """The function of JAX that the private function ``name`` of ``mod`` is; None if it is none."""
    known = _FUNCTIONS.get(_NUMBER.sub("", name))
    if known is None:
        return None
    func = mod[name]
    infos = [p.struct_info for p in func.params]
    dims = [dims_of(i) for i in infos]
    if any(of is None or not all(isinstance(d, int) for d in of) for of in dims):
        return None
    avals = [aval(i) for i in infos]
    given = _alone(mod, func)
    # JAX writes numbers of Python as wide as the x64 flag has them, and the program as it was then.
    return known if any(structural_equal(given, f) for f in _written(known, avals)) else None


def _written(known: Callable[..., Any], avals: Sequence[Any]) -> Iterator[Function]:
    """The private functions that JAX writes for ``known``, without and with x64."""
    for wide in (False, True):
        with jax.enable_x64(wide):
            text = jax.jit(known).lower(*avals).as_text()
        program = read(parse(text))
        for gvar in program.relax_functions():
            if gvar.name_hint in _FUNCTIONS:
                yield _alone(program, program[gvar])


def _alone(mod: IRModule, func: Function) -> Function:
    """``func`` with all that it calls in its place, and without attributes."""
    named: dict[GlobalVar, Any] = {}
    waiting = [func]
    while waiting:
        for e in post_order_deep(waiting.pop()):
            if isinstance(e, Call) and isinstance(e.op, GlobalVar) and e.op not in named:
                named[e.op] = mod[e.op]
                waiting.append(mod[e.op])
    main = GlobalVar("main")
    whole = IRModule({main: func.with_attr("global_symbol", "main"), **named})
    made = InlinePrivateFunctions()(whole)["main"]
    return Function(made.params, made.body, made.ret_struct_info, made.is_pure)
