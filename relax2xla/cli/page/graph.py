"""The graph that pictures show: operators in groups, which are the source's modules and regions.

A binding is a node. Constants stand with the operators that use them: arrays are their weights,
numbers are in their texts. A group is a part of a name (``layers.0`` of ``layers.0.attn``), or what
a branch or a local function holds. A group of one node would say nothing more than the node's own
name, so there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from relax2xla.errors import BudgetError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Span,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.rewrite import bindings_of, post_order
from relax2xla.ir.source_names import full_names, module_of, result_names, source_name
from relax2xla.ir.struct_info import show

#: A page with more nodes than this is more than a browser, and a reader, can hold.
MOST_NODES: Final = 100_000
#: Names are cut at so many parts and characters, and regions opened so deep.
MOST_PARTS, LONGEST, DEEPEST = 24, 120, 12
# Regions of so few bindings, such as the sum of a reduction, are read in the node's text.
_SMALL: Final = 2

Kind = Literal["input", "output", "product", "reduce", "move", "control", "other"]

# What an operator does, by words of its name; the first row that has one of them decides.
_KINDS: Final[tuple[tuple[Kind, tuple[str, ...]], ...]] = (
    ("control", ("while", "case", "if", "call", "invoke", "custom", "region", "function")),
    ("product", ("matmul", "conv1d", "conv2d", "conv3d", "convolution", "dot", "einsum",
                 "attention", "linear", "transpose1d", "transpose2d", "transpose3d")),
    ("reduce", ("norm", "softmax", "pool2d", "pool1d", "pool3d", "sum", "mean", "max", "min",
                "prod", "reduce", "argmax", "argmin", "variance", "std", "cumsum", "topk",
                "sort", "argsort", "window")),
    ("move", ("reshape", "permute", "transpose", "slice", "concat", "concatenate", "broadcast",
              "expand", "squeeze", "take", "gather", "scatter", "split", "pad", "flatten", "tile",
              "repeat", "stack", "flip", "reverse", "tuple", "full", "arange", "iota", "zeros",
              "ones", "astype", "convert", "cast", "layout")),
)  # fmt: skip
_KIND_OF: Final[dict[str, Kind]] = {
    word: kind for kind, words in reversed(_KINDS) for word in words
}
_WORD: Final = re.compile(r"[a-z]+[0-9]*d?")


@dataclass(eq=False, slots=True)
class Node:
    """An operator, an input or an output.

    ``inputs``: (node that makes the value, text of what is known of it), each once
    ``weights``: indices into :attr:`Graph.weights`
    ``values``: the bindings that it stands for, as variables and expressions
    """

    index: int
    label: str
    kind: Kind
    group: int
    name: str
    source: str
    info: str
    inputs: list[tuple[int, str]] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    values: list[tuple[Var, Expr]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Group:
    """A module of the source, a region, or a function (which has no parent: -1)."""

    label: str
    path: str
    parent: int
    is_region: bool = False
    nodes: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Graph:
    """All functions of a module; ``roots`` are the groups of functions."""

    nodes: list[Node] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    weights: list[Constant] = field(default_factory=list)
    weight_names: list[str] = field(default_factory=list)
    #: The functions that are bound to variables, which calls of regions are read with.
    regions: dict[Var, Function] = field(default_factory=dict)


def graph_of(mod: IRModule) -> Graph:
    """The graph of all Relax functions of ``mod``; BudgetError above ``MOST_NODES`` nodes."""
    made = Graph()
    walk = _Walk(made)
    for gvar, func in mod.relax_functions().items():
        walk.function(gvar.name_hint, func)
    _without_idle_groups(made)
    return made


def title_of(graph: Graph, at: int) -> str:
    """The label of a group; a number says little alone: ``layers.0`` for the module 0 of layers."""
    group = graph.groups[at]
    parent = graph.groups[group.parent] if group.parent >= 0 else None
    if parent is None or parent.parent < 0 or not group.label.isdigit():
        return group.label
    return f"{re.split('[./]', parent.label)[-1]}.{group.label}"


def local_name(graph: Graph, node: Node) -> str:
    """The part of a node's name in the source that the groups around it do not say."""
    group = graph.groups[node.group]
    around = group.path if group.parent >= 0 else ""
    source = node.source.lstrip("/")
    if around and source.startswith((f"{around}.", f"{around}/")):
        name = source[len(around) + 1 :]
        return f"{re.split('[./]', around)[-1]}.{name}" if name.isdigit() else name
    return "" if node.source == around else node.source


