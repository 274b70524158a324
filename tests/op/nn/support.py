"""Many cases in one compiled program: XLA's start costs more than the cases themselves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from relax2xla.ir import Expr, TensorStructInfo, Tuple, TupleStructInfo, Var
from relax2xla.testing import evaluate


def to_numpy(value: Any) -> Any:
    """A torch tensor (or an array) as numpy; bfloat16 keeps its dtype."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach()
    if value.dtype == torch.bfloat16:
        return value.float().numpy().astype(ml_dtypes.bfloat16)
    return value.numpy()


class Batch:
    """Expressions with expected values; :meth:`check` runs them all at once."""

    def __init__(self) -> None:
        self.inputs: dict[Var, Any] = {}
        self.cases: list[tuple[str, Expr, Any, float]] = []

    def var(self, value: Any) -> Var:
        """A variable of the struct info of an array or torch tensor, which will be its value."""
        array = np.ascontiguousarray(to_numpy(value)).reshape(np.shape(to_numpy(value)))
        var = Var(f"x{len(self.inputs)}", TensorStructInfo(array.shape, str(array.dtype)))
        self.inputs[var] = array
        return var

    def add(self, name: str, expr: Expr, want: Any, tol: float = 1e-5) -> None:
        """``expr`` must be ``want`` (arrays, or a tuple of them) up to ``tol``."""
        self.cases.append((name, expr, want, tol))

    def check(self) -> None:
        """Run; fail with the names of all cases that differ."""
        got = evaluate(Tuple([expr for _, expr, _, _ in self.cases]), self.inputs)
        problems: list[str] = []
        for (name, expr, want, tol), value in zip(self.cases, got, strict=True):
            wants = want if isinstance(want, tuple) else (want,)
            values = value if isinstance(value, tuple) else (value,)
            info = expr.struct_info
            infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
            for a, b, i in zip(values, map(to_numpy, wants), infos, strict=True):
                if problem := difference(a, b, i, tol):
                    problems.append(f"{name}: {problem}")
        assert not problems, "\n".join(problems)


def difference(got: Any, want: Any, info: Any, tol: float) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    if info.dims != got.shape or info.dtype != got.dtype:
        return f"{got.dtype}{got.shape}, but inferred {info}"
    if got.dtype.kind in "iub":
        return "" if np.array_equal(got, want) else f"{got} != {want}"
    a, b = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (got, want))
    if np.allclose(a, b, rtol=tol, atol=tol, equal_nan=True):
        return ""
    return f"differs by {np.nanmax(np.abs(a - b)):.3g} of {np.nanmax(np.abs(b)):.3g}"
