"""What ``tvm.tir.schedule.testing`` has that needs no schedule: comparisons of kernels."""

from __future__ import annotations

from relax2xla.ir import IRModule, assert_structural_equal
from relax2xla.tir import PrimFunc

_NAME = "global_symbol"


def assert_structural_equal_ignore_global_symbol(
    func1: PrimFunc | IRModule, func2: PrimFunc | IRModule, *args: bool, **kwargs: bool
) -> None:
    """Compare as ``assert_structural_equal`` does; the names of the functions may differ.

    Options are those of ``assert_structural_equal``. Raises StructuralEqualError where there is
    another difference.
    """
    first, second = (
        f.with_attr(_NAME, "main") if isinstance(f, PrimFunc) and _NAME in f.attrs else f
        for f in (func1, func2)
    )
    assert_structural_equal(first, second, *args, **kwargs)
