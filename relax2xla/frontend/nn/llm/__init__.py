"""Language models: caches, rotary embedding, token trees; folders, generation, weights in few bits.

The names here are those of ``tvm.relax.frontend.nn.llm``; docs/llm.md says what is in ``generate``,
``sampling``, ``text``, ``folder``, ``rotary`` and ``quantization``.
"""

from __future__ import annotations

from relax2xla.frontend.nn.llm import kv_cache as kv_cache
from relax2xla.frontend.nn.llm import position_embedding as position_embedding
from relax2xla.frontend.nn.llm import tree_attn as tree_attn
