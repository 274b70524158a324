"""Walks over expressions: substitution, free variables, comparison, evaluation.

Every walk is iterative and visits a shared sub-expression once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from relax2xla.dtypes import is_float
from relax2xla.tir.binary import BinaryExpr
from relax2xla.tir.call import INT_BUILTINS, Call
from relax2xla.tir.convert import Cast, as_prim_expr
from relax2xla.tir.expr import Not, Select
from relax2xla.tir.node import Dim, FloatImm, IntImm, PrimExpr, StringImm, Var, rounded, wrapped


def post_order(root: PrimExpr) -> Iterator[PrimExpr]:
    """Each distinct node (by identity) of ``root`` once, operands before users, left to right."""
    if not root.children():  # most expressions in statements are a variable or a number
        yield root
        return
    seen: set[int] = set()
    stack: list[tuple[PrimExpr, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        for child in reversed(node.children()):
            if id(child) not in seen:
                stack.append((child, False))


def post_order_visit(root: Dim, visit: Callable[[PrimExpr], object]) -> None:
    """Call ``visit`` on each distinct node, operands first."""
    if isinstance(root, PrimExpr):
        for node in post_order(root):
            visit(node)


def free_vars(expr: Dim) -> list[Var]:
    """The variables of an expression, in order of first appearance; none for an int."""
    if isinstance(expr, int):
        return []
    return [node for node in post_order(expr) if isinstance(node, Var)]


def substitute(expr: Dim, var_map: Mapping[Var, Dim]) -> Dim:
    """``expr`` with variables replaced, all at once; operators fold where operands become literal.

    An int64 literal result is returned as a Python int. ``TypeError`` when a replacement's dtype
    is not the variable's.
    """
    if isinstance(expr, int):
        return expr
    done: dict[int, PrimExpr] = {}
    for node in post_order(expr):
        if isinstance(node, Var):
            value = var_map.get(node)
            if value is None:
                done[id(node)] = node
                continue
            new = as_prim_expr(value, node.dtype)
            if new.dtype != node.dtype:
                raise TypeError(
                    f"substitute: variable `{node}` has dtype {node.dtype}, its replacement "
                    f"`{new}` has {new.dtype}"
                )
            done[id(node)] = new
            continue
        old = node.children()
        children = [done[id(c)] for c in old]
        changed = any(c is not o for c, o in zip(children, old, strict=True))
        done[id(node)] = node.rebuild(children) if changed else node
    result = done[id(expr)]
    return result.value if isinstance(result, IntImm) and result.dtype == "int64" else result


def structural_equal(
    a: Dim,
    b: Dim,
    var_map: dict[Var, Var] | None = None,
    *,
    map_free_vars: bool = False,
) -> bool:
    """Whether two expressions are the same node by node.

    ``var_map`` says which variable of ``b`` a variable of ``a`` stands for; a variable outside it
    must be the very same object, unless ``map_free_vars``: then it is paired with what it first
    meets (one to one, same dtype) and the pair is written into ``var_map``.
    """
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    pairs: dict[Var, Var] = {} if var_map is None else var_map
    taken = {id(v) for v in pairs.values()} if map_free_vars else set[int]()
    stack: list[tuple[PrimExpr, PrimExpr]] = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while stack:
        x, y = stack.pop()
        if type(x) is not type(y) or x.dtype != y.dtype:
            return False
        if isinstance(x, Var) and isinstance(y, Var):
            expected = pairs.get(x)
            if expected is None and map_free_vars:
                if id(y) in taken:
                    return False
                pairs[x] = y
                taken.add(id(y))
            elif y is not (x if expected is None else expected):
                return False
            continue
        xs, ys = x.children(), y.children()
        if len(xs) != len(ys) or x.payload() != y.payload():
            return False
        if xs and (id(x), id(y)) not in seen:
            seen.add((id(x), id(y)))
            stack.extend(reversed(list(zip(xs, ys, strict=True))))
    return True


def structural_hash(expr: Dim, var_hash: Callable[[Var], int]) -> int:
    """A hash with ``var_hash(v)`` for each variable (say, its index of appearance), so that it can
    be the same for expressions over renamed variables."""
    if isinstance(expr, int):
        return hash(expr)
    done: dict[int, int] = {}
    for node in post_order(expr):
        if isinstance(node, Var):
            done[id(node)] = hash(("Var", node.dtype, var_hash(node)))
        elif isinstance(node, IntImm) and node.dtype == "int64":
            done[id(node)] = hash(node.value)
        else:
            children = tuple(done[id(c)] for c in node.children())
            done[id(node)] = hash((type(node).__name__, node.dtype, node.payload(), children))
    return done[id(expr)]


# -- evaluation ----------------------------------------------------------------------------------
_BUILTINS: dict[str, Callable[..., Any]] = {
    "tir.if_then_else": lambda c, a, b: a if c else b,
    **INT_BUILTINS,
}


def evaluate(expr: Dim, env: Mapping[Var, int]) -> int:
    """The value of an integer (or bool) expression under ``env``.

    ``KeyError`` names a variable that has no value. Of ``if_then_else`` both sides are computed;
    a division by zero is only an error if the side that holds it is taken.
    """
    if isinstance(expr, int):
        return expr
    value = _evaluate(expr, env)
    if isinstance(value, float):
        raise TypeError(f"evaluate: `{expr}` is a {expr.dtype} expression, not an integer one")
    return int(value)


def _evaluate(root: PrimExpr, env: Mapping[Var, int]) -> int | float:
    done: dict[int, int | float | ZeroDivisionError] = {}
    for node in post_order(root):
        if isinstance(node, Var):
            if node not in env:
                raise KeyError(f"evaluate: no value for the variable `{node}` in `{root}`")
            done[id(node)] = env[node]
            continue
        values = [done[id(c)] for c in node.children()]
        if isinstance(node, Select) or (isinstance(node, Call) and node.op == "tir.if_then_else"):
            condition, yes, no = values
            if not isinstance(condition, ZeroDivisionError):
                done[id(node)] = yes if condition else no
                continue
        failed = [v for v in values if isinstance(v, ZeroDivisionError)]
        numbers = [v for v in values if not isinstance(v, ZeroDivisionError)]
        try:
            done[id(node)] = failed[0] if failed else _evaluate_node(node, numbers)
        except ZeroDivisionError:
            done[id(node)] = ZeroDivisionError(f"evaluate: `{node}` divides by zero")
    result = done[id(root)]
    if isinstance(result, ZeroDivisionError):
        raise result
    return result


def _evaluate_node(node: PrimExpr, values: list[int | float]) -> int | float:
    if isinstance(node, BinaryExpr):
        return type(node).compute(*values)
    if isinstance(node, IntImm | FloatImm):
        return node.value
    if isinstance(node, Not):
        return not values[0]
    if isinstance(node, Cast):
        if is_float(node.dtype):
            return rounded(node.dtype, values[0])
        if node.dtype == "bool":
            return values[0] != 0
        return wrapped(int(values[0]), node.dtype)
    if isinstance(node, Call) and node.op in _BUILTINS:
        return _BUILTINS[node.op](*values)
    what = "a string" if isinstance(node, StringImm) else f"`{node}`"
    raise TypeError(f"evaluate: {what} has no integer value")
