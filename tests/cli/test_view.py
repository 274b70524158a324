"""``relax2xla view``: the graph, its layout, what a page says, and what it never lets in."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla.cli.page.graph import Graph, graph_of, local_name, parts_of
from relax2xla.cli.page.heat import times_heat
from relax2xla.cli.page.layout import GAP_X, SPAN, coordinates, plans_of, spread
from relax2xla.cli.page.page import page
from relax2xla.cli.page.pictures import dot, svg
from relax2xla.cli.page.statistics import statistics
from relax2xla.errors import BudgetError
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
from relax2xla.op import add, greater, nn, where
from tests.cli.conftest import OPTIONS, Cli

EVIL = '</script><script>document.title="broken"</script><img src=x onerror="alert(1)"><!--'


def chain(names: list[str], argument: str = "x", weight: Constant | None = None) -> IRModule:
    """A program of one relu for each source name, every seventh one with a residual."""
    x = Var(argument, TensorStructInfo((2, 3), "float32"), Span(name=argument))
    values = [x]
    bindings = []
    for i, name in enumerate(names):
        other = weight if weight is not None and i == 0 else values[max(0, i - 6)]
        call = add(values[-1], other) if i % 7 == 0 else nn.relu(values[-1])
        var = Var(f"v{i}", call.struct_info)
        bindings.append(VarBinding(var, call, Span(name=name)))
        values.append(var)
    body = SeqExpr([BindingBlock(bindings)], values[-1])
    return IRModule({"main": Function([x], body, attrs={"global_symbol": "main"})})


def data_of(html: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(found)


def test_names_become_modules() -> None:
    assert parts_of("layers.0.attn") == (["layers", "0", "attn"], ".")
    assert parts_of("/layers.0/attn/MatMul") == (["layers.0", "attn", "MatMul"], "/")
    assert parts_of("jit(f)/params['a/b']/x")[0] == ["jit(f)", "params['a/b']", "x"]
    assert len(parts_of("a." * 10_000)[0]) <= 24
    graph = graph_of(chain([f"layers.{i // 4}.{'ab'[i // 2 % 2]}" for i in range(8)]))
    paths = {g.path for g in graph.groups}
    assert {"layers.0", "layers.1", "layers.0.a", "layers.1.b"} <= paths
    homes = [graph.groups[n.group].path for n in graph.nodes if n.kind == "other"]
    assert homes == [f"layers.{i // 4}.{'ab'[i // 2 % 2]}" for i in range(8)]


def test_modules_of_torch_that_an_onnx_file_tells(cli: Cli, tmp_path: Path) -> None:
    """torch.onnx.export says in the metadata of its nodes which modules they come from."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    scopes = ["", "['', 'layer1', 'layer1.0', 'relu']", "['', 'layer1', \"layer1.0\", 'relu_1']"]
    scopes += ["['', 'layer1', 'layer1.1', 'relu_2']", "['', 'relu_3']", "[nonsense"]
    nodes = [h.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(6)]
    for node, told in zip(nodes, scopes, strict=True):
        if told:
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=told)
    ends = [[h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2])] for n in ("v0", "v6")]
    path, out = tmp_path / "m.onnx", tmp_path / "m.html"
    opsets = [h.make_opsetid("", 17)]
    model = h.make_model(h.make_graph(nodes, "g", *ends), ir_version=10, opset_imports=opsets)
    onnx.save(model, path)
    for file in (path, tmp_path / "m.mlir"):  # StableHLO has them in its locations
        assert cli("view", file, "-o", out).code == 0
        data = data_of(out.read_text("utf-8"))
        paths = {n[4]: data["groups"][n[2]]["p"] for n in data["nodes"] if n[4].startswith("n")}
        inside = {"n1": "layer1.0", "n2": "layer1.0", "n3": "layer1"}
        assert paths == dict.fromkeys(("n0", "n4", "n5"), "main") | inside
        assert cli("convert", path, "-o", tmp_path / "m.mlir").code == 0


