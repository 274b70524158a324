"""What ``tvm.tir`` has beside expressions and functions of scalars: builds, folds, T script."""

from __future__ import annotations

from relax2xla.te import comm_reducer as comm_reducer
from relax2xla.te import sum as sum
from relax2xla.tvm.executables import build as build
