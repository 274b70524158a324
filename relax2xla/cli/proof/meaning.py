"""``relax2xla diff`` of two models by what they mean: signature, weights, operators, and results.

Programs of different formats are never the same text. Compared are the names, dtypes and shapes of
inputs and outputs, weights by name and value within tolerance, and what is left of the structure
after both were raised to high-level operators; on request the results on the same inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.cli.commands.inspect import operators
from relax2xla.cli.process.console import good, out, table
from relax2xla.cli.proof.comparison import Asked, Row, compare, named, results
from relax2xla.cli.reading.inputs import Leaf, leaves_of
from relax2xla.cli.reading.model import Sizes, parse_device
from relax2xla.cli.reading.values import Array, flat_results
from relax2xla.ir import Constant, Expr, Function, IRModule, StructInfo
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, substitute, unify
from relax2xla.ir.rewrite import post_order_deep, rewrite_function
from relax2xla.ir.source_names import full_names, result_names
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.tir import Var as Symbol

# Integers that are fewer are sizes and axes of the program, and no weights.
_FEW: Final = 16


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing of both models: its name in each, what it is there ("" where it is not).

    ``turned``: a square weight that fits when it is transposed, which its shape does not tell
    """

    names: tuple[str, str]
    kinds: tuple[str, str]
    fits: bool
    remark: str = ""
    turned: bool = False

    def cells(self) -> tuple[str, ...]:
        """For the table."""
        sides = (" ".join(filter(None, s)) for s in zip(self.names, self.kinds, strict=True))
        return (*sides, self.remark or ("the same" if self.fits else "differs"))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {n: getattr(self, n) for n in self.__slots__}


@dataclass(frozen=True, slots=True)
class Meaning:
    """How two models compare; ``structure`` and ``values`` None: not compared.

    operators: how often each is called, of those where the models differ
    structure: words for the first difference, "" where there is none
    """

    inputs: list[Pair]
    outputs: list[Pair]
    weights: list[Pair]
    operators: dict[str, tuple[int, int]]
    structure: str | None
    values: list[Row] | None

    @property
    def same(self) -> bool:
        """Whether both mean the same: with results, whatever computes them."""
        if not all(p.fits for p in (*self.inputs, *self.outputs)):
            return False
        if self.values is not None:
            return all(row.fits for row in self.values)
        return self.structure == "" and all(p.fits for p in self.weights)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        pairs = {n: [p.as_dict() for p in getattr(self, n)] for n in ("inputs", "outputs")}
        values = self.values if self.values is None else [r.as_dict() for r in self.values]
        return {
            "equal": self.same,
            **pairs,
            "weights": [p.as_dict() for p in self.weights],
            "operators": {n: list(counts) for n, counts in self.operators.items()},
            "structure": self.structure,
            "values": values,
        }


def meaning(
    mods: tuple[IRModule, IRModule],
    raised: tuple[IRModule, IRModule],
    files: tuple[Path, Path],
    difference: Callable[[IRModule, IRModule], str],
    asked: Asked | None,
    tolerance: tuple[float | None, float | None],
    shapes: Sizes,
) -> Meaning:
    """Compare two models.

    mods, raised: as the files have them, and both at the level of high-level operators
    difference: words for the first difference of structure, "" for none
    asked: how to make inputs for the results; None leaves them out
    tolerance: of weights, relative and absolute; None by dtype
    """
    inputs = _inputs(*(mod["main"] for mod in mods))
    outputs = _outputs(*(mod["main"] for mod in mods))
    counts = [operators(list(mod.relax_functions().values())) for mod in raised]
    names = dict.fromkeys([*counts[0], *counts[1]])
    told = {n: (counts[0].get(n, 0), counts[1].get(n, 0)) for n in names}
    fits = all(p.fits for p in (*inputs, *outputs))
    values: list[Row] | None = None
    if asked is not None and fits:
        values = _values(mods, files, asked, shapes)
    weights = list(_weights(_arrays(mods[0]), _arrays(mods[1]), tolerance))
    structure = difference(*map(_without_weights, raised)) if fits else None
    if structure == "":
        # The same operators compute something else of a matrix that is transposed.
        weights = [replace(p, fits=False) if p.turned else p for p in weights]
    differing = {n: c for n, c in told.items() if c[0] != c[1]}
    return Meaning(inputs, outputs, weights, differing, structure, values)


# -- signatures ------------------------------------------------------------------------------------
def _inputs(a: Function, b: Function) -> list[Pair]:
    sides = [leaves_of(f.params) for f in (a, b)]
    ordered = _in_order(*sides)
    alike = _Alike()
    found: list[Pair] = []
    for i in range(max(map(len, sides))):
        mine = sides[0][i] if i < len(sides[0]) else None
        yours = ordered[i] if i < len(ordered) else None
        names = ["" if leaf is None else leaf.names[-1] for leaf in (mine, yours)]
        infos = [None if leaf is None else leaf.info for leaf in (mine, yours)]
        found.append(_pair((names[0], names[1]), infos, alike, named=_one_of(mine, yours)))
    return found


