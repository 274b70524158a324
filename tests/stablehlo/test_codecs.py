"""Codecs are inverses, on values that hypothesis makes and on attributes that MLIR parses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax2xla import tir
from relax2xla.dtypes import DTYPES
from relax2xla.errors import EmitError
from relax2xla.ir import Attrs, ObjectStructInfo, Span, TensorStructInfo, TupleStructInfo
from relax2xla.stablehlo import context
from relax2xla.stablehlo.codecs import (
    CODECS,
    parse_attr,
    read_any,
    read_attr,
    sinfo_to_type,
    type_to_sinfo,
    write_any,
    write_attr,
)
from relax2xla.stablehlo.constants import is_splat, read_elements, write_elements
from relax2xla.stablehlo.locations import read_location, write_location
from relax2xla.stablehlo.mlir import ir

CONTEXT = context()
I64 = st.integers(-(2**63), 2**63 - 1)
INTS = st.lists(I64, max_size=4).map(tuple)
DIM = st.integers(0, 9)
DIMS = st.lists(DIM, max_size=4).map(tuple)
FLOAT = st.floats(width=32, allow_nan=False)
TEXT = st.text(max_size=8)
NAME = st.from_regex(r"[a-z]\w{0,6}", fullmatch=True)


def matrix(width: int) -> st.SearchStrategy[Any]:
    rows = st.integers(1, 3).flatmap(
        lambda n: st.lists(st.tuples(*[I64] * n), min_size=1, max_size=3)
    )
    empty = st.just(())
    pairs = st.lists(st.tuples(I64, I64), max_size=3)
    return (pairs if width else st.one_of(rows, empty)).map(tuple)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Attrs]:
    return st.fixed_dictionaries(fields).map(Attrs)


def enum(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


PRECISIONS = st.lists(enum("DEFAULT", "HIGH", "HIGHEST"), max_size=3).map(tuple)
DIRECTION = enum("EQ", "NE", "GE", "GT", "LE", "LT")
COMPARISON = enum("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
ANY = st.recursive(
    st.one_of(st.booleans(), I64, st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda v: st.one_of(
        st.lists(v, max_size=3).map(tuple), st.dictionaries(NAME, v, max_size=3).map(Attrs)
    ),
    max_leaves=6,
)


def conv_numbers(spatial: int) -> st.SearchStrategy[Attrs]:
    order = st.permutations(range(spatial + 2))

    def build(image: list[int], kernel: list[int], out: list[int]) -> Attrs:
        return Attrs(
            input_batch_dimension=image[0],
            input_feature_dimension=image[1],
            input_spatial_dimensions=image[2:],
            kernel_input_feature_dimension=kernel[0],
            kernel_output_feature_dimension=kernel[1],
            kernel_spatial_dimensions=kernel[2:],
            output_batch_dimension=out[0],
            output_feature_dimension=out[1],
            output_spatial_dimensions=out[2:],
        )

    return st.builds(build, order, order, order)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "any": ANY,
    "bool": st.booleans(),
    "flag": st.just(True),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": I64,
    "f32": FLOAT,
    "str": TEXT,
    "symbol": NAME,
    "symbols": st.lists(NAME, max_size=3).map(tuple),
    "i64s": INTS,
    "i32s": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(tuple),
    "bools": st.lists(st.booleans(), max_size=4).map(tuple),
    "pairs": matrix(2),
    "replica_groups": matrix(0),
    "layouts": st.lists(DIMS, max_size=3).map(tuple),
    "aliases": st.lists(
        record(output_tuple_indices=DIMS, operand_index=DIM, operand_tuple_indices=DIMS), max_size=2
    ).map(tuple),
    "precisions": PRECISIONS,
    "chlo_precisions": PRECISIONS,
    "comparison_direction": DIRECTION,
    "comparison_type": COMPARISON,
    "chlo_comparison_direction": DIRECTION,
    "chlo_comparison_type": COMPARISON,
    "fft_type": enum("FFT", "IFFT", "RFFT", "IRFFT"),
    "rng_algorithm": enum("DEFAULT", "THREE_FRY", "PHILOX"),
    "rng_distribution": enum("UNIFORM", "NORMAL"),
    "transpose": enum("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "channel_handle": record(handle=I64, type=I64),
    "result_accuracy": record(
        atol=st.floats(0, 1), rtol=st.floats(0, 1), ulps=DIM, mode=enum("DEFAULT", "TOLERANCE")
    ),
    "dot_algorithm": record(
        lhs_precision_type=enum("f32", "tf32", "bf16"),
        rhs_precision_type=enum("f32", "tf32", "bf16"),
        accumulation_type=st.just("f32"),
        lhs_component_count=DIM,
        rhs_component_count=DIM,
        num_primitive_operations=DIM,
        allow_imprecise_accumulation=st.booleans(),
    ),
    "dot_dims": record(
        lhs_batching_dimensions=DIMS,
        rhs_batching_dimensions=DIMS,
        lhs_contracting_dimensions=DIMS,
        rhs_contracting_dimensions=DIMS,
    ),
    "conv_dims": st.integers(0, 3).flatmap(conv_numbers),
    "gather_dims": record(
        offset_dims=DIMS,
        collapsed_slice_dims=DIMS,
        operand_batching_dims=DIMS,
        start_indices_batching_dims=DIMS,
        start_index_map=DIMS,
        index_vector_dim=DIM,
    ),
    "scatter_dims": record(
        update_window_dims=DIMS,
        inserted_window_dims=DIMS,
        input_batching_dims=DIMS,
        scatter_indices_batching_dims=DIMS,
        scattered_dims_to_operand_dims=DIMS,
        index_vector_dim=DIM,
    ),
    "ragged_dot_dims": record(
        lhs_batching_dimensions=DIMS,
        rhs_batching_dimensions=DIMS,
        lhs_contracting_dimensions=DIMS,
        rhs_contracting_dimensions=DIMS,
        lhs_ragged_dimensions=DIMS,
        rhs_group_dimensions=DIMS,
    ),
}


def test_every_codec_is_tested() -> None:
    assert VALUES.keys() == CODECS.keys()


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_read_is_the_inverse_of_write(codec: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[codec])
    with CONTEXT, ir.Location.unknown():
        attribute = write_attr(codec, value)
        again = read_attr(codec, attribute)
        assert again == value
        assert hash(again) == hash(again)
        assert write_attr(codec, again) == attribute


ATTRIBUTES = [
    *(
        "unit",
        "1 : i8",
        "-1 : i64",
        "0.5 : bf16",
        "1.0 : f64",
        "0x7FF0000000000000 : f64",
        '"a\\00"',
    ),
    *("@f", "@f::@g", "[1, [true]]", '{mlir = "x"}', "array<i64: 1>", "dense<1> : tensor<2xi4>"),
    *("f32", "affine_map<(d0) -> (d0)>", "#stablehlo.bounds<1>", '"s" : i32', '"\\FF"'),
    *("#sdy.sharding<@m, [{}]>", "dense<(1.0,2.0)> : tensor<complex<f32>>"),
    "dense<[(1.0,-0.0),(0x7FC00001,0xFF800000)]> : tensor<2xcomplex<f32>>",
    *("dense<(1,2)> : tensor<complex<i32>>", "dense<> : tensor<0x2xcomplex<f64>>"),
    "{a = [1, {b = dense<(1.0,2.0)> : tensor<3xcomplex<f64>>}], c = 1}",
]


@pytest.mark.parametrize("text", ATTRIBUTES)
def test_any_attribute_survives(text: str) -> None:
    with CONTEXT, ir.Location.unknown():
        attribute = parse_attr(text)
        assert write_any(read_any(attribute)) == attribute


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("pairs", "dense<> : tensor<0x3xi64>"),
        ("pairs", "dense<1> : tensor<2xi64>"),
        ("i64", "1 : i32"),
        ("bool", "unit"),
        ("replica_groups", "dense<> : tensor<2x0xi64>"),
        ("f32", "0x7FC00001 : f32"),
    ],
)
def test_other_forms_fall_back_on_text(codec: str, text: str) -> None:
    with CONTEXT, ir.Location.unknown():
        attribute = ir.Attribute.parse(text)
        assert write_attr(codec, read_attr(codec, attribute)) == attribute


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("i64s", ("a",)),
        ("comparison_direction", "XX"),
        ("dot_dims", {"nothing": ()}),
        ("any", object()),
        ("any", {"mlir": "#nonsense"}),
        ("flag", False),
        ("channel_handle", {}),
    ],
)
def test_wrong_values_are_errors(codec: str, value: Any) -> None:
    with CONTEXT, ir.Location.unknown(CONTEXT), pytest.raises(EmitError):
        write_attr(codec, value)


@pytest.mark.parametrize("codec", [c for c in CODECS if c.endswith(("_type", "_direction"))])
def test_an_unknown_enum_is_an_error_and_no_abort(codec: str) -> None:
    with CONTEXT, ir.Location.unknown(CONTEXT), pytest.raises(EmitError, match="not one of"):
        write_attr(codec, "UNHEARD_OF")


# ---- types
DTYPE = st.sampled_from(sorted(DTYPES))
TENSOR = st.builds(lambda s, d: TensorStructInfo(s, d), DIMS, DTYPE)
INFO = st.recursive(
    st.one_of(TENSOR, st.just(ObjectStructInfo())),
    lambda f: st.lists(f, max_size=3).map(TupleStructInfo),
    max_leaves=4,
)


@given(INFO)
def test_types_are_inverse(info: Any) -> None:
    with CONTEXT, ir.Location.unknown():
        assert type_to_sinfo(sinfo_to_type(info)) == info


def test_dynamic_types() -> None:
    n = tir.Var("n", "int64")
    with CONTEXT, ir.Location.unknown():
        assert str(sinfo_to_type(TensorStructInfo((n, n + 1, 3), "int4"))) == "tensor<?x?x3xi4>"
        assert str(sinfo_to_type(TensorStructInfo(None, "bool", ndim=2))) == "tensor<?x?xi1>"
        assert str(sinfo_to_type(TensorStructInfo(None, "bool"))) == "tensor<*xi1>"
        assert type_to_sinfo(ir.Type.parse("tensor<?x3xf32>")).ndim == 2
        made = type_to_sinfo(ir.Type.parse("tensor<?x3xf32>"), lambda: n)
        assert made == TensorStructInfo((n, 3), "float32")
        for text in (
            "tensor<2xindex>",
            "tensor<?xf32, #stablehlo.bounds<2>>",
            "tensor<2x?x!quant.uniform<i8:f32, 1.000000e-01:3>, #stablehlo.bounds<?, 2>>",
            "tensor<*xi17>",
            "memref<2xf32>",
            "f32",
            "!stablehlo.future<tensor<f32>>",
        ):
            assert str(sinfo_to_type(type_to_sinfo(ir.Type.parse(text), lambda: n))) == text


# ---- constants
def constant(data: Any, dtype: str) -> Any:
    info = TensorStructInfo(data.shape, dtype)
    t = sinfo_to_type(info)
    attributes = {"value": write_elements(data, t)}
    return ir.Operation.create("stablehlo.constant", [t], [], attributes), info


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0, 2), (1, 1), (8,), (3, 5), (7, 31)])
def test_constants_are_exact(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    row = DTYPES[dtype]
    bits = rng.integers(0, 256, (*shape, row.nbytes), np.uint8)
    if row.bits < 8:
        bits &= (1 << row.bits) - 1
    data = bits.view(row.numpy).reshape(shape)
    if dtype == "float8_e8m0fnu":  # MLIR's own conversion of this kind is not exact for NaN.
        data = np.where(data == data, data, ml_dtypes.float8_e8m0fnu(1)).astype(row.numpy)
    if row.kind in ("int",) and row.bits < 8:
        data = data.astype(np.int8).astype(row.numpy)
    with CONTEXT, ir.Location.unknown():
        op, info = constant(data, dtype)
        again = read_elements(op, info)
    assert (again.dtype, again.shape) == (data.dtype, data.shape)
    assert again.tobytes() == data.tobytes()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_splats_stay_splats(dtype: str) -> None:
    data = np.broadcast_to(np.ones((), DTYPES[dtype].numpy), (1 << 20, 1 << 20))
    with CONTEXT, ir.Location.unknown():
        op, info = constant(data, dtype)
        again = read_elements(op, info)
    assert is_splat(again)
    assert again[3, 4] == data[3, 4]


# ---- locations
PLACE = st.builds(
    lambda f, a, b: Span(file=f, line=a, column=b, end_line=a, end_column=b, kind="file"),
    NAME,
    st.integers(1, 99),
    st.integers(1, 99),
)
SPAN = st.recursive(
    st.one_of(PLACE, st.builds(Span, NAME)),
    lambda s: st.one_of(
        st.builds(lambda n, c: Span(n, children=(c,)), NAME, s),
        st.builds(lambda a, b: Span(kind="callsite", children=(a, b)), s, s),
        st.builds(lambda a: Span(kind="fused", children=(a,), metadata='"m"'), PLACE),
    ),
    max_leaves=4,
)


@given(SPAN)
def test_locations_are_inverse(span: Span) -> None:
    with CONTEXT, ir.Location.unknown():
        assert read_location(write_location(span)) == span
