"""Convolutions taken apart into their windows: what the passes that do so share.

A *tap* is a place in the window; the pixels under it, one for each pixel of the result, are a
strided slice of the padded image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Action, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, Op, TensorStructInfo, Var
from relax2xla.ir.op import call_attrs
from relax2xla.transform.cpu.apart import Apart, Bind

# Larger windows make programs that take long to compile.
MAX_TAPS = 49
CONV = "relax.nn.conv2d"
LAYOUTS = ("NHWC", "HWIO", "NHWC")


class Convolution:
    """A call of a convolution whose shapes are known, and what takes its place.

    var: the call's; bind: of what is computed on the way; image, weight, result: the dimensions
    """

    def __init__(self, call: Call, var: Var, bind: Bind) -> None:
        self.call, self.var, self.bind, self.attrs = call, var, bind, call_attrs(call)
        self.image, self.weight, self.result = (_dims(v) for v in (*call.args, call))

    @property
    def dtype(self) -> str:
        """Of the image, the weight and the result."""
        info = self.call.struct_info
        assert isinstance(info, TensorStructInfo)
        return info.dtype

    @property
    def layouts(self) -> tuple[str, str, str]:
        """Of the image, the weight and the result."""
        data: str = self.attrs["data_layout"]
        return data, self.attrs["kernel_layout"], self.attrs["out_layout"] or data


class Windows(Convolution):
    """A convolution of planes in NHWC and HWIO."""

    def __init__(self, call: Call, var: Var, bind: Bind) -> None:
        super().__init__(call, var, bind)
        self._padded: Expr | None = None

    def apart(self, apart: Apart, expand: Callable[[Windows], Expr]) -> Call:
        """What ``expand`` makes of it on the padded image, in a function of its own.

        The image is padded outside, where that is one loop with what makes the image.
        """
        attrs = {**self.attrs, "padding": (0, 0, 0, 0)}

        def body(params: list[Var], bind: Bind) -> Expr:
            inner = Call(self.call.op, params, attrs, struct_info=self.call.struct_info)
            return expand(Windows(inner, self.var, bind))

        return apart.call([self.padded, self.call.args[1]], body)

    @property
    def padded(self) -> Expr:
        """The image between its padding."""
        top, left, bottom, right = self.attrs["padding"]
        image = self.call.args[0]
        if not any((top, left, bottom, right)):
            return image
        return self.bind("pad", op("nn.pad", image, [0, 0, top, bottom, left, right, 0, 0]))

    def shifted(self, i: int, j: int, channel: int | None = None) -> Var:
        """The pixels under tap (i, j), in the shape of the result but with the image's channels.

        Or with that one channel of the image.
        """
        if self._padded is None:
            self._padded = self.padded
            if self._padded is not self.call.args[0]:
                # Without it XLA reads the taps that lie on no padding from what is padded, and
                # computes that once more for them.
                barrier = op("stablehlo.optimization_barrier", self._padded)
                self._padded = self.bind("padded", barrier)
        axes, (begin, end, strides) = [1, 2], self.pixels(i, j)
        if channel is not None:
            axes, begin, end = [1, 2, 3], [*begin, channel], [*end, channel + 1]
            strides = [*strides, 1]
        return self.bind("shifted", slice_of(self._padded, axes, begin, end, strides))

    def pixels(self, i: int, j: int) -> tuple[list[int], list[int], list[int]]:
        """Those under tap (i, j): begin, end and stride along rows and columns, when padded."""
        strides = [*self.attrs["strides"]]
        begin = [at * step for at, step in zip((i, j), self.attrs["dilation"], strict=True)]
        sizes = zip(begin, self.result[1:3], strides, strict=True)
        return begin, [b + (size - 1) * stride + 1 for b, size, stride in sizes], strides

    def tap(self, i: int, j: int) -> Call:
        """The weight of one tap."""
        return self.taps((i, i + 1), (j, j + 1))

    def taps(
        self, rows: tuple[int, int], columns: tuple[int, int], channel: int | None = None
    ) -> Call:
        """The weight in these ranges of the window, for all channels of the image or one."""
        ranges = [rows, columns] if channel is None else [rows, columns, (channel, channel + 1)]
        begin, end = zip(*ranges, strict=True)
        axes = list(range(len(ranges)))
        return slice_of(self.call.args[1], axes, begin, end, [1] * len(axes))


Kind = TypeVar("Kind", bound=Convolution)


def expand_convolutions(
    func: Function, suits: Callable[[Windows], bool], expand: Callable[[Windows], Expr]
) -> Function:
    """``func`` with what ``expand`` makes of the convolutions that suit; itself if none does.

    Only windows of 2 to ``MAX_TAPS`` taps.
    """

    def rewrite(w: Windows) -> Expr | None:
        if w.layouts != LAYOUTS or not 1 < w.weight[0] * w.weight[1] <= MAX_TAPS:
            return None
        return expand(w) if suits(w) else None

    return rewrite_convolutions(func, Windows, {CONV: rewrite})


def rewrite_convolutions(
    func: Function, kind: type[Kind], rewrites: Mapping[str, Callable[[Kind], Expr | None]]
) -> Function:
    """``func`` with other calls for convolutions, by the operator's name; itself if none changes.

    Only static shapes in float32 and float64: sums in half precision would be rounded each time.
    """

    def of(change: Callable[[Kind], Expr | None]) -> Action:
        return lambda m: change(kind(m.call, m.var, m.bind)) if is_known(m.call) else None

    rules = [
        Rule(is_op(name)(wildcard(), wildcard()), of(change)) for name, change in rewrites.items()
    ]
    return rewrite(func, rules, inside=False)[0]


def op(name: str, *args: object, **kw: Any) -> Call:
    """A call of the Relax operator of that name."""
    return Op.get(f"relax.{name}")(*args, **kw)


def slice_of(x: Expr, axes: Any, begin: Any, end: Any, strides: Any) -> Call:
    """``x`` from ``begin`` up to ``end`` along some axes."""
    given = {"axes": axes, "begin": [*begin], "end": [*end], "strides": [*strides]}
    return op("strided_slice", x, **given)


def is_known(call: Call) -> bool:
    """Whether operands and result have static shapes, all in float32 or all in float64."""
    infos = [v.struct_info_ for v in (*call.args, call)]
    if not all(isinstance(i, TensorStructInfo) and _is_static(i) for i in infos):
        return False
    dtypes = {i.dtype for i in infos if isinstance(i, TensorStructInfo)}
    return dtypes in ({"float32"}, {"float64"})


def _is_static(info: TensorStructInfo) -> bool:
    return info.dims is not None and all(isinstance(d, int) for d in info.dims)


def _dims(value: Expr) -> list[int]:
    """The dimensions of a value whose shape is known."""
    info = value.struct_info
    assert isinstance(info, TensorStructInfo)
    return [d for d in info.dims or () if isinstance(d, int)]
