"""Relax functions that XLA cannot hold whole, as bytecode over regions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.analysis.variables import used_vars
from relax2xla.errors import LegalizeError, TVMError
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.hash import structural_hash
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars
from relax2xla.ir.rewrite import bindings_of
from relax2xla.runtime.device import Device
from relax2xla.tir import Dim
from relax2xla.transform.lower.legalize import is_row
from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.code.size_bounds import conditions, owner, ranges, unmet
from relax2xla.vm.plan.host_reasons import HostReasons, place
from relax2xla.vm.plan.intrinsics import INTRINSICS
from relax2xla.vm.plan.ir_as_data import (
    ARITHMETIC,
    FUNCTIONS,
    Pattern,
    pattern_of,
    placed_pattern,
    plain_attrs,
)
from relax2xla.vm.plan.regions import DefineStep, HostStep, RegionStep, split
from relax2xla.vm.plan.vdevices import without_devices


@dataclass(slots=True)
class Lowered:
    """Bytecode, the regions that it calls by name, and for each function what was split and why.

    ``devices``: of the regions that do not run on the machine's own.
    """

    code: bc.Code
    regions: dict[str, Function]
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    devices: dict[str, Device] = field(default_factory=dict[str, Device])


def lower(mod: IRModule, hosts: HostReasons) -> Lowered:
    """Bytecode for the public functions of ``mod`` that XLA cannot hold, and for their callees."""
    return _Module(mod, hosts).run()


@dataclass(frozen=True, slots=True)
class _Pending:
    """A function to be lowered; ``symbols`` come as a last argument, a shape.

    A local function has the variable ``own`` that it is bound to; of its parameters the last
    ``captured`` are what it captures. ``macros``: local functions around it that are inlined;
    ``outer``: the function of the module that it is in; ``read``: what that one reads.
    """

    name: str
    func: Function
    private: bool
    symbols: tuple[tir.Var, ...] = ()
    own: Var | None = None
    captured: int = 0
    macros: dict[Var, Binding] = field(default_factory=dict[Var, Binding])
    outer: str = ""
    read: set[Var] | None = None

    def params(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(p.name_hint for p in self.func.params) + ("symbols",) * bool(self.symbols)


class _Module:
    """The function table, the constants, and the functions still to be lowered."""

    def __init__(self, mod: IRModule, hosts: HostReasons) -> None:
        self.mod, self.hosts = mod, hosts
        self.rows: list[bc.FunctionRow] = []
        self.index: dict[tuple[str, str], int] = {}
        self.constants: list[Any] = []
        self.known_constants: dict[Any, int] = {}
        self.regions: dict[str, Function] = {}
        self.notes: dict[str, list[str]] = {}
        self.devices: dict[str, Device] = {}
        self.todo: list[_Pending] = []
        self.names = {g.name_hint: 0 for g in mod}
        # Regions that are one operator each, by what they hold.
        self.operators: dict[int, list[str]] = {}

    def run(self) -> Lowered:
        for g, f in self.mod.relax_functions().items():
            if self.hosts.reasons[g] is not None and global_symbol(f) is not None:
                self.function(g)
        while self.todo:
            pending = self.todo.pop(0)
            self.rows[self.index["vm", pending.name]] = Lowerer(self, pending).run()
        code = bc.Code(tuple(self.rows), tuple(self.constants))
        bc.verify(code)
        return Lowered(code, self.regions, self.notes, self.devices)

    def row(self, kind: bc.Kind, name: str) -> int:
        """The index of a function of the table, declared where it is new."""
        if (kind, name) not in self.index:
            self.index[kind, name] = len(self.rows)
            self.rows.append(bc.FunctionRow(name, kind))
        return self.index[kind, name]

    def function(self, gvar: GlobalVar) -> int:
        """A Relax function of the module: bytecode, or one region if XLA can hold it."""
        func = self.mod[gvar]
        name = gvar.name_hint
        if self.hosts.reasons[gvar] is None:
            self.region(name, func, self.hosts.device(func))
            return self.row("xla", name)
        return self.vm_function(_Pending(name, func, global_symbol(func) is None))

    def region(self, name: str, func: Function, device: Device | None) -> None:
        """Declare an XLA program, which runs on ``device`` or (None) on the machine's own."""
        self.regions.setdefault(name, without_devices(func) if self.hosts.placed else func)
        if device is not None:
            self.devices[name] = device

    def vm_function(self, pending: _Pending) -> int:
        """The index of a function that is, or will be, lowered."""
        if ("vm", pending.name) not in self.index:
            at = self.row("vm", pending.name)
            self.rows[at] = bc.FunctionRow(pending.name, "vm", pending.params())
            self.todo.append(pending)
        return self.index["vm", pending.name]

    def operator(self, step: RegionStep) -> str:
        """The region of one operator, named after it; the same where it holds the same."""
        same = self.operators.setdefault(structural_hash(step.func), [])
        for name in same:
            if structural_equal(self.regions[name], step.func):
                return name
        same.append(self.fresh(_operator_name(step.func)))
        self.region(same[-1], step.func, step.device)
        return same[-1]

    def fresh(self, name: str) -> str:
        """A name of no other function."""
        made = name
        while made in self.names:
            self.names[name] = self.names.get(name, 0) + 1
            made = f"{name}_{self.names[name]}"
        self.names[made] = 0
        return made

    def constant(self, value: Any) -> bc.Const:
        """``value`` in the pool."""
        # By identity where the text may not tell values apart.
        by_id = isinstance(value, np.ndarray | dict)
        key = ("object", id(value)) if by_id else (type(value), repr(value))
        if key not in self.known_constants:
            self.known_constants[key] = len(self.constants)
            self.constants.append(value)
        return bc.Const(self.known_constants[key])


