"""What the random calls share: values, layouts, and tables from an operator's name to its draw.

A draw takes Hypothesis's ``draw`` and the operator's name, and gives one call with its truth.
``one_of_each`` puts every operator of a table into one compiled program, so that each run of the
tests calls each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st

from relax2xla.dtypes import numpy_dtype
from relax2xla.ir import Op
from tests.op.harness import Case, calling

Draw = Callable[[Any, str], Case]

FLOATS = ("float32", "float64", "bfloat16", "float16")
WIDE = ("float32", "float64")
INTS = ("int32", "int64")
ANY = (*WIDE, *INTS, "int8", "uint8", "bool")
TOL = {"float32": 2e-4, "float64": 1e-10, "bfloat16": 4e-2, "float16": 5e-3}
SPACE = {1: "W", 2: "HW", 3: "DHW"}
RNG = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def examples(count: int) -> settings:
    """So many programs. None is shrunk: a failure names its calls, and each try compiles."""
    return settings(max_examples=count, phases=(Phase.explicit, Phase.reuse, Phase.generate))


def one_of_each(table: Mapping[str, Draw], times: int = 1) -> st.SearchStrategy[list[Case]]:
    """So many calls of every operator of a table."""

    @st.composite
    def made(draw: Any) -> list[Case]:
        return [table[name](draw, name) for name in table for _ in range(times)]

    return made()


def array(draw: Any, shape: Any, dtype: str) -> Any:
    """Small values, which sums of a dtype hold; float ones are those the dtype has."""
    rng = draw(RNG)
    kind = numpy_dtype(dtype)
    if kind.kind in "iub":
        low, high = {"b": (0, 2), "u": (0, 9), "i": (-9, 9)}[kind.kind]
        return rng.integers(low, high, shape).astype(kind)
    return rng.uniform(-1, 1, shape).astype(kind)


def one_of(draw: Any, *values: Any) -> Any:
    return draw(st.sampled_from(values))


def number(draw: Any, low: int, high: int) -> int:
    return draw(st.integers(low, high))


def shape_of(draw: Any, least: int = 0, most: int = 3, low: int = 0, high: int = 4) -> Any:
    """Sizes of ``least`` to ``most`` axes."""
    return tuple(draw(st.lists(st.integers(low, high), min_size=least, max_size=most)))


def axis_of(draw: Any, x: Any) -> int:
    """An axis, from the front or from the end."""
    return number(draw, -x.ndim, x.ndim - 1)


def moved(x: Any, source: str, target: str) -> Any:
    """``x`` with its named axes in another order."""
    return np.ascontiguousarray(np.transpose(x, [source.index(a) for a in target]))


def shuffled(draw: Any, names: str) -> str:
    return "".join(draw(st.permutations(names)))


def exact(x: Any) -> torch.Tensor:
    """As float64 tensor."""
    return torch.from_numpy(np.asarray(x).astype("float64"))


def call_of(name: str, *options: Any, **attrs: Any) -> Callable[..., Any]:
    """The operator with options behind its operands."""
    return calling(Op.get(f"relax.{name}"), *options, **attrs)


def case(label: str, make: Any, inputs: Any, want: Any, dtype: str) -> Case:
    """A call whose result is rounded to ``dtype`` from a wider one."""
    tol = TOL.get(dtype)
    made = np.asarray(want).astype(numpy_dtype(dtype))
    return Case(f"{label} {dtype}", make, inputs, made, tol, (tol or 0.0) * 2)


def same(label: str, make: Any, inputs: Any, want: Any) -> Case:
    """A call whose result has the bits of ``want``."""
    return Case(label, make, inputs, want, 0)
