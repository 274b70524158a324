"""``.pt2`` files whose inputs and results are containers that other packages register."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils import _pytree as pytree  # noqa: E402

import relax2xla  # noqa: E402
from relax2xla.cli import main  # noqa: E402
from relax2xla.errors import FileFormatError  # noqa: E402
from relax2xla.importers.torch.source import pytrees  # noqa: E402

PACKAGE = """
import dataclasses
import torch

@dataclasses.dataclass
class Out:
    y: torch.Tensor

torch.export.register_dataclass(Out, serialized_type_name=f"{__package__ or 'boxes_b'}.outputs.Out")
"""


def forget(package: str) -> None:
    """As in a process that has not seen the package."""
    cls = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(f"{package}.outputs.Out")
    if cls is not None:
        pytree._deregister_pytree_node(cls)
    for name in (f"{package}.outputs", package):
        sys.modules.pop(name, None)


def saved(package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that gives a container of a package, which is on the path, but not installed."""
    code = folder / "site" / package
    code.mkdir(parents=True)
    (code / "__init__.py").write_text("")
    (code / "outputs.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(code.parent))
    outputs = importlib.import_module(f"{package}.outputs")

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: object) -> object:
            return [outputs.Out(x + 1)]  # type: ignore[operator]

    path = folder / "model.pt2"
    torch.export.save(torch.export.export(Model(), (torch.ones(2),)), path)
    forget(package)
    return path


# torch keeps what it has read of a type, so that each test has a package of its own.
def test_an_installed_package_that_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved("boxes_a", tmp_path, monkeypatch)
    assert "boxes_a.outputs.Out" in pytrees.named_types(file)
    with pytest.raises(FileFormatError, match="trust=True"):
        relax2xla.load(file)
    assert "boxes_a" not in sys.modules
    with pytest.raises(FileFormatError, match=r"--plugin boxes_a\.outputs"):
        relax2xla.load(file, trust=True)
    monkeypatch.setattr(pytrees, "REGISTERING", ("boxes_a",))
    with pytest.raises(FileFormatError, match="is not installed: pip install boxes_a"):
        relax2xla.load(file, trust=True)
    assert "boxes_a" not in sys.modules
    about = tmp_path / "site" / "boxes_a-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: boxes_a\nVersion: 1.0\n")
    with pytest.raises(FileFormatError, match="trust=True"):
        relax2xla.load(file)
    assert "boxes_a" not in sys.modules
    mod = relax2xla.load(file, trust=True)
    made = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())["main"](np.zeros(2, "f"))
    np.testing.assert_array_equal(np.asarray(made[0]), [1, 1])
    forget("boxes_a")


def test_a_plugin_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = saved("boxes_b", tmp_path, monkeypatch)
    words = ["run", str(file), "--trust"]
    assert main(words) == 2
    assert "values of the type boxes_b.outputs.Out" in capsys.readouterr().err
    plugin = tmp_path / "site/boxes_b/outputs.py"
    assert main([*words, "--plugin", str(plugin)]) == 0
    forget("boxes_b")


SAVE = """
import sys, torch, transformers
from transformers.integrations.executorch import register_dynamic_cache_export_support

register_dynamic_cache_export_support()
config = transformers.GPT2Config(
    n_embd=8, n_layer=1, n_head=2, vocab_size=16, n_positions=8, bos_token_id=1, eos_token_id=2
)
model = transformers.GPT2LMHeadModel(config).eval()
program = torch.export.export(model, (torch.ones(1, 4, dtype=torch.long),), strict=False)
torch.export.save(program, sys.argv[1])
"""


def test_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that gives a ModelOutput and a cache, saved by another process."""
    pytest.importorskip("transformers")
    file = tmp_path / "model.pt2"
    subprocess.run([sys.executable, "-c", SAVE, file], check=True, capture_output=True, timeout=300)
    names = pytrees.named_types(file)
    assert any(n.startswith("transformers.modeling_outputs") for n in names)
    assert "transformers.cache_utils.DynamicCache" in names
    assert main(["verify", str(file), "--trust"]) == 0
    assert "agrees with torch" in capsys.readouterr().out
