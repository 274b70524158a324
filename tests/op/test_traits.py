"""Every operator says where its elements come from; what passes derive from that is right.

The truth is the operator itself on other operands: on permuted ones (layouts), on parts (sharding),
on padded ones (buckets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import (
    Binding,
    Call,
    DataflowBlock,
    DeviceMesh,
    DTensorStructInfo,
    Expr,
    Function,
    Op,
    Placement,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import bindings_of, post_order
from relax2xla.ir.traits import (
    AsRow,
    Broadcasting,
    Channelwise,
    Commutative,
    Normalises,
    Opaque,
    Origin,
    Permutes,
    Pointwise,
    Recognised,
    Reduction,
    axes_of,
)
from relax2xla.op.__main__ import operators
from relax2xla.op.shared.sharding import FLOWS
from relax2xla.stablehlo.table import TABLE
from relax2xla.testing import evaluate
from relax2xla.transform.layout.propagation import ANY_ORDER, Order, Twins
from relax2xla.vm.call.padding import RULES, seen
from tests.transform.lower.dynamic_samples import SAMPLES, Sample, call
from tests.transform.lower.test_dynamic_rows import arrays, flat, module, operand, same

N = tir.Var("n", "int64")
OPERATORS = {made.name.removeprefix("relax."): made for made in operators()}


# Samples with an axis, or with one result, of operators that have another one without.
MORE: dict[str, Sample] = {
    "argmin": ((("n", 4),), call("argmin", axis=1)),
    "median": ((("n", 4, 3),), call("median", axis=[0, 1])),
    "topk": ((("n", 4),), call("topk", k=2, axis=1, ret_type="values")),
}
EVERY = {**SAMPLES, **MORE}
FORGOTTEN = (
    "say at its decorator where its elements come from, as in @op(name, Pointwise()), or Opaque() "
    "where passes may suppose nothing; relax2xla/ir/traits.py has the kinds"
)


def test_every_operator_has_one_origin() -> None:
    wrong = {
        name: made.traits
        for name, made in OPERATORS.items()
        if sum(isinstance(t, Origin) for t in made.traits) != 1
    }
    assert not wrong, f"{wrong}: {FORGOTTEN}"


def test_traits_fit_the_signatures() -> None:
    for name, made in OPERATORS.items():
        for trait in made.traits:
            for field in ("axis", "axes", "keepdims", "widths", "layout", "out"):
                said = getattr(trait, field, "")
                assert not said or said in made.attr_names, f"{name} has no attribute {said!r}"
        # What is recognised is called with operands alone.
        if made.has(Recognised):
            assert all(p.kind.operand for p in made.params if p.required), name
            assert made.has(Pointwise) or made.has(Broadcasting), name


def test_no_two_operators_are_one_row() -> None:
    rows = [t for made in OPERATORS.values() for t in made.traits if isinstance(t, AsRow)]
    rows += [AsRow(r) for m in OPERATORS.values() if (t := m.trait(Reduction)) for r in t.rows]
    reduced = [r for m in OPERATORS.values() if (t := m.trait(Reduction)) for r in t.rows]
    named = [t for t in rows if t.row not in reduced or t.on]
    assert len(named) == len(set(named))
    assert len(reduced) == len(set(reduced))


def test_rows_that_compute_each_element_say_so() -> None:
    """The rules of inference know which these are; what has such a rule and moves data is here."""
    rules = ("same", "real_part", "complex_of", "predicate", "selected", "clamped")
    moving = {
        *("stablehlo.constant", "stablehlo.reverse", "stablehlo.cross-replica-sum"),
        *("stablehlo.cholesky", "stablehlo.collective_permute", "interpreter.probe"),
        *("chlo.constant", "sdy.constant", "sdy.sharding_constraint", "sdy.reshard"),
        "sdy.propagation_barrier",
    }
    found = {
        row.mlir_name
        for row in TABLE.values()
        if row.infer in rules and Pointwise() not in row.traits
    }
    assert found == moving, "give the row a trait in relax2xla/stablehlo/table.py"
    for row in TABLE.values():
        assert Commutative() not in row.traits or len(row.operands) == 2


# ---- layouts
class _Seeded(Twins):
    """Every parameter has a twin with its last axis first; nothing else asks for an order."""

    def __init__(self) -> None:
        super().__init__({})
        self.seeds: dict[Var, Var] = {}

    def binding(self, b: Binding) -> None:
        super().binding(b)
        if isinstance(b, VarBinding) and isinstance(b.value, Var):
            ndim = b.var.struct_info.ndim  # type: ignore[attr-defined]
            if ndim > 1:
                order: Order = (ndim - 1, *range(ndim - 1))
                twin = self.bind(self.permuted(b.var, order), "twin")
                self.twins[b.var] = (twin, order)
                self.seeds[b.var] = twin


def _taking(kinds: Sequence[Any]) -> list[str]:
    """Samples of the operators with one of these traits, whose result is one tensor."""
    found: list[str] = []
    for name in EVERY:
        made = OPERATORS[name]
        single = isinstance(_result(name, {"n": 4}), TensorStructInfo)
        if single and any(type(t) in kinds for t in made.traits):
            found.append(name)
    return found


def _result(name: str, sizes: dict[str, Any]) -> Any:
    operands, make = EVERY[name]
    return make(*(Var("x", operand(o, sizes)) for o in operands)).struct_info


def _function(names: Sequence[str]) -> Function:
    """The calls of the samples, each of variables that are bound to its parameters."""
    params: list[Var] = []
    bindings: list[Binding] = []
    results: list[Expr] = []
    for name in names:
        operands, make = EVERY[name]
        seeds: list[Var] = []
        for o in operands:
            p = Var(f"p{len(params)}", operand(o, {"n": 4}))
            params.append(p)
            seeds.append(Var(f"seed{len(params)}", p.struct_info))
            bindings.append(VarBinding(seeds[-1], p))
        out = Var(f"out_{name}", make(*seeds).struct_info)
        bindings.append(VarBinding(out, make(*seeds)))
        results.append(out)
    block = DataflowBlock(bindings)
    return Function(params, SeqExpr([block], Tuple(results)))


def test_operators_keep_their_numbers_in_another_order_of_axes() -> None:
    names = _taking([k for k in ANY_ORDER if isinstance(k, type)])
    before = _function(names)
    seeded = _Seeded()
    after = seeded.function(before)
    # What has an element-wise trait must take the twins, whatever its attributes.
    reading = {
        v: b.value
        for b in bindings_of(after.body)
        if isinstance(b.value, Call) and b.value.op is not Op.get("relax.permute_dims")
        for v in post_order(b.value)
        if isinstance(v, Var) and v in seeded.seeds
    }
    kept = {b.op.name.removeprefix("relax.") for b in reading.values() if isinstance(b.op, Op)}
    assert kept <= {"reshape", "flatten", "nn.batch_flatten"}, (
        f"{kept}: their traits say that layouts go through, but no rule of _twins.py took the call"
    )
    inputs = arrays(_as_module(before))
    same(evaluate(after, inputs), evaluate(before, inputs))


def _as_module(func: Function) -> Any:
    return {"main": func}


# ---- sharding
def _parts(name: str, inputs: Sequence[Any]) -> Iterator[tuple[int, int, list[list[Any]]]]:
    """Axes of the first operand that go on, where, and the operands cut in two along them."""
    operands, make = EVERY[name]
    infos = [operand(o, {"n": 4}) for o in operands]
    whole = make(*(Var("x", i) for i in infos))
    assert isinstance(whole, Call)
    (flow,) = (FLOWS[type(t)] for t in OPERATORS[name].traits if type(t) in FLOWS)
    tensors = [i for i in infos if isinstance(i, TensorStructInfo)]
    out: Any = whole.struct_info
    flows = flow(whole, tensors, out)
    for axis, to in flows[0].items():
        if inputs[0].shape[axis] % 2:
            continue
        halves: list[list[Any]] = [[], []]
        for x, own in zip(inputs, flows, strict=True):
            cut = [i for i, at in own.items() if at == to]
            for half, part in zip(halves, np.split(x, 2, cut[0]) if cut else (x, x), strict=True):
                half.append(part)
        yield axis, to, halves


def _cuttable() -> list[str]:
    names = _taking(tuple(FLOWS))
    # These state the size that is cut, or work on several devices only.
    stated = {"broadcast_to", "ccl.allreduce", "reshape"}
    return [n for n in names if n not in stated]


def test_axes_that_go_on_may_be_cut() -> None:
    """The parts, computed apart, are parts of the whole: so no device needs another's."""
    names = _cuttable()
    params: dict[Var, Any] = {}
    results: list[Expr] = []
    cuts: list[tuple[str, int]] = []

    def var(x: Any) -> Var:
        made = Var(f"x{len(params)}", TensorStructInfo(x.shape, str(x.dtype)))
        params[made] = x
        return made

    for name in names:
        inputs = arrays(module([name], {"n": 4}, EVERY))
        make = EVERY[name][1]
        for _, to, halves in _parts(name, inputs):
            cuts.append((name, to))
            results += [make(*map(var, xs)) for xs in (inputs, *halves)]
    values = evaluate(Tuple(results), params)
    for i, (name, to) in enumerate(cuts):
        whole, *halves = values[3 * i : 3 * i + 3]
        np.testing.assert_allclose(
            np.concatenate(halves, to).astype("float64"),
            whole.astype("float64"),
            rtol=1e-5,
            atol=1e-6,
            err_msg=f"{name}, axis {to} of the result",
        )
    assert {name for name, _ in cuts} >= {n for n in names if OPERATORS[n].has(Pointwise)}


