"""Which parts of a module XLA cannot hold, and why (design decision D4).

:class:`HostReasons` finds what has to run on the host, through all functions of a module;
:mod:`relax2xla.vm.plan.regions` divides functions by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relax2xla.analysis.variables import all_global_vars, detect_recursion
from relax2xla.errors import DeviceError, LegalizeError
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    PrimStructInfo,
    SeqExpr,
    ShapeStructInfo,
    Span,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Var,
    VDevice,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import dims_equal
from relax2xla.ir.rewrite import (
    bindings_of,
    children,
    deep_children,
    post_order,
    post_order_deep,
)
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.ir.traits import Foreign
from relax2xla.op.intrinsic import make_closure
from relax2xla.runtime.device import Device, device
from relax2xla.stablehlo.rows import RowOp
from relax2xla.transform.lower.kernels import is_kernel_call, kernel_of, prim_funcs
from relax2xla.transform.lower.legalize import is_row
from relax2xla.vm.host.operators import HOST, host_op
from relax2xla.vm.plan.captures import LEAVES, Captures, is_flat

# Moves a value to another device, see ``vm.plan.vdevices``.
MOVE = "relax.to_vdevice"
_APART = "its operators run one by one"


def is_machine_call(op: Op[...]) -> bool:
    """Whether the machine does it itself: operators of function values and packed functions."""
    return op is make_closure or op.has(Foreign)


def sequences(root: Expr) -> Iterator[SeqExpr]:
    """All sequences in ``root``, those of branches and functions included, outer ones first."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, SeqExpr):
            yield node
            stack += [b.value for b in bindings_of(node) if not is_flat(b.value)]
            continue
        stack += [c for c in deep_children(node) if not isinstance(c, LEAVES)]


def place(span: Span | None) -> str:
    """The source's name of a thing, or where it is, without the callers."""
    while span is not None and span.kind in ("callsite", "fused") and span.children:
        span = span.children[0]
    if span is None:
        return ""
    return span.name or f"{span.file}:{span.line}:{span.column}"


def device_of(vdevice: VDevice) -> Device:
    """The device that a virtual device names; LegalizeError where XLA has no such platform."""
    try:
        return device(vdevice.kind, vdevice.vdevice_id)
    except DeviceError as e:
        raise LegalizeError(f"{vdevice}: {e}") from None


def devices(info: StructInfo) -> list[Device | None]:
    """Where the arrays of a value lie, each device once; None is the machine's own."""
    found = (i.vdevice for i in flatten_info(info) if isinstance(i, TensorStructInfo))
    return list(dict.fromkeys(None if v is None else device_of(v) for v in found))


