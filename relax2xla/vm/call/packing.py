"""Small weights of one dtype in one buffer, so that a call passes fewer arguments.

PJRT spends about 0.3 microseconds on an argument of a call, however small. Where a function is
short beside that, its vectors (biases, norms) go as a few buffers, *packs*, and its program slices
them out, which XLA fuses into what uses them. Matrices stay alone: a slice of one would be copied.

XLA:CPU compiles kernels that are alike once, as those of a network's layers, and a slice at another
place makes another kernel. So packs follow the repetition of the weights' shapes: a vector has the
same place in the pack of each layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import DTYPES, numpy_dtype
from relax2xla.ir import (
    Binding,
    BindingBlock,
    IRModule,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.op.shared.lowering import hlo

# Functions of up to so many weights stay as they are.
FEW: Final = 8
# Bytes of a vector that is packed; there are two of it in memory.
VECTOR: Final = 1 << 14
# Bytes of all weights for each vector, up to which a call is short: reading 64 KiB takes XLA longer
# than PJRT takes for twenty arguments.
SHORT: Final = 1 << 16
# Vectors of a pack that repeats, at the least, and weights that it spans, at the most.
LEAST: Final = 4
SPAN: Final = 128
# What the address of a vector is a multiple of.
ALIGNMENT: Final = 64

#: For each pack the places of its vectors among the weights.
Packs = tuple[tuple[int, ...], ...]
Array = npt.NDArray[Any]


def packs_of(weights: Sequence[StructInfo]) -> Packs:
    """The packs of a function's weights, by their struct infos; none where calls are not short."""
    vectors = {i for i, info in enumerate(weights) if _is_vector(info)}
    if len(weights) <= FEW or sum(map(_nbytes, weights)) > SHORT * len(vectors):
        return ()
    found: list[tuple[int, ...]] = []
    for stretch in _stretches(weights, vectors):
        by_dtype: dict[str, list[int]] = {}
        for i in stretch:
            if i in vectors:
                info = weights[i]
                assert isinstance(info, TensorStructInfo)
                by_dtype.setdefault(info.dtype, []).append(i)
        found += [tuple(same) for same in by_dtype.values() if len(same) > 1]
    return tuple(found)


def checked_packs(packs: Sequence[Sequence[int]], weights: Sequence[StructInfo]) -> Packs:
    """Packs that a file names; ValueError where these weights cannot be packed so."""
    places = [i for pack in packs for i in pack]
    if not all(type(i) is int and 0 <= i < len(weights) and _is_vector(weights[i]) for i in places):
        raise ValueError(f"no packs of vectors: {packs!r}")
    dtypes = [{str(getattr(weights[i], "dtype", "")) for i in pack} for pack in packs]
    if len(set(places)) < len(places) or not all(len(d) == 1 for d in dtypes):
        raise ValueError(f"packs need vectors of one dtype, each once: {packs!r}")
    return tuple(map(tuple, packs))


def alone(count: int, packs: Packs) -> list[int]:
    """The weights, of ``count``, that are in no pack; a program takes these, then the packs."""
    packed = {i for pack in packs for i in pack}
    return [i for i in range(count) if i not in packed]


def with_packs(mod: IRModule, count: int, packs: Packs) -> IRModule:
    """``mod`` whose ``main`` takes packs in place of its vectors; its last ``count`` are weights.

    ``mod`` is of StableHLO rows and static shapes.
    """
    gvar = mod.get_global_var("main")
    func = mod[gvar]
    first = len(func.params) - count
    weights = func.params[first:]
    params = [*func.params[:first], *(weights[i] for i in alone(count, packs))]
    bindings: list[Binding] = []
    for number, pack in enumerate(packs):
        infos = [weights[i].struct_info for i in pack]
        starts, size = _places([math.prod(i.dims) for i in infos], infos[0].dtype)
        whole = Var(f"pack{number}", TensorStructInfo((size,), infos[0].dtype))
        params.append(whole)
        for i, start, info in zip(pack, starts, infos, strict=True):
            end = start + math.prod(info.dims)
            part = hlo("slice", whole, start_indices=(start,), limit_indices=(end,), strides=(1,))
            if len(info.dims) != 1:
                flat = Var(f"{weights[i].name_hint}_flat", part.struct_info)
                bindings.append(VarBinding(flat, part))
                part = hlo("reshape", flat, out=info)
            bindings.append(VarBinding(weights[i], part))
    body = SeqExpr([BindingBlock(bindings), *func.body.blocks], func.body.body)
    return mod.replace({**mod, gvar: func.replace(params=params, body=body)})


def packed(vectors: Sequence[Array]) -> Array:
    """The contents of one pack."""
    dtype = vectors[0].dtype
    starts, size = _places([v.size for v in vectors], dtype.name)
    made = np.zeros(size, dtype)
    for start, vector in zip(starts, vectors, strict=True):
        made[start : start + vector.size] = vector.reshape(-1)
    return made


def _places(sizes: Sequence[int], dtype: str) -> tuple[list[int], int]:
    """Where vectors of so many elements begin in a pack, and the size of the pack."""
    step = max(1, ALIGNMENT // numpy_dtype(dtype).itemsize)
    starts: list[int] = []
    end = 0
    for size in sizes:
        starts.append(end)
        end += -(-size // step) * step
    return starts, end


def _is_vector(info: StructInfo) -> bool:
    """Whether a weight is small, with one axis at most that is longer than one.

    Elements of less than a byte stay alone: they are of quantised matrices, hardly of vectors.
    """
    size = _nbytes(info)
    if not 0 < size <= VECTOR or not isinstance(info, TensorStructInfo) or info.dims is None:
        return False
    whole = DTYPES[info.dtype].bits >= 8 or info.dtype == "bool"
    return whole and sum(d != 1 for d in info.dims) <= 1


def _nbytes(info: StructInfo) -> int:
    """Bytes of a weight; 0 where they are not known."""
    if not isinstance(info, TensorStructInfo) or info.dims is None or info.dtype not in DTYPES:
        return 0
    known = [d for d in info.dims if isinstance(d, int)]
    return math.prod(known) * DTYPES[info.dtype].nbytes if len(known) == len(info.dims) else 0


def _stretches(weights: Sequence[StructInfo], vectors: set[int]) -> list[Sequence[int]]:
    """The weights in stretches, those that repeat each on its own, and all that is left in one."""
    numbers: dict[StructInfo, int] = {}
    kinds = [numbers.setdefault(info, len(numbers)) for info in weights]
    found: list[Sequence[int]] = []
    left: list[int] = []
    at = 0
    while at < len(kinds):
        length = _period(kinds, at, vectors)
        if length is None:
            left.append(at)
            at += 1
            continue
        found.append(range(at, at + length))
        at += length
        while kinds[at : at + length] == kinds[at - length : at]:
            found.append(range(at, at + length))
            at += length
    return [*found, left]


def _period(kinds: Sequence[int], at: int, vectors: set[int]) -> int | None:
    """How long the shortest stretch from ``at`` on is that has LEAST vectors and comes twice."""
    count = 0
    for length in range(1, min(SPAN, (len(kinds) - at) // 2) + 1):
        count += at + length - 1 in vectors
        end = at + length
        if count >= LEAST and kinds[at:end] == kinds[end : end + length]:
            return length
    return None
