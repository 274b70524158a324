"""Structural equality and hash."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from relax2xla import op, tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import StructuralEqualError
from relax2xla.ir import (
    Attrs,
    Call,
    Constant,
    DataTypeImm,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    Span,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    VDevice,
    const,
)
from relax2xla.ir.equal import assert_structural_equal, structural_equal, structural_hash


def same(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Equality, which must be symmetric and agree with the hash."""
    result = structural_equal(a, b, map_free_vars)
    assert result == structural_equal(b, a, map_free_vars)
    if result:
        assert structural_hash(a, map_free_vars) == structural_hash(b, map_free_vars)
    return result


def model(
    dim: str = "n",
    x: str = "x",
    scale: float = 2.0,
    axis: int = -1,
    dtype: str = "float32",
    name: str = "main",
    cast: bool = True,
    **attrs: Any,
) -> IRModule:
    n, m = tir.Var(dim), tir.Var("m")
    v = Var(x, TensorStructInfo((n, n * 2), dtype))
    bb = BlockBuilder()
    with bb.function(name, [v], attrs=attrs):
        with bb.dataflow():
            a = bb.emit(op.multiply(v, const(scale, dtype)), span=Span(x))
            b = bb.emit(op.nn.softmax(a, axis=axis))
            out = bb.emit_output(b)
        if cast:
            out = bb.match_cast(out, TensorStructInfo((m, n * 2), dtype))
        bb.emit_func_output(op.reshape(out, ShapeExpr([n * 2 * (m if cast else n)])))
    return bb.get()


def test_names_and_spans_do_not_count() -> None:
    assert same(model(), model(dim="k", x="data"))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"scale": 3.0}, "main.body.blocks[0].bindings[0].value.args[1]"),
        ({"axis": 0}, "main.body.blocks[0].bindings[1].value.attrs['axis']"),
        ({"dtype": "float16"}, "main.params[0]"),
        ({"name": "other"}, "the root"),
        ({"cast": False}, "main.body.blocks[1].bindings[0]"),
        ({"a": 1}, "main.attrs"),
    ],
)
def test_the_path_of_the_first_difference(change: dict[str, Any], path: str) -> None:
    assert not same(model(), model(**change))
    with pytest.raises(StructuralEqualError) as e:
        assert_structural_equal(model(), model(**change))
    assert f" at {path}\n  lhs: " in str(e.value)
    assert "\n  rhs: " in str(e.value)


def test_the_message_shows_both_sides() -> None:
    with pytest.raises(StructuralEqualError, match=r"(?s)different operators .*lhs: relax\.sin\(x"):
        assert_structural_equal(op.sin(Var("x", INFO)), op.cos(Var("x", INFO)), map_free_vars=True)
    assert_structural_equal(model(), model())


INFO = TensorStructInfo((2, 3))


def test_a_missing_binding_is_shown() -> None:
    def chain(k: int) -> Function:
        bb, y = BlockBuilder(), Var("x", INFO)
        with bb.function("main", [y]):
            v = y
            for _ in range(k):
                v = bb.emit(op.sin(v))
            bb.emit_func_output(v)
        return bb.get()["main"]

    with pytest.raises(
        StructuralEqualError, match=r"3 against 2 items at .*bindings\[2\]\n.*gv2 ="
    ):
        assert_structural_equal(chain(3), chain(2))


def test_free_variables() -> None:
    x, y = Var("x", INFO), Var("y", INFO)
    assert same(op.add(x, y), op.add(x, y))
    assert not same(op.add(x, y), op.add(y, x))
    assert same(op.add(x, y), op.add(y, x), map_free_vars=True)
    assert not same(op.add(x, y), op.add(x, x), map_free_vars=True)
    assert not same(x, Var("x", TensorStructInfo((2, 4))), map_free_vars=True)
    n, m = tir.Var("n"), tir.Var("m")
    assert not same(ShapeExpr([n, n]), ShapeExpr([m, m]))
    assert same(ShapeExpr([n, n]), ShapeExpr([m, m]), map_free_vars=True)
    assert not same(ShapeExpr([n, m]), ShapeExpr([m, m]), map_free_vars=True)
    p, q = (PrimValue(tir.Var("n", dtype)) for dtype in ("int64", "int32"))
    assert not same(p, q, map_free_vars=True)


