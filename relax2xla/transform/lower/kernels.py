"""Calls of loop-level functions (call_tir and its kin) as rows.

A PrimFunc takes the arguments, then the results that are new, then the numbers of ``tir_vars``. It
writes into memory that it is given; here it gives new values of the buffers that it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from relax2xla import tir
from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.struct_info import DTensorStructInfo, show
from relax2xla.op.intrinsic import call_tir_inplace_op, call_tir_op, call_tir_with_grad_op
from relax2xla.stablehlo.loops import StayedLoop, lower
from relax2xla.stablehlo.loops.lower import Argument
from relax2xla.tir import PrimFunc
from relax2xla.transform.lower.kernel_rows import KernelCall, rows_for, rows_of

Kernels = Mapping[GlobalVar, PrimFunc]
KERNEL_CALLS: Final = {op.name for op in (call_tir_op, call_tir_inplace_op, call_tir_with_grad_op)}


def prim_funcs(mod: IRModule) -> Kernels:
    """The loop-level functions of a module."""
    return {g: f for g, f in mod.items() if isinstance(f, PrimFunc)}


def is_kernel_call(call: Call) -> bool:
    """Whether ``call`` is one of a loop-level function."""
    return isinstance(call.op, Op) and call.op.name in KERNEL_CALLS


def kernel_of(call: Call, kernels: Kernels) -> tuple[str, PrimFunc]:
    """The name of the function that ``call`` calls, and the function."""
    callee = call.args[0]
    assert isinstance(call.op, Op)
    if not isinstance(callee, GlobalVar):
        raise LegalizeError(f"{call.op.name} calls {callee!r}, which is no function of the module")
    found = kernels.get(callee)
    if found is None:
        found = next((f for g, f in kernels.items() if g.name_hint == callee.name_hint), None)
    if found is None:
        raise LegalizeError(
            f"{call.op.name} calls {callee.name_hint}, which is no T.prim_func of the module"
        )
    return callee.name_hint, found


def lower_call(call: Call, kernels: Kernels) -> Expr:
    """What a call of a loop-level function gives, as rows: a tensor, or a tuple of them."""
    name, func = kernel_of(call, kernels)
    given = _tensors(call.args[1])
    results = _results(call)
    places = call.attrs.get("inplace_indices") or (-1,) * len(results)
    new = [info for info, place in zip(results, places, strict=True) if place == -1]
    numbers = _numbers(call, name)
    rows = rows_of(KernelCall(name, func, tuple(given), tuple(results), tuple(numbers)))
    if rows is not None:
        return Tuple(rows) if isinstance(call.sinfo_args[0], TupleStructInfo) else rows[0]
    made = lower(func, [*given, *new, *numbers], name)
    fresh = iter(range(len(given), len(given) + len(new)))
    wanted = [next(fresh) if place == -1 else place for place in places]
    lost = sorted(i for i in made.written if i not in wanted)
    if lost:
        raise LegalizeError(
            f"{name} writes its parameter {func.params[lost[0]].name}, which is no result of the "
            "call; call_tir_inplace says which arguments are changed"
        )
    values = [made.contents[i] for i in wanted]
    return Tuple(values) if isinstance(call.sinfo_args[0], TupleStructInfo) else values[0]


# -- what kernels become ---------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class KernelForm:
    """What a kernel becomes where it is called: kinds of rows, and loops that stay loops.

    ``forms``: how many rows of which kind; none means that it is element by element. ``sizes``:
    what was taken for symbolic sizes. ``error``: why it cannot be lowered. ``by_name``: whether
    rows that are registered for its name take its place.
    """

    name: str
    forms: Mapping[str, int]
    loops: tuple[StayedLoop, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    error: str = ""
    by_name: bool = False

    def lines(self) -> list[str]:
        """A line for the kernel, and a warning for each loop that stays."""
        kinds = [f"{n} {k}" if n > 1 else k for k, n in self.forms.items() if k != "while"]
        where = ", ".join(f"{v} = {n}" for v, n in self.sizes.items())
        kinds += [f"{loop.steps or 'n'}-step while" for loop in self.loops]
        plain = "rows by its name" if self.by_name else "element by element"
        made = self.error or ", ".join(kinds) or plain
        return [
            f"kernel {self.name}{f' at {where}' if where else ''}: {made}",
            *(
                f"  warning: the loop {loop.name} of {self.name}"
                f"{f' (line {loop.line})' if loop.line else ''} runs step by step: {loop.why}"
                for loop in self.loops
            ),
        ]


SAMPLE_SIZE: Final = 32
"""What :func:`kernel_forms` takes for a symbolic size."""


def kernel_forms(functions: Iterable[Function], kernels: Kernels) -> list[KernelForm]:
    """What the kernels that ``functions`` call become, each once for each kind of arguments."""
    found: dict[tuple[object, ...], KernelForm] = {}
    for function in functions:
        for node in post_order_deep(function):
            if isinstance(node, Call) and is_kernel_call(node):
                name, func = kernel_of(node, kernels)
                sample = _sampled(node)
                key = (name, *(show(i) for i in sample.infos), *sample.numbers)
                if key not in found:
                    found[key] = _form(name, func, sample)
    return list(found.values())


def _form(name: str, func: PrimFunc, sample: _Sample) -> KernelForm:
    given = [Var("x", i) for i in sample.given]
    call = KernelCall(name, func, tuple(given), tuple(sample.results), tuple(sample.numbers))
    try:
        if rows_of(call) is not None:
            return KernelForm(name, {}, sizes=sample.sizes, by_name=True)
        new = [Var("x", i) for i in sample.new]
        made = lower(func, [*given, *new, *sample.numbers], name)
    except LegalizeError as e:
        return KernelForm(name, {}, sizes=sample.sizes, error=str(e))
    return KernelForm(name, made.forms, made.loops, sample.sizes)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Struct infos of a call's buffers, values of ``tir_vars``, what stands for which symbol."""

    given: list[TensorStructInfo]
    new: list[TensorStructInfo]
    results: list[TensorStructInfo]
    numbers: list[int]
    sizes: dict[str, int]

    @property
    def infos(self) -> list[TensorStructInfo]:
        """Those of the buffers that the kernel takes."""
        return [*self.given, *self.new]


