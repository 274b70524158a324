"""Attention of several heads, in one call of a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/attention.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from relax2xla.kernels.native import Call, Family, Tensor, four, is_measured, pair
from relax2xla.kernels.products import PANEL

#: What a query sees: all keys, those up to its own place, or those up to its place as far behind as
#: there are more keys than queries, or the other way round; as ``relax.nn.attention`` names it.
MASKS: Final = ("", "TopLeft", "BottomRight")
#: Tensors that are added to the scores, at most.
MOST_BIASES: Final = 2
# Numbers of the keys or the values of a head, in panels: a thread has memory for these.
_MOST_NEAR: Final = 1 << 26


class Lie(NamedTuple):
    """How the rows of all heads lie in an operand.

    pitch: numbers of a row of [batch, rows, pitch], in which those of the heads follow each other
    from ``offset`` on; 0 where the operand is [batch, heads, rows, width]
    """

    pitch: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """``softmax(scale * query @ key^T + biases) @ value``, head by head, in float32.

    operands: query, key and value, as :class:`Lie` says; two tensors that are added to the scores,
    each broadcastable to [batch, heads, queries, keys], (1,) for one that is not there
    result: [batch, queries, heads, wide]

    depth: numbers of a query and of a key in a head; wide: of a value; biases: the shapes of those
    that are there; mask: one of ``MASKS``
    """

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    wide: int
    query: Lie
    key: Lie
    value: Lie
    scale: float
    biases: tuple[tuple[int, int, int, int], ...] = ()
    mask: str = ""

    name: ClassVar[str] = "relax2xla.attention.attention"
    symbol: ClassVar[str] = "relax2xla_attention_attend"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "added": len(self.biases),
            "depth": self.depth,
            "key": tuple(self.key),
            "keys": self.keys,
            "mask": self.mask,
            "query": tuple(self.query),
            "scale": self.scale,
            "value": tuple(self.value),
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        shapes: list[tuple[int, ...]] = [
            _given(lie, self.batch, self.heads, rows, width) for lie, rows, width in self._rows()
        ]
        shapes += [*self.biases, *[(1,)] * (MOST_BIASES - len(self.biases))]
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((self.batch, self.queries, self.heads, self.wide), "float32")

    @property
    def numbers(self) -> list[int | float]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        made: list[int | float] = [self.keys, self.depth]
        made += [n for lie in (self.query, self.key, self.value) for n in lie]
        made.append(len(self.biases))
        for i in range(MOST_BIASES):
            shape = self.biases[i] if i < len(self.biases) else (1, 1, 1, 1)
            made += [math.prod(shape[a + 1 :]) if shape[a] > 1 else 0 for a in range(4)]
        behind = abs(self.queries - self.keys) if self.mask == "BottomRight" else 0
        return [*made, int(bool(self.mask)), behind, self.scale]

    @property
    def multiplications(self) -> int:
        """How many the two products have."""
        return math.prod(self._scores()) * (self.depth + self.wide)

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if min(self.batch, self.heads, self.queries, self.keys, self.depth, self.wide) < 1:
            return "sizes are positive"
        if self.mask not in MASKS:
            return f"a mask is one of {MASKS}"
        if not math.isfinite(self.scale):
            return "scores are multiplied by a number"
        if not all(_fits(lie, self.heads * width) for lie, _, width in self._rows()):
            return "rows hold all heads"
        if len(self.biases) > MOST_BIASES:
            return f"up to {MOST_BIASES} tensors are added"
        if any(
            n not in (1, all_)
            for b in self.biases
            for n, all_ in zip(b, self._scores(), strict=True)
        ):
            return "what is added is as large as the scores, or one number, along each axis"
        if self.keys * max(map(_padded, (self.depth, self.wide))) > _MOST_NEAR:
            return f"the keys of a head have at most {_MOST_NEAR} numbers"
        return ""

    def _rows(self) -> list[tuple[Lie, int, int]]:
        """Of query, key and value how they lie, their rows, and the width of a head."""
        return [
            (self.query, self.queries, self.depth),
            (self.key, self.keys, self.depth),
            (self.value, self.keys, self.wide),
        ]

    def _scores(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.queries, self.keys


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rows of heads turned by the angles of their places, as rotary embeddings do, in float32.

    ``x * cos + concat(-second, first) * sin``, where ``first`` and ``second`` are the halves of x.

    operands: x, as :class:`Lie` says; cosines and sines, [batch, rows, width] each or the same for
    all of a batch, [1, rows, width]
    result: [batch, rows, heads, width]
    """

    batch: int
    rows: int
    heads: int
    width: int
    lie: Lie
    cosines: int
    sines: int

    name: ClassVar[str] = "relax2xla.attention.rotation"
    symbol: ClassVar[str] = "relax2xla_attention_rotate"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"lie": tuple(self.lie)}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        tables = [(batch, self.rows, self.width) for batch in (self.cosines, self.sines)]
        given = _given(self.lie, self.batch, self.heads, self.rows, self.width)
        return [Tensor(shape, "float32") for shape in (given, *tables)]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((self.batch, self.rows, self.heads, self.width), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        each = self.rows * self.width
        return [*self.lie, *(each if n > 1 else 0 for n in (self.cosines, self.sines))]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if min(self.batch, self.rows, self.heads, self.width) < 1 or self.width % 2:
            return "sizes are positive, and a row has two halves"
        if not {self.cosines, self.sines} <= {1, self.batch}:
            return "angles are there for each of a batch, or for all"
        return "" if _fits(self.lie, self.heads * self.width) else "rows hold all heads"


def _given(lie: Lie, batch: int, heads: int, rows: int, width: int) -> tuple[int, ...]:
    """The shape of an operand that rows of heads are read from."""
    return (batch, rows, lie.pitch) if lie.pitch else (batch, heads, rows, width)


def _fits(lie: Lie, numbers: int) -> bool:
    """Whether so many numbers of all heads are in a row."""
    return lie == Lie(0) or (lie.offset >= 0 and lie.offset + numbers <= lie.pitch)


def _padded(width: int) -> int:
    return -(-width // PANEL) * PANEL


def _attention(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    batch, queries, heads, wide = made.shape
    biases = tuple(four(given[3 + i].shape) for i in range(int(at["added"])))
    query, key, value = (Lie(*pair(at[name])) for name in ("query", "key", "value"))
    return Attention(
        batch,
        heads,
        queries,
        int(at["keys"]),
        int(at["depth"]),
        wide,
        query,
        key,
        value,
        float(at["scale"]),
        biases,
        str(at["mask"]),
    )


def _rotation(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    batch, rows, heads, width = made.shape
    tables = (given[i].shape[0] for i in (1, 2))
    return Rotation(batch, rows, heads, width, Lie(*pair(at["lie"])), *tables)


FAMILY: Final = Family(
    name="attention",
    readers={Attention: _attention, Rotation: _rotation},
    source="attention.cpp",
    headers=("activations.h", "products/tile.h", "threads.h", "turn.h"),
)
# Queries from which keys and values are worth laying out, and multiplications from which a call is.
_QUERIES: Final = 8
_LARGE: Final = 200_000
# Numbers from which a rotation is.
_TURNED: Final = 4096


def pays(call: Attention | Rotation) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    if not is_measured():
        return False
    if isinstance(call, Rotation):
        return math.prod(call.result.shape) >= _TURNED
    return call.queries >= _QUERIES and call.multiplications >= _LARGE
