"""Where things stand: layers and their order inside each group, then coordinates.

Each group is laid out by itself (Sugiyama's scheme): what has edges stands below what they come
from, and an edge over several layers has a bend in each. Edges from outside enter through ports at
the top of a group and leave at its bottom, so a group need not know what is around it, and the page
opens and closes it without another layout of the rest. Bends are made for edges of at most ``SPAN``
layers, which keeps the work linear; longer ones are drawn straight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from relax2xla.cli.page.graph import Graph

#: Longer edges have no bends; wider layers are several rows.
SPAN, WIDEST = 12, 40
_SWEEPS: Final = 4
#: Distances in pixels, the same in the page.
GAP_X, GAP_Y = 18.0, 46.0

ItemKind = Literal["node", "group", "in", "out", "bend"]


class Item(NamedTuple):
    """What stands in a layer: a node or group; a port or bend of the value of a node."""

    kind: ItemKind
    of: int


@dataclass(eq=False, slots=True)
class Edge:
    """From item to item of one group: the value of the node ``value``, over ``bends``."""

    src: int
    dst: int
    value: int
    info: str
    bends: list[int] = field(default_factory=list)
    is_back: bool = False


@dataclass(eq=False, slots=True)
class Plan:
    """One group: its items, its edges, and the items of each layer from left to right."""

    items: list[Item] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    layers: list[list[int]] = field(default_factory=list)
    at: dict[Item, int] = field(default_factory=dict)

    def item(self, kind: ItemKind, of: int) -> int:
        """The index of an item, which is made where there is none."""
        key = Item(kind, of)
        found = self.at.get(key)
        if found is None:
            found = self.at[key] = len(self.items)
            self.items.append(key)
        return found


def plans_of(graph: Graph) -> list[Plan]:
    """The plan of each group of ``graph``."""
    plans = _connected(graph)
    first = _first_nodes(graph)
    for plan in plans:
        _layers(plan, first)
        _order(plan)
    return plans


def _first_nodes(graph: Graph) -> list[int]:
    """The first node in each group, or in one inside of it."""
    first = [min(g.nodes, default=len(graph.nodes)) for g in graph.groups]
    for i in range(len(graph.groups) - 1, -1, -1):
        parent = graph.groups[i].parent
        if parent >= 0:
            first[parent] = min(first[parent], first[i])
    return first


def _connected(graph: Graph) -> list[Plan]:
    """Items and edges; an edge between groups is one in each group that it passes."""
    plans = [Plan() for _ in graph.groups]
    depth: list[int] = []
    for g in graph.groups:  # those around a group come before it
        depth.append(0 if g.parent < 0 else depth[g.parent] + 1)
    for i, g in enumerate(graph.groups):
        for n in g.nodes:
            plans[i].item("node", n)
        for k in g.groups:
            plans[i].item("group", k)
    known: set[tuple[int, int, int]] = set()
    for node in graph.nodes:
        for value, info in node.inputs:
            _connect(graph, plans, depth, known, value, node.index, info)
    return plans


def _connect(
    graph: Graph,
    plans: list[Plan],
    depth: Sequence[int],
    known: set[tuple[int, int, int]],
    value: int,
    user: int,
    info: str,
) -> None:
    g, h = graph.nodes[user].group, graph.nodes[value].group
    meet = g
    other = h
    while meet != other:
        if depth[meet] >= depth[other]:
            meet = graph.groups[meet].parent
        else:
            other = graph.groups[other].parent
        if meet < 0 or other < 0:
            return  # of another function
    dst = Item("node", user)
    while g != meet:
        plan = plans[g]
        is_new = Item("in", value) not in plan.at
        plan.edges.append(Edge(plan.item("in", value), plan.item(*dst), value, info))
        if not is_new:
            return
        dst, g = Item("group", g), graph.groups[g].parent
    src = Item("node", value)
    while h != meet:
        plan = plans[h]
        if Item("out", value) not in plan.at:
            plan.edges.append(Edge(plan.item(*src), plan.item("out", value), value, info))
        src, h = Item("group", h), graph.groups[h].parent
    plan = plans[meet]
    end = plan.item(*dst)
    if (meet, value, end) not in known:
        known.add((meet, value, end))
        plan.edges.append(Edge(plan.item(*src), end, value, info))


def _layers(plan: Plan, first: Sequence[int]) -> None:
    """Each item below what it needs; what needs nothing, just above what needs it."""
    count = len(plan.items)
    rank = [_rank(item, first) for item in plan.items]
    below: list[list[int]] = [[] for _ in range(count)]
    needs = [0] * count
    for e in plan.edges:
        e.is_back = rank[e.src] >= rank[e.dst]
        if not e.is_back:
            below[e.src].append(e.dst)
            needs[e.dst] += 1
    layer = [0] * count
    order = sorted(range(count), key=rank.__getitem__)
    has_ports = any(item.kind == "in" for item in plan.items)
    for i in order:
        if has_ports and plan.items[i].kind != "in":
            layer[i] = max(layer[i], 1)
        for k in below[i]:
            layer[k] = max(layer[k], layer[i] + 1)
    last = max(layer, default=0)
    for i, item in enumerate(plan.items):
        if item.kind == "out":
            layer[i] = last
        elif item.kind != "in" and not needs[i] and below[i]:
            layer[i] = max(min(layer[k] for k in below[i]) - 1, int(has_ports))
    rows: list[list[int]] = [[] for _ in range(last + 1)]
    for i in order:
        rows[layer[i]].append(i)
    plan.layers = [row[k : k + WIDEST] for row in rows for k in range(0, len(row), WIDEST)]


def _rank(item: Item, first: Sequence[int]) -> float:
    if item.kind == "in":
        return -1.0
    if item.kind == "out":
        return float("inf")
    return float(first[item.of] if item.kind == "group" else item.of)


def _order(plan: Plan) -> None:
    """Bends for edges over several layers, then fewer crossings by the means of neighbours."""
    row_of = {i: r for r, row in enumerate(plan.layers) for i in row}
    bends: dict[tuple[int, int, int], int] = {}
    up: list[list[int]] = [[] for _ in plan.items]
    down: list[list[int]] = [[] for _ in plan.items]
    for e in plan.edges:
        start, end = row_of[e.src], row_of[e.dst]
        if e.is_back or end <= start or end - start > SPAN:
            continue
        last = e.src
        for row in range(start + 1, end):
            key = (e.src, e.value, row)
            bend = bends.get(key)
            if bend is None:
                bend = bends[key] = len(plan.items)
                plan.items.append(Item("bend", e.value))
                plan.layers[row].append(bend)
                up.append([last])
                down.append([])
                down[last].append(bend)
            e.bends.append(bend)
            last = bend
        down[last].append(e.dst)
        up[e.dst].append(last)
    position = [0.0] * len(plan.items)
    for row in plan.layers:
        for x, i in enumerate(row):
            position[i] = x - len(row) / 2
    for sweep in range(_SWEEPS):
        near = up if sweep % 2 == 0 else down
        for row in plan.layers if sweep % 2 == 0 else reversed(plan.layers):
            key = {
                i: sum(position[k] for k in near[i]) / len(near[i]) if near[i] else position[i]
                for i in row
            }
            row.sort(key=key.__getitem__)
            for x, i in enumerate(row):
                position[i] = x - len(row) / 2


# -- coordinates -----------------------------------------------------------------------------------
class Box(NamedTuple):
    """The middle of an item's upper edge, and its size."""

    x: float
    y: float
    width: float
    height: float


