"""Variables, bindings and calls of functions. Every walk is iterative."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from relax2xla import tir
from relax2xla.errors import TransformError
from relax2xla.ir.check import is_impure_call
from relax2xla.ir.expr import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import (
    LEAF_TYPES,
    bindings_deep,
    bindings_of,
    children,
    deep_children,
    post_order,
)


def _with_operators(node: Expr) -> Sequence[Expr]:
    """Everything below ``node``, operators too."""
    return (node.op, *node.args) if isinstance(node, Call) else deep_children(node)


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], object]) -> None:
    """Call ``fvisit`` on every distinct node once, children before parents; a function comes last.

    Operators are nodes, and of a call the first one. A variable is visited where it is used, so one
    that nothing uses is not. Shapes inside struct infos are no nodes here.
    """
    for node in list(post_order(expr, below=_with_operators)):
        fvisit(node)


def _events(root: Expr) -> Iterator[tuple[Var, bool]]:
    """Variables with whether they are defined (else used), in the order of the text.

    A variable comes before the value that it is bound to.
    """
    stack: list[Expr | tuple[Var, bool]] = [root]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            yield node
            continue
        if isinstance(node, Var):
            yield (node, False)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        kids: list[Expr | tuple[Var, bool]]
        if isinstance(node, SeqExpr):
            kids = [x for b in bindings_of(node) for x in ((b.var, True), b.value)]
            kids.append(node.body)
        elif isinstance(node, Function):
            kids = [*((p, True) for p in node.params), node.body]
        else:
            kids = list(deep_children(node))
        stack.extend(reversed(kids))


def all_vars(expr: Expr) -> list[Var]:
    """Every variable that is used or defined in ``expr``, in order, each once."""
    return list(dict.fromkeys(v for v, _ in _events(expr)))


def bound_vars(expr: Expr) -> list[Var]:
    """Variables that ``expr`` defines: parameters and bindings, in order."""
    return list(dict.fromkeys(v for v, defined in _events(expr) if defined))


def _flat_vars(expr: Expr) -> list[Var] | None:
    """Variables of a call of what has a name, on leaves and tuples of leaves, as most values are.

    None for anything else.
    """
    if type(expr) is not Call or not isinstance(expr.op, Op | GlobalVar):
        return None
    found: dict[Var, None] = {}
    for a in expr.args:
        if isinstance(a, Var):
            found[a] = None
        elif type(a) is Tuple:
            for f in a.fields:
                if isinstance(f, Var):
                    found[f] = None
                elif type(f) not in LEAF_TYPES:
                    return None
        elif type(a) not in LEAF_TYPES:
            return None
    return list(found)


def used_vars(expr: Expr) -> list[Var]:
    """Variables that ``expr`` uses, in order, each once."""
    flat = _flat_vars(expr)
    if flat is not None:
        return flat
    return list(dict.fromkeys(v for v, defined in _events(expr) if not defined))


def free_vars(expr: Expr) -> list[Var]:
    """Variables that ``expr`` uses but does not define, in order of use."""
    flat = _flat_vars(expr)
    if flat is not None:
        return flat
    events = list(_events(expr))
    bound = {v for v, defined in events if defined}
    return list(dict.fromkeys(v for v, defined in events if not defined and v not in bound))


def all_global_vars(expr: Expr) -> list[GlobalVar]:
    """GlobalVars that occur in ``expr``, in order, each once."""
    found = post_order(expr, below=lambda node: [k for k in deep_children(node) if _can_name(k)])
    return [node for node in found if isinstance(node, GlobalVar)]


def collect_call_map(mod: IRModule) -> dict[GlobalVar, list[GlobalVar]]:
    """The functions of the module that each of its functions names, in order, each once."""
    return {gvar: [g for g in _named_in(mod, f) if g in mod] for gvar, f in mod.items()}


def _named_in(mod: IRModule, func: object) -> list[GlobalVar]:
    if isinstance(func, Function):
        return all_global_vars(func)
    found: dict[GlobalVar, None] = {}

    def visit(node: object) -> None:
        if isinstance(node, tir.Call) and node.op.startswith("@") and node.op[1:] in mod:
            found[mod.get_global_var(node.op[1:])] = None

    if isinstance(func, tir.PrimFunc):
        tir.stmt_functor.post_order_visit(func, visit)
    return list(found)


# What holds no other expression and is no GlobalVar.
_NAMELESS: Final = (Var, Constant, ShapeExpr, PrimValue)
# Attributes of StableHLO's rows that name functions of the module.
SYMBOL_ATTRS: Final = ("decomposition", "called_computations")


def named_functions(call: Call) -> list[str]:
    """Symbols of the module's functions that the attributes of a call name, in order."""
    if not isinstance(call.op, Op):
        return []
    named = [call.attrs[a] for a in SYMBOL_ATTRS if a in call.attrs]
    return [s for n in named for s in ([n] if isinstance(n, str) else n)]


def by_symbol(mod: IRModule) -> dict[str, GlobalVar]:
    """The functions of ``mod`` by the symbols that attributes of calls name them by.

    One read from StableHLO whose symbol is no identifier has it as its attribute ``sym_name``.
    """
    found = {g.name_hint: g for g in mod.functions}
    for gvar, func in mod.relax_functions().items():
        found[func.attrs.get("sym_name", gvar.name_hint)] = gvar
    return found


