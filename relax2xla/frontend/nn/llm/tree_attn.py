"""Kernels of attention over token trees: stand-ins, which the constructor of a cache takes."""

from __future__ import annotations

from relax2xla.frontend.nn.llm.kernels import kernel

tree_attn = kernel("tree_attn")
tree_attn_cpu = kernel("tree_attn_cpu")
tree_attn_with_paged_kv_cache = kernel("tree_attn_with_paged_kv_cache")
tree_attn_with_paged_kv_cache_cpu = kernel("tree_attn_with_paged_kv_cache_cpu")
