"""Misuse of every operator: one error of this library, whatever is passed in whatever place."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from relax2xla import ir, op, tir
from relax2xla.errors import OpError, TVMError
from relax2xla.ir import Op
from tests.transform.lower.dynamic_samples import SAMPLES
from tests.transform.lower.test_dynamic_rows import operand

OPERATORS = sorted(name for name in Op.list_op_names() if type(Op.get(name)) is Op)
N = tir.Var("n", "int64")


def tensor(*shape: Any, dtype: str = "float32") -> ir.Var:
    return ir.Var("x", ir.TensorStructInfo(shape, dtype))


def unknown(ndim: int = -1) -> ir.Var:
    return ir.Var("x", ir.TensorStructInfo(None, "float32", ndim=ndim))


class NoExpr:
    """Something that no parameter takes."""


OPERANDS: tuple[Any, ...] = (
    tensor(2, 3),
    tensor(),
    tensor(N, 3),
    tensor(1, 2, 3, 4, 5, 6, 7),
    tensor(2, 3, dtype="bool"),
    tensor(2, 3, dtype="int64"),
    tensor(2, 3, dtype="complex64"),
    tensor(4, 0),
    unknown(),
    unknown(2),
    ir.Tuple([]),
    ir.Tuple([tensor(2), tensor(3, dtype="int32")]),
    ir.ShapeExpr([2, 3]),
    ir.PrimValue(7),
    ir.PrimValue(1.5),
    ir.StringImm("bad"),
    ir.DataTypeImm("int8"),
    ir.GlobalVar("f"),
    NoExpr(),
    "bad",
    99,
    -7,
    2.5,
    None,
    [1, 2],
    [tensor(2), NoExpr()],
    (),
)
ATTRIBUTES: tuple[Any, ...] = (
    0, 1, -1, 99, -99, 2.5, "bad", "float32", "NHWC", None, True, (), [0, 1], [0, 0], [5, -9],
    (1, 2, 3, 4, 5, 6, 7), ["a"], NoExpr(), {"a": 1}, tensor(2, 3), N, [N, 2],
)  # fmt: skip
HEALTHY = (0, 1, 2, 5, 8, 9)


def misuses(made: Op[...], count: int) -> list[tuple[list[Any], dict[str, Any]]]:
    """Arguments at random; half of the operands are plain tensors, to get past the first check."""
    rng = random.Random(made.name)
    found: list[tuple[list[Any], dict[str, Any]]] = []
    for n in range(count):
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for p in made.params:
            if p.kind.operand:
                healthy = rng.random() < n / count
                value = OPERANDS[rng.choice(HEALTHY)] if healthy else rng.choice(OPERANDS)
            elif not p.required and rng.random() < 0.6:
                value = p.default
            else:
                value = rng.choice(ATTRIBUTES)
            if p.variadic or len(args) == len(kwargs) == 0 or not kwargs:
                args.append(value)
            if not p.variadic and p.name in made.signature.parameters:
                keyword = made.signature.parameters[p.name]
                if keyword.kind is keyword.KEYWORD_ONLY:
                    args.pop()
                    kwargs[p.name] = value
        found.append((args, kwargs))
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_any_misuse_is_one_error_of_ours(name: str):
    made = Op.get(name)
    for args, kwargs in misuses(made, 60):
        try:
            made(*args, **kwargs)
        except TVMError as e:
            assert str(e), name  # noqa: PT017
        except Exception as e:
            raise AssertionError(f"{name}{tuple(args)} {kwargs}: {type(e).__name__}: {e}") from e


TENSORS = [
    name
    for name in OPERATORS
    if Op.get(name).operands
    and Op.get(name).infer is not None
    and name.removeprefix("relax.").split(".")[0] not in ("vm", "memory", "call_tir")
]


@pytest.mark.parametrize("name", TENSORS)
def test_what_is_no_expression_is_refused(name: str):
    made = Op.get(name)
    first = made.operands[0]
    args = [NoExpr() if p is first else p.default if not p.required else 1 for p in made.params]
    positional = [
        a
        for p, a in zip(made.params, args, strict=True)
        if made.signature.parameters[p.name].kind
        is not made.signature.parameters[p.name].KEYWORD_ONLY
    ]
    keyword = {
        p.name: a
        for p, a in zip(made.params, args, strict=True)
        if made.signature.parameters[p.name].kind is made.signature.parameters[p.name].KEYWORD_ONLY
    }
    with pytest.raises(TVMError) as error:
        made(*positional, **keyword)
    assert name in str(error.value) or any(name in n for n in error.value.__notes__)
    assert any(f"`{p.name}`" in str(error.value) for p in made.params) or first.name in ("func",)


# Operators that take any tensor, and those whose operands are sizes.
TAKES_ALL = {
    "arange", "builtin.alloc_tensor", "builtin.stop_lift_params", "eye", "grad.no_grad",
    "memory.view", "ones", "shape_to_tensor", "zeros",
}  # fmt: skip


def wrong(info: ir.TensorStructInfo) -> dict[str, ir.Expr]:
    """What may stand in the place of an operand, and be wrong."""
    dims = info.dims or ()
    grown = [d + 13 if isinstance(d, int) else d for d in dims]
    return {
        "no tensor": ir.Tuple([]),
        "a shape": ir.ShapeExpr([1]),
        "rank": tensor(2, 1, 2, 1, 2, 1, 2, dtype=info.dtype),
        "complex": tensor(*dims, dtype="complex64"),
        "bool": tensor(*dims, dtype="bool"),
        "size": tensor(*grown, dtype=info.dtype),
    }


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_errors_name_the_operator_and_an_argument(name: str):
    operands, make = SAMPLES[name]
    infos = [operand(o, {"n": N}) for o in operands]
    made = Op.get(f"relax.{name}")
    errors: list[tuple[str, TVMError]] = []
    for i, info in enumerate(infos):
        for label, bad in wrong(info).items():
            args: list[ir.Expr] = [ir.Var(f"p{j}", x) for j, x in enumerate(infos)]
            args[i] = bad
            try:
                make(*args)
            except TVMError as e:
                errors.append((label, e))
            except (AttributeError, TypeError):
                # The sample itself reads the shape.
                assert not isinstance(bad.struct_info, ir.TensorStructInfo), (label, i)
    assert (not errors) == (name in TAKES_ALL)
    for label, e in errors:
        notes: list[str] = getattr(e, "__notes__", [])
        assert any(made.name in text for text in (str(e), *notes)), (label, str(e))
        assert any(re.search(rf"\b{p.name}\b", str(e)) for p in made.params), (label, str(e))


AXES: tuple[tuple[str, Any], ...] = (
    *((n, lambda f: f(tensor(N, 3), 2)) for n in ("sum", "prod", "max", "min", "mean", "std")),
    *((n, lambda f: f(tensor(N, 3), -3)) for n in ("variance", "argmax", "argmin", "median")),
    *((n, lambda f: f(tensor(N, 3), 2)) for n in ("cumsum", "cumprod", "sort", "argsort", "flip")),
    *((n, lambda f: f(tensor(N, 3), 5)) for n in ("expand_dims", "squeeze", "nn.softmax")),
    *((n, lambda f: f([tensor(N, 3)], 5)) for n in ("concat", "stack")),
    ("split", lambda f: f(tensor(N, 3), 3, 2)),
    ("topk", lambda f: f(tensor(N, 3), 1, 2)),
    ("repeat", lambda f: f(tensor(N, 3), 2, 2)),
    ("take", lambda f: f(tensor(N, 3), tensor(2, dtype="int64"), 2)),
    ("gather_elements", lambda f: f(tensor(N, 3), tensor(2, 3, dtype="int64"), 2)),
    ("strided_slice", lambda f: f(tensor(N, 3), [2], [0], [1])),
    ("permute_dims", lambda f: f(tensor(N, 3), [0, 2])),
    ("nn.log_softmax", lambda f: f(tensor(N, 3), -3)),
    ("nn.layer_norm", lambda f: f(tensor(N, 3), tensor(3), tensor(3), [2])),
    ("one_hot", lambda f: f(tensor(N, dtype="int64"), ir.PrimValue(1), ir.PrimValue(0), 4, 3)),
)


@pytest.mark.parametrize(("name", "call"), AXES, ids=[n for n, _ in AXES])
def test_an_axis_out_of_range(name: str, call: Any):
    made: Any = Op.get(f"relax.{name}")
    with pytest.raises(OpError, match=r"out of range|valid: ") as error:
        call(made)
    # The whole call, with the symbolic shape of the operand.
    assert any(f"relax.{name}" in note and "n" in note for note in error.value.__notes__)


def test_shapes_that_do_not_match_are_named():
    m = tir.Var("m", "int64")
    with pytest.raises(OpError, match=r"\(n, 3\) and \(m, 4\)"):
        op.add(tensor(N, 3), tensor(m, 4))
    with pytest.raises(OpError) as error:
        op.matmul(tensor(N, 3), tensor(4, m))
    assert 'x1: Tensor((n, 3), dtype="float32")' in error.value.__notes__[0]
