"""Loop-level functions that are built alone: a Relax function for each, of the same name.

It takes the parameters in order, and gives the buffers that the kernel writes, as new arrays: what
a caller passes is not changed. A number is an array of no axes there; one that the kernel returns
comes last. A kernel whose body is ``pass`` gives an empty tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import Call, Function, GlobalVar, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.ir.expr import BindingBlock, SeqExpr, VarBinding
from relax2xla.op.intrinsic import call_tir, call_tir_inplace
from relax2xla.stablehlo.loops import written_parameters
from relax2xla.tir import stmt
from relax2xla.tir.buffer import Buffer


def with_entries(mod: IRModule) -> IRModule:
    """``mod``; where it has loop-level functions alone, with a Relax function for each.

    Raises TVMError for a kernel whose shapes are made of numbers that it takes, that returns within
    a loop, that gives nothing, or that was kept as text.
    """
    kernels = {g: f for g, f in mod.items() if isinstance(f, tir.PrimFunc)}
    if not kernels or mod.relax_functions():
        return mod
    new: dict[GlobalVar, Function | tir.PrimFunc] = {}
    for gvar, func in kernels.items():
        if isinstance(func.body, tir.Text):
            raise TVMError(f"{gvar.name_hint} cannot be run: {func.body.why}")
        callee = GlobalVar(f"{gvar.name_hint}_kernel")
        made, result = _with_result(gvar.name_hint, _with_arrays(gvar.name_hint, func))
        new[callee] = made.without_attr("global_symbol")
        new[GlobalVar(gvar.name_hint)] = _entry(gvar.name_hint, callee, made, result)
    return mod.replace(new)


def _entry(name: str, callee: GlobalVar, func: tir.PrimFunc, result: bool) -> Function:
    buffers = [func.buffer_map[p] for p in func.params]
    sizes: dict[tir.PrimExpr, tir.Var] = {}
    infos = [TensorStructInfo([_size(d, sizes) for d in b.shape], b.dtype) for b in buffers]
    written = written_parameters(func)
    given = [Var(b.name, i) for b, i in zip(buffers, infos, strict=True)]
    if not written:
        if _idle(func.body):
            return Function(given, SeqExpr([], Tuple([])), attrs={"global_symbol": name})
        evaluated = (s for s in stmt.walk(func.body) if isinstance(s, stmt.Evaluate))
        calls = [(s.line, s.value.op) for s in evaluated if isinstance(s.value, tir.Call)]
        only = f"; it calls {calls[0][1]} for its effect" if calls else ""
        where = f"line {calls[0][0]}: " if calls and calls[0][0] else _first_line(func.body)
        raise TVMError(
            f"{where}{name} writes none of its buffers and returns nothing, so there is nothing to "
            f"compute{only}. Functions are called for their effect from Relax (R.call_dps_packed)"
        )
    results = [infos[i] for i in written]
    info = results[0] if len(results) == 1 else results
    if result:
        given.pop()
        written[-1] = -1
    call: Call
    if written == [-1]:
        call = call_tir(callee, Tuple(given), info)
    else:
        call = call_tir_inplace(callee, Tuple(given), written, info)
    out = Var("result", call.struct_info)
    body = SeqExpr([BindingBlock([VarBinding(out, call)])], out)
    return Function(given, body, attrs={"global_symbol": name})


def _idle(body: stmt.Stmt) -> bool:
    """Whether a body does nothing at all, such as ``pass``."""
    passive = (stmt.SeqStmt, stmt.For, stmt.Block, stmt.BlockRealize)
    return all(
        not isinstance(s.value, tir.Call)
        if isinstance(s, stmt.Evaluate)
        else isinstance(s, passive)
        for s in stmt.walk(body)
    )


def _first_line(body: stmt.Stmt) -> str:
    """Where a kernel begins, for a message; nothing where it is not known."""
    line = next((s.line for s in stmt.walk(body) if s.line), 0)
    return f"line {line}: " if line else ""


def _with_arrays(name: str, func: tir.PrimFunc) -> tir.PrimFunc:
    """``func`` with a buffer of no axes for each number that it takes."""
    for p in func.params:
        if p.dtype == "handle" and p not in func.buffer_map:
            raise TVMError(
                f"{_first_line(func.body)}{name} takes the pointer {p.name}, of which no buffer is "
                "made (T.match_buffer); a kernel that is built alone takes buffers and numbers"
            )
    shaped = {v for b in func.buffer_map.values() for d in b.shape for v in _variables(d)}
    sizes = [p.name for p in func.params if p in shaped]
    if sizes:
        raise TVMError(
            f"{name} takes numbers beside buffers whose shapes they are ({', '.join(sizes)}); "
            "a kernel that is built alone takes its sizes from its buffers. Call it from a Relax "
            "function, with tir_vars of R.call_tir"
        )
    numbers = {
        p: tir.decl_buffer((), p.dtype, p.name) for p in func.params if p not in func.buffer_map
    }
    loads = {p: tir.BufferLoad(b, ()) for p, b in numbers.items()}
    params = [numbers.get(p, p) for p in func.params]
    body = tir.stmt_functor.substitute(func.body, loads)
    return tir.PrimFunc(params, body, func.ret_type, func.buffer_map, func.attrs)


def _variables(dim: tir.Dim) -> Sequence[tir.Var]:
    return () if isinstance(dim, int) else tuple(tir.free_vars(dim))


def _with_result(name: str, func: tir.PrimFunc) -> tuple[tir.PrimFunc, bool]:
    """``func`` with a last parameter, of no axes, for what it returns; and whether it does."""
    returns = [s for s in stmt.walk(func.body) if _is_return(s)]
    if not returns:
        return func, False
    (value,) = _returned(returns[0]).args
    buffer = tir.decl_buffer((), value.dtype, "returned")
    body, ends = _Returns(name, buffer).stored([func.body])
    if not ends:
        raise TVMError(f"{name} returns a value in some cases only; let it return one in all")
    made = tir.PrimFunc([*func.params, buffer], body, None, func.buffer_map, func.attrs)
    return made, True


@dataclass(frozen=True, slots=True)
class _Returns:
    """Statements that store what they return, and end there."""

    name: str
    buffer: Buffer

    def stored(self, statements: Sequence[stmt.Stmt]) -> tuple[stmt.Stmt, bool]:
        """The statements as one, and whether they always return.

        What comes after a case that returns is for the other case. TVMError for a return within a
        loop or a block.
        """
        done: list[stmt.Stmt] = []
        rest = [x for s in statements for x in stmt.stmt_list(s)]
        while rest:
            s, *rest = rest
            if _is_return(s):
                (value,) = _returned(s).args
                return stmt.seq([*done, tir.BufferStore(self.buffer, value, (), line=s.line)]), True
            if not any(map(_is_return, stmt.walk(s))):
                done.append(s)
            elif isinstance(s, stmt.IfThenElse):
                first, ends = self.stored([s.then_case])
                if not ends:
                    first, ends = self.stored([s.then_case, *rest])
                second, ends_too = self.stored([*([s.else_case] if s.else_case else []), *rest])
                done.append(replace(s, then_case=first, else_case=second))
                return stmt.seq(done), ends and ends_too
            elif not rest and not isinstance(s, stmt.For | stmt.While | stmt.BlockRealize):
                (inner,) = stmt.children(s)
                body, ends = self.stored([inner])
                return stmt.seq([*done, stmt.with_children(s, [body])]), ends
            else:
                line = next(x.line for x in stmt.walk(s) if _is_return(x))
                where = f"line {line}: " if line else ""
                raise TVMError(
                    f"{where}{self.name} returns before its end within a loop, which a kernel "
                    "cannot do; use a select"
                )
        return stmt.seq(done), False


def _returned(s: stmt.Stmt) -> tir.Call:
    assert isinstance(s, stmt.Evaluate)
    assert isinstance(s.value, tir.Call)
    return s.value


def _is_return(s: stmt.Stmt) -> bool:
    value = s.value if isinstance(s, stmt.Evaluate) else None
    return isinstance(value, tir.Call) and value.op == "tir.ret"


def _size(dim: tir.Dim, sizes: dict[tir.PrimExpr, tir.Var]) -> tir.Dim:
    """A size of the Relax function for one of the kernel: an int64, whatever dtype it has there."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, tir.IntImm):
        return dim.value
    return sizes.setdefault(dim, tir.Var(dim.name if isinstance(dim, tir.Var) else "n", "int64"))
