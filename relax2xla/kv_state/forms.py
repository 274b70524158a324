"""Caches and states inside of programs: what packed calls on them are as operators (decision D21).

A form is what programs depend on: sizes and settings, and the sizes of the step, padded. Two steps
of one form run the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relax2xla import op
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Expr,
    Function,
    PrimValue,
    TensorStructInfo,
    Tuple,
    const,
)
from relax2xla.ir.lattice import dims_equal
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.kv_state import native, rows
from relax2xla.kv_state.rope import Rotation
from relax2xla.kv_state.rows import Bounds, Heads, Maps, Sizes
from relax2xla.tir import Dim, FloatImm, IntImm
from relax2xla.transform.lower.objects_to_arrays import CallSite

_PREFIX: Final = "vm.builtin."
NO_TREES: Final = "a token tree is of no use to a layer with a window, which counts tokens in order"


@dataclass(frozen=True, slots=True)
class PagedForm:
    """A PagedKVCache in a step.

    latent: of each layer whether it is MLA; rope: None for none; native: attention of a decode, and
    its products of few rows, are functions in C++.
    """

    heads: Heads
    latent: tuple[bool, ...]
    rope: Rotation | None
    inline: bool
    at: Sizes
    native: bool = False

    @property
    def kept(self) -> Sequence[TensorStructInfo]:
        """The pools of the layers."""
        return [TensorStructInfo(self._pool(latent), self.heads.dtype) for latent in self.latent]

    @property
    def targets(self) -> frozenset[str]:
        """That of functions in C++."""
        return frozenset([native.TARGET]) if self.native else frozenset()

    def _pool(self, latent: bool) -> tuple[int, ...]:
        return (self.heads.slots, self.heads.size) if latent else self.heads.pool

    def call(self, site: CallSite) -> Expr | None:
        """See :class:`~relax2xla.transform.lower.objects_to_arrays.ObjectForm`."""
        return _calls(_PAGED, site)(self, site)

    def finish(self, func: Function) -> Function:
        """With products in C++, where attention is and a step has some sequences."""
        return native.with_products(func, self.at.sequences) if self.native else func

    def _layer(self, site: CallSite, latent: bool | None = None) -> int:
        at = int(_number(site, 0))
        if not 0 <= at < len(self.latent) or latent not in (None, self.latent[at]):
            raise TransformError(f"{site.name} of layer {at}, which is none of its kind")
        return at

    def _tensor(self, site: CallSite, place: int, tail: tuple[int, ...]) -> Expr:
        """An argument of (tokens, *tail) in the dtype of the cache."""
        x = site.args[place]
        info = x.struct_info
        if isinstance(info, TensorStructInfo) and info.dims and info.dtype == self.heads.dtype:
            if dims_equal(info.dims[1:], tail):
                return x
        raise TransformError(
            f"{site.name} takes {self.heads.dtype} of (tokens, {', '.join(map(str, tail))}); "
            f"got {show(info)}"
        )

    def _maps(self, site: CallSite, tokens: Dim) -> Maps:
        taken = site.given("rows", (self.at.sequences * self.at.steps,), "int32")
        return Maps(taken, site.given("back", (tokens,), "int32"))

    def _table(self, site: CallSite) -> Expr:
        return site.given("table", (self.at.sequences, self.at.keys), "int32")

    def _seen(self, site: CallSite, name: str, keys: int, masked: bool) -> Expr:
        shape = (self.at.sequences, self.at.steps)
        if masked:
            return site.given(f"{name}_mask", (*shape, keys), "bool")
        return site.given(name, shape, "int32")

    def fused(self, site: CallSite) -> Expr:
        """attention_with_fused_qkv: (tokens, queries, size)."""
        h, layer = self.heads, self._layer(site, latent=False)
        qkv = self._tensor(site, 2, (h.queries + 2 * h.keys, h.size))
        tokens = rows.dims(qkv)[0]
        site.kept[layer], o = rows.fused(
            site,
            h,
            self.rope,
            self.inline,
            self.at,
            site.kept[layer],
            qkv,
            site.given("positions", (tokens,), "int32"),
            site.given("slots", (tokens,), "int32"),
            self._table(site),
            self._seen(site, "limits", self.at.keys, self.at.masked),
            self._maps(site, tokens),
            _scale(site),
            self._bounds(site),
            native.decode if self.native else None,
        )
        return _checked(site, o)

    def _bounds(self, site: CallSite) -> Bounds:
        """The arguments after qkv, where there are any: a window, and a cap of scores."""
        if len(site.args) < 5:
            return Bounds()
        made = Bounds(int(_number(site, 3)), float(_number(site, 4)))
        if made.window and self.at.masked:
            raise TransformError(f"{site.name}: {NO_TREES}")
        return made

    def own(self, site: CallSite) -> Expr:
        """self_attention: the result, and the logarithms of its sums."""
        layer = self._layer(site)
        (tokens, hq, d), (_, hkv, dv) = (_heads(site, i) for i in (2, 4))
        if hq % hkv:
            raise TransformError(f"{site.name} of {hq} heads of queries and {hkv} of keys")
        q, k = (self._tensor(site, 2 + i, (n, d)) for i, n in enumerate((hq, hkv)))
        v = self._tensor(site, 4, (hkv, dv))
        at = Sizes(self.at.tokens, self.at.sequences, self.at.steps, self.at.steps, self.at.masked)
        inline = self._inline(layer)
        if inline is not None and inline.size > d:
            raise TransformError(f"{site.name}: rope of {inline.size} features in heads of {d}")
        made = rows.own(
            site,
            Heads(hq, hkv, d, dv, self.heads.dtype, 0),
            inline,
            at,
            site.given("positions", (tokens,), "int32"),
            (q, k, v),
            self._seen(site, "among", at.keys, at.masked),
            self._maps(site, tokens),
            _scale(site),
        )
        return _checked(site, Tuple(made))

    def cross(self, site: CallSite) -> Expr:
        """cross_attention: the result, and the logarithms of its sums."""
        h, layer = self.heads, self._layer(site)
        q = self._tensor(site, 2, (h.queries, h.size))
        tokens = rows.dims(q)[0]
        made = rows.cross(
            site,
            h,
            self.latent[layer],
            self._inline(layer),
            Sizes(self.at.tokens, self.at.sequences, self.at.steps, self.at.keys),
            site.kept[layer],
            q,
            site.given("positions", (tokens,), "int32"),
            self._table(site),
            self._seen(site, "before", self.at.keys, masked=False),
            self._maps(site, tokens),
            _scale(site),
        )
        return _checked(site, Tuple(made))

    def append(self, site: CallSite) -> None:
        """append_mla_kv: the cache."""
        layer = self._layer(site, latent=True)
        kv = self._tensor(site, 1, (self.heads.size,))
        slots = site.given("slots", (rows.dims(kv)[0],), "int32")
        site.kept[layer] = rows.write(site, site.kept[layer], slots, kv)

    def merge(self, site: CallSite) -> Expr:
        """merge_attn_output_inplace: both as one."""
        o, lse, other, other_lse = site.args
        return _checked(site, Tuple(rows.merge(site, o, lse, other, other_lse)))

    def positions(self, site: CallSite) -> Expr:
        """get_query_positions: (tokens,), int32."""
        info = site.info
        if not isinstance(info, TensorStructInfo) or info.dims is None or info.ndim != 1:
            raise TransformError(f"{site.name} gives (tokens,); the program says {show(info)}")
        return site.given("positions", info.dims, "int32")

    def _inline(self, layer: int) -> Rotation | None:
        return self.rope if self.inline and not self.latent[layer] else None


@dataclass(frozen=True, slots=True)
class RNNForm:
    """An RNNState in a step. count: rows of what is kept; shapes, dtypes: of a layer's states."""

    count: int
    layers: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @property
    def kept(self) -> Sequence[TensorStructInfo]:
        """The states, layer by layer: (count, *shape)."""
        pairs = list(zip(self.shapes, self.dtypes, strict=True))
        return [TensorStructInfo((self.count, *s), d) for _ in range(self.layers) for s, d in pairs]

    @property
    def targets(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def call(self, site: CallSite) -> Expr | None:
        """See :class:`~relax2xla.transform.lower.objects_to_arrays.ObjectForm`."""
        return _calls(_RNN, site)(self, site)

    def finish(self, func: Function) -> Function:
        """As it is."""
        return func

    def _place(self, site: CallSite) -> int:
        layer, state = (int(_number(site, i)) for i in range(2))
        if not 0 <= layer < self.layers or not 0 <= state < len(self.shapes):
            raise TransformError(f"{site.name} of state {state} of layer {layer}")
        return layer * len(self.shapes) + state

    def _sequences(self, site: CallSite, at: int, info: object) -> Dim:
        """The first dimension of the states of all sequences of the step."""
        state = at % len(self.shapes)
        if isinstance(info, TensorStructInfo) and info.dims:
            wanted = TensorStructInfo((info.dims[0], *self.shapes[state]), self.dtypes[state])
            if info.dtype == wanted.dtype and dims_equal(info.dims, wanted.dims):
                return info.dims[0]
        raise TransformError(
            f"{site.name}: a state is {self.dtypes[state]} of (sequences, "
            f"{', '.join(map(str, self.shapes[state]))}); the program has {info}"
        )

    def get(self, site: CallSite) -> Expr:
        """The states before the step, (sequences, *shape)."""
        at = self._place(site)
        now = site.given("now", (self._sequences(site, at, site.info),), "int32")
        return op.take(site.kept[at], now, 0)

    def set(self, site: CallSite) -> None:
        """The object, with other states after the step."""
        at, data = self._place(site), site.args[2]
        after = site.given("after", (self._sequences(site, at, data.struct_info),), "int32")
        site.kept[at] = rows.write(site, site.kept[at], after, data)


_Rule = Callable[..., Expr | None]


def _named(prefix: str, rules: Mapping[str, _Rule]) -> dict[str, _Rule]:
    return {f"{_PREFIX}{prefix}{name}": rule for name, rule in rules.items()}


# Calls by TVM's names; the private methods of the forms say what each computes.
_PAGED: Final = _named(
    "attention_kv_cache_",
    {
        "attention_with_fused_qkv": PagedForm.fused,
        "self_attention": PagedForm.own,
        "cross_attention": PagedForm.cross,
        "append_mla_kv": PagedForm.append,
        "merge_attn_output_inplace": PagedForm.merge,
        "get_query_positions": PagedForm.positions,
    },
)
_RNN: Final = _named(
    "rnn_state_",
    {
        "get": RNNForm.get,
        "set": RNNForm.set,
    },
)


def _calls(rules: Mapping[str, _Rule], site: CallSite) -> _Rule:
    if site.name not in rules:
        raise TransformError(f"{site.name} is a call for the host")
    return rules[site.name]


def _number(site: CallSite, place: int) -> float:
    given = site.args[place] if place < len(site.args) else None
    if isinstance(given, PrimValue) and isinstance(given.value, IntImm | FloatImm):
        return given.value.value
    raise TransformError(f"{site.name}: argument {place + 1} must be a number that is known")


def _scale(site: CallSite) -> Expr:
    return const(float(_number(site, 1)), "float32")


def _heads(site: CallSite, place: int) -> tuple[Dim, int, int]:
    info = site.args[place].struct_info
    if isinstance(info, TensorStructInfo) and info.dims is not None and len(info.dims) == 3:
        tokens, heads, size = info.dims
        if isinstance(heads, int) and isinstance(size, int):
            return tokens, heads, size
    raise TransformError(f"{site.name} takes (tokens, heads, size); got {show(info)}")


def _checked(site: CallSite, made: Expr) -> Expr:
    """``made``, which must be what the program says that the call gives."""
    value = site.emit(made)
    found, stated = (flatten_info(x) for x in (value.struct_info, site.info))
    if len(found) != len(stated):
        raise TransformError(f"{site.name} gives {show(value.struct_info)}, not {show(site.info)}")
    for a, b in zip(found, stated, strict=True):
        _agree(site, a, b)
    return value


def _agree(site: CallSite, found: object, stated: object) -> None:
    """TransformError where dtypes, or sizes that are known, differ."""
    if isinstance(found, TensorStructInfo) and isinstance(stated, TensorStructInfo):
        pairs = zip(found.dims or (), stated.dims or (), strict=False)
        same = found.ndim == stated.ndim or -1 in (found.ndim, stated.ndim)
        known = all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
        if same and known and found.dtype == stated.dtype:
            return
    raise TransformError(f"{site.name}: {found} where the program says {stated}")
