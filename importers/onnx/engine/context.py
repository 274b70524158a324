"""What converters work with: the node at hand, emitting, and indices as ONNX counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from onnx import GraphProto

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.importers.onnx.engine.bound_numbers import (
    bound_integers,
    bound_sizes,
    pinned,
    vector,
)
from relax2xla.importers.onnx.engine.evaluate import constant_value
from relax2xla.importers.onnx.engine.known_values import (
    Array,
    NeedsValue,
    dims_of,
    dtype_of,
    info_of,
    integers,
    scalar,
)
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import wrapped
from relax2xla.importers.shared.ranges import range_of
from relax2xla.ir import Constant, Expr, ShapeExpr, Var
from relax2xla.tir import Dim

if TYPE_CHECKING:
    from relax2xla.importers.onnx.engine.objects import Kind


class Subgraph(Protocol):
    """Converts a graph for inputs where the builder stands.

    ``host``: the machine runs it, ``key``: what random numbers in it are made from.
    """

    def __call__(
        self,
        graph: GraphProto,
        inputs: Sequence[Expr],
        /,
        *,
        host: bool = False,
        key: Expr | None = None,
    ) -> list[Expr]: ...


class Missing(Exception):
    """A value that was not made because a node before it is a gap."""


@dataclass(slots=True)
class LoopMemory:
    """What the loops of one model share.

    ``failed``: ways to convert a loop that its body (by identity, so it is kept alive) turned out
    not to allow, so that nested loops are not tried again and again; ``unrolled``: iterations that
    were written out.
    """

    failed: dict[tuple[int, str], GraphProto] = field(
        default_factory=dict[tuple[int, str], GraphProto]
    )
    unrolled: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    """One node under conversion.

    ``op``: its operator, ``opset``: the version of its domain, ``wanted``: for each output that the
    node lists whether it has a name (an unnamed one need not be computed), ``subgraph``: converts
    the body of a branch where the builder stands, ``loops``: what was learnt of the model's loops,
    ``mark``: gives what forgets the gaps found since, ``label``: the node's name,
    ``binds``: whether values that are read on the host here may say shapes, ``host``: whether
    anything can run on the host here, ``kinds``: what objects of the machine hold, ``key``: in a
    loop of XLA, what random numbers are made from in each iteration.
    """

    builder: BlockBuilder
    op: str
    opset: int
    wanted: Sequence[bool]
    subgraph: Subgraph
    loops: LoopMemory
    mark: Callable[[], Callable[[], None]]
    label: str
    binds: bool = True
    host: bool = True
    kinds: dict[Expr, Kind] = field(default_factory=lambda: dict[Expr, "Kind"]())
    key: Expr | None = None

    def wants(self, output: int) -> bool:
        """Whether the node names its output ``output``."""
        return output < len(self.wanted) and self.wanted[output]

    def emit(self, value: Expr) -> Expr:
        """Bind a value that is used more than once."""
        return value if isinstance(value, Constant | Var) else self.builder.emit(value)

    def value(self, x: Expr, what: str) -> Array:
        """The values of ``x``, which must be known; :class:`NeedsValue` where it has an input."""
        found = constant_value(self.builder, x)
        if found is None:
            raise NeedsValue(x, what)
        return found

    def sizes(self, x: Expr, what: str) -> list[Dim]:
        """The integers in ``x``, which are not negative; symbolic where computed at run time."""
        return self._integers(x, what, bound_sizes)

    def integers(self, x: Expr, what: str) -> list[Dim]:
        """The integers in ``x``; symbolic where they are computed at run time."""
        return self._integers(x, what, bound_integers)

    def _integers(
        self, x: Expr, what: str, bind: Callable[[BlockBuilder, Expr, str], list[Dim]]
    ) -> list[Dim]:
        found = constant_value(self.builder, x)
        if found is not None:
            return found.reshape(-1).tolist()
        if not self.binds:
            raise NeedsValue(x, what)
        return bind(self.builder, x, what)

    def vector(self, dims: Iterable[Any] | Expr) -> Expr:
        """Integers and dimensions, or a scalar or vector of integers, as an int64 vector."""
        if isinstance(dims, Expr):
            return vector(self.builder, dims)
        return self.emit(integers(dims).expr)

    def pinned(self, x: Expr, dims: Sequence[Dim | None]) -> Expr:
        """``x`` with these dimensions, None for those that are read off the value."""
        return pinned(self.builder, x, dims)

    def sized(self, x: Expr, dims: Sequence[Dim]) -> Expr:
        """``x`` with these sizes: where they are not its own, the call checks them."""
        return x if list(dims) == list(dims_of(x)) else self.pinned(x, dims)

    def cast(self, x: Expr, dtype: str) -> Expr:
        """``x`` in another dtype."""
        return x if dtype_of(x) == dtype else R.astype(x, dtype)

    def reshape(self, x: Expr, dims: Iterable[Dim]) -> Expr:
        """``x`` in another shape."""
        shape = tuple(dims)
        # A ShapeExpr, because 0 in a list of dimensions would copy the dimension of ``x``.
        return x if info_of(x).dims == shape else R.reshape(x, ShapeExpr(shape))

    def size(self, dim: Dim, dtype: str) -> Expr:
        """A dimension as a scalar tensor."""
        if isinstance(dim, int):
            return scalar(dim, dtype)
        return self.cast(integers((dim,), ndim=0).expr, dtype)

    def wrap(self, indices: Expr, size: Dim) -> Expr:
        """Indices that may be negative, counted from the front."""
        if isinstance(indices, Constant) and isinstance(size, int):
            data: Array = indices.data
            return Constant(np.where(data < 0, data + size, data)) if (data < 0).any() else indices
        dtype = dtype_of(indices)
        if dtype.startswith("u"):
            return indices
        indices = self.emit(indices)
        reach = range_of(indices, self.builder.lookup_binding)
        if reach is not None and reach[0] >= 0:
            return indices
        return wrapped(indices, self.size(size, dtype), scalar(0, dtype))


def known(x: Expr | None) -> Array | None:
    """The values of a constant, or None."""
    return x.data if isinstance(x, Constant) else None


def known_number(x: Expr | None) -> float | None:
    """The value of a constant of one element, or None."""
    data = known(x)
    return None if data is None or data.size != 1 else data.reshape(()).item()


def choice(value: Any, known_values: Iterable[Any], what: str) -> Any:
    """``value`` if it is one of ``known_values``, else a gap."""
    valid = list(known_values)
    if value not in valid:
        raise Unsupported(f"{what}={value!r}; supported: {', '.join(map(repr, valid))}")
    return value
