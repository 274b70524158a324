"""Calls of functions in C++ that the library brings: what families of them share.

A call is written into programs as a composite: its name, its attributes, and its form in rows.
Files may bring composites, so everything is checked here before memory is touched.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from relax2xla import processor

#: What may follow a sum in one call, in the order of ``Ending`` in activations.h.
ENDINGS: Final = (
    *("", "relu", "relu6", "hardswish", "sigmoid", "silu", "gelu", "gelu_tanh"),
    "hardsigmoid",
)
#: Taps of a window in all, and how far windows, taps and borders may be from each other.
TAPS: Final = 1 << 10
FAR: Final = 1 << 20
# Elements of a tensor; sizes and distances are counted in 64 bits, and a call takes memory.
_MOST_ELEMENTS: Final = (1 << 31) - 1


class Tensor(NamedTuple):
    """The kind of an operand or of a result."""

    shape: tuple[int, ...]
    dtype: str


class Call(Protocol):
    """A call of the function."""

    name: ClassVar[str]
    symbol: ClassVar[str]

    @property
    def attributes(self) -> dict[str, Any]:
        """Of the composite: what :meth:`Family.read` makes the call of."""
        ...

    @property
    def operands(self) -> list[Tensor]:
        """What the call takes."""
        ...

    @property
    def result(self) -> Tensor:
        """What the call gives."""
        ...

    @property
    def numbers(self) -> Sequence[int | float]:
        """What the function in C++ takes behind the operands."""
        ...

    def problem(self) -> str:
        """What is wrong with the call by itself; "" for nothing."""
        ...


class Plain:
    """A call of which its operands say all: without attributes and numbers."""

    __slots__ = ()

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {}

    @property
    def numbers(self) -> list[int | float]:
        """See :class:`Call`."""
        return []


#: Makes the call that a composite asks for, of its attributes, its operands and its first result;
#: where they are of another kind it may raise what indexing and conversions raise.
Reader: TypeAlias = Callable[[Mapping[str, Any], Sequence[Tensor], Tensor], Call]


@dataclass(frozen=True, eq=False)
class Family:
    """The calls of the functions of one library, and how that is compiled.

    name: how its composites are named, behind ``relax2xla.``; readers: of each kind of call.
    source, headers: of ``runtime/include/relax2xla``. flags: what the compiler is told of this
    processor. runs_here: whether the library for this processor has what a call is for.
    in_place: whether the result lies where the first operand does, of which XLA makes a copy where
    something else reads it. further: what a call gives behind its result. needed: whether a user is
    warned where there is no library; the forms in rows are much slower.
    """

    name: str
    readers: Mapping[type[Call], Reader]
    source: str
    headers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    flags: Callable[[], tuple[str, ...]] = tuple
    runs_here: Callable[[Call], bool] = lambda call: True
    in_place: Callable[[Call], bool] = lambda call: False
    further: Callable[[Call], Sequence[Tensor]] = lambda call: ()
    needed: bool = False

    @property
    def prefix(self) -> str:
        """How the names of composites begin that are calls."""
        return f"relax2xla.{self.name}."

    @property
    def forms(self) -> str:
        """What the names of functions hold that are their forms in rows."""
        return f"__{self.name}_form_"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions of the library, by name."""
        return tuple(kind.symbol for kind in self.readers)

    def results(self, call: Call) -> list[Tensor]:
        """All that a call gives."""
        return [call.result, *self.further(call)]

    def read(
        self,
        name: str,
        attributes: Mapping[str, Any],
        operands: Sequence[Tensor],
        results: Sequence[Tensor],
    ) -> Call | str:
        """The call that a composite asks for, or what is wrong; for what files may bring."""
        make = next((r for kind, r in self.readers.items() if kind.name == name), None)
        if make is None:
            return f"there is no call {name}"
        if not operands or not results:
            return "it takes operands, and gives results"
        try:
            call = make(attributes, operands, results[0])
            problem = call.problem()
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError) as e:
            return f"its attributes are not those of {name} ({e!r})"
        if problem:
            return problem
        if call.operands != list(operands) or self.results(call) != list(results):
            return "its operands and its results are not those that its attributes say"
        if any(math.prod(t.shape) > _MOST_ELEMENTS for t in (*operands, *results)):
            return f"its tensors have at most {_MOST_ELEMENTS} elements"
        return call


def pair(given: Any) -> tuple[int, int]:
    """An attribute that is two whole numbers; ValueError or TypeError for another."""
    a, b = map(int, given)
    return a, b


def four(given: Any) -> tuple[int, int, int, int]:
    """An attribute that is four whole numbers; ValueError or TypeError for another."""
    a, b, c, d = map(int, given)
    return a, b, c, d


def is_measured() -> bool:
    """Whether calls were measured beside their forms in rows on processors of this kind."""
    return processor.kind() in ("avx2", "avx512")


@functools.cache
def may_call() -> bool:
    """Whether this machine can have the functions: they are compiled where they are needed.

    What it does not do is to try: a compiler that fails leaves the forms in rows.
    """
    known = sys.platform.startswith(("linux", "darwin")) and platform.machine() in (
        *("x86_64", "AMD64"),
        *("aarch64", "arm64"),
    )
    command = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    return known and any(shutil.which(name) for name in command)
