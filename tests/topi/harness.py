"""Functions of topi beside numpy and torch: many of them in one compiled module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import relax2xla as rx
from relax2xla import tir

SYMBOLIC = 7
"""The size that is symbolic in the second run; cases without it run once."""


class Case(NamedTuple):
    """``func`` over tensors of te; what it gives of ``args`` is ``want``."""

    name: str
    func: Callable[..., Any]
    args: Sequence[Any]
    want: Any
    tolerance: float = 1e-5


def check(cases: Sequence[Case], symbolic: bool) -> None:
    """Run all cases as functions of one module; the size 7 is symbolic if asked for."""
    if symbolic:
        cases = [c for c in cases if any(SYMBOLIC in a.shape for a in c.args)]
    bb = rx.BlockBuilder()
    for c in cases:
        n = tir.Var("n", "int64") if symbolic else SYMBOLIC
        params = [
            rx.Var(
                f"p{i}",
                rx.TensorStructInfo([n if d == SYMBOLIC else d for d in a.shape], str(a.dtype)),
            )
            for i, a in enumerate(c.args)
        ]
        with bb.function(f"run_{c.name}", params):
            bb.emit_func_output(bb.emit_te(c.func, *params, primfunc_name_hint=f"tir_{c.name}"))
    vm = rx.VirtualMachine(rx.build(bb.get()))
    wrong: list[str] = []
    for c in cases:
        try:
            got = vm[f"run_{c.name}"](*c.args)
            same(c, got)
        except Exception as e:
            wrong.append(f"{c.name}: {type(e).__name__}: {e}")
    assert not wrong, "\n".join(wrong)


def same(case: Case, got: Any) -> None:
    """AssertionError where values, shapes or dtypes differ."""
    gots, wants = ((v if isinstance(v, tuple | list) else (v,)) for v in (got, case.want))
    for g, w in zip(gots, wants, strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert g.shape == w.shape, f"{g.shape} against {w.shape}"
        assert g.dtype == w.dtype, f"{g.dtype} against {w.dtype}"
        np.testing.assert_allclose(g, w, rtol=case.tolerance, atol=case.tolerance)