def test_symbols_are_paired_one_to_one() -> None:
    n, m = tir.Var("n"), tir.Var("m")

    def f(a: Any, b: Any) -> Function:
        return Function([x := Var("x", TensorStructInfo((a, b)))], x)

    assert same(f(n, m), f(m, n))
    assert not same(f(n, m), f(n, n))
    assert not same(f(n, n * 2), f(n, n + n + 1))
    assert not same(f(n, 2), f(n, m))


@pytest.mark.parametrize(
    "group",
    [
        [const(1), const(2), const(1.0), const(True), const([1]), StringImm("1"), PrimValue(1)],
        [PrimValue(1), PrimValue(2), PrimValue(1.0), PrimValue(tir.const(1, "int32"))],
        [StringImm("a"), StringImm("float32"), DataTypeImm("float32"), DataTypeImm("int8")],
        [ExternFunc("f"), ExternFunc("g"), GlobalVar("f"), GlobalVar("g")],
        [ShapeExpr([1]), ShapeExpr([2]), ShapeExpr([]), ShapeExpr([1, 1])],
        [Tuple([]), Tuple([const(1)]), Tuple([const(1), const(1)]), Tuple([Tuple([])])],
        [TupleGetItem(Tuple([const(1), const(1)]), i) for i in range(2)],
        [
            Call(ExternFunc("f"), [const(1)], sinfo_args=[i])
            for i in (ObjectStructInfo(), TensorStructInfo((1,)), TensorStructInfo((2,)))
        ],
        [
            *(TensorStructInfo((1,)), TensorStructInfo((2,)), TensorStructInfo(ndim=1)),
            *(TensorStructInfo((1,), "int8"), TensorStructInfo((1,), vdevice=VDevice("cuda"))),
            *(TensorStructInfo(), ShapeStructInfo((1,)), ShapeStructInfo(ndim=1)),
            *(ShapeStructInfo(), PrimStructInfo("int64"), PrimStructInfo("int64", 1)),
            *(PrimStructInfo("int32"), TupleStructInfo([]), TupleStructInfo([ObjectStructInfo()])),
            *(ObjectStructInfo(), FuncStructInfo([]), FuncStructInfo(None)),
            *(FuncStructInfo([], purity=False), FuncStructInfo([ObjectStructInfo()])),
            FuncStructInfo.opaque_func(derive_func="f"),
        ],
        [
            Attrs(a=v)
            for v in (1, 1.0, True, "1", None, (1,), (1, 1), Attrs(a=1), INFO, tir.Var("n"))
        ],
        [Attrs(), Attrs(a=1), Attrs(b=1), Attrs(a=1, b=1)],
        [Attrs(a=np.arange(3)), Attrs(a=np.arange(4)), Attrs(a=np.arange(3.0))],
        [If(const(True), const(i), const(j)) for i in range(2) for j in range(2)],
    ],
    ids=lambda g: type(g[0]).__name__,
)
def test_only_the_same_is_equal(group: list[Any]) -> None:
    for i, a in enumerate(group):
        for j, b in enumerate(group):
            assert same(a, b) == (i == j), (a, b)


def test_function_struct_infos_bind_their_own_symbols() -> None:
    def f(name: str) -> FuncStructInfo:
        t = TensorStructInfo((tir.Var(name),))
        return FuncStructInfo([t], t)

    assert same(f("n"), f("m"))


def test_a_shape_is_the_same_spelled_out_and_held_by_a_variable() -> None:
    sizes = (2, tir.Var("n", "int64"))
    held = TensorStructInfo(Var("s", ShapeStructInfo(sizes)))
    unknown = TensorStructInfo(Var("s", ShapeStructInfo(ndim=2)))
    same = [(held, TensorStructInfo(sizes)), (TensorStructInfo(ndim=0), TensorStructInfo(()))]
    for a, b in same:
        assert structural_equal(a, b)
        assert structural_equal(b, a)
        assert structural_hash(a) == structural_hash(b)
    assert not structural_equal(held, unknown)
    assert not structural_equal(held, TensorStructInfo((2, 3)))


