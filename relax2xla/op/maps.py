"""``relax.maps``: dictionaries from integers or strings to numbers or strings.

They run on the host, where a map is an object, a Python dict. Semantics: the operators of
ai.onnx.ml on maps.
"""

from __future__ import annotations

from relax2xla.ir.expr import Expr
from relax2xla.ir.op import op
from relax2xla.ir.struct_info import ObjectStructInfo, StructInfo, TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.sequence import ElementType
from relax2xla.op.shared.checks import want_tensor


def _rank_two(dtype: str) -> StructInfo:
    return TensorStructInfo(None, dtype, ndim=2) if dtype else ObjectStructInfo()


@op("relax.maps.zip", Opaque())
def zip(x: Expr, integers: tuple[int, ...] = (), strings: tuple[str, ...] = ()) -> StructInfo:
    """A sequence of maps, one for each row, from keys to the numbers of the row.

    x: (rows, keys), or (keys,); the keys are ``integers`` or, where there are none, ``strings``
    result: an object
    """
    want_tensor(x, "x")
    return ObjectStructInfo()


@op("relax.maps.vectorize", Opaque())
def vectorize(
    map: Expr,
    integers: tuple[int, ...] = (),
    strings: tuple[str, ...] = (),
    dtype: ElementType = "",
) -> StructInfo:
    """The values of a map in the order of keys; 0 or "" for keys that it lacks.

    map: an object
    result: (1, keys), ``dtype``, "" for strings
    """
    return _rank_two(dtype)


@op("relax.maps.cast", Opaque())
def cast(map: Expr, size: int = -1, dtype: ElementType = "") -> StructInfo:
    """The values of a map with integer keys, by key; strings are read as numbers.

    map: an object
    size: -1: as many as there are, in ascending order of the keys; else each at the place that its
    key says, and 0 or "" elsewhere
    result: (1, n), ``dtype``, "" for strings
    """
    return _rank_two(dtype)
