"""CallProducts: what becomes one call, what does not, and that networks stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import processor
from relax2xla.analysis import well_formed
from relax2xla.importers.torch import from_exported_program
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.runtime.compiler import has_compiler
from relax2xla.script import from_source
from relax2xla.testing import evaluate
from relax2xla.transform import PassContext
from relax2xla.transform.cpu.calls.products import CallGivenProducts, CallProducts
from relax2xla.transform.normal.dead_code import DeadCodeElimination
from relax2xla.transform.params.lift_weights import lift_weights
from relax2xla.transform.pipeline import default, get_pipeline
from tests.transform.cpu import composites

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.usefixtures("avx2"),
]

T = rx.TensorStructInfo
RNG = np.random.default_rng(5)
SHAPE = (1, 12, 12, 32)
Body = Callable[[rx.Expr], rx.Expr]


def weight(*shape: int) -> rx.Expr:
    return rx.const(RNG.standard_normal(shape, "float32"))


def conv(x: rx.Expr, window: int = 3, **options: Any) -> rx.Expr:
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    options = {"padding": window // 2, **layouts, **options}
    channels = 32 // options.get("groups", 1)
    return R.nn.conv2d(x, weight(window, window, channels, 48), **options)


def few_in_groups(x: rx.Expr, results: int) -> rx.Expr:
    """Four channels in each group."""
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    return R.nn.conv2d(x, weight(5, 5, 4, results), padding=2, groups=8, **layouts)


def product(x: rx.Expr) -> rx.Expr:
    return R.matmul(x, weight(32, 64))


def linear(x: rx.Expr) -> rx.Expr:
    return R.einsum((x, weight(64, 32)), "abcy,zy->abcz")


def pointwise(x: rx.Expr) -> rx.Expr:
    return R.einsum((x, weight(32, 64)), "abcy,yz->abcz")


def module(body: Body, shape: tuple[int, ...] = SHAPE) -> rx.IRModule:
    return composites.module(body, shape)


def found(mod: rx.IRModule) -> list[tuple[str, dict[str, Any]]]:
    """The kinds and attributes of the composites in ``main``."""
    values = [b.value for b in bindings_of(mod["main"].body)]
    return [
        (str(v.attrs["name"]).rpartition(".")[2], v.attrs["composite_attributes"])
        for v in values
        if is_op(v, "relax.stablehlo.composite")
    ]


def hardswish(x: rx.Expr) -> rx.Expr:
    gate = R.nn.relu6(R.add(x, rx.const(3, "float32")))
    return R.divide(R.multiply(x, gate), rx.const(6, "float32"))


def biased(x: rx.Expr, results: int = 64) -> rx.Expr:
    return R.add(x, weight(1, 1, 1, results))


ONE: dict[str, tuple[Body, str, dict[str, Any]]] = {
    "convolution": (lambda x: conv(x, 5), "convolution", {"added": False, "ending": ""}),
    "steps": (lambda x: conv(x, strides=2), "convolution", {"strides": (2, 2)}),
    "3x3": (conv, "winograd", {"size": 2}),
    "groups": (lambda x: conv(x, groups=4), "convolution", {"groups": 4}),
    "groups of few": (lambda x: few_in_groups(x, 32), "convolution", {"groups": 8}),
    "product": (product, "product", {"ending": ""}),
    "linear": (linear, "product", {"ending": ""}),
    "pointwise": (pointwise, "product", {"ending": ""}),
    "bias": (lambda x: biased(product(x)), "product", {"added": False}),
    "vector": (lambda x: R.add(weight(64), product(x)), "product", {"added": False}),
    "relu": (lambda x: R.nn.relu(biased(conv(x), 48)), "winograd", {"ending": "relu"}),
    "gelu": (lambda x: R.nn.gelu(biased(linear(x))), "product", {"ending": "gelu"}),
    "hardswish": (lambda x: hardswish(biased(product(x))), "product", {"ending": "hardswish"}),
    "one row": (lambda x: R.matmul(R.reshape(x, (1, 4608)), weight(4608, 64)), "product", {}),
    "addition": (
        lambda x: R.nn.relu(R.add(weight(1, 12, 12, 64), biased(product(x)))),
        "product",
        {"added": True, "ending": "relu"},
    ),
}


@pytest.mark.parametrize("eigen", [False, True])
def test_pointwise_convolutions_through_the_pipeline(
    eigen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever library multiplies, and so however a pointwise weight lies."""
    monkeypatch.setattr(processor, "eigen_multiplies", lambda: eigen)
    mod = module(lambda x: R.nn.conv2d(R.sin(x), weight(64, 12, 1, 1)))
    assert [kind for kind, _ in found(default()(mod))] == ["product"]


