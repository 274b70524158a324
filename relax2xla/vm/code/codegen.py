"""Bytecode to Python: each "vm" function becomes one generated Python function.

Registers are local variables, calls are calls, so an instruction costs what a line of Python does.
A function with jumps becomes a loop over its basic blocks, which a tree of comparisons picks.
Nothing of the program but literals and names made here gets into the text; constants and callees
come in through the namespace. A line holds one instruction, so that the lines of a traceback tell
which instructions were running.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any

from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.code.builtins import INLINE

_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Generated:
    """The Python text of a function, and the instruction of each line (1-based)."""

    row: bc.FunctionRow
    text: str
    lines: Mapping[int, int]


def generate(code: bc.Code, index: int, hooked: bool = False, counted: bool = False) -> Generated:
    """Python for function ``index`` of ``code``; callees are F0, F1, ..., constants C0, C1, ...

    ``hooked``: every call goes through H, with the function and its name as first arguments.
    ``counted``: S is called before the function begins, and before each round of its loops.
    """
    row = code.functions[index]
    params = ", ".join(f"r{i}" for i in range(len(row.params)))
    writer = _Writer(code, hooked)
    writer.line(0, f"def f({params}):")
    if counted:
        writer.count(1, 0)
    starts = sorted(bc.leaders(row.body))
    if not any(isinstance(ins, bc.Goto | bc.If) for ins in row.body):
        dead = _last_reads(row.body)
        for at, ins in enumerate(row.body):
            writer.instruction(1, at, ins, {})
            if at in dead and isinstance(ins, bc.Call):
                # Arrays that nothing needs any more go at once.
                names = " = ".join(f"r{r}" for r in dead[at] if r != ins.dst)
                if names:
                    writer.out[-1] += f"; {names} = None"
    else:
        writer.line(1, "b = 0")
        writer.line(1, "while True:")
        if counted:
            writer.count(2, 0)
        numbers = {start: n for n, start in enumerate(starts)}
        ends = [*starts[1:], len(row.body)]
        writer.tree(2, row.body, list(zip(starts, ends, strict=True)), numbers, 0)
    return Generated(row, "\n".join(writer.out) + "\n", writer.lines)


def _last_reads(body: Sequence[bc.Instruction]) -> dict[int, list[int]]:
    """The registers that each instruction of straight code is the last to read."""
    last: dict[int, int] = {}
    for at, ins in enumerate(body):
        for arg in bc.reads(ins):
            if isinstance(arg, bc.Reg):
                last[arg.index] = at
    made: dict[int, list[int]] = {}
    for register, at in last.items():
        made.setdefault(at, []).append(register)
    return made


class _Writer:
    def __init__(self, code: bc.Code, hooked: bool) -> None:
        self.code, self.hooked = code, hooked
        self.out: list[str] = []
        self.lines: dict[int, int] = {}

    def line(self, indent: int, text: str) -> None:
        self.out.append(" " * indent + text)

    def count(self, indent: int, at: int) -> None:
        """A call of what counts steps, as of the instruction at ``at``."""
        self.line(indent, "S()")
        self.lines[len(self.out)] = at

    def tree(
        self,
        indent: int,
        body: Sequence[bc.Instruction],
        blocks: Sequence[tuple[int, int]],
        numbers: Mapping[int, int],
        first: int,
    ) -> None:
        """The basic blocks ``blocks``, whose numbers count from ``first``, behind comparisons."""
        if len(blocks) > 1:
            half = len(blocks) // 2
            self.line(indent, f"if b < {first + half}:")
            self.tree(indent + 1, body, blocks[:half], numbers, first)
            self.line(indent, "else:")
            self.tree(indent + 1, body, blocks[half:], numbers, first + half)
            return
        start, end = blocks[0]
        for at in range(start, end):
            self.instruction(indent, at, body[at], numbers)
        if isinstance(body[end - 1], bc.Call):
            self.line(indent, f"b = {numbers[end]}")

    def instruction(
        self, indent: int, at: int, ins: bc.Instruction, numbers: Mapping[int, int]
    ) -> None:
        match ins:
            case bc.Call():
                dst = "" if ins.dst is None else f"r{ins.dst} = "
                text = dst + self.call(ins)
            case bc.Ret():
                text = f"return {self.arg(ins.result)}"
            case bc.Goto():
                text = f"b = {numbers[at + ins.offset]}"
            case bc.If():
                yes, no = numbers[at + 1], numbers[at + ins.false_offset]
                text = f"b = {yes} if r{ins.cond.index} else {no}"
        self.line(indent, text)
        self.lines[len(self.out)] = at

    def call(self, ins: bc.Call) -> str:
        row = self.code.functions[ins.func]
        args = [self.arg(a) for a in ins.args]
        if self.hooked:
            return f"H({', '.join([f'F{ins.func}', repr(row.name), *args])})"
        inline = INLINE.get(row.name) if row.kind == "builtin" else None
        if inline is None:
            return f"F{ins.func}({', '.join(args)})"

        def operand(found: re.Match[str]) -> str:
            which = found[1]
            if which.endswith("*"):
                return ", ".join(args[int(which[:-1] or 0) :])
            return args[int(which)]

        if inline == "({*},)" and not args:
            return "()"
        return re.sub(r"\{(\d*\*|\d+)\}", operand, inline)

    def arg(self, arg: bc.Arg) -> str:
        match arg:
            case bc.Reg():
                return f"r{arg.index}"
            case bc.Imm():
                # Written out, except for what has no literal, such as infinity.
                plain = isinstance(arg.value, bool | int | str) or arg.value is None
                return f"({arg.value!r})" if plain else f"float({str(arg.value)!r})"
            case bc.Const():
                return f"C{arg.index}"
            case bc.Func():
                return f"F{arg.index}"
            case _:
                return "VM" if arg.name == "vm" else "None"


class Linked:
    """A generated function, compiled into a namespace that holds callees and constants."""

    def __init__(
        self,
        code: bc.Code,
        index: int,
        namespace: dict[str, Any],
        hooked: bool = False,
        counted: bool = False,
    ) -> None:
        made = generate(code, index, hooked, counted)
        self.code, self.row, self.lines, self.text = code, made.row, made.lines, made.text
        # Any text may be a name, but not that of a file.
        plain = re.sub(r"[^ -~]", "?", made.row.name)
        name = self.filename = f"<relax2xla vm {plain} {next(_serial)}>"
        scope: dict[str, Any] = {}
        exec(compile(made.text, name, "exec"), namespace, scope)
        self.call: Callable[..., Any] = scope["f"]
        self.call.__name__ = self.call.__qualname__ = made.row.name
        self.python: CodeType = self.call.__code__

    def instruction(self, line: int) -> bc.Instruction | None:
        """The instruction at a line of the generated text."""
        at = self.lines.get(line)
        return None if at is None else self.row.body[at]

    def note(self, line: int) -> str:
        """What was running at a line of the generated text."""
        return _note(self.code, self.row, self.lines.get(line))


def _note(code: bc.Code, row: bc.FunctionRow, at: int | None) -> str:
    """An instruction of a function, and where the source says it."""
    if at is None:
        return f"  in the VM function {row.name}"
    ins = row.body[at]
    text = " ".join(bc.show_instruction(code, ins).partition("#")[0].split())
    span = getattr(ins, "span", "")
    where = f", at {span}" if span else ""
    return f"  in the VM function {row.name}, instruction {at}: {text}{where}"


def calls_of(code: bc.Code, callee: bc.FunctionRow) -> list[str]:
    """The instructions that name a function of the table, as they are said in errors."""
    index = code.functions.index(callee)
    return [
        _note(code, row, at)
        for row in code.functions
        for at, ins in enumerate(row.body)
        if (isinstance(ins, bc.Call) and ins.func == index) or bc.Func(index) in bc.reads(ins)
    ]


def vm_stack(tb: TracebackType | None, linked: Mapping[CodeType, Linked]) -> list[str]:
    """The VM call stack in a traceback, innermost first."""
    notes: list[str] = []
    while tb is not None:
        found = linked.get(tb.tb_frame.f_code)
        if found is not None:
            notes.append(found.note(tb.tb_lineno))
        tb = tb.tb_next
    return notes[::-1]
