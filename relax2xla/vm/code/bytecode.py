"""The virtual machine's bytecode: pure data, its checks and its text.

A :class:`Code` is a table of functions and a pool of constants. A function of kind "vm" holds
instructions over registers; the other kinds are names that the machine resolves: "xla" (a compiled
region of the executable), "packed" (a registered Python function) and "builtin" (of this machine).
Jumps are relative to the instruction itself, as in TVM.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from relax2xla.errors import BytecodeError

Kind = Literal["vm", "xla", "packed", "builtin"]
KINDS: tuple[Kind, ...] = ("vm", "xla", "packed", "builtin")


@dataclass(frozen=True, slots=True)
class Reg:
    """A register of the running function."""

    index: int

    def __str__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal in the instruction: a number, a string or None."""

    value: int | float | str | None

    def __str__(self) -> str:
        return f"i{self.value!r}"


@dataclass(frozen=True, slots=True)
class Const:
    """A constant of the pool."""

    index: int

    def __str__(self) -> str:
        return f"c[{self.index}]"


@dataclass(frozen=True, slots=True)
class Func:
    """A function of the table, as a value."""

    index: int

    def __str__(self) -> str:
        return f"f[{self.index}]"


@dataclass(frozen=True, slots=True)
class Special:
    """The running machine ("vm"), or nothing ("void", the value None)."""

    name: Literal["vm", "void"]

    def __str__(self) -> str:
        return f"%{self.name}"


Arg = Reg | Imm | Const | Func | Special
VM_STATE = Special("vm")
VOID = Special("void")


@dataclass(frozen=True, slots=True)
class Call:
    """``dst = func(*args)``; ``dst`` None drops the result. ``span``: where the source says so."""

    func: int
    args: tuple[Arg, ...]
    dst: int | None = None
    span: str = ""


@dataclass(frozen=True, slots=True)
class Ret:
    """The function ends with this result."""

    result: Arg


@dataclass(frozen=True, slots=True)
class Goto:
    """Continue ``offset`` instructions further."""

    offset: int


@dataclass(frozen=True, slots=True)
class If:
    """Continue with the next instruction if ``cond`` holds, else ``false_offset`` further."""

    cond: Reg
    false_offset: int
    span: str = ""


