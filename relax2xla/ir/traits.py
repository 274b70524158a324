"""Facts about operators: what passes may suppose of one whose name they do not know (D16).

A trait stands at the operator's decorator (``@op("relax.exp", Pointwise())``) or, for rows of
StableHLO, in a column of the table; a family sets it once. Passes ask ``op.has(Pointwise)`` or
``op.trait(Reduction)``, so that a new operator takes part in all of them at once:

* layouts (:mod:`relax2xla.transform.layout.propagation`) carry another order of axes through it;
* distributed tensors (:mod:`relax2xla.op.shared.sharding`) stay cut along the axes that go on;
* padding to buckets (:mod:`relax2xla.vm.call.padding`) goes through where positions stay apart;
* :mod:`relax2xla.transform.raising` finds it among rows; costs of rows are counted.

Which trait? One :class:`Origin`, which says where each element of the result comes from; it is
:class:`Opaque` where no pass may suppose anything. Others may stand beside it.
tests/op/test_traits.py demands an origin of every operator, and holds what passes derive from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trait:
    """One fact about an operator."""


# ---- where elements come from: each operator has one of these
class Origin(Trait):
    """Where each element of the result comes from."""


class Opaque(Origin):
    """Nothing is said: passes leave calls, and what lies before and behind them, as they are."""


@dataclass(frozen=True, slots=True)
class Pointwise(Origin):
    """Each element of the result is of the elements at its place; operands have one shape.

    Operands of rank 0, numbers and attributes count for all elements. A tuple's fields are alike.
    ``flops``: operations for an element, 0 where data are only held or written otherwise.
    """

    flops: int = 1


class Broadcasting(Origin):
    """As :class:`Pointwise`, after numpy's broadcasting of the operands (a shape is one, too)."""


@dataclass(frozen=True, slots=True)
class Channelwise(Origin):
    """As :class:`Pointwise` of the first operand; the others are vectors along ``axis``, of its
    size or of one, or of rank 0.
    """

    axis: str = "axis"


@dataclass(frozen=True, slots=True)
class Reduction(Origin):
    """Folds the axes of the attribute ``axis`` (one, several, or None: all) of its operand.

    They leave the result, or with the attribute ``keepdims`` have size 1. ``rows``: of StableHLO,
    in whose ``reduce`` the operator is recognised. ``places``: the result says where elements lie,
    without an axis in the flattened operand.
    """

    rows: tuple[str, ...] = ()
    axis: str = "axis"
    keepdims: str = "keepdims"
    places: bool = False


@dataclass(frozen=True, slots=True)
class AlongAxis(Origin):
    """Works along the attribute ``axis`` (one or several; None: of the flattened operand).

    At each place of the other axes it is computed apart. The result has the operand's rank.
    ``rows``: of StableHLO, in whose running application the operator is recognised.
    """

    rows: tuple[str, ...] = ()
    axis: str = "axis"


class Joins(AlongAxis):
    """The tensors of a tuple, one behind the other along ``axis``."""


class Stacks(Origin):
    """The tensors of a tuple, which have one shape, side by side along a new axis."""


@dataclass(frozen=True, slots=True)
class Normalises(Origin):
    """Normalises over ``axes``; operands behind the first have the shape of those axes."""

    axes: str = "axes"


@dataclass(frozen=True, slots=True)
class Permutes(Origin):
    """The axes of the operand in the order of the attribute ``axes``; None: reversed."""

    axes: str = "axes"


class Reshapes(Origin):
    """The elements of the first operand, in their order, in another shape."""


@dataclass(frozen=True, slots=True)
class Pads(Origin):
    """The operand with elements around it, (before, after) for each axis in ``widths``."""

    widths: str = "pad_width"


class Fills(Origin):
    """One number everywhere; the shape is an operand."""


@dataclass(frozen=True, slots=True)
class Takes(Origin):
    """Slices of the first operand along ``axis`` (None: of all its elements), by indices."""

    axis: str = "axis"


@dataclass(frozen=True, slots=True)
class Window(Origin):
    """Windows over images: along the axes of space, and of the batch's each by itself.

    ``layout`` and ``out``: the attributes that say the layouts of operand and result (``out`` is
    "" where one attribute says both).
    """

    layout: str = "layout"
    out: str = "out_layout"


class Contraction(Origin):
    """Sums of products of the operands' elements; machines have libraries for them."""


class MatMul(Contraction):
    """Matrix products as numpy's ``matmul``."""


class Einsum(Contraction):
    """A contraction of a tuple of tensors that the attribute ``subscripts`` describes."""


@dataclass(frozen=True, slots=True)
class Convolution(Window, Contraction):
    """A window whose elements are summed with weights, the second operand.

    ``transposed``: it is the gradient of one; windows of the result are summed up.
    """

    layout: str = "data_layout"
    transposed: bool = False


class Replicates(Origin):
    """The result is whole on every device, however the operand is cut."""


def axes_of(given: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The axes that an attribute says, counted from the front; None: all."""
    if given is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in ((given,) if isinstance(given, int) else given))


# ---- what may be done with a call
class Commutative(Trait):
    """The two operands may change places."""


class Division(Trait):
    """Has no value, or traps, where integers are divided by zero."""


class Allocates(Trait):
    """Gives memory of its own at each call, pure as it is: two calls are not one."""


class Random(Trait):
    """Gives other numbers at each run, although it has no effects."""


@dataclass(frozen=True, slots=True)
class Foreign(Trait):
    """Calls code that is no part of the program.

    Some such calls are pure because their caller promises it; what they do where nothing uses
    their results is not for the compiler to see. ``ordered``: it may write what others read, so
    that its place among others with effects counts.
    """

    ordered: bool = False


# ---- of rows: devices and shapes
class Waits(Trait):
    """Waits for someone outside of the program."""


class AsksPlace(Trait):
    """Asks which of several devices this is."""


@dataclass(frozen=True, slots=True)
class Collective(Trait):
    """An exchange between devices, which the attribute ``devices`` names ("": between all)."""

    devices: str = "replica_groups"


class ComputesElements(Trait):
    """Its regions compute one element, or join two."""


@dataclass(frozen=True, slots=True)
class OnlyWhole(Trait):
    """XLA:CPU has no code for it where one element is computed: it ends the process there.

    (jaxlib 0.10 to 0.12.) ``inside``: only in this operation's computation. ``vectors``: products
    by vectors have code. ``vectorised``: a function of JAX computes it for all elements at once,
    and so runs.
    """

    inside: str = ""
    vectors: bool = False
    vectorised: bool = True


class ShapedByValue(Trait):
    """The result's shape is that of a value: it has to be refined, not only retyped."""


# ---- how raising finds the operator
@dataclass(frozen=True, slots=True)
class AsRow(Trait):
    """On most dtypes exactly this row of StableHLO or CHLO (``chlo.erf``).

    ``on``: on this dtype alone; ``direction``: of a ``compare``.
    """

    row: str
    on: str = ""
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Recognised(Trait):
    """Several rows, in which raising finds the operator by its lowering and its other spellings.

    The operands are of the result's shape; attributes have their defaults. ``floats``: only in
    dtypes of floats. ``by``: the row near which it is looked for, "" the one of its rows of which
    fewest other operators are made.
    """

    floats: bool = True
    by: str = ""