def devices_in(root: Expr) -> list[Device | None]:
    """The devices of all that is bound in a function, a branch or a sequence."""
    params = root.params if isinstance(root, Function) else ()
    bound = [b.var for seq in sequences(root) for b in bindings_of(seq)]
    return list(dict.fromkeys(d for v in (*params, *bound) for d in devices(v.struct_info)))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something runs on the host: what it is, and where the source says it."""

    what: str
    span: Span | None = None

    def __str__(self) -> str:
        return f"{self.what} (at {place(self.span)})" if self.span else self.what


class HostReasons:
    """What of a module has to run on the host, and why.

    ``placed``: the struct info says where values lie (``vm.plan.vdevices``), and an XLA program is
    for one device. ``apart``: each operator is to be a program of its own, so functions and
    branches are the machine's.
    """

    def __init__(self, mod: IRModule, placed: bool = False, apart: bool = False) -> None:
        self.mod, self.placed, self.apart = mod, placed, apart
        self.kernels = prim_funcs(mod)
        self.reasons: dict[GlobalVar, Reason | None] = {}
        self.needs = Captures()
        self._inside: dict[int, tuple[Expr, Reason | None]] = {}
        functions = mod.relax_functions()
        self._local = {
            b.var: b
            for f in functions.values()
            for node in sequences(f)
            for b in bindings_of(node)
            if isinstance(b.value, Function)
        }
        # Local functions that are values; most modules have none.
        every = functions.values() if self._local else ()
        self._values = {v for f in every for v in _as_values(f)}
        self._callees = {g: all_global_vars(f) for g, f in functions.items()}
        calls = any(self._callees.values())
        recursive = {g for group in detect_recursion(mod) for g in group} if calls else set()
        for g in functions:
            self.reasons[g] = Reason(f"{g.name_hint} calls itself") if g in recursive else None
        for g, f in functions.items():
            if self.reasons[g] is None:
                self.reasons[g] = self._own(f)
        self._spread(functions)

    def _spread(self, functions: Mapping[GlobalVar, Function]) -> None:
        """Callers of functions that run on the host run there, too."""
        callers: dict[GlobalVar, list[GlobalVar]] = {}
        for g in functions:
            for callee in self._callees[g]:
                callers.setdefault(callee, []).append(g)
        todo = [g for g, reason in self.reasons.items() if reason is not None]
        while todo:
            callee = todo.pop()
            for g in callers.get(callee, ()):
                if self.reasons[g] is None:
                    self.reasons[g] = Reason(f"{callee.name_hint}: {self.reasons[callee]}")
                    todo.append(g)
        # What was found inside values before this was known is out of date.
        self._inside.clear()

    def _own(self, func: Function) -> Reason | None:
        if self.apart:
            return Reason(_APART, func.span)
        for p in func.params:
            if not is_compiled(p.struct_info):
                return Reason(f"the parameter {p.name_hint} is {show(p.struct_info)}", p.span)
        reason = self.inside(func) or self._apart((func,), (), func.span)
        if reason is None and not is_compiled(func.body.body.struct_info):
            return Reason(f"the result is {show(func.body.body.struct_info)}", func.span)
        return reason

    def _apart(
        self, roots: Sequence[Expr], variables: Sequence[Var], span: Span | None
    ) -> Reason | None:
        """Why one program cannot hold what is on several devices, if it is."""
        if not self.placed:
            return None
        outer = [d for v in variables for d in devices(v.struct_info)]
        found = dict.fromkeys([*outer, *(d for r in roots for d in devices_in(r))])
        if len(found) < 2:
            return None
        names = ", ".join("the machine's own" if d is None else str(d) for d in found)
        return Reason(f"values lie on several devices: {names}", span)

    def device(self, root: Expr) -> Device | None:
        """The device that a function is for; None for the machine's own."""
        return next(iter(devices_in(root)), None) if self.placed else None

    @nests
    def inside(self, root: Expr) -> Reason | None:
        """The first reason in a function, branch or sequence."""
        known = self._inside.get(id(root))
        if known is None:
            # The key is kept alive with the result, so that its id stays its own.
            known = self._inside[id(root)] = (root, self._find(root))
        return known[1]

    def _find(self, root: Expr) -> Reason | None:
        seq = root.body if isinstance(root, Function) else root
        assert isinstance(seq, SeqExpr)
        for b in bindings_of(seq):
            if isinstance(b.value, Function):
                reason = self.closure(b.var)
            else:
                reason = self.value(b.value, b)
            if reason is not None:
                return reason
        return None

    def closure(self, var: Var) -> Reason | None:
        """Why the local function ``var`` is a closure of the machine, None where it is inlined."""
        if var not in self._local:
            return Reason(f"a call of {var.name_hint}")
        b = self._local[var]
        span = b.span or b.var.span
        if b.var in self.needs.of(b.value).variables:
            return Reason(f"{b.var.name_hint} calls itself", span)
        if b.var in self._values:
            return Reason(f"the function {b.var.name_hint} is used as a value", span)
        return self.inside(b.value)

    def value(self, value: Expr, b: Binding) -> Reason | None:
        """Why the value that ``b`` binds cannot be part of an XLA program, if it cannot.

        LegalizeError for an operator that can run nowhere.
        """
        for node in (value,) if is_flat(value) else post_order(value):
            reason = self._node(node, node.span or b.span or b.var.span)
            if reason is not None:
                return reason
        return None

    def _node(self, node: Expr, span: Span | None) -> Reason | None:
        if isinstance(node, If):
            return self._if(node, span)
        if isinstance(node, Function | SeqExpr):
            return self.inside(node)
        if not isinstance(node, Call):
            return None
        op = node.op
        if isinstance(op, ExternFunc):
            return Reason(f"the packed function {op.global_symbol}", span)
        if isinstance(op, GlobalVar):
            if not isinstance(self.mod.functions.get(op), Function):
                raise LegalizeError(
                    f"the program calls {op.name_hint}, which is no Relax function of the module"
                    + (f" (at {span})" if span else "")
                )
            reason = self.reasons.get(op)
            return None if reason is None else Reason(f"{op.name_hint}: {reason}", span)
        if isinstance(op, Var):
            return self.closure(op)
        if not isinstance(op, Op):
            return None
        if op.name == MOVE:
            # A constant is placed when the program is loaded.
            moves = self.placed and not isinstance(node.args[0], Constant)
            return Reason(f"{MOVE} to {devices(node.struct_info)[0]}", span) if moves else None
        if is_machine_call(op):
            callee = node.args[0] if node.args else None
            named = ""
            if isinstance(callee, ExternFunc | StringImm):
                symbol = callee.value if isinstance(callee, StringImm) else callee.global_symbol
                named = f" of {symbol!r}"
            return Reason(f"{op.name}{named}", span)
        if host_op(node) is not None:
            return Reason(op.name, span)
        if is_kernel_call(node):
            kernel_of(node, self.kernels)
            return None
        if op.lowering is None and not is_row(op) and op.name not in HOST:
            raise LegalizeError(
                f"{op.name} has no lowering to StableHLO and no implementation on the host"
                + (f" (at {span})" if span else "")
            )
        if isinstance(op, RowOp) and op.row.regions and (reason := self.within(node)) is not None:
            return reason
        if any(isinstance(a, GlobalVar) for a in node.args):
            return Reason("a function as a value", span)
        return None

    def within(self, call: Call) -> Reason | None:
        """The first reason in the functions that are operands of ``call``."""
        for a in call.args:
            reason = self.inside(a) if isinstance(a, Function) else None
            if isinstance(a, Var) and a in self._local:
                reason = self.closure(a)
            elif isinstance(a, Var) and isinstance(a.struct_info_, FuncStructInfo):
                reason = Reason(f"the region {a.name_hint} is a value, no local function", a.span)
            elif isinstance(a, GlobalVar):
                reason = self.reasons.get(a)
            if reason is not None:
                return reason
        return None

    def _if(self, node: If, span: Span | None) -> Reason | None:
        if self.apart:
            return Reason(_APART, span)
        for branch in (node.true_branch, node.false_branch):
            reason = self.inside(branch)
            if reason is not None:
                return reason
        branches = (node.true_branch, node.false_branch)
        apart = self._apart(branches, self.needs.of(node).variables, span)
        if apart is not None:
            return apart
        yes, no = node.true_branch.body.struct_info, node.false_branch.body.struct_info
        if not same_arrays(yes, no):
            return Reason(f"If: its branches give {show(yes)} and {show(no)}", span)
        return None


