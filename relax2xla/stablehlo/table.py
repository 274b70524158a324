"""THE table of StableHLO, CHLO and Shardy ops: one row an op, data only, no jaxlib (decision D2).

A row is read in both directions: ``emit`` writes a Relax call of the row as its MLIR operation,
``read`` turns the operation into the call. Nothing else knows about single ops. The columns:

* operands: names in MLIR's order, ``*name`` a variadic group;
* attributes: ``name="codec"`` (codecs.py), ``"?codec"`` where MLIR lets it be absent;
* ``regions``: how many (-1: as many as the call has); a region is a local Relax function that
  follows the operands;
* ``infer``: the rule of infer.py that gives the result's struct info. Without one it must be given
  as ``sinfo_args``. ``loose`` rows have a rule for the shape, but MLIR leaves the result's element
  type free: ``sinfo_args`` is then needed wherever it is not that of the operands;
* ``pure``: False for what must not be dropped or duplicated;
* ``traits``: facts that passes and costs ask for (ir/traits.py); none is as ``Opaque``.

tests/stablehlo/test_table.py compares every row with jaxlib's own class of the op, so that an op or
attribute that a new jaxlib brings fails by name.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import Final

from relax2xla.ir.traits import (
    AsksPlace,
    Collective,
    Commutative,
    ComputesElements,
    Contraction,
    Division,
    OnlyWhole,
    Permutes,
    Pointwise,
    Random,
    Reshapes,
    ShapedByValue,
    Trait,
    Waits,
)

PREFIX: Final = "relax."


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one MLIR operation; see the module's docstring for the columns."""

    mlir_name: str
    operands: tuple[str, ...]
    attrs: dict[str, str]
    regions: int = 0
    infer: str | None = None
    loose: bool = False
    pure: bool = True
    traits: tuple[Trait, ...] = ()

    @property
    def name(self) -> str:
        """Name of the Relax operator: ``stablehlo.add`` is ``relax.stablehlo.add``.

        Python's keywords get an underscore (``relax.stablehlo.and_``), so that every row can be
        written in TVMScript.
        """
        dialect, _, op = self.mlir_name.partition(".")
        op = op.replace("-", "_")
        return f"{PREFIX}{dialect}.{op}_" if keyword.iskeyword(op) else f"{PREFIX}{dialect}.{op}"

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the attributes that MLIR demands."""
        return tuple(n for n, codec in self.attrs.items() if not codec.startswith("?"))


TABLE: dict[str, Row] = {}


def _row(
    mlir_name: str,
    operands: str = "",
    infer: str | None = None,
    *traits: Trait,
    regions: int = 0,
    loose: bool = False,
    pure: bool = True,
    **attrs: str,
) -> None:
    _add(Row(mlir_name, tuple(operands.split()), attrs, regions, infer, loose, pure, traits))


def _add(row: Row) -> None:
    TABLE[row.name] = row


def _rows(
    dialect: str,
    names: str,
    operands: str,
    infer: str | None,
    *traits: Trait,
    **attrs: str,
) -> None:
    for name in names.split():
        _add(Row(f"{dialect}.{name}", tuple(operands.split()), attrs, infer=infer, traits=traits))


# ---- element by element
_POINTWISE: Final = Pointwise()
_ELEMENTS: Final = ComputesElements()
_rows(
    "stablehlo",
    """ceil count_leading_zeros floor negate not popcnt round_nearest_afz round_nearest_even
    sign""",
    "operand",
    "same",
    _POINTWISE,
)
_rows(
    "stablehlo",
    """cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan
    tanh""",
    "operand",
    "same",
    _POINTWISE,
    result_accuracy="?result_accuracy",
)
_rows(
    "stablehlo",
    "atan2 power shift_left shift_right_arithmetic shift_right_logical subtract",
    "lhs rhs",
    "same",
    _POINTWISE,
)
_rows(
    "stablehlo",
    "add and maximum minimum multiply or xor",
    "lhs rhs",
    "same",
    _POINTWISE,
    Commutative(),
)
_rows("stablehlo", "divide remainder", "lhs rhs", "same", _POINTWISE, Division())
_rows("stablehlo", "abs real imag", "operand", "real_part", _POINTWISE)
_row("stablehlo.complex", "lhs rhs", "complex_of", _POINTWISE)
_row("stablehlo.is_finite", "x", "predicate", _POINTWISE)
_row(
    "stablehlo.compare",
    "lhs rhs",
    "predicate",
    _POINTWISE,
    comparison_direction="comparison_direction",
    compare_type="?comparison_type",
)
_row("stablehlo.select", "pred on_true on_false", "selected", _POINTWISE)
_row("stablehlo.clamp", "min operand max", "clamped", _POINTWISE)
_row(
    "stablehlo.reduce_precision",
    "operand",
    "same",
    _POINTWISE,
    exponent_bits="i32",
    mantissa_bits="i32",
)
_row("stablehlo.convert", "operand", None, Pointwise(flops=0))
_row("stablehlo.bitcast_convert", "operand")
_row("stablehlo.uniform_quantize", "operand")
_row("stablehlo.uniform_dequantize", "operand")
_row("stablehlo.map", "*inputs", None, _ELEMENTS, regions=1, dimensions="i64s")

# ---- constants and random numbers
_row("stablehlo.constant", "", "same", value="elements", resource="?any")
_row("stablehlo.iota", "", iota_dimension="i64")
_row("stablehlo.dynamic_iota", "output_shape", None, ShapedByValue(), iota_dimension="i64")
_row(
    "stablehlo.rng",
    "a b shape",
    None,
    Random(),
    OnlyWhole(vectorised=False),
    rng_distribution="rng_distribution",
    pure=False,
)
_row("stablehlo.rng_bit_generator", "initial_state", rng_algorithm="rng_algorithm")

# ---- shapes
_row("stablehlo.reshape", "operand", None, Reshapes())
_row("stablehlo.dynamic_reshape", "operand output_shape", None, ShapedByValue())
_row("stablehlo.broadcast", "operand", "broadcast", broadcast_sizes="i64s")
_row("stablehlo.broadcast_in_dim", "operand", broadcast_dimensions="i64s")
_row(
    "stablehlo.dynamic_broadcast_in_dim",
    "operand output_dimensions",
    None,
    ShapedByValue(),
    broadcast_dimensions="i64s",
    known_expanding_dimensions="?i64s",
    known_nonexpanding_dimensions="?i64s",
)
_row(
    "stablehlo.transpose",
    "operand",
    "permuted",
    Permutes("permutation"),
    permutation="i64s",
)
_row("stablehlo.reverse", "operand", "same", dimensions="i64s")
_row("stablehlo.concatenate", "*inputs", "concatenated", dimension="i64")
_row(
    "stablehlo.pad",
    "operand padding_value",
    "padded",
    edge_padding_low="i64s",
    edge_padding_high="i64s",
    interior_padding="i64s",
)
_row(
    "stablehlo.dynamic_pad",
    "operand padding_value edge_padding_low edge_padding_high interior_padding",
    None,
    ShapedByValue(),
)
_row(
    "stablehlo.slice",
    "operand",
    "sliced",
    start_indices="i64s",
    limit_indices="i64s",
    strides="i64s",
)
_row(
    "stablehlo.real_dynamic_slice",
    "operand start_indices limit_indices strides",
    None,
    ShapedByValue(),
)
_row("stablehlo.dynamic_slice", "operand *start_indices", "slice_sizes", slice_sizes="i64s")
_row("stablehlo.dynamic_update_slice", "operand update *start_indices", "first")
_row("stablehlo.get_dimension_size", "operand", "int32_scalar", ShapedByValue(), dimension="i64")
_row("stablehlo.set_dimension_size", "operand size", None, ShapedByValue(), dimension="i64")

# ---- indexing
_row(
    "stablehlo.gather",
    "operand start_indices",
    "gathered",
    dimension_numbers="gather_dims",
    slice_sizes="i64s",
    indices_are_sorted="?bool",
)
_row(
    "stablehlo.dynamic_gather",
    "operand start_indices slice_sizes",
    None,
    ShapedByValue(),
    dimension_numbers="gather_dims",
    indices_are_sorted="?bool",
)
_row(
    "stablehlo.scatter",
    "*inputs scatter_indices *updates",
    "scattered",
    _ELEMENTS,
    OnlyWhole(),
    regions=1,
    loose=True,
    scatter_dimension_numbers="scatter_dims",
    indices_are_sorted="?bool",
    unique_indices="?bool",
)
_row("stablehlo.torch_index_select", "operand index", dim="i64", batch_dims="i64")

# ---- contractions and linear algebra
_PRODUCT: Final = Contraction()
_VECTORS: Final = OnlyWhole(vectors=True)
_row(
    "stablehlo.dot_general",
    "lhs rhs",
    "dotted",
    _PRODUCT,
    _VECTORS,
    loose=True,
    dot_dimension_numbers="dot_dims",
    precision_config="?precisions",
    algorithm="?dot_algorithm",
)
_row(
    "stablehlo.dot",
    "lhs rhs",
    "dot",
    _PRODUCT,
    _VECTORS,
    loose=True,
    precision_config="?precisions",
)
_row(
    "stablehlo.convolution",
    "lhs rhs",
    "conv",
    _PRODUCT,
    loose=True,
    window_strides="?i64s",
    padding="?pairs",
    lhs_dilation="?i64s",
    rhs_dilation="?i64s",
    window_reversal="?bools",
    dimension_numbers="conv_dims",
    feature_group_count="i64",
    batch_group_count="i64",
    precision_config="?precisions",
)
_row(
    "stablehlo.dynamic_conv",
    "lhs rhs padding",
    None,
    _PRODUCT,
    ShapedByValue(),
    window_strides="?i64s",
    lhs_dilation="?i64s",
    rhs_dilation="?i64s",
    window_reversal="?bools",
    dimension_numbers="conv_dims",
    feature_group_count="i64",
    batch_group_count="i64",
    precision_config="?precisions",
)
_row("stablehlo.einsum", "lhs rhs", None, _PRODUCT, OnlyWhole(), einsum_config="str")
_row("stablehlo.unary_einsum", "operand", einsum_config="str")
_row("stablehlo.cholesky", "a", "same", OnlyWhole(), lower="?bool")
_row(
    "stablehlo.triangular_solve",
    "a b",
    "second",
    OnlyWhole(),
    left_side="bool",
    lower="bool",
    unit_diagonal="bool",
    transpose_a="transpose",
)
_row("stablehlo.fft", "operand", "fft", OnlyWhole(), fft_type="fft_type", fft_length="i64s")

# ---- windows, reductions, normalisation
_row(
    "stablehlo.reduce",
    "*inputs *init_values",
    "reduced",
    _ELEMENTS,
    regions=1,
    loose=True,
    dimensions="i64s",
)
_row(
    "stablehlo.reduce_window",
    "*inputs *init_values",
    "windowed",
    _ELEMENTS,
    OnlyWhole(inside="stablehlo.sort"),
    regions=1,
    loose=True,
    window_dimensions="i64s",
    window_strides="?i64s",
    base_dilations="?i64s",
    window_dilations="?i64s",
    padding="?pairs",
)
_row(
    "stablehlo.select_and_scatter",
    "operand source init_value",
    "first",
    _ELEMENTS,
    OnlyWhole(),
    regions=2,
    loose=True,
    window_dimensions="?i64s",
    window_strides="?i64s",
    padding="?pairs",
)
_row("stablehlo.sort", "*inputs", "each", _ELEMENTS, regions=1, dimension="?i64", is_stable="?bool")
_row(
    "stablehlo.batch_norm_inference",
    "operand scale offset mean variance",
    "first",
    epsilon="f32",
    feature_index="i64",
)
_row(
    "stablehlo.batch_norm_training",
    "operand scale offset",
    "batch_norm",
    epsilon="f32",
    feature_index="i64",
)
_row(
    "stablehlo.batch_norm_grad",
    "operand scale mean variance grad_output",
    "batch_norm",
    epsilon="f32",
    feature_index="i64",
)

# ---- control flow, tuples, tokens, calls out
_row("stablehlo.if", "pred", "branches", regions=2)
_row("stablehlo.case", "index", "branches", OnlyWhole(), regions=-1)
_row("stablehlo.while", "*operand", "each", OnlyWhole(), regions=2)
_row("stablehlo.return", "*results_")
_row("stablehlo.tuple", "*val", "tuple_of")
_row("stablehlo.get_tuple_element", "operand", "element", index="i32")
_row("stablehlo.optimization_barrier", "*operand", "each")
_row("stablehlo.create_token", "", "token")
_row("stablehlo.after_all", "*inputs", "token")
_row(
    "stablehlo.custom_call",
    "*inputs",
    call_target_name="str",
    has_side_effect="?bool",
    backend_config="?any",
    api_version="?i32",
    called_computations="?symbols",
    operand_layouts="?layouts",
    result_layouts="?layouts",
    output_operand_aliases="?aliases",
    result_tilings="?any",
    pure=False,
)
_row(
    "stablehlo.composite",
    "*inputs",
    regions=-1,
    composite_attributes="?any",
    decomposition="symbol",
    version="?i32",
    name="str",
)
_row("stablehlo.infeed", "token", None, Waits(), infeed_config="?str", layout="?any", pure=False)
_row("stablehlo.outfeed", "*inputs token", "token", Waits(), outfeed_config="?str", pure=False)
for _name, _infer in (("send", "token"), ("recv", None)):
    _row(
        f"stablehlo.{_name}",
        "*inputs token" if _name == "send" else "token",
        _infer,
        Waits(),
        channel_handle="channel_handle",
        is_host_transfer="?bool",
        source_target_pairs="?pairs",
        pure=False,
    )
_row("stablehlo.async_start", "*operands_", regions=1, pure=False)
_row("stablehlo.async_done", "operand", pure=False)

# ---- collectives
_row("stablehlo.partition_id", "", "uint32_scalar", AsksPlace())
_row("stablehlo.replica_id", "", "uint32_scalar", AsksPlace())
_row("stablehlo.cross-replica-sum", "operand", "same", Collective(), replica_groups="pairs")
_row(
    "stablehlo.all_gather",
    "*operands_",
    None,
    Collective(),
    all_gather_dim="i64",
    replica_groups="replica_groups",
    channel_handle="?channel_handle",
    use_global_device_ids="?flag",
)
_row(
    "stablehlo.all_reduce",
    "*operands_",
    "each",
    Collective(),
    regions=1,
    loose=True,
    replica_groups="replica_groups",
    channel_handle="?channel_handle",
    use_global_device_ids="?flag",
)
_row(
    "stablehlo.reduce_scatter",
    "operand",
    None,
    Collective(),
    regions=1,
    scatter_dimension="i64",
    replica_groups="replica_groups",
    channel_handle="?channel_handle",
    use_global_device_ids="?flag",
)
_row(
    "stablehlo.all_to_all",
    "*operands_",
    "all_to_all",
    Collective(),
    split_dimension="i64",
    concat_dimension="i64",
    split_count="i64",
    replica_groups="replica_groups",
    channel_handle="?channel_handle",
)
_row(
    "stablehlo.collective_broadcast",
    "*operands_",
    "each",
    Collective(),
    replica_groups="replica_groups",
    channel_handle="?channel_handle",
    has_dynamic_root="?flag",
)
_row(
    "stablehlo.collective_reduce",
    "*operands_",
    "each",
    Collective(),
    regions=1,
    replica_groups="replica_groups",
    channel_handle="?channel_handle",
    use_global_device_ids="?flag",
    has_dynamic_root="?flag",
)
_row(
    "stablehlo.collective_permute",
    "operand",
    "same",
    Collective("source_target_pairs"),
    source_target_pairs="pairs",
    channel_handle="?channel_handle",
)

# ---- CHLO
_rows(
    "chlo",
    """_asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv
    erfc lgamma sinh square tan""",
    "operand",
    "same",
    _POINTWISE,
)
_rows("chlo", "is_inf is_neg_inf is_pos_inf", "operand", "predicate", _POINTWISE)
_row("chlo.mulhi", "lhs rhs", "same", _POINTWISE)
_row("chlo.next_after", "x y", "same", _POINTWISE)
_row("chlo.polygamma", "n x", "same", _POINTWISE)
_row("chlo.zeta", "x q", "same", _POINTWISE)
_rows(
    "chlo",
    """broadcast_add broadcast_and broadcast_atan2 broadcast_divide broadcast_maximum
    broadcast_minimum broadcast_multiply broadcast_next_after broadcast_or broadcast_polygamma
    broadcast_power broadcast_remainder broadcast_shift_left broadcast_shift_right_arithmetic
    broadcast_shift_right_logical broadcast_subtract broadcast_xor broadcast_zeta""",
    "lhs rhs",
    "broadcasted",
    broadcast_dimensions="?i64s",
)
_row(
    "chlo.broadcast_compare",
    "lhs rhs",
    "broadcasted_predicate",
    broadcast_dimensions="?i64s",
    comparison_direction="chlo_comparison_direction",
    compare_type="?chlo_comparison_type",
)
_row("chlo.broadcast_complex", "lhs rhs", "broadcasted_complex", broadcast_dimensions="?i64s")
_row("chlo.broadcast_select", "pred on_true on_false", "broadcasted_select")
_row("chlo.constant", "", "same", value="elements")
_row("chlo.constant_like", "operand", value="any")
_row("chlo.top_k", "operand", "top_k", k="i64", is_stable="?bool")
_row(
    "chlo.ragged_dot",
    "lhs rhs group_sizes",
    None,
    _PRODUCT,
    OnlyWhole(vectorised=False),
    ragged_dot_dimension_numbers="ragged_dot_dims",
    precision_config="?chlo_precisions",
)
_row(
    "chlo.scan",
    "*inputs *inits",
    regions=1,
    dimension="i64",
    scan_dim_size="?i64",
    is_reverse="?bool",
    is_associative="?bool",
    operandSegmentSizes="i32s",
    resultSegmentSizes="i32s",
)

# ---- Shardy (the sharding annotations of JAX)
_row("sdy.sharding_constraint", "input", "same", sharding="any")
_row("sdy.reshard", "input", "same", sharding="any")
_row("sdy.propagation_barrier", "input", "same", allowed_direction="any")
_row("sdy.sharding_group", "input", group_id="any", pure=False)
_row(
    "sdy.manual_computation",
    "*tensors",
    regions=1,
    in_shardings="any",
    out_shardings="any",
    manual_axes="any",
)

_row(
    "sdy.named_computation",
    "*operands_",
    regions=1,
    name="str",
    in_shardings="?any",
    out_shardings="?any",
)
_row("sdy.constant", "", "same", value="elements")
_row("sdy.data_flow_edge", "input", sharding="?any")
_row("sdy.func_data_flow_edge", "operand")
_row("sdy.collective_permute", "tensor", out_sharding="any")
for _op, _axes in (
    ("all_gather", "gathering_axes"),
    ("all_slice", "slicing_axes"),
    ("all_to_all", "params"),
    ("replicated_to_unreduced", "axes"),
    ("sharded_to_unreduced", "axes"),
):
    _add(Row(f"sdy.{_op}", ("tensor",), {_axes: "any", "out_sharding": "any"}))
for _op, _axes in (("all_reduce", "reduction_axes"), ("reduce_scatter", "reduce_scatter_axes")):
    _attrs = {_axes: "any", "out_sharding": "any", "reduction_op": "?any"}
    _add(Row(f"sdy.{_op}", ("tensor",), _attrs))

# ---- StableHLO's reference interpreter (its test programs)
_row(
    "interpreter.run_parallel",
    "*inputs",
    infeed="?any",
    programs="any",
    pure=False,
)
_row("interpreter.print", "operand", pure=False)
_row("interpreter.probe", "operand", "same", probe_id="str", pure=False)

# No call is made of a terminator: its operands are the body of the function that the region is.
# Constants are ``Constant`` nodes; a call of a constant row holds what a Constant cannot, further
# attributes.
CONSTANT: Final = "stablehlo.constant"
CUSTOM_CALL: Final = "stablehlo.custom_call"
RETURN: Final = "stablehlo.return"
FUNC_RETURN: Final = "func.return"
# Extension points: attributes that the row does not name are kept, with or without a prefix
# (JAX's shape assertions carry an "error_message").
OPEN: Final = frozenset({CUSTOM_CALL})
# How XLA had laid a value out in memory, which its importer of HLO notes at operations (torch_xla's
# programs have them). Of a tensor of StableHLO they say nothing; they are kept.
NOTES: Final = frozenset({"result_layout", "xla_shape"})
RETURNS: Final[dict[str, str]] = dict.fromkeys(
    ("sdy.manual_computation", "sdy.named_computation"), "sdy.return"
)
TERMINATORS: Final = frozenset({RETURN, FUNC_RETURN, *RETURNS.values()})


def rows_with(kind: type[Trait]) -> frozenset[str]:
    """MLIR names of the rows that have a trait of this kind."""
    return frozenset(
        row.mlir_name for row in TABLE.values() if any(isinstance(t, kind) for t in row.traits)
    )


BY_MLIR_NAME: dict[str, Row] = {row.mlir_name: row for row in TABLE.values()}
