"""Calls of the functions in C++ under the address sanitizer, in a process of their own.

Its argument is the processor that they are compiled for. What they give is compared with what
they give as they are compiled elsewhere.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from relax2xla.kernels import (
    attention,
    depthwise,
    gradients,
    moments,
    norms,
    products,
    recurrences,
    slices,
    squeezes,
    transposes,
)
from relax2xla.kernels.attention import MASKS
from relax2xla.kernels.integers import calls as integers
from relax2xla.kernels.integers.packing import Packing
from relax2xla.kernels.native import Call, Family
from relax2xla.kernels.recurrences import CELLS, Recurrence
from relax2xla.vm.pjrt import native_calls

from . import (
    test_attention,
    test_depthwise,
    test_gradients,
    test_integers,
    test_moments,
    test_norms,
    test_products,
    test_recurrences,
    test_slices,
    test_squeezes,
    test_transposes,
)
from .native_programs import Array, all_called

# Compiled in half the time that the options of users take: checks are calls.
SANITIZED: Final = (
    "-Og",
    "-g1",
    "-fsanitize=address",
    "--param=asan-instrumentation-with-call-threshold=0",
)
# Numbers of an operand; with more a call takes seconds, and does nothing that smaller ones do not.
_MOST: Final = 2_000_000


def of_products() -> Iterator[tuple[Call, list[Array]]]:
    """Weights in panels, and as they lie."""
    for call in test_products.ALL:
        yield call, test_products.case(call)[1]
    for call in test_products.GIVEN:
        for lies, scaled in itertools.product(test_products.lies_of(call), (False, True)):
            made, _, operands = test_products.given(call, lies, scaled)
            yield made, operands
    for call in test_products.PLANES:
        yield call, test_products.planes_of(call)[2]


def of_recurrences() -> Iterator[tuple[Call, list[Array]]]:
    """All cells, both ways."""
    sizes = test_recurrences.SIZES
    for cell, size, backwards in itertools.product(CELLS, sizes, (False, True)):
        call = Recurrence(cell, *size, test_recurrences.ORDERS[cell], backwards)
        yield call, test_recurrences.operands_of(call)


def of_depthwise() -> Iterator[tuple[Call, list[Array]]]:
    """Images by rows and by planes, and of products."""
    for call in test_depthwise.CONVOLUTIONS:
        for image, result in itertools.product(depthwise.LAYOUTS, repeat=2):
            made = replace(call, image_layout=image, result_layout=result)
            yield made, test_depthwise.operands_of(made)
    for call in test_depthwise.EXPANDED:
        yield call, test_depthwise.operands_of(call)


def of_attention() -> Iterator[tuple[Call, list[Array]]]:
    """Heads with and without a mask, and rotations."""
    for call in test_attention.CALLS:
        for mask in MASKS:
            masked = replace(call, mask=mask)
            yield masked, test_attention.operands_of(masked)
    for turned in test_attention.ROTATIONS:
        yield turned, test_attention.operands_of(turned)


def of_norms() -> Iterator[tuple[Call, list[Array]]]:
    """Rows of all lengths."""
    for call in test_norms.CALLS:
        yield call, test_norms.operands_of(call)
    for call in test_norms.GRADIENTS:
        yield call, test_norms.gradient_operands_of(call)


def of_squeezes() -> Iterator[tuple[Call, list[Array]]]:
    """Means of images, and gates made of them."""
    for call in test_squeezes.ALL:
        yield call, test_squeezes.operands_of(call)


def of_gradients() -> Iterator[tuple[Call, list[Array]]]:
    """Of weights in both layouts, and of matrices."""
    for call in (*test_gradients.ALL, *test_gradients.MATRICES):
        yield call, test_gradients.operands_of(call)


def of_transposes() -> Iterator[tuple[Call, list[Array]]]:
    """Whole blocks and parts of some."""
    for call in test_transposes.CALLS:
        yield call, test_transposes.operands_of(call)


def of_slices() -> Iterator[tuple[Call, list[Array]]]:
    """Whole vectors of channels and parts of some, and zeros."""
    for call in test_slices.CALLS:
        yield call, test_slices.operands_of(call)


def of_moments() -> Iterator[tuple[Call, list[Array]]]:
    """Rows and planes, whole vectors and parts of some."""
    for call in test_moments.CALLS:
        yield call, test_moments.operands_of(call)


def of_integers(by: Packing) -> Iterator[tuple[Call, list[Array]]]:
    """Windows of bytes, what is added to their sums, products, pools, and rounding."""
    for at, kind, dtype in itertools.product(
        range(len(test_integers.WINDOWS)), ("uint8", "int8"), ("int32", "uint8")
    ):
        call = test_integers.convolution(at, by, kind, dtype)
        weight, points = ("int8", False) if kind == "uint8" else ("uint8", True)
        yield call, test_integers.convolution_operands(call, weight, points)
    for at in (0, 2, 4, 5):
        yield test_integers.with_added_bytes(at, by, "uint8", "int8")
    for turned in (False, True):
        yield test_integers.product_of("uint8", "int8", "uint8", turned)
    yield test_integers.max_pool_of("int8")
    for count in (1, 15, 1001):
        yield from test_integers.sum_and_quantisation_of(count)


# Where the code depends on how weights lie, by processor.
_PACKINGS: Final = {"haswell": Packing(8, bytes=False), "skylake-avx512": Packing(16, bytes=False)}

CASES: Final = {
    products.FAMILY: of_products,
    recurrences.FAMILY: of_recurrences,
    depthwise.FAMILY: of_depthwise,
    attention.FAMILY: of_attention,
    norms.FAMILY: of_norms,
    squeezes.FAMILY: of_squeezes,
    gradients.FAMILY: of_gradients,
    transposes.FAMILY: of_transposes,
    slices.FAMILY: of_slices,
    moments.FAMILY: of_moments,
}


def check(family: Family, processor: str) -> int:
    """Calls of a family; how many they were."""
    count, by = 0, _PACKINGS[processor]
    of_bytes = family is integers.FAMILY
    flags = by.flags if of_bytes else family.flags()
    plain = native_calls.library(family, flags)
    checked = native_calls.library(family, (*flags, f"-march={processor}", *SANITIZED))
    for call, operands in of_integers(by) if of_bytes else CASES[family]():
        if max(x.size for x in operands) > _MOST:
            continue
        made, wanted = (
            all_called(functions, call, operands, family.results(call))
            for functions in (checked, plain)
        )
        for a, b in zip(made, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=repr(call))
        count += 1
    return count


if __name__ == "__main__":
    for one in (*CASES, integers.FAMILY):
        sys.stdout.write(f"{one.name} {check(one, sys.argv[1])}\n")