def test_a_module_of_one_operator_is_no_group() -> None:
    graph = graph_of(chain(["net.a", "net.a", "net.b"]))
    assert [g.path for g in graph.groups] == ["main", "net", "net.a"]
    scopes = ["jit(f)/blk/add", "jit(f)/blk/mul", "", "jit(f)/blk/add", "jit(f)/add", "jit(f)/x"]
    graph = graph_of(chain(scopes))
    assert [g.path for g in graph.groups] == ["main", "jit(f)", "jit(f)/blk"]
    assert len(graph.groups[2].nodes) == 4


def test_a_name_in_a_module_is_what_the_module_does_not_say() -> None:
    graph = graph_of(chain([f"/enc/l.{i // 2}/{'qk'[i % 2]}/MatMul" for i in range(4)]))
    inside = {local_name(graph, n) for n in graph.nodes if n.kind == "other"}
    assert inside == {"q/MatMul", "k/MatMul"}


def test_nothing_overlaps_in_a_layer_and_edges_go_down() -> None:
    rng = np.random.default_rng(0)
    graph = graph_of(chain([f"m{rng.integers(5)}.{rng.integers(3)}" for _ in range(300)]))
    for plan in plans_of(graph):
        boxes, width, _ = coordinates(plan, lambda item: (30.0 + 7 * item.of % 50, 40.0))
        for row in plan.layers:
            for a, b in pairwise(row):
                gap = boxes[b].x - boxes[a].x - (boxes[a].width + boxes[b].width) / 2
                assert gap >= GAP_X - 1e-6
        assert sorted(i for row in plan.layers for i in row) == list(range(len(plan.items)))
        assert all(abs(b.x) + b.width / 2 <= width / 2 + 1e-6 for b in boxes)
        for e in plan.edges:
            assert e.is_back or boxes[e.src].y < boxes[e.dst].y


def test_spread_moves_no_more_than_it_must() -> None:
    assert spread([0, 100, 200], [10, 10, 10]) == [0, 100, 200]
    assert spread([0, 0], [10, 10]) == [-(10 + GAP_X) / 2, (10 + GAP_X) / 2]


def test_the_work_is_linear() -> None:
    """Bends and items a node do not grow, also where one input goes to every operator."""

    def items(count: int) -> int:
        x = Var("x", TensorStructInfo((2, 3), "float32"))
        last, bindings = x, []
        for i in range(count):
            call = add(last, x)
            last = Var(f"v{i}", call.struct_info)
            bindings.append(VarBinding(last, call))
        func = Function([x], SeqExpr([BindingBlock(bindings)], last))
        return sum(len(p.items) for p in plans_of(graph_of(IRModule({"main": func}))))

    assert items(2000) - items(1000) <= 1000 * 2
    assert items(2000) <= 2000 + 10 * SPAN


def test_a_page_of_ten_thousand_nodes_is_small() -> None:
    mod = chain([f"layers.{i // 100}.block.{i // 10 % 10}" for i in range(10_000)])
    html = page(mod, "large")
    data = data_of(html)
    assert sum(n[1] == "other" for n in data["nodes"]) == 10_000
    assert len(html) < 6_000_000
    assert len(data["hlo"]) < 10  # one text for each distinct operator


def test_the_same_operator_on_other_operands_has_its_own_text() -> None:
    x, y = (Var(n, TensorStructInfo((4,), "float32")) for n in "xy")
    calls = [where(greater(a, b), b, a) for a, b in ((x, y), (x, x), (y, x))]
    calls += [add(x, Constant(np.float32(k))) for k in (1, 2)]
    out = [Var(f"v{i}", c.struct_info) for i, c in enumerate(calls)]
    block = BindingBlock([VarBinding(v, c) for v, c in zip(out, calls, strict=True)])
    mod = IRModule({"main": Function([x, y], SeqExpr([block], Tuple(out)))})
    data = data_of(page(mod, "texts"))
    which = [n[8] for n in data["nodes"] if n[1] == "other"]
    assert which[0] == which[2]
    assert len(set(which)) == 4
    assert "2.000000e+00" in data["hlo"][which[-1]]


