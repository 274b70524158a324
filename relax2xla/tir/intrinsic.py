"""Builtins of loop-level functions that are calls: ``T.exp(x)``, ``T.call_extern(...)``.

One table: the name under ``T``, and where the result's dtype comes from.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Rule: TypeAlias = Literal["first", "given", "last"] | str
"""Whence the dtype of a result: that of the first operand, the first or last argument, a name."""

_FIRST = """
acos acosh asin asinh atan atan2 atanh copysign cos cosh erf exp exp10 exp2 fmod hypot ldexp log
log10 log1p log2 nextafter popcount rsqrt sigmoid sin sinh sqrt tan tanh tvm_thread_invariant
"""
_GIVEN = """
call_extern call_pure_extern call_llvm_intrin call_llvm_pure_intrin ptx_mma ptx_mma_sp
ptx_ldmatrix ptx_cp_async ptx_cp_async_bulk mma_store mma_fill vectorlow vectorhigh vectorcombine
get_active_lane_mask
"""
_NAMED: Final[dict[str, str]] = {
    "handle": """
        tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array start_profile_intrinsic
        end_profile_intrinsic tvm_tuple address_of lookup_param tvm_thread_allreduce
        tvm_access_ptr tvm_throw_last_error tvm_load_matrix_sync tvm_mma_sync tvm_bmma_sync
        tvm_fill_fragment tvm_store_matrix_sync make_filled_simdgroup_matrix simdgroup_load
        simdgroup_store simdgroup_multiply_accumulate TVMBackendAllocWorkspace anylist_getitem
    """,
    "int32": """
        tvm_check_return undef tvm_struct_set tvm_storage_sync clz q_multiply_shift
        q_multiply_shift_per_axis TVMBackendFreeWorkspace vscale dp4a call_packed call_cpacked
        call_packed_lowered call_cpacked_lowered anylist_resetitem anylist_setitem_call_packed
        anylist_setitem_call_cpacked
    """,
    "bool": "assume isnullptr ignore_loop_partition",
    "uint32": "tvm_warp_activemask",
    "void": """
        ptx_commit_group ptx_wait_group ptx_cp_async_barrier ptx_init_barrier_thread_count
        ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier create_barriers
    """,
}
# The second operand is the value that they hand on.
_SECOND: Final = ("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down")

# Functions of elements take one, or these two.
_OF_TWO: Final = ("atan2", "copysign", "fmod", "hypot", "ldexp", "nextafter")
ARITY: Final[dict[str, int]] = {
    **dict.fromkeys((*_FIRST.split(), "clz", "assume", "isnullptr"), 1),
    **dict.fromkeys(_OF_TWO, 2),
}
"""How many operands a builtin takes, where it is a number that does not vary."""

RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(_FIRST.split(), "first"),
    **dict.fromkeys(_GIVEN.split(), "given"),
    **{name: dtype for dtype, names in _NAMED.items() for name in names.split()},
    **dict.fromkeys(_SECOND, "second"),
    "tvm_struct_get": "last",
}
# TVM's operators whose names are not those under T.
_LONG: Final = {
    f"call_{kind}": f"tir.tvm_call_{kind}"
    for kind in ("packed", "cpacked", "packed_lowered", "cpacked_lowered")
}
# Builtins that are calls, too, and have functions of their own.
OTHER_BUILTINS: Final = frozenset(("ret", "likely", "if_then_else", "reinterpret"))
_SHORT: Final = {op: name for name, op in _LONG.items()}
_DTYPE_FIRST: Final = {*_GIVEN.split(), "reinterpret"}


def op_of(name: str) -> str:
    """TVM's operator of the builtin ``T.name``."""
    return _LONG.get(name, f"tir.{name}")


def name_of(op: str) -> str:
    """How ``T`` calls an operator."""
    return _SHORT.get(op, op.removeprefix("tir."))


def dtype_place(op: str) -> Literal["first", "last", ""]:
    """Where a text says the result's dtype: as the first or the last argument, or nowhere."""
    name = name_of(op)
    if name in _DTYPE_FIRST:
        return "first"
    return "last" if name == "tvm_struct_get" else ""
