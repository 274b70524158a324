"""Attention over slots, as operators.

The pool of a layer is one array of rows, ``(2 * kv_heads * slots, head_dim)`` for keys and then
values, head by head (what a product reads lies together: that is twice as fast on CPUs as one
token's heads side by side), and ``(slots, dim)`` for MLA. Beyond the slots of pages there are two
more: one that padding is written to, one that stays zero and is read for it.

``Sizes`` are those of a step, each padded to a power of two (keys: or 3/4 of one): tokens of all
sequences, sequences, tokens of one, and keys of one. ``rows`` (sequences * steps) are the tokens of
each sequence and ``back`` (tokens) the way back; a query sees the keys up to ``limits`` (sequences,
steps), and in token trees those of the mask (sequences, steps, keys).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from relax2xla import op
from relax2xla.errors import RunError
from relax2xla.ir import Expr, TensorStructInfo, TupleGetItem, const
from relax2xla.kv_state.guards import finite, whole
from relax2xla.kv_state.rope import Rotation


class Emitter(Protocol):
    """What puts operators into a function."""

    def emit(self, value: Expr, /) -> Expr:
        """A variable for ``value``."""
        ...


@dataclass(frozen=True, slots=True)
class Maps:
    """Which tokens are whose: ``rows`` of each sequence, ``back`` of each token."""

    rows: Expr
    back: Expr


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a step, padded."""

    tokens: int
    sequences: int
    steps: int
    keys: int
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """Of one layer. slots: rows of the pool."""

    queries: int
    keys: int
    size: int
    value_size: int
    dtype: str
    slots: int

    @property
    def pool(self) -> tuple[int, ...]:
        """The shape of keys and values."""
        return (2 * self.keys * self.slots, self.size)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a layer does to scores beside scaling them, beyond TVM's calls.

    window: a query sees so many tokens up to its own, 0: all; cap: scores become
    ``cap * tanh(score / cap)``, 0: they stay. RunError for others than such numbers.
    """

    window: int = 0
    cap: float = 0.0

    def __post_init__(self) -> None:
        window, cap = whole(self.window, "a window"), finite(self.cap, "a cap of scores")
        if window < 0 or cap < 0:
            raise RunError(f"a window and a cap of scores are at least 0; got {window} and {cap}")
        object.__setattr__(self, "window", window)
        object.__setattr__(self, "cap", cap)


# A pool's attention for one token of each sequence: see ``native.decode``.
Decode = Callable[[Emitter, Expr, Expr, Expr, Expr, Heads, Sizes, Bounds], Expr]


def _rotated(m: Emitter, x: Expr, angles: Expr, how: Rotation) -> Expr:
    """``x`` (..., d) in float32 turned by ``angles``, which broadcast to (..., size / 2)."""
    shape = dims(x)
    half, size = how.size // 2, how.size
    cos, sin = m.emit(op.cos(angles)), m.emit(op.sin(angles))
    if how.magnitude != 1.0:
        by = const(how.magnitude, "float32")
        cos, sin = m.emit(op.multiply(cos, by)), m.emit(op.multiply(sin, by))

    def part(start: int, end: int, stride: int) -> Expr:
        return m.emit(op.strided_slice(x, [len(shape) - 1], [start], [end], [stride]))

    pairs = how.interleaved
    a = part(0, size, 2) if pairs else part(0, half, 1)
    b = part(1, size, 2) if pairs else part(half, size, 1)
    first = m.emit(op.subtract(op.multiply(a, cos), op.multiply(b, sin)))
    second = m.emit(op.add(op.multiply(b, cos), op.multiply(a, sin)))
    if pairs:
        turned = m.emit(op.stack([first, second], len(shape)))
        turned = m.emit(op.reshape(turned, (*shape[:-1], size)))
        parts = [turned]
    else:
        parts = [first, second]
    if size < shape[-1]:
        parts.append(part(size, shape[-1], 1))
    return m.emit(op.concat(parts, len(shape) - 1)) if len(parts) > 1 else parts[0]


def _angles(m: Emitter, positions: Expr, how: Rotation) -> Expr:
    at = m.emit(op.expand_dims(op.astype(positions, "float32"), [-1]))
    return m.emit(op.multiply(at, const(np.array(how.frequencies, np.float32))))


def turn(m: Emitter, x: Expr, positions: Expr, how: Rotation | None) -> Expr:
    """``x`` (..., d), in its dtype, by positions that broadcast to (...)."""
    if how is None:
        return x
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    wide = m.emit(op.astype(x, "float32"))
    return m.emit(op.astype(_rotated(m, wide, _angles(m, positions, how), how), info.dtype))


def attend(
    m: Emitter, q: Expr, k: Expr, v: Expr, seen: Expr, scale: Expr, cap: float = 0.0
) -> tuple[Expr, Expr]:
    """Attention in float32: o (b * s, hq, dv), and the base-2 logarithm of the sums (b * s, hq).

    q: (b, s, hq, d); k: (b, hkv, n, d); v: (b, hkv, n, dv); seen: (b, s, n), bool. A query that
    sees nothing gives zeros, and -inf.
    """
    (b, s, hq, d), (_, hkv, n, dv) = dims(q), dims(v)
    group = hq // hkv
    e = m.emit
    q = e(op.reshape(op.multiply(op.astype(q, "float32"), scale), (b, s, hkv, group, d)))
    q = e(op.reshape(op.permute_dims(q, [0, 2, 3, 1, 4]), (b, hkv, group * s, d)))
    k, v = e(op.astype(k, "float32")), e(op.astype(v, "float32"))
    scores = e(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])))
    if cap:
        top = const(cap, "float32")
        scores = e(op.multiply(op.tanh(op.divide(scores, top)), top))
    scores = e(op.reshape(scores, (b, hkv, group, s, n)))
    mask = e(op.reshape(seen, (b, 1, 1, s, n)))
    low, zero = const(-1e30, "float32"), const(0.0, "float32")
    top = e(op.max(op.where(mask, scores, low), -1, keepdims=True))
    weights = e(op.where(mask, op.exp(op.subtract(scores, top)), zero))
    total = e(op.sum(weights, -1, keepdims=True))
    some = e(op.greater(total, zero))
    safe = e(op.where(some, total, const(1.0, "float32")))
    product = op.matmul(op.reshape(weights, (b, hkv, group * s, n)), v)
    o = e(op.divide(op.reshape(product, (b, hkv, group, s, dv)), safe))
    o = e(op.reshape(op.permute_dims(o, [0, 3, 1, 2, 4]), (b * s, hq, dv)))
    natural = op.add(op.log(safe), top)
    lse = op.where(some, op.multiply(natural, const(1 / math.log(2), "float32")), const(-np.inf))
    lse = e(op.reshape(op.permute_dims(lse, [0, 3, 1, 2, 4]), (b * s, hq)))
    return o, lse


def visible(m: Emitter, given: Expr, at: Sizes, window: int = 0) -> Expr:
    """What each query sees, (sequences, steps, keys): by ``limits``, or by the mask of a tree."""
    if at.masked:
        return given
    index = const(np.arange(at.keys, dtype=np.int32).reshape(1, 1, -1))
    last = m.emit(op.expand_dims(given, [2]))
    seen = m.emit(op.less_equal(index, last))
    if not window:
        return seen
    near = op.greater(index, op.subtract(last, const(window, "int32")))
    return m.emit(op.logical_and(seen, near))


def by_sequence(m: Emitter, x: Expr, rows: Expr, at: Sizes) -> Expr:
    """The tokens of ``x`` (tokens, h, d) as (sequences, steps, h, d)."""
    taken = m.emit(op.take(x, rows, 0))
    return m.emit(op.reshape(taken, (at.sequences, at.steps, *dims(x)[1:])))


def _read(m: Emitter, pool: Expr, table: Expr, at: Sizes) -> Expr:
    """The rows of ``pool`` of each sequence: (sequences, keys, ...)."""
    flat = m.emit(op.take(pool, op.reshape(table, (at.sequences * at.keys,)), 0))
    return m.emit(op.reshape(flat, (at.sequences, at.keys, *dims(pool)[1:])))


def keys_and_values(
    m: Emitter, pool: Expr, table: Expr, heads: Heads, inline: Rotation | None, at: Sizes
) -> tuple[Expr, Expr]:
    """(sequences, heads, keys, size) each: gathered head by head, so that products need no copy."""
    made: list[Expr] = []
    for i in range(2):
        index = m.emit(op.add(op.expand_dims(table, [1]), _heads_at(heads, i, (1, -1, 1))))
        made.append(m.emit(op.take(pool, index, 0)))
    k, v = made
    return turn(m, k, const(np.arange(at.keys, dtype=np.int32)), inline), v


def _heads_at(heads: Heads, which: int, shape: tuple[int, ...]) -> Expr:
    """Where in a pool the rows of each head of keys (0), or values (1), begin."""
    first = np.arange(which * heads.keys, (which + 1) * heads.keys, dtype=np.int32) * heads.slots
    return const(first.astype(np.int32).reshape(shape))


def write(m: Emitter, pool: Expr, slots: Expr, new: Expr) -> Expr:
    """``pool`` with the rows ``new`` at ``slots``."""
    return m.emit(op.scatter_nd(pool, op.expand_dims(slots, [-1]), new))


def _write_heads(m: Emitter, heads: Heads, pool: Expr, slots: Expr, k: Expr, v: Expr) -> Expr:
    """``pool`` with keys and values, (tokens, heads, size), at ``slots``."""
    column = m.emit(op.expand_dims(slots, [1]))
    at = [m.emit(op.add(column, _heads_at(heads, i, (1, -1)))) for i in range(2)]
    return write(m, pool, m.emit(op.concat(at, 1)), m.emit(op.concat([k, v], 1)))


def fused(
    m: Emitter,
    heads: Heads,
    rope: Rotation | None,
    inline: bool,
    at: Sizes,
    pool: Expr,
    qkv: Expr,
    positions: Expr,
    slots: Expr,
    table: Expr,
    seen: Expr,
    maps: Maps,
    scale: Expr,
    bounds: Bounds,
    decode: Decode | None = None,
) -> tuple[Expr, Expr]:
    """The pool with new keys and values, and attention over it: (tokens, queries, size).

    rope: of queries, and of keys before they are kept, or as they are read where ``inline``. qkv:
    (tokens, queries + 2 * keys, size). decode: what attends in place of rows.
    """
    ends = [heads.queries, heads.queries + heads.keys]
    parts = m.emit(op.split(qkv, ends, 1))
    q, k, v = (m.emit(TupleGetItem(parts, i)) for i in range(3))
    where = m.emit(op.expand_dims(positions, [1]))
    q = turn(m, q, where, rope)
    k = k if inline else turn(m, k, where, rope)
    after = _write_heads(m, heads, pool, slots, k, v)
    if decode is not None:
        scaled = m.emit(op.multiply(m.emit(op.take(q, maps.rows, 0)), scale))
        return after, _back(
            m, decode(m, scaled, after, table, seen, heads, at, bounds), maps, heads
        )
    k, v = keys_and_values(m, after, table, heads, rope if inline else None, at)
    seen = visible(m, seen, at, bounds.window)
    o, _ = attend(m, by_sequence(m, q, maps.rows, at), k, v, seen, scale, bounds.cap)
    return after, _back(m, o, maps, heads)


def own(
    m: Emitter,
    heads: Heads,
    inline: Rotation | None,
    at: Sizes,
    positions: Expr,
    given: tuple[Expr, Expr, Expr],
    seen: Expr,
    maps: Maps,
    scale: Expr,
) -> tuple[Expr, Expr]:
    """Attention of the new tokens to each other, and the logarithms of its sums.

    given: q, k and v, (tokens, heads, size); inline: their rotation, if they are to be turned.
    """
    q, k, v = given
    where = m.emit(op.expand_dims(positions, [1]))
    moved = [turn(m, x, where, inline) for x in (q, k)]
    queries, *rest = (by_sequence(m, x, maps.rows, at) for x in (*moved, v))
    keys, values = (m.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in rest)
    o, lse = attend(m, queries, keys, values, visible(m, seen, at), scale)
    return _back(m, o, maps, heads), m.emit(op.take(lse, maps.back, 0))


def cross(
    m: Emitter,
    heads: Heads,
    latent: bool,
    inline: Rotation | None,
    at: Sizes,
    pool: Expr,
    q: Expr,
    positions: Expr,
    table: Expr,
    before: Expr,
    maps: Maps,
    scale: Expr,
) -> tuple[Expr, Expr]:
    """Attention to what is in the pool up to ``before``, and the logarithms of its sums.

    latent: MLA, whose values are the first ``value_size`` features of its keys. inline: the
    rotation of queries and of keys, which are kept as they came.
    """
    if latent:
        k = m.emit(op.expand_dims(_read(m, pool, table, at), [1]))
        v = m.emit(op.strided_slice(k, [3], [0], [heads.value_size]))
    else:
        k, v = keys_and_values(m, pool, table, heads, inline, at)
    where = m.emit(op.expand_dims(positions, [1]))
    queries = by_sequence(m, turn(m, q, where, inline), maps.rows, at)
    o, lse = attend(m, queries, k, v, visible(m, before, at), scale)
    return _back(m, o, maps, heads), m.emit(op.take(lse, maps.back, 0))


def merge(m: Emitter, o: Expr, lse: Expr, other: Expr, other_lse: Expr) -> tuple[Expr, Expr]:
    """Attention over two sets of keys from that over each: (tokens, heads, size), and its lse.

    lse, other_lse: (tokens, heads), base-2 logarithms of the sums, -inf where nothing was seen.
    """
    e, none = m.emit, const(-np.inf, "float32")
    top = e(op.maximum(lse, other_lse))
    safe = e(op.where(op.equal(top, none), const(0.0, "float32"), top))
    two = const(2.0, "float32")
    weights = [e(op.power(two, op.subtract(x, safe))) for x in (lse, other_lse)]
    total = e(op.add(*weights))
    some = e(op.where(op.greater(total, const(0.0, "float32")), total, const(1.0, "float32")))
    parts = [
        e(op.multiply(op.astype(x, "float32"), op.expand_dims(op.divide(w, some), [-1])))
        for x, w in zip((o, other), weights, strict=True)
    ]
    info = o.struct_info
    assert isinstance(info, TensorStructInfo)
    log = op.multiply(op.log(total), const(1 / math.log(2), "float32"))
    return e(op.astype(op.add(*parts), info.dtype)), e(op.add(safe, log))


def _back(m: Emitter, o: Expr, maps: Maps, heads: Heads) -> Expr:
    return m.emit(op.astype(op.take(o, maps.back, 0), heads.dtype))


def dims(x: Expr) -> tuple[Any, ...]:
    """The dimensions of a tensor."""
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    assert info.dims is not None
    return tuple(info.dims)
