"""Graphs as files for other programs: Graphviz text, and an SVG of everything opened."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from relax2xla.cli.page.graph import Graph, Kind, Node, clipped, local_name, title_of
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


def svg(
    graph: Graph,
    plans: list[Plan],
    title: str,
    heat: Heat | None = None,
    depth: int | None = None,
) -> str:
    """All functions beside each other; BudgetError for too many nodes.

    depth: modules inside of so many others are closed; None opens all
    """
    opened = _opened(graph, depth)
    drawn = sum(len(g.nodes) + len(g.groups) for i, g in enumerate(graph.groups) if opened[i])
    if drawn > MOST_DRAWN:
        raise BudgetError(
            f"there are {drawn:,} operators to draw, and a picture has at most {MOST_DRAWN:,}; "
            "close modules (--depth 1), or write a page (-o model.html), which draws what is "
            "seen, or .dot"
        )
    placed: list[tuple[list[Box], float, float]] = [([], 0.0, 0.0)] * len(plans)

    def size(item: Item) -> tuple[float, float]:
        if item.kind == "node":
            node = graph.nodes[item.of]
            texts = _texts(graph, node)
            long = max(len(texts[0]) * 7.4, *(len(t) * 6.2 for t in texts[1:]))
            return min(290.0, max(64.0, long + 26)), 12.0 + 15.0 * len(texts)
        if item.kind == "group":
            _, width, height = placed[item.of]
            label = len(clipped(title_of(graph, item.of), 34))
            if not opened[item.of]:
                return max(120.0, label * 7.4 + 46), 46.0
            return max(width + 2 * _PAD, label * 7.4 + 60), height + _HEAD + 2 * _PAD
        return (6.0, 30.0) if item.kind == "bend" else (10.0, 4.0)

    for i in range(len(plans) - 1, -1, -1):  # what is inside comes after
        placed[i] = coordinates(plans[i], size)
    parts: list[str] = []
    x = 20.0
    height = 0.0
    for root in graph.roots:
        _, w, h = placed[root]
        parts += _drawn(graph, plans, placed, opened, root, x + w / 2, 40.0, heat)
        label = escape(clipped(graph.groups[root].label, 60))
        parts.append(f'<text x="{x:.0f}" y="24" class="m">{label}</text>')
        x, height = x + max(w, 80) + 60, max(height, h)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x:.0f}" height="{height + 60:.0f}" '
        'font-family="sans-serif" font-size="12">\n'
        f"<title>{escape(_printable(clipped(title)))}</title>\n"
        # Viewers may be dark.
        '<rect width="100%" height="100%" fill="#fff"/>\n'
        "<style>path{fill:none;stroke:#868e96}text{text-anchor:middle;fill:#1c2430}"
        ".m{text-anchor:start;font-weight:600;fill:#66707f}.s{font-size:11px;fill:#66707f}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _opened(graph: Graph, depth: int | None) -> list[bool]:
    """Whether each group is open; those around a group come before it."""
    level: list[int] = []
    for g in graph.groups:
        level.append(0 if g.parent < 0 else level[g.parent] + 1)
    return [depth is None or n <= depth for n in level]


def _texts(graph: Graph, node: Node) -> list[str]:
    """The lines in the box of a node: what it is, the source's name for it, what it gives."""
    name = "" if node.kind in ("input", "output") else local_name(graph, node)
    name = name if len(name) <= 40 else f"…{name[-39:]}"
    return [clipped(node.label, 34), *([name] if name else []), clipped(node.info, 40)]


def _printable(text: str) -> str:
    """``text`` without the characters that XML cannot hold."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _drawn(
    graph: Graph,
    plans: list[Plan],
    placed: list[tuple[list[Box], float, float]],
    opened: list[bool],
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
            if item.kind == "group" and opened[item.of]:
                label = escape(_printable(clipped(title_of(graph, item.of), 34)))
                yield (
                    f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" '
                    f'height="{box.height:.1f}" rx="8" fill="#66707f" fill-opacity="0.07" '
                    f'stroke="#d5dae1"/><text x="{left + 9:.1f}" y="{top + 17:.1f}" class="m">'
                    f"{label}</text>"
                )
                waiting.append((item.of, x + box.x, top + _HEAD + _PAD))
        for edge in plan.edges:
            yield _path(plans, placed, opened, plan, boxes, edge, x, y)
        for item, box in zip(plan.items, boxes, strict=True):
            if item.kind == "node":
                yield _node(graph, item.of, x + box.x, y + box.y, box, heat)
            elif item.kind == "group" and not opened[item.of]:
                yield _closed(graph, item.of, x + box.x, y + box.y, box, heat)


def _node(graph: Graph, at: int, x: float, y: float, box: Box, heat: Heat | None) -> str:
    node = graph.nodes[at]
    colour = COLOURS[node.kind]
    found = None if heat is None else heat.nodes.get(at, (0.0, ""))
    return _box(x, y, box, 5, colour, _fill(heat, found) or f'fill="{_mixed(colour, 0.12)}"',
                found, _texts(graph, node))  # fmt: skip


def _closed(graph: Graph, at: int, x: float, y: float, box: Box, heat: Heat | None) -> str:
    count, waiting = 0, [at]
    while waiting:
        group = graph.groups[waiting.pop()]
        count += len(group.nodes)
        waiting += group.groups
    found = None if heat is None else heat.groups.get(at, (0.0, ""))
    texts = [f"+ {clipped(title_of(graph, at), 34)}", f"{count} operators"]
    fill = _fill(heat, found) or 'fill="#fff"'
    return _box(x, y, box, 8, "#66707f", fill, found, texts)


def _fill(heat: Heat | None, found: tuple[float, str] | None) -> str:
    """The attributes of a box's inside in a picture of times or errors, "" in others."""
    if heat is None or found is None:
        return ""
    strength, words = found
    if not words:
        return 'fill="#fff"'
    if heat.limit and strength <= heat.limit:
        return f'fill="{_mixed("#1098ad", 0.5 * strength / heat.limit)}"'
    return f'fill="{_mixed("#e03131", 0.8 * strength)}"'


def _mixed(colour: str, share: float) -> str:
    """A share of a colour on white: what is below a box does not shine through."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - p)):02x}" for p in parts)


def _box(
    x: float,
    y: float,
    box: Box,
    radius: int,
    colour: str,
    fill: str,
    found: tuple[float, str] | None,
    texts: list[str],
) -> str:
    told = f"<title>{escape(found[1])}</title>" if found is not None and found[1] else ""
    styles = ["", *[' class="s"'] * (len(texts) - 1)]
    lines = (
        f'<text x="{x:.1f}" y="{y + 18 + 15 * i:.1f}"{style}>{escape(_printable(text))}</text>'
        for i, (text, style) in enumerate(zip(texts, styles, strict=True))
    )
    return (
        f'<rect x="{x - box.width / 2:.1f}" y="{y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius}" {fill} stroke="{colour}">{told}</rect>'
        + "".join(lines)
    )


def _path(
    plans: list[Plan],
    placed: list[tuple[list[Box], float, float]],
    opened: list[bool],
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
        if item.kind == "group" and opened[item.of]:
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