Instruction = Call | Ret | Goto | If


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function of the table; the fields after ``kind`` are of "vm" functions alone."""

    name: str
    kind: Kind
    params: tuple[str, ...] = ()
    registers: int = 0
    body: tuple[Instruction, ...] = ()
    private: bool = False
    # What each parameter must be, as patterns of ``vm.code.builtins.match``; empty: anything.
    inputs: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """Functions by index, and constants: numpy arrays, numbers, strings, None, tuples of these."""

    functions: tuple[FunctionRow, ...] = ()
    constants: tuple[Any, ...] = field(default=(), compare=False)

    def find(self, name: str) -> int | None:
        """The index of the "vm" function ``name``, None if there is none."""
        found = (i for i, f in enumerate(self.functions) if f.kind == "vm" and f.name == name)
        return next(found, None)


# ---- verification
def verify(code: Code) -> None:
    """Raise :class:`BytecodeError` where the code could not run.

    Names are unique for each kind; registers are written on every way to where they are read;
    jumps stay inside their function, and every way ends in a return; functions and constants that
    instructions name exist; calls of "vm" functions have as many arguments as these have
    parameters.
    """
    seen: set[tuple[str, str]] = set()
    for row in code.functions:
        if row.kind not in KINDS:
            raise BytecodeError(f"{row.name}: the kind {row.kind!r} is none of {', '.join(KINDS)}")
        if (row.kind, row.name) in seen:
            raise BytecodeError(f"the function table has {row.name!r} ({row.kind}) twice")
        seen.add((row.kind, row.name))
        if row.kind == "vm":
            _Checker(code, row).run()


class _Checker:
    def __init__(self, code: Code, row: FunctionRow) -> None:
        self.code, self.row = code, row

    def fail(self, at: int, reason: str) -> BytecodeError:
        text = show_instruction(self.code, self.row.body[at]) if self.row.body else ""
        return BytecodeError(f"{self.row.name}, instruction {at} ({text}): {reason}")

    def run(self) -> None:
        row = self.row
        if not row.body:
            raise BytecodeError(
                f"{row.name} has no instructions; it must at least return (emit_ret)"
            )
        if row.registers < len(row.params):
            raise BytecodeError(
                f"{row.name} has {len(row.params)} parameters but {row.registers} registers"
            )
        for at, ins in enumerate(row.body):
            self.operands(at, ins)
        self.flow()

    def operands(self, at: int, ins: Instruction) -> None:
        """Everything that an instruction names is there."""
        args = reads(ins)
        if isinstance(ins, Call):
            if not 0 <= ins.func < len(self.code.functions):
                raise self.fail(at, f"there is no function {ins.func}")
            callee = self.code.functions[ins.func]
            if callee.kind == "vm" and len(callee.params) != len(ins.args):
                raise self.fail(
                    at, f"{callee.name} takes {len(callee.params)} arguments, not {len(ins.args)}"
                )
            if ins.dst is not None:
                args = (*args, Reg(ins.dst))
        for a in args:
            if isinstance(a, Reg) and not 0 <= a.index < self.row.registers:
                raise self.fail(at, f"the function has no register {a}")
            if isinstance(a, Const) and not 0 <= a.index < len(self.code.constants):
                raise self.fail(at, f"there is no constant {a}")
            if isinstance(a, Func) and not 0 <= a.index < len(self.code.functions):
                raise self.fail(at, f"there is no function {a}")
        for to in targets(at, ins):
            if not 0 <= to < len(self.row.body):
                if to == len(self.row.body):
                    raise self.fail(at, "control goes to the end of the function without a `ret`")
                raise self.fail(at, f"control goes to {to}, outside the function")

    def flow(self) -> None:
        """No register is read on a way on which nothing wrote it (sets of registers as bits)."""
        body = self.row.body
        starts = leaders(body)
        entry: dict[int, int] = {0: (1 << len(self.row.params)) - 1}
        todo = [0]
        while todo:
            at = todo.pop()
            written = entry[at]
            while True:
                ins = body[at]
                for a in reads(ins):
                    if isinstance(a, Reg) and not written >> a.index & 1:
                        raise self.fail(at, f"{a} is read before it is written")
                if isinstance(ins, Call) and ins.dst is not None:
                    written |= 1 << ins.dst
                after = targets(at, ins)
                if len(after) == 1 and after[0] not in starts:
                    at = after[0]
                    continue
                for to in after:
                    known = entry.get(to)
                    merged = written if known is None else known & written
                    if merged != known:
                        entry[to] = merged
                        todo.append(to)
                break


def reads(ins: Instruction) -> tuple[Arg, ...]:
    """The operands that an instruction reads."""
    match ins:
        case Call():
            return ins.args
        case Ret():
            return (ins.result,)
        case If():
            return (ins.cond,)
        case Goto():
            return ()


def targets(at: int, ins: Instruction) -> tuple[int, ...]:
    """Where control goes after the instruction at ``at``."""
    match ins:
        case Call():
            return (at + 1,)
        case Ret():
            return ()
        case Goto():
            return (at + ins.offset,)
        case If():
            return (at + 1, at + ins.false_offset)


def leaders(body: Sequence[Instruction]) -> set[int]:
    """Where basic blocks start: the first instruction, targets of jumps, what follows a jump."""
    found = {0}
    for at, ins in enumerate(body):
        if isinstance(ins, Goto | If):
            found.update(targets(at, ins))
        if not isinstance(ins, Call) and at + 1 < len(body):
            found.add(at + 1)
    return found


# ---- text
def show_instruction(code: Code, ins: Instruction) -> str:
    """One line of :func:`as_text`."""
    match ins:
        case Call():
            known = 0 <= ins.func < len(code.functions)
            name = code.functions[ins.func].name if known else f"f[{ins.func}]"
            args = ", ".join(map(str, ins.args))
            text = f"call {name:24s} in: {args}"
            if ins.dst is not None:
                text = f"{text:52s} dst: %{ins.dst}"
            return text.rstrip() + (f"  # {ins.span}" if ins.span else "")
        case Ret():
            return f"ret  {ins.result}"
        case Goto():
            return f"goto {ins.offset}"
        case If():
            return f"if   {ins.cond} else {ins.false_offset}"


def show_constant(value: Any) -> str:
    """A constant in short: arrays by shape and dtype."""
    if isinstance(value, np.ndarray):
        return f"array{value.shape} {value.dtype}"
    return repr(value)


def as_text(code: Code) -> str:
    """The function table, the constants and the instructions, one a line."""
    lines: list[str] = []
    others = [(i, f) for i, f in enumerate(code.functions) if f.kind != "vm"]
    if others:
        lines += ["functions:", *(f"  f[{i}] {f.kind:8s}{f.name}" for i, f in others), ""]
    if code.constants:
        shown = (f"  c[{i}] {show_constant(c)}" for i, c in enumerate(code.constants))
        lines += ["constants:", *shown, ""]
    for row in code.functions:
        if row.kind == "vm":
            params = ", ".join(f"%{i} {name}".rstrip() for i, name in enumerate(row.params))
            lines.append(f"@{row.name}({params}):")
            lines += [
                f"  {at:3d}  {show_instruction(code, ins)}" for at, ins in enumerate(row.body)
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def as_python(code: Code) -> str:
    """A Python program that builds the same code with ``ExecBuilder``."""
    lines = ["import numpy as np", "import relax2xla", "", "ib = relax2xla.ExecBuilder()"]
    lines += [f"ib.declare_function({r.name!r}, {r.kind!r})" for r in code.functions]
    for i, value in enumerate(code.constants):
        lines.append(f"c{i} = ib.convert_constant({_literal(value)})")
    for row in code.functions:
        if row.kind != "vm":
            continue
        lines.append(
            f"with ib.function({row.name!r}, num_inputs={len(row.params)}, "
            f"param_names={list(row.params)!r}):"
        )
        for ins in row.body:
            match ins:
                case Call():
                    args = ", ".join(_python(code, a) for a in ins.args)
                    dst = "" if ins.dst is None else f", dst=ib.r({ins.dst})"
                    name = code.functions[ins.func].name
                    lines.append(f"    ib.emit_call({name!r}, args=[{args}]{dst})")
                case Ret():
                    lines.append(f"    ib.emit_ret({_python(code, ins.result)})")
                case Goto():
                    lines.append(f"    ib.emit_goto({ins.offset})")
                case If():
                    lines.append(f"    ib.emit_if(ib.r({ins.cond.index}), {ins.false_offset})")
    return "\n".join(lines) + "\n"


def _python(code: Code, arg: Arg) -> str:
    match arg:
        case Reg():
            return f"ib.r({arg.index})"
        case Imm():
            return f"ib.imm({_literal(arg.value)})"
        case Const():
            return f"c{arg.index}"
        case Func():
            return f"ib.f({code.functions[arg.index].name!r})"
        case Special():
            return "ib.vm_state()" if arg.name == "vm" else "ib.void_arg()"


def _literal(value: Any) -> str:
    """A constant as Python writes it; numpy is ``np``."""
    match value:
        case np.ndarray():
            dtype = value.dtype.str if value.dtype.kind == "U" else value.dtype.name
            made = f"np.array({_literal(value.tolist())}, {dtype!r})"
            return made if value.size else f"{made}.reshape({value.shape})"
        case tuple() | list():
            parts = "".join(f"{_literal(v)}, " for v in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        case dict():
            return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
        case float() if not math.isfinite(value):
            return f"float({str(value)!r})"
        case _:
            return repr(value)


def stats(code: Code) -> list[str]:
    """A line for each "vm" function: parameters, registers, instructions, calls by kind."""
    lines: list[str] = []
    for row in code.functions:
        if row.kind == "vm":
            kinds = Counter(_called(code, row.body))
            calls = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "none"
            lines.append(
                f"{row.name}: bytecode, {len(row.params)} parameters, {row.registers} registers, "
                f"{len(row.body)} instructions; calls: {calls}"
            )
    return lines


def _called(code: Code, body: Iterable[Instruction]) -> list[str]:
    return [code.functions[i.func].kind for i in body if isinstance(i, Call)]
