"""Progress of long work: who is told what, and the bars that notebooks show of it."""

from __future__ import annotations

import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.runtime import notebook
from relax2xla.runtime.progress import counted, report, waiting, watch

Told = list[tuple[str, int, int, str]]


def told_of(work: Any) -> Told:
    told: Told = []
    with watch(lambda *row: told.append(row)):
        work()
    return told


def doubled() -> rx.IRModule:
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.add(x, x)))
    return bb.get()


def test_compilation_is_told() -> None:
    vm = rx.VirtualMachine(rx.build(doubled()), rx.cpu())
    told = told_of(lambda: vm["main"](np.ones(2, np.float32)))
    assert told == [("compiling main", 0, 0, ""), ("compiling main", 1, 1, "")]
    assert told_of(lambda: vm["main"](np.ones(2, np.float32))) == []


def test_importers_tell_their_nodes() -> None:
    onnx = pytest.importorskip("onnx")
    torch = pytest.importorskip("torch")
    from relax2xla.frontend.onnx import from_onnx
    from relax2xla.frontend.torch import from_exported_program

    h = onnx.helper
    info = [h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "ad"]
    nodes = [h.make_node("Relu", [a], [b]) for a, b in ("ab", "bc", "cd")]
    model = h.make_model(h.make_graph(nodes, "g", info[:1], info[1:]), ir_version=10)
    assert told_of(lambda: from_onnx(model)) == [("importing", i, 3, "nodes") for i in range(4)]
    program = torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))
    *_, last = told_of(lambda: from_exported_program(program))
    assert last == ("importing", 2, 2, "nodes")


def test_what_fails_is_not_said_to_be_done() -> None:
    def work() -> None:
        with pytest.raises(ValueError, match="no"), waiting("w"):
            raise ValueError("no")
        for _ in counted("c", range(3), "steps"):
            return

    assert told_of(work) == [("w", 0, 0, ""), ("w", 1, 1, ""), ("c", 0, 3, "steps")]


class Cell:
    """What is below a cell of a notebook."""

    def __init__(self) -> None:
        self.shown: dict[str, dict[str, str]] = {}
        self.texts: list[str] = []

    def show(self, data: dict[str, str], place: str, update: bool) -> None:
        assert update == (place in self.shown)
        self.shown[place] = data
        self.texts.append(data["text/plain"])


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_PATIENCE", 0.05)
    monkeypatch.setattr(notebook, "_OFTEN", 0.01)


def test_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, now = Cell(), [100.0]
    monkeypatch.setattr(notebook, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with watch(notebook.Bars(cell.show)):
        for _ in counted("quick", range(1000), "<b>"):
            pass
        assert cell.shown == {}
        for i in counted("slow", range(1000), "nodes"):
            now[0] += 2 if i in (0, 700) else 0.001
        assert cell.texts[0] == "slow: 1 of 1,000 nodes, 2 s"
        assert 5 < len(cell.texts) < 20
        (data,) = cell.shown.values()
        assert data["text/html"] == "<small>slow: 1,000 nodes, 5 s</small>"
        report("to the device", 0, 3 << 20)
        now[0] += 3
        report("to the device", 1 << 20, 3 << 20)
        assert cell.texts[-1] == "to the device: 1.0 of 3.0 MiB, 3 s"
        _, data = cell.shown.values()
        assert '<progress value="1048576" max="3145728"' in data["text/html"]


@pytest.mark.usefixtures("soon")
def test_bars_of_what_cannot_say_how_far_it_is() -> None:
    cell = Cell()
    bars = notebook.Bars(cell.show)
    with watch(bars):
        with waiting("a<b"):
            time.sleep(0.3)
        (data,) = cell.shown.values()
        assert len(cell.texts) > 2
        assert re.fullmatch("<small>a&lt;b: [0-9] s</small>", data["text/html"])
        for _ in counted("half", range(2), "steps"):
            time.sleep(0.1)
            report("half", 1, 2, "steps")
            break
        bars.stop()
        assert re.fullmatch(r"half: 1 of 2 steps, \d s, stopped", cell.texts[-1])


@pytest.mark.usefixtures("soon")
def test_a_kernel_has_bars_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a watcher, where IPython runs as a notebook's kernel."""
    cell, hooks = Cell(), list[str]()

    def display(data: dict[str, str], raw: bool, display_id: str, update: bool) -> None:
        assert raw
        cell.show(data, display_id, update)

    events = SimpleNamespace(register=lambda name, call: hooks.append(name))
    shells = [SimpleNamespace(events=events), SimpleNamespace(events=events, kernel=1)]
    for shell in shells:
        ipython = SimpleNamespace(
            get_ipython=lambda shell=shell: shell, display=SimpleNamespace(display=display)
        )
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "ipykernel", ipython)
        notebook.bars.cache_clear()
        with waiting("w"):
            time.sleep(0.2)
    notebook.bars.cache_clear()
    assert hooks == ["post_run_cell"]
    assert cell.texts[-1].startswith("w: ")


def test_in_a_notebook() -> None:
    """In a kernel of Jupyter, where one is installed: bars are outputs of their own cell."""
    pytest.importorskip("ipykernel")
    nbclient, nbformat = (pytest.importorskip(n) for n in ("nbclient", "nbformat"))
    v4 = nbformat.v4
    lines = "import time; from relax2xla.runtime import notebook, progress; notebook._PATIENCE = .1"
    cells = [lines, "with progress.waiting('w'): time.sleep(.5)", "1"]
    book = v4.new_notebook(cells=[v4.new_code_cell(c) for c in cells])
    nbclient.NotebookClient(book, kernel_name="python3").execute()
    first, second, third = ([o["data"]["text/plain"] for o in c.outputs] for c in book.cells)
    assert (first, [t[:3] for t in second], third) == ([], ["w: "], ["1"])
