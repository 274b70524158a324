"""Which elements of a result are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np


def first_wrong(good: Any) -> tuple[int, ...]:
    """Where the first element is that is not ``good``."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmin(good)), good.shape))


def told(good: Any, found: Any, wanted: Any) -> str:
    """How many elements are not ``good``, and what the first of them is."""
    at = first_wrong(good)
    count = int((~good).sum())
    return f"{count} of {good.size} elements; at {at} {found[at]!r} instead of {wanted[at]!r}"
