"""Many operator calls in one compiled program, compared one by one with someone else's truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from relax2xla.dtypes import dtype_name
from relax2xla.ir import Expr, Function, StructInfo, TensorStructInfo, Tuple, TupleStructInfo, Var
from relax2xla.ir.struct_info import show
from relax2xla.testing import evaluate

# Relative tolerance by dtype: some units in the last place of what XLA promises.
RTOL = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-12, "complex64": 4e-6}


@dataclass
class Case:
    """``make(*variables)`` on ``inputs`` must give ``want`` (an array or a tuple of arrays).

    open: sizes depend on data, so that inference knows but the rank.
    """

    label: str
    make: Callable[..., Expr]
    inputs: Sequence[Any]
    want: Any
    rtol: float | None = None
    atol: float = 0.0
    open: bool = False


def calling(make: Callable[..., Expr], *options: Any, **attrs: Any) -> Callable[..., Expr]:
    """``make`` with options after its operands; for cases made in a loop."""
    return lambda *operands: make(*operands, *options, **attrs)


def tensor(shape: Any, dtype: str = "float32", name: str = "x") -> Var:
    """A variable of a shape."""
    return Var(name, TensorStructInfo(shape, dtype))


def var_like(array: Any, name: str = "x") -> Var:
    """A variable that takes ``array``."""
    array = np.asarray(array)
    return Var(name, TensorStructInfo(array.shape, dtype_name(array.dtype)))


def describes(info: StructInfo, value: Any, open_sizes: bool = False) -> bool:
    """Whether ``info`` says exactly what ``value`` is; with ``open_sizes`` only its rank."""
    if isinstance(info, TupleStructInfo):
        fields = zip(info.fields, value, strict=True)
        return isinstance(value, tuple) and all(describes(i, v, open_sizes) for i, v in fields)
    assert isinstance(info, TensorStructInfo), show(info)
    shaped = info.ndim == value.ndim if open_sizes else info.dims == value.shape
    return shaped and info.dtype == dtype_name(value.dtype)


def run(cases: Sequence[Case]) -> list[Any]:
    """The results of all cases, from one program."""
    params: list[Var] = []
    results: list[Expr] = []
    for n, case in enumerate(cases):
        own = [var_like(a, f"x{n}_{i}") for i, a in enumerate(case.inputs)]
        params += own
        results.append(case.make(*own))
    inputs = [np.asarray(a) for c in cases for a in c.inputs]
    values = evaluate(Tuple(results), dict(zip(params, inputs, strict=True)))
    for case, expr, value in zip(cases, results, values, strict=True):
        assert describes(expr.struct_info, value, case.open), (
            f"{case.label}: inferred {show(expr.struct_info)}, "
            f"got {getattr(value, 'dtype', '')} {getattr(value, 'shape', value)}"
        )
    return values


def check(cases: Sequence[Case]) -> None:
    """Run all cases and compare dtypes, shapes and values; all differences are reported at once."""
    wrong = []
    for case, got in zip(cases, run(cases), strict=True):
        want = case.want if isinstance(case.want, tuple) else (case.want,)
        got = got if isinstance(got, tuple) else (got,)
        if len(want) != len(got):
            wrong.append(f"{case.label}: {len(got)} results, expected {len(want)}")
            continue
        for w, g in zip(want, got, strict=True):
            wrong += _difference(case, np.asarray(w), g)
    assert not wrong, "\n".join(wrong)


def _difference(case: Case, want: Any, got: Any) -> list[str]:
    if want.shape != got.shape:
        return [f"{case.label}: shape {got.shape}, expected {want.shape}"]
    if want.dtype != got.dtype:
        return [f"{case.label}: dtype {got.dtype}, expected {want.dtype}"]
    exact = got.dtype.kind in "iub" and got.dtype != ml_dtypes.bfloat16
    rtol = case.rtol if case.rtol is not None else RTOL.get(got.dtype.name, 0.0)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    try:
        if exact:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(
                got.astype(wide), want.astype(wide), rtol=rtol, atol=case.atol
            )
    except AssertionError as e:
        return [f"{case.label}: {' '.join(str(e).split())}\n  in {case.inputs}"]
    return []


__all__ = ["Case", "Function", "calling", "check", "describes", "run", "tensor", "var_like"]
