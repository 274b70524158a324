"""PagedKVCache in models: an object that is created, and attention over it.

Calls are packed functions of ``relax2xla.kv_state``, under TVM's names. ``_attention_prefill`` and
its like are stand-ins for TVM's kernels (see ``kernels``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from relax2xla import tir
from relax2xla.frontend.nn.llm.kernels import kernel
from relax2xla.frontend.nn.llm.position_embedding import (
    llama_rope_with_position_map as llama_rope_with_position_map,
)
from relax2xla.frontend.nn.llm.sequence_prefill import (
    attention_sequence_prefill,
    attention_sequence_prefill_with_mask,
)
from relax2xla.frontend.nn.llm.tree_attn import tree_attn as tree_attn
from relax2xla.frontend.nn.llm.tree_attn import tree_attn_cpu as tree_attn_cpu
from relax2xla.frontend.nn.llm.tree_attn import (
    tree_attn_with_paged_kv_cache as tree_attn_with_paged_kv_cache,
)
from relax2xla.frontend.nn.llm.tree_attn import (
    tree_attn_with_paged_kv_cache_cpu as tree_attn_with_paged_kv_cache_cpu,
)
from relax2xla.frontend.nn.values import IntExpr, Object, Tensor, current_builder, expr_of
from relax2xla.ir import (
    DataTypeImm,
    Expr,
    ObjectStructInfo,
    PrimValue,
    ShapeExpr,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    const,
)
from relax2xla.kv_state import AttnKind as AttnKind
from relax2xla.kv_state import RopeMode as RopeMode
from relax2xla.op.intrinsic import call_dps_packed, call_pure_packed

_CREATE = "mlc.create_paged_kv_cache_generic"
_CALL = "vm.builtin.attention_kv_cache_"


class PagedKVCache(Object):
    """A cache of keys and values of many sequences, for attention of batches.

    Tensors are (batch, n, heads, head_dim): (1, all tokens) in a prefill, (sequences, 1) in a
    decode. The host says which tokens they are: ``vm.builtin.kv_state_begin_forward``.
    """

    # TVM's kernels of other libraries; there are none here.
    extern_mods: ClassVar[list[Any]] = []

    @staticmethod
    def create_generic(
        attn_kind: str | Sequence[str],
        max_batch_size: IntExpr,
        max_total_seq_len: IntExpr,
        prefill_chunk_size: IntExpr,
        page_size: IntExpr,
        support_sliding_window: IntExpr,
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        dtype: str,
        mla_original_qk_head_dim: int = 0,
        mla_original_v_head_dim: int = 0,
        rotary_dim: int | None = None,
        rope_scaling: Mapping[str, Any] | None = None,
        rope_ext_factors: Sequence[float] | None = None,
        layer_partition: Sequence[int] | None = None,
        enable_disaggregation: bool = False,
        name: str = "paged_kv_cache",
    ) -> PagedKVCache:
        """A new cache.

        attn_kind: "mha" or "mla", or one for each layer; the five sizes may be symbolic. rope_mode:
        whether keys are turned as they come (NORMAL), as they are read (INLINE), or not; the next
        two, ``rope_scaling`` and ``rope_ext_factors`` say how. rotary_dim: features that are
        turned, None for all of ``qk_head_dim``. enable_disaggregation is an error at run time.
        """
        kinds = (
            StringImm(attn_kind)
            if isinstance(attn_kind, str)
            else Tuple([StringImm(kind) for kind in attn_kind])
        )
        sizes = [
            max_batch_size,
            max_total_seq_len,
            prefill_chunk_size,
            page_size,
            support_sliding_window,
        ]
        args: list[Expr] = [
            kinds,
            ShapeExpr(sizes),
            ShapeExpr(list(layer_partition or (0, num_hidden_layers))),
            *(
                PrimValue(n)
                for n in (
                    num_hidden_layers,
                    num_attention_heads,
                    num_key_value_heads,
                    qk_head_dim,
                    v_head_dim,
                    mla_original_qk_head_dim,
                    mla_original_v_head_dim,
                    int(rope_mode),
                    rope_scale,
                    rope_theta,
                )
            ),
            StringImm(json.dumps(dict(rope_scaling or {}))),
            PrimValue(0)
            if rope_ext_factors is None
            else const(np.array(rope_ext_factors, np.float32)),
            PrimValue(qk_head_dim if rotary_dim is None else rotary_dim),
            PrimValue(int(enable_disaggregation)),
            DataTypeImm(dtype),
        ]
        made = call_pure_packed(_CREATE, *args, sinfo_args=ObjectStructInfo())
        return PagedKVCache(_expr=made, _name=name)

    def attention_with_fused_qkv(
        self,
        layer_id: int,
        qkv: Tensor,
        num_qo_heads: int,
        sm_scale: float,
        *,
        window: int | None = None,
        cap: float | None = None,
    ) -> Tensor:
        """Add keys and values, and attend to all that the sequences have: causal, or by tree.

        qkv: (b, n, num_qo_heads + 2 * kv_heads, d), before rope; result: (b, n, num_qo_heads, d)

        Beyond TVM's: window: see this many tokens at most, the own one and those before it (no
        token trees then); cap: scores become ``cap * tanh(score / cap)``. ValueError unless both
        are positive.
        """
        for name, value in (("window", window), ("cap", cap)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, or None for none; got {value}")
        bounded = window is not None or cap is not None
        bounds = [PrimValue(int(window or 0)), PrimValue(float(cap or 0.0))] if bounded else []
        b, s, heads, d = qkv.shape
        flat = expr_of(qkv.reshape(b * s, heads, d))
        info = TensorStructInfo((b * s, num_qo_heads, d), qkv.dtype)
        call = call_dps_packed(
            _CALL + "attention_with_fused_qkv",
            [self._expr, PrimValue(layer_id), PrimValue(sm_scale), flat, *bounds],
            info,
        )
        made = current_builder("attention_with_fused_qkv").emit(call)
        return Tensor(_expr=made).reshape(b, s, num_qo_heads, d)

    def self_attention(
        self, layer_id: int, q: Tensor, k: Tensor, v: Tensor, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Causal attention of the new tokens to each other; the cache stays as it is.

        q, k, v: (b, n, heads, d); result: (b, n, heads of q, d of v), and the base-2 logarithm of
        the sums (b, n, heads of q), float32
        """
        given = [x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for x in (q, k, v)]
        return self._attend("self_attention", layer_id, sm_scale, q, given, v.shape[-1])

    def cross_attention(
        self, layer_id: int, q: Tensor, v_head_dim: int, sm_scale: float
    ) -> tuple[Tensor, Tensor]:
        """Attention to what was in the cache before (in a decode: and to the new token).

        q: (b, n, heads, d); results as those of ``self_attention``, of ``v_head_dim`` features
        """
        given = [q.reshape(q.shape[0] * q.shape[1], *q.shape[2:])]
        return self._attend("cross_attention", layer_id, sm_scale, q, given, v_head_dim)

    def _attend(
        self, name: str, layer: int, scale: float, q: Tensor, given: list[Tensor], size: int
    ) -> tuple[Tensor, Tensor]:
        b, s, heads, _ = q.shape
        builder = current_builder(name)
        infos = [
            TensorStructInfo((b * s, heads, size), q.dtype),
            TensorStructInfo((b * s, heads), "float32"),
        ]
        args = [self._expr, PrimValue(layer), PrimValue(scale), *map(expr_of, given)]
        made = builder.emit(call_dps_packed(_CALL + name, args, infos))
        o, lse = (Tensor(_expr=builder.emit(TupleGetItem(made, i))) for i in range(2))
        return o.reshape(b, s, heads, size), lse.reshape(b, s, heads)

    def append_mla_kv(self, layer_id: int, kv: Tensor) -> PagedKVCache:
        """Add latent vectors, (b, n, 1, d); the result is the cache to go on with."""
        b, s, _, d = kv.shape
        flat = expr_of(kv.reshape(b * s, d))
        call = call_pure_packed(
            _CALL + "append_mla_kv",
            self._expr,
            PrimValue(layer_id),
            flat,
            sinfo_args=ObjectStructInfo(),
        )
        return PagedKVCache(_expr=call, _name="paged_kv_cache")

    def merge_attn_output_inplace(
        self,
        o_self_attn: Tensor,
        lse_self_attn: Tensor,
        o_cross_attn: Tensor,
        lse_cross_attn: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Attention over the keys of two calls together; use the results, not the first two."""
        b, s, heads, d = o_self_attn.shape
        builder = current_builder("merge_attn_output_inplace")
        given = [
            expr_of(x.reshape(b * s, *x.shape[2:]))
            for x in (o_self_attn, lse_self_attn, o_cross_attn, lse_cross_attn)
        ]
        infos = [given[0].struct_info, given[1].struct_info]
        call = call_pure_packed(
            _CALL + "merge_attn_output_inplace",
            self._expr,
            *given,
            sinfo_args=TupleStructInfo(infos),
        )
        made = builder.emit(call)
        o, lse = (Tensor(_expr=builder.emit(TupleGetItem(made, i))) for i in range(2))
        return o.reshape(b, s, heads, d), lse.reshape(b, s, heads)

    def get_query_positions(self, total_length: IntExpr) -> Tensor:
        """The position of each new token in its sequence: (total_length,), int32."""
        info = TensorStructInfo((total_length,), "int32")
        call = call_pure_packed(_CALL + "get_query_positions", self._expr, sinfo_args=info)
        return Tensor(_expr=current_builder("get_query_positions").emit(call))


class TIRPagedKVCache(PagedKVCache):
    """A cache by TVM's constructor for its own kernels: those of ``create_generic``, in its order.

    target is accepted: a program runs where it is built for.
    """

    def __init__(
        self,
        attn_kind: str | Sequence[str],
        max_batch_size: IntExpr,
        max_total_seq_len: IntExpr,
        prefill_chunk_size: IntExpr,
        page_size: IntExpr,
        support_sliding_window: IntExpr,
        layer_partition: ShapeExpr | Sequence[int],
        num_hidden_layers: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        qk_head_dim: int,
        v_head_dim: int,
        mla_original_qk_head_dim: int,
        mla_original_v_head_dim: int,
        rope_mode: RopeMode,
        rope_scale: float,
        rope_theta: float,
        rope_scaling: Mapping[str, Any],
        rope_ext_factors: Expr | Sequence[float] | None,
        rotary_dim: int,
        enable_disaggregation: bool,
        dtype: str,
        target: Any = None,
        name: str = "paged_kv_cache",
    ) -> None:
        made = PagedKVCache.create_generic(
            attn_kind,
            max_batch_size,
            max_total_seq_len,
            prefill_chunk_size,
            page_size,
            support_sliding_window,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads,
            qk_head_dim,
            v_head_dim,
            rope_mode,
            rope_scale,
            rope_theta,
            dtype,
            mla_original_qk_head_dim,
            mla_original_v_head_dim,
            rotary_dim,
            rope_scaling,
            _factors(rope_ext_factors),
            _partition(layer_partition),
            enable_disaggregation,
            name,
        )
        super().__init__(_expr=expr_of(made), _name=name)


class FlashInferPagedKVCache(TIRPagedKVCache):
    """The same cache: kernels of FlashInfer are not used."""


def _factors(given: Any) -> Any:
    data = getattr(given, "data", None)
    if isinstance(given, PrimValue):
        return None
    return given if data is None else np.asarray(data).tolist()


def _partition(given: Any) -> list[int]:
    values: Any = given.values if isinstance(given, ShapeExpr) else given
    return [int(v.value if isinstance(v, tir.IntImm) else v) for v in values]


_kv_cache_transpose_append = kernel("_kv_cache_transpose_append")
_kv_cache_transpose_append_mla = kernel("_kv_cache_transpose_append_mla")
_kv_cache_debug_get_kv = kernel("_kv_cache_debug_get_kv")
_kv_cache_debug_get_kv_mla = kernel("_kv_cache_debug_get_kv_mla")
_attention_prefill = kernel("_attention_prefill")
_attention_prefill_cpu = kernel("_attention_prefill_cpu")
_attention_prefill_ragged = kernel("_attention_prefill_ragged")
_attention_prefill_ragged_cpu = kernel("_attention_prefill_ragged_cpu")
_attention_prefill_mla = kernel("_attention_prefill_mla")
_attention_sequence_prefill = attention_sequence_prefill
_attention_sequence_prefill_with_mask = attention_sequence_prefill_with_mask
_attention_decode = kernel("_attention_decode")
_attention_decode_cpu = kernel("_attention_decode_cpu")
_merge_state_inplace = kernel("_merge_state_inplace")
_merge_state_inplace_cpu = kernel("_merge_state_inplace_cpu")
_copy_single_page = kernel("_copy_single_page")
_copy_single_page_cpu = kernel("_copy_single_page_cpu")
_copy_single_page_mla = kernel("_copy_single_page_mla")
_compact_kv_copy = kernel("_compact_kv_copy")
_compact_kv_copy_cpu = kernel("_compact_kv_copy_cpu")
