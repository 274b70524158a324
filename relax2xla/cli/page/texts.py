"""The texts of nodes: Relax as the module has it, and StableHLO as the node alone is lowered.

Arrays are parameters in both, under their names: no text holds weights. Many nodes of a model are
the same operator on the same shapes, so that each such program is lowered once, and all of them in
one module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from relax2xla.analysis import free_vars
from relax2xla.cli.page.graph import Graph, Node, clipped
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import children, post_order, rebuild
from relax2xla.stablehlo import serialize
from relax2xla.transform.export import is_high, lowered

#: Characters of the text of one node, and of those of all nodes together.
LONGEST, BUDGET = 4000, 1 << 24
#: Distinct programs that are lowered; what comes after has a remark instead.
MOST_PROGRAMS: Final = 3000
_FUNC: Final = re.compile(r"^  func\.func (?:private |public )?@n(\d+)\(", re.MULTILINE)
# The name of an argument: that of one node, while many nodes share the text.
_ARGUMENT: Final = re.compile(r'jax\.arg_info = "(?:[^"\\]|\\.)*"(?:, )?')
_NAME: Final = re.compile(r"\W+")


def relax_texts(graph: Graph) -> list[str]:
    """The Relax text of each node, "" for inputs and outputs."""
    most = max(200, min(LONGEST, BUDGET // max(1, len(graph.nodes))))
    names = {id(w.data): _var_name(n, i) for i, (w, n) in enumerate(_named(graph))}
    return [clipped(_relax_text(node, names), most) for node in graph.nodes]


def _named(graph: Graph) -> list[tuple[Constant, str]]:
    return list(zip(graph.weights, graph.weight_names, strict=True))


def _var_name(name: str, index: int) -> str:
    text = _NAME.sub("_", name).strip("_")
    return text if text and not text[0].isdigit() else f"constant_{index}"


def _relax_text(node: Node, names: dict[int, str]) -> str:
    try:
        return "\n".join(
            VarBinding(var, _without_arrays(value, names)).script() for var, value in node.values
        )
    except (TVMError, RecursionError) as e:
        return f"# no text: {clipped(str(e), 200)}"


def _without_arrays(value: Expr, names: dict[int, str]) -> Expr:
    """``value`` with variables in place of array constants."""
    made: dict[int, Expr] = {}
    for part in post_order(value):
        if isinstance(part, Constant) and part.data.ndim:
            name = names.get(id(part.data), "constant")
            made[id(part)] = Var(name, part.struct_info_)
        elif isinstance(part, Call):
            made[id(part)] = rebuild(part, [made.get(id(k), k) for k in children(part)])
    return made.get(id(value), value)


# -- StableHLO -------------------------------------------------------------------------------------
def stablehlo_texts(graph: Graph, mod: IRModule) -> tuple[list[str], list[int]]:
    """The distinct texts, the first of which is "", and for each node which of them is its own."""
    known: dict[object, int] = {}
    programs: list[Function] = []
    which: list[int] = []
    for node in graph.nodes:
        value = node.values[0][1] if node.values else None
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            which.append(0)
            continue
        key = _signature(value, graph)
        if key not in known and len(programs) < MOST_PROGRAMS:
            made = _alone(value, graph)
            known[key] = len(programs) + 1 if made is not None else 0
            programs += [made] if made is not None else []
        which.append(known.get(key, -1))
    kernels = {g: f for g, f in mod.items() if not isinstance(f, Function)}
    texts = _lowered_texts(programs, list(range(len(programs))), kernels)
    made = ["", *(clipped(texts.get(i, ""), LONGEST) for i in range(len(programs)))]
    if -1 in which:
        made.append(f"// left out: a page has this text of {MOST_PROGRAMS:,} distinct operators")
    return made, [len(made) - 1 if i < 0 else i for i in which]


def _signature(value: Call, graph: Graph) -> object:
    """Equal for calls whose StableHLO is the same text."""
    parts: list[object] = []
    at: dict[int, int] = {}
    for part in post_order(value):
        at[id(part)] = len(parts)
        if isinstance(part, Var):
            local = graph.regions.get(part)
            parts.append(str(part.struct_info_) if local is None else id(local))
        elif isinstance(part, Constant):
            held = _plain(part.data) if not part.data.ndim else None
            parts.append((str(part.struct_info_), held))
        else:
            infos = (str(part.struct_info_), *map(str, getattr(part, "sinfo_args", ())))
            kids = tuple(at[id(k)] for k in children(part))
            parts.append((_head(part), infos, kids))
    return tuple(parts)


def _head(part: Expr) -> object:
    """What an expression is, without what it is made of."""
    if isinstance(part, Call):
        return repr(part.op) if isinstance(part.op, Op) else "", _plain(part.attrs)
    return type(part).__name__, getattr(part, "index", None) if children(part) else repr(part)


def _plain(value: object) -> object:
    """An attribute as a value with a hash; all of an array, whose text may be a part of it."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return tuple((k, _plain(v)) for k, v in items)
    if isinstance(value, tuple | list):
        return tuple(_plain(v) for v in cast("Sequence[object]", value))
    return repr(value)


