"""Axes of blocks: ``T.axis``, and ``T.iter_var``, which is an axis on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.script import arithmetic as arith
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.forms.owner import Owner
from relax2xla.script.prim_func.frames import widest
from relax2xla.tir import stmt as s
from relax2xla.tir.node import is_int


class Axes:
    """``T.axis``"""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def _push(self, dom: tir.Range, dtype: str, kind: s.IterType, binding: object) -> tir.Var:
        frame = self.owner.frames[-1]
        if frame.block is None or frame.entries:
            raise ValueError("T.axis stands in a block, before its statements")
        value = v.number(binding)
        if not tir.is_int(value.dtype):
            raise TypeError(f"an axis is bound to an integer; got `{value}` of dtype {value.dtype}")
        var = tir.Var("", dtype)
        frame.block.iter_vars.append(s.IterVar(dom, var, kind))
        frame.block.iter_values.append(value)
        return var

    def _axis(self, kind: s.IterType, dom: object, binding: object, dtype: str) -> tir.Var:
        span = as_range(dom)
        dtype = v.dtype_name(dtype)
        if not is_int(dtype):
            raise TypeError(f"an axis is an integer; got the dtype {dtype}")
        wide = widest(tir.const(0, dtype), span.min, span.extent)
        return self._push(span, wide, kind, binding)

    def spatial(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis whose values do not depend on each other."""
        return self._axis("spatial", dom, binding, dtype)

    def reduce(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis that is reduced over."""
        return self._axis("reduce", dom, binding, dtype)

    def scan(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis that is run through in order."""
        return self._axis("scan", dom, binding, dtype)

    def opaque(self, dom: object, binding: object, dtype: str = "int32") -> tir.Var:
        """An axis of which nothing is known."""
        return self._axis("opaque", dom, binding, dtype)

    S = spatial
    R = reduce

    def remap(self, kinds: str, bindings: Sequence[object], dtype: str = "int32") -> Any:
        """One axis for each loop variable, over the loop's range."""
        kinds = v.text(kinds, "the first argument of T.axis.remap")
        if not isinstance(bindings, list | tuple) or not bindings:
            raise TypeError(
                "T.axis.remap takes a list of one loop variable or more; got "
                f"{arith.described(bindings)}"
            )
        if len(kinds) != len(bindings):
            raise ValueError(f"{len(kinds)} kinds of axes for {len(bindings)} loop variables")
        made: list[tir.Var] = []
        for kind, binding in zip(kinds, bindings, strict=True):
            if kind not in "SR":
                raise ValueError(f'the kinds of axes are "S" and "R"; got {kind!r}')
            dom = self._loop_range(binding)
            assert isinstance(binding, tir.Var)
            what: s.IterType = "spatial" if kind == "S" else "reduce"
            made.append(self._push(dom, binding.dtype, what, binding))
        return made[0] if len(made) == 1 else made

    def _loop_range(self, binding: object) -> tir.Range:
        for frame in self.owner.frames:
            if frame.loop is not None:
                for var, dom in zip(frame.loop.vars, frame.loop.ranges, strict=True):
                    if var is binding:
                        return dom
        raise TypeError(f"T.axis.remap takes variables of loops; got `{binding}`")


def as_range(dom: object) -> tir.Range:
    """The range of an axis: a size, or where it starts and ends."""
    if isinstance(dom, tir.Range):
        return dom
    if isinstance(dom, list | tuple):
        ends: Sequence[object] = dom
        if len(ends) != 2:
            raise ValueError(f"a range is a size, or where it starts and ends; got {len(ends)}")
        begin, end = map(v.number, ends)
        for bound in (begin, end):
            if not is_int(bound.dtype):
                raise TypeError(f"an axis runs over integers; got `{bound}` of {bound.dtype}")
        begin, end = tir.match_dtypes(begin, end)
        return tir.Range.from_min_extent(tir.as_dim(begin), v.simplified(end - begin))
    extent = v.number(dom)
    if not is_int(extent.dtype):
        raise TypeError(f"an axis runs over integers; got `{extent}` of dtype {extent.dtype}")
    return tir.Range.from_min_extent(tir.as_dim(tir.const(0, extent.dtype)), tir.as_dim(extent))


def _iter_var(owner: Owner, var: object, dom: object, iter_type: str, thread_tag: str) -> s.IterVar:
    kinds: dict[str, s.IterType] = {
        "ThreadIndex": "thread",
        "DataPar": "spatial",
        "CommReduce": "reduce",
        "Ordered": "scan",
        "DimInfo": "opaque",
        "Opaque": "opaque",
    }
    if iter_type not in kinds:
        raise ValueError(f"no axis is of the kind {iter_type!r}; there are {', '.join(kinds)}")
    if isinstance(var, str):
        var = tir.Var(var, "int32")
    if not isinstance(var, tir.Var):
        raise TypeError("T.iter_var takes a variable")
    return s.IterVar(None if dom is None else as_range(dom), var, kinds[iter_type], thread_tag)


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "iter_var": _iter_var,
}
