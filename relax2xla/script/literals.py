"""Literals of TVMScript text: strings, floats, scalar constants."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import DTYPES

_SURROGATE = re.compile("[\ud800-\udfff]")


def quote(text: str) -> str:
    """A Python string literal in double quotes."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", quoted).replace("\x7f", "\\x7f")


def float_text(value: float) -> str:
    """A finite float with 17 digits, as TVM prints it; integral values with all theirs."""
    if value == int(value):
        return f"{value:.1f}"
    text = f"{value:.17g}"
    return text if "." in text or "e" in text else f"{text}.0"


def number(value: float) -> str:
    """A float of an attribute, infinities and NaN as calls of ``float``."""
    return float_text(value) if math.isfinite(value) else f'float("{value}")'


def scalar_text(data: npt.NDArray[Any], dtype: str) -> str | None:
    """The text inside ``R.const(..., dtype)``; None for what has no exact literal."""
    row = DTYPES.get(dtype)
    if data.ndim != 0 or row is None or data.dtype != row.numpy:
        return None
    if row.kind == "bool":
        return str(bool(data))
    if row.kind in ("int", "uint"):
        return str(int(data))
    if row.kind != "float":
        return None
    value = float(data)
    if math.isfinite(value):
        return float_text(value)
    text = quote(str(value))
    # A NaN has many bit patterns; only the one that the text gives back may be written as text.
    same = np.asarray(float(str(value))).astype(row.numpy).tobytes() == data.tobytes()
    return text if same else None
