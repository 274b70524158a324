"""The device's part: attention over slots, each a Relax program, built once per kind and sizes.

The pool of a layer is one array with a row per slot, ``(slots, 2, kv_heads, head_dim)`` for keys
and values, ``(slots, dim)`` for MLA. Beyond the slots of pages it has two rows: one that padding is
written to, one that stays zero and is read for it. Programs that write take the pool's memory.

``Sizes`` are those of a step, each padded to a power of two: tokens of all sequences, sequences,
tokens of one, and keys of one. ``rows`` (sequences * steps) are the tokens of each sequence and
``back`` (tokens) the way back; a query sees the keys up to ``limits`` (sequences, steps), and in
token trees those of the mask (sequences, steps, keys).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Expr, TensorStructInfo, Tuple, Var, const
from relax2xla.kv_state.rope import Rotation
from relax2xla.vm import VirtualMachine, build

# Programs are a few MB each; those of many caches share them.
_KEPT: Final = 512


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
        return (self.slots, 2, self.keys, self.size)


class _Maker:
    """A function ``main`` under construction: parameters by name, emitted operators."""

    def __init__(self) -> None:
        self.builder = BlockBuilder()
        self.params: list[Var] = []

    def param(self, name: str, shape: Sequence[int], dtype: str) -> Var:
        made = Var(name, TensorStructInfo(tuple(shape), dtype))
        self.params.append(made)
        return made

    def emit(self, e: Expr) -> Expr:
        return self.builder.emit(e)

    def machine(self, body: Callable[[], Sequence[Expr]], donate: bool) -> Any:
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                out = self.builder.emit_output(Tuple(list(body())))
            self.builder.emit_func_output(out)
        built = build(self.builder.get(), donate=["pool"] if donate else None)
        return VirtualMachine(built)["main"]


def _rotated(m: _Maker, x: Expr, angles: Expr, how: Rotation) -> Expr:
    """``x`` (..., d) in float32 turned by ``angles``, which broadcast to (..., size / 2)."""
    shape = _shape(x)
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


def _angles(m: _Maker, positions: Expr, how: Rotation) -> Expr:
    at = m.emit(op.expand_dims(op.astype(positions, "float32"), [-1]))
    return m.emit(op.multiply(at, const(np.array(how.frequencies, np.float32))))


def _turned(m: _Maker, x: Expr, positions: Expr, how: Rotation | None) -> Expr:
    """``x`` (..., d), in its dtype, by positions that broadcast to (...)."""
    if how is None:
        return x
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    wide = m.emit(op.astype(x, "float32"))
    return m.emit(op.astype(_rotated(m, wide, _angles(m, positions, how), how), info.dtype))


def _attend(m: _Maker, q: Expr, k: Expr, v: Expr, seen: Expr, scale: Expr) -> tuple[Expr, Expr]:
    """Attention in float32: o (b * s, hq, dv), and the base-2 logarithm of the sums (b * s, hq).

    q: (b, s, hq, d); k: (b, hkv, n, d); v: (b, hkv, n, dv); seen: (b, s, n), bool. A query that
    sees nothing gives zeros, and -inf.
    """
    (b, s, hq, d), (_, hkv, n, dv) = _shape(q), _shape(v)
    group = hq // hkv
    e = m.emit
    q = e(op.reshape(op.multiply(op.astype(q, "float32"), scale), (b, s, hkv, group, d)))
    q = e(op.reshape(op.permute_dims(q, [0, 2, 3, 1, 4]), (b, hkv, group * s, d)))
    k, v = e(op.astype(k, "float32")), e(op.astype(v, "float32"))
    scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2]))
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


def _seen(m: _Maker, given: Expr, at: Sizes) -> Expr:
    if at.masked:
        return given
    index = const(np.arange(at.keys, dtype=np.int32).reshape(1, 1, -1))
    return m.emit(op.less_equal(index, op.expand_dims(given, [2])))


def _visible(m: _Maker, at: Sizes) -> Var:
    shape = (at.sequences, at.steps)
    if at.masked:
        return m.param("mask", (*shape, at.keys), "bool")
    return m.param("limits", shape, "int32")


def _maps(m: _Maker, at: Sizes) -> tuple[Var, Var, Var]:
    rows = m.param("rows", (at.sequences * at.steps,), "int32")
    back = m.param("back", (at.tokens,), "int32")
    return rows, back, m.param("scale", (), "float32")


def _by_sequence(m: _Maker, x: Expr, rows: Expr, at: Sizes) -> Expr:
    """The tokens of ``x`` (tokens, h, d) as (sequences, steps, h, d)."""
    taken = m.emit(op.take(x, rows, 0))
    return m.emit(op.reshape(taken, (at.sequences, at.steps, *_shape(x)[1:])))


def _table(m: _Maker, at: Sizes) -> Var:
    return m.param("table", (at.sequences, at.keys), "int32")


def _read(m: _Maker, pool: Expr, table: Expr, at: Sizes) -> Expr:
    """The rows of ``pool`` of each sequence: (sequences, keys, ...)."""
    flat = m.emit(op.take(pool, op.reshape(table, (at.sequences * at.keys,)), 0))
    return m.emit(op.reshape(flat, (at.sequences, at.keys, *_shape(pool)[1:])))


def _keys_and_values(
    m: _Maker, pool: Expr, table: Expr, heads: Heads, inline: Rotation | None, at: Sizes
) -> tuple[Expr, Expr]:
    """(sequences, heads, keys, size) each: gathered head by head, so that products need no copy."""
    flat = m.emit(op.reshape(pool, (heads.slots * 2 * heads.keys, heads.size)))
    first = op.multiply(op.expand_dims(table, [1]), const(2 * heads.keys, "int32"))
    shape = (at.sequences, heads.keys, at.keys)
    made: list[Expr] = []
    for i in range(2):
        head = np.arange(i * heads.keys, (i + 1) * heads.keys, dtype=np.int32)
        index = m.emit(op.add(first, const(head.reshape(1, -1, 1))))
        made.append(m.emit(op.take(flat, op.reshape(index, shape), 0)))
    k, v = made
    return _turned(m, k, const(np.arange(at.keys, dtype=np.int32)), inline), v


def _write(m: _Maker, pool: Expr, slots: Expr, new: Expr) -> Expr:
    return m.emit(op.scatter_nd(pool, op.expand_dims(slots, [1]), new))


def _shape(x: Expr) -> tuple[int, ...]:
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    assert info.dims is not None
    return tuple(int(d) for d in info.dims if isinstance(d, int))


@functools.lru_cache(_KEPT)
def fused(heads: Heads, rope: Rotation | None, inline: bool, at: Sizes) -> Any:
    """(pool, qkv, positions, slots, table, seen, rows, back, scale) -> (pool, o).

    rope: of queries, and of keys before they are kept, or as they are read where ``inline``.
    """
    m = _Maker()
    pool = m.param("pool", heads.pool, heads.dtype)
    qkv = m.param("qkv", (at.tokens, heads.queries + 2 * heads.keys, heads.size), heads.dtype)
    positions = m.param("positions", (at.tokens,), "int32")
    slots = m.param("slots", (at.tokens,), "int32")
    table, given = _table(m, at), _visible(m, at)
    rows, back, scale = _maps(m, at)

    def body() -> list[Expr]:
        ends = [heads.queries, heads.queries + heads.keys]
        parts = m.emit(op.split(qkv, ends, 1))
        q, k, v = (m.emit(parts[i]) for i in range(3))
        where = m.emit(op.expand_dims(positions, [1]))
        q = _turned(m, q, where, rope)
        k = k if inline else _turned(m, k, where, rope)
        after = _write(m, pool, slots, m.emit(op.stack([k, v], 1)))
        k, v = _keys_and_values(m, after, table, heads, rope if inline else None, at)
        o, _ = _attend(m, _by_sequence(m, q, rows, at), k, v, _seen(m, given, at), scale)
        return [after, m.emit(op.astype(op.take(o, back, 0), heads.dtype))]

    return m.machine(body, donate=True)


@functools.lru_cache(_KEPT)
def own(heads: Heads, inline: Rotation | None, at: Sizes) -> Any:
    """(positions, q, k, v, seen, rows, back, scale) -> (o, lse): of the new tokens alone.

    inline: the rotation of queries and keys, if they are to be turned.
    """
    m = _Maker()
    positions = m.param("positions", (at.tokens,), "int32")
    q = m.param("q", (at.tokens, heads.queries, heads.size), heads.dtype)
    k = m.param("k", (at.tokens, heads.keys, heads.size), heads.dtype)
    v = m.param("v", (at.tokens, heads.keys, heads.value_size), heads.dtype)
    given = _visible(m, at)
    rows, back, scale = _maps(m, at)

    def body() -> list[Expr]:
        where = m.emit(op.expand_dims(positions, [1]))
        turned = [_turned(m, x, where, inline) for x in (q, k)]
        queries, *rest = (_by_sequence(m, x, rows, at) for x in (*turned, v))
        keys, values = (m.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in rest)
        made = _attend(m, queries, keys, values, _seen(m, given, at), scale)
        return _both(m, made, back, heads)

    return m.machine(body, donate=False)


@functools.lru_cache(_KEPT)
def cross(heads: Heads, latent: bool, inline: Rotation | None, at: Sizes) -> Any:
    """(pool, q, positions, table, seen, rows, back, scale) -> (o, lse): over what is in the cache.

    latent: MLA, whose values are the first ``value_size`` features of its keys. inline: the
    rotation of queries and of keys, which are kept as they came.
    """
    m = _Maker()
    shape = (heads.slots, heads.size) if latent else heads.pool
    pool = m.param("pool", shape, heads.dtype)
    q = m.param("q", (at.tokens, heads.queries, heads.size), heads.dtype)
    positions = m.param("positions", (at.tokens,), "int32")
    table, given = _table(m, at), _visible(m, at)
    rows, back, scale = _maps(m, at)

    def body() -> list[Expr]:
        if latent:
            k = m.emit(op.expand_dims(_read(m, pool, table, at), [1]))
            v = m.emit(op.strided_slice(k, [3], [0], [heads.value_size]))
        else:
            k, v = _keys_and_values(m, pool, table, heads, inline, at)
        where = m.emit(op.expand_dims(positions, [1]))
        queries = _by_sequence(m, _turned(m, q, where, inline), rows, at)
        return _both(m, _attend(m, queries, k, v, _seen(m, given, at), scale), back, heads)

    return m.machine(body, donate=False)


@functools.lru_cache(_KEPT)
def append(heads: Heads, tokens: int) -> Any:
    """(pool, kv, slots) -> (pool,): MLA's one row per token."""
    m = _Maker()
    pool = m.param("pool", (heads.slots, heads.size), heads.dtype)
    kv = m.param("kv", (tokens, heads.size), heads.dtype)
    slots = m.param("slots", (tokens,), "int32")
    return m.machine(lambda: [_write(m, pool, slots, kv)], donate=True)


def _both(m: _Maker, made: tuple[Expr, Expr], back: Expr, heads: Heads) -> list[Expr]:
    o, lse = made
    return [
        m.emit(op.astype(op.take(o, back, 0), heads.dtype)),
        m.emit(op.take(lse, back, 0)),
    ]
