"""DataflowBlockRewrite: statements of one dataflow block replaced, added and removed.

Nothing is changed in place: the rewriter holds its own list of bindings and builds a new function
when it is asked for one. A step that would leave a use before its definition, or a use that cannot
see it, raises TVMError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from relax2xla.dpl.emit import refitted
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    MatchCast,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import is_base_of
from relax2xla.ir.rewrite import Rewriter, bindings_of, deep_children, post_order_deep


class DataflowBlockRewrite:
    """Rewrites ``dfb``, a dataflow block of ``root_fn``, statement by statement.

    The results are ``mutated_dfb()``, ``mutated_root_fn()`` and ``mutate_irmodule(mod)``. Source of
    the semantics: ``tvm.relax.DataflowBlockRewrite``.
    """

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        if not isinstance(dfb, DataflowBlock) or not isinstance(root_fn, Function):
            raise TypeError(
                "DataflowBlockRewrite takes a DataflowBlock and its Function; got "
                f"{type(dfb).__name__} and {type(root_fn).__name__}"
            )
        self._dfb, self._original, self._root = dfb, root_fn, root_fn
        self._bindings = list(dfb.bindings)
        self._names = {v.name_hint for v in _variables(root_fn)}
        self._count = 0
        self._before: set[Var] = set()
        self._after: set[Var] = set()
        found = False
        for use in _uses_around(root_fn, dfb):
            if use is None:
                found = True
            else:
                (self._after if found else self._before).add(use)
        if not found:
            raise TVMError("the dataflow block is not a block of the function")
        self._users: dict[Var, dict[Var, None]] = {}
        for b in self._bindings:
            self._note(b)
        self._result: tuple[Function, DataflowBlock] | None = None

    # -- what programs call ------------------------------------------------------------------
    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Replace all uses of ``old_var`` in the function with ``new_var``."""
        if old_var is new_var:
            return
        places = {b.var: i for i, b in enumerate(self._bindings)}
        users = list(self._users.get(old_var, ()))
        first = min((places[u] for u in users), default=len(places))
        at = places.get(new_var, -1)
        if first <= at or (at >= 0 and old_var in self._before):
            raise TVMError(
                f"cannot replace {old_var.name_hint}: it is used before {new_var.name_hint} "
                "is defined"
            )
        outside = old_var in self._after or old_var in self._before
        if outside and isinstance(new_var, DataflowVar):
            raise TVMError(
                f"cannot replace {old_var.name_hint}, which is used outside of the block, with "
                f"{new_var.name_hint}, which is visible inside only; add an output variable"
            )
        for user in users:
            b = self._bindings[places[user]]
            value = Rewriter(values={old_var: new_var}).expr(b.value)
            if isinstance(b, MatchCast):
                new: Binding = MatchCast(b.var, value, b.struct_info, b.span)
            else:
                new = VarBinding(b.var, value, b.span)
            self._bindings[places[user]] = new
        self._users.setdefault(new_var, {}).update(dict.fromkeys(users))
        self._users.pop(old_var, None)
        if outside:
            self._root = _Around(self._dfb, {old_var: new_var}).function(self._root)
            for uses in (self._before, self._after):
                if old_var in uses:
                    uses.remove(old_var)
                    uses.add(new_var)
        self._result = None

    def add(self, expr: Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Bind ``expr`` to a new variable, right behind what it uses.

        ``name`` None: ``tmp`` and a number. ``is_dfvar`` False: an output variable of the block.
        """
        if name is None:
            while f"tmp{self._count}" in self._names:
                self._count += 1
            name = f"tmp{self._count}"
        kind = DataflowVar if is_dfvar else Var
        self.add_binding(VarBinding(kind(name, expr.struct_info), expr))

    def add_binding(self, binding: Binding) -> None:
        """Add a binding with a variable of its own, right behind what it uses."""
        if any(b.var is binding.var for b in self._bindings):
            raise TVMError(f"{binding.var.name_hint} has been defined in the block already")
        uses = set(_used(binding.value))
        # As in TVM, what uses nothing of the block comes behind its first binding.
        at = max((i + 1 for i, b in enumerate(self._bindings) if b.var in uses), default=1)
        self._bindings.insert(at, binding)
        self._names.add(binding.var.name_hint)
        self._note(binding)
        self._result = None

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Remove the statement that defines ``var``, which nothing may use.

        TVMError if it is used, or not defined in the block (unless ``allow_undef``).
        """
        at = next((i for i, b in enumerate(self._bindings) if b.var is var), None)
        if at is None:
            if allow_undef:
                return
            raise TVMError(
                f"{var.name_hint} is not defined in the block; allow_undef=True allows that"
            )
        if self._is_used(var):
            users = [u.name_hint for u in self._users.get(var, ())] or ["the code after the block"]
            raise TVMError(f"{var.name_hint} is used by {', '.join(users)}; it cannot be removed")
        self._drop(self._bindings.pop(at))
        self._result = None

    def remove_all_unused(self) -> None:
        """Remove every statement that nothing uses, output variables included.

        Match-casts stay, for they check.
        """
        kept: list[Binding] = []
        for b in reversed(self._bindings):
            if isinstance(b, MatchCast) or self._is_used(b.var):
                kept.append(b)
            else:
                self._drop(b)
        self._bindings = kept[::-1]
        self._result = None

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is now."""
        return self._build()[1]

    def mutated_root_fn(self) -> Function:
        """The function with the block as it is now; without it where it has become empty."""
        return self._build()[0]

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """A module in which the new function is in the place of the one given to the constructor.

        TVMError if the module does not hold that function.
        """
        new = {g: f for g, f in irmodule.items()}
        found = [g for g, f in new.items() if f is self._original]
        if not found:
            raise TVMError("the module does not hold the function that was given to the rewriter")
        for g in found:
            new[g] = self.mutated_root_fn()
        return irmodule.replace(new)

    # -- bookkeeping -------------------------------------------------------------------------
    def _note(self, binding: Binding) -> None:
        for v in _used(binding.value):
            self._users.setdefault(v, {})[binding.var] = None

    def _drop(self, binding: Binding) -> None:
        for v in _used(binding.value):
            self._users[v].pop(binding.var, None)

    def _is_used(self, var: Var) -> bool:
        return bool(self._users.get(var)) or var in self._after

    def _build(self) -> tuple[Function, DataflowBlock]:
        if self._result is None:
            around = _Around(self._dfb, {}, self._bindings)
            func = around.function(self._root)
            if not around.new.bindings:
                func = _Without(around.new).function(func)
            self._result = refitted(func), around.new
        return self._result


class _Around(Rewriter):
    """Rewrites all of a function but one block, which stays or is made of other bindings."""

    def __init__(
        self, block: DataflowBlock, values: dict[Var, Expr], new: list[Binding] | None = None
    ) -> None:
        super().__init__(values=values)
        self.target, self.bindings, self.new = block, new, block

    def block(self, block: BindingBlock) -> BindingBlock:
        if block is not self.target or self.bindings is None:
            return block if block is self.target else super().block(block)
        made = [self.retyped(b) for b in self.bindings]
        if len(made) != len(block.bindings) or any(
            a is not b for a, b in zip(made, block.bindings, strict=True)
        ):
            self.new = DataflowBlock(made, block.span)
        return self.new

    def retyped(self, b: Binding) -> Binding:
        """``b`` with a variable that its value, which may be another now, fits."""
        if not isinstance(b, VarBinding):
            return self.binding(b)
        value = self.expr(b.value)
        declared, info = b.var.struct_info_, value.struct_info_
        if declared is not None and (info is None or is_base_of(declared, info)):
            info = declared
        var = self.var(b.var, info)
        return b if var is b.var and value is b.value else VarBinding(var, value, b.span)


class _Without(Rewriter):
    """Leaves out one block, which is empty."""

    def __init__(self, block: BindingBlock) -> None:
        super().__init__()
        self.target = block

    def seq(self, seq: SeqExpr) -> SeqExpr:
        new = super().seq(seq)
        if all(b is not self.target for b in new.blocks):
            return new
        return SeqExpr([b for b in new.blocks if b is not self.target], new.body, new.span)


def _used(value: Expr) -> list[Var]:
    return [n for n in post_order_deep(value) if isinstance(n, Var)]


def _variables(func: Function) -> Iterator[Var]:
    for node in post_order_deep(func):
        if isinstance(node, Function):
            yield from node.params
        elif isinstance(node, SeqExpr):
            yield from (b.var for b in bindings_of(node))


def _uses_around(root: Function, block: BindingBlock) -> Iterator[Var | None]:
    """Variables used outside of ``block``, in order of evaluation; None where it stands."""
    stack: list[Expr | None] = [root]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or isinstance(node, Var):
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        kids: list[Expr | None] = []
        if isinstance(node, SeqExpr):
            for b in node.blocks:
                kids.extend([None] if b is block else [x.value for x in b.bindings])
            kids.append(node.body)
        else:
            kids.extend(deep_children(node))
        stack.extend(reversed(kids))
