"""Einstein summation: parsing of subscripts, and contraction two operands at a time.

An operand's axes are labels: letters, and ``...k`` for the k-th axis from the end of an ellipsis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.struct_info import Dims
from relax2xla.op.shared.checks import same_dim
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    convert,
    dot_general,
    dtype_of,
    full_like,
    iota,
    known,
    reduce,
    reshape,
    select,
    shape_of,
    transpose,
)
from relax2xla.tir import Dim

Labels = tuple[str, ...]
# What a symbolic size counts where the order of contractions is chosen.
TYPICAL: Final = 64


# ---- subscripts
def parse(subscripts: str, ndims: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Labels of each operand and of the result, from subscripts and the operands' ranks."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise OpError(f"`subscripts` {subscripts!r} name {len(terms)} operands; got {len(ndims)}")
    inputs = [_labels(t, n, subscripts) for t, n in zip(terms, ndims, strict=True)]
    dots = sorted({x for labels in inputs for x in labels if len(x) > 1}, key=_from_end)
    if not arrow:
        counts = Counter(x for labels in inputs for x in labels)
        once = sorted(x for x, count in counts.items() if count == 1 and len(x) == 1)
        return inputs, (*dots, *once)
    before, dot, after = right.partition("...")
    if dots and not dot:
        raise OpError(
            f"`subscripts` {subscripts!r}: the result needs '...' as the operands have it"
        )
    output = (*before, *(dots if dot else ()), *after)
    _check_letters(before + after, subscripts)
    known = {x for labels in inputs for x in labels}
    for x in output:
        if x not in known:
            raise OpError(f"`subscripts` {subscripts!r}: {x!r} of the result is in no operand")
    if len(set(output)) != len(output):
        raise OpError(f"`subscripts` {subscripts!r}: the result names an axis twice")
    return inputs, output


def _from_end(label: str) -> int:
    return -int(label.removeprefix("..."))


def _check_letters(letters: str, subscripts: str) -> None:
    if bad := [c for c in letters if not (c.isascii() and c.isalpha())]:
        raise OpError(
            f"`subscripts` {subscripts!r}: {bad[0]!r} is no axis; use letters, '...', ',' and '->'"
        )


def _labels(term: str, ndim: int, subscripts: str) -> Labels:
    before, dot, after = term.partition("...")
    _check_letters(before + after, subscripts)
    named = len(before) + len(after)
    if ndim < named or (not dot and ndim != named):
        raise OpError(
            f"`subscripts` {subscripts!r}: {term!r} does not fit an operand of rank {ndim}"
        )
    return (*before, *(f"...{k}" for k in range(ndim - named, 0, -1)), *after)


def result_dims(inputs: Sequence[Labels], output: Labels, shapes: Sequence[Dims]) -> Dims | None:
    """The result's dimensions; None where a symbolic size leaves broadcasting open."""
    sizes: dict[str, Dim] = {}
    unknown: set[str] = set()
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, d in zip(labels, shape, strict=True):
            old = sizes.setdefault(label, d)
            if same_dim(old, d) or (isinstance(d, int) and d == 1):
                continue
            if isinstance(old, int) and old == 1:
                sizes[label] = d
            elif isinstance(old, int) and isinstance(d, int):
                raise OpError(
                    f"`operands`: axis {label!r} has size {old} in one operand and {d} in another"
                )
            elif len(label) > 1:
                unknown.add(label)
            elif isinstance(d, int):
                sizes[label] = d  # a letter names one size: the known one
    if unknown.intersection(output):
        return None
    return tuple(sizes[x] for x in output)


