"""Single rows as operators, each kind of row found once.

What :data:`~relax2xla.transform.raising.rows.TABLE` makes of a row depends on the row's attributes
and struct info, and on how its operands are broadcast; not on where they come from. So the answer
for one row is the answer for all that are like it, with their operands put in.
"""

from __future__ import annotations

from collections.abc import Hashable

from relax2xla.errors import TVMError
from relax2xla.ir import Call, Constant, Expr, Function, Tuple, Var
from relax2xla.ir.rewrite import post_order
from relax2xla.transform.raising.graph import Graph, row_name
from relax2xla.transform.raising.match import Hole, Matcher, filled
from relax2xla.transform.raising.regions import region_of
from relax2xla.transform.raising.rows import TABLE

Place = tuple[int, int]


class Table:
    """Answers for the rows of one function; what is in ``known`` is shared with other functions."""

    def __init__(self, graph: Graph, known: dict[Hashable, Recipe | None]) -> None:
        self.graph = graph
        self.known = known
        self._views: dict[Expr, Hashable] = {}

    def operator(self, var: Var, call: Call) -> Expr | None:
        """The operator that the row ``call``, which ``var`` is bound to, is on its own."""
        name = row_name(call)
        if name not in TABLE:
            return None
        views = [self._view(a) for a in call.args]
        key: Hashable = None
        if None not in views:
            infos = (call.struct_info_, var.struct_info_)
            key = (call.op, call.attrs, infos, self._shared(call), *views)
            try:
                if key in self.known:
                    recipe = self.known[key]
                    return None if recipe is None else recipe.cook(self.graph, call)
            except TypeError:  # An attribute that has no hash.
                key = None
        made = self._find(var, call, name)
        if key is not None:
            recipe = None if made is None else Recipe.of(self.graph, call, made)
            if made is None or recipe is not None:
                self.known[key] = recipe
        return made

    def _find(self, var: Var, call: Call, name: str) -> Expr | None:
        """The first guess whose lowering is the row."""
        try:
            for guess in TABLE[name](self.graph, call):
                if guess.value.struct_info_ != var.struct_info_:
                    continue
                for form in guess.templates():
                    matcher = Matcher(self.graph)
                    # One row, so there is nothing to take away.
                    if matcher.matches(form, var) and len(matcher.inner) <= 1:
                        return filled(guess.value, matcher.bound)
        except TVMError:
            return None  # The operator refuses these dtypes or shapes.
        return None

    def _shared(self, call: Call) -> Hashable:
        """Which levels of the operands are one and the same; None where none are.

        A recipe says of which operand it takes a level, so calls must agree in this.
        """
        if len(call.args) < 2:
            return None
        seen: dict[Expr, int] = {}
        places = [
            seen.setdefault(level.expr, len(seen))
            for a in call.args
            for level in self.graph.levels(a)
        ]
        return tuple(places) if len(seen) < len(places) else None

    def _view(self, e: Expr) -> Hashable:
        """What the table may see of an operand; None if that cannot be told."""
        if e not in self._views:
            self._views[e] = self._look(e)
        return self._views[e]

    def _look(self, e: Expr) -> Hashable:
        graph = self.graph
        value = graph.value(e)
        if isinstance(value, Function):
            return region_of(graph, e)
        number = graph.splat_key(e)
        if number is not None:
            plain = row_name(value) in ("broadcast_in_dim", "")
            return (e.struct_info_, number, plain, isinstance(value, Constant))
        if isinstance(value, Constant):
            return None  # Rare, and its elements may matter.
        return (e.struct_info_, *((v.shape, v.axes) for v in graph.levels(e)))


class Recipe:
    """An operator over places: which level of which operand stands where."""

    def __init__(self, value: Expr, places: dict[Expr, Place]) -> None:
        self.value, self.places = value, places

    @staticmethod
    def of(graph: Graph, call: Call, made: Expr) -> Recipe | None:
        """The recipe by which ``made`` came from ``call``; None where it reads something else."""
        where: dict[Expr, Place] = {}
        for i, a in enumerate(call.args):
            for j, level in enumerate(graph.levels(a)):
                where.setdefault(level.expr, (i, j))
        holes: dict[Expr, Expr] = {}
        for node in post_order(made):
            if isinstance(node, Var):
                if node not in where:
                    return None
                holes[node] = Hole("x", node.struct_info)
        return Recipe(filled(made, holes), {holes[v]: where[v] for v in holes})

    def cook(self, graph: Graph, call: Call) -> Expr:
        """The operator for the row ``call``."""
        values: dict[Expr, Expr] = {}
        for hole, (i, j) in self.places.items():
            a = call.args[i]
            values[hole] = a if j == 0 else graph.levels(a)[j].expr
        value = self.value
        if isinstance(value, Call) and not any(isinstance(a, Call | Tuple) for a in value.args):
            args = [values.get(a, a) for a in value.args]
            return Call(
                value.op, args, value.attrs, value.sinfo_args, struct_info=value.struct_info_
            )
        return filled(value, values)
