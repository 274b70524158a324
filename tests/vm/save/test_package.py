"""Saved executables: the same results, weights mapped, damage and hostility refused."""

from __future__ import annotations

import io
import json
import logging
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.errors import CallError, FileFormatError, RunError, TVMError
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.rename import replace_global_vars
from relax2xla.script import from_source
from relax2xla.vm.pjrt import compiler
from relax2xla.vm.pjrt.complete_code import is_complete
from relax2xla.vm.save import archive

T = rx.TensorStructInfo
ROOT = Path(__file__).resolve().parents[3]


def network(rows: Any = 2, dtype: str = "float32") -> rx.IRModule:
    """tanh(x @ w.T) + b: w.T is computed at load."""
    builder = rx.BlockBuilder()
    infos = {"x": T((rows, 16), dtype), "w": T((64, 16), dtype), "b": T((64,), dtype)}
    variables = [rx.Var(n, i) for n, i in infos.items()]
    x, w, b = variables
    with builder.function("main", variables):
        with builder.dataflow():
            y = builder.emit(R.matmul(x, builder.emit(R.permute_dims(w))))
            out = builder.emit_output(rx.Tuple([R.add(R.tanh(y), b), R.sum(y)]))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture
def weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "w": rng.standard_normal((64, 16)).astype(np.float32),
        "b": rng.standard_normal(64).astype(np.float32),
    }


def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = x @ w.T
    return np.tanh(y) + b, y.sum()


def check(vm: rx.VirtualMachine, x: np.ndarray, weights: dict[str, np.ndarray]) -> None:
    for found, wanted in zip(vm["main"](x), expected(x, **weights), strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["computed", "raw"])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_same_results(
    tmp_path: Path, weights: dict[str, np.ndarray], form: str, compiled: bool
) -> None:
    path = tmp_path / "m.r2x"
    rx.build(network(), params=weights).export_library(path, compiled=compiled, weights=form)
    loaded = rx.load_module(path)
    vm = rx.VirtualMachine(loaded)
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
    check(vm, x, weights)
    assert [p.name_hint for p in vm["main"].params] == ["x"]
    with pytest.raises(CallError, match="expected"):
        vm["main"](np.ones((3, 16), np.float32))
    # Updated weights, the transform included.
    other = {n: w * 2 for n, w in weights.items()}
    vm.set_params(other)
    check(vm, x, other)
    check(rx.VirtualMachine(rx.load_module(path, compiled=False)), x, weights)
    assert "tanh" in loaded.as_text()
    assert "main" in loaded.stats()
    # JAX sees through it.
    y = jax.jit(lambda v: vm["main"](v)[0])(x)
    np.testing.assert_allclose(np.asarray(y), expected(x, **other)[0], rtol=2e-5, atol=1e-5)


