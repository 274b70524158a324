"""Pages as a reader has them, in a headless browser: what is seen, hovered, pressed and found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relax2xla.cli.page.graph import graph_of
from relax2xla.cli.page.heat import errors_heat, times_heat
from relax2xla.cli.page.page import page
from relax2xla.ir import (
    BindingBlock,
    Constant,
    Function,
    IRModule,
    SeqExpr,
    Span,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.op import nn, reshape
from tests.cli.browser import FOUND, Browser, browser
from tests.cli.test_view import chain

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason="no browser"),
    pytest.mark.xdist_group("browser"),
]
LONG = "a_very_long_name_of_a_layer_" * 4
NAMES = [f"net.{i // 10}.{('attn', 'mlp')[i // 5 % 2]}" for i in range(60)]

# The contrast of two colours by the formula of WCAG 2, of names of the page's theme.
CONTRAST = """(a, b) => {
  const light = (name) => {
    const hex = theme[name].replace("#", "");
    const full = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
    const parts = [0, 2, 4].map((i) => parseInt(full.slice(i, i + 2), 16) / 255);
    const [r, g, b] = parts.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [light(a), light(b)].sort();
  return (y + 0.05) / (x + 0.05);
}"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(autouse=True)
def no_errors(tab: Browser) -> Iterator[None]:
    yield
    errors, tab.errors = tab.errors, []
    assert not errors


def shown(tab: Browser, html: str, folder: Path, place: str = "") -> Browser:
    path = folder / "page.html"
    path.write_text(html, "utf-8")
    tab.dark(False)
    tab.size(1400, 900)
    tab.open(path.as_uri() + place)
    return tab


def module(names: list[str] = NAMES) -> IRModule:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    return chain(names, weight=Constant(data, span=Span(name="net.weight")))


# Where the middle of the first operator is on the screen.
FIRST = """(() => {
  const [x, y, w, h] = boxOf(NODE, 1);
  return [canvas.offsetLeft + canvas.clientWidth / 2 + view.x + x * view.zoom,
          canvas.getBoundingClientRect().top + view.y + (y + h / 2) * view.zoom];
})()"""


def test_text_can_be_read_at_once_and_everything_seen_on_demand(
    tab: Browser, tmp_path: Path
) -> None:
    shown(tab, page(module(), "net"), tmp_path)
    assert tab.value("view.zoom >= LEGIBLE")
    said = tab.value("$('right').innerText")
    assert "operators" in said
    assert "24 bytes" in said
    assert "element by element" in said
    tab.press("e", "f")
    assert tab.value("D.groups[root].height * view.zoom <= canvas.clientHeight")
    tab.press("h")
    assert tab.value("view.zoom >= LEGIBLE")


def test_hovering_tells_the_whole_name(tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(module([f"m.{LONG}{i % 2}" for i in range(4)]), "net"), tmp_path)
    tab.press("e")
    tab.move(*tab.value(FIRST))
    said = tab.wait("!$('tip').hidden && $('tip').innerText")
    assert "add" in said.splitlines()[0]
    assert LONG[:100] in said
    assert "float32 2×3" in said
    box = tab.value("(({left, right}) => [left, right])($('tip').getBoundingClientRect())")
    assert 0 <= box[0] < box[1] <= 1400
    tab.move(5, 890)
    tab.wait("$('tip').hidden")


def test_lists_show_the_end_of_a_long_name(tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(module([f"m.{LONG}{i}" for i in range(9)]), "net"), tmp_path, "#search=relu")
    edges = tab.value(
        "[...document.querySelectorAll('#left .named')].map((row) => [row.getBoundingClientRect()"
        ".right, row.querySelector('bdi').getBoundingClientRect().right])"
    )
    assert edges
    assert all(name <= row for row, name in edges)


def test_values_of_one_kind_are_told_once(tab: Browser, tmp_path: Path) -> None:
    """A module that gives a hundred values does not write over what is below it."""
    x = Var("x", TensorStructInfo((2, 3), "float32"))
    calls = [nn.relu(x) for _ in range(100)] + [reshape(x, (k, 6 // k)) for k in (1, 2, 3, 6)]
    made = [Var(f"v{i}", call.struct_info) for i, call in enumerate(calls)]
    bindings = [
        VarBinding(var, call, Span(name=f"net.{i}"))
        for i, (var, call) in enumerate(zip(made, calls, strict=True))
    ]
    body = SeqExpr([BindingBlock(bindings)], Tuple(made))
    shown(tab, page(IRModule({"main": Function([x], body)}), "net"), tmp_path)
    tab.press("c")
    told = tab.value(
        "D.groups[root].labels.flatMap((all) => all.map((l) => [l.text, l.values.size]))"
    )
    assert ["float32 2×3", 101] in told
    assert len({text for text, _ in told}) == 4
    tab.value(
        "window.texts = []; const fill = context.fillText.bind(context);"
        "context.fillText = (t, ...at) => { texts.push(t); fill(t, ...at); }; draw()"
    )
    assert "float32 2×3 · 101 values" in tab.value("texts")
    assert "… 2 more" in tab.value("texts")


def test_all_can_be_done_with_keys(tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(module(), "net"), tmp_path)
    tab.press("/", *"3.mlp relu")
    tab.wait("matches.size > 0")
    tab.press("ArrowDown", "ArrowDown", "Enter")
    assert tab.wait("chosen && chosen.kind === NODE")
    assert tab.value("D.nodes[chosen.of][SOURCE]") == "net.3.mlp"
    assert tab.value("document.activeElement.getAttribute('role')") == "button"
    assert "R.nn.relu" in tab.value("$('right').innerText")
    before = tab.value("chosen.of")
    tab.press("j")
    assert tab.value("chosen.of") > before
    tab.press("u", "Enter")
    assert tab.value("chosen.kind === GROUP && !opened.has(chosen.of)")
    tab.press("/")
    tab.value("$('search').select()")
    tab.press(*"nothing")
    said = tab.wait("!matches.size && $('left').innerText.includes('Nothing has') && 1")
    assert said
    tab.press("Escape", "w")
    assert "net.weight" in tab.value("$('right').innerText")


def test_the_strip_shows_the_rest_and_goes_there(tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(module(), "net"), tmp_path)
    tab.press("e")
    box = tab.wait("mapBox")
    top = tab.value("canvas.getBoundingClientRect().top")
    tab.click(box["x"] + box["w"] / 2, top + box["y"] + box["h"] - 2)
    assert tab.wait("view.y < -1000")
    assert tab.value("chosen === null")
    tab.press("f")
    assert tab.wait("mapBox === null")


@pytest.mark.parametrize("dark", [False, True])
def test_colours_have_contrast(dark: bool, tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(module(), "net"), tmp_path)
    tab.dark(dark)
    tab.wait(f"(theme.back < theme.text) === {'true' if dark else 'false'}")
    for front in ("text", "faint"):
        for back in ("back", "front"):
            assert tab.value(f"({CONTRAST})('{front}', '{back}')") >= 4.5, (front, back)
    assert tab.value(f"({CONTRAST})('mark', 'front')") >= 3


def test_narrow_screens(tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(module(), LONG), tmp_path)
    for width in (900, 420):
        tab.size(width, 800)
        tab.open((tmp_path / "page.html").as_uri())
        assert tab.value("canvas.clientWidth") >= 0.6 * width
        assert tab.value("document.documentElement.scrollWidth") <= width


def test_times_and_errors_have_scales(tab: Browser, tmp_path: Path) -> None:
    mod = module(["net.a", "net.a", "net.b", "net.b"])
    graph = graph_of(mod)
    times = times_heat(graph, {"net.a": 3e-3, "net.b": 1e-6}, "p.json")
    shown(tab, page(mod, "net", heat=lambda _: times), tmp_path)
    rows = tab.value("[...document.querySelectorAll('#left [role=button]')].map(r => r.innerText)")
    assert len(rows) == 2  # what operators share stands there once
    assert rows[0].split("\n")[0].startswith("add, nn.relu")
    assert "3.00 ms, 100.0 %, shared by 2 operators" in rows[0]
    assert "1.0 us" in rows[-1]
    for share, remark, colour in ((0.01, "nothing departs", "CALM"), (9.0, "1 of 2", "HOT")):
        heat = errors_heat(graph, {"net.a": (share, "off"), "net.b": (0.0, "equal")})
        shown(tab, page(mod, "net", heat=lambda _, heat=heat: heat), tmp_path)
        assert remark in tab.value("$('left').innerText")
        assert tab.value(f"hotOrCalm(Object.values(D.heat.nodes)[0]) === {colour}")
        assert "within the tolerance" in tab.value("$('right').innerText")


def test_an_empty_program(tab: Browser, tmp_path: Path) -> None:
    shown(tab, page(chain([]), "nothing"), tmp_path)
    assert "computes nothing" in tab.value("$('right').innerText")
    tab.press("w")
    assert "No weights" in tab.value("$('right').innerText")
    tab.press("t")
    assert "--profile" in tab.value("$('left').innerText")
    shown(tab, page(IRModule({}), "nothing"), tmp_path)
    tab.press("f", "e", "h", "n", "?")


def test_ten_thousand_operators(tab: Browser, tmp_path: Path) -> None:
    names = [f"model.layers.{i // 100}.{('attn', 'mlp')[i // 50 % 2]}" for i in range(10_000)]
    shown(tab, page(module(names), "large"), tmp_path)
    assert tab.wait("performance.getEntriesByType('paint').length")
    tab.press("e")
    tab.wait("opened.size > 100")
    assert tab.wait("document.documentElement.dataset.drawn") < "999"  # what is seen alone
    tab.press("f")  # everything is seen, as points
    tab.wait("D.groups[root].height * view.zoom <= canvas.clientHeight")
    tab.value("draw()")
    middle = "canvas.width / 2 - 20, canvas.height / 4, 40, canvas.height / 2"
    shades = tab.value(f"new Set(new Uint32Array(context.getImageData({middle}).data.buffer)).size")
    assert shades > 3
    tab.press("/", *"relu layers.77")
    assert tab.wait("matches.size") > 50
    tab.press("Enter")
    assert "layers.77" in tab.wait("chosen && D.nodes[chosen.of][SOURCE]")