@pytest.mark.parametrize("name", ONE)
def test_one_call(name: str) -> None:
    body, kind, attributes = ONE[name]
    mod = module(body)
    made = CallProducts()(mod)
    assert well_formed(made)
    ((got, given),) = found(made)
    assert got == kind
    assert attributes.items() <= given.items()
    operators = {
        v.op.name.rpartition(".")[2]
        for b in bindings_of(made["main"].body)
        if isinstance(v := b.value, rx.Call) and isinstance(v.op, rx.Op)
    }
    # All that is left besides is how the weight is laid out.
    assert operators <= {"composite", "reshape", "permute_dims", "pad", "einsum"}
    x = RNG.standard_normal(SHAPE, "float32")
    results = []
    for disabled in ([], ["CallProducts"]):
        with PassContext(disabled_pass=disabled):
            results.append(np.asarray(rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=2e-4)


def normalised(x: rx.Expr) -> rx.Expr:
    """What a batch norm of inference leaves behind a value."""
    return R.add(R.multiply(x, weight(1, 1, 1, 48)), weight(1, 1, 1, 48))


def turned(x: rx.Expr) -> rx.Expr:
    kernel = R.permute_dims(weight(48, 32, 3, 3), [2, 3, 1, 0])
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    return R.nn.conv2d(x, kernel, padding=1, **layouts)


# As they lie, and whether a scale behind the product is part of the call.
LYING: dict[str, tuple[Body, str, bool]] = {
    "HWIO": (conv, "last", False),
    "OIHW": (turned, "first", False),
    "steps": (lambda x: conv(x, strides=2), "last", False),
    "matrix": (product, "last", False),
    "matrix, turned": (lambda x: R.matmul(x, R.permute_dims(weight(64, 32))), "first", False),
    "linear": (linear, "first", False),
    "batch norm": (lambda x: R.nn.relu(normalised(turned(x))), "first", True),
    "bias before it": (lambda x: normalised(biased(conv(x), 48)), "last", True),
    "a scale alone": (lambda x: R.multiply(weight(64), linear(x)), "first", True),
    "groups": (lambda x: conv(x, groups=4), "", False),
}


@pytest.mark.parametrize("name", LYING)
def test_weights_that_come_with_each_call_are_read_as_they_lie(name: str) -> None:
    body, lies, scaled = LYING[name]
    mod = module(body)
    made = DeadCodeElimination()(CallProducts(at_load=False)(mod))
    assert well_formed(made)
    ((_, given),) = found(made)
    assert (given.get("lies", ""), given.get("scaled", False)) == (lies, scaled)
    values = [b.value for b in bindings_of(made["main"].body)]
    assert bool(lies) != any(is_op(v, "relax.permute_dims") for v in values)
    x = RNG.standard_normal(SHAPE, "float32")
    got = np.asarray(rx.VirtualMachine(rx.build(made, relax_pipeline="zero"))["main"](x))
    np.testing.assert_allclose(got, evaluate(mod["main"], [x]), rtol=1e-4, atol=2e-4)


def test_few_rows_leave_weights_that_come_with_each_call() -> None:
    def rows(count: int) -> Body:
        return lambda x: R.einsum((R.reshape(x, (count, 4608 // count)), known[count]), "ab,zb->az")

    known = {count: weight(1024, 4608 // count) for count in (1, 2)}
    kinds = [found(CallProducts(at_load=False)(module(rows(count)))) for count in (1, 2)]
    assert [len(k) for k in kinds] == [0, 1]


def test_a_scale_that_an_argument_decides_stays_behind() -> None:
    def body(x: rx.Expr) -> rx.Expr:
        scale = R.strided_slice(R.reshape(x, (4608,)), [0], [0], [48])
        return R.multiply(conv(x), scale)

    ((_, given),) = found(CallProducts(at_load=False)(module(body)))
    assert given["scaled"] is False


def number(value: float) -> rx.Expr:
    return rx.const(value, "float32")


def cube(x: rx.Expr, emit: Any) -> rx.Expr:
    return R.multiply(x, emit(R.multiply(x, x)))


SPELLED: dict[str, tuple[str, Callable[[rx.Expr, Any], rx.Expr]]] = {
    "silu": ("silu", lambda x, emit: R.multiply(x, R.sigmoid(x))),
    "silu, the other way": ("silu", lambda x, emit: R.multiply(R.sigmoid(x), x)),
    "silu by exp": (
        "silu",
        lambda x, emit: R.divide(x, R.add(number(1), R.exp(R.negative(x)))),
    ),
    "gelu of ONNX": (
        "gelu",
        lambda x, emit: R.multiply(
            R.multiply(x, R.add(R.erf(R.divide(x, number(2**0.5))), number(1))), number(0.5)
        ),
    ),
    "gelu, half first": (
        "gelu",
        lambda x, emit: R.multiply(
            R.multiply(number(0.5), x), R.add(number(1), R.erf(R.multiply(x, number(0.5**0.5))))
        ),
    ),
    "gelu by tanh": (
        "gelu_tanh",
        lambda x, emit: R.multiply(
            number(0.5),
            R.multiply(
                x,
                R.add(
                    number(1),
                    R.tanh(
                        R.multiply(
                            number(0.7978845608),
                            R.add(x, R.multiply(number(0.044715), cube(x, emit))),
                        )
                    ),
                ),
            ),
        ),
    ),
    "something like silu": (
        "",
        lambda x, emit: R.multiply(x, R.sigmoid(R.multiply(x, number(1.702)))),
    ),
    "silu up to a bound": (
        "",
        lambda x, emit: R.multiply(R.minimum(x, number(12)), R.sigmoid(x)),
    ),
    "silu up to a bound far out": (
        "",
        lambda x, emit: R.multiply(R.minimum(x, number(1e6)), R.sigmoid(x)),
    ),
    "gelu by a number of more axes": (
        "",
        lambda x, emit: R.multiply(
            R.multiply(x, R.add(number(1), R.erf(R.multiply(x, number(0.5**0.5))))),
            rx.const(np.full((1, 1, 1, 1, 1), 0.5, "float32")),
        ),
    ),
    "twice": ("", lambda x, emit: R.multiply(x, number(2))),
    "two values": ("", lambda x, emit: R.multiply(x, R.sigmoid(emit(R.negative(biased(x)))))),
}


@pytest.mark.parametrize("name", SPELLED)
def test_activations_written_out(name: str) -> None:
    ending, spelled = SPELLED[name]
    x = rx.Var("x", T(SHAPE))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(biased(product(x)))
            made = builder.emit_output(builder.normalize(spelled(value, builder.emit)))
        builder.emit_func_output(made)
    mod = builder.get()
    planned = CallProducts()(mod)
    ((_, given),) = found(planned)
    assert given["ending"] == ending
    operators = [
        b.value.op.name for b in bindings_of(planned["main"].body) if hasattr(b.value, "op")
    ]
    written = {"relax.erf", "relax.tanh", "relax.sigmoid", "relax.exp", "relax.multiply"}
    assert bool(written & set(operators)) == (not ending)
    given_x = RNG.standard_normal(SHAPE, "float32")
    wanted = evaluate(mod["main"], [given_x])
    made = np.asarray(rx.VirtualMachine(rx.build(mod, "cpu"))["main"](given_x))
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=2e-5)


def test_what_is_read_on_the_way_stays() -> None:
    x = rx.Var("x", T(SHAPE))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(product(x))
            gate = builder.emit(R.sigmoid(value))
            made = builder.emit_output(R.add(R.multiply(value, gate), gate))
        builder.emit_func_output(made)
    ((_, given),) = found(CallProducts()(builder.get()))
    assert given["ending"] == ""


NONE: dict[str, Body] = {
    "groups": lambda x: R.nn.conv2d(
        x, weight(3, 3, 1, 32), groups=32, data_layout="NHWC", kernel_layout="HWIO"
    ),
    "groups of few that fill no vectors": lambda x: few_in_groups(x, 48),
    "planes first": lambda x: R.nn.conv2d(R.permute_dims(x, [0, 3, 1, 2]), weight(48, 32, 3, 3)),
    "no constant": lambda x: R.matmul(x, R.reshape(R.strided_slice(x, [1], [0], [1]), (32, 12))),
    "float64": lambda x: R.matmul(R.astype(x, "float64"), rx.const(np.ones((32, 64)))),
    "to float64": lambda x: R.matmul(x, weight(32, 64), out_dtype="float64"),
    "small": lambda x: R.matmul(x, weight(32, 4)),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_left_alone(name: str) -> None:
    mod = module(NONE[name])
    assert CallProducts()(mod) is mod


def test_small_calls_beside_large_ones() -> None:
    mod = module(lambda x: R.matmul(biased(product(x)), weight(64, 4)))
    assert [kind for kind, _ in found(CallProducts()(mod))] == ["product"] * 2


LOOP = """
from relax2xla.script import ir as I
from relax2xla.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 512), "float32")) -> R.Tensor((1, 512), "float32"):
        with R.dataflow():
            turned: R.Tensor((512, 512), "float32") = R.permute_dims(weight)
            @R.function
            def goes_on(
                h: R.Tensor((1, 512), "float32"), step: R.Tensor((), "int64")
            ) -> R.Tensor((), "bool"):
                less: R.Tensor((), "bool") = R.less(step, R.const(3, "int64"))
                return less

            @R.function
            def body(
                h: R.Tensor((1, 512), "float32"), step: R.Tensor((), "int64")
            ) -> R.Tuple(R.Tensor((1, 512), "float32"), R.Tensor((), "int64")):
                product: R.Tensor((1, 512), "float32") = R.matmul(h, turned)
                moved: R.Tensor((1, 512), "float32") = R.add(product, x)
                next: R.Tensor((1, 512), "float32") = R.tanh(moved)
                later: R.Tensor((), "int64") = R.add(step, R.const(1, "int64"))
                return (next, later)

            both: R.Tuple(
                R.Tensor((1, 512), "float32"), R.Tensor((), "int64")
            ) = R.stablehlo.while_(x, R.const(0, "int64"), goes_on, body)
            gv: R.Tensor((1, 512), "float32") = both[0]
            R.output(gv)
        return gv
"""


def test_weights_of_loops_are_laid_out_at_load() -> None:
    matrix = RNG.standard_normal((512, 512), "float32") / 32
    mod = from_source(LOOP, extra_vars={"weight": rx.const(matrix)})
    made = CallProducts()(mod)
    assert well_formed(made)
    inside = [
        [b.value.op.name.rpartition(".")[2] for b in bindings_of(f.body)]
        for b in bindings_of(made["main"].body)
        for f in [b.value]
        if isinstance(f, rx.Function)
    ]
    assert inside == [["less"], ["reshape", "composite", "tanh", "add"]]
    lifted = lift_weights({"main": made["main"]})["main"]
    assert lifted.transform is not None
    h = x = RNG.standard_normal((1, 512), "float32")
    got = np.asarray(rx.VirtualMachine(rx.build(mod), rx.cpu())["main"](x))
    for _ in range(3):
        h = np.tanh(h @ matrix.T + x)
    np.testing.assert_allclose(got, h, rtol=1e-5, atol=1e-5)


def test_what_others_read_is_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(x: rx.Expr) -> rx.Expr:
        made = R.reshape(biased(product(x)), (144, 64))
        return R.add(R.nn.relu(made), made)

    ((_, given),) = found(CallProducts()(module(body)))
    assert given["ending"] == ""


def test_filtering_can_be_left_out() -> None:
    assert CallGivenProducts in map(type, get_pipeline("default").static)
    assert CallGivenProducts not in map(type, get_pipeline("default", winograd=False).static)
    ((kind, _),) = found(CallProducts(winograd=False)(module(conv)))
    assert kind == "convolution"


def test_processors_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "kind", lambda: "")
    mod = module(product)
    assert CallProducts()(mod) is mod


def test_weights_are_laid_out_at_load() -> None:
    """The program takes panels: nothing is left to lay out at a call."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()).eval()
    image = torch.randn(1, 32, 28, 28)
    mod = from_exported_program(torch.export.export(net, (image,)))
    made = np.asarray(rx.VirtualMachine(rx.build(mod, "cpu"))["main"](image.numpy())[0])
    np.testing.assert_allclose(made, net(image).detach().numpy(), rtol=1e-4, atol=1e-5)
    planned = default()(mod)
    lifted = lift_weights({"main": planned["main"]}, planned)["main"]
    shapes = [p.struct_info.dims for p in lifted.main.params]
    assert shapes == [(1, 32, 28, 28), (4, 36, 32, 16), (64,)]


# -- images that come as planes --------------------------------------------------------------------
def stem(x: rx.Expr, channels: int, axes: tuple[int, ...] = (0, 2, 3, 1)) -> rx.Expr:
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    return R.nn.conv2d(R.permute_dims(x, axes), weight(3, 3, channels, 32), padding=1, **layouts)


@pytest.mark.parametrize("at_load", [True, False])
def test_planes_are_read_as_they_come(at_load: bool) -> None:
    mod = module(lambda x: R.nn.relu(stem(x, 3)), (1, 3, 40, 40))
    made = CallProducts(at_load=at_load)(mod)
    ((kind, given),) = found(made)
    assert (kind, given["planes"]) == ("convolution", True)
    assert not any(
        is_op(b.value, "relax.permute_dims") and b.var.struct_info.dims == (1, 40, 40, 3)
        for b in bindings_of(made["main"].body)
    )
    x = RNG.standard_normal((1, 3, 40, 40), "float32")
    expected = evaluate(mod["main"], [x])
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-4, atol=1e-4)


def test_planes_that_are_put_in_order_first() -> None:
    """Of many channels, of another order, and those that something else reads in order."""

    many = module(lambda x: stem(x, 32), (1, 32, 40, 40))
    other = module(lambda x: stem(x, 3, (0, 3, 2, 1)), (1, 3, 40, 40))
    x = rx.Var("x", rx.TensorStructInfo((1, 3, 40, 40)))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            turned = builder.emit(R.permute_dims(x, (0, 2, 3, 1)))
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            made = builder.emit(R.nn.conv2d(turned, weight(3, 3, 3, 32), padding=1, **layouts))
            out = builder.emit_output(R.add(R.mean(made), R.mean(turned)))
        builder.emit_func_output(out)
    for mod in (many, other, builder.get()):
        kinds = [given for kind, given in found(CallProducts(winograd=False)(mod))]
        assert kinds
        assert not any("planes" in given for given in kinds)


# -- products of what is joined --------------------------------------------------------------------
def joined(x: rx.Expr, *more: rx.Expr, axis: int = 3) -> rx.Expr:
    return R.concat([x, *more], axis=axis)


def prepared(x: rx.Expr) -> rx.Expr:
    channels = x.struct_info.shape[-1]
    return R.nn.relu(R.add(R.multiply(x, weight(channels)), weight(1, 1, 1, channels)))


def wide(x: rx.Expr, results: int = 48) -> rx.Expr:
    return R.matmul(x, weight(x.struct_info.shape[-1], results))


JOINED: dict[str, tuple[Body, dict[str, Any], int]] = {
    "two": (lambda x: wide(joined(x, R.exp(x))), {"prepared": False}, 2),
    "the last axis": (lambda x: wide(joined(x, R.exp(x), axis=-1)), {"prepared": False}, 2),
    "nested": (lambda x: wide(joined(joined(x, R.tanh(x)), x)), {"prepared": False}, 3),
    "prepared": (lambda x: wide(prepared(joined(x, R.exp(x)))), {"prepared": True}, 2),
    "one": (lambda x: wide(prepared(x)), {"prepared": True}, 1),
    "read twice": (
        lambda x: R.add(wide(prepared(y := joined(x, R.exp(x)))), R.sum(y)),
        {"prepared": True},
        2,
    ),
    "what follows": (
        lambda x: R.nn.relu(R.add(wide(prepared(joined(x, x))), weight(48))),
        {"prepared": True, "ending": "relu"},
        2,
    ),
}


@pytest.mark.parametrize("name", JOINED)
def test_products_of_what_is_joined(name: str) -> None:
    body, attributes, parts = JOINED[name]
    mod = default()(module(body))
    assert well_formed(mod)
    kinds = found(mod)
    ((kind, given),) = (k for k in kinds if k[0] in ("joined", "product", "convolution"))
    assert kind == "joined"
    assert attributes.items() <= given.items()
    call = next(b.value for b in bindings_of(mod["main"].body) if "joined" in str(b.value))
    assert isinstance(call, rx.Call)
    assert len(call.args) == parts + given["prepared"] + 3


PLAIN: dict[str, Body] = {
    "another axis": lambda x: wide(joined(x, R.exp(x), axis=2)),
    "another reader": lambda x: R.add(wide(y := joined(x, R.exp(x))), R.sum(y)),
    "relu read twice": lambda x: R.add(wide(y := prepared(x)), R.sum(y)),
    "no relu": lambda x: wide(R.add(R.multiply(x, weight(32)), weight(32))),
    "a scale that an argument decides": lambda x: wide(
        R.nn.relu(R.add(R.multiply(x, R.mean(x, [0, 1, 2])), weight(32)))
    ),
    "a scale of pixels": lambda x: wide(
        R.nn.relu(R.add(R.multiply(x, weight(1, 12, 12, 1)), weight(32)))
    ),
    "many": lambda x: wide(joined(*[x] * 65)),
    "few rows": lambda x: wide(R.concat([R.mean(x, [1, 2])] * 40, axis=1), 480),
}


@pytest.mark.parametrize("name", PLAIN)
def test_products_that_join_nothing(name: str) -> None:
    kinds = [kind for kind, _ in found(default()(module(PLAIN[name])))]
    assert "product" in kinds
    assert "joined" not in kinds


def test_layers_that_join_what_is_before_them() -> None:
    """A block of DenseNet from torch: one copy less for each layer, and torch's values."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Conv2d(3, 32, 3, padding=1)
            self.layers = nn.ModuleList(
                nn.Sequential(
                    nn.BatchNorm2d(32 + 16 * i),
                    nn.ReLU(),
                    nn.Conv2d(32 + 16 * i, 48, 1, bias=False),
                    nn.BatchNorm2d(48),
                    nn.ReLU(),
                    nn.Conv2d(48, 16, 3, padding=1, bias=False),
                )
                for i in range(3)
            )

        def forward(self, x: Any) -> Any:
            found = [self.first(x)]
            for layer in self.layers:
                found.append(layer(torch.cat(found, 1)))
            return torch.cat(found, 1)

    net, x = Dense().eval(), torch.randn(1, 3, 20, 20)
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            nn.init.uniform_(norm.weight, -1, 1)
            nn.init.normal_(norm.bias)
    mod = from_exported_program(torch.export.export(net, (x,)))
    calls = [given for kind, given in found(default()(mod)) if kind == "joined"]
    assert [given["ending"] for given in calls] == ["relu"] * 3
    (got,) = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x.numpy())
    np.testing.assert_allclose(np.asarray(got), net(x).detach().numpy(), rtol=2e-5, atol=2e-5)
