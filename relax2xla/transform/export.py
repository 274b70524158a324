"""``relax2xla.to_stablehlo``: any module as a StableHLO program."""

from __future__ import annotations

from relax2xla.ir import (
    Call,
    If,
    IRModule,
    Op,
)
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.stablehlo import serialize
from relax2xla.stablehlo.origin import as_read
from relax2xla.transform.lower.calls_as_values import CallsAsValues
from relax2xla.transform.lower.distributed import LowerDistIR
from relax2xla.transform.lower.legalize import LegalizeOps, is_row
from relax2xla.transform.lower.sizes_as_tensors import SizesAsTensors


def to_stablehlo(
    mod: IRModule,
    form: serialize.Form = "text",
    version: str | None = None,
    debug_info: bool = False,
) -> str | bytes:
    """``mod`` as a StableHLO program; high-level operators are lowered to rows before.

    A module that is made of rows already is written as it stands, and one that ``from_stablehlo``
    raised as it was read, if nobody changed it. For ``form``, ``version`` and
    ``debug_info`` see :func:`relax2xla.stablehlo.to_stablehlo`.

    Symbolic dimensions are ``?``, and the program computes with the sizes of its arguments. Shapes
    and numbers among parameters and results are int64 tensors of rank 1 and 0 (a number keeps its
    dtype). Raises :class:`LegalizeError` for what has no lowering, or none of symbolic dimensions.
    """
    mod = as_read(mod)
    if is_high(mod):
        mod = lowered(mod)
    return serialize.to_stablehlo(mod, form, version, debug_info)


def lowered(mod: IRModule) -> IRModule:
    """``mod`` made of rows over tensors alone; see :func:`to_stablehlo`."""
    sizes = SizesAsTensors()
    mod = sizes(LowerDistIR()(CallsAsValues()(mod)))
    return LegalizeOps(sources=sizes.sources, every=True)(mod)


def is_high(mod: IRModule) -> bool:
    """Whether a function of ``mod`` holds what only LegalizeOps turns into rows."""
    return any(
        isinstance(node, If)
        or (isinstance(node, Call) and isinstance(node.op, Op) and not is_row(node.op))
        for func in mod.relax_functions().values()
        for node in post_order_deep(func)
    )
