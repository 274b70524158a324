"""The device's part of a cache that the host drives: a program per kind of call and sizes.

What they compute is in ``rows``. Programs that write take the pool's memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla.builder import BlockBuilder
from relax2xla.ir import Expr, TensorStructInfo, Tuple, Var
from relax2xla.kv_state import rows
from relax2xla.kv_state.rope import Rotation
from relax2xla.kv_state.rows import Bounds, Heads, Maps, Sizes
from relax2xla.vm import VirtualMachine, build

# Programs are a few MB each; those of many caches share them.
_KEPT: Final = 512


class _Maker:
    """A function ``main`` under construction: parameters by name, emitted operators."""

    def __init__(self) -> None:
        self.builder = BlockBuilder()
        self.params: list[Var] = []

    def param(self, name: str, shape: Sequence[int], dtype: str) -> Var:
        made = Var(name, TensorStructInfo(tuple(shape), dtype))
        self.params.append(made)
        return made

    def emit(self, value: Expr, /) -> Expr:
        return self.builder.emit(value)

    def machine(self, body: Callable[[], Sequence[Expr]], donate: bool) -> Any:
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                out = self.builder.emit_output(Tuple(list(body())))
            self.builder.emit_func_output(out)
        built = build(self.builder.get(), donate=["pool"] if donate else None)
        return VirtualMachine(built)["main"]


def _visible(m: _Maker, at: Sizes) -> Var:
    shape = (at.sequences, at.steps)
    if at.masked:
        return m.param("mask", (*shape, at.keys), "bool")
    return m.param("limits", shape, "int32")


def _maps(m: _Maker, at: Sizes) -> tuple[Maps, Var]:
    taken = m.param("rows", (at.sequences * at.steps,), "int32")
    back = m.param("back", (at.tokens,), "int32")
    return Maps(taken, back), m.param("scale", (), "float32")


def _table(m: _Maker, at: Sizes) -> Var:
    return m.param("table", (at.sequences, at.keys), "int32")


@functools.lru_cache(_KEPT)
def fused(heads: Heads, rope: Rotation | None, inline: bool, at: Sizes, bounds: Bounds) -> Any:
    """``rows.fused``: pool, qkv, positions, slots, table, seen, rows, back, scale -> (pool, o)."""
    m = _Maker()
    pool = m.param("pool", heads.pool, heads.dtype)
    qkv = m.param("qkv", (at.tokens, heads.queries + 2 * heads.keys, heads.size), heads.dtype)
    positions = m.param("positions", (at.tokens,), "int32")
    slots = m.param("slots", (at.tokens,), "int32")
    table, seen = _table(m, at), _visible(m, at)
    maps, scale = _maps(m, at)

    def body() -> Sequence[Expr]:
        given = (pool, qkv, positions, slots, table, seen, maps, scale, bounds)
        return rows.fused(m, heads, rope, inline, at, *given)

    return m.machine(body, donate=True)


@functools.lru_cache(_KEPT)
def own(heads: Heads, inline: Rotation | None, at: Sizes) -> Any:
    """``rows.own``: (positions, q, k, v, seen, rows, back, scale) -> (o, lse)."""
    m = _Maker()
    positions = m.param("positions", (at.tokens,), "int32")
    q = m.param("q", (at.tokens, heads.queries, heads.size), heads.dtype)
    k = m.param("k", (at.tokens, heads.keys, heads.size), heads.dtype)
    v = m.param("v", (at.tokens, heads.keys, heads.value_size), heads.dtype)
    seen = _visible(m, at)
    maps, scale = _maps(m, at)

    def body() -> Sequence[Expr]:
        return rows.own(m, heads, inline, at, positions, (q, k, v), seen, maps, scale)

    return m.machine(body, donate=False)


@functools.lru_cache(_KEPT)
def cross(heads: Heads, latent: bool, inline: Rotation | None, at: Sizes) -> Any:
    """``rows.cross``: (pool, q, positions, table, seen, rows, back, scale) -> (o, lse)."""
    m = _Maker()
    shape = (heads.slots, heads.size) if latent else heads.pool
    pool = m.param("pool", shape, heads.dtype)
    q = m.param("q", (at.tokens, heads.queries, heads.size), heads.dtype)
    positions = m.param("positions", (at.tokens,), "int32")
    table, seen = _table(m, at), _visible(m, at)
    maps, scale = _maps(m, at)

    def body() -> Sequence[Expr]:
        given = (pool, q, positions, table, seen, maps, scale)
        return rows.cross(m, heads, latent, inline, at, *given)

    return m.machine(body, donate=False)


@functools.lru_cache(_KEPT)
def append(heads: Heads, tokens: int) -> Any:
    """(pool, kv, slots) -> (pool,): MLA's one row per token."""
    m = _Maker()
    pool = m.param("pool", (heads.slots, heads.size), heads.dtype)
    kv = m.param("kv", (tokens, heads.size), heads.dtype)
    slots = m.param("slots", (tokens,), "int32")
    return m.machine(lambda: [rows.write(m, pool, slots, kv)], donate=True)
