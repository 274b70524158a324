"""A PrimFunc on tensors: parameters matched with arguments, then its statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from relax2xla import tir
from relax2xla.dtypes import DTYPES, is_kind
from relax2xla.ir.expr import Constant, Expr, Function, PrimValue, Var
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.op.shared.lowering import convert, dtype_of, full, reshape, shape_of, static
from relax2xla.stablehlo.loops.accesses import resolved, statements, views_below
from relax2xla.stablehlo.loops.affine import Form, number
from relax2xla.stablehlo.loops.allreduce import allreduces_as_stores
from relax2xla.stablehlo.loops.axes import NeedsLoop, Value, constant
from relax2xla.stablehlo.loops.evaluate import evaluate
from relax2xla.stablehlo.loops.lanes import lanes_as_loops
from relax2xla.stablehlo.loops.memory import fixed_shape
from relax2xla.stablehlo.loops.private import uses
from relax2xla.stablehlo.loops.repeat import function
from relax2xla.stablehlo.loops.state import Kernel, Memory, Scope, StayedLoop
from relax2xla.stablehlo.loops.statements import run
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import STORAGE_SCOPES, Buffer, BufferLoad, is_storage_scope
from relax2xla.tir.functor import post_order
from relax2xla.tir.kernel.use import expressions
from relax2xla.tir.node import element_of, is_int
from relax2xla.tir.stmt import BufferStore

Argument = Expr | TensorStructInfo | int | float
"""A tensor, the struct info of a new tensor (its first contents are zeros), or a number."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a kernel became: the contents of each buffer parameter afterwards, by parameter.

    ``loops``: the loops that stayed sequential, each with the reason; ``forms``: how many rows of
    which kind were recognised.
    """

    contents: dict[int, Expr]
    written: frozenset[int]
    loops: tuple[StayedLoop, ...]
    forms: dict[str, int]


def lower(func: tir.PrimFunc, arguments: Sequence[Argument], name: str = "kernel") -> Lowered:
    """Rows that do what ``func`` does on ``arguments``.

    arguments: one for each parameter; static shapes
    result: the contents of the buffers afterwards. Raises LegalizeError, with the line of the
    script, where an argument does not fit or a statement cannot be lowered.
    """
    kernel = Kernel(name, evaluate, run)
    if len(arguments) != len(func.params):
        raise kernel.error(
            f"the kernel takes {len(func.params)} parameters "
            f"({', '.join(p.name for p in func.params)}); got {len(arguments)} arguments"
        )
    scope = Scope()
    buffers: list[tuple[int, Buffer, Expr | TensorStructInfo]] = []
    for i, (param, argument) in enumerate(zip(func.params, arguments, strict=True)):
        buffer = func.buffer_map.get(param)
        if buffer is not None:
            if isinstance(argument, int | float):
                raise kernel.error(f"the parameter {param.name} is a buffer; got {argument}")
            buffers.append((i, buffer, argument))
        else:
            scope = scope.bind(param, _scalar(kernel, param, argument))
    for _, buffer, argument in buffers:
        scope = _sizes(kernel, buffer, argument, scope)
    for _, buffer, argument in buffers:
        _enter(kernel, buffer, argument, scope)
    kernel.parameters = set(kernel.memory)
    body = allreduces_as_stores(lanes_as_loops(func.body))
    _check_scopes(kernel, func)
    kernel.uses = uses(kernel, body)
    _check_accesses(kernel, body)
    try:
        run(kernel, body, scope)
    except NeedsLoop as e:
        raise kernel.error(f"internal error: no loop is left to run step by step ({e.why})") from e
    except RecursionError:
        raise kernel.error("statements or expressions are nested too deeply") from None
    changed = _written(func)
    contents = {
        i: kernel.memory[b.data].viewed(fixed_shape(kernel, b, scope)).expr for i, b, _ in buffers
    }
    return Lowered(
        contents,
        frozenset(i for i, b, _ in buffers if b.data in changed),
        tuple(kernel.loops),
        kernel.forms,
    )


def _written(func: tir.PrimFunc) -> set[tir.Var]:
    views = views_below(func.body)
    found: set[tir.Var] = set()
    for s in statements(func.body):
        if isinstance(s, BufferStore):
            found.add(resolved(views, s.buffer).data)
    return found


def written_parameters(func: tir.PrimFunc) -> list[int]:
    """Which parameters are buffers that ``func`` writes."""
    changed = _written(func)
    held = [func.buffer_map.get(p) for p in func.params]
    return [i for i, b in enumerate(held) if b is not None and b.data in changed]


def _scalar(kernel: Kernel, param: tir.Var, argument: Argument) -> Form | Value:
    if isinstance(argument, PrimValue) and isinstance(argument.value, tir.IntImm | tir.FloatImm):
        argument = argument.value.value
    if isinstance(argument, Constant) and argument.data.size == 1:
        argument = argument.data.reshape(()).item()
    if isinstance(argument, int | float):
        if is_int(param.dtype):
            return number(int(argument))
        return constant(argument, param.dtype)
    if isinstance(argument, Expr) and isinstance(argument.struct_info_, TensorStructInfo):
        return Value(convert(reshape(argument, ()), param.dtype))
    raise kernel.error(f"the parameter {param.name} is a {param.dtype}; got {argument!r}")


def _shape(argument: Expr | TensorStructInfo, name: str) -> tuple[int, ...]:
    if isinstance(argument, Expr):
        return shape_of(argument)
    return static(argument.dims, f"the shape of {name}")


def _sizes(
    kernel: Kernel, buffer: Buffer, argument: Expr | TensorStructInfo, scope: Scope
) -> Scope:
    """``scope`` with the symbolic sizes that the argument's shape gives."""
    shape = _shape(argument, buffer.name)
    if len(shape) != len(buffer.shape):
        raise kernel.error(
            f"the buffer {buffer.name} has {len(buffer.shape)} axes; got a tensor of shape {shape}"
        )
    for dim, size in zip(buffer.shape, shape, strict=True):
        if isinstance(dim, tir.Var) and dim not in scope.env:
            scope = scope.bind(dim, number(size))
    steps = 1
    for stride, size in reversed(list(zip(buffer.strides, shape, strict=False))):
        if isinstance(stride, tir.Var) and stride not in scope.env:
            scope = scope.bind(stride, number(steps))
        steps *= size
    return scope


