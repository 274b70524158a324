"""Facts about functions and modules, under TVM's names."""

from __future__ import annotations

from relax2xla.analysis.layouts import suggest_layout_transforms as suggest_layout_transforms
from relax2xla.analysis.loops import has_reshape_pattern as has_reshape_pattern
from relax2xla.analysis.memory import estimate_memory_usage as estimate_memory_usage
from relax2xla.analysis.struct_infos import BaseCheckResult as BaseCheckResult
from relax2xla.analysis.struct_infos import (
    collect_non_negative_expressions as collect_non_negative_expressions,
)
from relax2xla.analysis.struct_infos import (
    definable_tir_vars_in_struct_info as definable_tir_vars_in_struct_info,
)
from relax2xla.analysis.struct_infos import defined_symbolic_vars as defined_symbolic_vars
from relax2xla.analysis.struct_infos import (
    derive_call_ret_struct_info as derive_call_ret_struct_info,
)
from relax2xla.analysis.struct_infos import erase_to_well_defined as erase_to_well_defined
from relax2xla.analysis.struct_infos import free_symbolic_vars as free_symbolic_vars
from relax2xla.analysis.struct_infos import get_static_type as get_static_type
from relax2xla.analysis.struct_infos import struct_info_base_check as struct_info_base_check
from relax2xla.analysis.struct_infos import struct_info_lca as struct_info_lca
from relax2xla.analysis.struct_infos import tir_vars_in_struct_info as tir_vars_in_struct_info
from relax2xla.analysis.unused import remove_all_unused as remove_all_unused
from relax2xla.analysis.variables import all_global_vars as all_global_vars
from relax2xla.analysis.variables import all_vars as all_vars
from relax2xla.analysis.variables import bound_vars as bound_vars
from relax2xla.analysis.variables import collect_call_map as collect_call_map
from relax2xla.analysis.variables import computable_at_compile_time as computable_at_compile_time
from relax2xla.analysis.variables import contains_impure_call as contains_impure_call
from relax2xla.analysis.variables import detect_recursion as detect_recursion
from relax2xla.analysis.variables import free_vars as free_vars
from relax2xla.analysis.variables import get_var2val as get_var2val
from relax2xla.analysis.variables import name_to_binding as name_to_binding
from relax2xla.analysis.variables import post_order_visit as post_order_visit
from relax2xla.analysis.variables import udchain as udchain
from relax2xla.analysis.variables import used_vars as used_vars
from relax2xla.ir.check import check_well_formed as check_well_formed
from relax2xla.ir.check import well_formed as well_formed
