"""Settings, doctor, models by name, completion, verbosity, and what tables add up to."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla
import relax2xla as rx
from relax2xla import op as R
from relax2xla.cli.figures import reports, timing
from relax2xla.cli.process import console
from relax2xla.cli.reading import named_models
from relax2xla.vm.observe.profile import Row
from tests.installed import ROOT

from .conftest import Cli, shell

Models = Callable[[str], Path]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """The path of a file of settings; the environment is put back."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("RELAX2XLA_CONFIG", str(path))
    before = dict(os.environ)
    yield path
    for name in set(os.environ) - set(before):
        del os.environ[name]


# -- settings --------------------------------------------------------------------------------------
def test_a_file_sets_variables_and_options(
    config: Path, cli: Cli, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('[settings]\ncache_limit = "7M"\n[run]\nseed = 7\nfunction = "none"\n')
    monkeypatch.delenv("RELAX2XLA_CACHE_LIMIT", raising=False)
    done = cli("config")
    assert "cache_limit" in done.out
    assert "run: seed = 7" in done.out
    assert done.code == 0
    found = cli("run", models("relax"), "--shape", "n=2")
    assert (found.code, "none" in found.err) == (2, True)
    assert os.environ["RELAX2XLA_CACHE_LIMIT"] == "7M"
    assert cli("run", models("relax"), "--shape", "n=2", "--function", "main").code == 0
    rows = json.loads(cli("config", "--json").out)["settings"]
    (limit,) = (r for r in rows if r["name"] == "cache_limit")
    assert (limit["value"], limit["from"]) == ("7M", "file")


def test_the_environment_wins(config: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[settings]\ncache_limit = "7M"\n')
    monkeypatch.setenv("RELAX2XLA_CACHE_LIMIT", "9M")
    assert json.loads(cli("cache", "--json").out).get("limit") in (None, 9 << 20)
    rows = json.loads(cli("config", "--json").out)["settings"]
    assert ("cache_limit", "9M", "environment") in [
        (r["name"], r["value"], r["from"]) for r in rows
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x =", "config.toml"),
        ("x = 1", "outside of a table"),
        ("[settings]\nwrong = 1", "[settings] has no 'wrong'; it has cache"),
        ("[settings]\ncache = [1]", "settings.cache is a text"),
        ("[walk]\na = 1", "there is no command 'walk'"),
        ("[run]\nsped = 1", "[run] has no 'sped'"),
        (None, "RELAX2XLA_CONFIG names it"),
    ],
)
def test_wrong_files(text: str | None, message: str, config: Path, cli: Cli) -> None:
    if text is not None:
        config.write_text(text)
    done = cli("cache")
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_example_is_right(config: Path, cli: Cli) -> None:
    config.write_text("")
    config.write_text(cli("config", "--example").out)
    assert cli("cache", "--json").code == 0


# -- doctor ----------------------------------------------------------------------------------------
def test_doctor_says_what_there_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.cli.commands import doctor

    monkeypatch.setattr(doctor, "PACKAGES", (*doctor.PACKAGES, ("no_such_package", "nothing")))
    done = cli("doctor")
    assert done.code == 0
    assert re.search(r"^jaxlib +0\.", done.out, re.MULTILINE)
    assert "no_such_package missing (nothing)" in done.out
    assert (
        "without nothing: run this in your clone of relax2xla: pip install '.[nothing]'" in done.out
    )
    assert "programs run" in done.out
    assert max(map(len, done.out.splitlines())) < 160  # kinds of calls are counted
    found = json.loads(cli("doctor", "--json").out)
    assert found["relax2xla"] == relax2xla.__version__
    assert found["works"]
    assert found["devices"][0].startswith("cpu:0")

    def broken() -> None:
        raise RuntimeError("no luck\nat all")

    monkeypatch.setattr(doctor, "_tried", broken)
    done = cli("doctor")
    assert (done.code, "PROBLEM: RuntimeError: no luck\n" in done.out) == (1, True)
    assert "programs do NOT run" in done.out


# -- models by name --------------------------------------------------------------------------------
PROGRAM = """
import jax
import jax.numpy as jnp

def forward(params, x):
    return {"y": x @ params["w"]}

forward.example_args = (
    {"w": jax.ShapeDtypeStruct((3, 2), "float32")}, jax.ShapeDtypeStruct((4, 3), "float32")
)

def made():
    return forward, forward.example_args

def other_forward(params, x):
    return {"y": -(x @ params["w"])}

other_forward.example_args = forward.example_args

def shapeless(x):
    return x
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "some_program", raising=False)
    (tmp_path / "some_program.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("function", ["forward", "made"])
def test_a_function_of_jax(function: str, here: Path, cli: Cli) -> None:
    done = cli("run", f"jax:some_program:{function}", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [i["name"] for i in found["inputs"]] == ["params_w", "x"]
    assert [(o["name"], o["shape"]) for o in found["outputs"]] == [("y", [4, 2])]
    assert cli("run", f"jax:some_program:{function}", "--json", "--memory").code == 2


def test_texts_say_the_name_that_was_given(here: Path, cli: Cli) -> None:
    """And not the file that was made of it, which nobody knows."""
    name = "jax:some_program:forward"
    for words in (("inspect",), ("inspect", "--json"), ("convert", "-o", "m.mlir", "--json")):
        done = cli(words[0], name, *words[1:])
        assert name in done.out
        assert "relax2xla-" not in done.out + done.err
    done = cli("inspect", name, "--support")
    assert f"{name} is StableHLO text" in done.err
    done = cli("diff", name, "jax:some_program:other_forward")
    assert f"{name}\n" in done.out
    assert "relax2xla-" not in done.out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jax:some_program", "expected jax:MODULE:FUNCTION"),
        ("jax:some_program:other", "has no attribute 'other'"),
        ("jax:no_program:f", "No module named 'no_program'"),
        ("jax:some_program:shapeless", "give the function an attribute example_args"),
        ("jax:", "name a model"),
        ("hf:./no-folder", "expected a folder that save_pretrained of transformers wrote"),
        ("other:name", "names begin with torchvision:, timm:, hf:, jax:"),
        ("torchvison:name", "did you mean torchvision:name?"),
    ],
)
def test_wrong_names(name: str, message: str, here: Path, cli: Cli) -> None:
    if name.startswith("hf"):
        pytest.importorskip("transformers")
    done = cli("inspect", name)
    assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.parametrize("kind", ["ViT", "T5"])
def test_a_folder_of_transformers(kind: str, here: Path, cli: Cli) -> None:
    """Pictures in place of words, and a decoder whose configuration is its own."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    options: dict[str, Any] = {
        "ViT": {**small, "intermediate_size": 16, "image_size": 16, "patch_size": 8},
        "T5": {
            "vocab_size": 20,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 16,
            "num_layers": 1,
            "num_heads": 2,
        },
    }[kind]
    config = getattr(transformers, f"{kind}Config")(**options)
    getattr(transformers, f"{kind}Model")(config).save_pretrained("net")
    done = cli("verify", "hf:./net")
    assert done.code == 0, done.err
    assert "last_hidden_state" in done.out
    assert "nothing is downloaded" in cli("inspect", "hf:net-that-nobody-has").err


