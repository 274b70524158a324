"""The example networks are the published ones, and torch exports them for any batch."""

from __future__ import annotations

import importlib
import io
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from examples.models import MODELS  # noqa: E402  (needs torch)

#: float32 networks of a few layers, two implementations that sum in different orders
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}

names = pytest.mark.parametrize("name", sorted(MODELS))


def outputs_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def small(name: str, batch: int, seed: int = 0) -> tuple[Any, tuple[Any, ...]]:
    model = MODELS[name]
    return model.build(small=True), model.example_inputs(batch, seed, small=True)


@names
def test_the_number_of_parameters_is_the_published_one(name: str) -> None:
    with torch.device("meta"):
        module = MODELS[name].network()
    assert sum(p.numel() for p in module.parameters()) == MODELS[name].parameters


@names
def test_weights_depend_on_the_seed_alone_and_leave_the_global_state(name: str) -> None:
    before = torch.get_rng_state()
    first, second, other = (MODELS[name].build(seed, small=True) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert not first.training
    a, b, c = first.state_dict(), second.state_dict(), other.state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a)
    floats = [key for key in a if a[key].is_floating_point()]
    assert all(torch.isfinite(a[key]).all() and a[key].std() > 0 for key in floats)
    assert not any(torch.equal(a[key], c[key]) for key in floats)


@names
def test_outputs_keep_their_scale_and_tell_samples_apart(name: str) -> None:
    module, inputs = small(name, 3)
    for output in outputs_of(module(*inputs)):
        assert output.shape[0] == 3
        assert 0.01 < output.abs().mean() < 10
        assert not torch.allclose(output[0], output[2], rtol=1e-2, atol=1e-3)


def test_an_override_replaces_a_size_and_an_unknown_one_is_an_error() -> None:
    module = MODELS["resnet50"].build(small=True, classes=7)
    assert module(*MODELS["resnet50"].example_inputs(small=True)).shape == (1, 7)
    with pytest.raises(TypeError, match="depth"):
        MODELS["resnet50"].build(small=True, depth=7)


@names
def test_onnx_export_agrees_in_onnxruntime(name: str) -> None:
    """Of any batch; how well we import what torch exports is for the tests of importers."""
    runtime = pytest.importorskip("onnxruntime")
    model, target = MODELS[name], io.BytesIO()
    module, inputs = small(name, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own deprecation
        torch.onnx.export(
            module,
            inputs,
            target,
            dynamo=False,
            input_names=list(model.inputs),
            output_names=list(model.outputs),
            opset_version=18,
            dynamic_axes={n: {0: "batch"} for n in model.inputs + model.outputs},
        )
    session = runtime.InferenceSession(target.getvalue())
    module, inputs = small(name, 3, seed=1)
    feed = {n: x.numpy() for n, x in zip(model.inputs, inputs, strict=True)}
    got = session.run(list(model.outputs), feed)
    with torch.no_grad():
        want = outputs_of(module(*inputs))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w.numpy(), **TOLERANCE)


@pytest.mark.parametrize(
    ("name", "peer"), [("resnet50", "resnet50_jax"), ("bert_base", "bert_jax")]
)
def test_the_jax_peer_agrees_with_torch_at_full_size(name: str, peer: str) -> None:
    """Deep sums of float32 in another order: 2e-4 of outputs whose size is about one."""
    jax = pytest.importorskip("jax")
    module = importlib.import_module(f"benchmarks.peers.{peer}")
    network = MODELS[name].build()
    inputs = MODELS[name].example_inputs(2)
    arguments = [x.numpy() if x.is_floating_point() else x.int().numpy() for x in inputs]
    got = jax.jit(module.apply)(module.from_torch(network), *arguments)
    with torch.no_grad():
        want = outputs_of(network(*inputs))
    for g, w in zip(outputs_of(got), want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w.numpy(), rtol=2e-4, atol=2e-4)
