"""Graphs as files for other programs: Graphviz text, and an SVG of everything opened."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from relax2xla.cli.page.graph import Graph, Kind, clipped
from relax2xla.cli.page.heat import Heat
from relax2xla.cli.page.layout import Box, Edge, Item, Plan, coordinates
from relax2xla.errors import BudgetError

#: More than this is no picture; the page draws only what is seen.
MOST_DRAWN: Final = 5000
COLOURS: Final[dict[Kind, str]] = {
    "input": "#2b8a3e",
    "output": "#2b8a3e",
    "product": "#1c7ed6",
    "reduce": "#9c36b5",
    "move": "#868e96",
    "control": "#c92a2a",
    "other": "#e67700",
}
_HEAD, _PAD = 26.0, 14.0


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language; groups are clusters."""
    lines = ["digraph program {", '  node [shape=box, fontname="sans-serif"];']
    # What is left to write: a group, or a line that closes one.
    waiting: list[int | str] = list(reversed(graph.roots))
    while waiting:
        at = waiting.pop()
        if isinstance(at, str):
            lines.append(at)
            continue
        group = graph.groups[at]
        lines.append(f"  subgraph cluster_{at} {{ label={_quoted(group.label)};")
        for n in group.nodes:
            node = graph.nodes[n]
            weights = "".join(f"\n{graph.weight_names[w]}" for w in node.weights[:4])
            label = _quoted(f"{node.label}\n{node.info}{weights}")
            lines.append(f'    n{n} [label={label}, color="{COLOURS[node.kind]}"];')
        waiting += ["  }", *reversed(group.groups)]
    for node in graph.nodes:
        lines += [f"  n{v} -> n{node.index} [label={_quoted(i)}];" for v, i in node.inputs]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    """A string of Graphviz's language: no escape of its own, no end, nothing unprintable."""
    plain = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def svg(graph: Graph, plans: list[Plan], title: str, heat: Heat | None = None) -> str:
    """All functions beside each other, all groups opened; BudgetError for too many nodes."""
    if len(graph.nodes) > MOST_DRAWN:
        raise BudgetError(
            f"the program has {len(graph.nodes):,} operators, and a picture at most "
            f"{MOST_DRAWN:,}; write a page (-o model.html), which draws what is seen, or .dot"
        )
    placed: list[tuple[list[Box], float, float]] = [([], 0.0, 0.0)] * len(plans)

    def size(item: Item) -> tuple[float, float]:
        if item.kind == "node":
            node = graph.nodes[item.of]
            long = max(len(clipped(node.label, 34)) * 7.4, len(clipped(node.info, 40)) * 6.2)
            return min(290.0, max(64.0, long + 26)), 42.0
        if item.kind == "group":
            _, width, height = placed[item.of]
            label = len(clipped(graph.groups[item.of].label, 34))
            return max(width + 2 * _PAD, label * 7.4 + 60), height + _HEAD + 2 * _PAD
        return (6.0, 30.0) if item.kind == "bend" else (10.0, 4.0)

    for i in range(len(plans) - 1, -1, -1):  # what is inside comes after
        placed[i] = coordinates(plans[i], size)
    parts: list[str] = []
    x = 20.0
    height = 0.0
    for root in graph.roots:
        _, w, h = placed[root]
        parts += _drawn(graph, plans, placed, root, x + w / 2, 40.0, heat)
        label = escape(clipped(graph.groups[root].label, 60))
        parts.append(f'<text x="{x:.0f}" y="24" class="m">{label}</text>')
        x, height = x + max(w, 80) + 60, max(height, h)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x:.0f}" height="{height + 60:.0f}" '
        'font-family="sans-serif" font-size="12">\n'
        f"<title>{escape(_printable(clipped(title)))}</title>\n"
        "<style>path{fill:none;stroke:#868e96}text{text-anchor:middle;fill:#1c2430}"
        ".m{text-anchor:start;font-weight:600;fill:#66707f}.s{font-size:11px;fill:#66707f}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _printable(text: str) -> str:
    """``text`` without the characters that XML cannot hold."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _drawn(
    graph: Graph,
    plans: list[Plan],
    placed: list[tuple[list[Box], float, float]],
    root: int,
    x: float,
    y: float,
    heat: Heat | None,
) -> Iterator[str]:
    waiting = [(root, x, y)]
    while waiting:
        at, x, y = waiting.pop()
        plan, (boxes, _, _) = plans[at], placed[at]
        for item, box in zip(plan.items, boxes, strict=True):
            left, top = x + box.x - box.width / 2, y + box.y
            if item.kind == "group":
                label = escape(_printable(clipped(graph.groups[item.of].label, 34)))
                yield (
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" '
                    f'height="{box.height:.1f}" rx="8" fill="#66707f" fill-opacity="0.07" '
                    f'stroke="#d5dae1"/><text x="{left + 9:.1f}" y="{top + 17:.1f}" class="m">'
                    f"{label}</text>"
                )
                waiting.append((item.of, x + box.x, top + _HEAD + _PAD))
        for edge in plan.edges:
            yield _path(plans, placed, plan, boxes, edge, x, y)
        for item, box in zip(plan.items, boxes, strict=True):
            if item.kind == "node":
                yield _node(graph, item.of, x + box.x, y + box.y, box, heat)


def _node(graph: Graph, at: int, x: float, y: float, box: Box, heat: Heat | None) -> str:
    node = graph.nodes[at]
    strength, words = (0.0, "") if heat is None else heat.nodes.get(at, (0.0, ""))
    fill = f'fill="#e03131" fill-opacity="{0.8 * strength:.2f}"' if words else 'fill="#fff"'
    told = words and f"<title>{escape(words)}</title>"
    colour = COLOURS[node.kind]
    label, info = (escape(_printable(t)) for t in (clipped(node.label, 34), clipped(node.info, 40)))
    return (
        f'<rect x="{x - box.width / 2:.1f}" y="{y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="5" {fill} stroke="{colour}">{told}</rect>'
        f'<text x="{x:.1f}" y="{y + 18:.1f}">{label}</text>'
        f'<text x="{x:.1f}" y="{y + 34:.1f}" class="s">{info}</text>'
    )


def _path(
    plans: list[Plan],
    placed: list[tuple[list[Box], float, float]],
    plan: Plan,
    boxes: list[Box],
    edge: Edge,
    x: float,
    y: float,
) -> str:
    def end(at: int, kind: str) -> tuple[float, float]:
        """Where an edge leaves (``kind`` "out") or reaches ("in") an item."""
        item, box = plan.items[at], boxes[at]
        px, py = box.x, box.y + (box.height if kind == "out" else 0.0)
        if item.kind == "group":
            port = plans[item.of].at.get(Item("out" if kind == "out" else "in", edge.value))
            px += placed[item.of][0][port].x if port is not None else 0.0
        elif item.kind in ("in", "out"):
            py += -_HEAD - _PAD if item.kind == "in" else _PAD
        return px, py

    points = [end(edge.src, "out")]
    for b in edge.bends:
        points += [(boxes[b].x, boxes[b].y), (boxes[b].x, boxes[b].y + boxes[b].height)]
    points.append(end(edge.dst, "in"))
    (px, py), *rest = points
    text = f"M{x + px:.1f} {y + py:.1f}"
    for k, (qx, qy) in enumerate(rest):
        if k % 2:
            text += f"L{x + qx:.1f} {y + qy:.1f}"
        else:
            bend = max(12.0, min(60.0, abs(qy - py) / 2))
            text += (
                f"C{x + px:.1f} {y + py + bend:.1f} {x + qx:.1f} {y + qy - bend:.1f} "
                f"{x + qx:.1f} {y + qy:.1f}"
            )
        px, py = qx, qy
    dashes = ' stroke-dasharray="5 4"' if edge.is_back else ""
    return f'<path d="{text}"{dashes}/>'
