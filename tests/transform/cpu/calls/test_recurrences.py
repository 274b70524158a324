"""CallRecurrences: which loops become one call, which stay, and that all compute what they did."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import relax2xla as rx
from relax2xla import op as R
from relax2xla.frontend.onnx import from_onnx
from relax2xla.frontend.torch import from_exported_program
from relax2xla.importers.shared import loops
from relax2xla.ir import Expr
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.recurrences import CallRecurrences
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("quickly_compiled"),
]

RNG = np.random.default_rng(3)
T, B, GIVEN, H = 5, 2, 6, 20


def calls(mod: rx.IRModule) -> list[dict[str, Any]]:
    """The attributes of the composites that the pass makes."""
    made = CallRecurrences()(CanonicalizeBindings()(mod))
    values = [b.value for b in bindings_deep(made["main"])]
    return [
        v.attrs["composite_attributes"] for v in values if is_op(v, "relax.stablehlo.composite")
    ]


# -- torch -----------------------------------------------------------------------------------------
class Layers(torch.nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.layers = getattr(torch.nn, kind)(GIVEN, H, **options)

    def forward(self, x: Any, *states: Any) -> Any:
        y, last = self.layers(x, states if len(states) > 1 else states[0] if states else None)
        return y, *(last if isinstance(last, tuple) else (last,))


LAYERS: list[tuple[str, dict[str, Any], int]] = [
    ("LSTM", {}, 1),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}, 4),
    ("LSTM", {"bias": False}, 1),
    ("LSTM", {"proj_size": 3}, 0),
    ("GRU", {"bidirectional": True}, 2),
    ("GRU", {"bias": False}, 1),
    ("RNN", {"bidirectional": True}, 2),
    ("RNN", {"nonlinearity": "relu"}, 1),
]


@pytest.mark.parametrize(("kind", "options", "wanted"), LAYERS, ids=range(len(LAYERS)))
def test_layers_of_torch(kind: str, options: dict[str, Any], wanted: int) -> None:
    torch.manual_seed(1)
    layers = Layers(kind, **options).eval()
    given = [torch.randn(B, T, GIVEN) if options.get("batch_first") else torch.randn(T, B, GIVEN)]
    if not options:
        given += [torch.randn(1, B, H), torch.randn(1, B, H)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = from_exported_program(torch.export.export(layers, tuple(given)))
    assert len(calls(mod)) == wanted
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    got = run(*(g.numpy() for g in given))
    with torch.no_grad():
        for a, b in zip(got, layers(*given), strict=True):
            np.testing.assert_allclose(np.asarray(a), b.numpy(), atol=1e-6)


def test_a_weight_that_comes_with_the_call_stays_in_the_loop() -> None:
    layers = Layers("RNN").eval()
    exported = torch.export.export(layers, (torch.randn(T, B, GIVEN),))
    assert not calls(from_exported_program(exported, keep_params_as_input=True))


def test_many_rows_stay_in_the_loop() -> None:
    layers = Layers("LSTM").eval()
    assert not calls(
        from_exported_program(torch.export.export(layers, (torch.randn(2, 40, GIVEN),)))
    )


# -- ONNX ------------------------------------------------------------------------------------------
def recurrent(kind: str, direction: str, lens: bool = False, **attributes: Any) -> Any:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    turns = 2 if direction == "bidirectional" else 1
    shapes = {"W": (gates * H, GIVEN), "R": (gates * H, H), "B": (2 * gates * H,)}
    weights = {k: RNG.standard_normal((turns, *s), "float32") * 0.3 for k, s in shapes.items()}
    outs = ["Y", "Y_h", *(["Y_c"] if kind == "LSTM" else [])]
    extra = []
    if lens:
        extra, weights["lens"] = ["lens"], np.array([T, T - 2], "int32")
    node = helper.make_node(
        kind, ["X", *"WRB", *extra], outs, hidden_size=H, direction=direction, **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [T, B, GIVEN])],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs],
        [numpy_helper.from_array(w, k) for k, w in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


NODES: list[tuple[str, str, dict[str, Any], int]] = [
    ("LSTM", "bidirectional", {}, 2),
    ("LSTM", "reverse", {"clip": 0.5}, 0),
    ("LSTM", "forward", {"lens": True}, 0),
    ("LSTM", "forward", {"input_forget": 1}, 0),
    ("LSTM", "forward", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, 0),
    ("GRU", "bidirectional", {"linear_before_reset": 1}, 2),
    ("GRU", "forward", {}, 0),
    ("RNN", "reverse", {"activations": ["Relu"]}, 1),
]


@pytest.mark.parametrize(("kind", "direction", "options", "wanted"), NODES, ids=range(len(NODES)))
def test_nodes_of_onnx(kind: str, direction: str, options: dict[str, Any], wanted: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = recurrent(kind, direction, **options)
    x = RNG.standard_normal((T, B, GIVEN), "float32")
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"X": x})
    mod = from_onnx(model)
    assert len(calls(mod)) == wanted
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, atol=2e-6)


# -- loops that look like a cell -------------------------------------------------------------------
Step = Callable[[rx.BlockBuilder, Expr, Expr, Expr], Expr]
WEIGHT = rx.const(RNG.standard_normal((H, H), "float32") * 0.2)
ROW_OF_BIASES = rx.const(RNG.standard_normal((1, H), "float32"))
# As many numbers as a state has, of which each row of the batch gets one.
COLUMN = rx.const(RNG.standard_normal((H, 1), "float32"))


def stepped(
    step: Step,
    batch: int = B,
    written: Callable[[Expr], Expr] = lambda i: i,
    read: Callable[[Expr], Expr] = lambda i: i,
    begin: int = 0,
    end: int = T,
) -> rx.IRModule:
    """A ``while`` over rows [T, batch, H] that collects its states."""
    rows = rx.Var("rows", rx.TensorStructInfo((T, batch, H), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [rows]):
        with bb.dataflow():
            state = bb.emit(R.zeros((batch, H), "float32"))
            stack = bb.emit(R.zeros((T, batch, H), "float32"))

            def body(values: Any) -> Any:
                h, taken, i = values
                row = bb.emit(loops.element(rows, bb.emit(read(i)), 0))
                new = bb.emit(step(bb, row, h, i))
                put = loops.put(taken, new, bb.emit(written(i)), 0)
                return [new, put, R.add(i, loops.number(1))]

            def going(values: Any) -> Expr:
                return R.less(values[2], loops.number(end))

            first = bb.emit(loops.number(begin))
            made = loops.while_loop(bb, going, body, [state, stack, first])
            out = bb.emit_output(rx.Tuple(list(made)))
        bb.emit_func_output(out)
    return bb.get()


def plain(bb: rx.BlockBuilder, row: Expr, h: Expr, i: Expr) -> Expr:
    return R.tanh(R.add(R.add(row, R.matmul(h, WEIGHT)), ROW_OF_BIASES))


def back(i: Expr) -> Expr:
    return R.subtract(loops.number(T - 1), i)


LOOPS: dict[str, tuple[dict[str, Any], int]] = {
    "a cell": ({"step": plain}, 1),
    "backwards": ({"step": plain, "written": back, "read": back}, 1),
    "two biases": ({"step": lambda bb, row, h, i: R.tanh(R.add(plain_sum(row, h), _B))}, 1),
    "written backwards": ({"step": plain, "written": back}, 0),
    "fewer steps": ({"step": plain, "end": T - 1}, 0),
    "not from the first step on": ({"step": plain, "begin": 1}, 0),
    "a bias of each row of the batch": (
        {"step": lambda bb, row, h, i: R.tanh(R.add(plain_sum(row, h), COLUMN)), "batch": H},
        0,
    ),
    "a row twice": ({"step": lambda bb, row, h, i: R.tanh(R.add(plain_sum(row, h), row))}, 0),
    "a product twice": (
        {"step": lambda bb, row, h, i: R.tanh(R.add(plain_sum(row, h), R.matmul(h, WEIGHT)))},
        0,
    ),
    "a product of the row": (
        {"step": lambda bb, row, h, i: R.tanh(R.add(R.matmul(row, WEIGHT), h))},
        0,
    ),
    "what the step is": (
        {
            "step": lambda bb, row, h, i: R.tanh(
                R.add(plain_sum(row, h), R.astype(i, "float32")),
            )
        },
        0,
    ),
    "a gate": (
        {"step": lambda bb, row, h, i: R.multiply(R.sigmoid(row), R.tanh(plain_sum(row, h)))},
        0,
    ),
}


def plain_sum(row: Expr, h: Expr) -> Expr:
    return R.add(R.matmul(h, WEIGHT), row)


_B = R.add(ROW_OF_BIASES, ROW_OF_BIASES)


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.kernels import recurrences

    monkeypatch.setattr(recurrences, "_FEW", 100)
    options, wanted = LOOPS[name]
    mod = stepped(**options)
    assert len(calls(mod)) == wanted
    rows = RNG.standard_normal(mod["main"].params[0].struct_info.dims, "float32")
    expected = evaluate(mod["main"], [rows])
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](rows)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=2e-6)


def test_the_form_is_not_taken_for_another_loop() -> None:
    mod = CanonicalizeBindings()(stepped(plain))
    made = CallRecurrences()(mod)
    assert made is not mod
    assert CallRecurrences()(made) is made
