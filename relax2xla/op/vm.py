"""``relax.vm``: storage and calls of TVM's virtual machine.

They can be built, printed and parsed, but not run: XLA plans memory by itself. Source: TVM Relax
v0.20.
"""

from __future__ import annotations

from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import PrimLike, ShapeLike
from relax2xla.ir.struct_info import ObjectStructInfo, TupleStructInfo
from relax2xla.ir.traits import Allocates, Opaque
from relax2xla.op.builtin import DTypeOperand, StringOperand, dtype_literal, pointless
from relax2xla.op.intrinsic import Arguments, Callee
from relax2xla.op.shared.checks import tensor, want_shape


@op("relax.vm.alloc_storage", Opaque(), Allocates())
def alloc_storage(
    shape: ShapeLike,
    runtime_device_index: PrimLike,
    dtype: DTypeOperand,
    storage_scope: StringOperand = "global",
) -> Rule:
    """A block of memory. It cannot run: XLA plans memory by itself.

    shape: its size; runtime_device_index: an integer; dtype, storage_scope: of its elements
    result: an object
    """
    want_shape(shape, "shape")
    return ObjectStructInfo(), pointless("vm.alloc_storage")


@op("relax.vm.alloc_tensor", Opaque(), Allocates())
def alloc_tensor(
    storage: Expr,
    offset: PrimLike,
    shape: ShapeLike,
    dtype: DTypeOperand,
    runtime_device_ind: PrimLike = 0,
) -> Rule:
    """A tensor in a block of memory. It cannot run: XLA plans memory by itself.

    storage: of alloc_storage; offset: in bytes; shape: a shape; runtime_device_ind: an integer
    result: ``shape``, ``dtype``
    """
    held = want_shape(shape, "shape")
    info = tensor(held.values, dtype_literal(dtype), held.ndim)
    return info, pointless("vm.alloc_tensor")


@op("relax.vm.kill_object", Opaque(), pure=False)
def kill_object(obj: Expr) -> Rule:
    """Ends the life of a value. It cannot run: XLA frees memory by itself.

    obj: any value
    result: an empty tuple
    """
    return TupleStructInfo(()), pointless("vm.kill_object")


@op("relax.vm.call_tir_dyn", Opaque(), pure=False)
def call_tir_dyn(func: Callee, args: Arguments) -> Rule:
    """A call of a loop-level function with tensors and the values of its symbolic parameters.

    It cannot run: use call_tir.

    func: the function; args: a tuple
    result: an empty tuple
    """
    return TupleStructInfo(()), pointless("vm.call_tir_dyn", "; use call_tir")
