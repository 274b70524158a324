"""Which values run code that is no part of the module: packed functions and closures."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.ir.expr import Call, Expr, Function, GlobalVar, SeqExpr, Var
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import bindings_deep, bindings_of, deep_children, post_order
from relax2xla.ir.struct_info import FuncStructInfo
from relax2xla.ir.traits import Foreign


class ForeignCalls:
    """Whether evaluating a value may run code that is no part of ``mod``.

    That is so for calls of packed functions, of closures and of functions that come as arguments,
    and where a value calls, or passes on, a function of the module or a local one that holds such
    a call, however deep.
    """

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._home: set[Expr] | None = None

    def __call__(self, value: Expr) -> bool:
        foreign, named = _look(value)
        return foreign or (bool(named) and not named <= self._at_home())

    def _at_home(self) -> set[Expr]:
        """Functions, by their variable, that run nothing but the module's own code."""
        if self._home is None:
            functions = self._mod.relax_functions()
            bodies: dict[Expr, Function] = {**functions}
            for func in functions.values():
                for b in bindings_deep(func):
                    if isinstance(b.value, Function):
                        bodies[b.var] = b.value
            found = {var: _look(func.body) for var, func in bodies.items()}
            users: dict[Expr, list[Expr]] = {}
            for var, (_, named) in found.items():
                for callee in named:
                    users.setdefault(callee, []).append(var)
            self._home = set(bodies)
            todo = [var for var, (foreign, _) in found.items() if foreign]
            todo += [callee for callee in users if callee not in bodies]
            self._home.difference_update(todo)
            while todo:
                for user in users.get(todo.pop(), ()):
                    if user in self._home:
                        self._home.remove(user)
                        todo.append(user)
        return self._home


def _look(root: Expr) -> tuple[bool, set[Expr]]:
    """Whether ``root`` itself calls foreign code, and the functions that it names."""
    named: set[Expr] = set()
    for node in post_order(root, below=_below):
        if isinstance(node, Call):
            op = node.op
            if isinstance(op, GlobalVar | Var):
                named.add(op)
            elif not isinstance(op, Op) or op.has(Foreign):
                return True, named
        elif isinstance(node, GlobalVar | Var) and _is_function(node):
            named.add(node)
    return False, named


def _is_function(node: GlobalVar | Var) -> bool:
    return isinstance(node, GlobalVar) or isinstance(node.struct_info_, FuncStructInfo)


def _below(node: Expr) -> Sequence[Expr]:
    """What is below a node, without local functions, which are looked at by their variable."""
    if isinstance(node, SeqExpr):
        values = (b.value for b in bindings_of(node))
        return [*(v for v in values if not isinstance(v, Function)), node.body]
    return deep_children(node)
