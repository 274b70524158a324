"""Random integer expressions for the property tests."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import strategies as st

from relax2xla import tir

VARS = tuple(tir.Var(name) for name in "nmkh")
NAMESPACE: dict[str, object] = {v.name: v for v in VARS}
NAMESPACE["T"] = SimpleNamespace(
    min=tir.min,
    max=tir.max,
    Div=tir.truncdiv,
    truncmod=tir.truncmod,
    Select=tir.Select,
    if_then_else=tir.if_then_else,
    Cast=lambda dtype, value: tir.cast(dtype, value),
    shift_left=lambda a, b: a << b,
    bool=lambda value: tir.const(value, "bool"),
    int32=lambda value: tir.const(value, "int32"),
)

LITERALS = st.integers(-9, 9)
DIVISORS = st.sampled_from([1, 2, 3, 4, 6, 8, -2, -3])


def _extend(inner: st.SearchStrategy[tir.Dim]) -> st.SearchStrategy[tir.Dim]:
    def both(build: object) -> st.SearchStrategy[tir.Dim]:
        return st.builds(build, inner, inner)  # type: ignore[arg-type]

    # A literal on the left would read back turned round: Python asks the other operand.
    condition = st.builds(
        lambda a, b, kind: kind.make(a, b),
        inner.filter(lambda e: not isinstance(e, int | tir.IntImm)),
        inner,
        st.sampled_from([tir.LT, tir.LE, tir.GT, tir.GE]),
    )
    return st.one_of(
        both(lambda a, b: a + b),
        both(lambda a, b: a - b),
        both(lambda a, b: a * b),
        st.builds(lambda a, c: a * c, inner, LITERALS),
        st.builds(tir.floordiv, inner, DIVISORS),
        st.builds(tir.floormod, inner, DIVISORS),
        both(tir.max),
        both(tir.min),
        st.builds(tir.truncdiv, inner, DIVISORS),
        st.builds(tir.truncmod, inner, DIVISORS),
        st.builds(
            lambda a, b: tir.floordiv(a, b) if b not in (0,) else a,
            inner,
            inner.filter(lambda e: not isinstance(e, int | tir.IntImm)),
        ),
        st.builds(
            lambda a, b: tir.floormod(a, b),
            inner,
            inner.filter(lambda e: not isinstance(e, int | tir.IntImm)),
        ),
        st.builds(tir.if_then_else, condition, inner, inner),
    )


exprs: st.SearchStrategy[tir.Dim] = st.recursive(
    st.one_of(st.sampled_from(VARS), LITERALS), _extend, max_leaves=14
)
conditions: st.SearchStrategy[tir.PrimExpr] = st.builds(
    lambda a, b, kind: kind.make(a, b),
    exprs,
    exprs,
    st.sampled_from([tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE]),
)
environments = st.fixed_dictionaries({v: st.integers(-12, 12) for v in VARS})
sizes = st.fixed_dictionaries({v: st.integers(0, 20) for v in VARS})
