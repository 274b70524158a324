"""``inspect`` of saved executables: what they hold, and for whom; other commands say what to do."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relax2xla.vm.pjrt import compiler

from .conftest import OPTIONS, Cli

Models = Callable[[str], Path]


@pytest.mark.parametrize("kind", list(OPTIONS))
@pytest.mark.parametrize("flags", [(), ("--no-compiled",), ("--raw-weights",)])
def test_what_it_holds(
    kind: str, flags: tuple[str, ...], models: Models, cli: Cli, tmp_path: Path
) -> None:
    saved = tmp_path / "m.r2x"
    assert cli("compile", models(kind), "-o", saved, *flags, *OPTIONS[kind]).code == 0
    done = cli("inspect", saved, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    with zipfile.ZipFile(saved) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert found["made_with"] == manifest["versions"]
    assert [f["name"] for f in found["functions"]] == ["main"]
    (row,) = manifest["functions"]
    assert [p["name"] for p in found["functions"][0]["parameters"]] == [n for n, _ in row["params"]]
    # Torch's two layers, or the matrix of the others; the one of Relax text has none.
    assert found["weights"]["elements"] in {"pt2": (67,), "relax": (0,)}.get(kind, (0, 12))
    compiled = "--no-compiled" not in flags
    assert found["machine_code"]["compiled"] == compiled
    assert found["machine_code"]["fits_this_machine"] == compiled
    done = cli("inspect", saved)
    assert done.code == 0, done.err
    assert "made with relax2xla" in done.out
    assert ("fits this machine" in done.out) == compiled
    assert "what runs where\n  main: one XLA program" in done.out
    assert "def main" in cli("inspect", saved, "--text").out


def test_of_another_machine(
    models: Models, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "m.r2x"
    assert cli("compile", models("mlir"), "-o", saved).code == 0
    monkeypatch.setattr(compiler, "fingerprint", lambda device: "another")
    assert "for another jaxlib or processor" in cli("inspect", saved).out


def test_bytecode_and_symbolic_sizes(models: Models, cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "m.r2x"
    assert cli("compile", models("onnx"), "-o", saved).code == 0
    assert "symbolic dimensions: n" in cli("inspect", saved).out
    text = models("relax").read_text().replace("R.nn.softmax(", 'R.call_pure_packed("host", ')
    text = text.replace('2.0, "float32")))', '2.0, "float32")), sinfo_args=R.Tensor(("n", 4)))')
    (tmp_path / "host.relax").write_text(text)
    done = cli("compile", tmp_path / "host.relax", "-o", saved, "--shape", "n=3")
    assert done.code == 0, done.err
    done = cli("inspect", saved)
    assert done.code == 0, done.err
    assert "bytecode" in done.out


def test_errors(models: Models, cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "m.r2x"
    assert cli("compile", models("mlir"), "-o", saved).code == 0
    done = cli("inspect", saved, "--shape", "n=3")
    assert (done.code, "--shape is for models" in done.err) == (2, True)
    for command in (["verify"], ["bench"], ["convert", "-o", tmp_path / "m.mlir"]):
        done = cli(*command, saved)
        assert (done.code, "relax2xla run and inspect take" in done.err) == (2, True)
    saved.write_bytes(saved.read_bytes()[:500])
    for command in ("inspect", "run"):
        done = cli(command, saved)
        assert (done.code, "not an error" in done.err) == (2, False), done.err
    done = cli("inspect", tmp_path / "no.r2x")
    assert (done.code, "no such file" in done.err) == (2, True)


@pytest.mark.parametrize("kind", list(OPTIONS))
def test_one_count_of_weights(kind: str, models: Models, cli: Cli) -> None:
    """Of the model, and of what is passed to programs: always "2 weights, 64 B"."""
    done = cli("inspect", models(kind), *OPTIONS[kind])
    told = [line for line in done.out.splitlines() if re.search(r"\bweights?\b", line)]
    assert len(told) == 2
    assert all(re.search(r"\b\d+ weights?, [\d.]+ [KMG]?i?B\b", line) for line in told), told