class Lowerer:
    """One function."""

    def __init__(self, module: _Module, pending: _Pending) -> None:
        self.module, self.pending = module, pending
        self.name, self.func, self.given = pending.name, pending.func, pending.symbols
        self.body: list[bc.Instruction] = []
        self.registers = len(pending.params())
        self.env: dict[Var, bc.Arg] = {}
        self.dims: dict[tir.Var, bc.Arg] = {}
        self.macros = dict(pending.macros)
        # Local functions by their variable: the function, and what it has captured.
        self.locals: dict[Var, tuple[int, list[bc.Arg]]] = {}
        self.span = ""
        self.count = 0
        # Whether anything reads the result of the call that is being lowered.
        self.is_read = True

    @functools.cached_property
    def _read(self) -> set[Var]:
        """The variables that the function reads anywhere, or the one that it is written in does.

        Functions in functions keep their variables, so the outermost looks once for all of them.
        """
        return set(used_vars(self.func)) if self.pending.read is None else self.pending.read

    def run(self) -> bc.FunctionRow:
        try:
            self._enter()
            self._seq(self.func.body, None, tail=True)
        except TVMError as e:
            e.add_note(f"  in the function {self.name}")
            raise
        inputs = tuple(self.pattern(p.struct_info) for p in self.func.params)
        return bc.FunctionRow(
            self.name,
            "vm",
            self.pending.params(),
            self.registers,
            tuple(self.body),
            self.pending.private,
            inputs + (("shape", -1, None),) * bool(self.given),
        )

    def _enter(self) -> None:
        """Check the parameters, and bind their symbolic variables."""
        params = self.func.params
        if self.given:
            at = bc.Reg(len(params))
            for i, s in enumerate(self.given):
                self.dims[s] = self.builtin("tuple_getitem", at, bc.Imm(i))
        checks: list[tuple[bc.Arg, Dim, str]] = []
        for i, p in enumerate(params):
            self.env[p] = bc.Reg(i)
            where = f"{self.name}: the argument for parameter `{p.name_hint}`"
            checks += self._match(bc.Reg(i), p.struct_info, where)
        self._check(checks)
        bounds = ranges(self.func)
        for var, value in list(self.dims.items()) if bounds else ():
            if var.name in bounds:
                of, dimension = owner(self.func, var)
                told = (*bounds[var.name], f"{self.name}: {of}", dimension)
                self.builtin("check_range", value, *map(bc.Imm, told))
        for text, condition in conditions(self.func):
            if all(v in self.dims for v in tir.free_vars(condition)):
                message = unmet(self.name, self.func, text, condition)
                self.builtin("check_condition", self.dim(condition), bc.Imm(message))
        if self.pending.own is not None:
            last = len(params) - self.pending.captured
            fixed: list[bc.Arg] = [bc.Reg(i) for i in range(last, len(self.pending.params()))]
            self.locals[self.pending.own] = self.module.vm_function(self.pending), fixed

    def pattern(self, info: StructInfo) -> Pattern:
        """What a value from outside has to be, and where it goes."""
        return placed_pattern(info) if self.module.hosts.placed else pattern_of(info)

    # -- instructions

    def register(self) -> bc.Reg:
        self.registers += 1
        return bc.Reg(self.registers - 1)

    def call(self, func: int, args: Sequence[bc.Arg], dst: bc.Reg | None = None) -> bc.Reg:
        dst = dst or self.register()
        self.body.append(bc.Call(func, tuple(args), dst.index, self.span))
        return dst

    def builtin(self, name: str, *args: bc.Arg, dst: bc.Reg | None = None) -> bc.Reg:
        return self.call(self.module.row("builtin", f"vm.builtin.{name}"), args, dst)

    # -- shapes

    def dim(self, d: Dim) -> bc.Arg:
        """A dimension (or other scalar of TIR) as an operand."""
        if isinstance(d, int):
            return bc.Imm(d)
        done: dict[int, bc.Arg] = {}
        for node in tir.post_order(d):
            done[id(node)] = self._scalar(node, [done[id(c)] for c in node.children()])
        return done[id(d)]

    def _scalar(self, node: tir.PrimExpr, args: list[bc.Arg]) -> bc.Arg:
        if isinstance(node, tir.Var):
            if node not in self.dims:
                raise LegalizeError(
                    f"the symbolic variable {node} is used before anything defines it; bind it "
                    "with R.match_cast"
                )
            return self.dims[node]
        if isinstance(node, tir.IntImm):
            return bc.Imm(bool(node.value) if node.dtype == "bool" else node.value)
        if isinstance(node, tir.FloatImm):
            return bc.Imm(node.value)
        name = ARITHMETIC.get(type(node))
        if isinstance(node, tir.Cast):
            name = "to_bool" if node.dtype == "bool" else None
            name = name or ("to_float" if "float" in node.dtype else "to_int")
        elif isinstance(node, tir.Call):
            name = FUNCTIONS.get(node.op)
        if name is None:
            raise LegalizeError(f"the machine cannot compute {node}")
        return self.builtin(name, *args)

    def _match(self, value: bc.Arg, info: StructInfo, where: str) -> list[tuple[bc.Arg, Dim, str]]:
        """Check a value and bind what it defines; gives what is to be checked later."""
        bound: list[Dim] = []
        known: list[bc.Arg] = []
        fresh: set[tir.Var] = set()

        def dim(d: Dim) -> Any:
            if isinstance(d, int):
                return d
            if all(v in self.dims for v in tir.free_vars(d)):
                known.append(self.dim(d))
                return ("known", len(known) - 1)
            if isinstance(d, tir.Var):
                fresh.add(d)
            bound.append(d)
            return ("bind",)

        pattern = pattern_of(info, dim)
        if pattern == ("object",):
            return []
        made = self.builtin("match", value, self.module.constant(pattern), bc.Imm(where), *known)
        later: list[tuple[bc.Arg, Dim, str]] = []
        for i, d in enumerate(bound):
            field_ = self.builtin("tuple_getitem", made, bc.Imm(i))
            if isinstance(d, tir.Var) and d not in self.dims:
                self.dims[d] = field_
            else:
                later.append((field_, d, where))
        return later

    def _check(self, checks: Sequence[tuple[bc.Arg, Dim, str]]) -> None:
        """Dimensions that are expressions, now that every variable should be known."""
        for got, d, where in checks:
            self.builtin("check_dim", got, self.dim(d), bc.Imm(where), bc.Imm(str(d)))

    def cast(self, value: bc.Arg, info: StructInfo, where: str) -> None:
        """A cast on the host."""
        self._check(self._match(value, info, where))

    # -- operands

    def arg(self, root: Expr) -> bc.Arg:
        """An operand of A-normal form; tuples of them are built."""
        match root:
            case Var():
                return self._var(root)
            case Constant():
                return self.module.constant(root.data)
            case ShapeExpr():
                return self.shape_of([self.dim(d) for d in root.values])
            case PrimValue():
                return self.dim(root.value)
            case StringImm() | DataTypeImm():
                return bc.Imm(root.value)
            case Tuple():
                return self.tuple_of([self.arg(f) for f in root.fields])
            case TupleGetItem():
                return self.builtin("tuple_getitem", self.arg(root.tuple_value), bc.Imm(root.index))
            case GlobalVar() if isinstance(self.module.mod[root], tir.PrimFunc):
                # A kernel that a packed function is given (TVM's states copy with them): its name.
                return bc.Imm(root.name_hint)
            case GlobalVar():
                return bc.Func(self.module.function(root))
            case ExternFunc():
                return bc.Func(self.module.row("packed", root.global_symbol))
            case _:
                raise LegalizeError(f"{root!r} cannot be an operand of the machine")

    def _var(self, var: Var) -> bc.Arg:
        if var in self.locals:
            index, captured = self.locals[var]
            return self.builtin("make_closure", bc.Func(index), *captured)
        if var not in self.env:
            raise LegalizeError(f"the variable {var.name_hint} is used before it is bound")
        return self.env[var]

    def tuple_of(self, fields: Sequence[bc.Arg]) -> bc.Arg:
        if all(isinstance(f, bc.Imm) for f in fields):
            return self.module.constant(tuple(f.value for f in fields if isinstance(f, bc.Imm)))
        return self.builtin("make_tuple", *fields)

    def shape_of(self, sizes: Sequence[bc.Arg]) -> bc.Arg:
        """A shape of these sizes; where all are known it is a tuple, which equals one."""
        known = all(isinstance(s, bc.Imm) for s in sizes)
        return self.tuple_of(sizes) if known else self.builtin("make_shape", *sizes)

    # -- sequences

    @nests
    def _seq(self, seq: SeqExpr, dst: bc.Reg | None, tail: bool = False) -> None:
        """A sequence; its result goes into ``dst`` or, in tail position, back to the caller."""
        outer = set(self.dims)
        steps = split(seq, self.module.hosts, self.macros, set(self.dims))
        for i, step in enumerate(steps):
            last = i + 1 == len(steps)
            match step:
                case RegionStep():
                    self._region(step)
                case DefineStep():
                    # The region has checked the cast; what is left is to read the sizes.
                    self._match(self.env[step.var], step.info, f"{self.name}: {step.var.name_hint}")
                case HostStep():
                    ends = tail and last and seq.body is step.binding.var
                    if self._host(step, ends):
                        return
        result = self.arg(seq.body)
        for s in [s for s in self.dims if s not in outer]:
            # What a branch defines is not known behind it.
            if not tail:
                del self.dims[s]
        if tail:
            self.body.append(bc.Ret(result))
        elif dst is not None:
            self.builtin("copy", result, dst=dst)

    def _region(self, step: RegionStep) -> None:
        if self.module.hosts.apart:
            name = self.module.operator(step)
        else:
            name = self.module.fresh(f"{self.name}_region{self.count}")
            self.count += 1
            self.module.region(name, step.func, step.device)
        args: list[bc.Arg] = [self.env[v] for v in step.args]
        if step.symbols:
            args.append(self.tuple_of([self.dims[s] for s in step.symbols]))
        self.span = ""
        made = self.call(self.module.row("xla", name), args)
        if len(step.results) == 1:
            self.env[step.results[0]] = made
        else:
            for i, v in enumerate(step.results):
                self.env[v] = self.builtin("tuple_getitem", made, bc.Imm(i))
        ended = f"ended by {step.ended}" if step.ended else "up to the end"
        where = f" on {step.device}" if step.device else ""
        self.module.notes.setdefault(self.name, []).append(
            f"{name}: {step.operations} operations as one XLA program{where}, {ended}"
        )

    # -- host steps

    def _host(self, step: HostStep, ends: bool) -> bool:
        """One binding; True where the function has returned with it."""
        b = step.binding
        span = b.span or b.var.span
        self.span = place(span)
        if isinstance(b, MatchCast):
            value = self.arg(b.value)
            self.cast(value, b.struct_info, f"{self.name}: R.match_cast of {b.var.name_hint}")
            self.env[b.var] = value
            return False
        if step.reason is not None:
            self.module.notes.setdefault(self.name, []).append(f"on the host: {step.reason}")
        value = b.value
        if isinstance(value, Function):
            self._closure(b.var, value)
        elif isinstance(value, If):
            return self._if(b.var, value, ends)
        elif isinstance(value, Call):
            if ends and value.op is self._itself():
                self._tail_call(value)
                return True
            self.is_read = b.var in self._read
            self.env[b.var] = self._call(value)
        else:
            self.env[b.var] = self.arg(value)
        return False

    def _itself(self) -> Expr | None:
        """What the function is called inside itself."""
        mod = self.module.mod
        return self.pending.own or (mod.get_global_var(self.name) if self.name in mod else None)

    def _tail_call(self, call: Call) -> None:
        """The function from its start, with other arguments."""
        new = [self.builtin("copy", self.arg(a)) for a in call.args]
        for i, r in enumerate(new):
            self.builtin("copy", r, dst=bc.Reg(i))
        self.body.append(bc.Goto(-len(self.body)))

    def _if(self, var: Var, node: If, tail: bool) -> bool:
        cond = self.arg(node.cond)
        if not isinstance(cond, bc.Reg):
            cond = self.builtin("copy", cond)
        dst = None if tail else self.register()
        start = len(self.body)
        span = self.span
        self.body.append(bc.Ret(cond))
        saved = dict(self.dims)
        self._seq(node.true_branch, dst, tail)
        self.dims = dict(saved)
        end_true = len(self.body)
        if not tail:
            self.body.append(bc.Ret(cond))
        self.body[start] = bc.If(cond, len(self.body) - start, span)
        self._seq(node.false_branch, dst, tail)
        self.dims = saved
        if dst is None:
            return True
        self.body[end_true] = bc.Goto(len(self.body) - end_true)
        self.env[var] = dst
        return False

    def _closure(self, var: Var, func: Function) -> None:
        """A local function: a function of the table whose last parameters are what it captures."""
        facts = self.module.hosts.needs.inlined(func, self.macros)
        captured = [v for v in facts.variables if v is not var]
        lifted = func.replace(params=[*func.params, *captured], attrs={})
        known = {v for p in lifted.params for v in definable_vars(p.struct_info)}
        needed = [
            *facts.symbols,
            *facts.casts,
            *(s for v in captured for s in free_symbolic_vars(v.struct_info_)),
        ]
        symbols = tuple(s for s in dict.fromkeys(needed) if s in self.dims and s not in known)
        name = self.module.fresh(f"{self.pending.outer or self.name}_{var.name_hint}")
        index = self.module.vm_function(
            _Pending(
                name,
                lifted,
                True,
                symbols,
                var,
                len(captured),
                dict(self.macros),
                self.pending.outer or self.name,
                self._read,
            )
        )
        args = [self.arg(v) for v in captured]
        if symbols:
            args.append(self.tuple_of([self.dims[s] for s in symbols]))
        self.locals[var] = index, args

    def _call(self, call: Call) -> bc.Arg:
        op = call.op
        if isinstance(op, GlobalVar):
            return self.call(self.module.function(op), [self.arg(a) for a in call.args])
        if isinstance(op, ExternFunc):
            return self.packed(op, call.args, call.sinfo_args, call)
        if isinstance(op, Op):
            special = INTRINSICS.get(op.name)
            if special is not None:
                return special(self, call)
            if is_row(op):
                # The machine has no rows: the regions of this one hold what XLA cannot.
                inner = self.module.hosts.within(call)
                raise LegalizeError(
                    f"{op.name} holds what cannot be part of an XLA program: {inner}; use If and "
                    "recursion, which the machine runs"
                )
            given = plain_attrs(call)
            if op.name == "relax.tensor_to_shape" and isinstance(call.args[0], Var):
                given["name"] = call.args[0].name_hint  # for its message
            attrs = self.module.constant(given)
            row = self.module.row("builtin", op.name)
            return self.call(row, [*(self.arg(a) for a in call.args), attrs])
        args = [self.arg(a) for a in call.args]
        if isinstance(op, Var) and op in self.locals:
            index, captured = self.locals[op]
            return self.call(index, [*args, *captured])
        return self.builtin("invoke_closure", self.arg(op), *args)

    def packed(
        self, func: Expr, args: Sequence[Expr], infos: Sequence[StructInfo], call: Call
    ) -> bc.Arg:
        """A packed function, whose result is checked against what the program says of it."""
        operands = [self.arg(a) for a in args]
        if isinstance(func, ExternFunc):
            made = self.call(self.module.row("packed", func.global_symbol), operands)
            name = func.global_symbol
        else:
            made = self.builtin("invoke_closure", self.arg(func), *operands)
            name = repr(func)
        return self.stated(made, call, f"{self.name}: the result of {name}")

    def stated(self, made: bc.Arg, call: Call, where: str) -> bc.Arg:
        """A result that must be what ``sinfo_args`` say, if anything reads it or its sizes.

        A function that only writes into its arguments gives nothing, whatever is stated.
        """
        info = call.struct_info
        if not call.sinfo_args or not (self.is_read or free_symbolic_vars(info)):
            return made
        wanted = self.pattern(info)
        if wanted == ("object",):
            return made
        made = self.builtin("as_stated", made, self.module.constant(wanted), bc.Imm(where))
        if free_symbolic_vars(info) or _has_dims(info):
            self.cast(made, info, where)
        return made


def _operator_name(func: Function) -> str:
    """What the one binding of a function calls: its kernel, else the operator's last name."""
    value = next(b.value for b in bindings_of(func.body) if not isinstance(b.value, Function))
    if not isinstance(value, Call):
        return "value"
    first = value.args[0] if value.args else None
    if isinstance(first, GlobalVar):
        return first.name_hint
    called = value.op.name if isinstance(value.op, Op) else getattr(value.op, "name_hint", "value")
    return called.rpartition(".")[2]


def _has_dims(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return any(map(_has_dims, info.fields))
    if isinstance(info, TensorStructInfo):
        return info.dims is not None
    return isinstance(info, ShapeStructInfo) and info.values is not None
