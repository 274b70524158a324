"""CallProducts and CallGivenProducts: convolutions and products with weights, as composites.

XLA:CPU gives products to YNNPACK or Eigen, each with a loop of its own behind it for a bias, an
addition and an activation, and convolves planes by Eigen's copies of them. A function in C++ reads
pixels where they lie and finishes a tile of results while it is in the nearest cache; weights are
laid out for it once, at load. Those that come with each call, which are not known then, and those
of programs whose sizes are not, it reads as they lie.

As with oneDNN (:mod:`relax2xla.transform.cpu.calls.onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Call, Expr, Function, IRModule, Tuple
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.kernels.native import ENDINGS, may_call
from relax2xla.kernels.products import (
    FAMILY,
    FEW_ROWS,
    LAID_OUT,
    PANEL,
    PARTS,
    SMALL,
    SQUEEZED,
    Convolution,
    Described,
    JoinedProduct,
    Product,
    Winograd,
    by_winograd,
    interleaving,
    packed_shape,
    pays,
    points,
)
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import own_call, tensor_of, vector_of
from relax2xla.transform.cpu.calls.activations import ended
from relax2xla.transform.cpu.calls.sites import Site, Sites, with_composites
from relax2xla.transform.cpu.convolutions.windows import LAYOUTS, Windows, is_known
from relax2xla.transform.layout.feature_major import is_linear

_x, _w, _both = wildcard(), wildcard(), wildcard()

Choose: TypeAlias = Callable[[Convolution | Product], Described | None]
"""The form of a convolution or product that is best: a call, or None for rows."""
# Multiplications from which a form is chosen by measurement, where that is asked for.
_TUNED: Final = 200_000


@register(opt_level=2, platform="cpu", one_device=True)
class CallProducts(Pass):
    """Make composites of convolutions and products with constant weights, static shapes.

    In NHWC and HWIO, in float32; with a bias, an addition and an activation behind them. Exact up
    to the order of the additions, and in activations within 2e-7 of the input. Which these are
    says :func:`relax2xla.kernels.products.pays`. ``winograd``: 3x3 windows by Winograd's minimal
    filtering where that is faster, whose rounding is about 1e-6 of the largest value.
    ``at_load``: whether weights are laid out once; else, for functions of JAX, they are read as
    they lie, and results are scaled as a batch norm does. ``choose``: what says instead which
    form is best, None for rows, of calls whose weights are laid out once.
    """

    def __init__(
        self, winograd: bool = True, at_load: bool = True, choose: Choose | None = None
    ) -> None:
        self.winograd, self.at_load, self.choose = winograd, at_load, choose

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if not may_call():
            return mod
        given = self.winograd, self.at_load, self.choose
        return with_composites(mod, lambda name: _Calls(name, *given))


@register(opt_level=2, stage="static", platform="cpu", one_device=True)
class CallGivenProducts(Pass):
    """Make composites of convolutions and products whose weights are given as they lie.

    That is of weights that are arguments, and of all where sizes were symbolic; otherwise as
    CallProducts does.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if not may_call():
            return mod
        # CallProducts has named composites by the names of functions alone.
        return with_composites(mod, lambda n: _Calls(f"{n}_given", at_load=False, given=True))


