"""Weights in a file beside a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.ir import Constant, IRModule, Span
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.runtime.weights import load_weights, save_weights

W = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
BITS = (np.arange(2048) % 7).astype(ml_dtypes.int4).reshape(64, 32)


def module() -> IRModule:
    """A weight that is there twice, another of the same name, a splat, and an odd dtype."""
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2, 64), "float32"))
    span = Span('layer.0"w')
    with bb.function("main", [x]):
        shared = Constant(W, span=span)
        y = bb.emit(op.matmul(x, shared))
        y = bb.emit(op.add(y, op.matmul(x, shared)))
        y = bb.emit(op.add(y, op.matmul(x, Constant(2 * W, span=span))))
        y = bb.emit(op.add(y, op.matmul(x, op.astype(Constant(BITS), "float32"))))
        y = bb.emit(op.multiply(y, Constant(np.broadcast_to(np.float32(3), (2, 32)))))
        bb.emit_func_output(bb.emit(op.add(y, rx.const(np.ones(32, np.float32)))))
    return bb.get()


def arrays(mod: IRModule) -> list[Any]:
    return [e.data for e in post_order_deep(mod["main"]) if isinstance(e, Constant)]


X = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)


def run(mod: IRModule) -> np.ndarray:
    return np.asarray(rx.VirtualMachine(rx.build(mod))["main"](X))


@pytest.mark.parametrize("form", ["mlir", "mlirbc", "relax"])
def test_a_program_names_its_weights(form: str, tmp_path: Path) -> None:
    mod = module()
    path, weights = tmp_path / f"m.{form}", tmp_path / "w.safetensors"
    size = rx.save(mod, path, weights=weights)
    assert size == path.stat().st_size < 8000
    stored = load_weights(weights)
    assert sorted(stored) == ["constant", "layer.0_w", "layer.0_w.1"]
    np.testing.assert_array_equal(stored["layer.0_w"], W)
    found = rx.load(path)
    np.testing.assert_allclose(run(found), run(mod), rtol=1e-5)
    large = [a for a in arrays(found) if a.nbytes >= 1024 and any(a.strides)]
    assert not any(a.flags.writeable or a.flags.owndata for a in large)
    # What was read beside is written inline again, and says nothing of the file.
    rx.save(found, tmp_path / f"whole.{form}", weights="inline")
    weights.unlink()
    np.testing.assert_allclose(run(rx.load(tmp_path / f"whole.{form}")), run(mod), rtol=1e-5)
    assert b"w.safetensors" not in (tmp_path / f"whole.{form}").read_bytes()
    with pytest.raises(TVMError, match=r"w.safetensors.*not there"):
        rx.load(path)


@pytest.mark.parametrize("form", ["mlir", "relax"])
def test_files_that_do_not_fit(form: str, tmp_path: Path) -> None:
    path, weights = tmp_path / f"m.{form}", tmp_path / "w.safetensors"
    rx.save(module(), path, weights=weights)
    held = {n: np.array(a) for n, a in load_weights(weights).items()}
    wrong = (
        ({**held, "layer.0_w": W.T.copy()}, r"'layer.0_w' is float32 of shape \(32, 64\)"),
        ({**held, "layer.0_w": W.astype(np.float64)}, "is float64 of shape"),
        ({n: a for n, a in held.items() if n != "constant"}, "has no array 'constant'"),
    )
    for others, message in wrong:
        save_weights(weights, others)
        with pytest.raises(TVMError, match=message):
            rx.load(path)
    save_weights(weights, held)
    rx.load(path)
    text = path.read_text()
    for name in ("../w.safetensors", "/etc/w.safetensors"):
        path.write_text(text.replace("w.safetensors", name))
        with pytest.raises(TVMError, match="relative path inside"):
            rx.load(path)
    path.write_text(text)
    weights.rename(tmp_path / "other.safetensors")
    weights.symlink_to(tmp_path / "other.safetensors")
    with pytest.raises(TVMError, match="through a link"):
        rx.load(path)


def test_programs_share_a_file_and_tools_accept_the_text(tmp_path: Path) -> None:
    from relax2xla.stablehlo import parse

    weights = tmp_path / "sub" / "w.safetensors"
    weights.parent.mkdir()
    for name in ("a.mlir", "b.relax"):
        rx.save(module(), tmp_path / name, weights=weights)
        np.testing.assert_allclose(run(rx.load(tmp_path / name)), run(module()), rtol=1e-5)
    text = (tmp_path / "a.mlir").read_text()
    assert 'relax2xla.weights = "sub/w.safetensors"' in text
    assert max(map(len, text.splitlines())) < 1000
    # MLIR itself reads and writes it as it is.
    module_ = parse(text)
    assert module_.operation.verify()
    assert "dense_resource<layer.0_w> : tensor<64x32xf32>" in str(module_)


def test_what_is_large_lies_beside_text(tmp_path: Path) -> None:
    big = np.ones((600, 512), np.float32)
    big[0, 0] = 2
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((1, 600), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.matmul(x, Constant(big, span=Span("w")))))
    mod = bb.get()
    for form, beside in (("mlir", True), ("relax", True), ("mlirbc", False), ("stablehlo", False)):
        path = tmp_path / form / f"m.{form}"
        path.parent.mkdir()
        rx.save(mod, path)
        assert path.with_suffix(".safetensors").exists() == beside
        np.testing.assert_array_equal(max(arrays(rx.load(path)), key=np.size), big)
    for weights, message in (
        (tmp_path / "w.npz", "written as .safetensors"),
        (tmp_path.parent / "w.safetensors", "in the folder of the program"),
    ):
        with pytest.raises(FileFormatError, match=message):
            rx.save(mod, tmp_path / "m.mlir", weights=weights)
    with pytest.raises(FileFormatError, match="portable artefact"):
        rx.save(mod, tmp_path / "m.stablehlo", weights=tmp_path / "w.safetensors")
    assert not (tmp_path / "m.mlir").exists()
