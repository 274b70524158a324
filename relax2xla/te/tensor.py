"""Tensors of ``te``: what computes them, element by element, and expressions over them.

Semantics are those of TVM v0.20's ``te``. Nothing is computed here: :func:`create_prim_func` makes
a loop-level function of tensors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from relax2xla import tir
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.node import PrimExpr, set_field
from relax2xla.tir.reduce import Reduce
from relax2xla.tir.stmt import IterVar, Stmt

# What Python's operators on tensors do; topi fills it.
operators: dict[str, Callable[[Any, Any], Any]] = {}


def _operator(name: str) -> Callable[[Any, Any], Any]:
    if not operators:
        importlib.import_module("relax2xla.topi")
    return operators[name]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What makes tensors: a placeholder, a computation, a function of one's own.

    ``inputs`` are the tensors that it reads, each once, in the order of the text.
    """

    name: str
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        return ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        return self.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that it makes."""
        raise NotImplementedError

    def output(self, index: int) -> Tensor:
        """One of the tensors that it makes."""
        return self.outputs[index]


@dataclass(frozen=True, slots=True, eq=False)
class PlaceholderOp(Operation):
    """An argument of the function."""

    shape: tuple[PrimExpr, ...] = ()
    dtype: str = "float32"
    _made: list[Tensor] = field(default_factory=list["Tensor"])

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        if not self._made:
            self._made.append(Tensor(self.shape, self.dtype, self, 0, self.name))
        return tuple(self._made)


@dataclass(frozen=True, slots=True, eq=False)
class ComputeOp(Operation):
    """One expression an element over ``axis``; several results share the axes.

    ``body``: reductions (all of one, with different ``value_index``), or plain expressions.
    """

    axis: tuple[IterVar, ...] = ()
    shape: tuple[PrimExpr, ...] = ()
    body: tuple[PrimExpr, ...] = ()
    _made: list[Tensor] = field(default_factory=list["Tensor"])

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes that are reduced over."""
        first = self.body[0]
        return first.axis if isinstance(first, Reduce) else ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        found: dict[Tensor, None] = {}
        for body in self.body:
            for node in tir.post_order(body):
                if isinstance(node, ProducerLoad):
                    found[node.producer] = None
        return tuple(found)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        if not self._made:
            several = len(self.body) > 1
            for i, body in enumerate(self.body):
                name = f"{self.name}.v{i}" if several else self.name
                self._made.append(Tensor(self.shape, body.dtype, self, i, name))
        return tuple(self._made)


@dataclass(frozen=True, slots=True, eq=False)
class ExternOp(Operation):
    """Statements of one's own over buffers: those of the inputs, and those of the results."""

    given: tuple[Tensor, ...] = ()
    input_buffers: tuple[Buffer, ...] = ()
    output_buffers: tuple[Buffer, ...] = ()
    body: Stmt = field(default_factory=lambda: tir.Evaluate(tir.const(0, "int32")))
    _made: list[Tensor] = field(default_factory=list["Tensor"])

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.given

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        if not self._made:
            several = len(self.output_buffers) > 1
            for i, b in enumerate(self.output_buffers):
                name = f"{self.name}.v{i}" if several else self.name
                sizes = tuple(_size64(d) for d in b.shape)
                self._made.append(Tensor(sizes, b.dtype, self, i, name))
        return tuple(self._made)


@dataclass(frozen=True, slots=True, eq=False)
class ScanOp(Operation):
    """Tensors that are made step by step: the first axis is time, ``scan_axis`` the steps.

    ``init`` are the first elements along it, ``update`` the element at a step, read from
    ``state_placeholder`` at earlier ones.
    """

    scan_axis: IterVar = field(
        default_factory=lambda: IterVar(None, tir.Var("idx", "int32"), "scan")
    )
    init: tuple[Tensor, ...] = ()
    update: tuple[Tensor, ...] = ()
    state_placeholder: tuple[Tensor, ...] = ()
    given: tuple[Tensor, ...] = ()
    _made: list[Tensor] = field(default_factory=list["Tensor"])

    @property
    def steps(self) -> tuple[Operation, ...]:
        """What is computed at each step: the updates, and what they read that reads a state."""
        updates = {t.op for t in self.update}
        found: dict[Operation, None] = {}
        for op in ordered(t.op for t in self.update):
            reads = any(t in self.state_placeholder or t.op in found for t in op.inputs)
            if op in updates or reads:
                found[op] = None
        return tuple(found)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        steps = self.steps
        own = {*self.state_placeholder, *(t for op in steps for t in op.outputs)}
        read = (t for op in steps for t in op.inputs if t not in own)
        return tuple(dict.fromkeys([*self.init, *self.given, *read]))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        if not self._made:
            several = len(self.state_placeholder) > 1
            for i, s in enumerate(self.state_placeholder):
                name = f"{self.name}.v{i}" if several else self.name
                self._made.append(Tensor(s.shape, s.dtype, self, i, name))
        return tuple(self._made)


