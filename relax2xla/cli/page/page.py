"""The page: one HTML file with everything in it, which works without a network.

What comes from a model is data in a script element that is not run, and becomes text nodes and
strokes on a canvas, never HTML. The page's policy allows its own script alone, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from html import escape
from importlib import resources
from typing import Any, Final

from relax2xla.cli.page.graph import Graph, clipped, graph_of, local_name, title_of
from relax2xla.cli.page.heat import Heat
from relax2xla.cli.page.layout import Plan, plans_of
from relax2xla.cli.page.statistics import weight_rows
from relax2xla.cli.page.texts import relax_texts, stablehlo_texts
from relax2xla.ir import IRModule

#: What a page says that it was made by.
GENERATOR: Final = "relax2xla view"

_KINDS = {"node": 0, "group": 1, "in": 2, "out": 3, "bend": 4}


def page(
    mod: IRModule,
    title: str,
    stablehlo: bool = True,
    heat: Callable[[Graph], Heat | None] = lambda graph: None,
) -> str:
    """The HTML page of ``mod``.

    stablehlo: whether nodes have their StableHLO text
    heat: what colours the operators of the graph
    """
    graph = graph_of(mod)
    plans = plans_of(graph)
    data: dict[str, Any] = page_data(graph, plans, title)
    found = heat(graph)
    data["heat"] = None if found is None else found.as_dict()
    data["hlo"], which = (
        stablehlo_texts(graph, mod) if stablehlo else ([""], [0] * len(graph.nodes))
    )
    rows = zip(data["nodes"], graph.nodes, relax_texts(graph), which, strict=True)
    for row, node, text, program in rows:
        row += [text, program, local_name(graph, node)]
    style, script = (_part(name) for name in ("view.css", "view.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    parts = {
        "GENERATOR": GENERATOR,
        "POLICY": policy,
        "TITLE": escape(clipped(title)),
        "STYLE": style,
        "DATA": script_json(data),
        "SCRIPT": script,
    }
    # In one go over the template, so that nothing inside of a part is taken for a mark.
    pieces = _part("view.html").split("@@")
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def _part(name: str) -> str:
    return resources.files("relax2xla.cli.page").joinpath(name).read_text("utf-8")


def script_json(value: Any) -> str:
    """JSON that nothing in it can end: without <, > and &, and in ASCII."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(graph: Graph, plans: list[Plan], title: str) -> dict[str, Any]:
    """What the page's script draws, as plain data with short keys."""
    infos: dict[str, int] = {}

    def info(text: str) -> int:
        return infos.setdefault(text, len(infos))

    weights = weight_rows(graph.weights, graph.weight_names)
    nodes = [
        [n.label, n.kind, n.group, n.name, n.source, info(n.info), n.weights] for n in graph.nodes
    ]
    groups = [
        {
            "n": title_of(graph, i),
            "p": g.path,
            "u": g.parent,
            "r": int(g.is_region),
            "i": [[_KINDS[item.kind], item.of] for item in plan.items],
            "l": plan.layers,
            "e": [[e.src, e.dst, e.value, info(e.info), int(e.is_back), e.bends]
                  for e in plan.edges],
        }
        for i, (g, plan) in enumerate(zip(graph.groups, plans, strict=True))
    ]  # fmt: skip
    return {
        "title": clipped(title),
        "nodes": nodes,
        "groups": groups,
        "roots": graph.roots,
        "weights": weights,
        "infos": list(infos),
    }
