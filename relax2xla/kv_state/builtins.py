"""Packed functions of caches and states, under TVM's names; the registry finds them here.

``vm.builtin.paged_attention_kv_cache_create`` takes TVM's kernels and does not use them: attention
is operators here. Only the kernel of rope says something, where it is one of
``relax2xla.frontend.nn.llm``: how positions are scaled.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from relax2xla.errors import RunError, TVMError, UnsupportedError
from relax2xla.kv_state.guards import wholes
from relax2xla.kv_state.paged import (
    AttnKind,
    CacheSizes,
    PagedKVCache,
    RopeMode,
    merge_attention,
)
from relax2xla.kv_state.rnn import RNNState
from relax2xla.kv_state.rope import Rotation, rotation
from relax2xla.kv_state.rows import Bounds
from relax2xla.runtime.device import Device

# After its 28 arguments TVM takes one more, the kernel of a transfer between machines.
_KERNELS: Final = (15, 16)
_NO_TRANSFER: Final = (
    "a cache that other machines write to (disaggregation, kv transfer) needs NVSHMEM and is not "
    "supported; create the cache without"
)


def _sizes(given: Sequence[int]) -> CacheSizes:
    numbers = wholes(given, "a cache's sizes")
    if len(numbers) != 5:
        raise TVMError(
            "a cache's sizes are (sequences, tokens, chunk, page, sliding); got "
            f"{len(numbers)} numbers"
        )
    sequences, tokens, chunk, page, sliding = numbers
    return CacheSizes(sequences, tokens, chunk, page, bool(sliding))


def _create(
    sizes: Sequence[int],
    layer_indptr: Sequence[int],
    query_heads: int,
    key_heads: int,
    qk_head_dim: int,
    v_head_dim: int,
    kinds: Sequence[int],
    transfer: Any,
    rope_mode: int,
    rope_scale: float,
    rope_theta: float,
    ext_factors: Any,
    init: Any,
    *kernels: Any,
) -> PagedKVCache:
    if len(kernels) not in _KERNELS:
        raise TVMError(
            f"paged_attention_kv_cache_create takes 28 arguments; got {13 + len(kernels)}"
        )
    if transfer:
        raise UnsupportedError(_NO_TRANSFER)
    if init is None or not hasattr(init, "dtype"):
        raise TVMError(
            "paged_attention_kv_cache_create: an array says the dtype and the device of the cache; "
            f"got {init!r:.100}"
        )
    layers = wholes(layer_indptr, "where the layers of each stage begin")[-1]
    if len(kinds) != layers:
        raise TVMError(f"{len(kinds)} kinds of attention for {layers} layers")
    mode = RopeMode(int(rope_mode))
    says = kernels[11]
    how = None
    if mode is not RopeMode.NONE:
        how = rotation(
            getattr(says, "rotary_dim", None) or int(qk_head_dim),
            float(rope_theta),
            float(rope_scale),
            getattr(says, "rope_scaling", None),
            None if ext_factors is None else np.asarray(ext_factors, np.float32).tolist(),
        )
    return PagedKVCache(
        _sizes(sizes),
        [AttnKind(int(k)) for k in kinds],
        (int(query_heads), int(key_heads)),
        (int(qk_head_dim), int(v_head_dim)),
        how,
        mode,
        str(init.dtype),
        _device(init),
    )


def _create_generic(
    kind: Any,
    sizes: Sequence[int],
    layer_partition: Sequence[int],
    layers: int,
    query_heads: int,
    key_heads: int,
    qk_head_dim: int,
    v_head_dim: int,
    original_qk_head_dim: int,
    original_v_head_dim: int,
    rope_mode: int,
    rope_scale: float,
    rope_theta: float,
    rope_scaling: str,
    ext_factors: Any,
    rotary_dim: int,
    disaggregation: int,
    dtype: Any,
) -> PagedKVCache:
    if disaggregation:
        raise UnsupportedError(_NO_TRANSFER)
    names = [kind] * int(layers) if isinstance(kind, str) else list(kind)
    unknown = [n for n in names if n not in ("mha", "mla")]
    if unknown or len(names) != int(layers):
        raise UnsupportedError(
            f"kinds of attention are 'mha' and 'mla', one for each of {layers} layers; got {kind!r}"
        )
    mode = RopeMode(int(rope_mode))
    how: Rotation | None = None
    if mode is not RopeMode.NONE:
        factors = np.asarray(ext_factors, np.float32)
        how = rotation(
            int(rotary_dim),
            float(rope_theta),
            float(rope_scale),
            json.loads(rope_scaling),
            factors.tolist() if factors.ndim else None,
        )
    return PagedKVCache(
        _sizes(sizes),
        [AttnKind[n.upper()] for n in names],
        (int(query_heads), int(key_heads)),
        (int(qk_head_dim), int(v_head_dim)),
        how,
        mode,
        str(dtype),
    )


def _rnn_create(
    layers: int, sequences: int, history: int, gets: Any, sets: Any, initial: Sequence[Any]
) -> RNNState:
    return RNNState(int(layers), int(sequences), int(history), initial)


def _fused(cache: PagedKVCache, layer: int, scale: float, qkv: Any, out: Any, *more: Any) -> None:
    """TVM's arguments, and before the last of them, the result, a window and a cap of scores."""
    *bounds, out = (out, *more)
    cache.attention_with_fused_qkv(layer, scale, qkv, out, Bounds(*bounds))