def test_saved_again(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    first, second = tmp_path / "a.r2x", tmp_path / "b.r2x"
    rx.build(network(), params=weights).export_library(first)
    rx.load_module(first).export_library(second)
    check(rx.VirtualMachine(rx.load_module(second)), np.ones((2, 16), np.float32), weights)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(tmp_path: Path, rng: np.random.Generator, dtype: str) -> None:
    kind = rx.dtypes.numpy_dtype(dtype)
    params = {n: rng.standard_normal(s).astype(kind) for n, s in (("w", (64, 16)), ("b", (64,)))}
    executable = rx.build(network(dtype=dtype), params=params)
    executable.export_library(tmp_path / "m.r2x")
    x = rng.standard_normal((2, 16)).astype(kind)
    ours = rx.VirtualMachine(rx.load_module(tmp_path / "m.r2x"))["main"](x)
    for found, wanted in zip(ours, rx.VirtualMachine(executable)["main"](x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_symbolic_shapes(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    mod = network(tir.Var("n"))
    rx.build(mod, params=weights).export_library(tmp_path / "m.r2x")
    vm = rx.VirtualMachine(rx.load_module(tmp_path / "m.r2x"))
    for n in (1, 3, 5):
        check(vm, np.ones((n, 16), np.float32), weights)


BYTECODE = """
from relax2xla.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=2, dtype="int64"):
        y = R.multiply(x, R.const(2.0, "float32"))
        z = R.nonzero(y)
        return z
"""


def test_bytecode(tmp_path: Path) -> None:
    executable = rx.build(from_source(BYTECODE))
    assert executable.code.functions
    executable.export_library(tmp_path / "m.r2x")
    loaded = rx.load_module(tmp_path / "m.r2x")
    assert loaded.code.functions == executable.code.functions
    found = rx.VirtualMachine(loaded)["main"](np.array([0, 1, 0, 3], np.float32))
    np.testing.assert_array_equal(np.asarray(found).reshape(-1), [1, 3])
    loaded.export_library(tmp_path / "again.r2x")
    for made in (executable, loaded, rx.load_module(tmp_path / "again.r2x")):
        (x,) = made.params("main")
        assert (x.name_hint, str(x.struct_info)) == ("x", 'Tensor((n,), dtype="float32")')
        assert rx.VirtualMachine(made)["main"].params == (x,)


def test_shared_weights_are_saved_once(tmp_path: Path, rng: np.random.Generator) -> None:
    big = rng.standard_normal((256, 256)).astype(np.float32)
    builder = rx.BlockBuilder()
    for name in ("prefill", "decode"):
        x = rx.Var("x", T((2, 256), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                turned = builder.emit(R.permute_dims(rx.const(big)))
                out = builder.emit_output(R.matmul(R.matmul(x, turned), rx.const(big)))
            builder.emit_func_output(out)
    rx.build(builder.get(), relax_pipeline="zero").export_library(tmp_path / "m.r2x")
    size = (tmp_path / "m.r2x").stat().st_size
    assert 2 * big.nbytes < size < 2 * big.nbytes + 60_000
    executable = rx.load_module(tmp_path / "m.r2x")
    vm = rx.VirtualMachine(executable)
    first, second = vm["prefill"].weights(), vm["decode"].weights()
    assert all(a is b for a, b in zip(first, second, strict=True))
    # The device uses the file's own pages.
    own = {a.ctypes.data for a in executable.tensors.values()}
    assert all(w.unsafe_buffer_pointer() in own for w in first)


def test_another_machine_compiles_again_and_says_so_once(
    tmp_path: Path,
    weights: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rx.build(network(), params=weights).export_library(tmp_path / "m.r2x")
    x = np.ones((2, 16), np.float32)
    with caplog.at_level(logging.WARNING, "relax2xla.vm"):
        check(rx.VirtualMachine(rx.load_module(tmp_path / "m.r2x")), x, weights)
        assert not caplog.records
        monkeypatch.setattr(compiler.processor, "machine", lambda: "another machine")
        executable = rx.load_module(tmp_path / "m.r2x")
        for _ in range(2):
            check(rx.VirtualMachine(executable), x, weights)
        assert len(caplog.records) == 1
        assert "not for this machine" in caplog.text


def test_nothing_of_the_source_is_needed(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    rx.build(network(), params=weights).export_library(tmp_path / "m.r2x")
    code = (
        "import sys, numpy as np, relax2xla as rx\n"
        "sys.modules['torch'] = sys.modules['onnx'] = None\n"
        f"m = rx.VirtualMachine(rx.runtime.load_module({str(tmp_path / 'm.r2x')!r}))['main']\n"
        "print(float(np.asarray(m(np.ones((2, 16), 'f'))[1])))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    wanted = expected(np.ones((2, 16), "f"), **weights)[1]
    assert float(done.stdout) == pytest.approx(float(wanted), rel=1e-4)


def test_programs_whose_code_xla_leaves_out_are_found() -> None:
    kernel = b"\n\x06kernel\x12\x03\n\x01a\x5a\x05\n\x03fun"
    listed = b"\x08\x01\x12\x03fun"
    assert is_complete(kernel + listed)
    assert not is_complete(kernel)
    assert not is_complete(b"\n\x06kernel\x12\x03")
    assert not is_complete(b"...\n\x04sort...")
    assert is_complete(b"...\n\x04sort...\x7fELF")


# -- what cannot be saved --------------------------------------------------------------------------
def test_what_cannot_be_saved(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    executable = rx.build(network(), params=weights)
    for path, error in (("none/m.r2x", FileNotFoundError), ("", IsADirectoryError)):
        with pytest.raises(error) as found:
            executable.export_library(tmp_path / path)
        assert found.value.filename == str(tmp_path / path)
        assert found.value.filename2 is None
    with pytest.raises(ValueError, match="computed, raw"):
        executable.export_library(tmp_path / "m.r2x", weights="all")
    executable = replace(executable, static=(rx.transform.FoldBatchNorm(),))
    with pytest.raises(TVMError, match="cannot be saved"):
        executable.export_library(tmp_path / "m.r2x")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, weights: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = rx.build(network(), params=weights)
    path = tmp_path / "m.r2x"
    executable.export_library(path)
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        executable.export_library(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.r2x"]


# -- damage ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((64, 16)).astype("f"), "b": np.ones(64, "f")}
    path = tmp_path_factory.mktemp("saved") / "m.r2x"
    rx.build(network(), params=params).export_library(path)
    return path.read_bytes()


def test_truncated_and_flipped_files(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.r2x"
    rng = random.Random(0)
    path.write_bytes(saved)
    good = archive.Archive(path)
    contents = {n: good.read(n) for n in good._infos if n not in ("manifest.json", archive.TENSORS)}
    tensors = bytes(good.tensors())
    good.close()
    for length in [0, 1, 20, *(rng.randrange(len(saved)) for _ in range(60))]:
        path.write_bytes(saved[:length])
        with pytest.raises(FileFormatError, match=r"m\.r2x"):
            rx.load_module(path)
    for _ in range(400):
        changed = bytearray(saved)
        changed[rng.randrange(len(saved))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            found = archive.Archive(path)
        except FileFormatError:
            continue
        # What is not noticed at once is noticed when it is read, or was no content (dates).
        try:
            assert {n: found.read(n) for n in contents} == contents
            assert bytes(found.tensors()) == tensors
        except FileFormatError:
            pass
        finally:
            found.close()


def rewritten(saved: bytes, change: Callable[[dict[str, bytes]], None], **info: Any) -> bytes:
    """The file with other members, and checksums that are right."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive_:
        members = {n: archive_.read(n) for n in archive_.namelist()}
    change(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as made:
        for name, data in members.items():
            made.writestr(name, data)
        made.comment = archive.hashlib.sha256(members["manifest.json"]).hexdigest().encode()
    return out.getvalue()


def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        data = json.loads(members["manifest.json"])
        change(data)
        members["manifest.json"] = json.dumps(data).encode()

    return apply


@pytest.mark.parametrize(
    "change",
    [
        manifest(lambda m: m.update(format=99)),
        manifest(lambda m: m.pop("functions")),
        manifest(lambda m: m["functions"][0].update(kind="other")),
        manifest(lambda m: m["functions"][0]["params"][0].__setitem__(1, ["tensor", [-1], "f"])),
        manifest(lambda m: m["functions"][0]["programs"][0].update(tree=[0, 7])),
        manifest(lambda m: m["functions"][0]["weights"][0].update(shape=[1 << 40, 1 << 40])),
        manifest(lambda m: m["functions"][0]["weights"][0].update(tensor="gone")),
        manifest(lambda m: m["static"].update(cpu=["system"])),
        manifest(lambda m: m.update(files={})),
        manifest(lambda m: m.update(tables={"relax.expr.Constant": 7})),
        manifest(lambda m: m.update(tables=7)),
        manifest(lambda m: m.update(notes={"main": [1]})),
        manifest(lambda m: m["functions"][0].update(name=7)),
        manifest(lambda m: m["functions"][0].update(main=[])),
        manifest(lambda m: m["functions"][0]["params"][0].append("more")),
        lambda members: members.update({"manifest.json": b"[" * 100_000}),
        lambda members: members.update({"../../evil": b"x"}),
        lambda members: members.update({"/etc/evil": b"x"}),
        lambda members: members.pop("module.relax"),
    ],
)
def test_consistent_but_hostile_files(
    saved: bytes, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    path = tmp_path / "m.r2x"
    path.write_bytes(rewritten(saved, change))
    with pytest.raises(FileFormatError):
        rx.load_module(path)


@pytest.mark.parametrize(
    "change",
    [
        # No module; no such function; other parameters.
        lambda members: members.update(
            {"module.relax": b'@R.function\ndef main(x: R.Tensor((2,), "int8")):\n    return x\n'}
        ),
        manifest(lambda m: m["functions"][0].update(main="gone")),
        manifest(lambda m: m["functions"][0].update(weights=[], names=[], packs=[], programs=[])),
    ],
)
def test_text_that_is_not_of_the_manifest(
    saved: bytes, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    """The text is read when a call needs it."""

    def apply(members: dict[str, bytes]) -> None:
        change(members)
        data = json.loads(members["manifest.json"])
        text = members["module.relax"]
        digest = archive.hashlib.sha256(text).hexdigest()
        data["files"]["module.relax"] = {"size": len(text), "sha256": digest}
        for row in data["functions"]:
            row["programs"] = []
        members["manifest.json"] = json.dumps(data).encode()

    path = tmp_path / "m.r2x"
    path.write_bytes(rewritten(saved, apply))

    def load_and_warm() -> None:
        machine = rx.VirtualMachine(rx.load_module(path))
        machine.warm(next(iter(machine.executable)))

    with pytest.raises(TVMError, match=r"module|weights among them") as found:
        load_and_warm()
    assert not isinstance(found.value.__cause__, KeyError | TypeError | AttributeError)


def test_zip_bombs_and_overlapping_members(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.r2x"
    at = saved.index(b"PK\1\2")
    # The first member's size before compression, in the central directory.
    for offset, value in ((24, 0x7FFFFFFF), (20, 0x7FFFFFFF), (42, 5)):
        changed = bytearray(saved)
        struct.pack_into("<I", changed, at + offset, value)
        path.write_bytes(changed)
        with pytest.raises(FileFormatError):
            rx.load_module(path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("manifest.json", b"{}")
        made.writestr("bomb", b"\0" * (1 << 24))
    path.write_bytes(out.getvalue())
    with pytest.raises(FileFormatError):
        rx.load_module(path)
    with pytest.raises(FileFormatError, match="No such file"):
        rx.load_module(tmp_path / "gone.r2x")


# ---- bytecode of strangers
def bytecode_file(tmp_path: Path, change: Callable[[Any], None]) -> Path:
    """An executable with a condition, whose code was changed after it was saved."""
    ib = rx.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("vm.builtin.add", args=[ib.r(1), ib.imm(1)], dst=ib.r(2))
        ib.emit_goto(2)
        ib.emit_call("vm.builtin.sub", args=[ib.r(1), ib.imm(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    path = tmp_path / "code.r2x"
    ib.get().export_library(path)
    good = archive.Archive(path)
    names = [n for n in good.manifest["files"] if n != archive.TENSORS]
    members = {n: good.read(n) for n in names}
    code = json.loads(members["code.json"])
    change(code)
    members["code.json"] = json.dumps(code).encode()
    rest = {k: v for k, v in good.manifest.items() if k != "files"}
    tensors = bytes(good.tensors())
    archive.write_archive(path, rest, members, lambda file: file.write(tensors))
    return path


def body(code: Any) -> Any:
    """The instructions of main: each is {tag: fields}."""
    (row,) = (f["row"] for f in code["functions"] if f["row"][1] == "vm")
    return row[4]


def put(at: int, tag: str, field: int, value: Any) -> Callable[[Any], None]:
    return lambda code: body(code)[at][tag].__setitem__(field, value)


def test_bytecode_that_is_not_changed(tmp_path: Path) -> None:
    main = rx.VirtualMachine(rx.load_module(bytecode_file(tmp_path, lambda code: None)))["main"]
    assert [main(True, 5), main(False, 5)] == [6, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(0, "if", 0, {"imm": [1]}), "its condition is no register"),
        (put(0, "if", 0, {"reg": ["0 or exit()"]}), "no register"),
        (put(0, "if", 0, {"reg": [True]}), "no register"),
        (put(0, "if", 1, 1.5), "no offset"),
        (put(0, "if", 2, 7), "its span is no string"),
        (put(1, "call", 0, "0"), "there is no function '0'"),
        (put(1, "call", 1, 3), "its operands are no sequence"),
        (put(1, "call", 1, [{"reg": [1]}]), "takes 2 operands, not 1"),
        (put(1, "call", 1, [{"reg": [1]}, 1]), "no operand: 1"),
        (put(1, "call", 1, [{"reg": [1]}, {"imm": [{"list": []}]}]), "a list is no literal"),
        (put(1, "call", 1, [{"reg": [1]}, {"special": ["exit"]}]), "no operand"),
        (put(1, "call", 1, [{"reg": [1]}, {"const": [0]}]), "there is no constant"),
        (put(1, "call", 1, [{"reg": [1]}, {"func": [9]}]), "there is no function"),
        (put(1, "call", 2, -1), "no register"),
        (put(1, "call", 2, "2 = 3; r2"), "no register"),
        (put(2, "goto", 0, "2"), "no offset"),
        (put(4, "ret", 0, {"goto": [1]}), "no operand"),
        (lambda code: body(code).__setitem__(0, {"reg": [0]}), "no instruction"),
        (lambda code: code["constants"].append({"reg": [0]}), "holds a part of the bytecode"),
        (lambda code: code["functions"].append({"reg": [0]}), "of the table is a Reg"),
        (lambda code: code["functions"][0]["row"].__setitem__(0, 7), "its name is no string"),
        (lambda code: code["functions"].append({"row": ["f", ["vm"]]}), "the kind"),
        (lambda code: code["functions"].append({"row": ["f", "packed", [1]]}), "no strings"),
        (lambda code: code["functions"].append({"row": ["f", "vm", [], 2**70]}), "registers"),
        (
            lambda code: code["functions"].append(
                {"row": ["f", "vm", ["x"], 1, [{"ret": [{"reg": [0]}]}], False, [["tensor"]]]}
            ),
            "no pattern of values",
        ),
        (lambda code: code.pop("constants"), "does not have the form"),
    ],
)
def test_bytecode_that_must_not_become_python(
    change: Callable[[Any], None], message: str, tmp_path: Path
) -> None:
    path = bytecode_file(tmp_path, change)
    with pytest.raises(FileFormatError, match=message):
        rx.load_module(path)


def test_steps_are_counted_on_request(tmp_path: Path) -> None:
    path = bytecode_file(tmp_path, put(2, "goto", 0, 0))
    machine = rx.VirtualMachine(rx.load_module(path), max_steps=100)
    with pytest.raises(RunError, match="has made 100 steps"):
        machine["main"](True, 5)
    assert machine["main"](False, 5) == 4
    assert machine["main"](False, 5) == 4


def test_a_mistake_of_an_instruction_is_an_error_of_ours(tmp_path: Path) -> None:
    path = bytecode_file(tmp_path, put(1, "call", 1, [{"reg": [1]}, {"imm": ["text"]}]))
    main = rx.VirtualMachine(rx.load_module(path))["main"]
    with pytest.raises(RunError, match="cannot go on: TypeError") as found:
        main(True, 5)
    assert "in the VM function main, instruction 1" in str(found.value.__notes__)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["outputs"][0].__setitem__(0, [3, 2]),
        lambda row: row["outputs"][0].__setitem__(1, "int32"),
        lambda row: row["key"][0].__setitem__(2, "int32"),
        lambda row: row["key"][0].__setitem__(1, [3, 2]),
    ],
)
def test_a_manifest_that_is_not_of_its_program(
    change: Callable[[Any], None], compiled: bool, tmp_path: Path
) -> None:
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2, 3), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.tanh(x)))
    path = tmp_path / "m.r2x"
    rx.build(builder.get()).export_library(path)
    good = archive.Archive(path)
    members = {n: good.read(n) for n in good.manifest["files"] if n != archive.TENSORS}
    rest = {k: v for k, v in good.manifest.items() if k != "files"}
    (function,) = rest["functions"]
    change(function["programs"][0])
    kind, *shape_and_dtype = function["programs"][0]["key"][0]
    function["params"][0][1] = [kind, *shape_and_dtype]
    tensors = bytes(good.tensors())
    archive.write_archive(path, rest, members, lambda file: file.write(tensors))
    shape, dtype = shape_and_dtype
    machine = rx.VirtualMachine(rx.load_module(path, compiled=compiled))
    with pytest.raises(FileFormatError, match="the manifest says"):
        machine["main"](np.ones(shape, dtype))


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("name", ["products", "convolutions", "steps", "attention"])
def test_what_functions_in_cpp_compute_is_text_in_a_package(name: str, tmp_path: Path) -> None:
    """Weights as they are, code of this processor made anew, and text of the passes' result."""
    torch = pytest.importorskip("torch")
    from relax2xla.frontend.torch import from_exported_program

    nn = torch.nn
    network, x = {
        "products": (
            lambda: nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)),
            torch.randn(2, 512),
        ),
        "convolutions": (
            lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=32)),
            torch.randn(1, 3, 24, 24),
        ),
        "steps": (lambda: nn.LSTM(64, 64), torch.randn(9, 1, 64)),
        "attention": (
            lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True),
            torch.randn(1, 40, 64),
        ),
    }[name]
    made = network().eval()
    mod = from_exported_program(torch.export.export(made, (x,)))
    want = made(x)
    want = (want[0] if isinstance(want, tuple) else want).detach().numpy()
    executable = rx.build(mod)
    text, raw = tmp_path / "m.r2x", tmp_path / "raw.r2x"
    executable.export_library(text)
    executable.export_library(raw, weights="raw")
    for ex in (rx.load_module(raw), rx.load_module(text, native=True)):
        got = rx.VirtualMachine(ex)["main"](x)
        while isinstance(got, tuple | list):
            got = got[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    # What the passes make of it is text, too, and an equal program.
    lowered = rx.get_pipeline("default")(mod)
    rx.save(lowered, tmp_path / "m.relax")
    assert_structural_equal(rx.load(tmp_path / "m.relax"), lowered)


@pytest.mark.parametrize("name", ["a.b", "my func", "class", "main$1"])
def test_functions_whose_names_text_cannot_have(name: str, tmp_path: Path) -> None:
    mod = from_source(
        """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y: R.Tensor((2,), "float32") = M.f(x)
        return y

    @R.function(private=True)
    def f(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        z = R.add(x, x)
        return z
"""
    )
    mod = replace_global_vars(mod, {"f": name})
    rx.save(mod, tmp_path / "m.relax")
    again = rx.load(tmp_path / "m.relax")
    assert name in [f.attrs.get("sym_name") for f in again.functions.values()]
    rx.build(mod).export_library(tmp_path / "m.r2x", weights="raw")
    for ex in (rx.build(again), rx.load_module(tmp_path / "m.r2x", native=True)):
        assert np.asarray(rx.VirtualMachine(ex)["main"](np.ones(2, "f"))).tolist() == [2, 2]
