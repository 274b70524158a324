"""dynamo_capture_subgraphs: the documented behaviour, values, and graph breaks."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relax2xla  # noqa: E402
from relax2xla.errors import UnsupportedError  # noqa: E402
from relax2xla.frontend import detach_params  # noqa: E402
from relax2xla.frontend.torch import ImporterOutput, dynamo_capture_subgraphs  # noqa: E402
from relax2xla.ir import TensorStructInfo  # noqa: E402
from tests.importers.torch.helpers import compare  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.second = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        y = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.second(y)


X = torch.randn(5, 4)


def test_each_graph_is_a_function() -> None:
    model = Broken()
    mod = dynamo_capture_subgraphs(model, X)
    assert isinstance(mod, ImporterOutput)
    assert [g.name_hint for g in mod.get_global_vars()] == ["subgraph_0", "subgraph_1"]
    assert mod["subgraph_1"].ret_struct_info == TensorStructInfo((5, 2), "float32")
    machine = relax2xla.VirtualMachine(relax2xla.build(mod))
    got = machine["subgraph_1"](machine["subgraph_0"](X))
    compare([__import__("numpy").asarray(got)], model(X))


def test_parameters_kept_as_inputs() -> None:
    mod, params = detach_params(dynamo_capture_subgraphs(Broken(), X, keep_params_as_input=True))
    assert {name: [p.shape for p in values] for name, values in params.items()} == {
        "subgraph_0": [(3,), (3, 4)],
        "subgraph_1": [(2,), (2, 3)],
    }
    assert [p.name_hint for p in mod["subgraph_0"].params][1:] == ["first.bias", "first.weight"]


def test_programs_for_tvm_get_weights_where_torch_comes_to_them() -> None:
    from relax2xla.tvm.frontend.torch import dynamo_capture_subgraphs as of_tvm

    model = nn.Linear(4, 3)
    mod = of_tvm(model, X)
    machine = relax2xla.VirtualMachine(relax2xla.build(mod))
    got = machine["subgraph_0"](model.weight, model.bias, X)
    compare([__import__("numpy").asarray(got)], model(X))
    # Said outright, it is what the documents say.
    assert len(of_tvm(model, X, keep_params_as_input=False)["subgraph_0"].params) == 1
    kept, params = detach_params(of_tvm(model, X, keep_params_as_input=True))
    assert len(kept["subgraph_0"].params) == 1 + len(params["subgraph_0"]) == 3


def test_functions_and_keywords() -> None:
    def f(x: Any, *, scale: float) -> Any:
        return torch.add(x, x) * scale, x - 1

    mod = dynamo_capture_subgraphs(f, X, scale=3.0)
    assert len(mod["subgraph_0"].ret_struct_info.fields) == 2


def test_nothing_to_capture() -> None:
    with pytest.raises(UnsupportedError, match=r"captured no graph of <lambda>"):
        dynamo_capture_subgraphs(lambda x: x, X)