def clipped(text: str, most: int = LONGEST) -> str:
    """``text`` with an ellipsis where it is longer than ``most``."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def brief_info(info: StructInfo | None) -> str:
    """``float32 2×3`` for a tensor, and short texts of other things."""
    if isinstance(info, TensorStructInfo):
        if info.dims is None:
            dims = "?" if info.ndim < 0 else "×".join("?" * info.ndim)
        else:
            dims = "×".join(map(str, info.dims))
        return clipped(f"{info.dtype or '?'} {dims or 'scalar'}", 60)
    if isinstance(info, TupleStructInfo):
        few = ", ".join(brief_info(f) for f in info.fields[:3] if not isinstance(f, type(info)))
        return clipped(f"({few}{', …' if len(info.fields) > 3 else ''})", 60)
    return "" if info is None else clipped(show(info), 60)


def kind_of(name: str) -> Kind:
    """What an operator does, by its name."""
    words = _WORD.findall(name.lower())
    found: list[Kind] = [_KIND_OF[w] for w in words if w in _KIND_OF]
    order = [kind for kind, _ in _KINDS]
    return min(found, key=order.index) if found else "other"


def name_of(span: Span | None) -> str:
    """The source's own name of a thing, "" where there is a place in a file alone."""
    for _ in range(64):
        if span is None or span.kind not in ("callsite", "fused") or not span.children:
            break
        span = span.children[0]
    return span.name if span is not None and span.kind == "name" else ""


def parts_of(name: str) -> tuple[list[str], str]:
    """The parts of a source's name and what separates them, outside of brackets.

    ``/layers.0/attn/MatMul`` has slashes (ONNX, JAX's scopes), ``layers.0.attn`` dots (torch). What
    is more than MOST_PARTS is one part.
    """
    separator = "/" if "/" in name else "."
    parts: list[str] = [""]
    depth = 0
    for c in name:
        depth = max(0, depth + (c in "([{") - (c in ")]}"))
        if c == separator and depth == 0 and len(parts) < MOST_PARTS:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p], separator


