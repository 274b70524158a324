"""Helpers of programs that make programs, under the name of their home in TVM, `relax.utils`."""

from __future__ import annotations

from relax2xla.ir.copy import copy_with_new_vars as copy_with_new_vars
from relax2xla.ir.expr import convert_to_expr as convert_to_expr
