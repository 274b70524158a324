"""Convolutions, pools and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla import te, topi
from relax2xla.ir import Expr
from relax2xla.transform.lower.te_forms.table import (
    Form,
    Site,
    Stays,
    as_list,
    form,
    one_layout,
    shape_of,
)

_CONVOLUTIONS: Final[dict[str, Callable[..., te.Tensor]]] = {
    "conv1d": topi.nn.conv1d,
    "conv2d": topi.nn.conv,
    "conv3d": topi.nn.conv,
}
_LETTERS: Final = {1: "W", 2: "HW", 3: "DHW"}


def _want_known_channels(s: Site, data_layout: str, kernel_layout: str) -> None:
    """Groups are told apart by numbers."""
    sizes = (
        shape_of(s.x).values[data_layout.index("C")],
        shape_of(s.args[1]).values[kernel_layout.index("O")],
    )
    if s.attrs["groups"] != 1 and not all(isinstance(d, int) for d in sizes):
        raise Stays("it has groups, and a symbolic number of channels")


def _convolution(name: str) -> Form:
    def rule(s: Site) -> Expr:
        one_layout(s, "data_layout")
        layouts: list[str] = [s.attrs["data_layout"], s.attrs["kernel_layout"]]
        if any(len(layout) != int(name[4]) + 2 for layout in layouts):
            raise Stays(f"channels are split in {' or '.join(layouts)}")
        _want_known_channels(s, *layouts)
        strides, padding, dilation = (
            as_list(s.attrs[n]) for n in ("strides", "padding", "dilation")
        )
        return s.te(
            *(_CONVOLUTIONS[name], *s.args, strides, padding, dilation, s.attrs["groups"]),
            *(*layouts, s.attrs["out_dtype"]),
            name=name,
        )

    return rule


for _name in _CONVOLUTIONS:
    form(f"relax.nn.{_name}")(_convolution(_name))

_TRANSPOSED: Final[dict[int, Callable[..., te.Tensor]]] = {
    1: topi.nn.group_conv1d_transpose_ncw,
    2: topi.nn.group_conv2d_transpose_nchw,
    3: topi.nn.group_conv3d_transpose_ncdhw,
}


def _transposed(rank: int) -> Form:
    def rule(s: Site) -> Expr:
        one_layout(s, "data_layout")
        wanted = f"NC{_LETTERS[rank]}", f"IO{_LETTERS[rank]}"
        layouts = s.attrs["data_layout"], s.attrs["kernel_layout"]
        if layouts != wanted:
            raise Stays(f"its layouts are {layouts}, not {wanted}")
        if any(d != 1 for d in s.attrs["dilation"]):
            raise Stays("it is dilated")
        strides, padding, extra = (
            as_list(s.attrs[n]) for n in ("strides", "padding", "output_padding")
        )
        return s.te(
            *(_TRANSPOSED[rank], *s.args),
            stride=strides,
            padding=padding,
            out_dtype=s.dtype,
            output_padding=extra,
            groups=s.attrs["groups"],
            name=f"conv{rank}d_transpose",
        )

    return rule


for _rank in _TRANSPOSED:
    form(f"relax.nn.conv{_rank}d_transpose")(_transposed(_rank))

_POOLS: Final[dict[int, Callable[..., te.Tensor]]] = {
    1: topi.nn.pool1d,
    2: topi.nn.pool2d,
    3: topi.nn.pool3d,
}


def _pool(kind: str, rank: int) -> Form:
    def rule(s: Site) -> Expr:
        one_layout(s, "layout")
        window = ("pool_size", "strides", "dilation", "padding")
        kernel, stride, dilation, padding = (as_list(s.attrs[n]) for n in window)
        counted = {} if kind == "max" else {"count_include_pad": s.attrs["count_include_pad"]}
        return s.te(
            *(_POOLS[rank], s.x, kernel, stride, dilation, padding, kind),
            ceil_mode=s.attrs["ceil_mode"],
            layout=s.attrs["layout"],
            **counted,
            name=f"{kind}_pool{rank}d",
        )

    return rule


_ADAPTIVE: Final[dict[int, Callable[..., te.Tensor]]] = {
    1: topi.nn.adaptive_pool1d,
    2: topi.nn.adaptive_pool,
    3: topi.nn.adaptive_pool3d,
}


def _adaptive(rank: int) -> Form:
    def rule(s: Site) -> Expr:
        one_layout(s, "layout")
        layout, sizes = s.attrs["layout"], as_list(s.attrs["output_size"])

        def adaptive(data: te.Tensor, output_size: Any) -> te.Tensor:
            if output_size is None:  # those that there are
                output_size = [data.shape[layout.index(c)] for c in _LETTERS[rank]]
            return _ADAPTIVE[rank](data, output_size, "avg", layout)

        return s.te(adaptive, s.x, sizes, name=f"adaptive_avg_pool{rank}d")

    return rule


for _rank in _POOLS:
    for _kind in ("max", "avg"):
        form(f"relax.nn.{_kind}_pool{_rank}d")(_pool(_kind, _rank))
    form(f"relax.nn.adaptive_avg_pool{_rank}d")(_adaptive(_rank))


@form("relax.nn.pad")
def _(s: Site) -> Expr:
    if s.attrs["pad_mode"] != "constant":
        raise Stays(f"its pad_mode is {s.attrs['pad_mode']}")
    widths = list(s.attrs["pad_width"])
    value = s.attrs["pad_value"]
    return s.te(topi.nn.pad, s.x, pad_before=widths[::2], pad_after=widths[1::2], pad_value=value)
