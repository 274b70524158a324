"""Losses and optimisers beside torch's, AppendLoss, and a trainer beside a loop in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from relax2xla import BlockBuilder, VirtualMachine, build, cpu, op
from relax2xla.errors import TransformError, TVMError
from relax2xla.ir import Function, IRModule, TensorStructInfo, TupleStructInfo, Var
from relax2xla.ir.check import well_formed
from relax2xla.testing import evaluate
from relax2xla.training import AppendLoss, SetupTrainer, Trainer
from relax2xla.training.loss import (
    CategoricalCrossEntropyLoss,
    CrossEntropyLoss,
    L1Loss,
    Loss,
    MSELoss,
)
from relax2xla.training.optimizer import SGD, Adam, MomentumSGD, Optimizer

RNG = np.random.default_rng(3)
LOGITS = RNG.normal(size=(5, 4)).astype(np.float32)
OTHERS = RNG.normal(size=(5, 4)).astype(np.float32)
CLASSES = np.array([0, 3, 1, 1, 2])
WEIGHTS = np.float32([1, 2, 0.5, 3])


def infos(*arrays: Any) -> list[TensorStructInfo]:
    return [TensorStructInfo(a.shape, str(a.dtype)) for a in arrays]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction: str) -> None:
    t, u, c, w = (torch.from_numpy(a) for a in (LOGITS, OTHERS, CLASSES, WEIGHTS))
    one_hot = np.eye(4, dtype=np.int32)[CLASSES]
    more: dict[str, Any] = {"reduction": reduction}
    every = -F.log_softmax(t, 1) * torch.from_numpy(one_hot)
    whole = {"mean": torch.mean, "sum": torch.sum}.get(reduction, lambda x: x)
    rows: list[tuple[Any, list[Any], torch.Tensor]] = [
        (L1Loss(reduction), [LOGITS, OTHERS], F.l1_loss(t, u, **more)),
        (MSELoss(reduction), [LOGITS, OTHERS], F.mse_loss(t, u, **more)),
        (CrossEntropyLoss(reduction), [LOGITS, CLASSES], F.cross_entropy(t, c, **more)),
        (
            CrossEntropyLoss(reduction, ignore_index=1),
            [LOGITS, CLASSES, WEIGHTS],
            F.cross_entropy(t, c, w, ignore_index=1, **more),
        ),
        (CategoricalCrossEntropyLoss(reduction), [LOGITS, one_hot], whole(every)),
        (CategoricalCrossEntropyLoss(reduction), [LOGITS, one_hot, WEIGHTS], whole(every * w)),
        (
            CategoricalCrossEntropyLoss(reduction, ignore_index=1),
            [LOGITS, one_hot],
            F.cross_entropy(t, c, ignore_index=1, **more),
        ),
    ]
    for loss, arrays, want in rows:
        got = evaluate(loss(*infos(*arrays)), arrays)
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-6, atol=1e-6)


def test_losses_refuse() -> None:
    with pytest.raises(ValueError, match="reduction"):
        Loss("loss", 1, "median")
    with pytest.raises(TypeError, match="Var or a struct info"):
        MSELoss()(LOGITS, OTHERS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="integers"):
        CategoricalCrossEntropyLoss()(*infos(LOGITS, OTHERS))


OPTIMIZERS: list[tuple[Any, Any]] = [
    (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (SGD(0.1, 0.2), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.2)),
    (MomentumSGD(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    (
        MomentumSGD(0.1, 0.9, weight_decay=0.1, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    ),
    (Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
    (
        Adam(0.1, (0.8, 0.9), 1e-4, 0.3),
        lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.9), 1e-4, weight_decay=0.3),
    ),
]


@pytest.mark.parametrize(("own", "theirs"), OPTIMIZERS)
def test_optimizers(own: Optimizer, theirs: Any) -> None:
    values = [RNG.normal(size=s).astype(np.float32) for s in ((3, 2), (4,))]
    grads = [[RNG.normal(size=v.shape).astype(np.float32) for v in values] for _ in range(4)]
    leaves = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
    other = theirs(leaves)
    func = own.init([Var(f"p{i}", info) for i, info in enumerate(infos(*values))]).get_function()
    mod = IRModule({own.name: func})
    assert well_formed(mod)
    step, state = VirtualMachine(build(mod, "cpu"))[own.name], own.state
    params: Any = tuple(values)
    for given in grads:
        params, state = step(params, tuple(given), tuple(state or ()))
        for leaf, grad in zip(leaves, given, strict=True):
            leaf.grad = torch.from_numpy(grad)
        other.step()
        for got, want in zip(params, leaves, strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert int(state[0]) == len(grads)


def test_dampening() -> None:
    """torch dampens from the second step only, so here is the formula."""
    func = MomentumSGD(0.5, 0.9, dampening=0.25).init(Var("p", infos(WEIGHTS)[0])).get_function()
    params, state = evaluate(func, [(WEIGHTS,), (WEIGHTS * 2,), (np.int64(3), WEIGHTS)])
    v = 0.9 * WEIGHTS + 0.75 * 2 * WEIGHTS
    np.testing.assert_allclose(state[1], v, rtol=1e-6)
    np.testing.assert_allclose(params[0], WEIGHTS - 0.5 * v, rtol=1e-6)


def test_optimizers_refuse() -> None:
    a, b = Var("a", infos(LOGITS)[0]), Var("b", TensorStructInfo((2,), "float64"))
    pair, whole = Var("t", TupleStructInfo([infos(LOGITS)[0]])), Var("i", infos(CLASSES)[0])
    symbolic = Var("s", TensorStructInfo(ndim=2, dtype="float32"))
    for params in ([a, a], [a, b], pair, whole, LOGITS, symbolic):
        with pytest.raises(ValueError, match=r"param|shape"):
            MomentumSGD(0.1, 0.9).init(params)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RuntimeError, match=r"init\(\)"):
        Adam(0.1).get_function()


def backbone(batch: int = 5) -> IRModule:
    """``x @ w + b``, and the number of calls as its state."""
    shapes = {"x": (batch, 3), "w": (3, 4), "b": (4,), "calls": ()}
    p = {n: Var(n, TensorStructInfo(s, "float32")) for n, s in shapes.items()}
    builder = BlockBuilder()
    with builder.function("backbone", list(p.values())):
        with builder.dataflow():
            out = builder.emit_output(op.add(op.matmul(p["x"], p["w"]), p["b"]))
            calls = builder.emit_output(op.add(p["calls"], 1.0))
        builder.emit_func_output((out, calls))
    return builder.get().with_attrs({"param_num": 2, "state_num": 1})


def test_a_loss_after_a_network() -> None:
    mod = AppendLoss("backbone", CrossEntropyLoss()(*infos(LOGITS, CLASSES)))(backbone())
    assert well_formed(mod)
    func = mod["backbone_loss"]
    assert [p.name_hint for p in func.params] == ["x", "w", "b", "calls", "targets"]
    assert func.attrs["global_symbol"] == "backbone_loss"
    x, w = (RNG.normal(size=s).astype(np.float32) for s in ((5, 3), (3, 4)))
    run = VirtualMachine(build(mod, "cpu"))["backbone_loss"]
    loss, calls = run(x, w, WEIGHTS, np.float32(2), CLASSES)
    want = F.cross_entropy(torch.from_numpy(x @ w + WEIGHTS), torch.from_numpy(CLASSES))
    np.testing.assert_allclose(loss, want, rtol=1e-6)
    assert calls == 3


def test_a_result_that_is_also_a_parameter() -> None:
    builder, x = BlockBuilder(), Var("x", infos(LOGITS)[0])
    with builder.function("same", [x]):
        with builder.dataflow():
            builder.emit_output(x)
        builder.emit_func_output(x)
    mod = AppendLoss("same", MSELoss()(*infos(LOGITS, OTHERS)), new_func_name="loss")(builder.get())
    loss = VirtualMachine(build(mod, "cpu"))["loss"](LOGITS, OTHERS)
    np.testing.assert_allclose(loss, np.mean((LOGITS - OTHERS) ** 2), rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "count", "message"),
    [
        (MSELoss()(*infos(CLASSES, CLASSES)), 1, "takes"),
        (MSELoss("none")(*infos(LOGITS, OTHERS)), 1, "rank 0"),
        (MSELoss()(*infos(LOGITS, OTHERS)), 3, "num_backbone_outputs is 3"),
    ],
)
def test_losses_that_do_not_fit(loss: Function, count: int, message: str) -> None:
    with pytest.raises(TransformError, match=message):
        AppendLoss("backbone", loss, count)(backbone())


def trained(mod: IRModule, **options: Any) -> Trainer:
    return Trainer(mod, VirtualMachine(build(mod, "cpu")), cpu(), **options)


def test_a_trainer_beside_torch() -> None:
    setup = SetupTrainer(CrossEntropyLoss(), Adam(0.1), infos(LOGITS, CLASSES))
    trainer = trained(setup(backbone()))
    x, w = (RNG.normal(size=s).astype(np.float32) for s in ((5, 3), (3, 4)))
    trainer.load_params({"w": w})
    layer = torch.nn.Linear(3, 4)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w.T))
        layer.bias.zero_()
    other = torch.optim.Adam(layer.parameters(), 0.1)
    for _ in range(5):
        loss = F.cross_entropy(layer(torch.from_numpy(x)), torch.from_numpy(CLASSES))
        other.zero_grad()
        loss.backward()
        other.step()
        np.testing.assert_allclose(trainer.update(x, CLASSES), loss.item(), rtol=2e-5)
    params = trainer.export_params()
    # Adam divides a gradient by its own size: of one that is nearly zero the rounding is left.
    np.testing.assert_allclose(params["w"], layer.weight.detach().numpy().T, rtol=1e-4, atol=1e-5)
    assert trainer.export_states()["calls"] == 5
    want = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(trainer.predict(x), want, rtol=1e-4, atol=1e-5)
    assert trainer.export_states()["calls"] == 5


def test_a_batch_norm_trains_with_its_batch() -> None:
    names = {"x": (6, 3), "gamma": (3,), "beta": (3,), "mean": (3,), "variance": (3,)}
    p = [Var(n, TensorStructInfo(s, "float32")) for n, s in names.items()]
    builder = BlockBuilder()
    with builder.function("backbone", p):
        with builder.dataflow():
            made = builder.emit(op.nn.batch_norm(*p, axis=1, momentum=0.1))
            outputs = [builder.emit_output(made[i]) for i in range(3)]
        builder.emit_func_output(outputs)
    mod = builder.get().with_attrs({"param_num": 2, "state_num": 2})
    x = RNG.normal(size=(6, 3)).astype(np.float32)
    trainer = trained(SetupTrainer(MSELoss("sum"), SGD(0.1), infos(x, x))(mod))
    trainer.load_params([np.ones(3, np.float32), np.zeros(3, np.float32)])
    trainer.load_states({"variance": np.ones(3, np.float32)})
    layer = torch.nn.BatchNorm1d(3)
    other = torch.optim.SGD(layer.parameters(), 0.1)
    target = np.zeros_like(x)
    for _ in range(3):
        loss = F.mse_loss(layer(torch.from_numpy(x)), torch.from_numpy(target), reduction="sum")
        other.zero_grad()
        loss.backward()
        other.step()
        np.testing.assert_allclose(trainer.update(x, target), loss.item(), rtol=1e-4)
    np.testing.assert_allclose(
        trainer.export_states()["mean"], layer.running_mean.numpy(), rtol=1e-4, atol=1e-6
    )


def test_a_trainer_refuses() -> None:
    setup = SetupTrainer(CrossEntropyLoss(), SGD(0.1), infos(LOGITS, CLASSES))
    trainer = trained(setup(backbone()), zero_init_param_state=False)
    x = np.zeros((5, 3), np.float32)
    with pytest.raises(TVMError, match="no value yet for parameter w, b"):
        trainer.predict(x)
    trainer.xaiver_uniform_init_params()
    assert np.abs(trainer.export_params()["w"]).max() <= np.sqrt(6 / 7)
    with pytest.raises(TVMError, match="state calls"):
        trainer.predict(x)
    trainer.zero_init_states()
    with pytest.raises(ValueError, match="takes 1 inputs; got 2"):
        trainer.predict(x, x)
    with pytest.raises(ValueError, match="no parameter 'v'"):
        trainer.load_params({"v": x})
    with pytest.raises(ValueError, match="2 parameters; 1 are given"):
        trainer.load_params([x])


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"param_num": 2}, "'state_num'"),
        ({"state_num": 1}, "'param_num'"),
        ({"param_num": 4, "state_num": 1}, "fewer"),
        ({"param_num": 1, "state_num": 2}, "more values"),
    ],
)
def test_modules_that_cannot_train(attrs: Any, message: str) -> None:
    mod = IRModule(dict(backbone().items())).with_attrs(attrs)
    setup = SetupTrainer(CrossEntropyLoss(), SGD(0.1), infos(LOGITS, CLASSES))
    with pytest.raises(ValueError, match=message):
        setup(mod)
    with pytest.raises(ValueError, match="no function 'backbone'"):
        setup(IRModule({}))
