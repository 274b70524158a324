"""Every difference from TVM 0.25 on the corpus, with its reason."""

from __future__ import annotations

import re

# (verdict, pattern of program names, reason)
_TABLE: tuple[tuple[str, str, str], ...] = (
    (
        "only TVM refuses",
        r"op_(ranked|unknown)/",
        "TVM's inference needs a known rank or shape here (some of its checks fail inside); "
        "relax2xla infers what is knowable and checks the rest when the call runs",
    ),
    (
        "only TVM refuses",
        r"op_\w+/(masked_fill|reverse_sequence|vision\.all_class_non_max_suppression)\.",
        "TVM's parser has no such name, or infers nothing for it, though its docs list it",
    ),
    (
        "only TVM refuses",
        r"op_symbolic/(collapse_sum_to|dynamic_strided_slice|nn\.pixel_shuffle)\.",
        "TVM refuses or crashes on symbolic dimensions that it cannot compare or count",
    ),
    (
        "only TVM refuses",
        r"op_\w+/(hint_on_device|call_inplace_packed)\.|module/to_vdevice",
        "TVM 0.25 takes a Device here, 0.20 a VDevice; in-place results may differ in shape here "
        "when the argument's shape is symbolic, which is checked when the call runs",
    ),
    (
        "only TVM refuses",
        r"module/call_tir(_inplace)?$",
        "the body of a T.prim_func is kept as its text and not checked against the call",
    ),
    ("only TVM refuses", r"symbolic/prim_param$", "a parameter and a symbol may share a name here"),
    (
        "only TVM refuses",
        r"symbolic/conv$",
        "`w` names a symbol and a variable",
    ),
    ("only TVM refuses", r"structure/docstring$", "docstrings are accepted here"),
    (
        "only relax2xla refuses",
        r"wrong/(return_annotation|return_not_last|default_of_parameter|unknown_dtype|"
        r"condition_not_bool)$|symbolic/match_cast_erased_result$",
        "TVM takes a program that cannot be right; here it is a DiagnosticError",
    ),
    (
        "only relax2xla refuses",
        r"op_ranked/strided_slice\.5$",
        "the axis is out of range of a known rank; TVM looks only where the shape is known",
    ),
    (
        "other text",
        r"closures/impure|module/(assert_op|private_pure_false)",
        "a variable that holds the empty result of a call keeps its name; TVM writes R.tuple() "
        "instead, which parses to another program",
    ),
    (
        "other text",
        r"types/tuple_forms",
        "a variable whose type is the empty tuple keeps its name; TVM writes R.tuple()",
    ),
    (
        "other text",
        r"module/global_infos|types/vdevice_dims",
        "TVM writes all attributes of its target, which depend on the machine; here its kind",
    ),
    (
        "other text",
        r"module/class_name_reference",
        "the result of a function defined further down is inferred here; TVM says R.Object",
    ),
    (
        "other text",
        r"branches/expression_condition|tuples/nested",
        "numbers of the variables that normalisation makes up",
    ),
    (
        "other text",
        r"constants/prim_values",
        "the dtype of a PrimValue is written, so that the text gives it back; TVM drops it",
    ),
    (
        "other text",
        r"symbolic/concat_adds|op_symbolic/(split\.2|strided_slice\.4)",
        "another form of an equal dimension (`n * 2 + m * 2` for `n + m + n + m`); the two are "
        "proved equal",
    ),
    (
        "other text",
        r"symbolic/shape_value|annotations/",
        "the dimensions of a shape that a variable holds are looked up; TVM keeps the variable",
    ),
    (
        "other text",
        r"op_(ranked|unknown)/(cumsum|einsum|matmul|index_tensor|shape_to_tensor)\.",
        "the rank of the result: TVM's is wrong or unknown (a flattened tensor, a scalar, an "
        "unknown count written as -1)",
    ),
    (
        "other text",
        r"op_(static|symbolic)/image\.grid_sample\.",
        "the grid: 0.25 takes the size from axes 1 and 2, (n, h, w, 2), here from the last two, "
        "(n, 2, h, w)",
    ),
    (
        "other text",
        r"op_symbolic/(ccl\.scatter_from_worker0|dist\.redistribute_replica_to_shard)\.",
        "TVM writes T.Div, which no parser reads back, for a division of sizes",
    ),
    (
        "other text",
        r"op_\w+/(dist\.redistribute_replica_to_shard)\.",
        "the namespace's name: R.distributed here, as in the docs",
    ),
    (
        "other text",
        r"(op_static|symbolic)/arange",
        "an arange without a dtype keeps saying so; TVM writes the dtype it computed",
    ),
    (
        "other text",
        r"op_\w+/(flip|nn\.relu6|nn\.attention|image\.resize[23]d|image\.affine_grid|"
        r"grad\.take_backward|vision\.multibox_transform_loc|nn\.avg_pool3d|call_inplace_packed)\.",
        "attributes: one number as a list or as a number, relu6 as an operator of its own, numbers "
        "without T., an empty region of interest, attributes that other versions lack, the "
        "default of count_include_pad in 3-D (False in the docs)",
    ),
)
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
    found = (why for kind, names, why in _TABLE if kind == verdict and re.match(names, name))
    return next(found, "")


def reasons() -> list[tuple[str, str]]:
    """Each verdict and reason, in the order of the table."""
    return [(kind, why) for kind, _, why in _TABLE]
