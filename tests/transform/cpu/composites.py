"""Modules of one value, and what of them became composites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import relax2xla as rx
from relax2xla.ir import IRModule
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform.cpu.integers.compute import ComputeInIntegers


def composites_of(mod: IRModule) -> list[str]:
    """The kinds of the composites that the pass makes in ``main``, in order."""
    found = [b.value for b in bindings_of(ComputeInIntegers()(mod)["main"].body)]
    named = [v.attrs["name"] for v in found if is_op(v, "relax.stablehlo.composite")]
    return [str(n).rpartition(".")[2] for n in named]


def module(body: Callable[[rx.Expr], rx.Expr], shape: tuple[int, ...]) -> IRModule:
    """``main`` gives what ``body`` makes of an argument of float32."""
    return of_params(body, [rx.Var("x", rx.TensorStructInfo(shape))])


def of_params(body: Callable[..., rx.Expr], params: Sequence[rx.Var]) -> IRModule:
    """``main`` gives what ``body`` makes of its parameters."""
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(made)
    return builder.get()
