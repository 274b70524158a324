"""Values that tests compare, and what is asked of the machine that they run on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import numpy_dtype
from relax2xla.runtime.device import Device, device
from relax2xla.tvm.testing.machine import has_target

_TRUE: Final = ("y", "yes", "t", "true", "on", "1")
_FALSE: Final = ("n", "no", "f", "false", "off", "0")

IS_IN_CI: Final = os.environ.get("CI", "") == "true"
SKIP_SLOW_TESTS: Final = os.environ.get("SKIP_SLOW_TESTS", "").lower() in ("true", "1", "yes")
# What tests run on that name no targets; TVM_TEST_TARGETS, with semicolons, says others.
DEFAULT_TEST_TARGETS: Final = ["llvm", "cuda", "rocm"]


def main() -> None:
    """Run the tests of the file that calls this, with the arguments of the command line."""
    import pytest

    file: str = sys._getframe(1).f_globals["__file__"]  # pyright: ignore[reportPrivateUsage]
    sys.exit(pytest.main([file, *sys.argv[1:]]))


def device_enabled(target: Any) -> bool:
    """Whether tests run on ``target``: it is one of those wanted, and this machine has it."""
    kind = str(target).split()[0]
    return kind in {wanted.split()[0] for wanted in _wanted()} and has_target(kind)


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that tests run on, each with its device."""
    return [(target, device(target)) for target in _wanted() if has_target(target)]


def _wanted() -> list[str]:
    named = os.environ.get("TVM_TEST_TARGETS", "").split(";")
    return list(dict.fromkeys(t.strip() for t in named if t.strip())) or DEFAULT_TEST_TARGETS


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Mapping[str, Any] | Sequence[Any],
    grad_values: Mapping[str, Any] | Sequence[Any],
    function_value: Any = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Compare gradients of a function whose value is one number with central differences.

    input_values: arrays, one an argument, or by an argument's name; grad_values: alike
    function_value: accepted; both sides of a difference are computed here
    Raises AssertionError where the gradient of an argument is further away than ``atol`` an element
    and ``rtol`` of its length (in the Euclidean norm).
    """
    if isinstance(input_values, Mapping):
        names: list[Any] = list(input_values)
    else:
        names = list(range(len(input_values)))
    values = {name: np.array(input_values[name]) for name in names}
    by_name = isinstance(input_values, Mapping)

    def value() -> float:
        made = function(**values) if by_name else function(*values.values())
        return float(np.asarray(made))

    for name, x in values.items():
        given = np.asarray(grad_values[name])
        if given.shape != x.shape:
            raise AssertionError(
                f"argument {name} has the shape {x.shape}, its gradient {given.shape}"
            )
        measured = np.zeros(x.shape)
        for place in np.ndindex(*x.shape):
            kept = x[place]
            x[place] = kept + delta
            above = value()
            x[place] = kept - delta
            measured[place] = (above - value()) / (2 * delta)
            x[place] = kept
        distance = float(np.linalg.norm(measured - given))
        length = max(float(np.linalg.norm(measured)), float(np.linalg.norm(given)))
        allowed = atol * x.size**0.5 + rtol * length
        if not distance <= allowed:
            raise AssertionError(
                f"the gradient of argument {name} is {distance:.3g} from central differences; "
                f"{allowed:.3g} are allowed:\n{given}\nby differences:\n{measured}"
            )


def np_dtype_from_str(dtype: str) -> np.dtype[Any]:
    """numpy's dtype of that name, those of ml_dtypes included."""
    return numpy_dtype(dtype)


def generate_random_array(dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Random bits as finite numbers of ``dtype``, from numpy's global generator."""
    kind = numpy_dtype(dtype)
    made = np.zeros(shape, kind)
    missing = np.ones(shape, bool)
    while missing.any():
        drawn = np.frombuffer(np.random.bytes(int(missing.sum()) * kind.itemsize), kind)
        made[missing] = drawn
        with np.errstate(invalid="ignore"):  # signalling NaNs are among what is drawn
            missing = ~np.isfinite(made)
    return made


def get_dtype_range(dtype: str) -> tuple[Any, Any]:
    """The least and the greatest number of ``dtype``; TypeError where it has no numbers."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        info: Any = np.finfo(kind)
    elif kind.kind in "iu":
        info = np.iinfo(kind)
    else:
        raise TypeError(f"dtype {dtype!r} is neither of integers nor of floating-point numbers")
    return info.min, info.max


def strtobool(val: str) -> int:
    """1 for a word that says yes, 0 for one that says no; ValueError for others."""
    word = val.lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(f"{val!r} is no truth value; known: {', '.join(_TRUE + _FALSE)}")
    return int(word in _TRUE)
