"""Operators of torch in the form that TVM's importer of exported programs gives them.

relax2xla's own importer has another form for these: fewer operators, or torch's derivative where
an element is equal to a bound. The values are the same, and programs for TVM that look for TVM's
operators find them. Where TVM's form gives other values than torch (negative indices, small
arguments of ``expm1``) or is slower (a sort for a maximum), relax2xla's stays.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from relax2xla import op
from relax2xla.dtypes import is_float, limits
from relax2xla.ir import TensorStructInfo, Tuple, Var
from relax2xla.ir.op import is_op

if TYPE_CHECKING:
    from relax2xla.frontend.torch import ExportedProgramImporter

_INDEX: Final = "int32"


def _argument(node: Any, index: int, name: str, default: Any) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def _info(x: Any) -> TensorStructInfo:
    """Struct info of a tensor; an empty one of anything else."""
    info = getattr(x, "struct_info", None)
    return info if isinstance(info, TensorStructInfo) else TensorStructInfo(None, "")


def _embedding(node: Any, importer: ExportedProgramImporter) -> Any:
    """A flat ``take`` at int32; with ``padding_idx`` torch's derivative counts."""
    weight, indices = importer.retrieve_args(node)[:2]
    rows, shape = _info(weight).dims, _info(indices).dims
    if rows is None or shape is None or _argument(node, 2, "padding_idx", -1) >= 0:
        return importer.convert(node)
    if not isinstance(rows[0], int) or rows[0] > limits(_INDEX)[1]:
        return importer.convert(node)
    emit = importer.block_builder.emit
    at = emit(op.astype(indices, _INDEX))
    if len(shape) == 1:
        return op.take(weight, at, axis=0)
    flat = emit(op.take(weight, emit(op.reshape(at, (-1,))), axis=0))
    return op.reshape(flat, (*shape, *rows[1:]))


def _hardtanh(node: Any, importer: ExportedProgramImporter) -> Any:
    """``clip``, whose derivative at the bounds is 1 where torch's is 0."""
    x = importer.retrieve_args(node)[0]
    low, high = (_argument(node, *a) for a in ((1, "min_val", -1.0), (2, "max_val", 1.0)))
    if not is_float(_info(x).dtype) or low > high:
        return importer.convert(node)
    return op.clip(x, low, high)


def _max_pool(node: Any, importer: ExportedProgramImporter) -> Any:
    """The values and zeros in a tuple, where nothing reads the places of the largest elements."""
    made = importer.convert(node)
    takes_values = all(u.target is operator.getitem and u.args[1] == 0 for u in node.users)
    if not takes_values or made[1] is not None:
        return made
    emit = importer.block_builder.emit
    values = emit(made[0])
    return Tuple([values, emit(op.zeros_like(values))])


def _value(node: Any, importer: ExportedProgramImporter) -> Any:
    """One operator, without torch's derivative among equal elements or at bounds."""
    made = importer.convert(node)
    return made.args[0] if is_op(made, "relax.grad.differentiate_as") else made


def _slice(node: Any, importer: ExportedProgramImporter) -> Any:
    """Slices of everything are slices, unless they are ``[:]``."""
    made = importer.convert(node)
    x, axis = importer.retrieve_args(node)[0], _argument(node, 1, "dim", 0)
    start, end = _argument(node, 2, "start", None), _argument(node, 3, "end", None)
    end = sys.maxsize if end is None else end
    numbers = isinstance(start, int | None) and isinstance(end, int)
    if made is not x or not numbers or (not start and end >= sys.maxsize):
        return made
    return op.strided_slice(x, [axis], [start or 0], [end], [1])


def _copy(node: Any, importer: ExportedProgramImporter) -> Any:
    """A broadcast also to the shape that there is."""
    made, builder = importer.convert(node), importer.block_builder
    shape = _info(made).dims
    bound = builder.lookup_binding(made) if isinstance(made, Var) else made
    if shape is None or (bound is not None and is_op(bound, "relax.broadcast_to")):
        return made
    return op.broadcast_to(made if isinstance(made, Var) else builder.emit(made), shape)


#: As ``custom_convert_map`` takes them.
CONVERTERS: Final[dict[str, Callable[[Any, ExportedProgramImporter], Any]]] = {
    "clamp.default": _value,
    "copy.default": _copy,
    "embedding.default": _embedding,
    "hardtanh.default": _hardtanh,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
    "median.default": _value,
    "slice.Tensor": _slice,
}