MESH = DeviceMesh((2,), [0, 1])


@pytest.mark.parametrize("name", _cuttable())
def test_results_are_cut_as_the_flow_of_the_trait_says(name: str) -> None:
    operands, make = EVERY[name]
    infos = [operand(o, {"n": 4}) for o in operands]
    whole = Placement((None,))
    for axis, to, _ in _parts(name, [np.zeros(i.dims, i.dtype) for i in infos]):
        placed = [Placement((axis,)), *[whole] * (len(infos) - 1)]
        args = [Var("x", DTensorStructInfo(i, MESH, p)) for i, p in zip(infos, placed, strict=True)]
        made = make(*args).struct_info
        assert isinstance(made, DTensorStructInfo)
        assert made.placement.axes == (to,), name


def test_several_results_of_distributed_tensors_are_refused() -> None:
    x = Var("x", DTensorStructInfo(TensorStructInfo((4, 4), "float32"), MESH, Placement((0,))))
    with pytest.raises(OpError, match="must give one tensor"):
        op.split(x, 2, axis=1)
    with pytest.raises(OpError, match="takes no distributed tensors"):
        op.tril(x)


@pytest.mark.parametrize(
    "make",
    [
        *(op.nn.relu6, op.nn.selu, op.nn.softplus, op.nn.leakyrelu),
        lambda x: op.clip(x, 0, 1),
        lambda x: op.astype(x, "float16"),
        lambda x: op.atan2(x, x),
        lambda x: op.where(op.greater(x, x), x, x),
        lambda x: op.nn.log_softmax(x, 1),
    ],
)
def test_operators_whose_sharding_was_lost(make: Callable[[Expr], Expr]) -> None:
    x = Var("x", DTensorStructInfo(TensorStructInfo((4, 6), "float32"), MESH, Placement((0,))))
    info = make(x).struct_info
    assert isinstance(info, DTensorStructInfo)
    assert info.placement.axes == (0,)


