"""Convolutions taken apart into their windows: what the passes that do so share.

A *tap* is a place in the window; the pixels under it, one for each pixel of the result, are a
strided slice of the padded image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    Op,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of

# Larger windows make programs that take long to compile.
MAX_TAPS = 49
CONV = "relax.nn.conv2d"
LAYOUTS = ("NHWC", "HWIO", "NHWC")


class Windows:
    """A call of ``nn.conv2d`` in NHWC and HWIO whose shapes are known, and what takes its place.

    image, weight, result: the dimensions; out: bindings made so far
    """

    def __init__(self, var: Var, call: Call) -> None:
        self.var, self.call, self.attrs = var, call, call_attrs(call)
        self.image, self.weight, self.result = (_dims(v) for v in (*call.args, call))
        self.out: list[Binding] = []
        self._padded: Expr | None = None

    def bind(self, name: str, value: Call) -> Var:
        """A new variable for ``value``, named after the convolution's."""
        made = type(self.var)(f"{self.var.name_hint}_{name}", value.struct_info, self.var.span)
        self.out.append(VarBinding(made, value, self.var.span))
        return made

    def shifted(self, i: int, j: int) -> Var:
        """The pixels under tap (i, j), in the shape of the result but with the image's channels."""
        if self._padded is None:
            top, left, bottom, right = self.attrs["padding"]
            self._padded = self.call.args[0]
            if any((top, left, bottom, right)):
                widths = [0, 0, top, bottom, left, right, 0, 0]
                self._padded = self.bind("pad", op("nn.pad", self._padded, widths))
        strides, dilation = self.attrs["strides"], self.attrs["dilation"]
        begin = [at * step for at, step in zip((i, j), dilation, strict=True)]
        sizes = zip(begin, self.result[1:3], strides, strict=True)
        end = [b + (size - 1) * stride + 1 for b, size, stride in sizes]
        return self.bind("shifted", _slice(self._padded, [1, 2], begin, end, strides))

    def taps(self, rows: tuple[int, int], columns: tuple[int, int]) -> Call:
        """The weight in these ranges of the window."""
        begin, end = zip(rows, columns, strict=True)
        return _slice(self.call.args[1], [0, 1], begin, end, [1, 1])


def expand_convolutions(
    func: Function, suits: Callable[[Windows], bool], expand: Callable[[Windows], Call]
) -> Function:
    """``func`` with what ``expand`` makes of the convolutions that suit; itself if none does.

    Only ungrouped or depthwise windows of 2 to ``MAX_TAPS`` taps in float32 and float64: products
    in half precision would be summed in half precision.
    """
    if not any(is_op(b.value, CONV) for b in bindings_of(func.body) if isinstance(b, VarBinding)):
        return func
    blocks: list[BindingBlock] = []
    changed = False
    for block in func.body.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            windows = _windows(b)
            if windows is None or not suits(windows):
                out.append(b)
                continue
            value = expand(windows)
            out += [*windows.out, VarBinding(windows.var, value, b.span)]
            changed = True
        blocks.append(type(block)(out, block.span))
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span)) if changed else func


def op(name: str, *args: object, **kw: Any) -> Call:
    """A call of the Relax operator of that name."""
    return Op.get(f"relax.{name}")(*args, **kw)


def _slice(x: Expr, axes: Any, begin: Any, end: Any, strides: Any) -> Call:
    given = {"axes": axes, "begin": [*begin], "end": [*end], "strides": [*strides]}
    return op("strided_slice", x, **given)


def _windows(b: Binding) -> Windows | None:
    if not isinstance(b, VarBinding) or not isinstance(b.value, Call) or not is_op(b.value, CONV):
        return None
    attrs, infos = call_attrs(b.value), [v.struct_info_ for v in (*b.value.args, b.value)]
    if not all(isinstance(i, TensorStructInfo) and _is_static(i) for i in infos):
        return None
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or LAYOUTS[2])
    dtypes = {i.dtype for i in infos if isinstance(i, TensorStructInfo)}
    if layouts != LAYOUTS or dtypes not in ({"float32"}, {"float64"}):
        return None
    made = Windows(b.var, b.value)
    return made if 1 < made.weight[0] * made.weight[1] <= MAX_TAPS else None


def _is_static(info: TensorStructInfo) -> bool:
    return info.dims is not None and all(isinstance(d, int) for d in info.dims)


def _dims(value: Expr) -> list[int]:
    """The dimensions of a value whose shape is known."""
    info = value.struct_info
    assert isinstance(info, TensorStructInfo)
    return [d for d in info.dims or () if isinstance(d, int)]
