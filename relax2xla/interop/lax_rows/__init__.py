"""The ``lax`` column of the table of rows: each row evaluated over ``jax.lax`` (decision D18).

A rule takes its :class:`Site` and the operands (arrays, traced or not; tuples and tokens where the
row has them; a :class:`Region` for each region) and gives what the row gives. Because every rule is
made of JAX's own primitives, what calls it can be differentiated, mapped, compiled and sharded.
Rules of rows that programs are full of are :class:`Prepared`.

``RULES`` is by the row's name. ``OPAQUE`` says of each other row why it has none; most of those run
as a program of their own within the trace: forward only, and JAX's transformations refuse them.
Kept apart from ``stablehlo.table``, which is loaded without jax.
"""

from __future__ import annotations

from collections.abc import Callable

from relax2xla.interop.lax_rows import (
    arithmetic,
    calls,
    collectives,
    contractions,
    control,
    drawing,
    indexing,
    reductions,
    shapes,
    sorting,
    windows,
)
from relax2xla.interop.lax_rows.site import Prepared as Prepared
from relax2xla.interop.lax_rows.site import Region as Region
from relax2xla.interop.lax_rows.site import Rule as Rule
from relax2xla.interop.lax_rows.site import Site as Site
from relax2xla.ir import Call

RULES: dict[str, Rule] = {
    f"relax.{name}": rule
    for room in (
        arithmetic,
        calls,
        collectives,
        contractions,
        control,
        drawing,
        indexing,
        reductions,
        shapes,
        sorting,
        windows,
    )
    for name, rule in room.RULES.items()
}

#: Of rows whose rule does not know every call: why it does not know one, or "".
EXCEPTIONS: dict[str, Callable[[Call], str]] = {
    f"relax.{name}": why for name, why in calls.EXCEPTIONS.items()
}

_DEVICES = "it is between devices in a form that programs for a mesh do not have"
_HOST = "it talks to the host while the program runs"
_QUANTISED = "it rounds to a quantised type, which JAX has no dtype for"
_INTERPRETER = "it is of StableHLO's reference interpreter alone"

#: Rows without a rule: the reason.
OPAQUE: dict[str, str] = {
    f"relax.{name}": why
    for why, names in (
        (
            _DEVICES,
            """stablehlo.cross_replica_sum stablehlo.collective_reduce sdy.all_reduce
            sdy.reduce_scatter sdy.replicated_to_unreduced sdy.sharded_to_unreduced""",
        ),
        (
            _HOST,
            """stablehlo.infeed stablehlo.outfeed stablehlo.send stablehlo.recv
            stablehlo.async_start stablehlo.async_done""",
        ),
        (_QUANTISED, "stablehlo.uniform_quantize stablehlo.uniform_dequantize"),
        ("JAX keeps it inside asin and acos", "chlo._asin_acos_kernel"),
        ("its sizes are values that are not known", "stablehlo.set_dimension_size"),
        ("it is never called: regions end with it", "stablehlo.return_"),
        (_INTERPRETER, "interpreter.run_parallel interpreter.print interpreter.probe"),
    )
    for name in names.split()
}
