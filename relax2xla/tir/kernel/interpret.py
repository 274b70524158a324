"""Runs a loop-level function statement by statement on numpy arrays.

Slow and exact: the reference that compiled kernels are tested against. Arithmetic is that of the
dtypes (integers wrap, floats round at every step); threads run in lock-step, statement by
statement, so that no barrier is missed. Reading or writing outside of memory is an error here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import AssertError, BudgetError, RunError, UnsupportedError
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.call import Call
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.kernel.interpret_expr import Scalar, View, evaluator
from relax2xla.tir.node import Dim, PrimExpr, Var
from relax2xla.tir.reduce import CommReducer

MAX_STEPS = 20_000_000
Position: TypeAlias = tuple[int, ...]
Run: TypeAlias = Generator[Position]
_PER_THREAD = ("local", "local.fragment", "wmma.accumulator", "wmma.matrix_a", "wmma.matrix_b")


@dataclass(slots=True)
class _State:
    """What one thread knows: values of variables, memory behind pointers, views by buffer."""

    values: dict[Var, Scalar]
    memory: dict[Var, Any]
    scopes: dict[Var, str] = field(default_factory=dict[Var, str])
    views: dict[int, View] = field(default_factory=dict[int, View])
    # Threads that run: their values by tag; memory that those of one block share.
    threads: dict[str, int] = field(default_factory=dict[str, int])
    shared: dict[Var, Any] = field(default_factory=dict[Var, Any])
    # Which thread a variable is, and what those of one block put together, by statement.
    tags: dict[Var, str] = field(default_factory=dict[Var, str])
    posted: dict[object, list[list[Any]]] = field(default_factory=dict[object, "list[list[Any]]"])
    reducer: CommReducer | None = None

    def thread(self, tag: str, var: Var, value: int) -> _State:
        """The state of one more thread, with local memory of its own."""
        memory = {
            v: m.copy() if self.scopes.get(v) in _PER_THREAD else m for v, m in self.memory.items()
        }
        kept = {k: v for k, v in self.views.items() if memory.get(v.pointer) is v.memory}
        return _State(
            {**self.values, var: value},
            memory,
            dict(self.scopes),
            kept,
            {**self.threads, tag: value},
            self.shared,
            {**self.tags, var: tag},
            self.posted,
            self.reducer,
        )


class Interpreter:
    """Runs functions; ``functions`` are those that they call, ``packed`` what extern names mean."""

    def __init__(
        self,
        functions: Mapping[str, PrimFunc] | None = None,
        packed: Mapping[str, Callable[..., Any]] | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.functions = dict(functions or {})
        self.packed = dict(packed or {})
        self.left = max_steps
        self.max_steps = max_steps
        self.result: Any = None
        self.alive: list[object] = []
        self.compiled: dict[int, Callable[[Any], Any]] = {}

    # -- functions -------------------------------------------------------------------------------
    def run(self, func: PrimFunc, *args: Any) -> Any:
        """``func(*args)``: arrays are written in place; what the function returns, or None.

        Arrays must be contiguous and of the dtypes and shapes of the parameters; ``RunError``
        otherwise. ``BudgetError`` after ``max_steps`` statements.
        """
        if len(args) != len(func.params):
            raise RunError(f"{len(func.params)} arguments expected; got {len(args)}")
        state = _State({}, {})
        sizes: list[tuple[Dim, int, str]] = []
        for p, value in zip(func.params, args, strict=True):
            buffer = func.buffer_map.get(p)
            if buffer is None:
                state.values[p] = _scalar(value, p)
            else:
                self._argument(state, buffer, value, sizes)
        for d, size, _ in sizes:
            if isinstance(d, Var) and d not in state.values:
                state.values[d] = size
        for d, size, what in sizes:
            expected = self.dim(d, state)
            if expected != size:
                raise RunError(f"{what} is {size}; expected {d} = {expected}")
        self.result = None
        with np.errstate(all="ignore"):
            for _ in self._statement(func.body, state, ()):
                pass
        return self.result

    def _argument(
        self, state: _State, buffer: Buffer, value: Any, sizes: list[tuple[Dim, int, str]]
    ) -> None:
        if not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
            raise RunError(f"the buffer {buffer.name} needs a contiguous numpy array")
        if value.dtype != numpy_dtype(buffer.dtype):
            raise RunError(f"the buffer {buffer.name} holds {buffer.dtype}; got {value.dtype}")
        if value.ndim != buffer.ndim:
            raise RunError(f"the buffer {buffer.name} has {buffer.ndim} axes; got {value.ndim}")
        state.memory[buffer.data] = value.reshape(-1)
        steps = [n // value.itemsize for n in value.strides]
        for i, (d, n) in enumerate(zip(buffer.shape, value.shape, strict=True)):
            sizes.append((d, n, f"axis {i} of {buffer.name}"))
        for d, n in zip(buffer.strides, steps, strict=False):
            if isinstance(d, Var):
                state.values.setdefault(d, n)
        if isinstance(buffer.elem_offset, Var):
            state.values.setdefault(buffer.elem_offset, 0)

    # -- expressions -----------------------------------------------------------------------------
    def expr(self, e: PrimExpr, state: _State) -> Any:
        """The value of an expression."""
        found = self.compiled.get(id(e))
        if found is None:
            found = self.compiled[id(e)] = evaluator(e, self)
            self.alive.append(e)
        return found(state)

    def dim(self, d: Dim, state: _State) -> int:
        """The value of a size or bound."""
        return d if isinstance(d, int) else int(self.expr(d, state))

    def view(self, buffer: Buffer, state: Any) -> View:
        """The memory that ``buffer`` shows, and how."""
        found = state.views.get(id(buffer))
        if found is not None:
            return found
        memory = state.memory.get(buffer.data)
        if memory is None:
            raise RunError(f"the buffer {buffer.name} has no memory: its pointer is not defined")
        shape = [self.dim(d, state) for d in buffer.shape]
        steps = [self.dim(d, state) for d in buffer.strides] or _row_major(shape)
        made = View.of(buffer, memory, self.dim(buffer.elem_offset, state), shape, steps)
        state.views[id(buffer)] = made
        self.alive.append(buffer)
        return made

    # -- statements ------------------------------------------------------------------------------
    def _statement(self, node: s.Stmt, state: _State, at: Position) -> Run:
        self.left -= 1
        if self.left < 0:
            raise BudgetError(
                f"the kernel has run {self.max_steps} statements (line {node.line}); give "
                "max_steps to let it run longer"
            )
        match node:
            case s.BufferStore() if node.predicate is not None:
                raise UnsupportedError(f"line {node.line}: a store with a predicate does not run")
            case s.BufferStore():
                value = self.expr(node.value, state)
                indices = [self.expr(i, state) for i in node.indices]
                self.view(node.buffer, state).store(indices, value)
            case s.SeqStmt():
                for i, child in enumerate(node.seq):
                    if state.threads:
                        yield (*at, i)
                    yield from self._statement(child, state, (*at, i))
            case s.For():
                yield from self._for(node, state, at)
            case s.BlockRealize():
                yield from self._block(node, state, at)
            case s.IfThenElse():
                if self.expr(node.condition, state):
                    yield from self._statement(node.then_case, state, (*at, 0))
                elif node.else_case is not None:
                    yield from self._statement(node.else_case, state, (*at, 1))
            case s.While():
                n = 0
                while self.expr(node.condition, state):
                    if state.threads:
                        yield (*at, n)
                    yield from self._statement(node.body, state, (*at, n))
                    n += 1
                    self.left -= 1
                    if self.left < 0:
                        raise BudgetError(f"the loop in line {node.line} does not seem to end")
            case s.LetStmt():
                state.values[node.var] = self.expr(node.value, state)
                yield from self._statement(node.body, state, at)
            case s.AssertStmt():
                if not self.expr(node.condition, state):
                    raise AssertError(f"line {node.line}: {node.message.value}")
                yield from self._statement(node.body, state, at)
            case s.Evaluate(value=Call(op="tir.tvm_thread_allreduce") as call):
                yield from self._allreduce(call, state, at)
            case s.Evaluate():
                value = self.expr(node.value, state)
                if getattr(node.value, "op", "") == "tir.ret":
                    self.result = value
            case s.Allocate():
                sizes = [self.dim(d, state) for d in node.extents]
                self._allocate(state, node.buffer_var, node.dtype, sizes, node.scope)
                yield from self._statement(node.body, state, at)
            case s.AllocateConst():
                self._allocate(state, node.buffer_var, node.dtype, node.data.shape, "global")
                state.memory[node.buffer_var][:] = node.data.reshape(-1)
                yield from self._statement(node.body, state, at)
            case s.DeclBuffer():
                state.views.pop(id(node.buffer), None)
                yield from self._statement(node.body, state, at)
            case s.AttrStmt():
                axis = node.node
                if node.attr_key in ("thread_extent", "virtual_thread") and isinstance(
                    axis, s.IterVar
                ):
                    n = int(self.expr(node.value, state))
                    yield from self._threads(axis.thread_tag, axis.var, 0, n, node, state, at)
                else:
                    if isinstance(axis, CommReducer):
                        state.reducer = axis
                    yield from self._statement(node.body, state, at)
            case s.Text():
                raise UnsupportedError(f"a kernel that is kept as text does not run: {node.why}")
            case _:
                raise UnsupportedError(f"a {type(node).__name__} does not run")

    def _for(self, node: s.For, state: _State, at: Position) -> Run:
        low, extent = self.dim(node.min, state), self.dim(node.extent, state)
        if node.thread_binding is not None:
            tag = node.thread_binding.thread_tag
            yield from self._threads(tag, node.loop_var, low, extent, node, state, at)
            return
        for i in range(low, low + extent):
            state.values[node.loop_var] = i
            if state.threads:
                yield (*at, i)
            yield from self._statement(node.body, state, (*at, i))

    def _threads(
        self,
        tag: str,
        var: Var,
        low: int,
        extent: int,
        node: s.For | s.AttrStmt,
        state: _State,
        at: Position,
    ) -> Run:
        """The body once for each thread of an axis."""
        if tag in state.threads:  # an axis that runs already
            state.values[var], state.tags[var] = state.threads[tag], tag
            if state.threads[tag] < low + extent:
                yield from self._statement(node.body, state, at)
            return
        inside = range(low, low + extent)
        if tag.startswith("blockIdx"):
            for i in inside:
                state.values[var] = i
                state.shared, state.posted = {}, {}
                for _ in self._statement(node.body, state, at):
                    pass
            return
        waiting: list[tuple[Position, Run]] = []
        for i in inside:
            thread = state.thread(tag, var, i)
            waiting.append((at, self._statement(node.body, thread, at)))
        while waiting:
            first = min(place for place, _ in waiting)
            if state.threads:
                yield first
            still: list[tuple[Position, Run]] = []
            for place, run in waiting:
                if place != first:
                    still.append((place, run))
                    continue
                following = next(run, None)
                if following is not None:
                    still.append((following, run))
            waiting = still

    def _block(self, node: s.BlockRealize, state: _State, at: Position) -> Run:
        block = node.block
        bound = [int(self.expr(v, state)) for v in node.iter_values]
        if not self.expr(node.predicate, state):
            return
        first = True
        for axis, value, source in zip(block.iter_vars, bound, node.iter_values, strict=True):
            state.values[axis.var] = value
            state.tags.pop(axis.var, None)
            if isinstance(source, Var) and source in state.tags:
                state.tags[axis.var] = state.tags[source]
            if axis.iter_type == "reduce" and axis.dom is not None:
                first = first and value == self.dim(axis.dom.min, state)
        for b in block.alloc_buffers:
            sizes = [self.dim(d, state) for d in b.shape]
            state.views.pop(id(b), None)
            self._allocate(state, b.data, b.dtype, sizes, b.scope)
        for m in block.match_buffers:
            self._match(m, state)
        if block.init is not None and first:
            yield from self._statement(block.init, state, (*at, 0))
            if state.threads:
                yield (*at, 1)
        yield from self._statement(block.body, state, (*at, 1))

    def _allreduce(self, call: Call, state: _State, at: Position) -> Run:
        """What the threads that are named make of a value of each, in their order."""
        reducer, n = state.reducer, int(self.expr(call.args[0], state))
        if reducer is None or len(reducer.lhs) != n:
            raise UnsupportedError("tvm_thread_allreduce stands under no T.comm_reducer of its own")
        values, condition, results = call.args[1 : 1 + n], call.args[1 + n], call.args[2 + n :]
        over = {state.tags.get(v) for v in results[n:] if isinstance(v, Var)}
        if None in over or len(over) != len(results[n:]):
            raise UnsupportedError("tvm_thread_allreduce combines over threads alone")
        key = (at, *((t, i) for t, i in state.threads.items() if t not in over))
        if state.threads:
            yield (*at, 0)
        taken = values if self.expr(condition, state) else reducer.identity_element
        state.posted.setdefault(key, []).append([self.expr(v, state) for v in taken])
        if state.threads:
            yield (*at, 1)
        first, *others = state.posted[key]
        for other in others:
            state.values |= dict(zip((*reducer.lhs, *reducer.rhs), (*first, *other), strict=True))
            first = [self.expr(e, state) for e in reducer.result]
        for result, value in zip(results[:n], first, strict=True):
            if not isinstance(result, BufferLoad):
                raise UnsupportedError("tvm_thread_allreduce gives its results to buffers")
            place = [self.expr(i, state) for i in result.indices]
            self.view(result.buffer, state).store(place, value)

    def _allocate(
        self, state: _State, pointer: Var, dtype: str, sizes: Sequence[int], scope: str
    ) -> None:
        count = int(np.prod(sizes, dtype=np.int64)) if sizes else 1
        shared = scope.startswith("shared") and bool(state.threads)
        memory = state.shared.get(pointer) if shared else None
        if memory is None:
            memory = np.zeros(max(count, 1), numpy_dtype(dtype))
            if shared:
                state.shared[pointer] = memory
        state.memory[pointer] = memory
        state.scopes[pointer] = scope
        for key in [k for k, v in state.views.items() if v.pointer is pointer]:
            del state.views[key]

    def _match(self, m: s.MatchBufferRegion, state: _State) -> None:
        source = self.view(m.source.buffer, state)
        lows = [self.dim(r.min, state) for r in m.source.region]
        extents = [self.dim(r.extent, state) for r in m.source.region]
        buffer = m.buffer
        steps = source.steps[len(source.steps) - buffer.ndim :]
        offset = source.offset + sum(i * n for i, n in zip(lows, source.steps, strict=True))
        for d, n in zip(buffer.shape, extents[len(extents) - buffer.ndim :], strict=True):
            if isinstance(d, Var):
                state.values[d] = n
        for d, n in zip(buffer.strides, steps, strict=False):
            if isinstance(d, Var):
                state.values[d] = n
        if isinstance(buffer.elem_offset, Var):
            state.values[buffer.elem_offset] = offset
        state.memory[buffer.data] = source.memory
        shape = [self.dim(d, state) for d in buffer.shape]
        state.views[id(buffer)] = View.of(buffer, source.memory, offset, shape, steps)
        self.alive.append(buffer)

    # -- calls -----------------------------------------------------------------------------------
    def call(self, name: str, args: Sequence[Any]) -> Any:
        """Another function of the module."""
        func = self.functions.get(name)
        if func is None:
            raise RunError(f"the kernel calls {name!r}, which is not among the functions given")
        result = self.result
        made = self.run(func, *args)
        self.result = result
        return made


def interpret(
    func: PrimFunc,
    *args: Any,
    functions: Mapping[str, PrimFunc] | None = None,
    packed: Mapping[str, Callable[..., Any]] | None = None,
    max_steps: int = MAX_STEPS,
) -> Any:
    """Run ``func`` on numpy arrays, which it writes in place, and scalars; what it returns."""
    return Interpreter(functions, packed, max_steps).run(func, *args)


def _row_major(shape: Sequence[int]) -> list[int]:
    steps: list[int] = []
    step = 1
    for n in reversed(shape):
        steps.insert(0, step)
        step *= n
    return steps


def _scalar(value: Any, var: Var) -> Scalar:
    if var.dtype == "handle":
        return value
    if var.dtype.startswith(("int", "uint", "bool")):
        return int(value)
    return numpy_dtype(var.dtype).type(value)