def test_strings_of_a_model_stay_strings(tmp_path: Path) -> None:
    weight = Constant(np.ones((2, 3), np.float32), span=Span(name=EVIL))
    html = page(chain([EVIL, f"a.{EVIL}", f"a.{EVIL}"], EVIL, weight), EVIL)
    assert html.count("<script") == 2
    assert html.count("</script") == 2
    assert "<img" not in html
    assert "<!--" not in html
    data = data_of(html)
    assert data["title"].startswith("</script>")
    assert any(n[4].startswith("</script>") for n in data["nodes"])
    plain = page(chain(["a"]), "plain")
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org/)", plain)
    graph = graph_of(chain([EVIL, 'a"];\\\nb'], EVIL, weight))
    root = ET.fromstring(svg(graph, plans_of(graph), EVIL))
    assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {
        "svg", "title", "style", "rect", "text", "path"
    }  # fmt: skip
    for line in dot(graph).splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0


def test_statistics_are_numpys() -> None:
    a = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    a[0, :3] = np.nan, np.inf, 0
    good = a[np.isfinite(a)].astype(np.float64)
    found = statistics(a)
    assert found["special"] == 2
    assert found["zeros"] == 1
    for key in ("min", "max", "mean", "std"):
        assert found[key] == pytest.approx(getattr(good, key)())
    assert found["histogram"] == np.histogram(good, 32)[0].tolist()
    part = statistics(np.arange(1 << 16, dtype=np.int32), 1 << 12)
    assert part["read"] == 1 << 12
    assert (part["min"], part["max"]) == (0, (1 << 16) - 1)
    assert statistics(np.broadcast_to(np.float32(3), (1 << 30,)))["mean"] == 3
    assert statistics(np.array(["a"], dtype=object)) == {}
    assert statistics(np.full(3, np.nan, np.float32)) == {"read": 3, "special": 3}


