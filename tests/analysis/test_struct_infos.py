"""Struct infos under TVM's names. Verdicts of the base check are TVM's."""

from __future__ import annotations

import pytest

from relax2xla import analysis, op, tir
from relax2xla.analysis import BaseCheckResult
from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpError
from relax2xla.ir import (
    Call,
    ExternFunc,
    FuncStructInfo,
    Function,
    FuncType,
    GlobalVar,
    ObjectStructInfo,
    PrimStructInfo,
    PrimType,
    ShapeExpr,
    ShapeStructInfo,
    ShapeType,
    StructInfo,
    TensorType,
    TupleStructInfo,
    TupleType,
    Var,
)
from relax2xla.ir import TensorStructInfo as T

n, m, k = tir.Var("n"), tir.Var("m"), tir.Var("k")
INFO = T((n, 4))


@pytest.mark.parametrize(
    ("base", "derived", "result"),
    [
        (T((1, 2)), T((1, 3)), 0),
        (T((1, 2)), T(ndim=2), 2),
        (T((1, 2)), T(ndim=3), 0),
        (T((n, 2)), T((1, 2)), 2),
        (T((1, 2)), T((n, 2)), 2),
        (T(ndim=2), T((1, 2)), 3),
        (T((1, 2)), T((1, 2), "int32"), 0),
        (T((1, 2)), ObjectStructInfo(), 1),
        (T(ndim=2), ShapeStructInfo((1,)), 0),
        (T(), T(None, "", ndim=2), 1),
    ],
)
def test_base_check(base: StructInfo, derived: StructInfo, result: int) -> None:
    assert analysis.struct_info_base_check(base, derived) == BaseCheckResult(result)


def test_variables_of_struct_infos() -> None:
    info = TupleStructInfo([T((n * 2, m)), ShapeStructInfo((k,)), PrimStructInfo(value=n)])
    assert analysis.tir_vars_in_struct_info(info) == [n, m, k]
    assert analysis.definable_tir_vars_in_struct_info(info) == [m, k, n]
    assert analysis.collect_non_negative_expressions(info) == [n * 2, m, k]


def test_symbolic_variables_of_functions() -> None:
    bb, x = BlockBuilder(), Var("x", T((n,)))
    with bb.function("main", [x]):
        bb.match_cast(x, T((m,)))
        bb.emit(ShapeExpr([k + m]))
        bb.emit_func_output(x)
    func = bb.get()["main"]
    assert analysis.defined_symbolic_vars(func) == [n, m]
    assert analysis.free_symbolic_vars(func) == [k]


def test_erase_and_static_type() -> None:
    info = TupleStructInfo([T((n, 2)), ShapeStructInfo((m,)), PrimStructInfo(value=n)])
    assert analysis.erase_to_well_defined(info) == TupleStructInfo(
        [T(ndim=2), ShapeStructInfo(ndim=1), PrimStructInfo("int64")]
    )
    assert analysis.erase_to_well_defined(info, {n: k + 1}) == TupleStructInfo(
        [T((k + 1, 2)), ShapeStructInfo(ndim=1), PrimStructInfo(value=k + 1)]
    )
    f = FuncStructInfo([T((n,))], T((n,)))
    assert analysis.get_static_type(f) == FuncType([TensorType(1)], TensorType(1))
    assert analysis.get_static_type(info) == TupleType(
        [TensorType(2), ShapeType(1), PrimType("int64")]
    )


def test_derive_call() -> None:
    f = FuncStructInfo([T((n, m)), ShapeStructInfo((m,))], T((n * m, m)))
    g = GlobalVar("g", f)
    x = Var("x", T((k, 3)))
    call = Call(g, [x, ShapeExpr([3])])
    assert call.struct_info == T((k * 3, 3))
    assert analysis.derive_call_ret_struct_info(f, call) == call.struct_info
    # What cannot be known becomes a rank.
    assert Call(g, [Var("y", T(ndim=2)), ShapeExpr([3])]).struct_info == T(ndim=2)
    with pytest.raises(OpError, match=r"argument 1 has 4 in dimension 0, expected 3 \(m\)"):
        Call(g, [x, ShapeExpr([4])])
    with pytest.raises(OpError, match="takes 2 arguments; got 1"):
        Call(g, [x])
    assert analysis.well_formed(Function([x], x)) == analysis.well_formed(Function([x], x), False)
    assert op.sin(x).struct_info == x.struct_info


def test_erase_with_maps() -> None:
    """TVM's results."""
    s, s2 = (Var(name, ShapeStructInfo(ndim=2)) for name in ("s", "s2"))
    by_var = T(s, "float32")
    rank = T(None, "float32", ndim=2)
    f = FuncStructInfo([INFO], T((n, m), "float32"))
    for info, symbols, values, expected in [
        (TupleStructInfo([INFO, by_var]), None, None, TupleStructInfo([rank, rank])),
        (INFO, {n: 3}, None, T((3, 4), "float32")),
        (T((n, m), "float32"), {n: n}, None, rank),
        (T((n + 1, 4)), {n: m * 2}, None, T((m * 2 + 1, 4))),
        (by_var, {}, {s: s2}, T(s2, "float32")),
        (by_var, {n: n, m: m}, {s: ShapeExpr([n, m])}, T((n, m), "float32")),
        (by_var, None, {s: ShapeExpr([2, 3])}, T((2, 3), "float32")),
        (by_var, {}, {}, rank),
        (PrimStructInfo(value=n), {}, {}, PrimStructInfo("int64")),
        (f, {}, {}, f),
    ]:
        assert analysis.erase_to_well_defined(info, symbols, values) == expected


def test_derive_call_takes_a_context() -> None:
    f = FuncStructInfo([T((m, 4))], T((m + 1, 4)))
    x, bb = Var("x", T((n, 4))), BlockBuilder()
    call = Call(Var("f", f), [x])
    assert analysis.derive_call_ret_struct_info(f, call, bb) == T((n + 1, 4))
    wrong = Call(Var("f", f), [x, x], struct_info=INFO)
    with pytest.raises(ValueError, match="takes 1 arguments; got 2"):
        analysis.derive_call_ret_struct_info(f, wrong, bb)
    wrong = Call(Var("f", f), [Var("y", T((3, 5)))], struct_info=INFO)
    with pytest.raises(ValueError, match="5 in dimension 1, expected 4"):
        analysis.derive_call_ret_struct_info(f, wrong, ctx=bb)
    opaque = FuncStructInfo.opaque_func()
    stated = Call(ExternFunc("f"), [x], sinfo_args=[INFO, INFO])
    assert analysis.derive_call_ret_struct_info(opaque, stated, bb) == TupleStructInfo([INFO, INFO])


def test_base_check_of_devices() -> None:
    def on(device: str) -> T:
        return T((2,), "float32", device)

    check = analysis.struct_info_base_check
    assert check(on("cpu"), on("cuda")) == BaseCheckResult.FAIL_L0
    pair = TupleStructInfo([on("cpu"), on("cpu")])
    assert check(pair, TupleStructInfo([on("cpu"), on("cuda")])) == BaseCheckResult.FAIL_L0
    assert check(T((2,)), on("cuda")) == BaseCheckResult.PASS
