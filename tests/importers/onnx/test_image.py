"""ImageDecoder: files of every format as their pixels, and bytes that are none."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax2xla.errors import CallError, OpNotImplemented
from relax2xla.frontend.onnx import from_onnx
from relax2xla.testing import evaluate
from relax2xla.vm.host import image as host_image

Image = pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)


def decoder(pixel_format: str) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, ["h", "w", "c"])
    node = helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format=pixel_format)
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def encoded(pixels: Any, kind: str = "png") -> Any:
    with io.BytesIO() as f:
        Image.fromarray(pixels).save(f, format=kind)
        return np.frombuffer(f.getvalue(), np.uint8)


@pytest.mark.parametrize("kind", ["png", "bmp", "tiff", "ppm"])
def test_formats_without_loss_give_the_pixels(kind: str) -> None:
    got = evaluate(from_onnx(decoder("RGB")), [encoded(PIXELS, kind)])
    np.testing.assert_array_equal(got, PIXELS)


def test_formats_of_pixels() -> None:
    got = evaluate(from_onnx(decoder("BGR")), [encoded(PIXELS)])
    np.testing.assert_array_equal(got, PIXELS[:, :, ::-1])
    grey = PIXELS[:, :, 0]
    got = evaluate(from_onnx(decoder("Grayscale")), [encoded(grey)])
    np.testing.assert_array_equal(got, grey[:, :, None])
    got = evaluate(from_onnx(decoder("RGB")), [encoded(grey)])
    np.testing.assert_array_equal(got, np.repeat(grey[:, :, None], 3, 2))


def test_what_is_no_image_or_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = from_onnx(decoder("RGB"))
    for bad in (encoded(PIXELS)[:40], np.arange(30, dtype=np.uint8), encoded(PIXELS, "gif")):
        with pytest.raises(CallError, match="no image"):
            evaluate(mod, [bad])
    monkeypatch.setattr(host_image, "PIXELS", 23)
    with pytest.raises(CallError, match="6 x 4 pixels"):
        evaluate(mod, [encoded(PIXELS)])


def test_without_pillow_it_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OpNotImplemented, match="pip install pillow"):
        from_onnx(decoder("RGB"))