# ---- padding
def _axes_of(info: Any) -> list[list[int]]:
    """Where ``n`` is in a result, tensor by tensor."""
    if isinstance(info, TupleStructInfo):
        return [axes for f in info.fields for axes in _axes_of(f)]
    return [[i for i, d in enumerate(info.dims or ()) if d is N]]


def test_padding_is_not_seen_where_positions_stay_apart() -> None:
    names: list[str] = []
    for name in EVERY:
        if not any(type(t) in RULES for t in OPERATORS[name].traits):
            continue
        main = module([name], {"n": N}, EVERY)["main"]
        reason = seen(main, N)
        free = (Pointwise, Broadcasting, Channelwise, Permutes)
        assert reason is None or not any(map(OPERATORS[name].has, free)), f"{name}: {reason}"
        if reason is None:
            names.append(name)
    small, large = (module(names, {"n": n}, EVERY) for n in (3, 5))
    inputs = arrays(small)
    symbolic = module(names, {"n": N}, EVERY)["main"]
    wide = [
        _padded(x, _axes_of(p.struct_info)[0]) for x, p in zip(inputs, symbolic.params, strict=True)
    ]
    exact, padded = flat(evaluate(small, inputs)), flat(evaluate(large, wide))
    cut = [
        y[tuple(slice(3) if i in axes else slice(None) for i in range(y.ndim))]
        for y, axes in zip(padded, _axes_of(symbolic.ret_struct_info), strict=True)
    ]
    same(tuple(cut), tuple(exact))


def _padded(x: Any, axes: Sequence[int]) -> Any:
    for axis in axes:
        x = np.concatenate([x, np.repeat(x.take([-1], axis=axis), 2, axis=axis)], axis=axis)
    return x


def test_helpers() -> None:
    assert axes_of(None, 2) == (0, 1)
    assert axes_of(-1, 3) == (2,)
    assert axes_of([0, -1], 3) == (0, 2)
    exp, softmax = Op.get("relax.exp"), Op.get("relax.nn.layer_norm")
    assert exp.has(Pointwise)
    assert not exp.has(Opaque)
    assert softmax.trait(Normalises) == Normalises("axes")
    assert softmax.trait(Pointwise) is None
