"""from_fx: the documented example, names, results, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402

from relax2xla import const, errors, op, tir  # noqa: E402
from relax2xla.frontend.torch import from_fx  # noqa: E402
from relax2xla.ir import TensorStructInfo, Tuple, TupleStructInfo, VarBinding  # noqa: E402
from tests.importers.torch.helpers import compare, run  # noqa: E402


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


def test_symbolic_shapes() -> None:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")

    class Both(nn.Module):
        def forward(self, a: Any, b: Any, c: Any) -> Any:
            return torch.cat([a, b], 0).sum(1), a @ b.transpose(0, 1), c.reshape(-1, 2)

    info = [((n, m), "float32"), ((n, m), "float32"), ((n * 2 + 1, 2), "int64")]
    mod = from_fx(fx.symbolic_trace(Both()), info)
    assert mod["main"].params[0].struct_info == TensorStructInfo((n, m), "float32")
    assert mod["main"].params[2].struct_info == TensorStructInfo((n * 2 + 1, 2), "int64")
    for rows, columns in ((3, 4), (6, 1), (5, 9)):
        inputs = [torch.randn(rows, columns) for _ in range(2)]
        inputs.append(torch.ones(2 * rows + 1, 2, dtype=torch.int64))
        compare(run(mod, inputs), Both()(*inputs))


def test_all_kinds_of_nodes() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.block = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
            self.scale = nn.Parameter(torch.ones(4, 1, 1) * 2)

        def forward(self, x: Any) -> Any:
            y = self.block(self.conv(x)) * self.scale
            y = y.view(y.size(0), -1).permute(1, 0)[1:3]
            return {"out": torch.softmax(y, dim=0), "rest": [y.mean(), y.shape[1]]}

    module = Mixed()
    x = torch.randn(2, 3, 6, 6)
    mod = from_fx(fx.symbolic_trace(module), [((2, 3, 6, 6), "float32")])
    compare(run(mod, [x]), module(x), 5)
    kept = from_fx(
        fx.symbolic_trace(module), [((2, 3, 6, 6), torch.float32)], keep_params_as_input=True
    )
    names = [p.name_hint for p in kept["main"].params]
    assert names == ["x", "conv.bias", "conv.weight", "scale"]
    assert [p.shape for p in kept["main"].attrs["params"]] == [(4,), (4, 3, 3, 3), (4, 1, 1)]


class Customized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 7)
        self.act = nn.ReLU()

    def forward(self, x: Any) -> Any:
        y = self.act(self.linear(x))
        return torch.sin(y).abs() + y.softmax(-1)


def test_custom_converters_go_before_all_others() -> None:
    seen: list[str] = []

    def relu(node: Any) -> Any:
        seen.append(node.op)
        raise AssertionError("called by the importer below instead")

    def act(node: Any, importer: Any) -> Any:
        seen.append(node.op)
        return op.multiply(importer.env[node.args[0]], const(10.0, "float32"))

    def sin(node: Any, importer: Any) -> Any:
        seen.append(node.op)
        (x,) = importer.retrieve_args(node)
        assert importer.shape_of(x)[1] == 7
        return importer.block_builder.emit(op.cos(x))

    def softmax(node: Any, importer: Any) -> Any:
        seen.append(node.op)
        x, axis = importer.retrieve_args(node)
        return op.nn.log_softmax(x, axis)

    table = {nn.ReLU: act, "sin": sin, "softmax": softmax, nn.GELU: relu}
    module = Customized()
    n = tir.Var("n", "int64")
    mod = from_fx(fx.symbolic_trace(module), [((n, 10), "float32")], custom_convert_map=table)
    assert seen == ["call_module", "call_function", "call_method"]
    x = torch.randn(4, 10)
    y = module.linear(x) * 10
    compare(run(mod, [x]), torch.cos(y).abs() + y.log_softmax(-1), 10)


def test_a_custom_converter_of_a_module_of_ones_own() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 2.0))

        def forward(self, x: Any) -> Any:
            return x * self.weight, x.sum()

    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def forward(self, x: Any) -> Any:
            y, s = self.odd(x)
            return y + s

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: Any, name: str) -> bool:
            return isinstance(m, Odd) or super().is_leaf_module(m, name)

    model = Uses()
    graph = fx.GraphModule(model, Tracer().trace(model))

    def odd(node: Any, importer: Any) -> Any:
        (x,) = importer.retrieve_args(node)
        weight = importer.params[importer.named_modules[node.target].weight]
        return Tuple([op.multiply(x, weight), op.sum(x)])

    mod = from_fx(graph, [((2, 3), "float32")], custom_convert_map={Odd: odd})
    x = torch.randn(2, 3)
    compare(run(mod, [x]), model(x))


def test_what_is_refused() -> None:
    graph = fx.symbolic_trace(MyModule())
    with pytest.raises(ValueError, match="2 entries, but the graph has 1 placeholders: input"):
        from_fx(graph, [((1,), "float32"), ((1,), "float32")])
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    with pytest.raises(ValueError, match=r"does not allow the symbolic dimensions"):
        from_fx(graph, [((3, n), "float32")])
    with pytest.raises(errors.UnsupportedError, match="use one variable"):
        from_fx(graph, [((n * m, 10), "float32")])
    with pytest.raises(errors.UnsupportedError, match=r"torch\.export takes n"):
        from_fx(graph, [((n * n, 10), "float32")])
    with pytest.raises(TypeError, match="positional"):
        from_fx(graph, [((1, 10), "float32")], True)


def test_no_binding_is_only_another_name() -> None:
    """The first binding is the operator, not a copy of its operand."""

    class Model(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            one = torch.nn.functional.log_softmax(x, 1), x.clamp(-1, 1), torch.std(x, 1)
            return (*one, torch.addcmul(x, x, y), torch.where(x > y, x, y), x.logsumexp(1))

    shape = ([3, 4], "float32")
    main = from_fx(fx.symbolic_trace(Model()), [shape, shape])["main"]
    params = set(main.params)
    bindings = [b for block in main.body.blocks for b in block.bindings]
    assert not [b for b in bindings if isinstance(b, VarBinding) and b.value in params]


def test_results_are_the_graphs_own() -> None:
    """Writes to inputs are seen within; a number is a tensor of rank 0, as in TVM."""

    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.relu_() + 1
            return y * x.mul_(2)

    mod = from_fx(fx.symbolic_trace(Model()), [((3,), "float32")])
    x = torch.tensor([-1.0, 0.5, 2.0])
    got = run(mod, [x])
    assert mod["main"].ret_struct_info == TensorStructInfo((3,), "float32")
    assert "mutated_inputs" not in mod["main"].attrs
    compare(got, Model()(x.clone()))
    for method, kind in (("numel", "int32"), ("is_floating_point", "bool")):
        graph = fx.Graph()
        node = graph.placeholder("x")
        graph.output(graph.call_method(method, (node,)))
        mod = from_fx(fx.GraphModule(nn.Module(), graph), [((4, 3), "float32")])
        assert mod["main"].ret_struct_info == TensorStructInfo((), kind)
        assert int(run(mod, [torch.ones(4, 3)])[0]) == int(getattr(torch.ones(4, 3), method)())


class _Resize(nn.Module):
    """Resizes by the function and by a module, which takes the other way through the graph."""

    def __init__(self, mode: str, align_corners: bool | None, factor: Any) -> None:
        super().__init__()
        self.how: dict[str, Any] = {"mode": mode, "align_corners": align_corners}
        self.factor = factor
        self.up = nn.Upsample(scale_factor=2.0, mode=mode, align_corners=align_corners)

    def forward(self, x: Any) -> Any:
        return self.up(nn.functional.interpolate(x + 1, scale_factor=self.factor, **self.how)) * 2


@pytest.mark.parametrize(
    ("layout", "shape", "mode", "align_corners", "factor"),
    [
        ("NHWC", (2, 5, 7, 3), "nearest", None, 2.0),
        ("NHWC", (2, 5, 7, 3), "bilinear", False, (1.5, 2.0)),
        ("NHWC", (1, 5, 7, 3), "bicubic", True, 2.0),
        ("NDHWC", (1, 2, 5, 4, 3), "trilinear", True, (2.0, 4.0, 3.0)),
        ("NDHWC", (1, 2, 5, 4, 3), "nearest", None, 2.0),
    ],
)
def test_images_with_channels_last(
    layout: str, shape: tuple[int, ...], mode: str, align_corners: bool | None, factor: Any
) -> None:
    module = _Resize(mode, align_corners, factor)
    graph, x = fx.symbolic_trace(module), torch.randn(*shape)
    mod = from_fx(graph, [(shape, "float32")], default_image_layout=layout)
    compare(run(mod, [x]), module(x.movedim(-1, 1)).movedim(1, -1))
    # The caller's graph still resizes as torch does.
    assert torch.equal(graph(x.movedim(-1, 1)), module(x.movedim(-1, 1)))


def test_a_custom_converter_of_channels_last() -> None:
    def converter(node: Any, importer: Any) -> Any:
        return op.image.resize2d(importer.env[node.args[0]], (4, 6), layout="NHWC", method="linear")

    class Resize(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.functional.interpolate(x, (4, 6), mode="bilinear")

    x, functions = torch.randn(1, 2, 3, 5), ("interpolate", nn.functional.interpolate)
    for function in functions:
        mod = from_fx(
            fx.symbolic_trace(Resize()),
            [((1, 2, 3, 5), "float32")],
            custom_convert_map={function: converter},
            default_image_layout="NHWC",
        )
        assert "image.resize2d" in mod.script()
        compare(run(mod, [x]), Resize()(x.movedim(-1, 1)).movedim(1, -1))


def test_an_unknown_image_layout_is_refused() -> None:
    graph = fx.symbolic_trace(MyModule())
    with pytest.raises(ValueError, match="default_image_layout is 'HWC'; expected one of NCW, "):
        from_fx(graph, [((2, 10), "float32")], default_image_layout="HWC")
