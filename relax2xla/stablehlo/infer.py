"""Named struct-info rules of the rows in table.py; each gives what MLIR's own inference gives.

A rule takes the struct infos of all operands (regions last, as FuncStructInfo) and the attributes.
Several results are a TupleStructInfo; see :func:`results` for the single result that is a tuple.
Shapes may be symbolic. tests/stablehlo/test_infer.py compares every rule with MLIR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.struct_info import (
    Dims,
    FuncStructInfo,
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.tir import Dim

Infos = Sequence[StructInfo]
Rule = Callable[[Infos, Mapping[str, Any]], StructInfo]
REAL_OF: Final = {"complex64": "float32", "complex128": "float64"}
COMPLEX_OF: Final = {real: cplx for cplx, real in REAL_OF.items()}
make = TensorStructInfo.make


# ---- helpers
def results(infos: Sequence[StructInfo]) -> StructInfo:
    """Struct info of a call with these results.

    One result is itself, anything else a tuple of the results. So a call with one result that is a
    tuple value is a tuple of that tuple.
    """
    if len(infos) == 1 and not isinstance(infos[0], TupleStructInfo):
        return infos[0]
    return TupleStructInfo(infos)


def tensor(infos: Infos, i: int) -> TensorStructInfo:
    """Operand ``i`` as a tensor; OpError if it is none or missing."""
    if i >= len(infos):
        raise OpError(f"operand {i} is missing; got {len(infos)}")
    info = infos[i]
    if not isinstance(info, TensorStructInfo):
        raise OpError(f"operand {i} must be a tensor; it is {info}")
    return info


def shaped(infos: Infos, i: int) -> tuple[Dims, str]:
    """Dimensions and dtype of operand ``i``, whose shape must be known."""
    info = tensor(infos, i)
    if info.dims is None:
        raise OpError(
            f"operand {i} is {info}, but its shape must be known; use R.match_cast before"
        )
    return info.dims, info.dtype


def merged(infos: Infos) -> TensorStructInfo:
    """The most specific common shape of tensors of one rank, with the dtype of the first."""
    first = tensor(infos, 0)
    dims = first.dims
    for i in range(1, len(infos)):
        other = tensor(infos, i)
        if other.dims is None:
            continue
        if dims is None:
            dims = other.dims
        elif dims != other.dims:
            if len(dims) != len(other.dims):
                raise OpError(f"operands 0 and {i} have ranks {len(dims)} and {len(other.dims)}")
            dims = tuple(
                _one_dim(a, b, i, d) for d, (a, b) in enumerate(zip(dims, other.dims, strict=True))
            )
    return first if dims is first.dims or dims is None else make(dims, first.dtype, first.vdevice)


def _one_dim(a: Dim, b: Dim, operand: int, axis: int) -> Dim:
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise OpError(
            f"operands 0 and {operand} differ in dimension {axis}: {a} and {b}; "
            "rows do not broadcast, use broadcast_in_dim before"
        )
    return b if isinstance(b, int) else a


def _same_dtype(infos: Infos) -> None:
    dtypes = {i.dtype for i in infos if isinstance(i, TensorStructInfo)}
    if len(dtypes) > 1:
        raise OpError(f"the operands must have one dtype; got {', '.join(sorted(dtypes))}")


def _length(attrs: Mapping[str, Any], name: str, rank: int) -> Sequence[int]:
    values = attrs[name]
    if len(values) != rank:
        raise OpError(f"`{name}` has {len(values)} entries, but the operand has rank {rank}")
    return values


def _axis(attrs: Mapping[str, Any], name: str, rank: int) -> int:
    axis = attrs[name]
    if not 0 <= axis < rank:
        raise OpError(f"`{name}` is {axis}; it must be in 0..{rank - 1}")
    return axis


def _dim(value: Any) -> Dim:
    return value if type(value) is int else tir.as_dim(tir.simplify(value))


# ---- element by element
def same(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """Shape and dtype of the operands, which all have the same."""
    _same_dtype(infos)
    return merged(infos)


def first(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """Struct info of the first operand."""
    return tensor(infos, 0)


def second(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """Struct info of the second operand."""
    return tensor(infos, 1)


def each(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """One result for each operand, alike; a dynamic root is a last operand without one."""
    tensors = [i for i in infos if not isinstance(i, FuncStructInfo)]
    return results(tensors[:-1] if attrs.get("has_dynamic_root") else tensors)


def _with_dtype(info: TensorStructInfo, dtype: str) -> TensorStructInfo:
    if info.dims is None:
        return TensorStructInfo(None, dtype, ndim=info.ndim)
    return make(info.dims, dtype)


def predicate(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The operands' shape with dtype bool."""
    _same_dtype(infos)
    return _with_dtype(merged(infos), "bool")


