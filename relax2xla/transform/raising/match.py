"""Whether rows of a function are what an operator lowers to.

A *template* is the lowering of an operator over :class:`Hole`\\ s: an expression made of rows.
:class:`Matcher` compares it with rows of a function. What it takes for the same:

* the order of the operands of commutative rows, and attributes that are the default or left out;
* axes of size 1, where they are added and dropped by reshape and broadcast, between element-wise
  rows, and broadcasts in one step or in several;
* splats, however they are made; rows that copy their operand (``maximum(-inf, x)``).

So a match is exact: the operator lowers to rows that compute the same numbers.

It stands beside the matcher of ``dpl`` because a template is no pattern. A pattern is written once,
each of its nodes is one value of the program, and an order of operands that has matched stays
(TVM's rules). A template is made for the shapes and attributes of the rows at hand; a part of it
may stand for several values, rows that the program computes twice; and a level or an order that
fitted is taken back where a later part does not fit. Which templates are tried is said by pairs of
a row's name and a function (``raising/common.py``), as by the rules of ``dpl``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from relax2xla.errors import TVMError
from relax2xla.ir import Call, Constant, Expr, Function, Op, TupleGetItem, Var
from relax2xla.ir.arrays import arrays_equal
from relax2xla.ir.rewrite import children, post_order, rebuild
from relax2xla.ir.traits import Pointwise
from relax2xla.transform.raising.graph import (
    Graph,
    Level,
    bit,
    dtype_of,
    number_key,
    number_of,
    row_has,
    row_name,
    shape_of,
    squeezed,
    variables,
)
from relax2xla.transform.raising.regions import Key, flips, plain_attrs, region_key, region_of


class Hole(Var):
    """A place in a template that takes any value of its struct info."""

    __slots__ = ()


def lowered(root: Expr) -> Expr:
    """``root`` with every operator lowered to rows, not yet in A-normal form."""
    done: dict[int, Expr] = {}
    for node in post_order(root):
        kids = children(node)
        new = rebuild(node, [done[id(k)] for k in kids]) if kids else node
        if isinstance(new, Call) and isinstance(new.op, Op) and new.op.lowering is not None:
            args, kwargs = new.op.bind(new)
            rule: Any = new.op.lowering
            new = lowered(rule(*args, **kwargs))
        done[id(node)] = new
    return done[id(root)]


def spelled(value: Expr) -> Iterator[Expr]:
    """What other programs write for a call of an operator: its spellings."""
    if isinstance(value, Call) and isinstance(value.op, Op) and value.op.spellings:
        args, kwargs = value.op.bind(value)
        for spelling in value.op.spellings:
            made: Expr | None = spelling(*args, **kwargs)
            if made is not None:
                yield made


def filled(root: Expr, holes: Mapping[Expr, Expr]) -> Expr:
    """``root`` with the values of its holes."""
    done: dict[int, Expr] = {}
    for node in post_order(root):
        kids = children(node)
        done[id(node)] = (
            rebuild(node, [done[id(k)] for k in kids]) if kids else holes.get(node, node)
        )
    return done[id(root)]


# ---- templates
class Form:
    """A part of a template, and what the matcher asks about it, answered once.

    ``source`` is what the value is broadcast from, and ``axes`` say where the axes of that lie;
    ``number`` is the key of the number that it holds everywhere, if it does.
    """

    __slots__ = (
        "_args",
        "_attrs",
        "_key",
        "_known",
        "axes",
        "dtype",
        "expr",
        "flips",
        "loose",
        "name",
        "number",
        "shape",
        "source",
        "squeezed",
        "wanted",
    )
    source: Form

    def __init__(self, expr: Expr, known: dict[int, Form]) -> None:
        self.expr = expr
        self._known = known
        self.name = row_name(expr)
        self.shape = shape_of(expr)
        self.squeezed = () if self.shape is None else squeezed(self.shape)
        self.dtype = dtype_of(expr)
        self.loose = row_has(expr, Pointwise)
        self._args: tuple[Form, ...] | None = None
        self._attrs: dict[str, Any] | None = None
        self._key: Key | None = None
        self.number = number_key(_splat(expr))
        self.source, self.axes = self, ()
        if self.shape is not None and not isinstance(expr, Function):
            level = _TEMPLATES.look_through(expr)[-1]
            self.axes = level.axes
            if level.expr is not expr:
                self.source = form_of(level.expr, known)
        self.flips = flips(expr)
        # A value that can only be this row; 0: any value.
        self.wanted = bit(self.source.name) if self.source.name else 0

    @property
    def args(self) -> tuple[Form, ...]:
        """The operands of a call, or the tuple that a field is of."""
        if self._args is None:
            args: Sequence[Expr] = ()
            if isinstance(self.expr, Call):
                args = self.expr.args
            elif isinstance(self.expr, TupleGetItem):
                args = (self.expr.tuple_value,)
            self._args = tuple(form_of(a, self._known) for a in args)
        return self._args

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of a row that are not the default."""
        if self._attrs is None:
            self._attrs = plain_attrs(self.expr) if isinstance(self.expr, Call) else {}
        return self._attrs

    @property
    def key(self) -> Key | None:
        """The key of a region."""
        if self._key is None:
            self._key = region_key(self.expr)
        return self._key


