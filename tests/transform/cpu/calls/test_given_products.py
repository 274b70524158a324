"""CallGivenProducts: weights that come with each call, and symbolic sizes: what becomes a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.importers.torch import from_exported_program
from relax2xla.runtime.compiler import has_compiler
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.products import CallGivenProducts
from relax2xla.transform.pipeline import default
from tests.transform.cpu import composites

from .test_products import RNG, SHAPE, T, biased, found, linear, weight

pytestmark = [
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
    pytest.mark.usefixtures("avx2"),
]


def with_arguments(body: Callable[..., rx.Expr], *shapes: tuple[int, ...]) -> rx.IRModule:
    """``main`` gives what ``body`` makes of an image and of an argument of each shape."""
    params = [rx.Var(f"p{i}", T(shape)) for i, shape in enumerate((SHAPE, *shapes))]
    return composites.of_params(body, params)


def of_rows(x: rx.Expr, w: rx.Expr) -> rx.Expr:
    return R.matmul(x, R.permute_dims(w))


def laid_out(x: rx.Expr, w: rx.Expr) -> rx.Expr:
    return R.einsum((x, w), "ay,zy->az")


def turned_around(w: rx.Expr, *axes: int) -> rx.Expr:
    """The window of a gradient by an image, in HWIO, of a weight [channels, results, ...]."""
    made: rx.Expr = R.permute_dims(w, (1, 0, 2, 3))
    for axis in axes:
        made = R.flip(made, axis)
    return R.permute_dims(made, (2, 3, 1, 0))


def nhwc(x: rx.Expr, w: rx.Expr, **options: Any) -> rx.Expr:
    return R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **options)


ARGUMENTS: dict[str, tuple[rx.IRModule, str, dict[str, Any]]] = {
    "product": (with_arguments(of_rows, (64, 32)), "product", {"lies": "first"}),
    "linear": (
        with_arguments(lambda x, w: R.einsum((x, w), "abcy,zy->abcz"), (64, 32)),
        "product",
        {"lies": "first"},
    ),
    "bias": (
        with_arguments(lambda x, w, b: R.nn.relu(R.add(of_rows(x, w), b)), (64, 32), (64,)),
        "product",
        {"lies": "first", "ending": "relu"},
    ),
    "scale": (
        with_arguments(lambda x, w, s: R.multiply(of_rows(x, w), s), (64, 32), (64,)),
        "product",
        {"lies": "first", "scaled": True},
    ),
    "convolution": (
        with_arguments(lambda x, w: nhwc(x, w, strides=2), (3, 3, 32, 48)),
        "convolution",
        {"lies": "last"},
    ),
    "planes": (
        with_arguments(
            lambda x, w: R.nn.conv2d(R.permute_dims(x, (0, 3, 1, 2)), w), (64, 32, 1, 1)
        ),
        "product",
        {"lies": "first"},
    ),
    "groups": (
        with_arguments(lambda x, w: nhwc(x, w, groups=4), (3, 3, 8, 48)),
        "convolution",
        {"groups": 4},
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_weights_that_are_arguments(name: str) -> None:
    mod, kind, attributes = ARGUMENTS[name]
    assert not found(default()(mod))
    calls = found(CallGivenProducts()(default()(mod)))
    assert [k for k, _ in calls] == [kind]
    assert attributes.items() <= calls[0][1].items()
    shapes = [p.struct_info.dims for p in mod["main"].params]
    given = [RNG.standard_normal(shape, "float32") for shape in shapes]
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given)
    expected = np.asarray(evaluate(mod["main"], given))
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-4)


def rows_transposed(x: rx.Expr) -> rx.Expr:
    return R.permute_dims(R.reshape(x, (32, 144)))


LEFT: dict[str, rx.IRModule] = {
    "rows that are constant": with_arguments(
        lambda x, w: R.matmul(weight(500, 144), R.reshape(x, (144, 32))), (1,)
    ),
    "rows that were transposed": with_arguments(
        lambda x, w: of_rows(rows_transposed(x), w), (96, 32)
    ),
    "a matrix (in, out)": with_arguments(R.matmul, (32, 64)),
    "few columns": with_arguments(of_rows, (16, 32)),
    "a matrix for each image": with_arguments(R.matmul, (1, 12, 32, 64)),
}


@pytest.mark.parametrize("name", LEFT)
def test_products_of_arguments_that_xla_computes_better(name: str) -> None:
    assert not found(CallGivenProducts()(LEFT[name]))


def test_batch_norms_behind_weights_that_are_arguments() -> None:
    """Detached parameters, as TVM's programs have them: torch's values, and no weight is scaled."""
    torch = pytest.importorskip("torch")
    from relax2xla.frontend import detach_params

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(16, 32, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 1),
        torch.nn.BatchNorm2d(64),
    ).eval()
    for norm in (net[1], net[4]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(1, 16, 14, 14)
    exported = torch.export.export(net, (x,))
    mod, params = detach_params(from_exported_program(exported, keep_params_as_input=True))
    calls = [given for _, given in found(CallGivenProducts()(default()(mod)))]
    assert [(c["lies"], c["scaled"], c["ending"]) for c in calls] == [
        ("first", True, "relu"),
        ("first", True, ""),
    ]
    (got,) = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](x.numpy(), *params["main"])
    np.testing.assert_allclose(np.asarray(got), net(x).detach().numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["product", "linear", "convolution", "groups"])
def test_sizes_that_calls_tell(name: str) -> None:
    """The static pass reads all weights as they lie, and its forms have names of their own."""
    mod, kind, attributes = ARGUMENTS[name]
    made = CallGivenProducts()(mod)
    ((got, given),) = found(made)
    assert (got, attributes.items() <= given.items()) == (kind, True)
    (form,) = (g.name_hint for g in made.functions if g.name_hint != "main")
    assert form == "main_given__products_form_0"
    # What is a form is none of its own.
    assert CallGivenProducts()(made) is made


@pytest.mark.parametrize(("product", "least"), [(laid_out, 24), (of_rows, 2)])
def test_few_rows(product: Callable[[rx.Expr, rx.Expr], rx.Expr], least: int) -> None:
    """XLA reads few of them by a weight that was laid out for it, and would transpose another."""

    def rows(count: int) -> rx.IRModule:
        each = 4608 // count
        return with_arguments(lambda x, w: product(R.reshape(x, (count, each)), w), (256, each))

    calls = [len(found(CallGivenProducts()(rows(count)))) for count in (1, 2, 16, 24)]
    assert calls == [int(count >= least) for count in (1, 2, 16, 24)]


TWICE: dict[str, tuple[rx.IRModule, str]] = {
    "product": (
        with_arguments(lambda x, w: of_rows(x, R.permute_dims(w)), (32, 64)),
        "",
    ),
    "convolution": (
        with_arguments(
            lambda x, w: nhwc(x, R.permute_dims(R.permute_dims(w, (3, 2, 0, 1)), (2, 3, 1, 0))),
            (3, 3, 32, 48),
        ),
        "last",
    ),
    "turned around": (
        with_arguments(lambda x, w: nhwc(x, turned_around(w, 2, 3)), (32, 48, 3, 3)),
        "turned",
    ),
    "turned around along one axis": (
        with_arguments(lambda x, w: nhwc(x, turned_around(w, 2)), (32, 48, 3, 1)),
        "turned",
    ),
    "turned around in part": (
        with_arguments(lambda x, w: nhwc(x, turned_around(w, 2)), (32, 48, 3, 3)),
        "first",
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_weights_that_were_turned_more_than_once(name: str) -> None:
    """As gradients by images have them; what lies as it is read is not transposed."""
    mod, lies = TWICE[name]
    calls = [given["lies"] for _, given in found(CallGivenProducts()(mod))]
    assert calls == ([lies] if lies else [])
    given = [RNG.standard_normal(p.struct_info.dims, "float32") for p in mod["main"].params]
    got = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*given)
    expected = np.asarray(evaluate(mod["main"], given))
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-4)


def test_a_batch_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    n = rx.tir.Var("n", "int64")
    x = rx.Var("x", T((n, 12, 12, 32)))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(R.nn.relu(biased(linear(x))))
        builder.emit_func_output(made)
    mod = builder.get()
    assert not found(default()(mod))
    seen: list[Any] = []
    transform = CallGivenProducts.transform_module

    def noted(self: CallGivenProducts, mod: rx.IRModule, context: Any) -> rx.IRModule:
        made = transform(self, mod, context)
        seen.extend(found(made))
        return made

    monkeypatch.setattr(CallGivenProducts, "transform_module", noted)
    machine = rx.VirtualMachine(rx.build(mod, "cpu"))
    for size in (2, 3):
        given = RNG.standard_normal((size, 12, 12, 32), "float32")
        expected = np.asarray(evaluate(mod["main"], [given]))
        np.testing.assert_allclose(machine["main"](given), expected, rtol=1e-4, atol=1e-4)
    assert [(kind, given["lies"], given["ending"]) for kind, given in seen] == [
        ("product", "first", "relu")
    ] * 2
