"""``relax2xla.to_stablehlo``: any module as a StableHLO program."""

from __future__ import annotations

from relax2xla.ir import Call, Function, If, IRModule, Op
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.stablehlo import serialize
from relax2xla.stablehlo.origin import as_read
from relax2xla.transform.legalize import LegalizeOps, is_row


def to_stablehlo(
    mod: IRModule,
    form: serialize.Form = "text",
    version: str | None = None,
    debug_info: bool = False,
) -> str | bytes:
    """``mod`` as a StableHLO program; high-level operators are lowered to rows before.

    A module that is made of rows already is written as it stands, and one that ``from_stablehlo``
    raised as it was read, if nobody changed it. For ``form``, ``version`` and
    ``debug_info`` see :func:`relax2xla.stablehlo.to_stablehlo`. Raises :class:`LegalizeError` for
    what has no lowering, or no static shape.
    """
    mod = as_read(mod)
    high = any(_is_high(f) for f in mod.relax_functions().values())
    return serialize.to_stablehlo(LegalizeOps()(mod) if high else mod, form, version, debug_info)


def _is_high(func: Function) -> bool:
    """Whether ``func`` holds what only LegalizeOps turns into rows."""
    return any(
        isinstance(node, If)
        or (isinstance(node, Call) and isinstance(node.op, Op) and not is_row(node.op))
        for node in post_order_deep(func)
    )