def real_part(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The operand, complex dtypes replaced by their real part's."""
    info = tensor(infos, 0)
    return _with_dtype(info, REAL_OF.get(info.dtype, info.dtype))


def complex_of(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The operands' shape with the complex dtype of their real one."""
    _same_dtype(infos)
    return _complex(merged(infos))


def _complex(info: TensorStructInfo) -> TensorStructInfo:
    if info.dtype not in COMPLEX_OF:
        raise OpError(f"a complex number needs parts of float32 or float64; got {info.dtype}")
    return _with_dtype(info, COMPLEX_OF[info.dtype])


def selected(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``select``: the branches' shape; ``pred`` is a scalar or of that shape."""
    _same_dtype(infos[1:])
    return merged(infos[1:])


def clamped(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``clamp``: the operand; the bounds are scalars or of its shape."""
    _same_dtype(infos)
    return tensor(infos, 1)


# ---- shapes
def broadcast(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``broadcast_sizes`` in front of the operand's dimensions."""
    dims, dtype = shaped(infos, 0)
    return make((*attrs["broadcast_sizes"], *dims), dtype)


def permuted(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The operand's dimensions in the order of ``permutation``."""
    dims, dtype = shaped(infos, 0)
    order = _length(attrs, "permutation", len(dims))
    if sorted(order) != list(range(len(dims))):
        raise OpError(f"`permutation` must order the axes 0..{len(dims) - 1}; got {tuple(order)}")
    return make(tuple(dims[i] for i in order), dtype)


def concatenated(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The sum of the operands' sizes along ``dimension``; all else alike."""
    _same_dtype(infos)
    dims, dtype = shaped(infos, 0)
    axis = _axis(attrs, "dimension", len(dims))
    total: Any = 0
    rest: list[StructInfo] = []
    for i in range(len(infos)):
        own = shaped(infos, i)[0]
        if len(own) != len(dims):
            raise OpError(f"operands 0 and {i} have ranks {len(dims)} and {len(own)}")
        total = total + own[axis]
        rest.append(make((*own[:axis], 0, *own[axis + 1 :]), dtype))
    other = merged(rest).dims or dims
    return make((*other[:axis], _dim(total), *other[axis + 1 :]), dtype)


def padded(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``pad``: low and high edges (may be negative) and interior padding between elements."""
    dims, dtype = shaped(infos, 0)
    low, high, interior = (
        _length(attrs, n, len(dims))
        for n in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    new: list[Dim] = []
    for d, lo, hi, between in zip(dims, low, high, interior, strict=True):
        gaps: Any = (max(d - 1, 0) if isinstance(d, int) else d - 1) * between if between else 0
        new.append(_dim(d + gaps + lo + hi))
    for size in new:
        if isinstance(size, int) and size < 0:
            raise OpError(
                f"padding {dims} by {tuple(low)} and {tuple(high)} leaves a negative size"
            )
    return make(tuple(new), dtype)


def sliced(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``slice``: ceil((limit - start) / stride) of each dimension."""
    dims, dtype = shaped(infos, 0)
    start, limit, stride = (
        _length(attrs, n, len(dims)) for n in ("start_indices", "limit_indices", "strides")
    )
    for d, a, b, s in zip(dims, start, limit, stride, strict=True):
        if not (0 <= a <= b and s > 0) or (isinstance(d, int) and b > d):
            raise OpError(f"a slice {a}:{b}:{s} does not fit a dimension of size {d}")
    return make(tuple(-((a - b) // s) for a, b, s in zip(start, limit, stride, strict=True)), dtype)


def slice_sizes(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``dynamic_slice``: a tensor of the shape ``slice_sizes``."""
    dims, dtype = shaped(infos, 0)
    return make(tuple(_length(attrs, "slice_sizes", len(dims))), dtype)


# ---- indexing
def gathered(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``gather``: batch dimensions from the indices, offset dimensions from the slices."""
    dims, dtype = shaped(infos, 0)
    index_dims, _ = shaped(infos, 1)
    numbers = attrs["dimension_numbers"]
    sizes = _length(attrs, "slice_sizes", len(dims))
    vector = numbers.get("index_vector_dim", 0)
    batch = [d for i, d in enumerate(index_dims) if i != vector]
    gone = {*numbers.get("collapsed_slice_dims", ()), *numbers.get("operand_batching_dims", ())}
    window: list[Dim] = [s for i, s in enumerate(sizes) if i not in gone]
    offsets = numbers.get("offset_dims", ())
    if len(offsets) != len(window):
        raise OpError(f"{len(window)} slice dimensions remain, but `offset_dims` is {offsets}")
    sources = dict(zip(offsets, window, strict=True))
    rest = iter(batch)
    rank = len(batch) + len(window)
    return make(tuple(sources[i] if i in sources else next(rest) for i in range(rank)), dtype)


def scattered(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``scatter``: each input alike (operands: inputs, one indices tensor, as many updates)."""
    operands = [i for i in infos if not isinstance(i, FuncStructInfo)]
    if len(operands) % 2 == 0:
        raise OpError(
            f"scatter takes n inputs, indices and n updates; got {len(operands)} operands"
        )
    return results(operands[: len(operands) // 2])


# ---- contractions
def dot(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The last dimension of the left with the first of the right operand (ranks 1 and 2)."""
    (a, dtype), (b, _) = shaped(infos, 0), shaped(infos, 1)
    if not (1 <= len(a) <= 2 and 1 <= len(b) <= 2):
        raise OpError(f"dot takes vectors and matrices; got ranks {len(a)} and {len(b)}")
    _contract(a[-1], b[0])
    return make((*a[:-1], *b[1:]), dtype)


def _contract(a: Dim, b: Dim) -> None:
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise OpError(f"the contracted dimensions differ: {a} and {b}")


def dotted(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``dot_general``: batch, then left, then right dimensions."""
    (a, dtype), (b, _) = shaped(infos, 0), shaped(infos, 1)
    numbers = attrs["dot_dimension_numbers"]
    left_batch, right_batch, left, right = (
        numbers.get(n, ())
        for n in (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        )
    )
    for i, j in (*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)):
        _contract(a[i], b[j])
    batch = [
        b[j] if isinstance(b[j], int) else a[i]
        for i, j in zip(left_batch, right_batch, strict=True)
    ]
    own = [d for i, d in enumerate(a) if i not in left_batch and i not in left]
    other = [d for i, d in enumerate(b) if i not in right_batch and i not in right]
    return make((*batch, *own, *other), dtype)


def window_size(
    size: Dim, window: int, stride: int, pad: Sequence[int], base: int, dilation: int
) -> Dim:
    """How often a dilated window fits into a dilated and padded dimension."""
    if isinstance(size, int):
        padded_size = ((size - 1) * base + 1 if size else 0) + pad[0] + pad[1]
        reach = (window - 1) * dilation + 1 if window else 0
        return 0 if padded_size == 0 or reach > padded_size else (padded_size - reach) // stride + 1
    reach = (window - 1) * dilation + 1
    total = (size - 1) * base + 1 + pad[0] + pad[1]
    return _dim((total - reach) // stride + 1)


def conv(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``convolution``: windows over the spatial dimensions, laid out by ``dimension_numbers``."""
    (a, dtype), (k, _) = shaped(infos, 0), shaped(infos, 1)
    numbers = attrs["dimension_numbers"]
    axes = numbers["input_spatial_dimensions"]
    count = len(axes)
    ones = (1,) * count
    strides = attrs.get("window_strides") or ones
    pads = attrs.get("padding") or ((0, 0),) * count
    base = attrs.get("lhs_dilation") or ones
    dilation = attrs.get("rhs_dilation") or ones
    out: list[Dim] = [0] * len(a)
    batch = a[numbers["input_batch_dimension"]]
    groups = attrs.get("batch_group_count", 1)
    out[numbers["output_batch_dimension"]] = batch if groups == 1 else _dim(batch // groups)
    out[numbers["output_feature_dimension"]] = k[numbers["kernel_output_feature_dimension"]]
    for i in range(count):
        window = k[numbers["kernel_spatial_dimensions"][i]]
        if not isinstance(window, int):
            raise OpError(f"the kernel's spatial dimensions must be known; got {k}")
        out[numbers["output_spatial_dimensions"][i]] = window_size(
            a[axes[i]], window, strides[i], pads[i], base[i], dilation[i]
        )
    return make(tuple(out), dtype)


def fft(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``fft``: RFFT halves the last dimension to complex, IRFFT doubles it to real."""
    dims, dtype = shaped(infos, 0)
    kind, lengths = attrs["fft_type"], attrs["fft_length"]
    if kind == "RFFT":
        size: Dim = lengths[-1]
        last = 0 if isinstance(size, int) and size == 0 else _dim(size // 2 + 1)
        return _complex(make((*dims[:-1], last), dtype))
    if kind == "IRFFT":
        return make((*dims[:-1], lengths[-1]), REAL_OF.get(dtype, dtype))
    return make(dims, dtype)


# ---- windows and reductions
def _inputs(infos: Infos) -> list[StructInfo]:
    operands = [i for i in infos if not isinstance(i, FuncStructInfo)]
    if not operands or len(operands) % 2:
        raise OpError(f"needs as many initial values as inputs; got {len(operands)} operands")
    return operands[: len(operands) // 2]


def reduced(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``reduce``: each input without ``dimensions``."""
    inputs = _inputs(infos)
    gone = set(attrs["dimensions"])
    made: list[StructInfo] = []
    for i in range(len(inputs)):
        dims, dtype = shaped(inputs, i)
        if any(not 0 <= d < len(dims) for d in gone):
            raise OpError(f"`dimensions` {sorted(gone)} do not fit rank {len(dims)}")
        made.append(make(tuple(d for j, d in enumerate(dims) if j not in gone), dtype))
    return results(made)


def windowed(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``reduce_window``: how often the window fits, for each input."""
    inputs = _inputs(infos)
    made: list[StructInfo] = []
    for i in range(len(inputs)):
        dims, dtype = shaped(inputs, i)
        rank = len(dims)
        ones = (1,) * rank
        columns = (
            _length(attrs, "window_dimensions", rank),
            attrs.get("window_strides") or ones,
            attrs.get("padding") or ((0, 0),) * rank,
            attrs.get("base_dilations") or ones,
            attrs.get("window_dilations") or ones,
        )
        made.append(make(tuple(map(window_size, dims, *columns)), dtype))
    return results(made)


def batch_norm(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``batch_norm_training`` and ``_grad``: the operand's shape and two feature vectors."""
    dims, dtype = shaped(infos, 0)
    feature = make((dims[_axis(attrs, "feature_index", len(dims))],), tensor(infos, 1).dtype)
    return TupleStructInfo([make(dims, dtype), feature, feature])


# ---- control flow, tuples, tokens, scalars
def branches(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``if`` and ``case``: what the regions return."""
    returned = [i.ret for i in infos if isinstance(i, FuncStructInfo)]
    if not returned:
        raise OpError("needs at least one region: a local function without parameters")
    return returned[0]


def tuple_of(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """One tuple value of all operands."""
    return results([TupleStructInfo(infos)])


def element(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """Field ``index`` of a tuple value."""
    info = infos[0]
    if not isinstance(info, TupleStructInfo):
        raise OpError(f"the operand must be a tuple value; it is {info}")
    return results([info.fields[_axis(attrs, "index", len(info.fields))]])


def token(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """A token."""
    return ObjectStructInfo()


def int32_scalar(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """A scalar of int32."""
    return make((), "int32")


def uint32_scalar(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """A scalar of uint32."""
    return make((), "uint32")


def all_to_all(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``all_to_all``: split one dimension into ``split_count``, concatenate along another."""
    made: list[StructInfo] = []
    for i in range(len(infos)):
        dims, dtype = shaped(infos, i)
        new: list[Any] = list(dims)
        split = _axis(attrs, "split_dimension", len(dims))
        concat = _axis(attrs, "concat_dimension", len(dims))
        new[split] = new[split] // attrs["split_count"]
        new[concat] = new[concat] * attrs["split_count"]
        made.append(make(tuple(map(_dim, new)), dtype))
    return results(made)


# ---- CHLO
def _broadcast_dims(infos: Infos, attrs: Mapping[str, Any]) -> TensorStructInfo:
    (a, dtype), (b, _) = shaped(infos, 0), shaped(infos, 1)
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    offset = len(large) - len(small)
    axes = attrs.get("broadcast_dimensions")
    if axes is None or len(a) == len(b):
        axes = range(offset, len(large))
    new: list[Dim] = list(large)
    for d, axis in zip(small, axes, strict=True):
        if new[axis] == 1:
            new[axis] = d
        elif d != 1:
            if isinstance(d, int) and isinstance(new[axis], int) and d != new[axis]:
                raise OpError(f"cannot broadcast {a} with {b}")
            new[axis] = d if isinstance(d, int) else new[axis]
    return make(tuple(new), dtype)


def broadcasted(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """Two operands broadcast as numpy does (or by ``broadcast_dimensions``)."""
    _same_dtype(infos)
    return _broadcast_dims(infos, attrs)


def broadcasted_predicate(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """As ``broadcasted``, with dtype bool."""
    _same_dtype(infos)
    return _with_dtype(_broadcast_dims(infos, attrs), "bool")


def broadcasted_complex(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """As ``broadcasted``, with the complex dtype of the operands' real one."""
    _same_dtype(infos)
    return _complex(_broadcast_dims(infos, attrs))


def broadcasted_select(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """``pred`` and both branches broadcast against each other."""
    branch = _broadcast_dims(infos[1:], {})
    dtype = tensor(infos, 1).dtype
    return _with_dtype(_broadcast_dims([infos[0], branch], {}), dtype)


def top_k(infos: Infos, attrs: Mapping[str, Any]) -> StructInfo:
    """The ``k`` largest along the last dimension: values, and indices of int32."""
    dims, dtype = shaped(infos, 0)
    if not dims:
        raise OpError("top_k needs at least one dimension; got a scalar")
    shape = (*dims[:-1], attrs["k"])
    return TupleStructInfo([make(shape, dtype), make(shape, "int32")])


RULES: Final[dict[str, Rule]] = {
    rule.__name__: rule
    for rule in (
        *(same, first, second, each, predicate, real_part, complex_of, selected, clamped),
        *(broadcast, permuted, concatenated, padded, sliced, slice_sizes, gathered, scattered),
        *(dot, dotted, conv, fft, reduced, windowed, batch_norm, branches, tuple_of, element),
        *(token, int32_scalar, uint32_scalar, all_to_all, broadcasted, broadcasted_predicate),
        *(broadcasted_complex, broadcasted_select, top_k),
    )
}
