"""Operators that rearrange elements, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import VirtualMachine, build, op, tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpError, TVMError
from relax2xla.ir import (
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
)
from tests.op.harness import Case, check, tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
X = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
E = np.zeros((0, 3), np.float32)


def unknown(ndim=-1, dtype="float32"):
    return Var("x", TensorStructInfo(None, dtype, ndim=ndim))


def test_shapes():
    one = X[:, :1]
    check(
        [
            Case("reshape", lambda x: op.reshape(x, (4, 6)), [X], X.reshape(4, 6)),
            Case("reshape -1", lambda x: op.reshape(x, (-1, 8)), [X], X.reshape(-1, 8)),
            Case("reshape 0", lambda x: op.reshape(x, (0, -1)), [X], X.reshape(2, -1)),
            Case("reshape shape", lambda x: op.reshape(x, ShapeExpr((24,))), [X], X.ravel()),
            Case("reshape to ()", lambda x: op.reshape(x, ()), [X[:1, 0, 0]], X[0, 0, 0]),
            Case("reshape empty", lambda x: op.reshape(x, (3, 0)), [E], E.reshape(3, 0)),
            Case("flatten", op.flatten, [X], X.ravel()),
            Case("flatten ()", op.flatten, [np.int8(3)], np.array([3], np.int8)),
            Case("expand", lambda x: op.expand_dims(x, (0, -1)), [X], X[None, ..., None]),
            Case("expand 1", lambda x: op.expand_dims(x, 1), [X], X[:, None]),
            Case("squeeze", op.squeeze, [one], one.squeeze()),
            Case("squeeze 1", lambda x: op.squeeze(x, -2), [one], one.squeeze(1)),
            Case("permute", op.permute_dims, [X], X.T),
            Case(
                "permute axes", lambda x: op.permute_dims(x, (-1, 0, 1)), [X], X.transpose(2, 0, 1)
            ),
            Case("flip", lambda x: op.flip(x, -1), [X], X[..., ::-1]),
            Case("flip two", lambda x: op.flip(x, (0, 1)), [X], X[::-1, ::-1]),
            Case(
                "broadcast",
                lambda x: op.broadcast_to(x, (5, 2, 3, 4)),
                [one],
                np.broadcast_to(one, (5, 2, 3, 4)),
            ),
        ]
    )


def test_several_tensors():
    y = X[:, :2] + 100
    v = np.arange(3.0)
    check(
        [
            Case("concat", lambda x, y: op.concat([x, y], 1), [X, y], np.concatenate([X, y], 1)),
            Case("concat one", lambda x: op.concat([x], -1), [X], X),
            Case("concat None", lambda x: op.concat([x, x], None), [v], np.tile(v, 2)),
            Case("concat empty", lambda x, y: op.concat((x, y)), [E, E + 1], E),
            Case("stack", lambda x: op.stack([x, x, x], -1), [X], np.stack([X] * 3, -1)),
            Case("stack 0", lambda x: op.stack((x, x)), [X], np.stack([X, X])),
            Case(
                "meshgrid",
                lambda x, y: op.meshgrid((x, y)),
                [v, v[:2]],
                tuple(np.meshgrid(v, v[:2], indexing="ij")),
            ),
            Case(
                "meshgrid xy",
                lambda x, y: op.meshgrid((x, y, y), "xy"),
                [v, v[:2]],
                tuple(np.meshgrid(v, v[:2], v[:2], indexing="xy")),
            ),
        ]
    )


@pytest.mark.parametrize(
    "cuts", [2, 3, 4, 5, 1, [1], [1, 3], [3, 1], [0, 4], [-1], [2, 9], []], ids=str
)
def test_split(cuts):
    if cuts == 1:
        want = X
    elif isinstance(cuts, int):
        # TVM's rule: parts of ceil(size / n), the last ones shorter.
        step = -(-4 // cuts)
        want = tuple(X[..., i * step : (i + 1) * step] for i in range(cuts))
    else:
        want = tuple(np.split(X, cuts, -1))
    check([Case("split", lambda x: op.split(x, cuts, -1), [X], want)])


def test_repetition():
    check(
        [
            Case("repeat", lambda x: op.repeat(x, 3, 1), [X], X.repeat(3, 1)),
            Case("repeat flat", lambda x: op.repeat(x, 2), [X], X.repeat(2)),
            Case("repeat 0", lambda x: op.repeat(x, 0, 0), [X], X.repeat(0, 0)),
            Case("tile", lambda x: op.tile(x, (2, 1, 3)), [X], np.tile(X, (2, 1, 3))),
            Case("tile more", lambda x: op.tile(x, (2, 1, 1, 2)), [X], np.tile(X, (2, 1, 1, 2))),
            Case("tile less", lambda x: op.tile(x, 2), [X], np.tile(X, 2)),
        ]
    )


def test_collapse():
    x = X.astype(np.float32)
    h = np.full((300, 2), 0.1, np.float16)
    check(
        [
            Case("to", lambda x: op.collapse_sum_to(x, (3, 1)), [x], x.sum((0, 2))[:, None]),
            Case("to ()", lambda x: op.collapse_sum_to(x, ()), [X], X.sum(dtype=np.int32)),
            Case("nothing", lambda x: op.collapse_sum_to(x, (2, 3, 4)), [x], x),
            Case("like", op.collapse_sum_like, [x, x[:1, 0]], x.sum((0, 1))[None]),
            Case(
                "half in float32",
                lambda x: op.collapse_sum_to(x, (2,)),
                [h],
                h.astype(np.float32).sum(0).astype(np.float16),
            ),
        ]
    )


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda: op.reshape(tensor((N, 3, 4)), (N, -1)), (N, 12)),
        (lambda: op.reshape(tensor((N, 3, 4)), (0, 0, -1, 2)), (N, 3, 2, 2)),
        (lambda: op.reshape(tensor((N, M, 4)), (-1, 4)), (N * M, 4)),
        (lambda: op.reshape(tensor((N, 3, 4)), (M, 12)), (M, 12)),
        (lambda: op.reshape(unknown(3), (M, 12)), (M, 12)),
        (lambda: op.flatten(tensor((N, 3))), (N * 3,)),
        (lambda: op.flatten(unknown()), 1),
        (lambda: op.expand_dims(unknown(2), [0]), 3),
        (lambda: op.expand_dims(unknown(), [0]), -1),
        (lambda: op.squeeze(tensor((1, N, 1))), -1),
        (lambda: op.squeeze(tensor((1, N, 1)), [0]), (N, 1)),
        (lambda: op.squeeze(tensor((1, N, 1)), [1]), (1, 1)),
        (lambda: op.squeeze(unknown(3), [1]), 2),
        (lambda: op.squeeze(unknown(3)), -1),
        (lambda: op.permute_dims(unknown(3), [-1, 0, 1]), 3),
        (lambda: op.permute_dims(tensor((N, 3))), (3, N)),
        (lambda: op.concat([tensor((N, 3)), tensor((M, 3))]), (N + M, 3)),
        (lambda: op.concat([tensor((N, 3)), tensor((M, 3))], 1), 2),
        (lambda: op.concat([tensor((N, 3)), unknown()], 1), 2),
        (lambda: op.stack([tensor((N, 3)), tensor((M, 3))]), 3),
        (lambda: op.repeat(tensor((N, 3)), 2), (N * 6,)),
        (lambda: op.repeat(unknown(2), 2, 1), 2),
        (lambda: op.tile(tensor((N, 3)), (2, 1, 3)), (2, N, 9)),
        (lambda: op.tile(unknown(2), (2, 1, 3)), 3),
        (lambda: op.broadcast_to(tensor((1, 3)), (N, 3)), (N, 3)),
        (lambda: op.collapse_sum_to(tensor((N, 3)), (1, 3)), (1, 3)),
        (lambda: op.collapse_sum_like(tensor((N, 3)), unknown(1)), 1),
        (lambda: op.flip(unknown(2), 1), 2),
    ],
)
def test_inference(make, want):
    info = make().struct_info
    if isinstance(want, int):
        assert info == TensorStructInfo(None, "float32", ndim=want)
    else:
        assert info.ndim == len(want)
        assert all(tir.can_prove_equal(a, b) for a, b in zip(info.dims, want, strict=True)), info


def test_inference_of_splits():
    def shapes(x, cuts, axis):
        info = op.split(x, cuts, axis).struct_info
        assert isinstance(info, TupleStructInfo)
        return [f.dims for f in info.fields]

    assert shapes(tensor((N, 10)), 3, 1) == [(N, 4), (N, 4), (N, 2)]
    assert shapes(tensor((N, 10)), [3, 7], 1) == [(N, 3), (N, 4), (N, 3)]
    first, second = shapes(tensor((N, 10)), 2, 0)
    assert tir.can_prove_equal(first[0], (N + 1) // 2)
    assert tir.can_prove_equal(first[0] + second[0], N)
    assert shapes(unknown(2), [3, 4], 0) == [None, None, None]
    same = tensor((4, 10))
    assert op.split(same, 1, 1).struct_info == same.struct_info


def test_shapes_that_are_variables_are_kept():
    shape = Var("s", ShapeStructInfo(ndim=2))
    assert op.reshape(tensor((N, 3)), shape).struct_info.shape is shape
    assert op.broadcast_to(tensor((3,)), shape).struct_info.shape is shape


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.reshape(tensor((2, 3)), (5,)), "has 6 elements, but .* has 5"),
        (lambda: op.reshape(tensor((2, 3)), (-1, -1)), "has -1 more than once"),
        (lambda: op.reshape(tensor((2, 3)), (-1, 4)), "cannot take the shape"),
        (lambda: op.reshape(tensor((2, 3)), (6, 1, 0)), "is 0, which copies it"),
        (lambda: op.reshape(tensor((2, 3)), (-2, 3)), "is -2; valid"),
        (lambda: op.reshape(unknown(2), (-1, 3)), "-1 needs a known shape"),
        (lambda: op.reshape(tensor((0, 3)), (0, -1)), "could be anything beside a 0"),
        (lambda: op.broadcast_to(tensor((2, 3)), (2,)), "of rank 2 cannot be broadcast"),
        (lambda: op.broadcast_to(tensor((2, 3)), (N, 4)), "cannot be broadcast .*axis -1"),
        (lambda: op.expand_dims(tensor((2,)), (1, 1)), "names an axis twice"),
        (lambda: op.expand_dims(tensor((2,)), 3), "axis 3 is out of range .*valid: -2..1"),
        (lambda: op.squeeze(tensor((1, 2)), 2), "out of range"),
        (lambda: op.squeeze(tensor((2, 3, 4)), 0), "axis 0 .* has 2 elements; only an axis of one"),
        (lambda: op.squeeze(tensor((0, 1)), [0, 1]), "axis 0 .* has 0 elements"),
        (lambda: op.permute_dims(tensor((2, 3)), (0,)), "`axes` must name all 2 axes"),
        (lambda: op.permute_dims(tensor((2, 3)), (0, 0)), "names an axis twice"),
        (lambda: op.flip(tensor((2,)), 1), "out of range"),
        (lambda: op.concat([]), "needs at least one tensor"),
        (lambda: op.concat(tensor((2,))), "`tensors` must be a tuple"),
        (lambda: op.concat([tensor((2,)), ShapeExpr((1,))]), "field 1 of `tensors`"),
        (lambda: op.concat([tensor((2,)), tensor((2,), "int8")]), r"`tensors\[1\]` is int8"),
        (lambda: op.concat([tensor((2,)), tensor((2, 2))]), "must have one rank"),
        (lambda: op.concat([tensor((2, 3)), tensor((2, 4))]), "differ in dimension 1: 3 and 4"),
        (lambda: op.concat([tensor((2, 3))], None), "axis=None is for tensors of rank 1"),
        (lambda: op.stack([tensor((2,)), tensor((3,))]), "differ in dimension 0"),
        (lambda: op.split(tensor((2,)), 0), "must be positive; got 0"),
        (lambda: op.split(tensor((2,)), 2, 1), "out of range"),
        (lambda: op.split(tensor((2, 3)), 1, 2), "axis 2 is out of range"),
        (lambda: op.split(unknown(2), 1, -3), "axis -3 is out of range"),
        (lambda: op.strided_slice(unknown(-1), [0, 1], [0], [4]), "must be as many; got 2, 1, 1"),
        (lambda: op.concat([tensor((3, N + 2)), tensor((3, N))]), "differ in dimension 1"),
        (lambda: op.meshgrid([tensor((2,))], "yx"), '`indexing` must be "ij" or "xy"'),
        (lambda: op.meshgrid([tensor((2, 2))]), "takes vectors"),
        (lambda: op.repeat(tensor((2,)), -1), "must not be negative"),
        (lambda: op.tile(tensor((2,)), -1), "must not be negative"),
        (lambda: op.collapse_sum_to(tensor((2, 3)), (2, 2)), "axis -1 differs"),
        (lambda: op.collapse_sum_to(tensor((3,)), (2, 3)), "has more axes"),
        (lambda: op.flatten(Tuple([])), "`x` must be a tensor"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()


def test_squeeze_of_a_symbolic_size_is_refused_where_it_is_not_one() -> None:
    """Its rank would depend on the size."""
    x = tensor((N, 3))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.squeeze(x, 0)))
    machine = VirtualMachine(build(builder.get()))
    ones = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(machine["main"](ones), ones[0])
    with pytest.raises(TVMError, match="has 2 elements; only an axis of one can be squeezed"):
        machine["main"](np.ones((2, 3), np.float32))


def test_a_number_of_repeats_is_an_integer() -> None:
    for repeats in (1.5, tir.Var("r", "float32")):
        with pytest.raises(OpError, match="expected an integer"):
            op.repeat(tensor((2,)), repeats)


def test_shapes_that_variables_hold() -> None:
    """What changes nothing keeps the variable; what contradicts its shape is refused."""
    s = Var("s", ShapeStructInfo((2, 3, 4)))
    x = Var("x", TensorStructInfo(s, "float32"))
    kept = [
        op.permute_dims(x, [0, 1, 2]),
        op.expand_dims(x, []),
        op.squeeze(x),
        op.squeeze(x, []),
        op.concat([x], axis=1),
    ]
    for call in kept:
        assert call.struct_info.shape is s
    assert op.reshape(x, (0, -1)).struct_info == TensorStructInfo((2, 12), "float32")
    y = Var("y", TensorStructInfo((2, 3, 5), "float32"))
    for wrong in (
        lambda: op.reshape(x, (5, 5)),
        lambda: op.reshape(x, (5, -1)),
        lambda: op.broadcast_to(x, (2, 3, 5)),
        lambda: op.concat([x, y], axis=0),
        lambda: op.squeeze(x, [1]),
    ):
        with pytest.raises(OpError):
            wrong()
    scalar = Var("x", TensorStructInfo(None, "float32", ndim=0))
    assert op.flatten(scalar).struct_info == TensorStructInfo((1,), "float32")
