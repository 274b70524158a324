"""Values around a tensor, and between its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.shared import known, of_dtype, size, want_one_of


def _widths(data: te.Tensor, before: Any, after: Any, what: str) -> tuple[list[Any], list[Any]]:
    first = list(before)
    last = list(after) if after is not None else first
    if len(first) != data.ndim or len(last) != data.ndim:
        raise ValueError(
            f"topi.nn.{what}: {len(first)} widths before and {len(last)} after {data.ndim} axes"
        )
    return first, last


def _padded(data: te.Tensor, first: Sequence[Any], last: Sequence[Any]) -> list[Any]:
    return [size(n + b + a) for n, b, a in zip(data.shape, first, last, strict=True)]


def pad(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
    attrs: dict[str, Any] | None = None,
) -> te.Tensor:
    """``pad_value`` around ``data``, as many on each side of each axis as the widths say."""
    first, last = _widths(data, pad_before, pad_after, "pad")
    value = of_dtype(pad_value, data.dtype)

    def element(*i: Any) -> Any:
        at: list[Any] = []
        inside: list[Any] = []
        for v, n, b, a in zip(i, data.shape, first, last, strict=True):
            if known(b) == 0 and known(a) == 0:
                at.append(v)
                continue
            at.append(v - b if known(b) != 0 else v)
            inside += [v >= b, v < n + b]
        if not inside:
            return data(*at)
        return tir.if_then_else(tir.all(*inside), data(*at), value)

    return te.compute(_padded(data, first, last), element, name, "injective,pad", attrs)


def mirror_pad(
    data: te.Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> te.Tensor:
    """``data`` mirrored around itself; the element at the border twice if "SYMMETRIC"."""
    want_one_of(mode, ("SYMMETRIC", "REFLECT"), "nn.mirror_pad: mode")
    first, last = _widths(data, pad_before, pad_after, "mirror_pad")
    twice = int(mode == "SYMMETRIC")

    def element(*i: Any) -> Any:
        at: list[Any] = []
        for v, n, b, a in zip(i, data.shape, first, last, strict=True):
            if known(b) == 0 and known(a) == 0:
                at.append(v)
                continue
            own = v - b
            own = tir.if_then_else(
                v >= n + b, (n - 1) * 2 - own + twice, tir.if_then_else(v < b, -own - twice, own)
            )
            at.append(own)
        return data(*at)

    return te.compute(_padded(data, first, last), element, name)


def dilate(
    data: te.Tensor,
    strides: Sequence[int],
    dilation_value: float = 0.0,
    name: str = "DilatedInput",
) -> te.Tensor:
    """``strides - 1`` times ``dilation_value`` between the elements of each axis."""
    if len(strides) != data.ndim:
        raise ValueError(f"topi.nn.dilate: {len(strides)} strides of {data.ndim} axes")
    value = of_dtype(dilation_value, data.dtype)

    def element(*i: Any) -> Any:
        here = [tir.EQ.make(v % s, 0) for v, s in zip(i, strides, strict=True) if known(s) != 1]
        read = data(*(v // s for v, s in zip(i, strides, strict=True)))
        return tir.if_then_else(tir.all(*here), read, value) if here else read

    shape = [size((n - 1) * s + 1) for n, s in zip(data.shape, strides, strict=True)]
    return te.compute(shape, element, name, "injective")