def _one_of(a: Leaf | None, b: Leaf | None) -> bool:
    """Whether two inputs share a name, the source's or their variable's."""
    return a is not None and b is not None and bool(set(a.names) & set(b.names))


def _in_order(a: Sequence[Leaf], b: Sequence[Leaf]) -> list[Leaf]:
    """``b`` in the order of ``a``, where their names say it."""
    left = list(b)
    found: list[Leaf] = []
    for leaf in a:
        same = [other for other in left if _one_of(leaf, other)]
        if len(same) != 1:
            return list(b)
        left.remove(same[0])
        found += same
    return found + left


def sizes_of(mod: IRModule, other: IRModule) -> dict[str, int]:
    """Sizes for symbolic dimensions of ``mod``, by name, which the inputs of ``other`` have."""
    if not all("main" in {g.name_hint for g in m.functions} for m in (mod, other)):
        return {}
    theirs = leaves_of(other["main"].params)
    env: SymMap = {}
    for leaf, info in zip(_in_order(theirs, leaves_of(mod["main"].params)), theirs, strict=False):
        # What does not fit is a difference, which is told later.
        with contextlib.suppress(Mismatch):
            unify(leaf.info, info.info, env)
    return {var.name: size for var, size in env.items() if isinstance(size, int)}


def _outputs(a: Function, b: Function) -> list[Pair]:
    infos = [flatten_info(f.ret_struct_info) for f in (a, b)]
    said = [result_names(f) for f in (a, b)]
    names = [full_names(s, len(i)) for s, i in zip(said, infos, strict=True)]
    alike = _Alike([p.struct_info for p in a.params], [p.struct_info for p in b.params])
    found: list[Pair] = []
    for i in range(max(map(len, infos))):
        both = tuple(n[i] if i < len(n) else "" for n in names)
        here = [s[i] if i < len(s) else None for s in infos]
        # A name that nobody gave is none.
        own = [s[i] if i < len(s) else "" for s in said]
        named = not all(own) or own[0] == own[1]
        found.append(_pair((both[0], both[1]), here, alike, named))
    return found


def _pair(
    names: tuple[str, str], infos: Sequence[StructInfo | None], alike: _Alike, named: bool
) -> Pair:
    kinds = tuple("" if i is None else show(i) for i in infos)
    if infos[0] is None or infos[1] is None:
        return Pair(names, (kinds[0], kinds[1]), False, "only one has it")
    same = alike(infos[0], infos[1])
    remark = "" if same and named else "another type" if not same else "another name"
    return Pair(names, (kinds[0], kinds[1]), same and named, remark)


class _Alike:
    """Whether types are the same, where each symbolic dimension of one is one of the other."""

    def __init__(self, a: Sequence[StructInfo] = (), b: Sequence[StructInfo] = ()) -> None:
        self.known: dict[Symbol, Symbol] = {}
        for x, y in zip(a, b, strict=False):
            self(x, y)

    def __call__(self, a: StructInfo, b: StructInfo) -> bool:
        mine, yours = list(free_symbolic_vars(a)), list(free_symbolic_vars(b))
        if len(mine) != len(yours):
            return False
        for x, y in zip(mine, yours, strict=True):
            if self.known.setdefault(x, y) is not y:
                return False
        return substitute(a, dict(self.known)) == b


# -- weights ---------------------------------------------------------------------------------------
def _arrays(mod: IRModule) -> dict[str, Array]:
    """The weights of a model by the source's names, or as #0, #1 in the order of the program."""
    found: dict[str, Array] = {}
    seen: set[int] = set()
    for f in mod.relax_functions().values():
        for node in post_order_deep(f):
            if not isinstance(node, Constant) or not node.data.ndim or id(node.data) in seen:
                continue
            seen.add(id(node.data))
            whole = node.data.dtype.kind in "biu" and node.data.size < _FEW
            if whole or not any(node.data.strides):
                continue  # a splat is a number that was broadcast
            span = node.span
            name = span.name if span is not None and span.kind == "name" else ""
            if not name or name in found:
                name = f"{name}#{len(found)}"
            found[name] = node.data
    return found


