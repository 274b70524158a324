"""What the tables of kernels are made of: a script, its arguments, and what numpy says."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A kernel: ``expected`` of the arguments gives the written buffers, in order of parameters.

    ``forms``: rows that must be among what the kernel became; ``loops``: how many ``while`` it may
    take.
    """

    name: str
    text: str
    inputs: Callable[[np.random.Generator], Sequence[Any]]
    expected: Callable[..., Any]
    forms: tuple[str, ...] = ()
    loops: int = 0
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return self.name


def script(parameters: str, body: str) -> str:
    """The text of a kernel: its parameters and the statements."""
    statements = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return f"@T.prim_func\ndef main({parameters}):\n{statements}\n"


def buffers(**shapes: tuple[Any, ...]) -> str:
    """Parameters: ``A=(4, 6)`` is a float32 buffer, ``A=(4, 6, "int32")`` one of int32."""
    made: list[str] = []
    for name, shape in shapes.items():
        dtype = shape[-1] if shape and isinstance(shape[-1], str) else "float32"
        sizes = [d for d in shape if not isinstance(d, str)]
        text = "".join(f"{d}, " for d in sizes)
        made.append(f'{name}: T.Buffer(({text}), "{dtype}")')
    return ", ".join(made)


def arrays(*shapes: tuple[Any, ...], low: float = -2.0, high: float = 2.0) -> Any:
    """A function that makes arguments of these shapes, dtypes as in :func:`buffers`."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        return [array(rng, shape, low, high) for shape in shapes]

    return make


def array(
    rng: np.random.Generator, shape: tuple[Any, ...], low: float = -2.0, high: float = 2.0
) -> np.ndarray:
    """One argument."""
    dtype = shape[-1] if shape and isinstance(shape[-1], str) else "float32"
    sizes = tuple(d for d in shape if not isinstance(d, str))
    if dtype == "bool":
        return rng.integers(0, 2, sizes).astype(bool)
    if "int" in dtype:
        least = max(int(low), 0) if dtype.startswith("u") else int(low)
        return rng.integers(least, max(int(high), least + 1), sizes).astype(dtype)
    return np.asarray(rng.random(sizes) * (high - low) + low).astype(dtype)


def kernel(
    name: str,
    shapes: dict[str, Any],
    body: str,
    expected: Any,
    outputs: int = 1,
    low: float = -2.0,
    high: float = 2.0,
    **more: Any,
) -> Case:
    """``shapes``: parameters in order, the last ``outputs`` of them are written."""
    given, out = list(shapes.values())[:-outputs], list(shapes.values())[-outputs:]

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        return [*arrays(*given, low=low, high=high)(rng), *(zeros(*s) for s in out)]

    return Case(
        name,
        script(buffers(**shapes), body),
        inputs,
        lambda *args: expected(*args[:-outputs]),
        **more,
    )


def kernel_on(
    name: str,
    shapes: dict[str, Any],
    body: str,
    inputs: Any,
    expected: Any,
    **more: Any,
) -> Case:
    """A kernel whose arguments ``inputs`` gives, all of them."""
    return Case(name, script(buffers(**shapes), body), inputs, expected, **more)


def zeros(*shape: Any) -> np.ndarray:
    """An argument that is written: a shape, and after it a dtype that is not float32."""
    dtype = shape[-1] if shape and isinstance(shape[-1], str) else "float32"
    return np.zeros(tuple(d for d in shape if not isinstance(d, str)), dtype)


def ints(rng: np.random.Generator, shape: tuple[int, ...], below: int) -> np.ndarray:
    """Indices, from 0."""
    return rng.integers(0, below, shape).astype("int32")
