"""Loops, scans, branches and recurrences against ONNX Runtime; the loop helpers against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

import relax2xla
from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.loops import NotInvariant, Stack
from relax2xla.ir import Constant, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.testing import evaluate
from tests.importers.onnx.support import agree, model_of, one, ours, value

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


# -- the helpers ---------------------------------------------------------------------------------
def built(params: list[Var], make: Any) -> IRModule:
    bb = BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(make(bb))
        bb.emit_func_output(out)
    return bb.get()


def const(v: Any) -> Constant:
    return Constant(np.asarray(v))


def test_while_with_a_computed_end_sees_outer_values() -> None:
    x = Var("x", TensorStructInfo((), "float32"))
    step = Var("s", TensorStructInfo((), "float32"))

    def make(bb: BlockBuilder) -> Any:
        twice = bb.emit(R.add(step, step))
        cond = lambda v: R.less(v[0], const(np.float32(10)))  # noqa: E731
        return loops.while_loop(bb, cond, lambda v: [R.add(v[0], twice)], [x])[0]

    got = evaluate(built([x, step], make), [np.float32(1), np.float32(2)])
    assert got == 13


def test_scan_stacks_rows_on_any_axis_and_backwards() -> None:
    x = Var("x", TensorStructInfo((4, 3), "float32"))

    def make(bb: BlockBuilder) -> Any:
        def body(i: Any, values: Any) -> Any:
            total = bb.emit(R.add(values[0], loops.element(x, i, 0)))
            return [total], [total, R.exp(total)]

        zero = R.zeros((3,), "float32")
        last, rows = loops.scan(bb, 4, body, [zero], [Stack(1), Stack(0, reverse=True)])
        return Tuple([*last, *rows])

    data = f(4, 3)
    last, rows, backwards = evaluate(built([x], make), [data])
    sums = np.cumsum(data, 0)
    np.testing.assert_allclose(last, sums[-1], rtol=1e-5)
    np.testing.assert_allclose(rows, sums.T, rtol=1e-5)
    np.testing.assert_allclose(backwards, np.exp(sums)[::-1], rtol=1e-5)


def test_scan_of_no_iterations_and_of_a_body_that_changes_a_shape() -> None:
    x = Var("x", TensorStructInfo((2,), "float32"))

    def none(bb: BlockBuilder) -> Any:
        last, rows = loops.scan(bb, 0, lambda i, v: ([v[0]], [v[0]]), [x], [Stack()])
        return Tuple([*last, *rows])

    last, rows = evaluate(built([x], none), [f(2)])
    assert last.shape == (2,)
    assert rows.shape == (0, 2)
    with pytest.raises(NotInvariant, match="carries"):
        built(
            [x], lambda bb: loops.scan(bb, 2, lambda i, v: ([R.concat([x, v[0]])], []), [x], [])[0]
        )


# -- Loop ----------------------------------------------------------------------------------------
def tensor(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def body_of(nodes: list[Any], outputs: list[Any], shape: Any = (3,)) -> Any:
    inputs = [tensor("i", (), TensorProto.INT64), tensor("go", (), TensorProto.BOOL)]
    return helper.make_graph(nodes, "body", [*inputs, tensor("v", shape)], outputs)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


STAY = node("Identity", ["go"], ["on"])
ON = tensor("on", (), TensorProto.BOOL)


def test_loop_with_rows_and_outer_values() -> None:
    body = body_of(
        [STAY, node("Add", ["v", "w"], ["n"]), node("Mul", ["n", "n"], ["row"])],
        [ON, tensor("n", (3,)), tensor("row", (3,))],
    )
    model = model_of(
        [node("Loop", ["count", "", "x"], ["y", "rows"], body=body)],
        [value("x", f(3)), value("w", f(3))],
        ["y", "rows"],
        weights={"count": np.array(5, np.int64)},
    )
    agree(model, [f(3), f(3)])


def test_loop_whose_condition_and_count_are_computed() -> None:
    body = body_of(
        [
            node("Add", ["v", "v"], ["n"]),
            node("ReduceSum", ["n"], ["s"], keepdims=0),
            node("Less", ["s", "limit"], ["on"]),
        ],
        [ON, tensor("n", (3,))],
    )
    model = model_of(
        [node("Loop", ["count", "start", "x"], ["y"], body=body)],
        [
            value("x", f(3)),
            value("count", np.array(0, np.int64), ()),
            value("start", np.array(True), ()),
            value("limit", f(1)[0], ()),
        ],
    )
    ones = np.ones(3, np.float32)
    for count, start, limit in ((100, True, 50.0), (2, True, 50.0), (5, False, 50.0)):
        inputs = [ones, np.array(count), np.array(start), np.array(limit, np.float32)]
        agree(model, inputs)


def test_loop_that_grows_is_written_out() -> None:
    body = body_of(
        [STAY, node("Concat", ["v", "x"], ["n"], axis=0)], [ON, tensor("n", (None,))], (None,)
    )
    model = model_of(
        [node("Loop", ["count", "", "x"], ["y"], body=body)],
        [value("x", f(3))],
        weights={"count": np.array(4, np.int64)},
    )
    x = f(3)
    np.testing.assert_array_equal(ours(model, [x])[0], np.tile(x, 5))


@pytest.mark.filterwarnings("ignore")
def test_loop_whose_rows_depend_on_its_condition() -> None:
    body = body_of(
        [
            node("Add", ["v", "v"], ["n"]),
            node("ReduceSum", ["n"], ["s"], keepdims=0),
            node("Less", ["s", "limit"], ["on"]),
        ],
        [ON, tensor("n", (3,)), tensor("n", (3,))],
    )
    model = model_of(
        [node("Loop", ["", "start", "x"], ["y", "rows"], body=body, name="the_loop")],
        [value("x", f(3)), value("limit", f(1)[0], ())],
        ["y", "rows"],
        weights={"start": np.array(True)},
    )
    x = np.ones(3, np.float32)
    for limit in (-1, 20):
        agree(model, [x, np.array(limit, np.float32)])


def test_loop_whose_values_and_rows_grow_by_a_computed_number_of_iterations() -> None:
    """Values that change their size, beside rows that are sums, of which there may be none."""
    body = body_of(
        [
            node("Concat", ["v", "x"], ["n"], axis=0),
            node("ReduceSum", ["n"], ["s"], keepdims=1),
            node("Identity", ["go"], ["on"]),
        ],
        [ON, tensor("n", ("k",)), tensor("s", (1,))],
    )
    body.input[2].CopyFrom(tensor("v", ("m",)))
    model = model_of(
        [
            node("Loop", ["count", "", "x"], ["last", "rows"], body=body),
            node("Mul", ["last", "last"], ["y"]),
        ],
        [value("x", f(3)), value("count", np.array(0, np.int64))],
        ["y", "rows"],
    )
    for count in (0, 1, 4):
        agree(model, [f(3), np.array(count, np.int64)])


@pytest.mark.filterwarnings("ignore")
def test_loop_in_a_loop_costs_no_more_at_each_level() -> None:
    """An inner loop is not tried again in every way for each way of the outer one."""
    inner: Any = None
    for depth in range(12):
        nodes = [node("Add", ["v", "v"], [f"n{depth}"])]
        if inner is not None:
            nodes = [node("Loop", ["count", "", "v"], [f"n{depth}"], body=inner)]
        nodes += [
            node("ReduceSum", [f"n{depth}"], [f"s{depth}"], keepdims=0),
            node("Less", [f"s{depth}", "limit"], [f"on{depth}"]),
        ]
        inner = helper.make_graph(
            nodes,
            f"b{depth}",
            [
                tensor(f"i{depth}", (), TensorProto.INT64),
                tensor(f"go{depth}", (), TensorProto.BOOL),
                tensor("v", (2,)),
            ],
            [tensor(f"on{depth}", (), TensorProto.BOOL), tensor(f"n{depth}", (2,))],
        )
    model = model_of(
        [node("Loop", ["count", "", "x"], ["y"], body=inner)],
        [value("x", f(2)), value("limit", f(1)[0], ())],
        weights={"count": np.array(2, np.int64)},
    )
    assert from_onnx(model)["main"].ret_struct_info.dims == (2,)


# -- Scan, If ------------------------------------------------------------------------------------
def test_scan_with_axes_and_directions() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "a"], ["t"]), node("Mul", ["t", "b"], ["row"])],
        "body",
        [tensor("s", (2,)), tensor("a", (2,)), tensor("b", (2,))],
        [tensor("t", (2,)), tensor("row", (2,))],
    )
    scan = node(
        "Scan",
        ["s0", "a0", "b0"],
        ["t", "rows"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[1, 0],
        scan_input_directions=[1, 0],
        scan_output_axes=[1],
        scan_output_directions=[1],
    )
    inputs = [f(2), f(2, 5), f(5, 2)]
    model = model_of(
        [scan],
        [value(n, a) for n, a in zip(("s0", "a0", "b0"), inputs, strict=True)],
        ["t", "rows"],
    )
    agree(model, inputs)


def branch(name: str, nodes: list[Any], out: str) -> Any:
    return helper.make_graph(nodes, name, [], [tensor(out, None)])


@pytest.mark.parametrize("inside", [False, True])
def test_if_in_a_loop_and_alone(inside: bool) -> None:
    choose = node(
        "If",
        ["c"],
        ["n"],
        then_branch=branch("a", [node("Add", ["v", "w"], ["p"])], "p"),
        else_branch=branch("b", [node("Sub", ["v", "w"], ["q"])], "q"),
    )
    nodes = [
        node("ReduceSum", ["v"], ["s"], keepdims=0),
        node("Less", ["s", "zero"], ["c"]),
        choose,
    ]
    weights = {"zero": np.array(0, np.float32), "count": np.array(3, np.int64)}
    if inside:
        body = body_of([STAY, *nodes], [ON, tensor("n", (3,))])
        top = [node("Loop", ["count", "", "v0"], ["y"], body=body)]
        model = model_of(top, [value("v0", f(3)), value("w", f(3))], weights=weights)
    else:
        top = [*nodes, node("Identity", ["n"], ["y"])]
        model = model_of(top, [value("v", f(3)), value("w", f(3))], weights=weights)
    for _ in range(3):
        agree(model, [f(3), f(3)])


def test_if_with_branches_of_different_shapes() -> None:
    choose = node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("a", [node("Concat", ["x", "x"], ["p"], axis=0)], "p"),
        else_branch=branch("b", [node("Neg", ["x"], ["q"])], "q"),
    )
    model = model_of([choose], [value("x", f(3)), value("c", np.array(True), ())])
    for c in (True, False):
        agree(model, [f(3), np.array(c)])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_if_with_branches_of_different_dtypes_must_know_its_condition() -> None:
    choose = node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("a", [node("Neg", ["x"], ["p"])], "p"),
        else_branch=branch("b", [node("Shape", ["x"], ["q"])], "q"),
    )
    model = model_of([choose], [value("x", f(3)), value("c", np.array(True), ())])
    with pytest.raises(OpNotImplemented, match="the branches differ"):
        from_onnx(model)


# -- recurrences ---------------------------------------------------------------------------------
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OTHER = {
    "RNN": ["LeakyRelu"],
    "GRU": ["HardSigmoid", "ScaledTanh"],
    "LSTM": ["HardSigmoid", "Elu", "Softsign"],
}
SCALES = {"ScaledTanh": (1.5, 0.5), "HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.2, 0.0),
          "Elu": (0.7, 0.0)}  # fmt: skip


def recurrence(op: str, direction: str, **form: Any) -> tuple[onnx.ModelProto, list[Any]]:
    d, h, steps, batch, size = (2 if direction == "bidirectional" else 1), 4, 5, 3, 2
    g = GATES[op]
    arrays: list[Any] = [f(steps, batch, size), f(d, g * h, size), f(d, g * h, h)]
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": h}
    more = form.pop("more", True)
    if more:
        arrays += [f(d, 2 * g * h), np.array([5, 2, 3], np.int32), f(d, batch, h)]
        if op == "LSTM":
            arrays += [f(d, batch, h), f(d, 3 * h)]
    attributes |= form
    return one(op, arrays, outputs=3 if op == "LSTM" else 2, opset=14, **attributes)


@pytest.mark.parametrize(
    ("op", "direction", "more"),
    [
        ("RNN", "bidirectional", True),
        ("GRU", "forward", False),
        ("GRU", "reverse", True),
        ("LSTM", "reverse", False),
        ("LSTM", "bidirectional", True),
    ],
)
def test_recurrences(op: str, direction: str, more: bool) -> None:
    model, inputs = recurrence(op, direction, more=more)
    agree(model, inputs)


@pytest.mark.parametrize("op", list(GATES))
def test_recurrences_with_other_activations_and_clip(op: str) -> None:
    names = OTHER[op]
    pairs = [SCALES[n] for n in names if n in SCALES]
    betas = [SCALES[n][1] for n in names if n in ("ScaledTanh", "HardSigmoid")]
    form: dict[str, Any] = {
        "activations": names,
        "activation_alpha": [a for a, _ in pairs],
        "clip": 0.8,
    }
    if betas:
        form["activation_beta"] = betas
    model, inputs = recurrence(op, "forward", **form)
    agree(model, inputs)


@pytest.mark.parametrize(("op", "form"), [("GRU", {"linear_before_reset": 1}),
                                          ("LSTM", {"input_forget": 1})])  # fmt: skip
def test_recurrences_own_forms(op: str, form: dict[str, Any]) -> None:
    model, inputs = recurrence(op, "bidirectional", **form)
    agree(model, inputs)


def test_a_recurrence_over_a_symbolic_length() -> None:
    model, inputs = recurrence("LSTM", "bidirectional", more=False)
    for at, name in enumerate(("steps", "batch")):
        model.graph.input[0].type.tensor_type.shape.dim[at].dim_param = name
    agree(model, inputs)


@pytest.mark.parametrize("op", list(GATES))
def test_states_of_a_fixed_batch_beside_a_symbolic_one_say_the_batch(op: str) -> None:
    model, inputs = recurrence(op, "bidirectional")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    agree(model, inputs)


@pytest.mark.parametrize("batch", [3, 1])
def test_a_scan_whose_state_has_a_fixed_batch_beside_a_symbolic_one(batch: int) -> None:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["e", "w"], ["t"]),
        helper.make_node("Add", ["t", "s"], ["next"]),
        helper.make_node("Tanh", ["next"], ["row"]),
    ]
    ins = [info(n, TensorProto.FLOAT, None) for n in ("s", "e")]
    outs = [info(n, TensorProto.FLOAT, None) for n in ("next", "row")]
    body = helper.make_graph(nodes, "body", ins, outs)
    node = helper.make_node("Scan", ["s0", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    weights, x = {"w": f(2, 4), "s0": f(batch, 4)}, f(5, batch, 2)
    ins = [value("x", x, ["steps", "batch", 2])]
    model = model_of([node], ins, ["last", "y"], weights=weights)
    agree(model, [x])
    if batch == 1:
        machine = relax2xla.VirtualMachine(relax2xla.build(from_onnx(model)))
        with pytest.raises(ValueError, match="expected 1"):
            machine["main"](f(5, 2, 2))


def test_another_batch_than_that_of_the_states_is_an_error() -> None:
    model, inputs = recurrence("GRU", "forward")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "batch"
    machine = relax2xla.VirtualMachine(relax2xla.build(from_onnx(model)))
    with pytest.raises(ValueError, match="expected 3"):
        machine["main"](f(5, 2, 2), *inputs[1:])


def test_an_activation_without_its_scales_is_an_error() -> None:
    model, _ = recurrence("RNN", "forward", activations=["ScaledTanh"])
    with pytest.raises(ValueError, match="activation_alpha"):
        from_onnx(model)
