"""What notebooks show."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np

import relax2xla as rx
from relax2xla import op
from relax2xla.script import html
from relax2xla.transform import PassContext


class _Checked(HTMLParser):
    """Every tag is closed, in order, and nothing is loaded or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_programs_machines_and_reports() -> None:
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.add(x, x)))
    assert repr(bb) == "<BlockBuilder of main>"
    mod = bb.get()
    executable = rx.build(mod)
    vm = rx.VirtualMachine(executable, rx.cpu())
    report = vm.profile("main", np.ones(2, np.float32))
    for shown, words in (
        (mod, ("IRModule of 1 function", "R.add(x, x)")),
        (mod["main"], ('main(x: Tensor((2,), dtype="float32")) -> Tensor(', "R.add(x, x)")),
        (executable, ("VMExecutable of main", "one XLA program")),
        (vm, ("VirtualMachine of main on cpu:0", "0 weights")),
        (report, ("main: ", "us")),
    ):
        text = _Checked(shown._repr_html_()).text  # pyright: ignore[reportPrivateUsage]
        for word in words:
            assert word in text
    assert repr(executable) == "<VMExecutable of main for any device>"
    assert repr(vm) == "<VirtualMachine of main on cpu:0>"
    assert repr(vm["main"]) == "<function main(x) on cpu:0>"
    assert repr(PassContext(opt_level=3, disabled_pass=["FuseOps"])) == (
        "PassContext(opt_level=3, disabled_pass=['FuseOps'])"
    )


def test_colours_can_be_read_on_white_and_on_black() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    shown = html.program("t", 'def f(x): return R.add(x, 1.0, "a")  # text')
    colours = set(re.findall(r"color: (#\w+)", shown))
    assert len(colours) >= 4
    for colour in colours:
        assert 1.05 / (light(colour) + 0.05) > 4.2
        assert (light(colour) + 0.05) / (light("#111111") + 0.05) > 4.2


def test_programs_have_a_font_for_code_and_whole_lines() -> None:
    for language in ("python", "text"):
        (style,) = re.findall(r'<pre style="([^"]*)"', html.program("t", "x = 1", language))
        assert "monospace" in style
        assert "white-space: pre;" in style


def test_text_is_text() -> None:
    hostile = "</pre><script>alert(1)</script>"
    assert hostile in _Checked(html.program(hostile, hostile, "text")).text
    assert hostile in _Checked(html.table("t", (hostile,), [(hostile,)])).text
    long = _Checked(html.program("t", "x\n" * 300_000)).text
    assert "characters more" in long
    assert len(long) < 300_000
    assert "<details>" in html.program("t", "x\n" * 100)
    assert "<details open>" in html.program("t", "x")
