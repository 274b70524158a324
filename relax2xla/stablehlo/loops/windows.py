"""Reductions over windows of one buffer: ``reduce_window``, as pooling asks for."""

from __future__ import annotations

from relax2xla import tir
from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import (
    convert,
    dtype_of,
    hlo,
    identity_of,
    scalar,
    scalar_region,
    shape_of,
    tensor_info,
)
from relax2xla.stablehlo.loops.axes import Axis, Value, labelled, reduced, size_of
from relax2xla.stablehlo.loops.contract import Slide, sliding_read
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir.buffer import BufferLoad


def pooled(
    kernel: Kernel,
    name: str,
    term: tir.PrimExpr,
    gone: set[Axis],
    sliding: set[Axis],
    scope: Scope,
    dtype: str,
) -> Value | None:
    """The total over windows of a plain read; None if ``term`` is something else."""
    load = term.value if isinstance(term, tir.Cast) else term
    if not isinstance(load, BufferLoad) or name == "xor" or dtype == "bool":
        return None
    found = sliding_read(kernel, load, gone, scope)
    if found is None:
        return None
    x, slides, _ = found
    if {s.tap for s in slides} != sliding:
        return None
    wholes = {s.whole for s in slides}
    value = Value(convert(x.expr, term.dtype), x.axes)
    plain = [a for a in gone if a not in sliding and a in value.axes]
    missing = [a for a in gone if a not in sliding and a not in value.axes]
    if size_of(missing) != 1 and name not in ("maximum", "minimum"):
        return None
    if any(s.out in value.axes for s in slides):
        return None
    if plain:
        value = reduced(name, value, plain)
    result = value.expr
    for slide in slides:
        result = _window(result, name, value.axes.index(slide.whole), slide)
    kernel.count("reduce_window")
    outs = {s.whole: s.out for s in slides}
    return labelled(result, [outs[a] if a in wholes else a for a in value.axes])


def _window(x: Expr, name: str, axis: int, slide: Slide) -> Expr:
    """One ``reduce_window`` an axis: XLA:CPU takes less time for it than for all at once."""
    shape = list(shape_of(x))
    ones = (1,) * len(shape)

    def at(value: int) -> tuple[int, ...]:
        return tuple(value if i == axis else 1 for i in range(len(shape)))

    shape[axis] = slide.out.size
    return hlo(
        "reduce_window",
        x,
        scalar(identity_of(name, dtype_of(x)), dtype_of(x)),
        scalar_region(name, dtype_of(x)),
        window_dimensions=at(slide.tap.size),
        window_strides=at(slide.stride),
        base_dilations=ones,
        window_dilations=at(slide.dilation),
        padding=((0, 0),) * len(shape),
        out=tensor_info(shape, dtype_of(x)),
    )
