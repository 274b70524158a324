"""Parts of language models: caches of keys and values, rotary position embedding, token trees.

The names of ``tvm.relax.frontend.nn.llm``.
"""

from __future__ import annotations

from relax2xla.frontend.nn.llm import kv_cache as kv_cache
from relax2xla.frontend.nn.llm import position_embedding as position_embedding
from relax2xla.frontend.nn.llm import tree_attn as tree_attn
