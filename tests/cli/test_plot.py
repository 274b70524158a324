"""``bench --plot`` and ``run --flame``: files for the eye, and for speedscope."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from relax2xla.cli.figures.flame import stack_of, write_speedscope
from relax2xla.cli.page.plot import plot_page, plot_svg
from relax2xla.vm.observe.trace import Step

from .conftest import Cli

SVG = "{http://www.w3.org/2000/svg}"
TIMES = {"relax2xla": [2e-3, 3e-3, 2.5e-3], "<other & more>": [5e-3, 5e-3, 1.0]}


def test_a_plot_has_every_variant_and_round() -> None:
    root = ET.fromstring(plot_svg(TIMES, "net<1>.onnx", "3 rounds"))
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"relax2xla", "<other & more>", "net<1>.onnx", "3 rounds", "ms a call"} <= set(texts)
    assert "2.5 ms" in texts
    assert "5 ms, 2.50 times" in texts  # the median of the ratios of rounds, as in the table
    bars = [r for r in root.iter(f"{SVG}rect") if r.get("fill-opacity")]
    widths = [float(r.get("width", "")) for r in bars]
    assert widths[1] == pytest.approx(2 * widths[0])
    # The round that took a second is off the axis, which the others are read by.
    assert len(list(root.iter(f"{SVG}circle"))) == 5
    page = plot_page(TIMES, "a</title><script>", "")
    assert "<script>" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize("largest", [3e-9, 9.99e-7, 1e-3, 12.0, 4000.0])
def test_axes_of_any_size(largest: float) -> None:
    root = ET.fromstring(plot_svg({"a": [largest]}, "", ""))
    (bar,) = [r for r in root.iter(f"{SVG}rect") if r.get("fill-opacity")]
    assert 250 <= float(bar.get("width", "")) <= 550
    assert len([t for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "middle"]) <= 13


def test_bench_draws(models: Any, cli: Cli, tmp_path: Path) -> None:
    for name in ("times.svg", "times.html"):
        done = cli("bench", models("mlir"), "--rounds", "2", "--plot", tmp_path / name)
        assert done.code == 0, done.err
        text = (tmp_path / name).read_text()
        assert text.count("<circle") <= 4
        assert "jax.jit of the file" in text
    done = cli("bench", models("mlir"), "--plot", tmp_path / "times.png")
    assert (done.code, ".svg or .html" in done.err) == (2, True)


def test_stacks_are_modules(tmp_path: Path) -> None:
    steps = [
        Step("fusion.1", "net/block.0/dot", 5.0, 10.0, "a"),
        Step("fusion", "net/block.0/add", 0.0, 5.0, "a"),
        Step("copy", "", 0.0, 2.0, "b"),
    ]
    assert stack_of(steps[0]) == ["net", "net/block.0", "net/block.0/dot", "fusion.1"]
    assert stack_of(steps[2]) == ["copy"]
    file = tmp_path / "flame.json"
    with file.open("wb") as stream:
        write_speedscope(stream, steps, "main")
    data = json.loads(file.read_text())
    names = [f["name"] for f in data["shared"]["frames"]]
    first, second = data["profiles"]
    assert [[names[i] for i in s] for s in first["samples"]] == [
        ["net", "net/block.0", "net/block.0/add", "fusion"],
        ["net", "net/block.0", "net/block.0/dot", "fusion.1"],
    ]
    assert (first["weights"], first["endValue"], second["weights"]) == ([5.0, 10.0], 15.0, [2.0])


def test_run_writes_a_flame_graph(models: Any, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "flame.json"
    done = cli("run", models("onnx"), "--shape", "n=2", "--flame", file)
    assert done.code == 0, done.err
    data = json.loads(file.read_text())
    assert {"matmul", "softmax"} <= {f["name"] for f in data["shared"]["frames"]}
    (profile,) = [p for p in data["profiles"] if p["samples"]]
    assert len(profile["samples"]) == len(profile["weights"])