def coordinates(
    plan: Plan, size: Callable[[Item], tuple[float, float]]
) -> tuple[list[Box], float, float]:
    """The boxes of a group's items around x = 0, and the width and height of all."""
    sizes = [size(item) for item in plan.items]
    up: list[list[int]] = [[] for _ in plan.items]
    down: list[list[int]] = [[] for _ in plan.items]
    for e in plan.edges:
        if e.is_back:
            continue
        chain = [e.src, *e.bends, e.dst]
        for a, b in pairwise(chain):
            down[a].append(b)
            up[b].append(a)
    xs = [0.0] * len(plan.items)
    ys = [0.0] * len(plan.items)
    y = 0.0
    for row in plan.layers:
        total = sum(sizes[i][0] for i in row) + GAP_X * (len(row) - 1)
        x, height = -total / 2, 0.0
        for i in row:
            xs[i], ys[i] = x + sizes[i][0] / 2, y
            x += sizes[i][0] + GAP_X
            height = max(height, sizes[i][1])
        y += height + GAP_Y
    for sweep in range(_SWEEPS):
        near = down if sweep % 2 else up
        for row in reversed(plan.layers) if sweep % 2 else plan.layers:
            wanted = [sum(xs[k] for k in near[i]) / len(near[i]) if near[i] else xs[i] for i in row]
            for i, x in zip(row, spread(wanted, [sizes[i][0] for i in row]), strict=True):
                xs[i] = x
    left = min((x - s[0] / 2 for x, s in zip(xs, sizes, strict=True)), default=0.0)
    right = max((x + s[0] / 2 for x, s in zip(xs, sizes, strict=True)), default=0.0)
    middle = (left + right) / 2
    boxes = [Box(x - middle, t, *s) for x, t, s in zip(xs, ys, sizes, strict=True)]
    return boxes, right - left, max(0.0, y - GAP_Y)


def spread(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to ``wanted``, by squares, at which boxes in this order do not overlap.

    Boxes whose wishes collide move as one block to the mean of their wishes, as in isotonic
    regression: each is joined once, so the work is linear.
    """
    offsets: list[float] = []
    total = 0.0
    for i, width in enumerate(widths):
        total += (widths[i - 1] + width) / 2 + GAP_X if i else 0.0
        offsets.append(total)
    blocks: list[tuple[float, int]] = []  # sum of wishes, count
    for want, offset in zip(wanted, offsets, strict=True):
        wish, count = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > wish / count:
            more, n = blocks.pop()
            wish, count = wish + more, count + n
        blocks.append((wish, count))
    places = [s / n for s, n in blocks for _ in range(n)]
    return [p + offset for p, offset in zip(places, offsets, strict=True)]