class _Walk:
    """Nodes and groups of functions, in the order of their bindings."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made_by: dict[Var, int | Constant] = {}
        self.by_path: dict[tuple[int, str], int] = {}
        self.weight_at: dict[int, int] = {}

    # -- making ----------------------------------------------------------------------------------
    def group(self, label: str, path: str, parent: int, is_region: bool = False) -> int:
        index = len(self.graph.groups)
        self.graph.groups.append(Group(clipped(label), clipped(path), parent, is_region))
        if parent >= 0:
            self.graph.groups[parent].groups.append(index)
        return index

    def node(self, label: str, kind: Kind, group: int, name: str, source: str, info: str) -> Node:
        index = len(self.graph.nodes)
        if index >= MOST_NODES:
            raise BudgetError(
                f"the program has more than {MOST_NODES:,} operators, which no page can show; "
                "relax2xla convert writes it as text"
            )
        made = Node(index, clipped(label, 60), kind, group, clipped(name), clipped(source), info)
        self.graph.nodes.append(made)
        self.graph.groups[group].nodes.append(index)
        return made

    def weight(self, value: Constant) -> int:
        """The index of an array; the same array has one, however often it is used."""
        at = self.weight_at.get(id(value.data))
        if at is None:
            at = self.weight_at[id(value.data)] = len(self.graph.weights)
            self.graph.weights.append(value)
            self.graph.weight_names.append(clipped(name_of(value.span)))
        elif not self.graph.weight_names[at]:
            self.graph.weight_names[at] = clipped(name_of(value.span))
        return at

    def use(self, node: Node, value: Expr, where: int) -> None:
        """What ``value`` is computed from becomes inputs and weights of ``node``."""
        for leaf in post_order(value):
            if isinstance(leaf, Constant) and leaf.data.ndim:
                at = self.weight(leaf)
                if at not in node.weights:
                    node.weights.append(at)
            elif isinstance(leaf, Var):
                maker = self.made_by.get(leaf)
                if isinstance(maker, Constant):
                    self.use(node, maker, where)
                elif maker is not None and maker != node.index:
                    pair = (maker, brief_info(leaf.struct_info_))
                    if all(pair[0] != known for known, _ in node.inputs):
                        node.inputs.append(pair)

    # -- walking ---------------------------------------------------------------------------------
    def function(self, name: str, func: Function) -> None:
        """A function of the module: its inputs, its bindings, its results."""
        root = self.group(name, name, -1)
        self.graph.roots.append(root)
        self.params(func, root)
        result = self.sequence(func.body, root, 0)
        told = result_names(func)
        fields = result.fields if isinstance(result, Tuple) else (result,)
        names = full_names(told, len(fields)) if told or len(fields) > 1 else ["output"]
        for label, value in zip(names, fields, strict=True):
            node = self.node(label, "output", root, label, label, brief_info(value.struct_info_))
            self.use(node, value, root)

    def params(self, func: Function, group: int) -> None:
        for p in func.params:
            label = source_name(p) or p.name_hint
            node = self.node(
                label, "input", group, p.name_hint, source_name(p), brief_info(p.struct_info_)
            )
            self.made_by[p] = node.index

    def sequence(self, seq: SeqExpr, scope: int, depth: int) -> Expr:
        """The bindings of ``seq``; gives its result, the fields of a tuple if it is one."""
        bindings = list(bindings_of(seq))
        sources = [
            name_of(b.value.span) or name_of(b.span) or name_of(b.var.span) for b in bindings
        ]
        modules = [module_of(b.value.span) or module_of(b.span) for b in bindings]
        places = _places(sources, modules)
        result: Expr = seq.body
        for b, source, place in zip(bindings, sources, places, strict=True):
            value = b.value
            if isinstance(value, Function):
                self.region(b.var, value, self.at(place, scope), depth)
            elif isinstance(value, If):
                self.branches(b.var, value, self.at(place, scope), source, depth)
            elif isinstance(value, Constant):
                self.made_by[b.var] = value
            elif isinstance(value, Var | TupleGetItem) and not isinstance(b, MatchCast):
                self.alias(b.var, value)
            elif b.var is seq.body and isinstance(value, Tuple):
                result = value
                self.later(b.var, value, scope)
            else:
                label = "match_cast" if isinstance(b, MatchCast) else label_of(value)
                self.bind(b.var, value, label, self.at(place, scope), source)
        return result

    def bind(self, var: Var, value: Expr, label: str, group: int, source: str) -> Node:
        info = brief_info(var.struct_info_)
        node = self.node(label, kind_of(label), group, var.name_hint, source, info)
        node.values.append((var, value))
        self.use(node, value, group)
        self.made_by[var] = node.index
        return node

    def alias(self, var: Var, value: Expr) -> None:
        """Another name of a value, or a field of one: an edge says which."""
        source = value.tuple_value if isinstance(value, TupleGetItem) else value
        maker = self.made_by.get(source) if isinstance(source, Var) else None
        if maker is None:
            return
        self.made_by[var] = maker
        if isinstance(maker, int) and len(self.graph.nodes[maker].values) < 64:
            self.graph.nodes[maker].values.append((var, value))

    def later(self, var: Var, value: Tuple, scope: int) -> None:
        """The tuple of results, which only its fields show; one node if something else uses it."""
        makers = [self.made_by.get(f) for f in value.fields if isinstance(f, Var)]
        first = next((m for m in makers if isinstance(m, int)), None)
        if first is not None:
            self.made_by[var] = first

    def at(self, parts: tuple[Sequence[str], str], scope: int) -> int:
        """The group of a name's parts in ``scope``."""
        group, path = scope, ""
        for part in parts[0]:
            path = f"{path}{parts[1]}{part}" if path else part
            known = self.by_path.get((group, part))
            if known is None:
                known = self.by_path[group, part] = self.group(part, path, group)
            group = known
        return group

    def region(self, var: Var, func: Function, scope: int, depth: int) -> None:
        """A local function: a group, unless it is small or too deep."""
        self.graph.regions[var] = func
        count = sum(len(block.bindings) for block in func.body.blocks)
        if count <= _SMALL or depth >= DEEPEST:
            return
        group = self.group(var.name_hint, var.name_hint, scope, is_region=True)
        self.params(func, group)
        result = self.sequence(func.body, group, depth + 1)
        node = self.node("result", "output", group, var.name_hint, "", brief_info(None))
        self.use(node, result, group)
        self.made_by[var] = node.index

    def branches(self, var: Var, value: If, scope: int, source: str, depth: int) -> None:
        """Both branches as groups, and a node that takes the result of one of them."""
        group = self.group(f"if {var.name_hint}", var.name_hint, scope, is_region=True)
        results: list[Expr] = []
        if depth < DEEPEST:
            for label, branch in (("then", value.true_branch), ("else", value.false_branch)):
                inner = self.group(label, f"{var.name_hint} {label}", group, is_region=True)
                results.append(self.sequence(branch, inner, depth + 1))
        node = self.bind(var, value, "if", group, source)
        for result in results:
            self.use(node, result, group)