class _Calls(Sites):
    """The composites of one function.

    given: whether weights are what comes with a call, not what is a constant here
    """

    family = FAMILY
    adds = True
    endings = ENDINGS

    def __init__(
        self,
        name: str,
        winograd: bool = True,
        at_load: bool = True,
        choose: Choose | None = None,
        given: bool = False,
    ) -> None:
        super().__init__(name)
        self.winograd, self.at_load, self.choose = winograd, at_load, choose
        self.given = given
        self._least: int | None = None

    def function(self, func: Function) -> Function:
        """See :class:`Sites`. Small calls where there are large ones, for which all is compiled."""
        made = super().function(func)
        if made is func:
            return func
        self._least = SMALL
        return super().function(made)

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.nn.conv2d")(_x, _w), self._convolution),
            Rule(is_op("relax.matmul")(_x, _w), lambda m: self._product(m, m[_x], m[_w])),
            Rule(is_op("relax.einsum")(_both), self._linear),
            Rule(is_op("relax.multiply")(_x, _w), self._scaled),
        ]

    def rows(self, described: Described, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        *given, weight, bias, added = params
        x = joined(given, described.prepared) if isinstance(described, JoinedProduct) else given[0]
        if described.lies:
            plain = weight
            if described.lies == "first":
                rank = len(described.operands[1].shape)
                plain = R.permute_dims(weight, _RESULTS_LAST[rank])
            elif described.lies == "turned":
                plain = R.permute_dims(R.flip(R.flip(weight, 2), 3), (2, 3, 0, 1))
        else:
            depth = described.operands[-3].shape[1:-1]
            if isinstance(described, Convolution):
                depth = (*described.window, described.channels)
            plain = unpacked(weight, depth, described.results, described.groups)
        if isinstance(described, Product | JoinedProduct):
            made: Expr = R.matmul(x, plain)
        else:
            convolution = described
            if isinstance(described, Winograd):
                convolution = described.convolution
                plain = plain if described.lies else windows_of(plain, described.size)
            assert isinstance(convolution, Convolution)
            if convolution.planes:
                x = R.permute_dims(x, (0, 2, 3, 1))
            made = R.nn.conv2d(
                x,
                plain,
                convolution.strides,
                convolution.padding,
                convolution.dilation,
                groups=convolution.groups,
                data_layout="NHWC",
                kernel_layout="HWIO",
            )
        if described.scaled:
            bias, scale = (_row(bias, i, described.results) for i in range(2))
            made = R.multiply(made, scale)
        made = R.add(made, bias)
        return ended(R.add(made, added) if described.added else made, described.ending)

    def _convolution(self, m: Match) -> Expr | None:
        if not is_known(m.call):
            return None
        w = Windows(m.call, m.var, m.bind)
        if w.dtype != "float32" or w.layouts != LAYOUTS:
            return None
        n, height, width, channels = w.image
        top, left, bottom, right = (int(p) for p in w.attrs["padding"])
        strides, dilation = ((int(a), int(b)) for a, b in (w.attrs["strides"], w.attrs["dilation"]))
        described = Convolution(
            (n, height, width, channels),
            (w.weight[0], w.weight[1]),
            w.weight[3],
            strides,
            (top, left, bottom, right),
            dilation,
            w.attrs["groups"],
        )
        planes = self._planes(m, described)
        if planes is None:
            return self._call(m, described, m[_x], m[_w])
        made = self._call(m, replace(described, planes=True), planes, m[_w])
        if made is not None:
            m.drop(m[_x])
        return made

    def _planes(self, m: Match, described: Convolution) -> Expr | None:
        """The planes that an image was before, where the call takes them and nothing else does."""
        value = m.bound(m[_x])
        if not isinstance(value, Call) or not is_call(value, "relax.permute_dims"):
            return None
        known = m.uses(m[_x]) == 1 and tuple(call_attrs(value)["axes"] or ()) == (0, 2, 3, 1)
        return value.args[0] if known and described.joins_rows else None

    def _product(self, m: Match, x: Expr, weight: Expr) -> Expr | None:
        given, matrix = _known(x), _known(weight)
        # The product itself may say that it gives another dtype.
        if not given or not matrix or len(matrix) != 2 or _known(m.call) is None:
            return None
        return self._call(m, Product(given, matrix[1]), x, weight)

    def _linear(self, m: Match) -> Expr | None:
        operands = m[_both]
        if not isinstance(operands, Tuple) or len(operands.fields) != 2:
            return None
        x, weight = operands.fields
        subscripts = str(call_attrs(m.call)["subscripts"])
        if is_linear(subscripts, "io"):
            return self._product(m, x, weight)
        given, matrix = _known(x), _known(weight)
        if not is_linear(subscripts) or not given or not matrix:
            return None
        return self._call(m, Product(given, matrix[0]), x, weight, "first")

    def _scaled(self, m: Match) -> Expr | None:
        """A site whose results are multiplied by a number each, as a batch norm does."""
        for at, scale in ((m[_x], m[_w]), (m[_w], m[_x])):
            site = self.open(m, at)
            if site is None or not site.described.lies or site.added is not None:
                continue
            if site.scale is not None or not (self.given or m.from_constants(scale)):
                continue
            flat = self.along_results(m, site, scale)
            if flat is None:
                continue
            m.drop(at)
            bias = None if site.bias is None else m.bind("bias", R.multiply(site.bias, flat))
            described = replace(site.described, scaled=True)
            return self.composite(m, site._replace(bias=bias, scale=flat, described=described))
        return None

    def _call(
        self,
        m: Match,
        described: Convolution | Product,
        x: Expr,
        weight: Expr,
        lies: str = "last",
    ) -> Expr | None:
        if not self.given and not m.from_constants(weight):
            return None
        if not self.at_load and described.groups == 1:
            before = weight
            weight, lies = _before_turned(m, weight, lies)
            if self.given and not self._beats(m, described, x, lies, weight is not before):
                return None
            made = self._chosen(replace(described, lies=lies))
            return None if made is None else self.composite(m, Site(made, x, weight))
        made = self._chosen(described)
        if made is None:
            return None
        if lies == "first":
            weight = m.bind("matrix", R.permute_dims(weight))
        if isinstance(made, Winograd):
            # One axis after the other: LiftWeights computes what grows up to twofold.
            halved = m.bind("halved", values_along(weight, 0, made.size))
            values = m.bind("values", values_along(halved, 1, made.size))
            shape = made.operands[1].shape
            weight = m.bind("flat", R.reshape(values, (shape[1], shape[2], made.results)))
        panels = m.bind("panels", packed(weight, made.groups))
        site = self._joining(m, made, x, panels) if isinstance(made, Product) else None
        return self.composite(m, site or Site(made, x, panels))

    def _beats(
        self, m: Match, described: Convolution | Product, x: Expr, lies: str, turns: bool
    ) -> bool:
        """Whether a call beats XLA where a weight lies so and comes with the call.

        turns: whether XLA would transpose it in each call
        """
        if m.from_constants(x):
            return False
        if isinstance(described, Convolution):
            return True
        # XLA's products read rows that were transposed as they lay before.
        value = m.bound(x)
        turned = isinstance(value, Call) and is_call(value, "relax.permute_dims")
        # Few columns: features first, which are the rows then.
        rows = LAID_OUT if not turns else 0
        many = math.prod(described.result.shape[:-1]) >= rows and described.results >= LAID_OUT
        return lies == "first" and many and (not turned or math.prod(described.rows) >= 16384)

    def _joining(self, m: Match, described: Product, x: Expr, panels: Expr) -> Site | None:
        """The site of a product of what is joined, or was prepared by a batch norm and a relu."""
        *given, channels = described.rows
        relu = own_call(m, x, "relax.nn.relu")
        shifted = _by_vector(m, relu.args[0], "relax.add", described.rows) if relu else None
        scaled = _by_vector(m, shifted[1], "relax.multiply", described.rows) if shifted else None
        parts = _parts_of(m, scaled[1] if scaled else x)
        one_reads = len(parts) > 1 and m.uses(x) == 1
        own = tuple(tensor.shape[-1] for tensor in map(tensor_of, parts) if tensor is not None)
        made = JoinedProduct(tuple(given), own, described.results, scaled is not None)
        if not (scaled or one_reads) or made.problem() or made.channels != channels:
            return None
        if math.prod(given) <= FEW_ROWS:
            return None
        more = list(parts[1:])
        if relu and shifted and scaled:
            rows = [R.reshape(v, (1, channels)) for v in (scaled[2], shifted[2])]
            more.append(m.bind("prepared", R.concat(rows, axis=0)))
            for gone in (x, relu.args[0], shifted[1]):
                m.drop(gone)
        return Site(made, parts[0], panels, more=tuple(more))

    def _chosen(self, described: Convolution | Product) -> Described | None:
        """What computes it best here; None: its form in rows."""
        if described.problem():
            return None
        if self.choose is not None and not described.lies and described.groups == 1:
            # Small ones are not worth a measurement: they go with the large ones.
            if described.multiplications >= _TUNED:
                return self.choose(described)
        least = self._least
        if least is not None and isinstance(described, Product) and described.rows[1:-1] == (1, 1):
            least = SQUEEZED
        if not pays(described, least):
            return None
        if self.winograd and isinstance(described, Convolution):
            return by_winograd(described) or described
        return described


# By rank, the axes of a weight whose results come first, as one whose results come last has them.
_RESULTS_LAST: Final = {2: (1, 0), 4: (2, 3, 1, 0)}


def _before_turned(m: Match, weight: Expr, lies: str) -> tuple[Expr, str]:
    """A weight before it was transposed for what reads it, and how it lies there."""
    value, dims = m.bound(weight), _known(weight) or ()
    if lies != "last" or not isinstance(value, Call):
        return weight, lies
    if is_call(value, "relax.reshape") and len(dims) == 2:
        # Windows of one pixel, of which a matrix was made after they were transposed.
        window = m.bound(value.args[0])
        given = _transposed(window, (1, 0, 2, 3))
        if given is not None and _known(window) == (*dims, 1, 1):
            before = _transposed(m.bound(given), (1, 0, 2, 3))
            if before is not None:
                return m.bind("matrix", R.reshape(before, dims)), "last"
            return m.bind("matrix", R.reshape(given, dims[::-1])), "first"
    turned = _RESULTS_LAST.get(len(dims), ())
    given = _transposed(value, turned)
    if given is None:
        return weight, lies
    # What was transposed twice lies as it is read.
    back = tuple(turned.index(axis) for axis in range(len(turned)))
    before = _transposed(m.bound(given), back)
    if before is not None:
        return before, "last"
    around = _turned_around(m, given)
    return (given, "first") if around is None else (around, "turned")


def _turned_around(m: Match, weight: Expr) -> Expr | None:
    """A weight whose windows were turned around, and whose results and channels exchanged."""
    dims = _known(weight) or ()
    axes = [axis for axis in (2, 3) if len(dims) == 4 and dims[axis] > 1]
    while axes:
        value = m.bound(weight)
        if not isinstance(value, Call) or not is_call(value, "relax.flip"):
            return None
        axis = call_attrs(value)["axis"] % len(dims)
        if axis not in axes:
            return None
        axes.remove(axis)
        weight = value.args[0]
    return _transposed(m.bound(weight), (1, 0, 2, 3)) if len(dims) == 4 else None


def _transposed(value: Expr, wanted: tuple[int, ...]) -> Expr | None:
    """What ``permute_dims`` with the axes that are wanted turns to ``value``."""
    if not isinstance(value, Call) or not is_call(value, "relax.permute_dims"):
        return None
    axes = call_attrs(value)["axes"] or range(len(wanted))[::-1]
    return value.args[0] if tuple(axes) == wanted else None


def _by_vector(
    m: Match, value: Expr, name: str, shape: tuple[int, ...]
) -> tuple[Call, Expr, Expr] | None:
    """The call of an operator that computes ``value`` alone, the image and the constant vector."""
    call = own_call(m, value, name)
    for image, other in ((0, 1), (1, 0)) if call else ():
        assert call is not None
        if m.from_constants(call.args[other]):
            vector = vector_of(m, call.args[other], shape)
            if vector is not None:
                return call, call.args[image], vector
    return None


def _parts_of(m: Match, value: Expr) -> list[Expr]:
    """What is joined along the last axis to ``value``, in order; itself where nothing is."""
    found: list[Expr] = []
    todo = [value]
    while todo and len(found) + len(todo) <= PARTS:
        one = todo.pop()
        call = m.bound(one)
        fields = _joined_fields(m, call) if isinstance(call, Call) else None
        if fields is None:
            found.append(one)
        else:
            todo += reversed(fields)
    return [value] if todo else found


def _joined_fields(m: Match, call: Call) -> Sequence[Expr] | None:
    """What a call joins along the last axis, all of float32; None for another call."""
    if not is_call(call, "relax.concat"):
        return None
    fields, rank = m.bound(call.args[0]), len(_known(call) or ())
    if not isinstance(fields, Tuple) or call_attrs(call)["axis"] not in (-1, rank - 1):
        return None
    return fields.fields if all(map(_known, fields.fields)) else None


def joined(given: Sequence[Expr], prepared: bool) -> Expr:
    """What a joined product multiplies, of its first operands."""
    parts = given[:-1] if prepared else given
    made: Expr = R.concat(list(parts), axis=-1) if len(parts) > 1 else parts[0]
    if prepared:
        tensor = tensor_of(made)
        assert tensor is not None
        scale, shift = (_row(given[-1], i, tensor.shape[-1]) for i in range(2))
        made = R.nn.relu(R.add(R.multiply(made, scale), shift))
    return made


def _row(matrix: Expr, row: int, length: int) -> Expr:
    return R.reshape(R.strided_slice(matrix, (0,), (row,), (row + 1,)), (length,))


def form(call: Described) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)