def test_left_out_defaults_are_equal_to_stated_ones() -> None:
    x = Var("x", INFO)
    stated = op.nn.softmax(x, axis=-1)
    assert same(Call(stated.op, [x]), stated)


def test_module_attributes_and_order() -> None:
    x, y = Var("x", INFO), Var("y", INFO)
    f, g = Function([x], x), Function([y], op.sin(y))
    assert same(IRModule({"f": f, "g": g}), IRModule({"g": g, "f": f}))
    assert not same(IRModule({"f": f}), IRModule({"f": f}, {"a": 1}))
    assert not same(IRModule({"f": f}), IRModule({"f": f}, None, {"vdevice": [VDevice()]}))
    body = tir.PrimFunc([tir.Var("a")], tir.Evaluate(tir.IntImm("int32", 0)))
    assert same(
        IRModule({"f": body}),
        IRModule({"f": tir.PrimFunc([tir.Var("a")], tir.Evaluate(tir.IntImm("int32", 0)))}),
    )
    assert not same(IRModule({"f": body}), IRModule({"f": body.with_attr("a", 1)}))


def test_recursive_local_functions() -> None:
    def make(name: str) -> Function:
        x, y = Var("x", INFO), Var("y", INFO)
        f = Var(name, FuncStructInfo([INFO], INFO))
        bb = BlockBuilder()
        with bb.function("main", [x]):
            bb.emit_normalized(VarBinding(f, Function([y], Call(f, [y]), INFO)))
            bb.emit_func_output(Call(f, [x]))
        return bb.get()["main"]

    assert same(make("f"), make("g"))


# -- constants -------------------------------------------------------------------------------
def test_nan_and_zero() -> None:
    nan, other = np.float32([1, np.nan]), np.float32([1, np.nan])
    other.view("uint32")[1] ^= 1  # another NaN
    assert np.isnan(other[1])
    assert same(Constant(nan), Constant(other))
    assert not same(const(0.0), const(-0.0))
    assert not same(Constant(nan), Constant(np.float32([1, 2])))
    half = np.array([np.nan, 1], ml_dtypes.bfloat16)
    assert same(Constant(half), Constant(half.copy()))
    assert same(Constant(np.complex64([np.nan])), Constant(np.complex64([np.nan])))
    assert same(Attrs(a=float("nan")), Attrs(a=float("nan")))


def test_splats_are_not_expanded() -> None:
    shape = (1 << 20, 1 << 20)  # four terabytes if it were
    a, b = (Constant(np.broadcast_to(np.float32(v), shape)) for v in (1, 2))
    again = Constant(np.broadcast_to(np.float32(1), shape))
    assert same(a, again)
    assert not same(a, b)


def test_a_splat_equals_its_expansion() -> None:
    splat = np.broadcast_to(np.int64(7), (3, 700, 701))
    full = np.full((3, 700, 701), 7)
    assert same(Constant(splat), Constant(full))
    full[2, 699, 700] = 8
    assert not same(Constant(splat), Constant(full))


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)))
def test_an_array_equals_its_copy(array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind in "mM" or array.dtype.byteorder == ">":
        return
    if array.dtype.itemsize > 16 or array.dtype == np.longdouble:
        return
    known = TensorStructInfo(array.shape, "float32")  # complex256 and the like have no name
    assert same(Constant(array, known), Constant(np.array(array, order="F"), known))


@given(st.integers(0, 23), st.sampled_from(["int8", "float64", "complex128", "bool"]))
def test_one_different_element_is_seen(at: int, dtype: str) -> None:
    a = np.zeros((4, 6), dtype)
    b = a.copy()
    b.flat[at] = 1
    assert not structural_equal(Constant(a), Constant(b))
    assert not structural_equal(Constant(a.T), Constant(b.T))
