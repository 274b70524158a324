"""Loop-level functions that are built alone: a Relax function for each, of the same name.

It takes the buffers in order, and gives those that the kernel writes, as new arrays: what a caller
passes is not changed.
"""

from __future__ import annotations

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import Call, Function, GlobalVar, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.ir.expr import BindingBlock, SeqExpr, VarBinding
from relax2xla.op.intrinsic import call_tir_inplace
from relax2xla.stablehlo.loops import written_parameters


def with_entries(mod: IRModule) -> IRModule:
    """``mod``; where it has loop-level functions alone, with a Relax function for each.

    Raises TVMError for a kernel that takes numbers beside buffers, or writes nothing.
    """
    kernels = {g: f for g, f in mod.items() if isinstance(f, tir.PrimFunc)}
    if not kernels or mod.relax_functions():
        return mod
    new: dict[GlobalVar, Function | tir.PrimFunc] = {}
    for gvar, func in kernels.items():
        callee = GlobalVar(f"{gvar.name_hint}_kernel")
        new[callee] = func.without_attr("global_symbol")
        new[GlobalVar(gvar.name_hint)] = _entry(gvar.name_hint, callee, func)
    return mod.replace(new)


def _entry(name: str, callee: GlobalVar, func: tir.PrimFunc) -> Function:
    numbers = [p.name for p in func.params if p not in func.buffer_map]
    if numbers:
        raise TVMError(
            f"{name} takes numbers beside buffers ({', '.join(numbers)}); a kernel that is built "
            "alone takes buffers. Call it from a Relax function, with tir_vars of R.call_tir"
        )
    buffers = [func.buffer_map[p] for p in func.params]
    sizes: dict[tir.PrimExpr, tir.Var] = {}
    infos = [TensorStructInfo([_size(d, sizes) for d in b.shape], b.dtype) for b in buffers]
    written = written_parameters(func)
    if not written:
        raise TVMError(f"{name} writes none of its buffers, so there is nothing to compute")
    params = [Var(b.name, i) for b, i in zip(buffers, infos, strict=True)]
    results = [infos[i] for i in written]
    call: Call = call_tir_inplace(
        callee, Tuple(params), written, results[0] if len(results) == 1 else results
    )
    out = Var("result", call.struct_info)
    body = SeqExpr([BindingBlock([VarBinding(out, call)])], out)
    return Function(params, body, attrs={"global_symbol": name})


def _size(dim: tir.Dim, sizes: dict[tir.PrimExpr, tir.Var]) -> tir.Dim:
    """A size of the Relax function for one of the kernel: an int64, whatever dtype it has there."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, tir.IntImm):
        return dim.value
    return sizes.setdefault(dim, tir.Var(dim.name if isinstance(dim, tir.Var) else "n", "int64"))
