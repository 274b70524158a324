"""Layouts of images and kernels, in which an axis may be packed: ``NCHW4c``, ``OIHW16i16o``.

A capital letter is an axis. A small one, behind a number, is the inner part of the axis of that
letter: of ``NCHW4c`` the channels are C blocks of 4, and channel ``4 * C + c`` lies at (C, c). What
is packed is computed in the plain layout, the capital letters in their order. Source: TVM's
``tir.Layout``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Var
from relax2xla.ir.op import Rule
from relax2xla.ir.struct_info import Dims, TensorStructInfo
from relax2xla.op.shared.checks import fold, tensor, want_tensor
from relax2xla.op.shared.lowering import reshape, shape_of, static, transpose
from relax2xla.tir import Dim

_AXES = re.compile(r"([A-Z])|([1-9]\d*)([a-z])")


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a layout: a letter, and of an inner part its size (else 0)."""

    letter: str
    inner: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a layout, in order."""

    axes: tuple[Axis, ...]

    @staticmethod
    def of(text: str, name: str = "layout") -> Layout:
        """The layout that ``text`` names; OpError for what is none."""
        found: list[Axis] = []
        at = 0
        while at < len(text):
            part = _AXES.match(text, at)
            if part is None:
                break
            letter, size, inner = part.groups()
            found.append(Axis(letter) if letter else Axis(inner.upper(), int(size)))
            at = part.end()
        outer = [a.letter for a in found if not a.inner]
        parts = [a.letter for a in found if a.inner]
        wrong = at < len(text) or len({*outer}) < len(outer) or len({*parts}) < len(parts)
        if wrong or not {*parts} <= {*outer}:
            raise OpError(
                f"`{name}` must be letters such as NCHW, each once, or with inner parts of axes, "
                f"NCHW4c; got {text!r}"
            )
        return Layout(tuple(found))

    def __str__(self) -> str:
        return "".join(f"{a.inner}{a.letter.lower()}" if a.inner else a.letter for a in self.axes)

    @property
    def plain(self) -> str:
        """The layout without inner parts."""
        return "".join(a.letter for a in self.axes if not a.inner)

    def inner(self, letter: str) -> int:
        """The size of the inner part of an axis; 1 without one."""
        return next((a.inner for a in self.axes if a.inner and a.letter == letter), 1)

    def places(self) -> list[list[int]]:
        """Of each axis of :attr:`plain`, where it lies, and where its inner part does."""
        outer = {a.letter: i for i, a in enumerate(self.axes) if not a.inner}
        inner = {a.letter: i for i, a in enumerate(self.axes) if a.inner}
        return [[outer[x], *([inner[x]] if x in inner else [])] for x in self.plain]

    def packed_dims(self, plain: Dims) -> Dims:
        """The dimensions of a tensor with those of :attr:`plain`; OpError where they do not fit."""
        sizes = dict(zip(self.plain, plain, strict=True))
        return tuple(a.inner or self._blocks(a.letter, sizes[a.letter]) for a in self.axes)

    def _blocks(self, letter: str, size: Dim) -> Dim:
        inner = self.inner(letter)
        if isinstance(size, int) and size % inner:
            raise OpError(f"{size} ({letter} of {self}) cannot be packed in parts of {inner}")
        return fold(size // inner) if inner > 1 else size

    def plain_dims(self, dims: Dims, name: str) -> Dims:
        """The dimensions in :attr:`plain` of a tensor; OpError where an inner part has another."""
        for axis, dim in zip(self.axes, dims, strict=True):
            if axis.inner and isinstance(dim, int) and dim != axis.inner:
                raise OpError(f"`{name}` is {self}, but its axis {axis.letter.lower()} is {dim}")
        pairs = zip(self.axes, dims, strict=True)
        return tuple(fold(d * self.inner(a.letter)) for a, d in pairs if not a.inner)


def is_packed(*layouts: str | None) -> bool:
    """Whether one of ``layouts`` has inner parts of axes."""
    return any(c.isdigit() for text in layouts for c in text or "")


def plain_layout(text: str | None) -> str:
    """A layout without inner parts; "" of none."""
    return Layout.of(text).plain if text else ""


def plain_operand(value: Expr, layout: str, name: str) -> Var:
    """An operand of the shape that ``value`` has in the plain layout, for inference."""
    parsed = Layout.of(layout, f"layout of {name}")
    info = want_tensor(value, name, None, len(parsed.axes))
    dims = None if info.dims is None else parsed.plain_dims(info.dims, name)
    return Var(name, tensor(dims, info.dtype, len(parsed.plain), info))


def packed_info(info: TensorStructInfo, layout: str) -> TensorStructInfo:
    """The struct info of a result in ``layout``, from that in the plain one."""
    parsed = Layout.of(layout)
    dims = None if info.dims is None else parsed.packed_dims(info.dims)
    return tensor(dims, info.dtype, len(parsed.axes), info)


def unpacked(value: Expr, layout: str) -> Expr:
    """``value`` in the plain layout: inner parts behind their outer ones, as one axis."""
    parsed = Layout.of(layout)
    order = [i for parts in parsed.places() for i in parts]
    sizes = parsed.plain_dims(shape_of(value), "data")
    return reshape(transpose(value, order), static(sizes))


def packed(value: Expr, layout: str) -> Expr:
    """``value``, which is in the plain layout, with its axes cut and in the order of ``layout``."""
    parsed = Layout.of(layout)
    order = [i for parts in parsed.places() for i in parts]
    sizes = static(parsed.packed_dims(shape_of(value)))
    back = [order.index(i) for i in range(len(order))]
    return transpose(reshape(value, [sizes[i] for i in order]), back)


PlainRule: TypeAlias = tuple[TensorStructInfo, Callable[[Expr], Expr]]


def in_layouts(
    data: Expr,
    layout: str,
    out_layout: str | None,
    rule: Callable[[Expr, str, str | None], PlainRule],
) -> Rule:
    """The rule of an operator over one image, whose layouts may be packed.

    ``rule(data, layout, out_layout)`` gives struct info and lowering in plain layouts.
    """
    if not is_packed(layout, out_layout):
        info, lower = rule(data, layout, out_layout)
        return info, lambda: lower(data)
    out = out_layout or layout
    operand = plain_operand(data, layout, "data")
    info, lower = rule(operand, plain_layout(layout), plain_layout(out))
    return packed_info(info, out), lambda: packed(lower(unpacked(data, layout)), out)
