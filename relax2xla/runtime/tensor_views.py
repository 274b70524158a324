"""``R.memory.view`` as a packed function of TVM's runtime, and the rule for what it gives.

LowerRuntimeBuiltin writes calls of it. Source: TVM Relax v0.20; 0.25 calls the function otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from relax2xla import op
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import RunError, StructInfoError
from relax2xla.ir import Call, StructInfo

#: The packed function in TVM 0.20, and the rule of its result.
CREATE_VIEW: Final = "runtime.TVMArrayCreateView"
VIEW_RULE: Final = "tvm.relax.struct_info.infer_view_sinfo"
_NEWER: Final = "runtime.TVMTensorCreateView"


def _create_view(array: Any, shape: Sequence[int], dtype: str, offset: int) -> Any:
    """The bytes of ``array`` from ``offset`` on as ``shape`` and ``dtype``."""
    held, kind = np.ascontiguousarray(np.asarray(array)), numpy_dtype(dtype)
    end = offset + math.prod(shape) * kind.itemsize
    if offset < 0 or end > held.nbytes:
        raise RunError(
            f"{CREATE_VIEW}: {dtype}{tuple(shape)} at byte {offset} ends at byte {end}, beyond an "
            f"array of {held.nbytes} bytes"
        )
    return held.reshape(-1).view(np.uint8)[offset:end].view(kind).reshape(tuple(shape))


def _view_rule(call: Call, builder: Any) -> StructInfo:
    """The struct info of a call of it: that of ``R.memory.view`` of the same operands."""
    if len(call.args) != 4:
        raise StructInfoError(
            f"{VIEW_RULE}: a view takes a tensor, a shape, a dtype and an offset in bytes; got "
            f"{len(call.args)} operands"
        )
    return op.memory.view(*call.args).struct_info


BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    CREATE_VIEW: _create_view,
    _NEWER: _create_view,
    VIEW_RULE: _view_rule,
}