def _sampled(call: Call) -> _Sample:
    results = _results(call)
    places = call.attrs.get("inplace_indices") or (-1,) * len(results)
    given = [_tensor(e.struct_info) for e in _tensors(call.args[1])]
    shape = call.args[2] if len(call.args) > 2 else None
    more = shape.values if isinstance(shape, ShapeExpr) else ()
    dims = [*(d for i in (*given, *results) for d in i.shape or ()), *more]
    symbols = {v: SAMPLE_SIZE for d in dims if not isinstance(d, int) for v in tir.free_vars(d)}

    def size(d: tir.Dim) -> int:
        value = d if isinstance(d, int) else tir.simplify(tir.substitute(d, symbols))
        return int(value) if isinstance(value, int) else SAMPLE_SIZE

    def sampled(infos: Sequence[TensorStructInfo]) -> list[TensorStructInfo]:
        return [TensorStructInfo([size(d) for d in i.shape or ()], i.dtype) for i in infos]

    made = sampled(results)
    new = [info for info, place in zip(made, places, strict=True) if place == -1]
    sizes = {v.name: n for v, n in symbols.items()}
    return _Sample(sampled(given), new, made, [size(d) for d in more], sizes)


def by_name(func: Function) -> list[str]:
    """The loop-level functions that ``func`` calls for which rows are registered."""
    found: dict[str, None] = {}
    for block in func.body.blocks if isinstance(func.body, SeqExpr) else ():
        for binding in block.bindings:
            value = binding.value if isinstance(binding, VarBinding) else None
            if isinstance(value, Call) and is_kernel_call(value):
                callee = value.args[0]
                if isinstance(callee, GlobalVar) and rows_for(callee.name_hint) is not None:
                    found[callee.name_hint] = None
    return list(found)


def _tensors(args: Expr) -> list[Expr]:
    if isinstance(args, Tuple):
        return list(args.fields)
    info = args.struct_info
    if not isinstance(info, TupleStructInfo):
        return [args]
    return [args[i] for i in range(len(info.fields))]


def _results(call: Call) -> list[TensorStructInfo]:
    info = call.sinfo_args[0]
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    return [_tensor(f) for f in fields]


def _tensor(info: StructInfo) -> TensorStructInfo:
    if isinstance(info, DTensorStructInfo):
        return info.tensor_sinfo
    if not isinstance(info, TensorStructInfo):
        raise LegalizeError(f"a result of call_tir is a tensor; got {show(info)}")
    return info


def _numbers(call: Call, name: str) -> list[Argument]:
    if len(call.args) < 3:
        return []
    shape = call.args[2]
    values = shape.values if isinstance(shape, ShapeExpr) else None
    if values is None and isinstance(shape.struct_info, ShapeStructInfo):
        values = shape.struct_info.values
    numbers = [v for v in values or () if isinstance(v, int)]
    if values is None or len(numbers) != len(values):
        raise LegalizeError(f"{name}: the values of tir_vars must be known; they are {shape!r}")
    return list(numbers)