def _weights(
    a: Mapping[str, Array], b: Mapping[str, Array], tolerance: tuple[float | None, float | None]
) -> Iterator[Pair]:
    """Each weight of ``a`` with that of ``b`` of its name, else with one that has its values.

    What is left may be shared on the other side: one array where this one has several.
    """
    left = dict(b)
    unmatched: list[str] = []
    for name, mine in a.items():
        if name in left and not name.startswith("#"):
            yield _weight((name, name), mine, left.pop(name), tolerance)
        else:
            unmatched.append(name)
    for name in unmatched:
        pairs = ((_weight((name, n), a[name], yours, tolerance), n) for n, yours in left.items())
        pair, other = next(((p, n) for p, n in pairs if p.fits), (None, ""))
        if pair is not None:
            del left[other]
            yield pair
        elif shared := next(
            (n for n in b if _weight((name, n), a[name], b[n], tolerance).fits), ""
        ):
            yield Pair((name, shared), (_kind(a[name]), _kind(b[shared])), True, "shared")
        else:
            yield Pair((name, ""), (_kind(a[name]), ""), False, "only the first has it")
    for name, yours in left.items():
        if shared := next((n for n in a if _weight((n, name), a[n], yours, tolerance).fits), ""):
            yield Pair((shared, name), (_kind(a[shared]), _kind(yours)), True, "shared")
        else:
            yield Pair(("", name), ("", _kind(yours)), False, "only the second has it")


def _weight(
    names: tuple[str, str], a: Array, b: Array, tolerance: tuple[float | None, float | None]
) -> Pair:
    kinds = (_kind(a), _kind(b))
    if a.dtype != b.dtype or (a.shape != b.shape and (a.ndim != 2 or a.shape != b.shape[::-1])):
        return Pair(names, kinds, False, "another dtype or shape")
    turned = a.shape != b.shape
    (row,) = compare([a], [b.T if turned else b], *tolerance)
    if not row.fits and a.ndim == 2 and not turned and a.shape == b.shape[::-1]:
        (other,) = compare([a], [b.T], *tolerance)
        row, turned = (other, True) if other.fits else (row, False)
    parts = ["transposed"] if turned else []
    if row.largest:
        parts.append(f"max abs {row.largest:.2e}, max rel {row.relative:.2e}")
    if not row.fits:
        parts.append("differs")
    return Pair(names, kinds, row.fits, ", ".join(parts), turned and a.shape == b.shape)


def _kind(a: Array) -> str:
    return f"{a.dtype.name} {'x'.join(map(str, a.shape))}"


def _without_weights(mod: IRModule) -> IRModule:
    """``mod`` with zeros for its weights, whose values are compared apart."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Constant) or not node.data.ndim or node.data.dtype.kind in "biu":
            return None
        # One zero, whatever the shape.
        zeros = np.broadcast_to(np.zeros((), node.data.dtype), node.data.shape)
        return Constant(zeros, node.struct_info_, node.span)

    return mod.replace(
        {
            g: rewrite_function(f, rule=rule) if isinstance(f, Function) else f
            for g, f in mod.functions.items()
        }
    )


# -- results ---------------------------------------------------------------------------------------
def _values(
    mods: tuple[IRModule, IRModule], files: tuple[Path, Path], asked: Asked, shapes: Sizes
) -> list[Row]:
    """The results of both on the same inputs, made for the first one unless they are given."""
    device = parse_device(asked.device)
    flat, mine = results(files[0], mods[0], device, asked, shapes)
    leaves = [leaves_of(mod["main"].params) for mod in mods]
    there = _in_order(leaves[0], leaves[1])
    by_leaf = {id(leaf): value for leaf, value in zip(there, flat, strict=True)}
    given = [by_leaf[id(leaf)] for leaf in leaves[1]]
    yours = results(files[1], mods[1], device, asked, {}, given)[1]
    rows = compare(flat_results(mine), flat_results(yours), asked.rtol, asked.atol)
    return named(rows, mods[0])


# -- printing --------------------------------------------------------------------------------------
def print_meaning(found: Meaning, files: tuple[Path, Path]) -> None:
    """What differs as tables, a line for what does not, and the verdict."""
    a, b = (str(f) for f in files)
    for title, pairs in (
        ("inputs", found.inputs),
        ("outputs", found.outputs),
        ("weights", found.weights),
    ):
        wrong = [p for p in pairs if not p.fits]
        count = f"{len(pairs) - len(wrong)} of {len(pairs)} {title} are the same"
        out(good(count, not wrong))
        if wrong:
            table((a, b, ""), [p.cells() for p in wrong[:20]])
            if len(wrong) > 20:
                out(f"and {len(wrong) - 20} more")
    if found.operators:
        out(good("other operators, after both were raised", False))
        rows = [(n, str(x), str(y)) for n, (x, y) in found.operators.items()]
        table(("operator", a, b), rows)
    if found.structure:
        out(found.structure)
    elif found.structure is not None:
        out(good("the same structure, after both were raised", True))
    if found.values is not None:
        columns = ("output", "dtype", "shape", "max abs", "max rel", "tolerance", "result")
        table(columns, [r.cells() for r in found.values])
    if found.values is not None:
        verdict = "give the same results" if found.same else "do not give the same results"
    else:
        verdict = "are the same model" if found.same else "are not the same model"
    out(good(f"{a} and {b} {verdict}", found.same))
