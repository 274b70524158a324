"""CallSqueezes: squeeze and excitation, and global average pooling, as composites.

A block of squeeze and excitation is a reduction, two products of one row and a multiplication.
None of them is much work, and XLA shares each out among its threads, which takes several times as
long as the work: about 100 us for each block on two cores. A function in C++ does all of it, in the
thread that called it where an image is small, and reads an image again while it is in a near cache.

As with products (:mod:`relax2xla.transform.cpu.calls.products`), whose composites it looks for,
programs hold composites with their forms in rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, IRModule, Op, Var
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.kernels import products
from relax2xla.kernels.native import may_call
from relax2xla.kernels.squeezes import FAMILY, GATES, Described, Excitation, Pool, pays
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.cpu.calls.activations import ended
from relax2xla.transform.cpu.calls.products import unpacked
from relax2xla.transform.cpu.calls.sites import Sites, composite_call, with_composites

_x, _other = wildcard(), wildcard()


@register(opt_level=2, platform="cpu", one_device=True)
class CallSqueezes(Pass):
    """Make composites of squeeze and excitation and of global average pooling, static shapes.

    In NHWC, in float32; blocks whose two products are composites already (CallProducts), with
    weights in panels and a sigmoid or a hard sigmoid behind them. Exact up to the order of the
    additions.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        return with_composites(mod, _Calls) if may_call() else mod


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY

    def function(self, func: Function) -> Function:
        """See :class:`Sites`. Blocks first: the means that are left are pools."""
        return rewrite(rewrite(func, self.rules())[0], self._pools())[0]

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [Rule(is_op("relax.multiply")(_x, _other), self._excitation)]

    def _pools(self) -> list[Rule]:
        return [Rule(is_op(name)(_x), self._pool) for name in _MEANS]

    def rows(self, described: Described, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        image, *weights = params
        means: Expr = R.mean(image, [1, 2])
        if isinstance(described, Pool):
            return means
        n, _, _, channels = described.image
        down, down_bias, up, up_bias = weights
        down = unpacked(down, (channels,), described.squeezed)
        up = unpacked(up, (described.squeezed,), channels)
        hidden = ended(R.add(R.matmul(means, down), down_bias), described.first)
        gates = ended(R.add(R.matmul(hidden, up), up_bias), described.gate)
        return R.multiply(image, R.reshape(gates, (n, 1, 1, channels)))

    def _pool(self, m: Match) -> Expr | None:
        image = _image_of(m.call)
        described = None if image is None else Pool(image)
        if described is None or described.problem() or not pays(described):
            return None
        result = tensor_of(m.call)
        assert result is not None
        made = m.bind("means", self.call(described, [m[_x]]))
        return R.reshape(made, result.shape)

    def _excitation(self, m: Match) -> Expr | None:
        for image, gate in ((m[_x], m[_other]), (m[_other], m[_x])):
            known = tensor_of(image)
            if known is None or known.dtype != "float32" or len(known.shape) != 4:
                continue
            n, height, width, channels = known.shape
            shape = (n, height, width, channels)
            way = _Way(m, (n, channels))
            found = way.excitation(image, gate, shape)
            if found is None or found.described.problem() or not pays(found.described):
                continue
            for v in way.seen:
                m.drop(v)
            return self.call(found.described, [image, *found.weights])
        return None


class _Block(NamedTuple):
    described: Excitation
    weights: Sequence[Expr]


class _Way:
    """The way from a gate back to the means that it is made of: each value is read once.

    seen: the variables on the way. All values have ``shape`` [N, numbers], among axes of size 1.
    """

    def __init__(self, m: Match, shape: tuple[int, int]) -> None:
        self.m, self.shape = m, shape
        self.seen: list[Var] = []

    def excitation(
        self, image: Expr, gate: Expr, shape: tuple[int, int, int, int]
    ) -> _Block | None:
        """The block whose last step multiplies ``image``, of ``shape``, by ``gate``."""
        n, _, _, channels = shape
        gate, meets = self._spread(gate)
        if meets != (n, 1, 1, channels):
            return None
        up = self._product(gate, channels)
        down = None if up is None else self._product(up.image, up.described.rows[-1])
        if up is None or down is None or up.described.ending not in GATES:
            return None
        if down.described.rows[-1] != channels or not self._is_mean(down.image, image):
            return None
        d = Excitation(shape, down.described.results, down.described.ending, up.described.ending)
        return _Block(d, [*down.weights, *up.weights])

    def _call(self, expr: Expr) -> Call | None:
        """What computes ``expr``, if only the way reads it."""
        call = self.m.bound(expr)
        if not isinstance(expr, Var) or not isinstance(call, Call) or self.m.uses(expr) != 1:
            return None
        self.seen.append(expr)
        return call

    def _spread(self, gate: Expr) -> tuple[Expr, tuple[int, ...]]:
        """A gate before it gets the shape of the image, and the shape by which it meets that."""
        axes, spread = [0, 1, 2, 3], gate
        turned = self._seen(gate, "relax.permute_dims")
        if turned is not None and len(_dims(turned)) == 4:
            axes, spread = list(call_attrs(turned)["axes"] or axes[::-1]), turned.args[0]
        call = self._seen(spread, "relax.broadcast_to")
        if call is None:
            return gate, _of_four(gate)
        given = _of_four(call.args[0])
        if [a for a in axes if given[a] != 1] != [a for a in range(4) if given[a] != 1]:
            return gate, ()
        if any(self._call(v) is None for v in dict.fromkeys((gate, spread))):
            return gate, ()
        return call.args[0], tuple(given[a] for a in axes)

    def _seen(self, expr: Expr, name: str) -> Call | None:
        """The call of an operator that computes ``expr``."""
        call = self.m.bound(expr)
        return call if isinstance(call, Call) and is_call(call, name) else None

    def _product(self, expr: Expr, results: int) -> _Product | None:
        """The product that ``expr`` is, with as many ``results``."""
        call = self._reshaped(expr, results)
        found = None if call is None else composite_call(call, products.FAMILY)
        if not isinstance(found, products.Product) or found.added or found.lies:
            return None
        assert call is not None
        rows = math.prod(found.rows[:-1])
        if rows != self.shape[0] or found.results != results:
            return None
        return _Product(found, call.args[0], call.args[1:3])

    def _is_mean(self, expr: Expr, image: Expr) -> bool:
        call = self._reshaped(expr, self.shape[1])
        return call is not None and _image_of(call) is not None and call.args[0] is image

    def _reshaped(self, expr: Expr, numbers: int) -> Call | None:
        """What computes ``expr`` [N, numbers], before it moved axes of size 1."""
        shape = [d for d in (self.shape[0], numbers) if d != 1]
        while (call := self._call(expr)) is not None:
            if not _keeps_order(call):
                return call
            given = tensor_of(call.args[0])
            if given is None or [d for d in given.shape if d != 1] != shape:
                return None
            expr = call.args[0]
        return None


class _Product(NamedTuple):
    """A product, what it multiplies, and its weight and its bias."""

    described: products.Product
    image: Expr
    weights: Sequence[Expr]


_RESHAPES = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")


def _dims(value: Expr) -> tuple[int, ...]:
    """The shape of a value; of one whose shape is not known that of a scalar."""
    known = tensor_of(value)
    return () if known is None else known.shape


def _of_four(value: Expr) -> tuple[int, int, int, int]:
    """The shape of a value that meets others of four axes; of another one zeros."""
    dims = _dims(value)
    if len(dims) > 4:
        return 0, 0, 0, 0
    a, b, c, d = (1,) * (4 - len(dims)) + dims
    return a, b, c, d


def _keeps_order(call: Call) -> bool:
    """Whether a call gives what it is given, maybe among other axes of size 1."""
    if not isinstance(call.op, Op):
        return False
    if call.op.name in _RESHAPES:
        return True
    given = tensor_of(call.args[0]) if call.op.name == "relax.permute_dims" else None
    if given is None:
        return False
    axes = list(call_attrs(call)["axes"] or range(len(given.shape))[::-1])
    moved = [a for a in axes if given.shape[a] != 1]
    return moved == sorted(moved)


_MEANS = ("relax.mean", "relax.nn.adaptive_avg_pool2d", "relax.nn.avg_pool2d")


def _image_of(call: Call) -> tuple[int, int, int, int] | None:
    """The shape of the image [N, H, W, C] whose means over all pixels ``call`` gives."""
    if not isinstance(call.op, Op) or call.op.name not in _MEANS:
        return None
    given, attrs = tensor_of(call.args[0]), call_attrs(call)
    if given is None or given.dtype != "float32" or len(given.shape) != 4:
        return None
    n, height, width, channels = given.shape
    made = tensor_of(call)
    if made is None or made.dtype != "float32":
        return None
    if call.op.name == "relax.mean":
        axes = attrs["axis"]
        if axes is None or sorted(int(a) % 4 for a in axes) != [1, 2]:
            return None
    else:
        if (attrs["layout"], attrs["out_layout"] or attrs["layout"]) != ("NHWC", "NHWC"):
            return None
        if made.shape != (n, 1, 1, channels):
            return None
        if call.op.name == "relax.nn.avg_pool2d" and not _is_whole(attrs, (height, width)):
            return None
    return n, height, width, channels


def _is_whole(attrs: Mapping[str, Any], size: tuple[int, int]) -> bool:
    """Whether the window of a pool that gives one result is the whole image."""
    return tuple(attrs["pool_size"]) == size and not any(attrs["padding"])


def form(call: Described) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)
