"""``tir.layout`` and ``tir.bijective_layout``: axes by letters, and indices from one to another.

A capital letter is an axis. A small one, behind a number, is the inner part of the axis of that
letter: of ``NCHW16c`` channel ``16 * C + c`` lies at (C, c). Source: TVM's ``tir/data_layout``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from relax2xla.dtypes import is_integer
from relax2xla.errors import OpError
from relax2xla.tir.arith.analyzer import simplify
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.convert import as_dim
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var
from relax2xla.tir.stmt import IterVar

_AXES = re.compile(r"([A-Z])|([1-9]\d*)([a-z])")
UNDEFINED = "__undef__"


class Layout:
    """A layout: ``axes`` are IterVars, of an inner part over its size, of others over a variable.

    ``name`` is its text; ``len``, ``in`` and ``layout[i]`` speak of the letters of the axes.
    OpError for a text that names none, TypeError for a dtype that is no integer's.
    """

    def __init__(self, name: str, dtype: str = "int32") -> None:
        if not isinstance(dtype, str) or not is_integer(dtype):
            raise TypeError(f"layout: the indices of axes are integers; got the dtype {dtype!r}")
        self.name = name
        self._parts = _parts(name)
        made: list[IterVar] = []
        for letter, size in self._parts:
            low = IntImm(dtype, 0)
            extent = IntImm(dtype, size) if size else Var(letter, dtype)
            var = Var(f"{size or ''}{letter}", dtype)
            made.append(IterVar(Range(low, extent), var, IterVar.DataPar))
        self.axes = tuple(made)

    def __str__(self) -> str:
        return f"Layout({self.name})"

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, axis: str) -> bool:
        return self.index_of(axis) >= 0

    def __getitem__(self, index: int) -> str:
        return self._parts[index][0]

    def index_of(self, axis: str) -> int:
        """Where the axis of that letter lies; -1 where there is none."""
        return next((i for i, (letter, _) in enumerate(self._parts) if letter == axis), -1)

    def factor_of(self, axis: str) -> int:
        """The size of the inner part of an axis, named by either letter; -1 without one."""
        return next((n for letter, n in self._parts if n and letter == axis.lower()), -1)

    @property
    def plain(self) -> frozenset[str]:
        """The letters of the axes that are no inner parts."""
        return frozenset(letter for letter, size in self._parts if not size)

    def inner(self, axis: str) -> int:
        """The size of the inner part of an axis; 1 without one."""
        return max(1, self.factor_of(axis))


def _parts(name: str) -> list[tuple[str, int]]:
    """Each axis: its letter, and of an inner part the size (else 0)."""
    found: list[tuple[str, int]] = []
    at = 0
    while at < len(name) and (part := _AXES.match(name, at)) is not None:
        outer, size, inner = part.groups()
        found.append((outer, 0) if outer else (inner, int(size)))
        at = part.end()
    letters = [letter for letter, _ in found]
    missing = {x.upper() for x in letters} - {x for x in letters if x.isupper()}
    if at < len(name) or not found or missing or len({*letters}) < len(letters):
        raise OpError(
            f"layout: expected letters such as NCHW, each once, or with inner parts of axes, "
            f"NCHW16c; got {name!r}"
        )
    return found


class BijectiveLayout:
    """Indices and shapes of one layout in another of the same axes: ``NCHW`` and ``NCHW16c``."""

    def __init__(self, src_layout: Layout, dst_layout: Layout) -> None:
        if src_layout.plain != dst_layout.plain:
            raise OpError(f"bijective_layout: {src_layout} and {dst_layout} are of different axes")
        self.src_layout, self.dst_layout = src_layout, dst_layout

    def __str__(self) -> str:
        return f"BijectiveLayout({self.src_layout.name}->{self.dst_layout.name})"

    __repr__ = __str__

    def forward_index(self, index: Sequence[Any]) -> tuple[Dim, ...]:
        """The index in the second layout of an index in the first."""
        return _index(self.src_layout, self.dst_layout, index)

    def backward_index(self, index: Sequence[Any]) -> tuple[Dim, ...]:
        """The index in the first layout of an index in the second."""
        return _index(self.dst_layout, self.src_layout, index)

    def forward_shape(self, shape: Sequence[Any]) -> tuple[Dim, ...]:
        """The shape in the second layout of a shape in the first; parts are filled up."""
        return _shape(self.src_layout, self.dst_layout, shape)

    def backward_shape(self, shape: Sequence[Any]) -> tuple[Dim, ...]:
        """The shape in the first layout of a shape in the second; parts are filled up."""
        return _shape(self.dst_layout, self.src_layout, shape)


def _by_axis(layout: Layout, values: Sequence[Any], what: str) -> dict[str, Any]:
    if len(values) != len(layout):
        raise OpError(f"{layout} takes {len(layout)} {what}; got {len(values)}")
    return {layout[i]: v for i, v in enumerate(values)}


def _index(source: Layout, target: Layout, index: Sequence[Any]) -> tuple[Dim, ...]:
    given = _by_axis(source, index, "indices")
    made: list[Dim] = []
    for i in range(len(target)):
        axis = target[i].upper()
        whole = given[axis] * source.inner(axis) + given.get(axis.lower(), 0)
        parts = target.inner(axis)
        made.append(_dim(whole // parts if target[i].isupper() else whole % parts))
    return tuple(made)


def _shape(source: Layout, target: Layout, shape: Sequence[Any]) -> tuple[Dim, ...]:
    given = _by_axis(source, shape, "sizes")
    made: list[Dim] = []
    for i in range(len(target)):
        axis, parts = target[i].upper(), target.inner(target[i])
        blocks = (given[axis] * source.inner(axis) + (parts - 1)) // parts
        made.append(_dim(blocks) if target[i].isupper() else parts)
    return tuple(made)


def _dim(value: Any) -> Dim:
    return as_dim(simplify(value)) if isinstance(value, PrimExpr) else int(value)


def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """The layout of that text, its indices of ``dtype``."""
    return Layout(layout_str, dtype)


def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout | None:
    """From one layout to another; None where one is undefined, or they have different axes."""
    if src_layout in ("", UNDEFINED) or dst_layout in ("", UNDEFINED):
        return None
    source = layout(src_layout) if isinstance(src_layout, str) else src_layout
    target = layout(dst_layout) if isinstance(dst_layout, str) else dst_layout
    return BijectiveLayout(source, target) if source.plain == target.plain else None