def _device(init: Any) -> Device | None:
    where = next(iter(init.devices()), None) if hasattr(init, "devices") else None
    return None if where is None or where.platform == "cpu" else Device(where.platform, where.id)


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``; RunError, which says what it takes, for another number of arguments."""
    takes = inspect.signature(function)

    @functools.wraps(function)
    def call(*given: Any) -> Any:
        try:
            takes.bind(*given)
        except TypeError:
            names = ", ".join(
                f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
                for p in takes.parameters.values()
            )
            raise RunError(f"{name} takes ({names}); got {len(given)} arguments") from None
        return function(*given)

    return call


def _of(
    kinds: type[Any] | tuple[type[Any], ...], functions: dict[str, Callable[..., Any]]
) -> dict[str, Callable[..., Any]]:
    """Packed functions by their full names, whose first argument must be of one of ``kinds``."""
    of = kinds if isinstance(kinds, tuple) else (kinds,)
    wanted = " or ".join(kind.__name__ for kind in of)

    def checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        counted = _counted(name, function)

        @functools.wraps(function)
        def call(*given: Any) -> Any:
            if given and not isinstance(given[0], of):
                raise RunError(
                    f"{name}: the first argument must be a {wanted}; got {type(given[0]).__name__}"
                )
            return counted(*given)

        return call

    names = {f"vm.builtin.{name}": function for name, function in functions.items()}
    return {name: checked(name, function) for name, function in names.items()}


BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    **{
        name: _counted(name, function)
        for name, function in (
            ("mlc.create_paged_kv_cache_generic", _create_generic),
            ("vm.builtin.paged_attention_kv_cache_create", _create),
            ("vm.builtin.rnn_state_create", _rnn_create),
        )
    },
    **_of(
        (PagedKVCache, RNNState),
        {
            "kv_state_clear": lambda state: state.clear(),
            "kv_state_add_sequence": lambda state, number: state.add_sequence(number),
            "kv_state_remove_sequence": lambda state, number: state.remove_sequence(number),
            "kv_state_fork_sequence": lambda state, parent, child, position=-1: state.fork_sequence(
                parent, child, position
            ),
            "kv_state_popn": lambda state, number, count: state.popn(number, count),
            "kv_state_begin_forward": lambda state, numbers, lengths, parents=None: (
                state.begin_forward(numbers, lengths, parents)
            ),
            "kv_state_end_forward": lambda state: state.end_forward(),
        },
    ),
    **_of(
        PagedKVCache,
        {
            "attention_kv_cache_enable_sliding_window_for_seq": PagedKVCache.enable_sliding_window,
            "attention_kv_cache_commit_accepted_token_tree_nodes": PagedKVCache.commit_token_tree,
            "attention_kv_cache_empty": lambda cache: cache.empty,
            "attention_kv_cache_get_num_available_pages": lambda cache: cache.free_pages,
            "attention_kv_cache_get_total_sequence_length": lambda cache: cache.total_length,
            "attention_kv_cache_get_query_positions": PagedKVCache.query_positions,
            "attention_kv_cache_debug_get_kv": PagedKVCache.debug_get_kv,
            "attention_kv_cache_debug_get_kv_mla": PagedKVCache.debug_get_kv,
            "attention_kv_cache_attention_with_fused_qkv": _fused,
            "attention_kv_cache_self_attention": PagedKVCache.self_attention,
            "attention_kv_cache_cross_attention": PagedKVCache.cross_attention,
            "attention_kv_cache_append_mla_kv": PagedKVCache.append_mla_kv,
            "attention_kv_cache_merge_attn_output_inplace": lambda cache, o, lse, other, more: (
                merge_attention(o, lse, other, more)
            ),
        },
    ),
    **_of(
        RNNState,
        {
            "rnn_state_get": RNNState.get,
            "rnn_state_set": RNNState.set,
            "rnn_state_debug_get": RNNState.debug_get,
        },
    ),
}
