"""CallDepthwise: depthwise convolutions, and gradients of their weights, as composites.

XLA:CPU has no fast road for ``groups == channels``; as sums of shifted products
(:class:`~relax2xla.transform.cpu.depthwise.ExpandDepthwise`) each pixel is read once for each tap.
A function in C++ reads it once for each row of the window: a 5x5 on 672 channels of 14x14 takes
0.07 ms instead of 0.27, a 7x7 on eight images of 64 channels of 28x28 0.36 ms instead of 1.28 (one
core with AVX-512). It takes images in either order, a bias, and activations behind it.

As with oneDNN (:mod:`relax2xla.transform.cpu.call_onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.dpl.make import is_const, is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_of
from relax2xla.kernels.depthwise import FAMILY, Convolution, WeightGradient
from relax2xla.kernels.native import may_call
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.depthwise import gradient_of, gradient_rows, in_its_order, is_depthwise
from relax2xla.transform.cpu.windows import LAYOUTS, Windows, is_known

_LAST, _FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
_COMPOSITE: Final = "relax.stablehlo.composite"
Described: TypeAlias = Convolution | WeightGradient

_x, _other = wildcard(), wildcard()
_three, _six = is_const(), is_const()
_moved = is_op("relax.add")(_x, _three)
_gate = is_op("relax.nn.relu6")(_moved)
_product = is_op("relax.multiply")(_x, _gate)
_hardswish = is_op("relax.divide")(_product, _six)


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallDepthwise(Pass):
    """Make composites of depthwise convolutions and of gradients of their weights, static shapes.

    In NHWC and HWIO, in float32; also images that such a convolution takes from NCHW, or gives
    back to it. Exact up to the order of the additions.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if not may_call():
            return mod
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            calls = _Calls(gvar.name_hint)
            new[gvar] = calls.function(func)
            new.update(calls.forms(new[gvar]))
        return mod.replace(new) if len(new) > len(mod.functions) else mod


class _Site(NamedTuple):
    """A composite for a convolution, and what it takes; ``bias``: None is none."""

    described: Convolution
    image: Expr
    weight: Expr
    bias: Expr | None