def _alone(value: Call, graph: Graph) -> Function | None:
    """A function that only calls; None where the arguments are not what a program takes."""
    bindings: list[Binding] = []
    params: dict[Var, Var] = {}
    stack: list[Expr] = [value]
    regions: dict[Var, Function] = {}
    while stack:
        for var in free_vars(stack.pop()):
            func = graph.regions.get(var)
            if func is not None and var not in regions:
                regions[var] = func
                stack.append(func)
            elif func is None:
                params.setdefault(var, var)
    if any(p.struct_info_ is None for p in params):
        return None
    bindings += [VarBinding(var, func) for var, func in reversed(regions.items())]
    given = list(params)
    body = value
    arrays = [p for p in post_order(value) if isinstance(p, Constant) and p.data.ndim]
    if arrays and not regions:
        named = {id(c): Var(f"weight{i}", c.struct_info_) for i, c in enumerate(arrays)}
        if all(isinstance(a, Var | Constant) or not _holds(a, named) for a in value.args):
            args = [named.get(id(a), a) for a in value.args]
            try:
                body = Call(value.op, args, value.attrs, value.sinfo_args)
                given += named.values()
            except TVMError:  # an operator that needs the values themselves
                body = value
    result = Var("result", body.struct_info_)
    bindings.append(VarBinding(result, body))
    try:
        return Function(given, SeqExpr([BindingBlock(bindings)], result))
    except TVMError:
        return None


def _holds(root: Expr, named: dict[int, Var]) -> bool:
    """Whether one of ``named`` is inside of ``root``."""
    return any(id(p) in named for p in post_order(root))


def _lowered_texts(
    programs: Sequence[Function], at: Sequence[int], kernels: dict[GlobalVar, object]
) -> dict[int, str]:
    """The texts of the programs ``at`` these places; where lowering fails, of each half."""
    found: dict[int, str] = {}
    waiting = [list(at)] if at else []
    while waiting:
        some = waiting.pop()
        try:
            found |= _texts_of(programs, some, kernels)
        except (TVMError, NotImplementedError, RecursionError) as e:
            if len(some) == 1:
                found[some[0]] = f"// alone it has no StableHLO: {clipped(str(e), 300)}"
                continue
            waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
    return found


def _texts_of(
    programs: Sequence[Function], at: Sequence[int], kernels: dict[GlobalVar, object]
) -> dict[int, str]:
    functions: dict[GlobalVar, object] = dict(kernels)
    for i in at:
        name = f"n{i}"
        functions[GlobalVar(name)] = programs[i].with_attr("global_symbol", name)
    mod = IRModule(functions)
    text = serialize.to_stablehlo(lowered(mod) if is_high(mod) else mod, "text")
    assert isinstance(text, str)
    starts = [(m.start(), int(m[1])) for m in _FUNC.finditer(text)]
    ends = [s for s, _ in starts[1:]] + [text.rindex("\n}")]
    made: dict[int, str] = {}
    for (start, i), end in zip(starts, ends, strict=True):
        lines = text[start:end].rstrip().splitlines()
        lines[0] = _ARGUMENT.sub("", lines[0]).replace(" {})", ")").replace(" {},", ",")
        made[i] = "\n".join(line[2:] for line in lines).replace(f"@n{i}(", "@main(", 1)
    return made
