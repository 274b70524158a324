"""State that models keep between calls, for many sequences: TVM's ``vm.builtin.kv_state_*``.

``PagedKVCache`` holds keys and values of attention, ``RNNState`` the state of recurrent models.
Both may be used from Python, or by programs, which call them by the names of ``builtins``.
"""

from __future__ import annotations

from relax2xla.kv_state.paged import AttnKind as AttnKind
from relax2xla.kv_state.paged import CacheSizes as CacheSizes
from relax2xla.kv_state.paged import PagedKVCache as PagedKVCache
from relax2xla.kv_state.paged import RopeMode as RopeMode
from relax2xla.kv_state.rnn import RNNState as RNNState
from relax2xla.kv_state.rope import Rotation as Rotation
from relax2xla.kv_state.rope import rotation as rotation