# ---- contraction
def contract_all(
    values: Sequence[Expr], inputs: Sequence[Labels], output: Labels, dtype: str
) -> Expr:
    """The sum of products, contracted two operands at a time in numpy's greedy order."""
    sizes: dict[str, int] = {}
    for value, labels in zip(values, inputs, strict=True):
        for label, size in zip(labels, shape_of(value), strict=True):
            old = sizes.get(label, 1)
            better = not known(old) and known(size) and size != 1
            sizes[label] = size if old == 1 or better else old
    todo = [_own(v, x) for v, x in zip(values, inputs, strict=True)]
    for step in _order([labels for _, labels in todo], output, sizes):
        chosen = [todo[i] for i in step]
        todo = [t for i, t in enumerate(todo) if i not in step]
        wanted = set(output).union(*(labels for _, labels in todo))
        (value, labels), *rest = chosen
        for other, other_labels in rest:
            value, labels = _pair(value, labels, other, other_labels, wanted, dtype)
        todo.append(_summed(value, labels, wanted))
    ((value, labels),) = todo
    value, labels = _summed(convert(value, dtype), labels, set(output))
    kept = [x for x in output if x in labels]
    value = transpose(value, [labels.index(x) for x in kept])
    # Labels of size 1 were dropped, and those of size 1 in the only operand that had them.
    return broadcast_in_dim(value, [sizes[x] for x in output], [output.index(x) for x in kept])


def _own(value: Expr, labels: Labels) -> tuple[Expr, Labels]:
    """An operand without its broadcast axes (size 1), and with diagonals taken."""
    shape = shape_of(value)
    keep = [i for i in range(len(labels)) if shape[i] != 1]
    value, labels = reshape(value, [shape[i] for i in keep]), tuple(labels[i] for i in keep)
    while twice := next((x for x in labels if labels.count(x) > 1), None):
        first = labels.index(twice)
        second = labels.index(twice, first + 1)
        shape = shape_of(value)
        same = compare(iota(shape, first, "int32"), iota(shape, second, "int32"), "EQ")
        value = reduce(select(same, value, full_like(value, 0)), "add", [second])
        labels = (*labels[:second], *labels[second + 1 :])
    return value, labels


def _order(inputs: Sequence[Labels], output: Labels, sizes: dict[str, int]) -> list[list[int]]:
    """Which operands to contract in each step; results go to the end of the list."""
    if len(inputs) <= 2:
        return [list(range(len(inputs)))] if len(inputs) == 2 else []
    numbers = {label: i for i, label in enumerate(sizes)}
    arguments: list[object] = []
    for labels in inputs:
        shape = tuple(sizes[x] if known(sizes[x]) else TYPICAL for x in labels)
        arguments += [np.broadcast_to(np.float32(0), shape), [numbers[x] for x in labels]]
    kept = {x for labels in inputs for x in labels}
    path, _ = np.einsum_path(
        *arguments,  # pyright: ignore[reportArgumentType]
        [numbers[x] for x in output if x in kept],
        optimize="greedy",
    )
    return [sorted(step) for step in path[1:]]


def _summed(value: Expr, labels: Labels, wanted: set[str]) -> tuple[Expr, Labels]:
    """``value`` summed over the labels that nobody wants any more."""
    gone = [i for i, x in enumerate(labels) if x not in wanted]
    if not gone:
        return value, labels
    return reduce(value, "add", gone), tuple(x for x in labels if x in wanted)


def _pair(
    a: Expr, a_labels: Labels, b: Expr, b_labels: Labels, wanted: set[str], dtype: str
) -> tuple[Expr, Labels]:
    """One ``dot_general``: shared labels are batch axes if wanted, else contracted."""
    a, a_labels = _summed(a, a_labels, wanted.union(b_labels))
    b, b_labels = _summed(b, b_labels, wanted.union(a_labels))
    shared = [x for x in a_labels if x in b_labels]
    batch = [x for x in shared if x in wanted]
    gone = [x for x in shared if x not in wanted]
    made = dot_general(
        a,
        convert(b, dtype_of(a)),
        ([a_labels.index(x) for x in gone], [b_labels.index(x) for x in gone]),
        ([a_labels.index(x) for x in batch], [b_labels.index(x) for x in batch]),
        dtype,
    )
    own = [x for x in a_labels if x not in shared]
    other = [x for x in b_labels if x not in shared]
    return convert(made, dtype), (*batch, *own, *other)
