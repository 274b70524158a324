"""Every rule of infer.py against MLIR's own inference and verification, on random operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import (
    Call,
    Function,
    IRModule,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.expr import BindingBlock
from relax2xla.ir.struct_info import ObjectStructInfo, TupleStructInfo
from relax2xla.stablehlo import context, emit
from relax2xla.stablehlo.codecs import sinfo_to_type
from relax2xla.stablehlo.infer import RULES, window_size
from relax2xla.stablehlo.mlir import ir
from relax2xla.stablehlo.rows import OPS, RowOp, chlo
from relax2xla.stablehlo.rows import stablehlo as hlo

Rng = np.random.Generator
CONTEXT = context()


def var(shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(tuple(int(d) for d in shape), dtype))


def shape(rng: Rng, low: int = 0, high: int = 4) -> list[int]:
    return [int(d) for d in rng.integers(1, 9, rng.integers(low, high + 1))]


def ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def region(op: RowOp, dtype: str, count: int = 1) -> Var:
    """A local function of scalars; :func:`module` binds the function before its use."""
    params = [Var(f"p{i}", TensorStructInfo((), dtype)) for i in range(2 * count)]
    calls = [op(params[i], params[count + i]) for i in range(count)]
    results = [Var(f"r{i}", c.struct_info) for i, c in enumerate(calls)]
    block = BindingBlock([VarBinding(r, c) for r, c in zip(results, calls, strict=True)])
    body = SeqExpr([block], results[0] if count == 1 else Tuple(results))
    function = Function(params, body)
    made = Var("f", function.struct_info)
    REGIONS[made] = function
    return made


REGIONS: dict[Var, Function] = {}


def elementwise(op: RowOp, dtype: str, count: int) -> Callable[[Rng], Call]:
    def build(rng: Rng) -> Call:
        dims = shape(rng)
        return op(*(var(dims, dtype) for _ in range(count)))

    return build


def concatenate(rng: Rng) -> Call:
    dims = shape(rng, 1)
    axis = int(rng.integers(len(dims)))
    parts = [[*dims[:axis], int(rng.integers(5)), *dims[axis + 1 :]] for _ in range(3)]
    return hlo.concatenate(*map(var, parts), dimension=axis)


def pad(rng: Rng) -> Call:
    dims = shape(rng)
    low, high, interior = (ints(rng.integers(lo, 3, len(dims))) for lo in (0, 0, 0))
    return hlo.pad(
        var(dims),
        var(()),
        edge_padding_low=low,
        edge_padding_high=tuple(h - 1 if d > 1 else h for h, d in zip(high, dims, strict=True)),
        interior_padding=interior,
    )


def slices(rng: Rng) -> Call:
    dims = shape(rng)
    limits = [int(rng.integers(1, d + 1)) for d in dims]
    return hlo.slice(
        var(dims),
        start_indices=ints(rng.integers(0, v + 1) for v in limits),
        limit_indices=ints(limits),
        strides=ints(rng.integers(1, 4, len(dims))),
    )


def transpose(rng: Rng) -> Call:
    dims = shape(rng)
    return hlo.transpose(var(dims), permutation=ints(rng.permutation(len(dims))))


def dot_general(rng: Rng) -> Call:
    batch, contracted, left, right = (shape(rng, 0, 2) for _ in range(4))
    b, c = len(batch), len(contracted)
    order = rng.permutation(b + c + len(left))
    dims = np.array([*batch, *contracted, *left])[order]
    place = np.argsort(order)
    numbers = {
        "lhs_batching_dimensions": ints(place[:b]),
        "lhs_contracting_dimensions": ints(place[b : b + c]),
        "rhs_batching_dimensions": ints(range(b)),
        "rhs_contracting_dimensions": ints(range(b, b + c)),
    }
    return hlo.dot_general(
        var(dims), var([*batch, *contracted, *right]), dot_dimension_numbers=numbers
    )


def convolution(rng: Rng) -> Call:
    n = int(rng.integers(0, 3))
    groups = int(rng.integers(1, 3))
    batch_groups = int(rng.integers(1, 3)) if groups == 1 else 1
    orders = [rng.permutation(n + 2) for _ in range(3)]
    window = rng.integers(1, 4, n)
    image = np.zeros(n + 2, int)
    image[orders[0]] = [2 * batch_groups, 3 * groups, *rng.integers(6, 12, n)]
    kernel = np.zeros(n + 2, int)
    kernel[orders[1]] = [3, 4 * groups * batch_groups, *window]
    numbers: dict[str, Any] = {}
    names = ("input_batch", "input_feature", "kernel_input_feature", "kernel_output_feature")
    for name, place in zip(
        (*names, "output_batch", "output_feature"),
        (p for o in orders for p in o[:2]),
        strict=True,
    ):
        numbers[f"{name}_dimension"] = int(place)
    for name, order in zip(("input", "kernel", "output"), orders, strict=True):
        numbers[f"{name}_spatial_dimensions"] = ints(order[2:])
    return hlo.convolution(
        var(image),
        var(kernel),
        window_strides=ints(rng.integers(1, 3, n)),
        padding=tuple(map(ints, rng.integers(0, 3, (n, 2)))) or None,
        lhs_dilation=ints(rng.integers(1, 3, n)),
        rhs_dilation=ints(rng.integers(1, 3, n)),
        dimension_numbers=numbers,
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )


def gather(rng: Rng) -> Call:
    dims = shape(rng, 1)
    n = len(dims)
    indexed = ints(sorted(rng.choice(n, rng.integers(1, n + 1), replace=False)))
    collapsed = ints(sorted(rng.choice(indexed, rng.integers(0, len(indexed) + 1), replace=False)))
    sizes = [1 if i in collapsed else int(rng.integers(0, d + 1)) for i, d in enumerate(dims)]
    batch = shape(rng, 0, 2)
    vector = int(rng.integers(len(batch) + 1))
    out = len(batch) + n - len(collapsed)
    numbers = {
        "offset_dims": ints(sorted(rng.choice(out, n - len(collapsed), replace=False))),
        "collapsed_slice_dims": collapsed,
        "start_index_map": indexed,
        "index_vector_dim": vector,
    }
    indices = var([*batch[:vector], len(indexed), *batch[vector:]], "int32")
    return hlo.gather(var(dims), indices, dimension_numbers=numbers, slice_sizes=ints(sizes))


def reduce(rng: Rng) -> Call:
    dims = shape(rng)
    count = int(rng.integers(1, 3))
    gone = ints(sorted(rng.choice(len(dims), rng.integers(len(dims) + 1), replace=False)))
    body = region(hlo.add, "float32", count)
    operands = [*(var(dims) for _ in range(count)), *(var(()) for _ in range(count))]
    return hlo.reduce(*operands, body, dimensions=gone)


def reduce_window(rng: Rng) -> Call:
    dims = shape(rng, 1, 3)
    n = len(dims)
    return hlo.reduce_window(
        var(dims),
        var(()),
        region(hlo.maximum, "float32"),
        window_dimensions=ints(rng.integers(1, 4, n)),
        window_strides=ints(rng.integers(1, 3, n)),
        base_dilations=ints(rng.integers(1, 3, n)),
        window_dilations=ints(rng.integers(1, 3, n)),
        padding=tuple(map(ints, rng.integers(0, 3, (n, 2)))),
    )


def scatter(rng: Rng) -> Call:
    rows, columns = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    numbers = {
        "update_window_dims": (1,),
        "inserted_window_dims": (0,),
        "scattered_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }
    return hlo.scatter(
        var((rows, columns)),
        var((3, 1), "int32"),
        var((3, columns)),
        region(hlo.add, "float32"),
        scatter_dimension_numbers=numbers,
    )


def fft(rng: Rng) -> Call:
    kind = str(rng.choice(["FFT", "IFFT", "RFFT", "IRFFT"]))
    dims = shape(rng, 1)
    lengths = [dims[-1]]
    if kind == "IRFFT":
        lengths = [int(rng.integers(2, 9))]
        dims[-1] = lengths[0] // 2 + 1
    return hlo.fft(
        var(dims, "float32" if kind == "RFFT" else "complex64"),
        fft_type=kind,
        fft_length=ints(lengths),
    )


def batch_norm(rng: Rng) -> Call:
    dims = shape(rng, 1)
    axis = int(rng.integers(len(dims)))
    features = [var((dims[axis],)) for _ in range(2)]
    return hlo.batch_norm_training(var(dims), *features, epsilon=0.5, feature_index=axis)


def broadcasting(op: RowOp, dtype: str = "float32", **attrs: Any) -> Callable[[Rng], Call]:
    def build(rng: Rng) -> Call:
        dims = shape(rng)
        keep = rng.integers(0, 2, (2, len(dims)))
        a, b = ([d if k else 1 for d, k in zip(dims, ks, strict=True)] for ks in keep)
        return op(var(a, dtype), var(b[int(rng.integers(len(b) + 1)) :], dtype), **attrs)

    return build


CASES: dict[str, Callable[[Rng], Call]] = {
    "add": elementwise(hlo.add, "float32", 2),
    "and": elementwise(hlo.and_, "bool", 2),
    "abs_complex": elementwise(hlo.abs, "complex64", 1),
    "real": elementwise(hlo.real, "complex128", 1),
    "imag_of_real": elementwise(hlo.imag, "float64", 1),
    "complex": elementwise(hlo.complex, "float64", 2),
    "is_finite": elementwise(hlo.is_finite, "bfloat16", 1),
    "compare": lambda r: hlo.compare(
        *[var(shape(np.random.default_rng(1)))] * 2, comparison_direction="LT"
    ),
    "collective_broadcast": lambda r: hlo.collective_broadcast(
        var(shape(r)), replica_groups=((0, 1),)
    ),
    "select": lambda r: hlo.select(var((), "bool"), *[var(shape(r))] * 2),
    "clamp": lambda r: hlo.clamp(var(()), var(shape(r)), var(())),
    "broadcast": lambda r: hlo.broadcast(var(shape(r)), broadcast_sizes=ints(shape(r))),
    "transpose": transpose,
    "reverse": lambda r: hlo.reverse(var((2, *shape(r))), dimensions=(0,)),
    "concatenate": concatenate,
    "pad": pad,
    "slice": slices,
    "dynamic_slice": lambda r: hlo.dynamic_slice(
        var((5, 6)), var((), "int32"), var((), "int32"), slice_sizes=ints(r.integers(0, 6, 2))
    ),
    "dynamic_update_slice": lambda r: hlo.dynamic_update_slice(
        var((5, 6)), var(r.integers(1, 6, 2)), var((), "int32"), var((), "int32")
    ),
    "get_dimension_size": lambda r: hlo.get_dimension_size(var((2, 3)), dimension=1),
    "gather": gather,
    "scatter": scatter,
    "dot_general": dot_general,
    "dot": lambda r: hlo.dot(var((*shape(r, 0, 1), 4)), var((4, *shape(r, 0, 1)))),
    "convolution": convolution,
    "fft": fft,
    "cholesky": lambda r: hlo.cholesky(var((*shape(r), 3, 3))),
    "triangular_solve": lambda r: hlo.triangular_solve(
        var((3, 3)),
        var((3, int(r.integers(1, 5)))),
        left_side=True,
        lower=True,
        unit_diagonal=False,
        transpose_a="NO_TRANSPOSE",
    ),
    "reduce": reduce,
    "reduce_window": reduce_window,
    "batch_norm": batch_norm,
    "tuple": lambda r: hlo.tuple(var(shape(r)), var(())),
    "element": lambda r: hlo.get_tuple_element(
        Var("t", TupleStructInfo([TensorStructInfo((2,)), TensorStructInfo((3,), "int8")])), index=1
    ),
    "barrier": lambda r: hlo.optimization_barrier(var(shape(r)), var(())),
    "token": lambda r: hlo.after_all(Var("t", ObjectStructInfo())),
    "create_token": lambda r: hlo.create_token(),
    "partition_id": lambda r: hlo.partition_id(),
    "all_to_all": lambda r: hlo.all_to_all(
        var((4, 6, *shape(r))),
        split_dimension=1,
        concat_dimension=int(r.integers(2)),
        split_count=2,
        replica_groups=((0, 1),),
    ),
    "chlo_erf": elementwise(chlo.erf, "float32", 1),
    "chlo_is_inf": elementwise(chlo.is_inf, "float32", 1),
    "chlo_broadcast_add": broadcasting(chlo.broadcast_add),
    "chlo_broadcast_compare": broadcasting(chlo.broadcast_compare, comparison_direction="EQ"),
    "chlo_broadcast_complex": broadcasting(chlo.broadcast_complex),
    "chlo_broadcast_dimensions": lambda r: chlo.broadcast_add(
        var((2, 3)), var((2, 3, 4)), broadcast_dimensions=(0, 1)
    ),
    "chlo_broadcast_select": lambda r: chlo.broadcast_select(
        var((1, 4), "bool"), var((3, 1)), var((4,))
    ),
    "chlo_top_k": lambda r: chlo.top_k(var((*shape(r), 9)), k=int(r.integers(1, 9))),
}


def module(call: Call) -> IRModule:
    """A module whose main makes ``call`` of its parameters."""
    params = [a for a in call.args if a not in REGIONS]
    params = list(dict.fromkeys(params))
    result = Var("y", call.struct_info)
    bindings = [VarBinding(a, REGIONS[a]) for a in call.args if a in REGIONS]
    block = BindingBlock([*bindings, VarBinding(result, call)])
    body = SeqExpr([block], Tuple([]))
    return IRModule({"main": Function(params, body, attrs={"global_symbol": "main"})})


@pytest.mark.parametrize("name", CASES)
def test_rule_is_mlirs(name: str) -> None:
    for seed in range(12):
        call = CASES[name](np.random.default_rng(seed))
        # MLIR's verifier compares the result type with what it infers itself.
        made = emit(module(call), CONTEXT)
        op = list(made.body.operations[0].operation.regions[0].blocks[0].operations)[-2].operation
        if not op.regions:
            assert inferred_types(op) in (None, [r.type for r in op.results]), call


def inferred_types(op: Any) -> list[ir.Type] | None:
    """What MLIR infers for an operation by itself; None where it only verifies."""
    with CONTEXT, ir.Location.unknown(), ir.InsertionPoint(op):
        try:
            made = ir.Operation.create(
                op.name,
                None,
                list(op.operands),
                {n: op.attributes[n] for n in op.attributes},
                infer_type=True,
            )
        except (ValueError, ir.MLIRError):
            return None
        return [r.type for r in made.results]


def test_a_dynamic_root_has_no_result() -> None:
    x, y, roots = var((2, 3)), var((4,)), var((2,), "int32")
    groups = {"replica_groups": ((0, 1),)}
    made = hlo.collective_broadcast(x, y, roots, **groups, has_dynamic_root=True)
    assert made.struct_info == TupleStructInfo([x.struct_info, y.struct_info])
    made = hlo.collective_broadcast(x, roots, **groups, has_dynamic_root=True)
    assert made.struct_info == x.struct_info


def test_every_rule_is_tested() -> None:
    tested = {CASES[n](np.random.default_rng(0)).op.row.infer for n in CASES}
    # `each` and `branches` repeat what their regions say; the round trips hold them.
    assert RULES.keys() - tested <= {"branches", "first", "second", "uint32_scalar"}


def test_symbolic_shapes() -> None:
    n = tir.Var("n", "int64")
    x = Var("x", TensorStructInfo((n, 4), "float32"))
    y = Var("y", TensorStructInfo((n, 6), "float32"))
    assert hlo.add(x, x).struct_info == x.struct_info
    assert hlo.concatenate(x, y, dimension=1).struct_info.dims == (n, 10)
    assert str(hlo.concatenate(x, x, dimension=0).struct_info.dims[0]) == "n * 2"
    padded = hlo.pad(
        x,
        var(()),
        edge_padding_low=(1, 0),
        edge_padding_high=(2, 0),
        interior_padding=(0, 0),
    )
    assert str(padded.struct_info.dims[0]) == "n + 3"
    assert hlo.transpose(x, permutation=(1, 0)).struct_info.dims == (4, n)
    z = Var("z", TensorStructInfo((5, 4), "float32"))
    assert hlo.add(x, z).struct_info.dims == (5, 4)
    assert str(sinfo_to_type_text(x.struct_info)) == "tensor<?x4xf32>"


def sinfo_to_type_text(info: StructInfo) -> str:
    with CONTEXT, ir.Location.unknown():
        return str(sinfo_to_type(info))


@pytest.mark.parametrize("args", [(0, 1), (1, 3), (7, 2), (5, 7)])
def test_window_size(args: tuple[int, int]) -> None:
    size, window = args
    padded = np.zeros(size + 3)
    reach = 2 * (window - 1) + 1
    starts = [i for i in range(0, len(padded), 2) if i + reach <= len(padded)]
    assert window_size(size, window, 2, (1, 2), 1, 2) == len(starts)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: hlo.transpose(var((2, 3)), permutation=(0, 0)), "must order the axes"),
    (lambda: hlo.concatenate(var((2,)), var((2, 3)), dimension=0), "ranks 1 and 2"),
    (lambda: hlo.slice(var((2,)), start_indices=(0,), limit_indices=(5,), strides=(1,)), "not fit"),
    (lambda: hlo.dot(var((2, 3)), var((4, 5))), "contracted dimensions differ: 3 and 4"),
    (lambda: hlo.add(var((2,)), var((2,), "int32")), "one dtype"),
    (lambda: hlo.complex(var((2,), "int32"), var((2,), "int32")), "float32 or float64"),
    (lambda: hlo.fft(var((4,)), fft_type="RFFT", fft_length=()), "do not fit the operands"),
    (lambda: chlo.top_k(var(()), k=1), "at least one dimension"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[w[1] for w in WRONG])
def test_errors_name_the_fault(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OpError, match=message) as caught:
        make()
    assert caught.value.__notes__


def test_rules_name_no_unknown_op() -> None:
    assert all(op.row.infer is None or op.row.infer in RULES for op in OPS.values())