def _as_values(root: Expr) -> Iterator[Var]:
    """Variables that ``root`` uses otherwise than to call them, or as regions of rows."""
    for node in post_order_deep(root):
        if isinstance(node, SeqExpr):
            tops = [*(b.value for b in bindings_of(node)), node.body]
            yield from (t for t in tops if isinstance(t, Var))
        elif isinstance(node, Call):
            if not is_row(node.op):
                yield from (a for a in node.args if isinstance(a, Var))
        else:
            yield from (c for c in children(node) if isinstance(c, Var))


def is_compiled(info: StructInfo) -> bool:
    """Whether XLA programs can take and give values of ``info``: arrays, shapes, numbers."""
    kinds = TensorStructInfo | ShapeStructInfo | PrimStructInfo
    return all(isinstance(leaf, kinds) for leaf in flatten_info(info))


def same_arrays(a: StructInfo, b: StructInfo) -> bool:
    """Whether two values are provably arrays of the same shapes and dtypes."""
    left, right = flatten_info(a), flatten_info(b)
    return len(left) == len(right) and all(
        isinstance(x, TensorStructInfo)
        and isinstance(y, TensorStructInfo)
        and bool(x.dtype)
        and x.dtype == y.dtype
        and dims_equal(x.dims, y.dims)
        for x, y in zip(left, right, strict=True)
    )
