"""What operators say of the rows that they are: ``AsRow``, ``Reduction``, ``Recognised``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from relax2xla.dtypes import is_float
from relax2xla.errors import TVMError
from relax2xla.ir import Call, Expr, Op
from relax2xla.ir.traits import AlongAxis, AsRow, Recognised, Reduction
from relax2xla.transform.raising.common import Guesses, Look, Pattern, hole
from relax2xla.transform.raising.graph import DEPTH, Graph, bits, dtype_of, row_name, shape_of
from relax2xla.transform.raising.match import Guess, Hole, form_of, lowered, spelled

OPERATORS: Final = [Op.get(name) for name in Op.list_op_names()]
# The operator that a row is: by the row, the direction of a comparison, and the dtype ("": any).
ROWS: Final = {
    (trait.row, trait.direction, trait.on): made.name.removeprefix("relax.")
    for made in OPERATORS
    for trait in made.traits
    if isinstance(trait, AsRow)
}


def _by_row(kind: type[Reduction] | type[AlongAxis]) -> dict[str, str]:
    """The operators with a trait of this kind that names rows, by these."""
    return {
        row: made.name.removeprefix("relax.")
        for made in OPERATORS
        if (trait := made.trait(kind)) is not None
        for row in trait.rows
    }


# The operator that a ``reduce`` is, and a running one, by the row of its region.
REDUCTIONS: Final = _by_row(Reduction)
RUNNING: Final = _by_row(AlongAxis)

# What templates are made of, to see their rows: kinds of dtypes whose lowerings differ.
_DTYPES: Final = ("float32", "int32", "float16")
# A template: its last row, whether it is one of narrow floats alone, and how near its rows are.
Template = tuple[str, bool, dict[str, int]]


def _templates(made: Op[...]) -> Iterator[Template]:
    """The last rows in which ``made`` may end, and what lies before them."""
    found: list[str] = []
    for dtype in _DTYPES:
        holes = [hole((2,), dtype, p.name) for p in made.operands]
        with suppress(TVMError):  # The operator refuses the dtype.
            call = made(*holes)
            for root in (lowered(call), *spelled(call)):
                end, narrow = row_name(root), dtype == "float16"
                if not end or _is_single(root) or (narrow and end in found):
                    continue
                found.append(end)
                yield end, narrow, _nearness(root)


def _is_single(root: Expr) -> bool:
    """Whether a template is one row of its operands, which the table of rows is for."""
    return (
        isinstance(root, Call)
        and all(isinstance(a, Hole) for a in root.args)
        and len(set(root.args)) == len(root.args)
    )


def _nearness(root: Expr) -> dict[str, int]:
    """The rows above a template's last one, by the steps to them; numbers are no rows."""
    found: dict[str, int] = {}
    level = list(form_of(root, {}).args)
    for steps in range(DEPTH + 1):
        for form in (f.source for f in level):
            if form.number is None and form.name:
                found.setdefault(form.name, steps)
        level = [a for f in level if f.number is None for a in f.source.args]
    return found


def patterns() -> dict[str, list[Pattern]]:
    """A pattern for each way in which an operator's rows end, by that last row.

    It is asked where the template's rarest row is near, the one that fewest operators are made of.
    """
    templates = {
        made: (found, list(_templates(made)))
        for made in OPERATORS
        if (found := made.trait(Recognised)) is not None
    }
    shared = Counter(
        row for _, own in templates.values() for row in {r for *_, near in own for r in near}
    )
    out: dict[str, list[Pattern]] = {}
    for made, (found, own) in templates.items():
        ends: dict[tuple[str, bool], list[tuple[str, int]]] = {}
        for end, narrow, near in own:
            named = near if found.by not in near else {found.by: near[found.by]}
            rarest = min(named.items(), key=lambda row: (shared[row[0]], row[1]), default=("", 0))
            ends.setdefault((end, narrow), []).append(rarest)
        for (end, narrow), rows in ends.items():
            depth = max(steps for _, steps in rows)
            wanted = bits(*(row for row, _ in rows)) if all(row for row, _ in rows) else 0
            name = made.name.rpartition(".")[2]
            out.setdefault(end, []).append(Pattern(name, _look(made, found), depth, wanted, narrow))
    return out


def _look(made: Op[...], found: Recognised) -> Look:
    """A guess that the rows are ``made`` of operands of the result's shape."""
    example = made(*(hole((2,), "float32") for _ in made.operands))
    predicate = dtype_of(example) == "bool"

    def look(graph: Graph, call: Call) -> Guesses:
        shape = shape_of(call)
        own = dtype_of(call.args[0]) if predicate else dtype_of(call)
        wrong = predicate != (dtype_of(call) == "bool") or (found.floats and not is_float(own))
        if shape is None or wrong:
            return

        def make() -> Guess:
            return Guess(made(*(hole(shape, own, p.name) for p in made.operands)))

        yield graph.once((made.name, shape, own), make)

    return look
