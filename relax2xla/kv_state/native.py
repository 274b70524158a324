"""Decodes in C++: attention, and products of the few rows that a step of some texts has.

XLA:CPU would copy all keys and values for its products. Attention here is a custom call that reads
the pool where it lies, once, and of it what is seen. A layer of 12 heads of 64, for four texts of
150 tokens, takes 0.25 of the time of the rows that it is tested against (``kv_state.rows``).

A weight that is multiplied with one row XLA reads at the speed of memory. With two to four rows it
does not (0.5 to 0.8 of that), and another custom call does, on one processor.
"""

from __future__ import annotations

import functools
import logging
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relax2xla import processor
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    Op,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
)
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.traits import Einsum
from relax2xla.kv_state.rows import Bounds, Emitter, Heads, Sizes
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.device import Device
from relax2xla.runtime.native import NativeFunction, NativeModule
from relax2xla.stablehlo.untrusted.targets import TYPED
from relax2xla.transform.layout.feature_major import LARGE_WEIGHT, is_linear
from relax2xla.vm.pjrt import xla
from relax2xla.vm.pjrt.external_calls import TARGET as TARGET
from relax2xla.vm.pjrt.external_calls import bind
from relax2xla.vm.pjrt.own_library import HOME, shared_library

log = logging.getLogger("relax2xla.vm")

_ATTENTION: Final = "relax2xla_decode_attention"
_PRODUCT: Final = "relax2xla_few_rows"
# Files of C++ by what they have.
_SOURCES: Final = {_ATTENTION: "decode_attention.cpp", _PRODUCT: "few_rows.cpp"}
# Features of a head that the function takes at once.
_LANES: Final = 16
# Rows of products that the function multiplies: one row XLA reads as fast, and from eight on
# arithmetic takes longer than reading, at which YNNPACK is better (1.04 to 1.16 of its time with
# AVX2; two rows 0.76 to 0.80, four 0.77 to 0.93).
FEWEST: Final = 2
MOST: Final = 4
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
    return few and xla.jax_device(device).platform == "cpu" and _key(_ATTENTION) is not None


def decode(
    m: Emitter, q: Expr, pool: Expr, table: Expr, limits: Expr, heads: Heads, at: Sizes, how: Bounds
) -> Expr:
    """Attention as ``rows.attend`` computes it for one token of each sequence.

    q: (sequences, queries, size), scaled; the same shape
    """
    info = TensorStructInfo((at.sequences, heads.queries, heads.size), heads.dtype)
    numbers = f"i{heads.keys} i{how.window} f{float(how.cap).hex()}"
    return m.emit(_called(_ATTENTION, (q, pool, table, limits), f"t t t t {numbers}", info))


def with_products(func: Function, rows: int) -> Function:
    """``func`` with calls of the function for large products of float32, where it multiplies few.

    rows: how many sequences the step has. On one processor only: XLA takes all that there are.
    """
    if not FEWEST <= rows <= MOST or processor.count() > 1 or _key(_PRODUCT) is None:
        return func
    return rewrite_function(func, rule=_product)


def _product(node: Expr) -> Expr | None:
    """A linear layer ``..i,oi->..o`` of float32, with a large weight, as a call."""
    if not isinstance(node, Call) or not isinstance(node.op, Op) or not node.op.has(Einsum):
        return None
    operands, info = node.args[0], node.struct_info
    if not isinstance(operands, Tuple) or len(operands.fields) != 2:
        return None
    x, w = (field.struct_info for field in operands.fields)
    tensors = [t for t in (x, w, info) if isinstance(t, TensorStructInfo)]
    if len(tensors) != 3 or any(t.dims is None or t.dtype != "float32" for t in tensors):
        return None
    if not is_linear(str(call_attrs(node)["subscripts"])):
        return None
    sizes = [d for d in tensors[1].dims or () if isinstance(d, int)]
    if len(sizes) != 2 or math.prod(sizes) < LARGE_WEIGHT:
        return None
    return _called(_PRODUCT, operands.fields, "t t", info, node.span)


def _called(
    symbol: str,
    operands: Sequence[Expr],
    arguments: str,
    info: StructInfo,
    span: Span | None = None,
) -> Call:
    """A custom call of a function that can be compiled here."""
    key = _key(symbol)
    assert key is not None
    return Op.get("relax.stablehlo.custom_call")(
        *operands,
        call_target_name=TARGET,
        api_version=TYPED,
        backend_config={"arguments": arguments, "function": key},
        operand_layouts=[_layout(o.struct_info) for o in operands],
        result_layouts=[_layout(info)],
        sinfo_args=[info],
        span=span,
    )


def _layout(info: StructInfo) -> tuple[int, ...]:
    """Axes from the fastest to the slowest: in order of rows."""
    assert isinstance(info, TensorStructInfo)
    return tuple(reversed(range(info.ndim)))


@functools.cache
def _key(symbol: str) -> str | None:
    """The key by which programs call a function; None where it cannot be compiled."""
    if not has_compiler():
        return None
    try:
        return bind(compiled(symbol))
    except (TVMError, OSError) as e:
        log.warning("%s runs in rows: %s", symbol, e)
        return None


def compiled(symbol: str) -> NativeFunction:
    """A function of these, compiled for this processor; CompilerError where it cannot be."""
    source = _SOURCES[symbol]
    code = shared_library(source, ["-O3", "-march=native"], f"{source} does not compile")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / f"{symbol}.so"
        made.write_bytes(code)
        return NativeModule(made, [symbol], (HOME / source).read_bytes()).functions[symbol]
