"""Index maps: which element of a new layout each element of a tensor goes to.

``IndexMap.from_func(lambda i, j: (j // 4, i, j % 4))`` sends element (i, j) there. Source: TVM's
``tir.IndexMap``.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from relax2xla.errors import TVMError
from relax2xla.tir.arith.analyzer import can_prove_equal, simplify
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.arith.index_inverse import as_digit, extent_from_zero, inverted
from relax2xla.tir.binary import Add, FloorDiv, FloorMod, Mul, Sub, is_literal
from relax2xla.tir.convert import as_dim, as_prim_expr
from relax2xla.tir.functor import free_vars, post_order, structural_equal, substitute
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var

Ints = npt.NDArray[np.int64]
# What a final index takes of an initial one: which, and (index // divisor) % modulus; None: all.
Factor: TypeAlias = tuple[int, int, int | None]


@dataclass(frozen=True, eq=False)
class IndexMap:
    """``final_indices`` of an element at ``initial_indices``.

    The final indices use the initial ones, integers, ``+``, ``-``, ``*``, ``//`` and ``%`` (the
    last two by positive integers).
    """

    initial_indices: tuple[Var, ...]
    final_indices: tuple[PrimExpr, ...]
    inverse_index_map: IndexMap | None = None
    AXIS_SEPARATOR: ClassVar[object] = object()

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """The map that a Python function of the indices describes.

        ``ndim``: the number of indices, needed if the function takes ``*args``.
        """
        params = inspect.signature(mapping_function).parameters.values()
        names = [p.name for p in params if p.kind is not inspect.Parameter.VAR_POSITIONAL]
        if len(names) < len(params):
            if ndim is None:
                raise TVMError("IndexMap.from_func: `ndim` must be given for a function of *args")
            names += [f"i{k}" for k in range(len(names), ndim)]
        if ndim is not None and ndim != len(names):
            raise TVMError(
                f"IndexMap.from_func: the function takes {len(names)} indices, `ndim` is {ndim}"
            )
        variables = tuple(Var(name, index_dtype) for name in names)
        made = mapping_function(*variables)
        given: Iterable[Any] = made if isinstance(made, tuple | list) else (made,)
        values = [v for v in given if v is not IndexMap.AXIS_SEPARATOR]
        final = tuple(as_prim_expr(v, index_dtype) for v in values)
        known = set(variables)
        for f in final:
            for v in free_vars(f):
                if v not in known:
                    raise TVMError(f"IndexMap: `{f}` uses `{v}`, which is no index of the tensor")
        inverse = inverse_index_map
        if inverse is not None and not isinstance(inverse, IndexMap):
            inverse = IndexMap.from_func(inverse, index_dtype=index_dtype)
        return IndexMap(variables, final, inverse)

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> tuple[IndexMap, list[int]]:
        """:meth:`from_func`, and where the function has ``IndexMap.AXIS_SEPARATOR``.

        A separator says how TVM lays out memory: how many final indices stand before it.
        """
        made = IndexMap.from_func(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        found = mapping_function(*made.initial_indices)
        marks = found if isinstance(found, tuple | list) else (found,)
        places = [n for n, v in enumerate(marks) if v is IndexMap.AXIS_SEPARATOR]
        return made, [place - before for before, place in enumerate(places)]

    def map_indices(self, indices: Sequence[Dim]) -> list[Dim]:
        """Where the element at ``indices`` goes."""
        self._want(len(indices))
        env = {
            v: as_prim_expr(i, v.dtype) for v, i in zip(self.initial_indices, indices, strict=True)
        }
        if any(v.dtype != i.dtype for v, i in env.items()):  # the indices' dtype wins
            return [as_dim(simplify(_values(f, env))) for f in self.final_indices]
        return [as_dim(simplify(substitute(f, env))) for f in self.final_indices]

    def map_shape(self, shape: Sequence[Dim]) -> list[Dim]:
        """The shape that holds every element of a tensor of ``shape``."""
        self._want(len(shape))
        pairs = zip(self.initial_indices, shape, strict=True)
        ranges: dict[Var, tuple[Dim, Dim]] = {v: (0, as_dim(simplify(d - 1))) for v, d in pairs}
        return [as_dim(simplify(_extent(f, ranges))) for f in self.final_indices]

    def places(self, shape: Sequence[int]) -> Ints:
        """Where each element of a tensor of static shape goes: flat positions in ``map_shape``."""
        grids = np.indices(tuple(shape), dtype=np.int64, sparse=True)
        env = dict(zip(self.initial_indices, grids, strict=True))
        new = [int(d) for d in self.map_shape(shape) if isinstance(d, int)]
        flat = np.zeros(tuple(shape), np.int64)
        for f, size in zip(self.final_indices, new, strict=True):
            flat = flat * size + _values(f, env)
        return flat

    def map_ndarray(self, arr_src: Any) -> npt.NDArray[Any]:
        """An array (anything that numpy takes) in the other layout; zeros where no element goes."""
        source: npt.NDArray[Any] = np.asanyarray(arr_src)  # of its own class, as programs expect
        made = np.zeros_like(
            source, shape=[d for d in self.map_shape(source.shape) if isinstance(d, int)]
        )
        made.reshape(-1)[self.places(source.shape)] = source
        return made

    def factors(self) -> list[Factor] | None:
        """The final indices as factors of the initial ones, if together they are each index.

        None for a map that does not split and permute indices, as ``(j // 4, i, j % 4)`` does.
        """
        positions = {v: n for n, v in enumerate(self.initial_indices)}
        found: list[Factor] = []
        for index in self.final_indices:
            digit = as_digit(index)
            if digit is None or not isinstance(digit.of, Var):
                return None
            found.append((positions[digit.of], digit.divisor, digit.modulus))
        for own in self._by_index(found):
            if not own or own[0][2] is not None or own[-1][1] != 1:
                return None
            if any(b[2] is None or b[1] * b[2] != a[1] for a, b in pairwise(own)):
                return None
        return found

    def _by_index(self, factors: Sequence[Factor]) -> list[list[Factor]]:
        """By initial index its factors, those that count most first."""
        count = range(len(self.initial_indices))
        return [sorted((f for f in factors if f[0] == n), key=lambda f: -f[1]) for n in count]

    def inverse(self, shape: Sequence[Dim | Range] | None = None) -> IndexMap:
        """The map back: that which was given, or of a map that splits, joins and permutes.

        ``shape``: of the tensor. With it TVMError where some final index is of no element; without
        it TVMError for maps that do more than split and permute.
        """
        if self.inverse_index_map is not None:
            return self.inverse_index_map
        if shape is not None:
            back, padded = self.non_surjective_inverse(shape)
            if not is_literal(padded, 0):
                raise TVMError(
                    f"{self} of the shape {list(shape)} has places without an element, where "
                    f"{padded}; ask non_surjective_inverse"
                )
            return back
        factors = self.factors()
        if factors is None:
            raise TVMError(
                f"{self}: only maps that split and permute indices can be inverted without the "
                "shape; pass it, or give IndexMap.from_func the other way as inverse_index_map"
            )
        places = self._places()
        at = dict(zip(factors, places, strict=True))
        final: list[PrimExpr] = []
        for own in self._by_index(factors):
            parts = [at[f] * f[1] if f[1] != 1 else at[f] for f in own]
            final.append(functools.reduce(operator.add, parts))
        return IndexMap(places, tuple(final))

    def non_surjective_inverse(self, shape: Sequence[Dim | Range]) -> tuple[IndexMap, PrimExpr]:
        """The map back, and the condition on the final indices under which no element is there.

        TVMError for maps that do more than split and join indices, shift them and permute.
        """
        self._want(len(shape))
        extents = dict(zip(self.initial_indices, (extent_from_zero(d) for d in shape), strict=True))
        places = self._places()
        found = inverted(self.final_indices, places, extents, self.map_shape([*extents.values()]))
        if isinstance(found, str):
            raise TVMError(f"{self} of the shape {list(shape)} cannot be inverted: {found}")
        final, padded = found
        return IndexMap(places, tuple(final)), padded

    def _places(self) -> tuple[Var, ...]:
        dtype = self.initial_indices[0].dtype if self.initial_indices else "int64"
        return tuple(Var(f"axis{n}", dtype) for n in range(len(self.final_indices)))

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Whether both send every element to the same place."""
        if len(self.initial_indices) != len(other.initial_indices):
            return False
        final = other.map_indices(self.initial_indices)
        return len(final) == len(self.final_indices) and all(
            can_prove_equal(a, b) for a, b in zip(self.final_indices, final, strict=True)
        )

    def _want(self, count: int) -> None:
        if count != len(self.initial_indices):
            raise TVMError(f"{self} takes {len(self.initial_indices)} indices; got {count}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexMap):
            return NotImplemented
        if len(self.initial_indices) != len(other.initial_indices):
            return False
        env = dict(zip(other.initial_indices, self.initial_indices, strict=True))
        return len(self.final_indices) == len(other.final_indices) and all(
            structural_equal(a, as_prim_expr(substitute(b, env)))
            for a, b in zip(self.final_indices, other.final_indices, strict=True)
        )

    def __hash__(self) -> int:
        return hash((len(self.initial_indices), len(self.final_indices)))

    def __str__(self) -> str:
        names = ", ".join(v.name for v in self.initial_indices)
        final = ", ".join(map(str, self.final_indices))
        comma = "," if len(self.final_indices) == 1 else ""
        return f"T.index_map(lambda {names}: ({final}{comma}))"

    __repr__ = __str__


def _unknown(node: PrimExpr) -> TVMError:
    return TVMError(
        f"an index map may use +, -, *, // and % (the last two by positive integers); got `{node}`"
    )


def _divisor(node: PrimExpr) -> int:
    right = node.children()[1]
    if not isinstance(right, IntImm) or right.value < 1:
        raise _unknown(node)
    return right.value


def _extent(index: PrimExpr, ranges: dict[Var, tuple[Dim, Dim]]) -> Dim:
    """One more than the greatest value of an index; of a quotient ``(n + 3) // 4``."""
    if isinstance(index, FloorDiv):
        by = _divisor(index)
        return simplify(_range(index.children()[0], ranges)[1] + by) // by
    return _range(index, ranges)[1] + 1


def _range(root: PrimExpr, ranges: dict[Var, tuple[Dim, Dim]]) -> tuple[Dim, Dim]:
    """The least and the greatest value of an index."""
    done: dict[int, tuple[Dim, Dim]] = {}
    for node in post_order(root):
        if isinstance(node, Var):
            done[id(node)] = ranges[node]
            continue
        if isinstance(node, IntImm):
            done[id(node)] = (node.value, node.value)
            continue
        kids = [done[id(c)] for c in node.children()]
        match node:
            case Add():
                (a, b), (c, d) = kids
                done[id(node)] = (a + c, b + d)
            case Sub():
                (a, b), (c, d) = kids
                done[id(node)] = (a - d, b - c)
            case Mul():
                (a, b), (c, d) = kids
                ends = [a * c, a * d, b * c, b * d]
                if all(isinstance(e, int) for e in ends):
                    done[id(node)] = (min(ends), max(ends))
                elif isinstance(c, int) and c == d:
                    done[id(node)] = (a * c, b * c) if c >= 0 else (b * c, a * c)
                elif isinstance(a, int) and a == b:
                    done[id(node)] = (a * c, a * d) if a >= 0 else (a * d, a * c)
                else:
                    raise _unknown(node)
            case FloorDiv():
                (a, b), by = kids[0], _divisor(node)
                done[id(node)] = (a // by, b // by)
            case FloorMod():
                # As in TVM: remainders have all of their places, whatever the dimension.
                done[id(node)] = (0, _divisor(node) - 1)
            case _:
                raise _unknown(node)
    return done[id(root)]


def _values(root: PrimExpr, env: Mapping[Var, Any]) -> Any:
    """The values of an index for arrays, or expressions, of the initial ones."""
    done: dict[int, Any] = {}
    for node in post_order(root):
        if isinstance(node, Var):
            done[id(node)] = env[node]
            continue
        if isinstance(node, IntImm):
            done[id(node)] = node.value
            continue
        a, b = (done[id(c)] for c in node.children())
        match node:
            case Add():
                done[id(node)] = a + b
            case Sub():
                done[id(node)] = a - b
            case Mul():
                done[id(node)] = a * b
            case FloorDiv():
                done[id(node)] = a // _divisor(node)
            case FloorMod():
                done[id(node)] = a % _divisor(node)
            case _:
                raise _unknown(node)
    return done[id(root)]