def test_a_package_that_is_not_there(here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_models, "_PACKAGES", {"timm": "no_such_package"})
    done = cli("inspect", "timm:vit")
    assert "needs the package no_such_package; pip install no_such_package" in done.err
    monkeypatch.setattr(named_models, "_PACKAGES", {"hf": "json"})
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else found(n))
    assert "hf:bert needs the package torch; pip install torch" in cli("run", "hf:bert").err


def test_a_model_of_torchvision(here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's interface, with a network of one layer."""
    torch = pytest.importorskip("torch")
    made: list[Any] = []

    class Stub:
        @staticmethod
        def list_models() -> list[str]:
            return ["small", "smaller", "resnet50"]

        @staticmethod
        def get_model(name: str, weights: str | None) -> Any:
            made.append((name, weights))
            return torch.nn.Conv2d(3, 2, 224)

    monkeypatch.setattr(named_models, "_PACKAGES", {"torchvision": "torch"})
    monkeypatch.setitem(sys.modules, "torchvision", Stub())  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "torchvision.models", Stub())  # type: ignore[misc]
    done = cli("run", "torchvision:small", "--json")
    assert done.code == 0, done.err
    assert "weights are random" in done.err
    assert json.loads(done.out)["outputs"][0]["shape"] == [1, 2, 1, 1]
    assert cli("inspect", "torchvision:small@other").code == 2
    assert made == [("small", None)]
    assert "has no model 'resnet5', of 3 that it has; near are resnet50" in (
        cli("inspect", "torchvision:resnet5").err
    )


