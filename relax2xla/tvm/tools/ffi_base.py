"""What ``tvm._ffi.base`` of TVM 0.20 has beside its errors."""

from __future__ import annotations


def py_str(text: bytes) -> str:
    """The text of bytes in UTF-8, such as a compiler's output."""
    return text.decode("utf-8")
