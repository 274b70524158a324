"""The lattice of struct infos."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import relax2xla
from relax2xla import tir
from relax2xla.errors import StructInfoError, TVMError
from relax2xla.ir import (
    Call,
    ExternFunc,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir import TensorStructInfo as T
from relax2xla.ir.lattice import Mismatch, SymMap, erase, struct_info_lca, substitute, unify

n, m = tir.Var("n"), tir.Var("m")

dims = st.sampled_from([1, 2, n, m, n * 2])
shapes = st.lists(dims, max_size=2)
dtypes = st.sampled_from(["float32", "int8", ""])
leaves = st.one_of(
    st.just(ObjectStructInfo()),
    st.builds(T, shapes, dtypes),
    st.builds(lambda r, d: T(None, d, ndim=r), st.integers(-1, 2), dtypes),
    st.builds(ShapeStructInfo, shapes),
    st.builds(lambda r: ShapeStructInfo(ndim=r), st.integers(-1, 2)),
    st.sampled_from(
        [
            PrimStructInfo("int64"),
            PrimStructInfo(value=n),
            PrimStructInfo("bool"),
            PrimStructInfo(value=tir.const(1, "int32")),
            PrimStructInfo(value=1),
        ]
    ),
)
infos: st.SearchStrategy[StructInfo] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(TupleStructInfo, st.lists(inner, max_size=2)),
        st.builds(FuncStructInfo, st.lists(inner, max_size=1), inner, st.booleans()),
        st.builds(lambda r: FuncStructInfo(None, r), inner),
    ),
    max_leaves=4,
)


@given(infos)
def test_reflexive_and_bounded(a: StructInfo) -> None:
    assert a.is_base_of(a)
    assert ObjectStructInfo().is_base_of(a)
    assert struct_info_lca(a, a) == a
    assert a == a
    assert hash(a) == hash(substitute(a, {}))


@given(infos, infos)
def test_the_common_ancestor_is_above_both(a: StructInfo, b: StructInfo) -> None:
    top = struct_info_lca(a, b)
    assert top.is_base_of(a)
    assert top.is_base_of(b)
    assert struct_info_lca(b, a).is_base_of(top)
    assert top.is_base_of(struct_info_lca(b, a))


def test_scalars_of_two_dtypes_have_no_value_in_common() -> None:
    zeros = [PrimStructInfo(value=tir.const(0, d)) for d in ("int64", "int32", "bool", "float32")]
    for a, b in itertools.permutations(zeros, 2):
        assert not a.is_base_of(b)
        assert struct_info_lca(a, b) == ObjectStructInfo()
    one = PrimStructInfo(value=tir.const(1, "int32"))
    assert struct_info_lca(zeros[1], one) == PrimStructInfo("int32")


@given(infos, infos, infos)
def test_transitive(a: StructInfo, b: StructInfo, c: StructInfo) -> None:
    if a.is_base_of(b) and b.is_base_of(c):
        assert a.is_base_of(c)


@given(infos)
def test_forgetting_goes_up(a: StructInfo) -> None:
    known = erase(a, lambda v: False)
    if not isinstance(a, FuncStructInfo | TupleStructInfo):  # parameters are invariant
        assert known.is_base_of(a)
    assert erase(known, lambda v: False) == known
    assert erase(a, lambda v: True) == a


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (T((n, 2)), T((n, 2)), T((n, 2))),
        (T((n, 2)), T((m, 2)), T(ndim=2)),
        (T((n, 2)), T((n,)), T()),
        (T((n,), "int8"), T((n,)), T((n,), "")),
        (T((n * 2,)), T((n + n,)), T((n * 2,))),
        (T((n,)), ShapeStructInfo((n,)), ObjectStructInfo()),
        (PrimStructInfo(value=1), PrimStructInfo(value=2), PrimStructInfo("int64")),
        (TupleStructInfo([T((1,))]), TupleStructInfo([T((2,))]), TupleStructInfo([T(ndim=1)])),
        (TupleStructInfo([]), TupleStructInfo([T()]), ObjectStructInfo()),
    ],
)
def test_common_ancestors(a: StructInfo, b: StructInfo, expected: StructInfo) -> None:
    assert struct_info_lca(a, b) == expected
    other = struct_info_lca(b, a)  # equal up to the form of a dimension
    assert other.is_base_of(expected)
    assert expected.is_base_of(other)


def test_purity_and_parameters_of_functions() -> None:
    pure, impure = (FuncStructInfo([T((n,))], T((n,)), p) for p in (True, False))
    assert impure.is_base_of(pure)
    assert not pure.is_base_of(impure)
    assert FuncStructInfo.opaque_func().is_base_of(pure)
    # Parameters like results, as TVM has it: what a function takes is checked at its call.
    assert FuncStructInfo([T(ndim=1)], T((n,))).is_base_of(pure)
    assert not pure.is_base_of(FuncStructInfo([T(ndim=1)], T((n,))))


@pytest.mark.parametrize(
    ("param", "value", "bound"),
    [
        (T((n, m)), T((3, m * 2)), {n: 3, m: m * 2}),
        (T((n, n)), T((3, m)), {n: 3}),
        (T(ndim=2), T((3, 4)), {}),
        (T((n,)), T(ndim=1), {}),
        (T((n,)), ObjectStructInfo(), {}),
        (ShapeStructInfo((n, 2)), ShapeStructInfo((1, 2)), {n: 1}),
        (PrimStructInfo(value=n), PrimStructInfo(value=5), {n: 5}),
        (TupleStructInfo([T((n,)), T((n * 2,))]), TupleStructInfo([T((3,)), T((6,))]), {n: 3}),
    ],
)
def test_unify(param: StructInfo, value: StructInfo, bound: SymMap) -> None:
    env: SymMap = {}
    unify(param, value, env)
    assert env == bound


@pytest.mark.parametrize(
    ("param", "value", "message"),
    [
        (T((n, n)), T((3, 4)), r"4 in dimension 1, expected 3 \(n\)"),
        (T((2,)), T((3,)), "3 in dimension 0, expected 2$"),
        (T((2,)), T((2,), "int8"), "dtype int8, expected float32"),
        (T(ndim=1), T((2, 2)), "ndim 2, expected 1"),
        (ShapeStructInfo(ndim=1), ShapeStructInfo(ndim=2), "ndim 2, expected 1"),
        (T((2,)), ShapeStructInfo((2,)), r"Shape\(\[2\]\), expected Tensor"),
        (PrimStructInfo("int64"), PrimStructInfo("int32"), "dtype int32, expected int64"),
        (TupleStructInfo([T()]), TupleStructInfo([]), "0 fields, expected 1"),
        (TupleStructInfo([T((1,))]), TupleStructInfo([T((2,))]), "field 0: 2 in dimension 0"),
        (TupleStructInfo([T((n,)), T((n * 2,))]), TupleStructInfo([T((3,)), T((5,))]), "field 1"),
    ],
)
def test_unify_errors(param: StructInfo, value: StructInfo, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        unify(param, value, {})


def test_struct_infos_refuse_contradictions() -> None:
    with pytest.raises(StructInfoError, match="shape or ndim, not both"):
        T((2, 3), ndim=3)
    with pytest.raises(StructInfoError, match="values or ndim, not both"):
        ShapeStructInfo((2,), ndim=1)
    with pytest.raises(StructInfoError, match="must not be negative"):
        T((-1,))
    with pytest.raises(StructInfoError, match="a dtype, a value, or both"):
        PrimStructInfo()
    with pytest.raises(StructInfoError, match="leave the dtype out"):
        PrimStructInfo("int32", tir.Var("n"))


def test_derive_func() -> None:
    """The rule of an opaque function sees the call; what it gives is the result's struct info."""

    @relax2xla.register_func("tests.first_of", override=True)
    def first(call: Call, ctx: object) -> StructInfo:
        return call.args[0].struct_info

    info = FuncStructInfo.opaque_func(derive_func="tests.first_of")
    assert not info.purity
    x = Var("x", T((n, 2)))
    assert Call(ExternFunc("f", info), [x]).struct_info == T((n, 2))
    with pytest.raises(StructInfoError, match="ret or derive_func, not both"):
        FuncStructInfo.opaque_func(ret=T((1,)), derive_func="tests.first_of")
    missing = FuncStructInfo.opaque_func(derive_func="tests.missing")
    with pytest.raises(TVMError, match=r"no packed function 'tests\.missing'"):
        Call(ExternFunc("f", missing), [x])
    relax2xla.register_func("tests.first_of", lambda call, ctx: 1, override=True)
    with pytest.raises(StructInfoError, match="must give a StructInfo; it gave 1"):
        Call(ExternFunc("f", info), [x])