def _enter(kernel: Kernel, buffer: Buffer, argument: Expr | TensorStructInfo, scope: Scope) -> None:
    """Give a parameter its memory."""
    shape, given = fixed_shape(kernel, buffer, scope), _shape(argument, buffer.name)
    dtype = dtype_of(argument) if isinstance(argument, Expr) else argument.dtype
    if shape != given or dtype != buffer.dtype:
        raise kernel.error(
            f"the buffer {buffer.name} is {buffer.dtype}{list(shape)}; got a tensor "
            f"{dtype}{list(given)}"
        )
    if not isinstance(argument, Expr):
        argument = full(shape, 0, dtype)
    kernel.memory[buffer.data] = Memory(argument, (), shape)


def lower_function(
    func: tir.PrimFunc, infos: Sequence[TensorStructInfo | int | float], name: str = "kernel"
) -> Function:
    """``func`` as a function of rows, for parameters of these struct infos.

    infos: for each parameter its static tensor, or the number that it is
    result: a function of the buffers in order, which gives those that ``func`` writes (one, or a
    tuple).
    """
    arguments: list[Argument] = []
    params: list[Var] = []
    for param, info in zip(func.params, infos, strict=True):
        if isinstance(info, TensorStructInfo):
            params.append(Var(param.name, info))
            arguments.append(params[-1])
        else:
            arguments.append(info)
    made = lower(func, arguments, name)
    results = [made.contents[i] for i in sorted(made.written)]
    return function(params, results)


def _check_accesses(kernel: Kernel, body: st.Stmt) -> None:
    """Refuse indices that are no integers, and loads and stores of some lanes only.

    Those are made by TVM's vectoriser, and do not run here.
    """
    for s in st.walk(body):
        accesses: list[BufferLoad | BufferStore] = [
            x for e in expressions(s) for x in post_order(e) if isinstance(x, BufferLoad)
        ]
        if isinstance(s, BufferStore):
            accesses.append(s)
        for access in accesses:
            kernel.line = s.line or kernel.line
            if access.predicate is not None:
                raise kernel.error(
                    "a load or store with a predicate cannot be lowered; write the condition with "
                    "`if` or T.if_then_else"
                )
            for index in access.indices:
                if element_of(index.dtype) not in _INDICES:
                    raise kernel.error(
                        f"the index `{index}` of {access.buffer.name} is {index.dtype}; an index "
                        "is an integer, cast it to one"
                    )


def _check_scopes(kernel: Kernel, func: tir.PrimFunc) -> None:
    """Refuse buffers in memory that there is not."""
    found = [(b.name, b.scope, b.line) for b in func.buffer_map.values()]
    for s in st.walk(func.body):
        match s:
            case st.BlockRealize():
                own = (*s.block.alloc_buffers, *(m.buffer for m in s.block.match_buffers))
                found += [(b.name, b.scope, b.line or s.line) for b in own]
            case st.DeclBuffer():
                found.append((s.buffer.name, s.buffer.scope, s.line))
            case st.Allocate():
                found.append((s.buffer_var.name, s.scope, s.line))
            case BufferStore():
                found.append((s.buffer.name, s.buffer.scope, s.buffer.line or s.line))
            case _:
                pass
    for name, scope, line in found:
        if not is_storage_scope(scope):
            kernel.line = line or kernel.line
            raise kernel.error(
                f"the buffer {name} is in the memory {scope!r}; there are "
                f"{', '.join(STORAGE_SCOPES)}, each also with a tag (shared.dyn)"
            )


_INDICES: Final = frozenset(name for name in DTYPES if is_kind(name, "bool", "int", "uint"))
