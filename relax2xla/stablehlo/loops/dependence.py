"""The test that licenses a vector loop: no iteration reads or writes what another one writes."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla import tir
from relax2xla.stablehlo.loops.accesses import Access, Body
from relax2xla.stablehlo.loops.affine import Form
from relax2xla.stablehlo.loops.axes import Axis


def obstacle(
    axes: Sequence[Axis], body: Body, promised: bool, concurrent: bool = False
) -> str | None:
    """Why the iterations of a loop, whose digits are ``axes``, depend on each other; None: not.

    ``promised``: the program says that they write different elements (axes of blocks);
    ``concurrent``: that they may run at once (parallel and vectorized loops).
    """
    by_memory: dict[tir.Var, list[Access]] = {}
    for access in body.accesses:
        if access.buffer.data not in body.private:
            by_memory.setdefault(access.buffer.data, []).append(access)
    for accesses in by_memory.values():
        if all(a.kind == "read" for a in accesses):
            continue
        name = accesses[0].buffer.name
        ranks = {len(a.forms) for a in accesses}
        for axis in axes:
            if axis.size == 1:
                continue
            if len(ranks) > 1 or any(None in a.forms for a in accesses):
                why = _unknown(accesses, promised, concurrent)
            else:
                why = _known(axis, accesses)
            if why:
                return f"{name} {why}"
    return None


def _unknown(accesses: Sequence[Access], promised: bool, concurrent: bool) -> str | None:
    """The test where an index is not affine."""
    one = len({a.indices for a in accesses}) == 1
    rows = {a.row for a in accesses}
    if one and len(rows) == 1 and all(a.kind == "accumulate" for a in accesses):
        return None
    if not promised:
        return "is written at indices that only the data tells"
    if any(a.kind != "write" for a in accesses) and not (one and concurrent):
        return "is read and written at indices that only the data tells"
    return None


def _known(axis: Axis, accesses: Sequence[Access]) -> str | None:
    """The test for one axis where all indices are affine."""
    forms = [[f for f in a.forms if f is not None] for a in accesses]
    if not any(axis in f.terms for fs in forms for f in fs):
        return _total(accesses)
    for place in range(len(forms[0])):
        if _apart(axis, [fs[place] for fs in forms]):
            return None
    return "is written where another step of the loop reads or writes"


def _total(accesses: Sequence[Access]) -> str | None:
    """All steps name the same elements: that is well where they combine them."""
    kinds = {a.kind for a in accesses}
    blocks = {id(a.block) for a in accesses}
    rows = {a.row for a in accesses if a.kind == "accumulate"}
    if kinds <= {"init", "select"} and len(blocks) == 1:
        return None
    if kinds <= {"init", "accumulate"} and len(rows) == 1 and len(blocks) == 1:
        return None
    return "is written by every step of the loop"


def _apart(axis: Axis, forms: Sequence[Form]) -> bool:
    """Whether one index differs in any two steps, whatever the other axes are."""
    steps = {f.terms.get(axis, 0) for f in forms}
    if len(steps) != 1 or 0 in steps or len({f.key for f in forms}) != 1:
        return False
    step = abs(steps.pop())
    ranges = [f.range({axis}) for f in forms]
    if max(r[1] for r in ranges) - min(r[0] for r in ranges) < step:
        return True
    # A digit: larger terms are multiples of the next digit, and what is left stays below this one.
    digits: set[int | None] = set()
    over = step * axis.size
    for f in forms:
        below = {a: k for a, k in f.terms.items() if a is not axis and k % over}
        if f.terms[axis] < 0:
            return False
        low, high = Form(below, f.const % over).range()
        whole = low >= 0 and high < over and low // step == high // step
        digits.add(low // step if whole else None)
    return len(digits) == 1 and None not in digits
