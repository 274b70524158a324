"""What bytecode may be made of: checked before anything else looks at it.

Code that comes from a file may hold any JSON value in any place, and Python is generated from it.
So every field has its class and range here; :func:`relax2xla.vm.code.bytecode.verify` adds what
holds between the instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from relax2xla.errors import BytecodeError
from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.code.builtins import INLINE

# Registers beside one for each parameter and instruction: those of code written by hand may be
# numbered with gaps.
_SPARE: Final = 1 << 12
_OPERANDS: Final = (bc.Reg, bc.Imm, bc.Const, bc.Func, bc.Special)
_INSTRUCTIONS: Final = (bc.Call, bc.Ret, bc.Goto, bc.If)
_SPECIALS: Final = ("vm", "void")
# Fields of each pattern of ``vm.code.builtins.match`` after its name.
_PATTERNS: Final = {"tensor": 3, "shape": 2, "prim": 2, "tuple": 1, "object": 0, "placed": 2}


def check_classes(code: bc.Code) -> None:
    """BytecodeError where a field of ``code`` holds something of another class or range."""
    for at, constant in enumerate(code.constants):
        if not _is_plain(constant):
            raise BytecodeError(f"the constant c[{at}] holds a part of the bytecode")
    for at, row in enumerate(code.functions):
        if type(row) is not bc.FunctionRow:
            raise BytecodeError(f"function {at} of the table is a {type(row).__name__}")
        _Row(code, at, row).check()


class _Row:
    def __init__(self, code: bc.Code, index: int, row: bc.FunctionRow) -> None:
        self.code, self.index, self.row = code, index, row

    def need(self, holds: bool, what: str, at: int | None = None) -> None:
        if not holds:
            name = self.row.name if isinstance(self.row.name, str) else f"function {self.index}"
            where = name if at is None else f"{name}, instruction {at}"
            raise BytecodeError(f"{where}: {what}")

    def check(self) -> None:
        row = self.row
        self.need(isinstance(row.name, str) and row.name != "", "its name is no string")
        self.need(row.kind in bc.KINDS, f"the kind {row.kind!r} is none of {', '.join(bc.KINDS)}")
        strings = isinstance(row.params, tuple) and all(isinstance(p, str) for p in row.params)
        self.need(strings, "its parameters are no strings")
        self.need(isinstance(row.private, bool), "`private` is no bool")
        self.need(isinstance(row.body, tuple), "its body is no sequence of instructions")
        most = len(row.params) + len(row.body) + _SPARE
        registers = type(row.registers) is int and 0 <= row.registers <= most
        self.need(registers, f"it cannot have {row.registers!r} registers")
        fits = isinstance(row.inputs, tuple) and len(row.inputs) in (0, len(row.params))
        self.need(fits, "it does not have a pattern for each parameter")
        for pattern in row.inputs:
            self.pattern(pattern)
        for at, ins in enumerate(row.body):
            self.instruction(at, ins)

    def instruction(self, at: int, ins: Any) -> None:
        self.need(type(ins) in _INSTRUCTIONS, f"no instruction: {ins!r}", at)
        match ins:
            case bc.Call():
                self.need(isinstance(ins.args, tuple), "its operands are no sequence", at)
                self.need(
                    type(ins.func) is int and 0 <= ins.func < len(self.code.functions),
                    f"there is no function {ins.func!r}",
                    at,
                )
                if ins.dst is not None:
                    self.operand(at, bc.Reg(ins.dst))
                for arg in ins.args:
                    self.operand(at, arg)
                self.need(isinstance(ins.span, str), "its span is no string", at)
                self.builtin(at, ins)
            case bc.Ret():
                self.operand(at, ins.result)
            case bc.Goto():
                self.need(type(ins.offset) is int, f"no offset: {ins.offset!r}", at)
            case bc.If():
                self.need(
                    type(ins.cond) is bc.Reg, f"its condition is no register: {ins.cond!r}", at
                )
                self.operand(at, ins.cond)
                self.need(type(ins.false_offset) is int, f"no offset: {ins.false_offset!r}", at)
                self.need(isinstance(ins.span, str), "its span is no string", at)
            case _:
                pass

    def operand(self, at: int, arg: Any) -> None:
        match arg:
            case bc.Reg(index):
                fits = type(index) is int and 0 <= index < self.row.registers
                self.need(fits, f"the function has no register %{index}", at)
            case bc.Const(index):
                fits = type(index) is int and 0 <= index < len(self.code.constants)
                self.need(fits, f"there is no constant c[{index}]", at)
            case bc.Func(index):
                fits = type(index) is int and 0 <= index < len(self.code.functions)
                self.need(fits, f"there is no function f[{index}]", at)
            case bc.Imm(value):
                fits = value is None or type(value) in (bool, int, float, str)
                self.need(fits, f"a {type(value).__name__} is no literal", at)
            case _:
                named = type(arg) is bc.Special and arg.name in _SPECIALS
                self.need(named, f"no operand: {arg!r}", at)

    def builtin(self, at: int, ins: bc.Call) -> None:
        """A builtin has operands of the kinds that it takes."""
        callee = self.code.functions[ins.func]
        if getattr(callee, "kind", None) != "builtin":
            return
        text = INLINE.get(callee.name)
        if text is not None and text != "({*},)":
            self.inline(at, ins, callee, text)
        if callee.name == "vm.builtin.match":
            self.matching(at, ins)
        if callee.name == "vm.builtin.tuple_getitem" and isinstance(ins.args[1], bc.Imm):
            self.need(type(ins.args[1].value) is int, f"no place in a tuple: {ins.args[1]}", at)

    def inline(self, at: int, ins: bc.Call, callee: bc.FunctionRow, text: str) -> None:
        """A builtin that is written out as an expression has the operands that this names."""
        least = 1 + max(i for i in range(3) if f"{{{i}" in text and f"{{{i}*" not in text)
        more = "*" in text.replace(" * ", "")
        self.need(
            len(ins.args) == least or (more and len(ins.args) > least),
            f"{callee.name} takes {least} operands, not {len(ins.args)}",
            at,
        )

    def matching(self, at: int, ins: bc.Call) -> None:
        """``match(value, pattern, where, *known)``: the pattern is a constant."""
        self.need(len(ins.args) >= 3, "match takes a value, a pattern and a place", at)
        _, pattern, where, *known = ins.args
        self.need(isinstance(pattern, bc.Const), f"no pattern of values: {pattern!r}", at)
        assert isinstance(pattern, bc.Const)
        self.pattern(self.code.constants[pattern.index], len(known))
        named = isinstance(where, bc.Imm) and isinstance(where.value, str)
        self.need(named, f"no place in words: {where!r}", at)

    def pattern(self, pattern: Any, known: int = 0) -> None:
        """What a value must be, where so many dimensions are known; see ``builtins.match``."""
        stack = [pattern]
        while stack:
            found = stack.pop()
            fields = _PATTERNS.get(found[0]) if _is_tagged(found) else None
            self.need(
                fields is not None and len(found) == fields + 1, f"no pattern of values: {found!r}"
            )
            match found[0]:
                case "tuple":
                    self.need(isinstance(found[1], tuple), f"no pattern of values: {found!r}")
                    stack += found[1]
                case "placed":
                    self.need(isinstance(found[1], str), f"no device: {found[1]!r}")
                    stack.append(found[2])
                case "tensor" | "shape" | "prim":
                    *rest, dims = found[1:]
                    texts = all(isinstance(r, str) for r in rest[: found[0] != "shape"])
                    ranks = all(type(r) is int for r in rest[found[0] != "shape" :])
                    fit = texts and ranks and _are_dims(dims, known)
                    self.need(fit, f"no pattern of values: {found!r}")
                case _:
                    pass


def _is_plain(value: Any) -> bool:
    """Whether ``value`` has no operand, instruction or function of the table in it."""
    stack = [value]
    while stack:
        found = stack.pop()
        if isinstance(found, tuple | list):
            stack += found
        elif isinstance(found, dict):
            stack += [*found, *found.values()]
        elif isinstance(found, (*_OPERANDS, *_INSTRUCTIONS, bc.FunctionRow)):
            return False
    return True


def _is_tagged(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], str)


def _are_dims(dims: Sequence[Any] | None, known: int) -> bool:
    if dims is None:
        return True
    fine = {("bind",), *(("known", i) for i in range(known))}
    return isinstance(dims, tuple) and all(type(d) is int or d in fine for d in dims)
