"""Attention of decodes in C++, where XLA:CPU would copy all keys and values for its products.

A custom call that reads the pool where it lies, once, and of it what is seen. A layer of 12 heads
of 64, for four texts of 150 tokens, takes 0.25 of the time of the rows that it is tested against
(``kv_state.rows``): 0.23 ms on one processor, 16 GB/s.
"""

from __future__ import annotations

import functools
import logging
import tempfile
from pathlib import Path
from typing import Final

from relax2xla import processor
from relax2xla.errors import TVMError
from relax2xla.ir import Expr, Op, TensorStructInfo
from relax2xla.kv_state.rows import Bounds, Emitter, Heads, Sizes
from relax2xla.runtime.compiler import INCLUDE, find_compiler, has_compiler, run_compiler
from relax2xla.runtime.device import Device
from relax2xla.runtime.native import NativeFunction, NativeModule
from relax2xla.stablehlo.untrusted.targets import TYPED
from relax2xla.vm.pjrt import xla
from relax2xla.vm.pjrt.external_calls import TARGET as TARGET
from relax2xla.vm.pjrt.external_calls import bind

log = logging.getLogger("relax2xla.vm")

_SYMBOL: Final = "relax2xla_decode_attention"
_SOURCE: Final = INCLUDE / "relax2xla" / "decode_attention.cpp"
# Features of a head that the function takes at once.
_LANES: Final = 16
# Elements of a layer's keys that a step may see, from which it is worth a compiler's second.
_LEAST: Final = 1 << 15
# The function runs on one processor, and XLA's rows on all that there are.
_PROCESSORS: Final = 4


def pays(heads: Heads, at: Sizes, inline: bool, device: Device | None) -> bool:
    """Whether a step is one that the function takes, and is faster with it.

    One new token of each sequence, float32, keys that were turned before they were kept.
    """
    plain = at.steps == 1 and not at.masked and not inline and heads.dtype == "float32"
    elements = at.sequences * at.keys * heads.keys * heads.size
    if not plain or heads.size % _LANES or elements < _LEAST:
        return False
    few = processor.count() <= _PROCESSORS
    return few and xla.jax_device(device).platform == "cpu" and _key() is not None


def decode(
    m: Emitter, q: Expr, pool: Expr, table: Expr, limits: Expr, heads: Heads, at: Sizes, how: Bounds
) -> Expr:
    """Attention as ``rows.attend`` computes it for one token of each sequence.

    q: (sequences, queries, size), scaled; the same shape
    """
    key = _key()
    assert key is not None
    info = TensorStructInfo((at.sequences, heads.queries, heads.size), heads.dtype)
    numbers = f"i{heads.keys} i{how.window} f{float(how.cap).hex()}"
    made = Op.get("relax.stablehlo.custom_call")(
        *(q, pool, table, limits),
        call_target_name=TARGET,
        api_version=TYPED,
        backend_config={"arguments": f"t t t t {numbers}", "function": key},
        operand_layouts=[(2, 1, 0), (1, 0), (1, 0), (1, 0)],
        result_layouts=[(2, 1, 0)],
        sinfo_args=[info],
    )
    return m.emit(made)


@functools.cache
def _key() -> str | None:
    """The key by which programs call the function; None where it cannot be compiled."""
    if not has_compiler():
        return None
    try:
        return bind(_compiled())
    except (TVMError, OSError) as e:
        log.warning("attention of decodes runs in rows: %s", e)
        return None


def _compiled() -> NativeFunction:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "decode_attention.so"
        options = ["-shared", "-fPIC", "-O3", "-march=native", "-std=c++17", "-I", str(INCLUDE)]
        command = [*find_compiler(), *options, str(_SOURCE), "-o", str(made)]
        run_compiler(command, "the attention of decodes does not compile")
        return NativeModule(made, [_SYMBOL], _SOURCE.read_bytes()).functions[_SYMBOL]