def called_by_symbol(mod: IRModule, call: Call) -> list[GlobalVar]:
    """The functions of ``mod`` that attributes of ``call`` name; TransformError if it lacks one."""
    named = named_functions(call)
    known = by_symbol(mod) if named else {}
    for symbol in named:
        if symbol not in known:
            raise TransformError(
                f"an attribute of {getattr(call.op, 'name', '')} names the function {symbol!r}, "
                f"which the module does not have; it has {', '.join(known) or 'none'}"
            )
    return [known[s] for s in named]


def _can_name(node: Expr) -> bool:
    """Whether a GlobalVar may be in ``node``; most nodes are leaves and need no visit."""
    if isinstance(node, Call):
        # One level only: operands may be shared, and the walk comes to each of them once.
        return not isinstance(node.op, Op) or not all([isinstance(a, _NAMELESS) for a in node.args])
    return not isinstance(node, _NAMELESS)


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """For each variable of a dataflow block, the variables of the block whose values use it.

    Variables from outside that the block uses have an entry too.
    """
    chain: dict[Var, dict[Var, None]] = {}
    for b in dfb.bindings:
        for v in free_vars(b.value):
            chain.setdefault(v, {})[b.var] = None
        chain.setdefault(b.var, {})
    return {v: list(users) for v, users in chain.items()}


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """Bindings of ``func`` itself, by the name of their variable; names need not be unique.

    Those inside branches and local functions are not among them, as in TVM.
    """
    table: dict[str, list[Binding]] = {}
    for b in bindings_of(func.body):
        table.setdefault(b.var.name_hint, []).append(b)
    return table


def get_var2val(func: Function) -> dict[Var, Expr]:
    """The value of every variable that ``func`` binds; match-casts do not count, as in TVM."""
    return {b.var: b.value for b in bindings_deep(func) if isinstance(b, VarBinding)}


def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> bool:
    """Whether evaluating ``expr`` may have side effects.

    Calls inside local functions do not count, only calls *of* such a function do. ``own_name``:
    calls of it are ignored, to judge a recursive function whose purity is not known yet. Of a
    Function, its body is judged.
    """

    if type(expr) is Call and all(type(k) in LEAF_TYPES for k in children(expr)):
        return expr.op is not own_name and is_impure_call(expr)

    def below(node: Expr) -> Sequence[Expr]:
        return () if isinstance(node, Function) else deep_children(node)

    root = expr.body if isinstance(expr, Function) else expr
    return any(
        isinstance(node, Call) and node.op is not own_name and is_impure_call(node)
        for node in post_order(root, below=below)
    )


def computable_at_compile_time(func: Function) -> list[Var]:
    """Weights, and bound variables that depend on weights alone, in order.

    Weights are the parameters from the attribute ``num_input`` on; without it there are none. Only
    pure values count, whose symbolic variables are dimensions of weights or of what was found.
    """
    inputs = func.attrs.get("num_input")
    if inputs is None:
        return []
    found: dict[Var, None] = dict.fromkeys(func.params[inputs:])
    symbols = {s for p in found for s in definable_vars(p.struct_info)}
    for b in bindings_of(func.body):
        if contains_impure_call(b.value):
            continue
        nodes = post_order(b.value)
        if all(v in found for v in free_vars(b.value)) and symbols.issuperset(_mentioned(nodes)):
            found[b.var] = None
            symbols.update(definable_vars(b.var.struct_info))
    return list(found)


def _mentioned(nodes: Iterable[Expr]) -> Iterator[tir.Var]:
    """Symbolic variables that expressions compute with, apart from those of their variables."""
    for node in nodes:
        if isinstance(node, ShapeExpr | PrimValue):
            yield from free_symbolic_vars(node.struct_info_)
        elif isinstance(node, Call):
            for info in node.sinfo_args:
                yield from free_symbolic_vars(info)


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Groups of mutually recursive functions (Tarjan's strongly connected components).

    A function that calls itself is a group of its own. Groups and members are sorted by name.
    """
    calls = {
        g: [c for c in all_global_vars(f) if c in mod] if isinstance(f, Function) else []
        for g, f in mod.items()
    }
    index: dict[GlobalVar, int] = {}
    low: dict[GlobalVar, int] = {}
    path: list[GlobalVar] = []
    on_path: set[GlobalVar] = set()
    groups: list[list[GlobalVar]] = []
    for root in calls:
        work: list[tuple[GlobalVar, Iterator[GlobalVar]]] = []
        if root not in index:
            index[root] = low[root] = len(index)
            path.append(root)
            on_path.add(root)
            work.append((root, iter(calls[root])))
        while work:
            node, rest = work[-1]
            for callee in rest:
                if callee not in index:
                    index[callee] = low[callee] = len(index)
                    path.append(callee)
                    on_path.add(callee)
                    work.append((callee, iter(calls[callee])))
                    break
                if callee in on_path:
                    low[node] = min(low[node], index[callee])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = path.index(node)
                    group, path = path[at:], path[:at]
                    on_path.difference_update(group)
                    if len(group) > 1 or node in calls[node]:
                        groups.append(sorted(group, key=lambda g: g.name_hint))
    return sorted(groups, key=lambda group: group[0].name_hint)
