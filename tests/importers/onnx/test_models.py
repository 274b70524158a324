"""Whole networks: what torch's two exporters write, and the onnx package's light models."""

from __future__ import annotations

import io
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from relax2xla.frontend.onnx import from_onnx
from relax2xla.vm.build import build
from relax2xla.vm.machine import VirtualMachine

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from examples.models import MODELS  # noqa: E402  (needs torch)


def run(model: Any, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = from_onnx(model)
    made = VirtualMachine(build(mod, "cpu"))["main"](*inputs)
    return [np.asarray(y) for y in (made if isinstance(made, tuple | list) else [made])]


def exported(name: str, exporter: str, dynamic: bool) -> bytes:
    model = MODELS[name]
    module, inputs = model.build(small=True), model.example_inputs(2, 0, small=True)
    common: dict[str, Any] = {
        "input_names": list(model.inputs),
        "output_names": list(model.outputs),
        "opset_version": 18,
    }
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn about their own deprecations
        if exporter == "dynamo":
            batch = torch.export.Dim("batch", min=1, max=64)
            shapes = tuple({0: batch} for _ in model.inputs) if dynamic else None
            program = torch.onnx.export(
                module, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False, **common
            )
            assert program is not None
            return program.model_proto.SerializeToString()
        target = io.BytesIO()
        axes = {n: {0: "batch"} for n in model.inputs + model.outputs} if dynamic else None
        torch.onnx.export(module, inputs, target, dynamo=False, dynamic_axes=axes, **common)
    return target.getvalue()


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize(("exporter", "dynamic"), [("dynamo", True), ("torchscript", True)])
def test_exports_of_torch_agree_with_torch(name: str, exporter: str, dynamic: bool) -> None:
    """Deep sums of float32 in another order; outputs are about one in size."""
    contents = exported(name, exporter, dynamic)
    module, inputs = MODELS[name].build(small=True), MODELS[name].example_inputs(3, 1, small=True)
    got = run(contents, [x.numpy() for x in inputs])
    with torch.no_grad():
        want = module(*inputs)
    want = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-3, atol=1e-3)


LIGHT = Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light"
NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_light_networks_give_their_recorded_outputs(name: str) -> None:
    """Input and tolerances are those of the onnx package's own runner."""
    recorded = TensorProto()
    recorded.ParseFromString((LIGHT / f"light_{name}_output_0.pb").read_bytes())
    count = 3 * 224 * 224
    image = (np.arange(count).reshape(1, 3, 224, 224) / count).astype(np.float32)
    (got,) = run(LIGHT / f"light_{name}.onnx", [image])
    np.testing.assert_allclose(got, numpy_helper.to_array(recorded), rtol=1e-3, atol=1e-7)