def values_along(weight: Expr, axis: int, size: int) -> Expr:
    """The values at the points of windows [height, width, C, O] along one of the two axes."""
    given = "hwio"
    subscripts = f"p{given[axis]},{given}->{given.replace(given[axis], 'p')}"
    return R.einsum((const(points(size).astype("float32")), weight), subscripts)


def windows_of(values: Expr, size: int) -> Expr:
    """The inverse of :func:`values_along` along both axes, of values [points**2, C, O]."""
    inverse = const(np.linalg.pinv(points(size)).astype("float32"))
    dims = _known(values)
    assert dims is not None
    square = R.reshape(values, (size + 2, size + 2, *dims[1:]))
    half = R.einsum((inverse, square), "hp,pqio->hqio")
    return R.einsum((inverse, half), "wq,hqio->hwio")


def packed(weight: Expr, groups: int = 1) -> Expr:
    """A weight [..., results] as the functions want it."""
    dims = _known(weight)
    assert dims is not None
    *depth, results = dims
    shape, own, numbers = packed_shape(depth, results, groups), results // groups, math.prod(depth)
    interleaved = interleaving(depth, results, groups)
    if interleaved > 1:
        apart = R.reshape(weight, (numbers // interleaved, interleaved, groups, own))
        return R.reshape(R.permute_dims(apart, (2, 0, 3, 1)), shape)
    each = shape[0] // groups
    flat: Expr = R.reshape(weight, (numbers, groups, own))
    if each * PANEL > own:
        flat = R.nn.pad(flat, (0, 0, 0, 0, 0, each * PANEL - own))
    turned = R.permute_dims(R.reshape(flat, (numbers, shape[0], PANEL)), (1, 0, 2))
    return R.reshape(turned, shape)


def unpacked(weight: Expr, depth: Sequence[int], results: int, groups: int = 1) -> Expr:
    """The inverse of :func:`packed`: [*depth, results]."""
    panels, own, numbers = (
        packed_shape(depth, results, groups)[0],
        results // groups,
        math.prod(depth),
    )
    interleaved = interleaving(depth, results, groups)
    if interleaved > 1:
        apart = R.reshape(weight, (groups, numbers // interleaved, own, interleaved))
        return R.reshape(R.permute_dims(apart, (1, 3, 0, 2)), (*depth, results))
    turned = R.permute_dims(R.reshape(weight, (panels, numbers, PANEL)), (1, 0, 2))
    flat: Expr = R.reshape(turned, (numbers, groups, panels // groups * PANEL))
    if panels // groups * PANEL > own:
        flat = R.strided_slice(flat, (2,), (0,), (own,))
    return R.reshape(flat, (*depth, results))


def _known(value: Expr) -> tuple[int, ...] | None:
    """The shape of a value of float32, where it is known."""
    tensor = tensor_of(value)
    return tensor.shape if tensor is not None and tensor.dtype == "float32" else None
