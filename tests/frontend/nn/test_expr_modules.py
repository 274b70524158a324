"""Modules over expressions, in functions that BlockBuilder builds."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import errors, op
from relax2xla.frontend.nn import expr_modules as nn


class Net(nn.Module):
    def __init__(self) -> None:
        self.layers = [nn.Sequential(nn.Linear(4, 3), nn.ReLU()), {"last": nn.Linear(3, 2, False)}]
        self.one = rx.const(1, "float32")

    def forward(self, input: rx.Expr) -> rx.Expr:
        return nn.LogSoftmax()(self.layers[1]["last"](self.layers[0](op.add(input, self.one))))


@pytest.mark.parametrize("subroutine", [False, True])
def test_a_network(subroutine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Net, "define_subroutine", subroutine)
    builder = rx.BlockBuilder()
    with builder.function("main"):
        net = Net()
        x = nn.Placeholder((2, 4), name="data")
        builder.emit_func_output(net(x), [x, *net.parameters()])
    mod = builder.get()
    assert sorted(g.name_hint for g in mod) == (["main", "net"] if subroutine else ["main"])
    assert [p.name_hint for p in mod["main"].params] == [
        *("data", "linear_weight", "linear_bias", "linear_weight1")
    ]
    zeros = nn.init_params(mod)
    assert [z.shape for z in zeros] == [(4, 3), (3,), (3, 2)]
    rng = np.random.default_rng(0)
    data, *weights = (rng.normal(size=s).astype("float32") for s in ((2, 4), (4, 3), (3,), (3, 2)))
    scores = np.maximum((data + 1) @ weights[0] + weights[1], 0) @ weights[2]
    wanted = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    made = rx.VirtualMachine(rx.build(mod))["main"](data, *weights)
    np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="shape of a Placeholder is a list or a tuple; got int"):
        nn.Placeholder(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.BuilderError, match="belongs to a method"):
        nn.ReLU()(nn.Placeholder([2]))
    with pytest.raises(NotImplementedError, match="Module has no method `forward`"):
        nn.Module()(1)
    builder = rx.BlockBuilder()
    weight = nn.Parameter([rx.tir.Var("n", "int64")])
    with builder.function("main", [weight]):
        builder.emit_func_output(weight)
    with pytest.raises(TypeError, match="the shape of param is not known"):
        nn.init_params(builder.get())