class _Calls:
    """The composites of one function."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sites: dict[Expr, _Site] = {}
        self.symbols: dict[Described, str] = {}

    def function(self, func: Function) -> Function:
        """``func`` with composites; itself where there is nothing to call."""
        rules = [
            Rule(is_op("relax.nn.conv2d")(_x, _other), self._convolution),
            Rule(is_op("relax.stablehlo.convolution")(_x, _other), self._gradient),
            Rule(is_op("relax.add")(_x, _other), self._biased),
            Rule(is_op("relax.nn.relu")(_x), lambda m: self._ended(m, "relu", 1)),
            Rule(is_op("relax.nn.relu6")(_x), lambda m: self._ended(m, "relu6", 1)),
            Rule(_hardswish, self._hardswish),
            Rule(is_op("relax.permute_dims")(_x), self._first),
        ]
        return rewrite(func, rules, inside=False)[0]

    def forms(self, func: Function) -> Mapping[GlobalVar, Function]:
        """The functions that the composites of ``func`` name."""
        values = [b.value for b in bindings_of(func.body) if isinstance(b, VarBinding)]
        named = Op.get(_COMPOSITE)
        used = {
            call_attrs(v)["decomposition"] for v in values if isinstance(v, Call) and v.op is named
        }
        return {GlobalVar(s): form(d) for d, s in self.symbols.items() if s in used}

    def _call(self, described: Described, operands: Sequence[Expr]) -> Call:
        symbol = self.symbols.setdefault(described, f"{self.name}{FAMILY.forms}{len(self.symbols)}")
        made = described.result
        call = Op.get(_COMPOSITE)(
            *operands,
            name=described.name,
            composite_attributes=described.attributes,
            decomposition=symbol,
            sinfo_args=[TensorStructInfo(made.shape, made.dtype)],
        )
        return call

    def _composite(self, m: Match, site: _Site) -> Expr | None:
        """The call for a site, in the place of a match; None where there is none."""
        if site.described.problem():
            return None
        self.sites[m.var] = site
        channels = site.described.image[3]
        if site.bias is None:
            bias: Expr = const(np.zeros(channels, "float32"))
        else:
            bias = m.bind("bias", R.reshape(site.bias, (channels,)))
        return self._call(site.described, [site.image, site.weight, bias])

    # -- the rules ---------------------------------------------------------------------------------
    def _convolution(self, m: Match) -> Expr | None:
        if not is_known(m.call):
            return None
        w = Windows(m.call, m.var, m.bind)
        dilated = tuple(w.attrs["dilation"]) != (1, 1)
        if w.dtype != "float32" or w.layouts != LAYOUTS or dilated or not is_depthwise(w):
            return None
        image, layout = _source(m, m[_x])
        n, height, width, channels = w.image
        top, left, bottom, right = (int(p) for p in w.attrs["padding"])
        rows, columns = (int(s) for s in w.attrs["strides"])
        described = Convolution(
            (n, height, width, channels),
            (w.weight[0], w.weight[1]),
            (rows, columns),
            (top, left, bottom, right),
            layout,
        )
        made = self._composite(m, _Site(described, image, m[_other], None))
        if made is not None and image is not m[_x]:
            m.drop(m[_x])
        return made

    def _gradient(self, m: Match) -> Expr | None:
        call = gradient_of(m.call)
        if call is None:
            return None
        image, gradient = m[_x], m[_other]
        # What lies channels first for this call only is read as it lay before.
        if call.image_layout == "NCHW" and (found := _last(m, image)) is not None:
            image, call = found, replace(call, image_layout="NHWC")
        if call.gradient_layout == "NCHW" and (found := _last(m, gradient)) is not None:
            gradient, call = found, replace(call, gradient_layout="NHWC")
        if call.problem():
            return None
        made = m.bind("called", self._call(call, [image, gradient]))
        return in_its_order(m.call, made)

    def _biased(self, m: Match) -> Expr | None:
        for at, other in ((m[_x], m[_other]), (m[_other], m[_x])):
            site = self._open(m, at, 1)
            if site is None or site.bias is not None or site.described.ending:
                continue
            info, channels = other.struct_info_, site.described.image[3]
            dims = info.dims if isinstance(info, TensorStructInfo) else None
            if dims is not None and dims in ((channels,), (1, 1, 1, channels)):
                m.drop(at)
                return self._composite(m, site._replace(bias=other))
        return None

    def _ended(self, m: Match, ending: str, uses: int) -> Expr | None:
        site = self._open(m, m[_x], uses)
        if site is None or site.described.ending:
            return None
        m.drop(m[_x])
        described = replace(site.described, ending=ending)
        return self._composite(m, site._replace(described=described))

    def _hardswish(self, m: Match) -> Expr | None:
        if _number(m[_three]) != 3 or _number(m[_six]) != 6:
            return None
        between = [m[v] for v in (_moved, _gate, _product)]
        if any(m.uses(v) != 1 for v in between):
            return None
        made = self._ended(m, "hardswish", 2)
        for v in between if made is not None else ():
            m.drop(v)
        return made

    def _first(self, m: Match) -> Expr | None:
        site = self._open(m, m[_x], 1)
        if site is None or list(call_attrs(m.call)["axes"] or ()) != _FIRST:
            return None
        m.drop(m[_x])
        described = replace(site.described, result_layout="NCHW")
        return self._composite(m, site._replace(described=described))

    def _open(self, m: Match, at: Expr, uses: int) -> _Site | None:
        """The site that computes ``at``, where something can follow: all its ``uses`` do."""
        site = self.sites.get(at)
        if site is None or m.uses(at) != uses or site.described.result_layout != "NHWC":
            return None
        return site


# -- forms -----------------------------------------------------------------------------------------
def form(call: Described) -> Function:
    """The function of rows that a composite for ``call`` names."""
    params = [Var(f"x{i}", TensorStructInfo(t.shape, t.dtype)) for i, t in enumerate(call.operands)]
    builder = BlockBuilder()
    with builder.function("form", params, private=True):
        with builder.dataflow():
            if isinstance(call, Convolution):
                value = _convolved(call, *params)
            else:
                value = gradient_rows(call, *params)
            made = builder.emit_output(value)
        builder.emit_func_output(made)
    (func,) = builder.get().relax_functions().values()
    return func


def _convolved(call: Convolution, image: Var, weight: Var, bias: Var) -> Expr:
    x: Expr = image if call.image_layout == "NHWC" else R.permute_dims(image, _LAST)
    made: Expr = R.nn.conv2d(
        x,
        weight,
        call.strides,
        call.padding,
        groups=call.image[3],
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    made = _ENDINGS[call.ending](R.add(made, bias))
    return made if call.result_layout == "NHWC" else R.permute_dims(made, _FIRST)


def _hard_swish(x: Expr) -> Expr:
    three, six = const(3.0, "float32"), const(6.0, "float32")
    return R.divide(R.multiply(x, R.nn.relu6(R.add(x, three))), six)


_ENDINGS: Final[Mapping[str, Callable[[Expr], Expr]]] = {
    "": lambda x: x,
    "relu": R.nn.relu,
    "relu6": R.nn.relu6,
    "hardswish": _hard_swish,
}


# -- small things ----------------------------------------------------------------------------------
def _source(m: Match, image: Expr) -> tuple[Expr, str]:
    """An image and how it lies: what a transposition for this call alone has made is undone."""
    value = m.bound(image)
    if m.uses(image) == 1 and _permutes(value, _LAST):
        assert isinstance(value, Call)
        return value.args[0], "NCHW"
    return image, "NHWC"


def _last(m: Match, image: Expr) -> Expr | None:
    """Of an image in NCHW the one in NHWC that it is made of; None where it is made otherwise."""
    value = m.bound(image)
    return value.args[0] if isinstance(value, Call) and _permutes(value, _FIRST) else None


def _permutes(value: Expr, axes: Sequence[int]) -> bool:
    if not isinstance(value, Call) or value.op is not Op.get("relax.permute_dims"):
        return False
    return list(call_attrs(value)["axes"] or ()) == list(axes)


def _number(value: Expr) -> float | None:
    """The one number that a constant holds."""
    if not isinstance(value, Constant) or value.data.size != 1:
        return None
    return float(np.asarray(value.data).item())
