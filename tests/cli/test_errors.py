"""Wrong input: one message on standard error, exit status 2, no traceback, nothing written."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.importers.files import save, write_atomically

from .conftest import Cli, shell

Models = Callable[[str], Path]
EXTENSIONS = ("onnx", "mlir", "mlirbc", "stablehlo", "relax", "py", "pt2")


def refused(cli: Cli, *words: object, says: str) -> None:
    """The command fails as it should; ``says`` is in its message."""
    done = cli(*words)
    assert done.code == 2, done.out
    assert "Traceback" not in done.err
    assert says in done.err
    assert done.err.startswith("relax2xla: error: ")
    assert "--debug shows" not in done.err


@pytest.mark.parametrize("command", ["inspect", "run", "verify", "bench", "convert"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.onnx", "no such file"),
        ("folder.onnx", "is a directory"),
        ("model.xyz", "'.xyz' is not known"),
        ("model", "without extension"),
        ("model.safetensors", "export the model"),
        ("empty.mlir", "is empty"),
        ("random.onnx", "not an ONNX model"),
    ],
)
def test_files_that_cannot_be_read(
    command: str, name: str, says: str, cli: Cli, tmp_path: Path
) -> None:
    inputs, outputs = tmp_path / "in", tmp_path / "out"
    for folder in (inputs, outputs, inputs / "folder.onnx"):
        folder.mkdir()
    for file in ("model.xyz", "model", "model.safetensors", "random.onnx"):
        (inputs / file).write_bytes(random.Random(0).randbytes(200))
    (inputs / "empty.mlir").touch()
    flags = {"convert": ("-o", outputs / "out.mlir"), "run": ("-o", outputs / "out.npz")}
    refused(cli, command, inputs / name, *flags.get(command, ()), says=says)
    assert list(outputs.iterdir()) == []


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("start", [b"", b"ML\xefR", b"PK\x03\x04", b"ML\xefR\rStableHLO_v1.0.0\0"])
def test_random_bytes(extension: str, start: bytes, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / f"model.{extension}"
    for seed in range(5):
        file.write_bytes(start + random.Random(seed).randbytes(50 + 100 * seed))
        refused(cli, "inspect", file, "--trust", says="model." + extension)


@pytest.mark.parametrize("extension", ["onnx", "mlir", "mlirbc", "stablehlo", "relax", "pt2"])
def test_truncated(extension: str, models: Models, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / f"model.{extension}"
    if extension in ("mlirbc", "stablehlo"):
        save(rx.load(models("mlir")), file)
    else:
        file.write_bytes(models(extension).read_bytes())
    whole = file.read_bytes()
    for part in (0.3, 0.6, 0.95):
        file.write_bytes(whole[: int(len(whole) * part)])
        done = cli("inspect", file, "--trust")
        # Text may be whole before its end.
        if done.code != 0:
            assert done.code == 2
            assert done.err.startswith("relax2xla: error: ")
            assert "Traceback" not in done.err
        else:
            assert part == 0.95


def test_pt2_needs_trust(models: Models, cli: Cli) -> None:
    refused(cli, "run", models("pt2"), says="--trust")
    with pytest.raises(FileFormatError, match="trust=True"):
        rx.load(models("pt2"))


def test_archives_that_are_no_exported_program(models: Models, cli: Cli, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / "other.pt2"
    torch.save(torch.nn.Linear(2, 3).state_dict(), file)
    refused(cli, "inspect", file, "--trust", says="what torch.save or torch.jit.save wrote")
    with zipfile.ZipFile(models("pt2")) as whole, zipfile.ZipFile(file, "w") as part:
        for name in whole.namelist():
            if not name.endswith("weight_0"):
                part.writestr(name, whole.read(name))
    # Torch logs the reason, and then raises "check the warnings above".
    refused(cli, "inspect", file, "--trust", says="weight_0")


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("run in.onnx -i x.npz -o", "x.npz"),
        ("run in.onnx -i x=x.npz -o", "x.npz"),
        ("run in.onnx -i x.json -o", "x.json"),
        ("run in.onnx -i x.json -o x.npz", "x.json"),
        ("run in.onnx --weights w.npz -o", "w.npz"),
        ("run in.onnx --flame", "in.onnx"),
        ("run in.onnx --trace", "link.onnx"),
        ("run in.onnx -i x.json --trace", "x.json"),
        ("convert link.mlir -o", "in.mlir"),
        ("compile in.r2x -o", "in.r2x"),
        ("quantize in.mlir -o", "in.mlir"),
        ("opt in.mlir --passes EliminateCommonSubexpr -o", "in.mlir"),
        ("view in.onnx --profile p.json -o", "p.json"),
        ("view in.onnx -o", "in.onnx"),
        ("verify in.mlir --html", "in.mlir"),
        ("bench in.html --plot", "in.html"),
    ],
)
def test_no_command_writes_over_what_it_reads(
    command: str, target: str, cli: Cli, models: Models, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in ("in.onnx", "in.mlir"):
        Path(name).write_bytes(models(name.removeprefix("in.")).read_bytes())
        Path(name.replace("in", "link")).symlink_to(name)
    for name in ("in.r2x", "in.html", "p.json", "x.json", "w.npz"):
        Path(name).write_text("{}")
    np.savez("x.npz", x=X)
    before = Path(target).read_bytes()
    words = command.split()
    refused(cli, *words, *([] if "-o x.npz" in command else [target]), says="the file that is read")
    assert Path(target).read_bytes() == before


def test_numbers_may_be_longer_than_the_name_of_a_file(cli: Cli, tmp_path: Path) -> None:
    file, out = tmp_path / "model.mlir", tmp_path / "out.npy"
    file.write_text(
        "module { func.func public @main(%a: tensor<400xf32>) -> tensor<400xf32> {"
        " return %a : tensor<400xf32> } }"
    )
    numbers = np.arange(400, dtype=np.float32)
    done = cli("run", file, "-i", f"arg0={','.join(map(str, numbers))}", "-o", out)
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(out), numbers)


def test_an_unsupported_operator(cli: Cli, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    h, T = onnx.helper, onnx.TensorProto
    graph = h.make_graph(
        [h.make_node("NoSuchThing", ["x"], ["y"], name="the_node", domain="made.up")],
        "graph",
        [h.make_tensor_value_info("x", T.FLOAT, [1])],
        [h.make_tensor_value_info("y", T.FLOAT, [1])],
    )
    opsets = [h.make_opsetid("", 17), h.make_opsetid("made.up", 1)]
    file, out = tmp_path / "model.onnx", tmp_path / "out.mlir"
    onnx.save(h.make_model(graph, ir_version=9, opset_imports=opsets), file)
    refused(cli, "convert", file, "-o", out, says="NoSuchThing")
    assert not out.exists()


def test_extensions_that_lie(models: Models, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    save(rx.load(models("mlir")), tmp_path / "model.mlirbc")
    file.write_bytes((tmp_path / "model.mlirbc").read_bytes())
    refused(cli, "inspect", file, says="it holds MLIR bytecode")
    (tmp_path / "model.mlirbc").write_bytes(models("mlir").read_bytes())
    refused(cli, "inspect", tmp_path / "model.mlirbc", says="extension .mlir")


X = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"arg0": X.astype(np.float64)}, "the array is float64"),
        ({"arg0": X[:, :3]}, "arg0 is Tensor((2, 4)"),
        ({"arg0": X[0]}, "arg0 is Tensor((2, 4)"),
        ({"wrong": X}, "there is no input 'wrong'; there are arg0, arg1"),
        ({"arg0": np.array([{}])}, "Python objects"),
        (X.astype(np.int32), "the array is int32"),
    ],
)
def test_wrong_inputs(
    arrays: dict[str, np.ndarray] | np.ndarray, says: str, models: Models, cli: Cli, tmp_path: Path
) -> None:
    out = tmp_path / "out.npz"
    if isinstance(arrays, dict):
        np.savez(tmp_path / "in.npz", **arrays)
        given = tmp_path / "in.npz"
    else:
        np.save(tmp_path / "in.npy", arrays)
        given = tmp_path / "in.npy"
    refused(cli, "run", models("mlir"), "--inputs", given, "-o", out, says=says)
    assert not out.exists()


def test_damaged_inputs(models: Models, cli: Cli, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-5])
    refused(cli, "run", models("mlir"), "-i", tmp_path / "x.npy", says="no readable .npy")
    (tmp_path / "x.npy").write_bytes(whole.replace(b"(2, 4)", b"(2, 9)"))
    refused(cli, "run", models("mlir"), "-i", tmp_path / "x.npy", says="no readable .npy")
    (tmp_path / "x.npz").write_bytes(whole)
    refused(cli, "run", models("mlir"), "-i", tmp_path / "x.npz", says="no .npz file")
    (tmp_path / "x.txt").write_bytes(whole)
    refused(cli, "run", models("mlir"), "-i", tmp_path / "x.txt", says=".npy, .npz or .json")
    refused(cli, "run", models("mlir"), "-i", tmp_path / "none.npy", says="no such file")
    np.savez(tmp_path / "many.npz", arg0=X)
    words = ("-i", tmp_path / "many.npz", "-i", tmp_path / "many.npz")
    refused(cli, "run", models("mlir"), *words, says="given twice")


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ([], "--shape n=4"),
        (["m=4"], "there is no symbolic dimension 'm'; there are n"),
        (["n=-4"], "for an input (x=4 for one of rank 1)"),
        (["n"], "expected NAME=SIZES"),
        (["n=99999999999"], "smaller than"),
        (["x=3x5"], "x is Tensor((n, 4)"),
        (["y=3x4"], "there is no parameter 'y'"),
    ],
)
def test_wrong_shapes(shape: list[str], says: str, models: Models, cli: Cli) -> None:
    flags = [word for s in shape for word in ("--shape", s)]
    refused(cli, "run", models("relax"), *flags, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("convert", "model", "-o", "out.txt"), "the output's extension"),
        (("convert", "model", "-o", "-"), "needs --to"),
        (("convert", "model", "-o", "no/such/folder/out.mlir"), "there is no directory"),
        (("convert", "model", "-o", "."), "extension"),
        (("convert", "model", "-o", ".", "--to", "mlir"), "is a directory"),
        (("convert", "model", "-o", "out.mlir", "--stablehlo-version", "1.0.0"), "belongs to"),
        (("convert", "model", "-o", "a.stablehlo", "--stablehlo-version", "0.0.1"), "must be one"),
        (("run", "model", "-o", "out.txt"), "saved as .npz"),
        (("run", "model", "-o", "out.npy"), "holds one array"),
        (("run", "model", "--device", "abacus"), "unknown device"),
        (("run", "model", "--function", "other"), "no function 'other'"),
        (("run", "model", "--device", "cpu:99"), "no device"),
        (("bench", "model", "--threads", "4096"), "there are only"),
    ],
)
def test_wrong_options(
    words: tuple[str, ...],
    says: str,
    models: Models,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(models("mlir")) if w == "model" else w for w in words]
    refused(cli, *given, says=says)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_written_over_itself(models: Models, cli: Cli) -> None:
    before = models("mlir").read_bytes()
    refused(cli, "convert", models("mlir"), "-o", models("mlir"), says="another name")
    assert models("mlir").read_bytes() == before


def test_outputs_of_one_command_are_several_files(models: Models, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    (tmp_path / "x").mkdir()
    same = tmp_path / "x" / ".." / "out.json"
    npz = tmp_path / "out.npz"
    for words in (["-o", out, "--trace", out], ["--trace", out, "--flame", same]):
        refused(cli, "run", models("mlir"), *words, says="named twice")
    # What no .npz holds goes to the second name.
    refused(cli, "run", models("mlir"), "-o", npz, "--flame", out, says="named twice")
    assert not out.exists()
    nothing = ["--trace", "/dev/null", "--flame", "/dev/null"]
    if os.path.exists("/dev/null"):
        assert cli("run", models("mlir"), *nothing).code == 0


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit(130), OSError("disk full")])
def test_a_failed_write_leaves_what_was_there(
    failure: BaseException | type[BaseException], tmp_path: Path
) -> None:
    target = tmp_path / "out.mlir"
    target.write_text("before")

    def write(file: object) -> None:
        raise failure

    with pytest.raises((KeyboardInterrupt, SystemExit, TVMError)):
        write_atomically(target, write)
    assert [p.name for p in tmp_path.iterdir()] == ["out.mlir"]
    assert target.read_text() == "before"


def test_usage_errors(cli: Cli) -> None:
    for words in (["nonsense"], ["run"], ["run", "a.onnx", "--no-such-option"]):
        done = cli(*words)
        assert done.code == 2
        assert "Error" in done.err
        assert "Traceback" not in done.err


def test_debug_shows_the_traceback(cli: Cli) -> None:
    done = cli("inspect", "missing.onnx", "--debug")
    assert done.code == 2
    assert "Traceback" in done.err
    assert "no such file" in done.err


def test_a_bug_is_one_message_too(
    models: Models, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("relax2xla.cli.commands.inspect.report", broken)
    done = cli("inspect", models("mlir"))
    assert done.code == 2
    assert "ZeroDivisionError: oops" in done.err
    assert "Traceback" not in done.err


def test_a_deep_text(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "model.relax"
    file.write_text("x = " + "-" * 200_000 + "1\n")
    refused(cli, "inspect", file, says="model.relax")


def test_a_pipe_is_not_read(cli: Cli, tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "model.mlir")
    refused(cli, "inspect", tmp_path / "model.mlir", says="no regular file")


def test_a_link_to_nothing(cli: Cli, tmp_path: Path) -> None:
    link = tmp_path / "model.onnx"
    link.symlink_to("gone.onnx")
    done = cli("inspect", link)
    assert (done.code, "is a link to gone.onnx, where there is no file" in done.err) == (2, True)


def test_a_saved_executable_is_no_model(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "model.r2x"
    file.write_bytes(b"PK\3\4")
    done = cli("convert", file, "-o", tmp_path / "out.mlir")
    assert (done.code, "is a saved executable, which relax2xla run" in done.err) == (2, True)


def test_errors_of_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "random.stablehlo").write_bytes(b"ML\xefR\rStableHLO_v1.0.0\0" + bytes(99))
    done = shell("convert", "random.stablehlo", "-o", "out.mlir", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("relax2xla: error: ")
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["random.stablehlo"]


@pytest.mark.parametrize("code", ["None", "0", "3"])
def test_code_of_the_user_that_exits(
    code: str, models: Models, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves.py").write_text(f"raise SystemExit({code})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    refused(cli, "inspect", models("relax"), "--plugin", "leaves.py", says="ends the process")
    refused(cli, "inspect", "jax:leaves:f", says="its code ends the process")


def test_names_that_are_no_utf8(models: Models, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"m\xff.relax")
    out = tmp_path / os.fsdecode(b"o\xfe.mlir")
    file.write_bytes(models("relax").read_bytes())
    done = cli("inspect", file)
    assert (done.code, "m\\udcff.relax" in done.out) == (0, True), done.err
    assert json.loads(cli("inspect", file, "--json").out)["file"] == str(file)
    assert cli("convert", file, "--shape", "n=2", "-o", out).code == 0
    assert cli("run", out).code == 0


def test_sizes_of_settings(
    models: Models, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "c.toml"
    monkeypatch.setenv("RELAX2XLA_CONFIG", str(config))
    config.write_text("")
    monkeypatch.setenv("RELAX2XLA_CACHE_LIMIT", "wet")
    refused(cli, "cache", says="RELAX2XLA_CACHE_LIMIT: 'wet' is no size")
    monkeypatch.setenv("RELAX2XLA_CACHE_LIMIT", "")
    monkeypatch.setenv("RELAX2XLA_MEMORY_LIMIT", "dry")
    refused(cli, "inspect", models("relax"), says="RELAX2XLA_MEMORY_LIMIT: 'dry' is no size")
    monkeypatch.delenv("RELAX2XLA_MEMORY_LIMIT")
    # One word stands for a list of one.
    config.write_text('[run]\nshape = "n=2"\n')
    assert cli("run", models("relax")).code == 0
    refused(cli, "opt", models("relax"), "--pass", "zero", "-o", models("relax"), says="is read")