def ordered(ops: Iterable[Operation]) -> list[Operation]:
    """What is needed for ``ops``, each after what it reads."""
    done: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(op, False) for op in reversed(list(ops))]
    while stack:
        op, ready = stack.pop()
        if op in done:
            continue
        if ready:
            done[op] = None
            continue
        stack.append((op, True))
        stack += [(t.op, False) for t in reversed(op.inputs)]
    return list(done)


def _size64(size: tir.Dim) -> PrimExpr:
    return tir.as_prim_expr(size, "int64")


class _Arithmetic:
    """Python's operators, by :data:`operators`; comparisons of tensors are functions of topi."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _operator("add")(self, other)

    def __radd__(self, other: Any) -> Any:
        return _operator("add")(other, self)

    def __sub__(self, other: Any) -> Any:
        return _operator("subtract")(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _operator("subtract")(other, self)

    def __mul__(self, other: Any) -> Any:
        return _operator("multiply")(self, other)

    def __rmul__(self, other: Any) -> Any:
        return _operator("multiply")(other, self)

    def __truediv__(self, other: Any) -> Any:
        return _operator("divide")(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _operator("divide")(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _operator("floor_divide")(self, other)

    def __mod__(self, other: Any) -> Any:
        return _operator("floor_mod")(self, other)

    def __neg__(self) -> Any:
        return _operator("multiply")(self, -1)


class Tensor(_Arithmetic):
    """A tensor that ``op`` makes; ``t(i, j)`` and ``t[i, j]`` are its elements.

    Equality is by identity. ``a + b`` and so on broadcast as numpy's arrays do.
    """

    __slots__ = ("dtype", "name", "op", "shape", "value_index")

    def __init__(
        self,
        shape: Sequence[PrimExpr],
        dtype: str,
        op: Operation,
        value_index: int = 0,
        name: str = "",
    ) -> None:
        self.shape, self.dtype, self.op = tuple(shape), dtype, op
        self.value_index, self.name = value_index, name or op.name

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The axes of the computation that makes it."""
        return self.op.axis if isinstance(self.op, ComputeOp) else ()

    def __call__(self, *indices: Any) -> ProducerLoad:
        """The element at ``indices``; ValueError where there are not as many as axes."""
        several = indices
        if len(indices) == 1 and isinstance(indices[0], tuple | list):
            several = tuple(indices[0])
        return ProducerLoad(self, several)

    # Python would ask for one element after the other, without an end.
    __iter__: ClassVar[None] = None

    def __getitem__(self, index: Any) -> Any:
        several = tuple(index) if isinstance(index, tuple | list) else (index,)
        if len(several) < self.ndim:
            return TensorSlice(self, several)
        return ProducerLoad(self, several)

    def __len__(self) -> int:
        return self.ndim

    def __repr__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], op.name={self.op.name})"


class TensorSlice:
    """``t[i]`` of a tensor of more axes: ``t[i][j]`` is an element."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: Sequence[Any]) -> None:
        self.tensor, self.indices = tensor, tuple(indices)

    # Python would ask for one element after the other, without an end.
    __iter__: ClassVar[None] = None

    def __getitem__(self, index: Any) -> Any:
        several = tuple(index) if isinstance(index, tuple | list) else (index,)
        return self.tensor[(*self.indices, *several)]


class ProducerLoad(PrimExpr):
    """One element of a tensor."""

    __slots__ = ("indices", "producer")
    producer: Tensor
    indices: tuple[PrimExpr, ...]
    _fields = ("producer", "indices")

    def __init__(self, producer: Tensor, indices: Sequence[Any]) -> None:
        if len(indices) != producer.ndim:
            raise ValueError(
                f"the tensor {producer.name} has {producer.ndim} axes; got {len(indices)} indices"
            )
        made = tuple(
            i.var if isinstance(i, IterVar) else tir.as_prim_expr(i, "int32") for i in indices
        )
        set_field(self, "producer", producer)
        set_field(self, "indices", made)
        set_field(self, "dtype", producer.dtype)
        hashes = tuple(hash(i) for i in made)
        set_field(self, "_hash", hash(("ProducerLoad", id(producer), hashes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return self.indices

    def payload(self) -> tuple[object, ...]:
        return (self.producer,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return ProducerLoad(self.producer, children)
