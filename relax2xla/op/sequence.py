"""``relax.sequence``: lists of tensors whose length is known when the program runs, and optionals.

A sequence is an object: the virtual machine keeps it as a tuple of arrays and works on it between
compiled parts. An optional value that is not there is None (``R.null_value()``). Callers of a
function may give lists. Semantics: the sequence and optional operators of ONNX (opsets 11 to 18).
"""

from __future__ import annotations

from typing import Annotated, Any

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import op
from relax2xla.ir.op_param import IntsLike, Kind, as_dtype
from relax2xla.ir.struct_info import ObjectStructInfo, StructInfo, TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import INTEGER, want_tensor

# The dtype of tensors; "" for strings.
ElementType = Annotated[Any, Kind(False, lambda value: as_dtype(value) or "")]


def _element(dtype: str, ndim: int) -> StructInfo:
    """A tensor of unknown shape; without a dtype an object, such as a tensor of strings."""
    return TensorStructInfo(None, dtype, ndim=ndim) if dtype else ObjectStructInfo()


def _want_position(position: Expr) -> None:
    info = want_tensor(position, "position", INTEGER)
    if info.dims is not None and any(isinstance(d, int) and d != 1 for d in info.dims):
        raise OpError(f"`position` must have one element; got the shape {info.dims}")


@op("relax.sequence.construct", Opaque())
def construct(*tensors: Expr) -> StructInfo:
    """The sequence of ``tensors``.

    tensors: any number, any dtype
    result: an object
    """
    return ObjectStructInfo()


@op("relax.sequence.at", Opaque())
def at(sequence: Expr, position: Expr, dtype: ElementType = "", ndim: int = -1) -> StructInfo:
    """One tensor of a sequence.

    sequence: an object; position: (), an integer, negative from the end; an error out of range
    result: a tensor of ``dtype`` and rank ``ndim`` (-1: any), which the machine checks; without a
    ``dtype`` a tensor of strings
    """
    _want_position(position)
    return _element(dtype, ndim)


@op("relax.sequence.insert", Opaque())
def insert(sequence: Expr, tensor: Expr, position: Expr) -> StructInfo:
    """A sequence with ``tensor`` before the place ``position``, from -length to length.

    sequence: an object; tensor: any tensor; position: (), an integer
    result: an object
    """
    _want_position(position)
    return ObjectStructInfo()


@op("relax.sequence.erase", Opaque())
def erase(sequence: Expr, position: Expr) -> StructInfo:
    """A sequence without the tensor at ``position``, from -length to length - 1.

    sequence: an object; position: (), an integer
    result: an object
    """
    _want_position(position)
    return ObjectStructInfo()


@op("relax.sequence.length", Opaque())
def length(sequence: Expr) -> StructInfo:
    """How many tensors a sequence has: (), int64.

    sequence: an object
    result: (), int64
    """
    return TensorStructInfo((), "int64")


@op("relax.sequence.concat", Opaque())
def concat(
    sequence: Expr, axis: int = 0, new_axis: int = 0, dtype: ElementType = "", ndim: int = -1
) -> StructInfo:
    """The tensors of a sequence joined along ``axis``, which is a new one with ``new_axis`` 1.

    sequence: an object
    result: as of :func:`at`
    """
    return _element(dtype, ndim)


@op("relax.sequence.stack", Opaque())
def stack(sequence: Expr, shape: IntsLike = (), dtype: ElementType = "float32") -> StructInfo:
    """The tensors of a sequence joined along a new first axis.

    sequence: an object
    shape: of the tensors where there is none, so that the result then is (0, *shape)
    result: rank len(shape) + 1, ``dtype``
    """
    return TensorStructInfo(None, dtype, ndim=len(shape) + 1)


@op("relax.sequence.split", Opaque())
def split(x: Expr, lengths: Expr, axis: int = 0, keepdims: int = 1) -> StructInfo:
    """A tensor cut along ``axis`` into the parts of a sequence.

    lengths: (k,), that of each part; or (), of all but the last, which may be shorter
    x: any tensor; keepdims: 0 takes the axis away (of parts of length 1)
    result: an object
    """
    want_tensor(lengths, "lengths", INTEGER)
    return ObjectStructInfo()


@op("relax.sequence.has_element", Opaque())
def has_element(optional: Expr) -> StructInfo:
    """Whether an optional value is there: (), bool.

    optional: an object
    result: (), bool
    """
    return TensorStructInfo((), "bool")


@op("relax.sequence.get", Opaque())
def get(optional: Expr, dtype: ElementType = "", ndim: int = -1) -> StructInfo:
    """The value that an optional holds; an error where it is not there.

    optional: an object
    result: as of :func:`at`, and an object for a sequence
    """
    return _element(dtype, ndim)
