"""Codecs: bijections between plain Python values and MLIR attributes and types.

``Codec.read(a)`` gives a hashable value (bool, int, float, str, tuple, Attrs), ``Codec.write`` the
attribute again. Where an attribute is not of the form that its codec spells, :func:`read_attr`
falls back on its MLIR text, ``{"mlir": "#sdy.sharding<...>"}``, so that every attribute has a value
that prints and parses. All functions need a current MLIR context.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import BY_MLIR, DTYPES
from relax2xla.errors import EmitError
from relax2xla.ir.base import Attrs
from relax2xla.ir.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.stablehlo.constants import dense_of_text
from relax2xla.stablehlo.mlir import chlo, dense, ir
from relax2xla.stablehlo.mlir import stablehlo as hlo

TEXT: Final = "mlir"


@dataclass(frozen=True, slots=True)
class Codec:
    """A bijection: ``read(write(v)) == v`` and ``write(read(a)) == a``."""

    write: Callable[[Any], ir.Attribute]
    read: Callable[[ir.Attribute], Any]


# ---- makers
def _int(bits: int) -> Codec:
    def write(value: int) -> ir.Attribute:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), value)

    return Codec(write, lambda a: ir.IntegerAttr(a).value)


def _enum(cls: Any, names: str) -> Codec:
    """An enumeration. MLIR aborts the process on an unknown name, so names are checked here."""
    known = tuple(names.split())

    def write(value: str) -> ir.Attribute:
        if value not in known:
            raise EmitError(f"{value!r} is not one of {', '.join(known)}")
        return cls.get(value)

    return Codec(write, lambda a: cls(a).value)


def _array(item: Codec) -> Codec:
    return Codec(
        lambda v: ir.ArrayAttr.get([item.write(x) for x in v]),
        lambda a: tuple(item.read(x) for x in ir.ArrayAttr(a)),
    )


def _record(cls: Any, *fields: str, **defaults: Any) -> Codec:
    """An attribute with named fields; a field that a writer leaves out is () or its default."""
    known = frozenset(fields)

    def write(value: Mapping[str, Any]) -> ir.Attribute:
        if unknown := value.keys() - known:
            raise EmitError(f"unknown field {sorted(unknown)}; known: {', '.join(fields)}")
        return cls.get(*[value.get(f, defaults.get(f, ())) for f in fields])

    def read(a: ir.Attribute) -> Attrs:
        made = cls(a)
        return Attrs({f: getattr(made, f) for f in fields})

    return Codec(write, read)


def _write_matrix(value: tuple[tuple[int, ...], ...], width: int) -> ir.Attribute:
    shape = (len(value), len(value[0]) if value else width)
    if 0 in shape:
        return ir.Attribute.parse(f"dense<> : tensor<{shape[0]}x{shape[1]}xi64>")
    return dense(np.array(value, np.int64))


def _read_matrix(a: ir.Attribute) -> tuple[tuple[int, ...], ...]:
    elements = ir.DenseIntElementsAttr(a)
    rows, columns = ir.RankedTensorType(elements.type).shape
    if rows * columns == 0:
        return ((),) * rows
    return tuple(tuple(row) for row in np.array(elements).reshape(rows, columns).tolist())


def _matrix(width: int) -> Codec:
    """A two-dimensional int64 constant; ``width``: columns of one without rows."""
    return Codec(lambda v: _write_matrix(v, width), _read_matrix)


def _layout() -> Codec:
    def write(value: tuple[int, ...]) -> ir.Attribute:
        values = f"{list(value)}" if value else ""
        return ir.Attribute.parse(f"dense<{values}> : tensor<{len(value)}xindex>")

    return Codec(write, lambda a: tuple(np.array(ir.DenseIntElementsAttr(a)).tolist()))


def _dot_algorithm() -> Codec:
    fields = (
        "lhs_precision_type",
        "rhs_precision_type",
        "accumulation_type",
        "lhs_component_count",
        "rhs_component_count",
        "num_primitive_operations",
        "allow_imprecise_accumulation",
    )

    def write(value: Mapping[str, Any]) -> ir.Attribute:
        parts: list[Any] = [ir.Type.parse(value[f]) for f in fields[:3]]
        return hlo.DotAlgorithm.get(*parts, *[value[f] for f in fields[3:]])

    def read(a: ir.Attribute) -> Attrs:
        made = hlo.DotAlgorithm(a)
        types = {f: str(getattr(made, f)) for f in fields[:3]}
        return Attrs({**types, **{f: getattr(made, f) for f in fields[3:]}})

    return Codec(write, read)


def _write_flag(value: bool) -> ir.Attribute:
    if value is not True:
        raise EmitError("a flag is True or left out")
    return ir.UnitAttr.get()


def _result_accuracy() -> Codec:
    record = _record(
        hlo.ResultAccuracyAttr, "atol", "rtol", "ulps", "mode", atol=0.0, rtol=0.0, ulps=0
    )

    def write(value: Mapping[str, Any]) -> ir.Attribute:
        if value.get("mode") not in ("DEFAULT", "HIGHEST", "TOLERANCE"):
            raise EmitError(f"mode must be DEFAULT, HIGHEST or TOLERANCE; got {value}")
        return record.write(value)

    return Codec(write, record.read)


def _conv_dims() -> Codec:
    record = _record(
        hlo.ConvDimensionNumbers,
        "input_batch_dimension",
        "input_feature_dimension",
        "input_spatial_dimensions",
        "kernel_input_feature_dimension",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
        "output_batch_dimension",
        "output_feature_dimension",
        "output_spatial_dimensions",
    )

    def write(value: Mapping[str, Any]) -> ir.Attribute:
        """MLIR aborts the process when it prints numbers that are no order of the axes."""
        names = ("batch", "feature"), ("input_feature", "output_feature"), ("batch", "feature")
        for side, (a, b) in zip(("input", "kernel", "output"), names, strict=True):
            axes = [value[f"{side}_{a}_dimension"], value[f"{side}_{b}_dimension"]]
            axes += value.get(f"{side}_spatial_dimensions", ())
            if sorted(axes) != list(range(len(axes))):
                raise EmitError(f"the {side} dimensions must order 0..{len(axes) - 1}; got {axes}")
        return record.write(value)

    return Codec(write, record.read)


# ---- any attribute (discardable ones, dictionaries of custom calls and composites)
def write_any(value: Any) -> ir.Attribute:
    """bool, int (i64), float (f64), str, tuple, mapping, or MLIR text as an attribute."""
    match value:
        case bool():
            return ir.BoolAttr.get(value)
        case int() if -(1 << 63) <= value < 1 << 63:
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(), value)
        case str():
            return ir.StringAttr.get(value)
        case tuple() | list():
            return ir.ArrayAttr.get([write_any(v) for v in value])
        case Mapping() if _is_text(value):
            return parse_attr(value[TEXT])
        case Mapping():
            return ir.DictAttr.get({k: write_any(v) for k, v in value.items()})
        case _:
            raise EmitError(
                f"an attribute cannot be the {type(value).__name__} {value!r}; use bool, int, "
                'float, str, a tuple, a dictionary, or {"mlir": "text of any MLIR attribute"}'
            )


def read_any(a: ir.Attribute) -> Any:
    """The value of an attribute of any kind; see :func:`write_any`."""
    match a:
        case ir.BoolAttr():
            return a.value
        case ir.IntegerAttr() if str(a.type) == "i64":
            return a.value
        case ir.FloatAttr() if str(a.type) == "f64" and math.isfinite(a.value):
            return a.value
        case ir.StringAttr() if ir.StringAttr.get(_text_of(a)) == a:
            return a.value
        case ir.ArrayAttr() | ir.DictAttr():
            try:
                made = _read_fields(a)
            except TypeError:
                made = None  # jaxlib wraps no dense attribute of complex elements.
            return Attrs({TEXT: str(a)}) if made is None else made
        case _:
            return Attrs({TEXT: str(a)})


def _read_fields(a: ir.ArrayAttr | ir.DictAttr) -> Any:
    """The values in an array or a dictionary; None for a dictionary that would be taken for text.

    A field is asked for by name: where jaxlib cannot wrap it, that is a TypeError, but the
    ``attr`` of a NamedAttribute ends the process.
    """
    if isinstance(a, ir.ArrayAttr):
        return tuple(read_any(x) for x in a)
    items = {name: read_any(a[name]) for name in (a[i].name for i in range(len(a)))}
    return None if items.keys() == {TEXT} else Attrs(items)


def _text_of(a: ir.StringAttr) -> str:
    try:
        return a.value
    except (UnicodeDecodeError, RuntimeError):
        return ""  # Not UTF-8: the binding cannot give it to Python.


def _is_text(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and TEXT in value


def parse_attr(text: str) -> ir.Attribute:
    """An attribute of its MLIR text; EmitError if MLIR refuses it."""
    try:
        return ir.Attribute.parse(text)
    except ir.MLIRError as e:
        raise EmitError(f"not the text of an MLIR attribute: {text!r}") from e
    except TypeError as e:
        # MLIR takes it, but jaxlib wraps no dense attribute of complex elements.
        made = dense_of_text(text)
        if made is None:
            raise EmitError(f"jaxlib cannot make an attribute of the text {text!r}") from e
        return made


# ---- THE codecs, by the names of table.py
_PRECISIONS: Final = "DEFAULT HIGH HIGHEST"
_DIRECTIONS: Final = "EQ NE GE GT LE LT"
_COMPARISONS: Final = "NOTYPE FLOAT TOTALORDER SIGNED UNSIGNED"
_i64s = Codec(ir.DenseI64ArrayAttr.get, lambda a: tuple(ir.DenseI64ArrayAttr(a)))
_symbol = Codec(ir.FlatSymbolRefAttr.get, lambda a: ir.FlatSymbolRefAttr(a).value)
CODECS: Final[dict[str, Codec]] = {
    "any": Codec(write_any, read_any),
    "bool": Codec(ir.BoolAttr.get, lambda a: ir.BoolAttr(a).value),
    "flag": Codec(_write_flag, lambda a: isinstance(a, ir.UnitAttr)),
    "i32": _int(32),
    "i64": _int(64),
    "f32": Codec(
        lambda v: ir.FloatAttr.get(ir.F32Type.get(), v), lambda a: float(ir.FloatAttr(a).value)
    ),
    "str": Codec(ir.StringAttr.get, lambda a: ir.StringAttr(a).value),
    "symbol": _symbol,
    "symbols": _array(_symbol),
    "i64s": _i64s,
    "i32s": Codec(ir.DenseI32ArrayAttr.get, lambda a: tuple(ir.DenseI32ArrayAttr(a))),
    "bools": Codec(ir.DenseBoolArrayAttr.get, lambda a: tuple(ir.DenseBoolArrayAttr(a))),
    "pairs": _matrix(2),
    "replica_groups": _matrix(0),
    "layouts": _array(_layout()),
    "aliases": _array(
        _record(
            hlo.OutputOperandAlias, "output_tuple_indices", "operand_index", "operand_tuple_indices"
        )
    ),
    "precisions": _array(_enum(hlo.PrecisionAttr, _PRECISIONS)),
    "chlo_precisions": _array(_enum(chlo.PrecisionAttr, _PRECISIONS)),
    "comparison_direction": _enum(hlo.ComparisonDirectionAttr, _DIRECTIONS),
    "comparison_type": _enum(hlo.ComparisonTypeAttr, _COMPARISONS),
    "chlo_comparison_direction": _enum(chlo.ComparisonDirectionAttr, _DIRECTIONS),
    "chlo_comparison_type": _enum(chlo.ComparisonTypeAttr, _COMPARISONS),
    "fft_type": _enum(hlo.FftTypeAttr, "FFT IFFT RFFT IRFFT"),
    "rng_algorithm": _enum(hlo.RngAlgorithmAttr, "DEFAULT THREE_FRY PHILOX"),
    "rng_distribution": _enum(hlo.RngDistributionAttr, "UNIFORM NORMAL"),
    "transpose": _enum(hlo.TransposeAttr, "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT"),
    "channel_handle": Codec(
        lambda v: hlo.ChannelHandle.get(v["handle"], v["type"]),
        lambda a: Attrs(handle=hlo.ChannelHandle(a).handle, type=hlo.ChannelHandle(a).channel_type),
    ),
    "result_accuracy": _result_accuracy(),
    "dot_algorithm": _dot_algorithm(),
    "dot_dims": _record(
        hlo.DotDimensionNumbers,
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ),
    "conv_dims": _conv_dims(),
    "gather_dims": _record(
        hlo.GatherDimensionNumbers,
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
        "index_vector_dim",
    ),
    "scatter_dims": _record(
        hlo.ScatterDimensionNumbers,
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scattered_dims_to_operand_dims",
        "index_vector_dim",
    ),
    "ragged_dot_dims": _record(
        chlo.RaggedDotDimensionNumbers,
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
        "lhs_ragged_dimensions",
        "rhs_group_dimensions",
    ),
}


def read_attr(codec: str, a: ir.Attribute) -> Any:
    """The value of ``a`` by the codec named ``codec``, or its text where that cannot spell it."""
    bijection = CODECS[codec]
    try:
        value = bijection.read(a)
        if bijection.write(value) == a:
            return value
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass  # Another form of the attribute than the codec's: the text says it all.
    return Attrs({TEXT: str(a)})


def write_attr(codec: str, value: Any) -> ir.Attribute:
    """The attribute of ``value`` by the codec named ``codec``; EmitError if it does not fit."""
    if isinstance(value, Mapping) and _is_text(value):
        return parse_attr(value[TEXT])
    try:
        return CODECS[codec].write(value)
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as e:
        if isinstance(e, EmitError):
            raise
        raise EmitError(f"{value!r} is no value of kind {codec}: {e}") from e


# ---- types
DYNAMIC: Final = ir.ShapedType.get_dynamic_size()


def dtype_of(element: ir.Type) -> str:
    """Relax dtype name of an element type.

    A type outside the table (quantised, index, ...) is ``!`` and its MLIR text.
    """
    text = str(element)
    known = BY_MLIR.get(text)
    if known is not None:
        return known.name
    return text if text.startswith("!") else f"!{text}"


def type_to_sinfo(t: ir.Type, fresh: Callable[[], tir.Var] | None = None) -> StructInfo:
    """Struct info of a type. ``fresh`` makes the variable of a ``?`` dimension.

    Without ``fresh`` a tensor with ``?`` dimensions keeps its rank only.
    """
    match t:
        case ir.RankedTensorType():
            dtype = dtype_of(t.element_type)
            if t.encoding is not None:
                dtype = f"!{t.element_type}, {t.encoding}"
            shape = tuple(t.shape)
            if DYNAMIC not in shape:
                return TensorStructInfo.make(shape, dtype)
            if fresh is None:
                return TensorStructInfo(None, dtype, ndim=len(shape))
            return TensorStructInfo.make(
                tuple(fresh() if d == DYNAMIC else d for d in shape), dtype
            )
        case ir.UnrankedTensorType():
            return TensorStructInfo(None, dtype_of(t.element_type))
        case ir.TupleType():
            fields = [t.get_type(i) for i in range(t.num_types)]
            return TupleStructInfo([type_to_sinfo(f, fresh) for f in fields])
        case _ if str(t) == "!stablehlo.token":
            return ObjectStructInfo()
        case _:
            # A bare scalar, or a type of a dialect: a future, a buffer.
            return PrimStructInfo(dtype_of(t))


def element_text(dtype: str) -> str:
    """MLIR text of a dtype; of one with an encoding, what follows the dimensions in the text."""
    row = DTYPES.get(dtype)
    if row is not None:
        return row.mlir
    if not dtype.startswith("!"):
        raise EmitError(f"the dtype {dtype!r} is unknown, so there is no MLIR type for it")
    # The type of a dialect has its own `!`: in `!quant.uniform<...>` it is not our mark.
    return dtype if re.match(r"!\w+\.", dtype) else dtype[1:]


def parse_type(text: str) -> ir.Type:
    """A type of its MLIR text; EmitError if MLIR refuses it."""
    try:
        return ir.Type.parse(text)
    except (ir.MLIRError, ValueError) as e:
        raise EmitError(f"not the text of an MLIR type: {text!r}") from e


def element_type(dtype: str) -> ir.Type:
    """MLIR type of a Relax dtype name, or of the MLIR text that it is."""
    return parse_type(element_text(dtype))


def sinfo_to_type(info: StructInfo) -> ir.Type:
    """MLIR type of a struct info; symbolic dimensions are ``?``, a token is Object."""
    match info:
        case TensorStructInfo():
            if info.dtype.startswith("!"):
                return _tensor_of_text(info)
            element = element_type(info.dtype)
            if info.dims is not None:
                shape = [d if isinstance(d, int) else DYNAMIC for d in info.dims]
            elif info.ndim == -1:
                return ir.UnrankedTensorType.get(element)
            else:
                shape = [DYNAMIC] * info.ndim
            return ir.RankedTensorType.get(shape, element)
        case TupleStructInfo():
            return ir.TupleType.get_tuple([sinfo_to_type(f) for f in info.fields])
        case ObjectStructInfo():
            return ir.Type.parse("!stablehlo.token")
        case PrimStructInfo():
            return element_type(info.dtype)
        case _:
            raise EmitError(f"StableHLO has no type for a value of struct info {info}")


def _tensor_of_text(info: TensorStructInfo) -> ir.Type:
    dims: list[str] = ["?"] * info.ndim
    if info.dims is not None:
        dims = [str(d) if isinstance(d, int) else "?" for d in info.dims]
    elif info.ndim == -1:
        dims = ["*"]
    return parse_type(f"tensor<{''.join(f'{d}x' for d in dims)}{element_text(info.dtype)}>")
