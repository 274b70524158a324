"""Whole networks: the onnx package's light models. torch's exports are in test_zoo.py."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from relax2xla.frontend.onnx import from_onnx
from relax2xla.vm.call.machine import VirtualMachine
from relax2xla.vm.plan.build import build


def run(model: Any, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = from_onnx(model)
    made = VirtualMachine(build(mod, "cpu"))["main"](*inputs)
    return [np.asarray(y) for y in (made if isinstance(made, tuple | list) else [made])]


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
