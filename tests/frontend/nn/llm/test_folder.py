"""Folders of models: what is read, and what is said where they are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla.errors import FileFormatError
from relax2xla.frontend import nn
from relax2xla.frontend.nn.llm.folder import (
    bind,
    plain,
    plus_one,
    read_config,
    read_tensors,
    rows,
    stacked,
    transposed,
)
from relax2xla.runtime.weights import save_weights


def tensors(**shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


class Two(nn.Module):
    def __init__(self) -> None:
        self.a = nn.Linear(3, 6, bias=False)
        self.b = nn.Parameter((2, 4, 3))
        self.c = nn.Parameter((3,))


SOURCES = {
    "a.weight": rows(["q", "k"], [4, 2]),
    "b": stacked([["e0", "f0"], ["e1", "f1"]]),
    "c": plus_one("norm"),
}
EXPERTS = dict.fromkeys(("e0", "f0", "e1", "f1"), (2, 3))


def test_parameters_of_several_tensors() -> None:
    model, given = Two(), tensors(q=(4, 3), k=(2, 3), norm=(3,), **EXPERTS)
    given["inv_freq"] = np.zeros(2, np.float32)
    bind(model, given, SOURCES, ignored=["inv_freq$"])
    np.testing.assert_array_equal(model.a.weight.data, np.concatenate([given["q"], given["k"]]))
    np.testing.assert_array_equal(model.c.data, given["norm"] + 1)
    parts = [np.concatenate([given[f"e{i}"], given[f"f{i}"]]) for i in range(2)]
    np.testing.assert_array_equal(model.b.data, np.stack(parts))


def test_transposed_names_without_a_prefix_and_dtypes() -> None:
    model = nn.Linear(3, 6)
    given = {"w": np.arange(18, dtype=np.float16).reshape(3, 6), "top.b": np.zeros(6, np.float16)}
    sources = {
        "weight": transposed("top.w", optional="top."),
        "bias": plain("top.b", optional="top."),
    }
    bind(model, given, sources)
    assert model.weight.dtype == "float32"
    np.testing.assert_array_equal(model.weight.data, given["w"].T)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    model = Two()
    with pytest.raises(FileFormatError) as caught:
        bind(model, tensors(k=(3, 3), norm=(3,), spare=(1,), e0=(2, 3)), SOURCES)
    said = str(caught.value)
    for line in (
        "q is missing: [4, 3] wanted",
        "k is of the shape [3, 3]; config.json says [2, 3]",
        "f0 is missing",
        "e1 is missing",
        "f1 is missing",
        "spare is unexpected",
    ):
        assert line in said
    assert model.c.data is None  # nothing is bound
    whole = {**tensors(q=(4, 3)), "q": np.ones((4, 3), np.int8)}
    with pytest.raises(FileFormatError, match="q is of int8; weights are floating point"):
        bind(model, whole, SOURCES)


def test_files_in_parts(tmp_path: Path) -> None:
    given = tensors(a=(2,), b=(3,))
    for i, name in enumerate(given):
        save_weights(tmp_path / f"part{i}.safetensors", {name: given[name]})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {"a": "part0.safetensors", "b": "part1.safetensors"}})
    )
    found = read_tensors(tmp_path)
    assert all(np.array_equal(found[n], given[n]) for n in given)
    (tmp_path / "part0.safetensors").unlink()
    (tmp_path / "part1.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"lacks the files part0\.safetensors, part1"):
        read_tensors(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(FileFormatError, match="other folders"):
        read_tensors(tmp_path)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"is no folder; a model's folder has config\.json"):
        read_config(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match=r"has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[1")
    with pytest.raises(FileFormatError, match=r"config\.json"):
        read_config(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"It has pytorch_model\.bin: save it again"):
        read_tensors(tmp_path)
