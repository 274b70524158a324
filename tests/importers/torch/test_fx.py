"""from_fx: the documented example, names, results, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402

from relax2xla import errors, tir  # noqa: E402
from relax2xla.frontend.torch import from_fx  # noqa: E402
from relax2xla.ir import TensorStructInfo, TupleStructInfo  # noqa: E402

from .helpers import compare, run  # noqa: E402


class MyModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features=10, out_features=7, bias=True)

    def forward(self, input: Any) -> Any:
        return self.linear(input)


def test_the_documented_example() -> None:
    input_info = [((128, 10), "float32")]
    module = MyModule()
    graph_module = fx.symbolic_trace(module)
    mod = from_fx(graph_module, input_info)
    assert "def main" in mod.script()
    (parameter,) = mod["main"].params
    assert parameter.name_hint == next(iter(graph_module.graph.nodes)).name
    assert mod["main"].ret_struct_info == TensorStructInfo((128, 7), "float32")
    x = torch.randn(128, 10)
    compare(run(mod, [x]), module(x))


def test_a_tuple_stays_a_tuple() -> None:
    class Pair(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b, a - b

    mod = from_fx(fx.symbolic_trace(Pair()), [((2,), "float32"), ((2,), "float32")])
    assert isinstance(mod["main"].ret_struct_info, TupleStructInfo)
    assert [p.name_hint for p in mod["main"].params] == ["a", "b"]


def test_what_is_refused() -> None:
    graph = fx.symbolic_trace(MyModule())
    with pytest.raises(ValueError, match="2 entries, but the graph has 1 placeholders: input"):
        from_fx(graph, [((1,), "float32"), ((1,), "float32")])
    with pytest.raises(errors.UnsupportedError, match=r"torch\.export\.Dim"):
        from_fx(graph, [((tir.Var("n", "int64"), 10), "float32")])  # type: ignore[list-item]
    with pytest.raises(errors.UnsupportedError, match="custom_convert_map"):
        from_fx(graph, [((1, 10), "float32")], custom_convert_map={nn.Linear: None})
