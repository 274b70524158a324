"""``relax2xla compile`` and ``run`` of what it saved, with the model's weights and others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relax2xla.cli import main
from relax2xla.cli.process import console
from relax2xla.runtime.progress import report
from relax2xla.runtime.weights import save_weights

from .conftest import OPTIONS, RELAX, ROOT, WRITERS, Cli, weights

Models = Callable[[str], Path]


def results(cli: Cli, file: Path, out: Path, *words: object) -> dict[str, np.ndarray]:
    done = cli("run", file, "-o", out, *words)
    assert done.code == 0, done.err
    with np.load(out) as archive:
        return {n: archive[n] for n in archive.files}


@pytest.mark.parametrize("kind", list(WRITERS))
@pytest.mark.parametrize("flags", [(), ("--no-compiled",), ("--raw-weights",)])
def test_the_same_results(
    kind: str, flags: tuple[str, ...], models: Models, cli: Cli, tmp_path: Path
) -> None:
    file, saved = models(kind), tmp_path / "m.r2x"
    done = cli("compile", file, "-o", saved, *flags, *OPTIONS[kind])
    assert done.code == 0, done.err
    assert "one XLA program" in done.out
    assert f"wrote {saved}" in done.err
    expected = results(cli, file, tmp_path / "a.npz", *OPTIONS[kind])
    for trust in ((), ("--trust",)):
        found = results(cli, saved, tmp_path / "b.npz", *trust)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_sizes_when_compiled_and_when_run(models: Models, cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "m.r2x"
    assert "--shape n=4" in cli("compile", models("onnx"), "-o", saved).err
    assert results(cli, saved, tmp_path / "a.npz", "--shape", "n=3")["z"].shape == (3, 3)
    found = results(cli, saved, tmp_path / "a.npz", "--shape", "in_x=5x4")
    assert found["z"].shape == (5, 3)
    assert "n=4" in cli("run", saved).err
    wrong = cli("run", saved, "--shape", "rows=3")
    assert (wrong.code, "no such input or symbolic dimension" in wrong.err) == (2, True)
    wrong = cli("run", saved, "--shape", "in_x=5x9")
    assert (wrong.code, "--shape in_x" in wrong.err) == (2, True)
    assert "compiled" in cli("compile", models("onnx"), "-o", saved, "--shape", "n=3").out
    assert results(cli, saved, tmp_path / "a.npz", "--trust")["z"].shape == (3, 3)


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".onnx", ".pt"])
def test_other_weights(ending: str, models: Models, cli: Cli, tmp_path: Path) -> None:
    given = tmp_path / f"w{ending}"
    if ending == ".npz":
        np.savez(given, w=2 * weights(), more=np.ones(3))
    elif ending == ".safetensors":
        save_weights(given, {"w": 2 * weights()})
    elif ending == ".pt":
        torch = pytest.importorskip("torch")
        torch.save({"w": torch.from_numpy(2 * weights())}, given)
    else:
        onnx = pytest.importorskip("onnx")
        model = onnx.load(models("onnx"))
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(2 * weights(), "w"))
        onnx.save(model, given, save_as_external_data=True, location="w.data", size_threshold=0)
    x = np.ones((1, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    words = ("-i", tmp_path / "x.npy", "--weights", given)
    logits = x @ (2 * weights())
    expected = np.exp(logits) / np.exp(logits).sum()
    found = results(cli, models("onnx"), tmp_path / "a.npz", *words)
    np.testing.assert_allclose(found["z"], expected, rtol=1e-5)
    for flags in ((), ("--raw-weights",)):
        cli("compile", models("onnx"), "-o", tmp_path / "m.r2x", *flags)
        found = results(cli, tmp_path / "m.r2x", tmp_path / "a.npz", *words)
        np.testing.assert_allclose(found["z"], expected, rtol=1e-5)


def test_weights_that_do_not_fit(models: Models, cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", v=np.ones(3))
    done = cli("run", models("onnx"), "--weights", tmp_path / "other.npz", *OPTIONS["onnx"])
    assert done.code == 2
    assert "has none of the weights of the model, which are w; it has v" in done.err
    np.savez(tmp_path / "shape.npz", w=np.ones((4, 4), np.float32))
    done = cli("run", models("onnx"), "--weights", tmp_path / "shape.npz", *OPTIONS["onnx"])
    assert (done.code, "the weight w is" in done.err) == (2, True)
    done = cli("run", models("onnx"), "--weights", tmp_path / "no.npz", *OPTIONS["onnx"])
    assert (done.code, "no such file" in done.err) == (2, True)


def test_errors(models: Models, cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", models("onnx"), "-o", tmp_path / "m.zip")
    assert (done.code, "extension .r2x" in done.err) == (2, True)
    done = cli("compile", models("onnx"), "-o", tmp_path / "no" / "m.r2x")
    assert done.code == 2
    assert "no" in done.err
    (tmp_path / "bad.r2x").write_bytes(b"PK")
    done = cli("run", tmp_path / "bad.r2x")
    assert (done.code, "Traceback" in done.err) == (2, False)


def test_a_bar_for_long_loads_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(seconds: float) -> str:
        with console.loading("model.r2x"):
            report("reading", 1 << 20, 1 << 30)
            time.sleep(seconds)
            report("reading", 1 << 29, 1 << 30)
            time.sleep(0.2)
        return capsys.readouterr().err

    monkeypatch.setattr(console, "_PATIENCE", 0.1)
    assert not work(0.2)
    monkeypatch.setattr(console, "coloured", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "model.r2x: reading" in work(0.2)
    monkeypatch.setattr(console, "_PATIENCE", 5)
    assert not work(0.2)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("words", "number"),
    [("compile -o out.r2x", signal.SIGINT), ("run", signal.SIGTERM), ("bench", signal.SIGINT)],
)
def test_an_interruption_while_xla_compiles(
    words: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "model.relax").write_text(RELAX)
    # The compiler takes no notice of signals, as this takes none.
    code = (
        "import hashlib, sys, relax2xla.cli\n"
        "from relax2xla.vm.pjrt import compiler\n"
        "def compile(*args):\n"
        "    print('compiling', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'x', b'y', 40_000_000)\n"
        "    print('compiled', flush=True)\n"
        "compiler._compile = compile\n"
        "sys.exit(relax2xla.cli.main(sys.argv[1:]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *words.split(), "model.relax", "--shape", "n=2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RELAX2XLA_CACHE_DIR": str(tmp_path / "c")},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "compiling\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert not out  # it ended without waiting for the compiler
    assert err.strip() == "relax2xla: interrupted"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "c") == ["model.relax"]


def test_the_way_out_is_only_for_the_block(tmp_path: Path) -> None:
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    (tmp_path / "model.relax").write_text(RELAX)
    assert main(["run", str(tmp_path / "model.relax"), "--shape", "n=2"]) == 0
    assert signal.set_wakeup_fd(before) == before