@pytest.mark.parametrize("kind", ["onnx", "pt2", "mlir", "relax"])
def test_every_format(kind: str, cli: Cli, models: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = cli("view", models(kind), "-o", out, *OPTIONS[kind])
    assert done.code == 0, done.err
    data = data_of(out.read_text("utf-8"))
    operators = [n for n in data["nodes"] if n[1] not in ("input", "output")]
    assert operators
    assert all("R." in n[7] for n in operators)
    assert all("stablehlo." in data["hlo"][n[8]] for n in operators)
    if kind != "relax":
        assert any(w.get("histogram") for w in data["weights"])
        assert not any("dense<[" in text for text in data["hlo"])


def test_pictures_and_errors(cli: Cli, models: Callable[[str], Path], tmp_path: Path) -> None:
    for suffix in ("svg", "dot"):
        assert cli("view", models("relax"), "-o", tmp_path / f"a.{suffix}").code == 0
    assert "softmax" in (tmp_path / "a.svg").read_text()
    assert "->" in (tmp_path / "a.dot").read_text()
    done = cli("view", models("relax"), "-o", tmp_path / "a.png")
    assert (done.code, ".html, .svg, .dot" in done.err) == (2, True)
    with pytest.raises(BudgetError, match="draws what is seen"):
        svg(graph := graph_of(chain(["a"] * 5001)), plans_of(graph), "large")


def test_a_picture_closes_modules(cli: Cli, models: Callable[[str], Path], tmp_path: Path) -> None:
    mod = chain([f"net.{i // 20}.{'ab'[i // 10 % 2]}.op{i}" for i in range(60)] + ["end"])
    graph = graph_of(mod)
    texts = {}
    for depth in (None, 0, 1, 2):
        root = ET.fromstring(svg(graph, plans_of(graph), "net", depth=depth))
        texts[depth] = [e.text for e in root.iter() if e.tag.endswith("}text")]
    assert "+ net" in texts[0]
    assert "60 operators" in texts[0]
    assert [t for t in texts[1] if t and t.startswith("+ net.")] == [
        "+ net.0",
        "+ net.1",
        "+ net.2",
    ]
    assert "+ a" in texts[2]
    assert not any(t and t.startswith("+ ") for t in texts[None])
    assert "op17" in texts[None]  # what the modules around do not say
    large = graph_of(chain([f"net.{i // 2}" for i in range(6000)]))
    assert "+ net" in svg(large, plans_of(large), "net", depth=0)
    done = cli("view", models("relax"), "-o", tmp_path / "a.dot", "--depth", 1)
    assert (done.code, "--depth is for .svg" in done.err) == (2, True)
    assert cli("view", models("relax"), "-o", tmp_path / "a.svg", "--depth", 0).code == 0


def test_a_profile_colours_operators(
    cli: Cli, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """By the source's names, or by line where there are none; a trace serves as well."""
    out = tmp_path / "a.html"
    for kind, hot in (("onnx", {"matmul", "softmax"}), ("mlir", set[str]())):
        model, profile, trace = models(kind), tmp_path / f"{kind}.json", tmp_path / "t.json"
        options = [*OPTIONS[kind]]
        done = cli("run", model, *options, "--profile", "--json", "--trace", trace)
        assert done.code == 0, done.err
        assert json.loads(done.out)["outputs"]
        profile.write_text(done.out)
        for file in (profile, trace):
            assert cli("view", model, *options, "--profile", file, "-o", out).code == 0
            data = data_of(out.read_text("utf-8"))
            heat = data["heat"]
            assert heat["title"] == "time"
            assert {data["nodes"][int(i)][4] for i in heat["nodes"]} >= hot
            assert max(f for f, *_ in heat["nodes"].values()) == 1
            assert heat["groups"]["0"][1].endswith(" 100.0 %")
    assert cli("view", model, "--profile", trace, "-o", tmp_path / "a.svg").code == 0
    assert " %</title></rect>" in (tmp_path / "a.svg").read_text()
    (tmp_path / "wrong.json").write_text("[1, 2]")
    for file, words, message in (
        (tmp_path / "onnx.json", [], "no operator of the model is called"),
        (tmp_path / "wrong.json", [], "is no profile: expected the JSON of"),
        (tmp_path / "none.json", [], "there is no such file"),
        (trace, ["-o", tmp_path / "a.dot"], "--profile colours"),
    ):
        done = cli("view", model, "--profile", file, "-o", out, *words)
        assert (done.code, message in done.err) == (2, True), done.err


def test_operators_of_one_layer_share_its_time() -> None:
    graph = graph_of(chain(["net.a", "net.a", "net.b"]))
    found = times_heat(graph, {"net.a": 3e-6, "net.b": 1e-6, "gone": 1e-6}, "p.json")
    named = {graph.nodes[i].source: text for i, (_, text) in found.nodes.items()}
    assert named["net.a"] == "3.0 us, 60.0 %, shared by 2 operators"
    assert named["net.b"] == "1.0 us, 20.0 %"
    groups = {graph.groups[g].path: text for g, (_, text) in found.groups.items()}
    assert groups["net"] == "4.0 us, 80.0 %"  # each name once
    assert found.remark == "20.0 % of the time has no operator here"


def test_a_page_takes_the_place_of_no_other_file(
    cli: Cli, models: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = models("mlir")
    own = Path(f"{model.stem}.html")
    own.write_text("notes")
    done = cli("view", model)
    assert (done.code, f"-o {own}" in done.err, own.read_text()) == (2, True, "notes")
    assert cli("view", model, "-o", own).code == 0
    assert cli("view", model).code == 0  # a page again


def test_other_viewers(cli: Cli, models: Callable[[str], Path], tmp_path: Path) -> None:
    """A graph collection of model-explorer, and a model of ONNX that its checker takes."""
    out = tmp_path / "a.json"
    assert cli("view", models("mlir"), "-o", out).code == 0
    collection = json.loads(out.read_text())
    assert set(collection) == {"label", "graphs"}
    (main,) = collection["graphs"]
    known = {n["id"] for n in main["nodes"]}
    assert len(known) == len(main["nodes"])
    edges = [e for n in main["nodes"] for e in n["incomingEdges"]]
    assert edges
    assert {e["sourceNodeId"] for e in edges} <= known
    assert all(isinstance(a["value"], str) for n in main["nodes"] for a in n["attrs"])
    onnx = pytest.importorskip("onnx")
    out = tmp_path / "a.onnx"
    assert cli("view", models("onnx"), *OPTIONS["onnx"], "-o", out).code == 0
    model = onnx.load(out)
    assert [(n.op_type, n.domain, n.name) for n in model.graph.node] == [
        ("matmul", "relax2xla.view", "lv"),
        ("nn_softmax", "relax2xla.view", "lv1"),
        ("output", "relax2xla.view", "z"),
    ]
    (weight,) = model.graph.initializer
    assert onnx.numpy_helper.to_array(weight).shape == (4, 3)
    (x,) = model.graph.input
    assert [d.dim_value for d in x.type.tensor_type.shape.dim] == [3, 4]
    done = cli("view", models("onnx"), "-o", models("onnx"))
    assert (done.code, "is the file that is read" in done.err) == (2, True)


def test_a_saved_executable(cli: Cli, models: Callable[[str], Path], tmp_path: Path) -> None:
    package, out = tmp_path / "m.r2x", tmp_path / "m.html"
    assert cli("compile", models("mlir"), "-o", package, "--no-compiled").code == 0
    assert cli("view", package, "-o", out).code == 0
    labels = {n[0] for n in data_of(out.read_text("utf-8"))["nodes"]}
    assert {"dot_general", "tanh"} <= labels
    package.write_bytes(b"no archive")
    done = cli("view", package, "-o", out)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_regions_are_groups() -> None:
    jax = pytest.importorskip("jax")
    from relax2xla.stablehlo import parse, read

    def body(a: Any) -> Any:
        return jax.lax.sin(a) * a + jax.lax.cos(a)

    def loop(x: Any) -> Any:
        return jax.lax.while_loop(lambda a: a[0] < 9, body, x)

    lowered = jax.jit(loop).lower(np.ones(3, np.float32))
    graph: Graph = graph_of(read(parse(lowered.as_text().encode())))
    inside = {n.label for n in graph.nodes if graph.groups[n.group].is_region}
    assert {"sine", "cosine"} <= inside
    (whole,) = (n for n in graph.nodes if n.label == "while_")
    assert any(graph.groups[graph.nodes[v].group].is_region for v, _ in whole.inputs)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser")
def test_a_browser_draws_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(chain([EVIL, *["a.b"] * 30], EVIL), EVIL), "utf-8")
    words = "headless no-sandbox disable-gpu disable-quic no-first-run dump-dom disable-sync"
    options = [f"--{w}" for w in f"{words} disable-component-update".split()]
    options += ["--disable-background-networking", f"--user-data-dir={tmp_path / 'browser'}"]
    words = ["chromium", *options, "--virtual-time-budget=2000"]
    done = subprocess.run(
        [*words, f"{path.as_uri()}#open=all&search=relu"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (ready,) = re.findall(r'<html[^>]* data-ready="(\d+)"', done.stdout)
    (drawn,) = re.findall(r'<html[^>]* data-drawn="(\d+)"', done.stdout)
    assert int(ready) == 33
    assert 1 < int(drawn) <= 33
    assert "of 33</small>" in done.stdout
    assert "<title>&lt;/script&gt;" in done.stdout
    assert "<img" not in done.stdout
