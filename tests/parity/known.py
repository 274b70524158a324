"""Every difference from TVM 0.25 on the corpus, with its reason.

Each row names the programs it speaks of; a test holds that every name of a row still differs, so
that no row hides a difference it was not written for.
"""

from __future__ import annotations

import re

# (verdict, pattern of program names, reason)
TABLE: tuple[tuple[str, str, str], ...] = (
    (
        "only TVM refuses",
        r"op_(ranked|unknown)/eye_like\.[12]$|op_ranked/(de)?quantize\.1$",
        "TVM reads a shape that is unknown here (`Back optional access`)",
    ),
    (
        "only TVM refuses",
        r"op_ranked/nn\.attention\.[123]$|op_symbolic/nn\.pixel_shuffle\.1$",
        "TVM's process ends on this program",
    ),
    (
        "only TVM refuses",
        r"op_unknown/(stack\.1|permute_dims\.[23]|outer\.1|meshgrid\.1|take\.[26]|nn\.pad\.[123]|"
        r"nn\.pixel_shuffle\.1|nn\.batch_norm\.[12]|nn\.layer_norm\.[12]|nn\.group_norm\.1|"
        r"nn\.instance_norm\.1|nn\.rms_norm\.1|nn\.attention\.[123]|(de)?quantize\.1|quantize\.2|"
        r"tensor_to_shape\.1)$",
        "TVM asks for a known rank; here the rank may be unknown",
    ),
    (
        "only TVM refuses",
        r"op_(ranked|unknown)/(ccl\.scatter_from_worker0|dist\.redistribute_replica_to_shard)\.1$|"
        r"op_(ranked|symbolic)/dynamic_strided_slice\.1$",
        "TVM asks for a known shape or count; here these may be unknown",
    ),
    (
        "only TVM refuses",
        r"op_\w+/(masked_fill|reverse_sequence)\.1$",
        "`R` of TVM 0.25 has no such name",
    ),
    (
        "only TVM refuses",
        r"op_\w+/vision\.all_class_non_max_suppression\.1$",
        "TVM 0.25 takes the limits as tensors only; here as PrimValues, too",
    ),
    (
        "only TVM refuses",
        r"op_symbolic/collapse_sum_to\.1$",
        "TVM asks for a MatchCast where a symbolic dimension meets a number; here not",
    ),
    (
        "only TVM refuses",
        r"distributed/reshape_6$",
        "a size of -1 is worked out for distributed tensors, too",
    ),
    (
        "only TVM refuses",
        r"op_\w+/hint_on_device\.1$|module/to_vdevice$",
        "TVM 0.25 takes a Device here, 0.20 a VDevice",
    ),
    (
        "only TVM refuses",
        r"op_(symbolic|ranked|unknown)/call_inplace_packed\.[12]$",
        "the result's static shape is not that of an argument of unknown shape; TVM refuses",
    ),
    (
        "only TVM refuses",
        r"module/call_tir(_inplace)?$",
        "`T` of TVM 0.25 refuses T.block; its name there is T.sblock, and here both are read",
    ),
    ("only TVM refuses", r"symbolic/prim_param$", "a parameter and a symbol may share a name here"),
    (
        "only TVM refuses",
        r"symbolic/conv$",
        "`w` names a symbol and a variable; TVM takes the program with another name",
    ),
    ("only TVM refuses", r"structure/docstring$", "docstrings are accepted here"),
    (
        "only relax2xla refuses",
        r"op_static/squeeze\.4$",
        "only an axis of size 1 is squeezed, as in TVM 0.20 and numpy; TVM 0.25 lets others stay",
    ),
    (
        "only relax2xla refuses",
        r"wrong/(return_annotation|return_not_last|default_of_parameter|unknown_dtype|"
        r"condition_not_bool)$",
        "TVM takes a program that cannot be right; here it is a DiagnosticError",
    ),
    (
        "only relax2xla refuses",
        r"symbolic/match_cast_erased_result$",
        "the declared rank of the result is not that of the value; TVM does not compare them",
    ),
    (
        "only relax2xla refuses",
        r"op_ranked/strided_slice\.5$",
        "the axis is out of range of a known rank; TVM looks only where the shape is known",
    ),
    (
        "other text",
        r"closures/impure$|module/(assert_op|private_pure_false)$|types/tuple_forms$",
        "a variable that holds an empty tuple keeps its name; TVM writes R.tuple() instead, which "
        "parses to another program",
    ),
    (
        "other text",
        r"module/global_infos$|types/vdevice_dims$",
        "TVM writes all attributes of its target, which depend on the machine; here its kind",
    ),
    (
        "other text",
        r"module/class_name_reference$",
        "the result of a function defined further down is inferred here; TVM says R.Object",
    ),
    (
        "other text",
        r"branches/expression_condition$|tuples/nested$",
        "names of the variables that normalisation makes up",
    ),
    (
        "other text",
        r"constants/prim_values$",
        "the dtype of a PrimValue is written, so that the text gives it back; TVM drops it",
    ),
    (
        "other text",
        r"symbolic/concat_adds$|op_symbolic/(split\.2|strided_slice\.4)$",
        "another form of an equal dimension (`n * 2 + m * 2` for `n + m + n + m`)",
    ),
    (
        "other text",
        r"symbolic/split_symbolic$|op_symbolic/split\.3$",
        "sizes that hold for less than the number of parts, too: 1 in three is 1, 0, 0, and TVM's "
        "1, 1, -1",
    ),
    (
        "other text",
        r"symbolic/shape_value$",
        "the dimensions of a shape that a variable holds are looked up; TVM keeps the variable",
    ),
    (
        "other text",
        r"op_ranked/index_tensor\.[12]$|op_unknown/shape_to_tensor\.1$",
        "the rank of the result is known here; TVM leaves it out, or writes a count of -1",
    ),
    (
        "other text",
        r"distributed/symbolic_reshape$",
        "(n, m) reshaped to (8, 2) is cut along no axis, since nothing tells that m is 2",
    ),
    (
        "other text",
        r"op_ranked/matmul\.4$",
        "a result of rank 0 has the known shape ()",
    ),
    (
        "other text",
        r"op_ranked/(cumsum\.2|einsum\.2)$",
        "the rank of the result: TVM gives the operand's where axis=None flattens, and where "
        "`ij,ij->` gives a scalar",
    ),
    (
        "other text",
        r"op_(static|symbolic)/image\.grid_sample\.1$",
        "0.25 takes the size from axes 1 and 2 of the grid though its kernel reads (n, 2, h, w); "
        "0.27 infers what is inferred here",
    ),
    (
        "other text",
        r"op_symbolic/(ccl\.scatter_from_worker0|dist\.redistribute_replica_to_shard)\.1$",
        "TVM writes T.Div, which its own parser refuses, for a division of sizes",
    ),
    (
        "other text",
        r"op_static/arange\.3$",
        "numbers are T.float64 here, since T.float32 rounds: arange(0, 0.3, 0.1) would have 4 "
        "elements instead of 3",
    ),
    (
        "other text",
        r"op_\w+/nn\.relu6\.1$",
        "relu6 is an operator of its own here; TVM 0.25 writes a clip",
    ),
    (
        "other text",
        r"op_\w+/nn\.avg_pool3d\.1$",
        "the default of count_include_pad: False in the docs of 0.20, True in 0.25",
    ),
    (
        "other text",
        r"op_\w+/(image\.affine_grid|vision\.multibox_transform_loc)\.1$",
        "an attribute that 0.25 lacks and 0.27 has: align_corners, apply_softmax",
    ),
    (
        "other text",
        r"op_\w+/grad\.take_backward\.1$",
        "TVM writes an attribute `mode` that its function does not take",
    ),
)
# (program and analysis) or program of ``analyses.verdicts``, and the reason.
KNOWN_ANALYSES: dict[str, str] = {
    "dataflow/match_cast udchain": "TVM leaves out what a match-cast uses",
    "analysis/impure_inside without_unused": (
        "to define an impure function has no effect, so one that nothing calls goes; TVM keeps it"
    ),
}
KNOWN_WELL_FORMED: dict[str, str] = {
    "branches_share_a_variable": (
        "a variable is bound once in a function; TVM forgets those of a branch after it"
    ),
}
KNOWN_PAIRS: tuple[str, ...] = ()
# A choice between equals is that one here, so its operand is proved equal to it.
KNOWN_SIMPLIFIED = ("if_then_else(n > m, n, n)",)
_CHOICE = KNOWN_SIMPLIFIED[0]
_EQUAL_TO_N = (
    "n", "2 * n - n", "floordiv(n, 2) * 2 + floormod(n, 2)", "floordiv(n * 2, 2)", "min(n, n)",
)  # fmt: skip
_AFTER = ("n * 1", "1 * n", "n * 3 - n * 2", "floordiv(n * m, m)")
KNOWN_PROOFS = (
    ("(n + 1) * (n - 1)", "n * n - 1"),
    ("(n + m) * (n + m)", "n * n + 2 * n * m + m * m"),
    *((term, _CHOICE) for term in _EQUAL_TO_N),
    *((_CHOICE, term) for term in _AFTER),
)


def reason(name: str, verdict: str) -> str:
    """Why a program differs; empty if no difference is expected."""
    found = (why for kind, names, why in TABLE if kind == verdict and re.match(names, name))
    return next(found, "")


def reasons() -> list[tuple[str, str]]:
    """Each verdict and reason, in the order of the table."""
    return [(kind, why) for kind, _, why in TABLE]
