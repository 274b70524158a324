"""Functions that TVM's LegalizeOps calls in place of operators, by their names: ``relax.run.*``.

They take numpy's arrays and those of the machine; what they give is what the operators give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.runtime.registry import register_func
from relax2xla.vm.host import operators


def _unique(x: Any, *options: Any) -> Any:
    return operators.unique(np.asarray(x), *options)


def _nonzero(x: Any) -> Any:
    return operators.nonzero(np.asarray(x))


def _shape_to_tensor(shape: Sequence[int]) -> Any:
    return np.array([int(d) for d in shape], np.int64)


def _print(format: str, *values: Any) -> Any:
    return operators.print_(*values, format=format)


def _assert(condition: Any, format: str, *values: Any) -> Any:
    return operators.assert_op(condition, *values, format=format)


for _name, _function in {
    "unique": _unique,
    "nonzero": _nonzero,
    "shape_to_tensor": _shape_to_tensor,
    "print": _print,
    "assert_op": _assert,
}.items():
    register_func(f"relax.run.{_name}", _function, override=True)