def _function(rows: int) -> FuncStructInfo:
    """A function with a symbolic variable of its own."""
    columns = tir.Var("columns")
    return FuncStructInfo([T((rows, columns))], T((rows, columns * 2)))


def test_functions_up_to_their_symbolic_variables() -> None:
    """As TVM has it: is_base_of and struct_info_lca pair the variables of both."""
    one, two = _function(1), _function(2)
    assert one.is_base_of(_function(1))
    assert not one.is_base_of(two)
    assert struct_info_lca(one, _function(1)) is one
    assert struct_info_lca(one, two) == FuncStructInfo([T(None, ndim=2)], T(None, ndim=2))
    fewer = struct_info_lca(one, FuncStructInfo([], T(())))
    assert fewer == FuncStructInfo.opaque_func(ret=T(None), purity=True)


def test_functions_that_may_fit() -> None:
    """What only the run can tell passes, for functions as for tensors."""
    wide = FuncStructInfo([T(None, ndim=2)], T(None, ndim=2))
    unify(wide, _function(1), {})
    unify(_function(1), wide, {})
    unify(wide, FuncStructInfo.opaque_func(ret=ShapeStructInfo(ndim=2), purity=True), {})
    impure = FuncStructInfo([T(None, ndim=2)], T(None, ndim=2), purity=False)
    for never in (_function(2), FuncStructInfo([], T((1,))), impure):
        with pytest.raises(Mismatch, match=r"Callable.*, expected Callable"):
            unify(_function(1), never, {})