# -- the rest --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_the_shell_that_is_named(name: str) -> None:
    """Whichever shell this is started from: typer's own option prints that of the one around it."""
    text = shell("--show-completion", name).stdout
    assert {"bash": "complete -o default", "zsh": "#compdef", "fish": "complete --command"}[
        name
    ] in text
    assert f"complete_{name}" in text
    done = shell("--show-completion", "tcsh")
    assert done.returncode == 2
    assert "expected one of bash, zsh, fish" in done.stderr


def test_completion_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("bash", "fish"):
        done = shell("--install-completion", name)
        assert done.returncode == 0, done.stderr
        assert f"completion for {name} installed in {tmp_path}" in done.stdout
    assert "complete_fish" in (tmp_path / ".config/fish/completions/relax2xla.fish").read_text()
    assert "source" in (tmp_path / ".bashrc").read_text()


def _asking(tmp_path: Path) -> dict[str, str]:
    """An environment in which relax2xla is this one, and a file to complete."""
    command = tmp_path / "bin" / "relax2xla"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m relax2xla "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(tmp_path: Path) -> None:
    script = shell("--show-completion", "bash").stdout
    for words, expected in (
        ("relax2xla conv", ["convert"]),
        ("relax2xla run --pro", ["--profile"]),
        ("relax2xla convert m.onnx --to mlirb", ["mlirbc"]),
        ("relax2xla opt m.onnx --passes RaiseStableHLO,LegalizeO", ["RaiseStableHLO,LegalizeOps"]),
        ("relax2xla run m", []),  # bash completes files then (-o default)
    ):
        asked = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}"
        text = (
            f"{script}\n{asked}\n_relax2xla_completion relax2xla; printf '%s\\n' ${{COMPREPLY[@]}}"
        )
        env = _asking(tmp_path / words.replace(" ", "_").replace(",", "_"))
        done = subprocess.run(
            ["bash", "-c", text], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == expected, done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes(tmp_path: Path) -> None:
    env = _asking(tmp_path / "fish")
    text = shell("--show-completion", "fish").stdout
    (tmp_path / "model.onnx").touch()
    for words, expected in (("relax2xla conv", "convert"), ("relax2xla run mo", "model.onnx")):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"{text}; complete -C '{words}'"],
            env=env, cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert expected in done.stdout


def test_versions_and_verbosity(cli: Cli, models: Models, tmp_path: Path) -> None:
    assert cli("-V").out == f"relax2xla {relax2xla.__version__}\n"
    logger = logging.getLogger("relax2xla")
    before = logger.level
    try:
        out = tmp_path / "m.mlir"
        assert "wrote" in cli("convert", models("relax"), "-o", out).err
        assert cli("-q", "convert", models("relax"), "-o", out).err == ""
        assert cli("-v", "convert", models("relax"), "-o", out).code == 0
        assert logger.level == logging.INFO
        done = cli("-v", "-q", "convert", models("relax"), "-o", out)
        assert (done.code, "opposite" in done.err) == (2, True)
    finally:
        logger.setLevel(before)
        console.quiet(False)


