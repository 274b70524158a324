"""The Python blocks of README.md run as they stand, in order, in an empty folder.

They see what README's own install line brings, and none of the packages that tests have besides.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed import ROOT, brought_by

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
INSTALL = re.findall(r"^pip install '\.\[([\w,]+)\]'", README, re.MULTILINE)

# After each of the three routes.
CHECK = """
assert isinstance(y, __import__("jax").Array), y
assert "R.function" in mod.script()
assert "stablehlo." in relax2xla.to_stablehlo(mod)
results = [*globals().get("results", ()), y]
"""
AT_LAST = """
want = model(torch.ones(2, 8)).detach().numpy()
for result in results[:2]:
    np.testing.assert_allclose(np.asarray(result), want, rtol=1e-5)
np.testing.assert_allclose(np.asarray(results[2]), np.asarray(f(x)), rtol=1e-6)
np.testing.assert_allclose(np.asarray(y), want, rtol=1e-5)
scores = model[0](torch.ones(2, 8))
scores.softmax(-1)[:, 0].sum().backward()
for name, weight in model[0].named_parameters():
    np.testing.assert_allclose(np.asarray(g["0"][name]), weight.grad.numpy(), rtol=1e-4, atol=1e-6)
print(len(results), "results are right")
"""


def test_blocks_run_after_the_install_line(tmp_path: Path) -> None:
    for package in ("torch", "onnx", "onnxscript"):
        pytest.importorskip(package)
    (extras,) = INSTALL
    assert len(BLOCKS) == 5
    program = tmp_path / "readme.py"
    program.write_text("".join(b + CHECK for b in BLOCKS[:3]) + "".join(BLOCKS[3:]) + AT_LAST)
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "installed.py", extras, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 results are right" in done.stdout


def test_only_what_the_line_brings_is_there(tmp_path: Path) -> None:
    brought = brought_by([])
    assert {"relax2xla", "jax", "jaxlib", "typer", "numpy"} <= brought
    assert not {"onnx", "onnxscript", "torch", "pytest"} & brought
    assert {"onnx", "onnxscript"} <= brought_by(["onnx"])
    program = tmp_path / "program.py"
    program.write_text(
        "import importlib.metadata as m, importlib.util as u, jax, typer\n"
        "print([u.find_spec(n) for n in ('onnx', 'torch', 'pytest', 'packaging')])\n"
        "print(any(d.name in ('onnx', 'torch', 'pytest') for d in m.distributions()))\n"
    )
    words = [sys.executable, ROOT / "tests" / "installed.py", "", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines() == ["[None, None, None, None]", "False"]


def test_messages_name_an_installation_that_works() -> None:
    """The package is on no index: it is installed from a clone, and every text says so."""
    from relax2xla.importers.files import how_to_install

    assert "clone" in how_to_install("onnx")
    assert how_to_install("onnx").endswith("pip install '.[onnx]'")
    folders = ("relax2xla", "importers", "examples", "benchmarks", "docs")
    files = [p for f in folders for p in (ROOT / f).rglob("*.*") if p.suffix in (".py", ".md")]
    for path in (*files, ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        assert not re.search(r"pip install\W+relax2xla\b", path.read_text()), path