def form_of(expr: Expr, known: dict[int, Form]) -> Form:
    """The form of a part of a template; ``known`` are those of the template's other parts."""
    found = known.get(id(expr))
    if found is None:
        found = known[id(expr)] = Form(expr, known)
    return found


# ---- the matcher
class Matcher:
    """One comparison: ``bound`` are the values of holes, ``inner`` the variables matched."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.bound: dict[Expr, Expr] = {}
        self.inner: dict[Expr, None] = {}
        # Pairs that matched: templates share their parts.
        self._done: dict[tuple[Form, Expr, bool], None] = {}
        # What was put where, so that it can be taken back.
        self._log: list[tuple[dict[Any, Any], Any]] = []

    def _put(self, where: dict[Any, Any], key: Any, value: Any = None) -> None:
        if key not in where:
            where[key] = value
            self._log.append((where, key))

    def _undo(self, mark: int) -> None:
        while len(self._log) > mark:
            where, key = self._log.pop()
            del where[key]

    def matches(self, form: Form, var: Var) -> bool:
        """Whether ``var`` is computed as the template ``form`` says; if not, nothing is noted."""
        # An operator that lowers to its operand would stand for anything, itself included.
        if isinstance(form.expr, Hole) or form.expr.struct_info_ != var.struct_info_:
            return False
        if self.unify(form, var, exact=True):
            return True
        self._undo(0)
        return False

    def unify(self, form: Form, actual: Expr, exact: bool = False) -> bool:
        """Compare two values, up to axes of size 1 unless ``exact``."""
        graph = self.graph
        if isinstance(form.expr, Function):
            return form.key is not None and form.key == region_of(graph, actual)
        if form.shape is None:
            return self._node(form, actual, graph.value(actual))
        if exact and form.shape != shape_of(actual):
            return False
        if form.number is not None:
            return form.number == graph.splat_key(actual)
        pair = (form, graph.leaf(actual), exact)
        if pair in self._done:
            return True
        source = form.source
        for level in graph.levels(actual):
            if self._fits(form, source, level):
                mark = len(self._log)
                if self._node(source, level.expr, level.node):
                    if not isinstance(source.expr, Var | Constant):
                        for at in level.trail:
                            self._put(self.inner, at)
                    self._put(self._done, pair)
                    return True
                self._undo(mark)
        return False

    def _fits(self, form: Form, source: Form, level: Level) -> bool:
        if level.axes != form.axes or level.squeezed != source.squeezed or level.shape is None:
            return False
        if isinstance(source.expr, Var) and source.shape != level.shape:
            return False
        return source.dtype == dtype_of(level.expr)

    def _node(self, form: Form, actual: Expr, node: Expr) -> bool:
        """Compare one row; ``node`` is what ``actual`` is bound to."""
        graph, template = self.graph, form.expr
        if isinstance(template, Hole):
            return self._bind(template, actual)
        if isinstance(template, Var):
            return graph.leaf(actual) is graph.leaf(template)
        if isinstance(template, Constant):
            return isinstance(node, Constant) and arrays_equal(template.data, node.data)
        if isinstance(template, TupleGetItem) and isinstance(node, TupleGetItem):
            if template.index != node.index:
                return False
            if not self._node(form.args[0], node.tuple_value, graph.value(node.tuple_value)):
                return False
        elif isinstance(template, Call) and isinstance(node, Call):
            if not self._call(form, node):
                return False
        else:
            return False
        at = graph.leaf(actual)
        if isinstance(at, Var):
            self._put(self.inner, at)
        return True

    def _bind(self, hole: Hole, actual: Expr) -> bool:
        leaf = self.graph.leaf(actual)
        if hole.struct_info_ != leaf.struct_info_:
            return False
        known = self.bound.get(hole)
        if known is None:
            self._put(self.bound, hole, leaf)
            return True
        return known is leaf or self._equal(known, leaf)

    def _equal(self, a: Expr, b: Expr) -> bool:
        x, y = self.graph.value(a), self.graph.value(b)
        return isinstance(x, Constant) and isinstance(y, Constant) and arrays_equal(x.data, y.data)

    def _call(self, form: Form, node: Call) -> bool:
        if not form.name or form.name != row_name(node) or len(form.args) != len(node.args):
            return False
        if not form.loose and form.expr.struct_info_ != node.struct_info_:
            return False
        if form.attrs != (plain_attrs(node) if node.attrs else {}):
            return False
        for args in (node.args, node.args[::-1]) if form.flips else (node.args,):
            # The rows that must be there are looked for before any is compared in full.
            if not all(map(self._may_be, form.args, args)):
                continue
            mark = len(self._log)
            if all(
                self.unify(t, a, exact=not form.loose) for t, a in zip(form.args, args, strict=True)
            ):
                return True
            self._undo(mark)
        return False

    def _may_be(self, form: Form, actual: Expr) -> bool:
        if form.number is not None:
            return form.number == self.graph.splat_key(actual)
        return not form.wanted or bool(form.wanted & self.graph.rows(actual, 0))

    def fills(self, value: Expr) -> bool:
        """Whether every hole of ``value`` has found what it stands for."""
        return all(n in self.bound for n in post_order(value) if isinstance(n, Hole))

    def shared(self, root: Var, value: Expr) -> list[Expr]:
        """The rows matched that something else uses, or that lie in another sequence.

        What takes their place, ``value``, must not use them either: an operand of the operator may
        be a part of the rows that it stands for.
        """
        graph = self.graph
        counts: Counter[Expr] = Counter()
        for var in {**self.inner, root: None}:
            counts.update(variables(graph.defs[var]))
        operands = {*self.bound.values(), *variables(value)}
        return [
            v
            for v in self.inner
            if v is not root
            and (v in operands or graph.uses[v] != counts[v] or graph.home[v] != graph.home[root])
        ]


def _splat(template: Expr) -> Any:
    """The number that a template's value holds everywhere, else None."""
    while row_name(template) in ("broadcast_in_dim", "reshape"):
        assert isinstance(template, Call)
        template = template.args[0]
    return number_of(template) if isinstance(template, Constant) else None


# Templates are nested, so there is nothing to look up.
_TEMPLATES: Final = Graph()


class Guess:
    """What rows may be: ``value``, made of operators over holes and variables.

    ``forms``: further templates that compute what ``value`` does, besides the operator's spellings.
    """

    def __init__(self, value: Expr, forms: Iterable[Expr] = ()) -> None:
        self.value = value
        self._rest = chain(spelled(value), forms)
        self._templates: list[Form] | None = None

    def templates(self) -> Iterator[Form]:
        """The lowering of ``value``, then spellings and forms; each is made when asked for."""
        if self._templates is None:
            self._templates = []
            # The operator may have no lowering for these shapes; a form is no less good for that.
            with suppress(TVMError, ValueError):
                self._templates.append(Form(lowered(self.value), {}))
        yield from list(self._templates)
        while True:
            try:
                form = next(self._rest, None)
            except (TVMError, ValueError):
                return
            if form is None:
                return
            self._templates.append(Form(form, {}))
            yield self._templates[-1]