def test_layers_of_a_model(cli: Cli, models: Models) -> None:
    found = json.loads(cli("inspect", models("onnx"), "--shape", "n=3", "--layers", "--json").out)
    rows = found["layers"]["rows"]
    assert rows["matmul"]["flops"] == 2 * 3 * 4 * 3
    assert set(rows) == {"matmul", "softmax"}
    assert sum(r["share"] for r in rows.values()) == pytest.approx(1)
    done = cli("inspect", models("onnx"), "--layers")
    assert "give --shape" in done.out
    assert re.search(r"^total ", done.out, re.MULTILINE)


def test_layers_of_a_saved_executable(cli: Cli, models: Models, tmp_path: Path) -> None:
    saved = tmp_path / "m.r2x"
    words = ("compile", models("onnx"), "--shape", "n=3", "--no-compiled", "-o", saved)
    assert cli(*words).code == 0
    rows = json.loads(cli("inspect", saved, "--layers", "--json").out)["layers"]["rows"]
    assert rows["matmul"]["flops"] == 2 * 3 * 4 * 3
    assert set(rows) == {"matmul", "softmax"}


def test_forms_of_a_model(cli: Cli, tmp_path: Path) -> None:
    """What is computed by which form, as the program that is compiled has it."""
    file = tmp_path / "m.relax"
    x = rx.Var("x", rx.TensorStructInfo((2, 8, 8, 16), "float32"))
    weight = rx.const(np.ones((3, 3, 16, 32), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            y = bb.emit(R.nn.conv2d(x, weight, padding=1, **layouts))
            z = bb.emit_output(R.sum(R.nn.relu(y)))
        bb.emit_func_output(z)
    rx.save(bb.get(), file)
    rows = json.loads(cli("inspect", file, "--forms", "--json").out)["forms"]["rows"]
    assert sum(r["share"] for r in rows) == pytest.approx(1)
    (conv,) = [r for r in rows if r["operation"] == "convolution"]
    assert conv["result"] == "2x8x8x32"
    # Those of a form beside the operation's: its bias, and a window from its values.
    assert conv["flops"] >= 2 * 2 * 8 * 8 * 32 * 9 * 16
    with rx.transform.PassContext(disabled_pass=["CallProducts", "UseWinograd", "CallOneDnn"]):
        assert cli("inspect", file, "--forms").out.count(" XLA ") > 1
    done = cli("inspect", file, "--forms")
    assert re.search(r"^form +calls +FLOPs", done.out, re.MULTILINE)


def test_forms_of_symbolic_sizes_want_a_shape(cli: Cli, models: Models) -> None:
    done = cli("inspect", models("onnx"), "--forms")
    assert "give --shape" in done.out
    rows = json.loads(cli("inspect", models("onnx"), "--shape", "n=3", "--forms", "--json").out)
    assert {r["operation"] for r in rows["forms"]["rows"]} >= {"product"}


def test_profiles_add_up() -> None:
    rows = [Row(f"op{i}", 2, 1e-6) for i in range(25)]
    made = reports.times(rows)
    assert len(made) == 22
    assert made[-2] == ("other (5)", "5.0", "20.0", "10")
    assert made[-1] == ("total", "25.0", "100.0", "50")
    assert [r[0] for r in reports.times(rows[:2])] == ["op0", "op1", "total"]


def test_percentiles() -> None:
    numpy = pytest.importorskip("numpy")
    values = [5.0, 1.0, 4.0, 2.0]
    for share in (0, 50, 90, 99, 100):
        assert timing.percentile(values, share) == pytest.approx(numpy.percentile(values, share))
    assert timing.percentile([3.0], 99) == 3


def test_colours_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert console.good("fine", True) == "fine"
    monkeypatch.setattr(console, "coloured", lambda stream: True)
    assert console.good("fine", True) == "\x1b[32mfine\x1b[0m"
    assert console.good("bad", False).startswith("\x1b[31m")
