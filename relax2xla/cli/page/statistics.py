"""What a page says of weights: least, largest, mean, spread, and a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.cli.page.graph import brief_info, clipped
from relax2xla.ir import Constant

#: Elements that are read of all weights together, and of one at least and at most.
BUDGET: Final = 1 << 27
LEAST, MOST = 1 << 10, 1 << 22
BINS: Final = 32
# A sample is read in runs of this many elements, since weights may lie in a file.
_RUN: Final = 1 << 8


def weight_rows(weights: Sequence[Constant], names: Sequence[str]) -> list[dict[str, Any]]:
    """A row of plain data for each weight."""
    each = min(MOST, max(LEAST, BUDGET // max(1, len(weights))))
    return [
        {
            "name": name or f"constant {i}",
            "info": clipped(brief_info(w.struct_info_)),
            "bytes": int(w.data.nbytes),
            "elements": int(w.data.size),
            **statistics(w.data, each),
        }
        for i, (w, name) in enumerate(zip(weights, names, strict=True))
    ]


def statistics(data: npt.NDArray[Any], most: int = MOST) -> dict[str, Any]:
    """Statistics of the finite elements of ``data``, of a sample where it has more than ``most``.

    ``read`` is how many elements were looked at; of complex numbers these are absolute values.
    Arrays of what has no order have none.
    """
    values = sample(data, most)
    if values.dtype.kind == "c":
        values = np.abs(values)
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError):  # strings, objects
        return {}
    finite = values[np.isfinite(values)]
    made: dict[str, Any] = {"read": int(values.size), "special": int(values.size - finite.size)}
    if not finite.size:
        return made
    low, high = float(finite.min()), float(finite.max())
    made |= {"min": low, "max": high, "zeros": int((finite == 0).sum())}
    # Scaled, so that neither sums nor squares of the largest numbers overflow.
    scale = max(abs(low), abs(high)) or 1.0
    scaled = finite / scale
    made |= {"mean": float(scaled.mean()) * scale, "std": float(scaled.std()) * scale}
    ends = (low / scale, high / scale)
    if ends[1] - ends[0] > 1e-12:
        made["histogram"] = [int(n) for n in np.histogram(scaled, BINS, ends)[0]]
    return made


def sample(data: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    """All elements as a vector, or about ``most`` in runs that are spread evenly; never a copy of
    all of a large array."""
    if data.size <= most or 0 in data.strides:
        # A stride of 0 is one value many times; its distinct elements are few.
        distinct = data[tuple(slice(1) if s == 0 else slice(None) for s in data.strides)]
        if distinct.size <= most:
            return distinct.reshape(-1)
        data = distinct
    runs = max(1, most // _RUN)
    if not data.flags.c_contiguous:
        at = np.linspace(0, data.size - 1, most).astype(np.int64)
        return data[np.unravel_index(at, data.shape)]
    flat = data.reshape(-1)
    starts = np.linspace(0, data.size - _RUN, runs).astype(np.int64)
    return np.concatenate([flat[s : s + _RUN] for s in starts])
