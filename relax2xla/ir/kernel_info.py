"""What callers know of a loop-level function: the struct info of its GlobalVar."""

from __future__ import annotations

from relax2xla import tir
from relax2xla.ir.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.tir.kernel.use import expressions
from relax2xla.tir.stmt import walk

# Calls that do something beside giving a value.
_EFFECTS = ("tir.call_extern", "tir.tvm_call", "tir.anylist", "tir.ptx_", "tir.tvm_struct_set")


def kernel_info(func: tir.PrimFunc) -> FuncStructInfo:
    """What it takes (:func:`kernel_params`), and what it returns.

    It is pure if it writes to no buffer but its own and calls nothing that could.
    """
    ret = TupleStructInfo(()) if func.ret_type is None else PrimStructInfo(func.ret_type)
    return FuncStructInfo(kernel_params(func), ret, _is_pure(func))


def kernel_params(func: tir.PrimFunc) -> list[StructInfo]:
    """A tensor for each buffer, a scalar for each other parameter; sizes are int64."""
    params: list[StructInfo] = []
    for p in func.params:
        buffer = func.buffer_map.get(p)
        if buffer is not None:
            dims = [d if isinstance(d, int) else tir.cast("int64", d) for d in buffer.shape]
            params.append(TensorStructInfo([tir.as_dim(d) for d in dims], buffer.dtype))
        else:
            params.append(ObjectStructInfo() if p.dtype == "handle" else PrimStructInfo(p.dtype))
    return params


def _is_pure(func: tir.PrimFunc) -> bool:
    own: set[tir.Var] = set()
    stored: set[tir.Var] = set()
    nodes = list(walk(func.body))
    for node in nodes:
        if isinstance(node, tir.Allocate | tir.AllocateConst):
            own.add(node.buffer_var)
        elif isinstance(node, tir.BlockRealize):
            own.update(b.data for b in node.block.alloc_buffers)
        elif isinstance(node, tir.BufferStore):
            stored.add(node.buffer.data)
        elif isinstance(node, tir.Text):
            return False
    if not stored <= own:
        return False  # as most do; only what stays needs a look at its expressions
    for node in nodes:
        for e in expressions(node):
            for x in tir.post_order(e):
                if isinstance(x, tir.Call) and x.op.startswith(("@", *_EFFECTS)):
                    return False
    return True