def label_of(value: Expr) -> str:
    """What is called, without the prefix that all operators have."""
    if not isinstance(value, Call):
        return type(value).__name__.lower()
    if isinstance(value.op, Op):
        name = value.op.name.removeprefix("relax.").removeprefix("stablehlo.")
        if name.startswith("call_") and value.args:
            first: Any = value.args[0]
            if isinstance(first, GlobalVar | ExternFunc):
                return f"{name} {_callee(first)}"
        return name
    if isinstance(value.op, GlobalVar | ExternFunc):
        return f"call {_callee(value.op)}"
    return "call"


def _callee(value: GlobalVar | ExternFunc) -> str:
    return value.name_hint if isinstance(value, GlobalVar) else value.global_symbol


def _places(sources: Sequence[str], modules: Sequence[str]) -> list[tuple[Sequence[str], str]]:
    """Where each binding belongs; one without name where both neighbours with names belong.

    Where a source tells the modules beside the names, these alone count.
    """
    if any(modules):
        own = [parts_of(m) if m else None for m in modules]
    else:
        own = [_module_of(s) if s else None for s in sources]
    after: list[tuple[Sequence[str], str] | None] = [None] * len(own)
    following: tuple[Sequence[str], str] | None = None
    for i in range(len(own) - 1, -1, -1):
        following = after[i] = own[i] or following
    made: list[tuple[Sequence[str], str]] = []
    before: tuple[Sequence[str], str] | None = None
    for mine, following in zip(own, after, strict=True):
        if mine is None:
            made.append(_common(before, following))
            continue
        made.append(mine)
        before = mine
    return made


def _module_of(source: str) -> tuple[Sequence[str], str]:
    """The module that a name is in: where slashes separate, the last part is the operator's own."""
    parts, separator = parts_of(source)
    return (parts[:-1] if separator == "/" else parts), separator


def _common(
    a: tuple[Sequence[str], str] | None, b: tuple[Sequence[str], str] | None
) -> tuple[Sequence[str], str]:
    if a is None or b is None:
        return (), "."
    shared: list[str] = []
    for left, right in zip(a[0], b[0], strict=False):
        if left != right:
            break
        shared.append(left)
    return shared, a[1] if len(a[0]) > 1 else b[1]


def _without_idle_groups(graph: Graph) -> None:
    """Groups of one node are dissolved; one that holds a single group alone becomes that group."""
    groups = graph.groups
    gone: set[int] = set()
    for i in range(len(groups) - 1, -1, -1):  # what is inside comes after
        g = groups[i]
        g.groups = [k for k in g.groups if k not in gone]
        if g.parent < 0 or g.is_region:
            continue
        if not g.groups and len(g.nodes) <= 1:
            groups[g.parent].nodes += g.nodes
            for n in g.nodes:
                graph.nodes[n].group = g.parent
            gone.add(i)
        elif not g.nodes and len(g.groups) == 1 and not groups[g.groups[0]].is_region:
            (k,) = g.groups
            label = f"{g.label}{'/' if '/' in groups[k].path else '.'}{groups[k].label}"
            groups[k].label = clipped(label)
            groups[k].parent = g.parent
            groups[g.parent].groups.append(k)
            gone.add(i)
    _renumber(graph, gone)


def _renumber(graph: Graph, gone: set[int]) -> None:
    kept = [i for i in range(len(graph.groups)) if i not in gone]
    at = {old: new for new, old in enumerate(kept)} | {-1: -1}
    graph.groups = [graph.groups[i] for i in kept]
    for g in graph.groups:
        g.parent = at[g.parent]
        g.groups = sorted(at[k] for k in g.groups if k in at)
        g.nodes.sort()
    graph.roots = [at[r] for r in graph.roots]
    for node in graph.nodes:
        node.group = at[node.group]
