"""``ExecBuilder``: write bytecode by hand, instruction by instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from relax2xla.errors import BuilderError
from relax2xla.ir import IRModule, ShapeExpr
from relax2xla.vm.code import bytecode as bc
from relax2xla.vm.code.wellformed import check_classes
from relax2xla.vm.save.executable import VMExecutable


class VMFuncScope:
    """The body of one function: ``with builder.function(...):``."""

    def __init__(self, builder: ExecBuilder, row: bc.FunctionRow) -> None:
        self._builder, self._row = builder, row

    def __enter__(self) -> VMFuncScope:
        self._builder.begin(self._row)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._builder.end(keep=error is None)


class ExecBuilder:
    """Builds an executable of bytecode functions.

    ``emit_*`` work inside ``with builder.function(...)`` (ValueError outside). Registers count from
    0, which is the first parameter; a plain integer among arguments is a register too, as in TVM.
    """

    def __init__(self) -> None:
        self._rows: list[bc.FunctionRow] = []
        self._index: dict[str, int] = {}
        self._constants: list[Any] = []
        self._known_constants: dict[Any, bc.Const] = {}
        self._open: bc.FunctionRow | None = None
        self._body: list[bc.Instruction] = []

    # -- operands

    def r(self, idx: int) -> bc.Reg:
        """Register ``idx``."""
        return bc.Reg(self._checked(idx))

    def imm(self, value: float | str | None) -> bc.Imm:
        """A number, a string or nothing, in the instruction."""
        return bc.Imm(value)

    def c(self, idx: int) -> bc.Const:
        """Constant ``idx`` of the pool."""
        if not 0 <= idx < len(self._constants):
            raise ValueError(f"there is no constant {idx}; there are {len(self._constants)}")
        return bc.Const(idx)

    def f(self, name: str) -> bc.Func:
        """The function ``name`` as a value."""
        return bc.Func(self._function_index(name))

    def void_arg(self) -> bc.Special:
        """An argument that is nothing."""
        return bc.VOID

    def vm_state(self) -> bc.Special:
        """The running machine as an argument."""
        return bc.VM_STATE

    def convert_constant(self, const: Any) -> bc.Const:
        """``const`` put into the pool: an array, number, string, dtype, shape, or these in a tuple
        or dictionary.

        Equal constants are one.
        """
        value = _plain(const)
        key = _identity(value)
        if key not in self._known_constants:
            self._known_constants[key] = bc.Const(len(self._constants))
            self._constants.append(value)
        return self._known_constants[key]

    # -- functions

    def declare_function(self, func_name: str, kind: str = "packed") -> None:
        """Name a function before its first call; ``kind``: "packed", "builtin" or "vm"."""
        if kind not in bc.KINDS:
            raise ValueError(f"the kind of {func_name!r} must be one of {', '.join(bc.KINDS)}")
        known = self._index.get(func_name)
        if known is None:
            self._declare(bc.FunctionRow(func_name, kind))
        elif self._rows[known].kind != kind:
            raise BuilderError(f"{func_name!r} is declared as {self._rows[known].kind} already")

    def function(
        self,
        func_name: str,
        num_inputs: int | None = 0,
        param_names: Sequence[str] | None = None,
    ) -> VMFuncScope:
        """A new function; its instructions are emitted inside ``with``."""
        if num_inputs is None or (param_names is not None and not num_inputs):
            num_inputs = len(param_names or ())
        if param_names is not None and len(param_names) != num_inputs:
            raise ValueError(f"{func_name}: {num_inputs} inputs, but names {list(param_names)}")
        names = tuple(param_names) if param_names else tuple(f"p{i}" for i in range(num_inputs))
        known = self._index.get(func_name)
        # A function may be called before it is written; then it was taken for a packed one.
        if known is not None and (
            self._rows[known].body or self._rows[known].kind not in ("vm", "packed")
        ):
            raise BuilderError(f"there is a function {func_name!r} already")
        return VMFuncScope(self, bc.FunctionRow(func_name, "vm", names, num_inputs))

    def begin(self, row: bc.FunctionRow) -> None:
        """Open a function (``with`` does this)."""
        if self._open is not None:
            raise BuilderError(f"the function {self._open.name!r} is still open")
        self._open, self._body = row, []

    def end(self, keep: bool = True) -> None:
        """Close the open function (``with`` does this)."""
        row = self._scope()
        if keep:
            count, body = renumbered(len(row.params), self._body)
            made = bc.FunctionRow(row.name, "vm", row.params, count, body)
            if row.name in self._index:
                self._rows[self._index[row.name]] = made
            else:
                self._declare(made)
        self._open = None

    # -- instructions

    def emit_call(
        self, name: str, args: Sequence[Any] | None = None, dst: int | bc.Reg | None = None
    ) -> None:
        """Call ``name`` (packed, unless it is declared otherwise), its result into ``dst``."""
        self._scope()
        operands = tuple(self._arg(a) for a in args or ())
        if isinstance(dst, bc.Special):
            dst = None
        register = dst.index if isinstance(dst, bc.Reg) else dst
        if register is not None:
            self._checked(register)
        self._body.append(bc.Call(self._function_index(name), operands, register))

    def emit_ret(self, result: Any) -> None:
        """Return ``result``."""
        self._scope()
        self._body.append(bc.Ret(self._arg(result)))

    def emit_goto(self, pc_offset: int) -> None:
        """Go on ``pc_offset`` instructions further (or, if negative, back)."""
        self._scope()
        self._body.append(bc.Goto(pc_offset))

    def emit_if(self, cond: Any, false_offset: int) -> None:
        """Go on with the next instruction if ``cond`` holds, else ``false_offset`` further."""
        self._scope()
        register = self._arg(cond)
        if not isinstance(register, bc.Reg):
            raise ValueError(f"the condition must be in a register; got {register}")
        self._body.append(bc.If(register, false_offset))

    def get(self) -> VMExecutable:
        """The executable of all functions so far; BytecodeError where it could not run."""
        if self._open is not None:
            raise BuilderError(f"the function {self._open.name!r} is still open")
        code = bc.Code(tuple(self._rows), tuple(self._constants))
        check_classes(code)
        bc.verify(code)
        return VMExecutable(IRModule(), {}, None, code=code)

    # -- inside

    def _scope(self) -> bc.FunctionRow:
        if self._open is None:
            raise ValueError(
                "emit instructions inside a function: with builder.function(name, num_inputs): ..."
            )
        return self._open

    def _arg(self, value: Any) -> bc.Arg:
        if isinstance(value, bc.Reg):
            return self.r(value.index)
        if isinstance(value, bc.Imm | bc.Const | bc.Func | bc.Special):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return self.r(value)
        return self.convert_constant(value)

    def _checked(self, register: int) -> int:
        if register < 0:
            raise ValueError(f"a register's number must not be negative; got {register}")
        return register

    def _declare(self, row: bc.FunctionRow) -> None:
        self._index[row.name] = len(self._rows)
        self._rows.append(row)

    def _function_index(self, name: str) -> int:
        if name not in self._index:
            if self._open is not None and name == self._open.name:
                self._declare(bc.FunctionRow(name, "vm", self._open.params))
            else:
                kind: bc.Kind = "builtin" if name.startswith("vm.builtin.") else "packed"
                self._declare(bc.FunctionRow(name, kind))
        return self._index[name]


def renumbered(
    params: int, body: Sequence[bc.Instruction]
) -> tuple[int, tuple[bc.Instruction, ...]]:
    """The instructions with registers numbered in order of appearance, and how many there are."""
    numbers = {i: i for i in range(params)}

    def renamed(arg: bc.Arg) -> Any:
        if not isinstance(arg, bc.Reg):
            return arg
        return bc.Reg(numbers.setdefault(arg.index, len(numbers)))

    made: list[bc.Instruction] = []
    for ins in body:
        match ins:
            case bc.Call():
                args = tuple(map(renamed, ins.args))
                dst = None if ins.dst is None else renamed(bc.Reg(ins.dst)).index
                made.append(bc.Call(ins.func, args, dst, ins.span))
            case bc.Ret():
                made.append(bc.Ret(renamed(ins.result)))
            case bc.If():
                made.append(bc.If(renamed(ins.cond), ins.false_offset, ins.span))
            case bc.Goto():
                made.append(ins)
    return len(numbers), tuple(made)


def _identity(value: Any) -> Any:
    """What is equal for equal constants alone."""
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, value.tobytes())
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    if isinstance(value, dict):
        return ("dict", *((k, _identity(v)) for k, v in value.items()))
    return (type(value), repr(value))


def _plain(value: Any) -> Any:
    """A constant as plain data."""
    if isinstance(value, ShapeExpr):
        return tuple(value.values)
    if isinstance(value, tuple | list):
        return tuple(_plain(v) for v in value)
    if isinstance(value, Mapping):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.dtype):
        return value.name
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "detach"):
        return value.detach().numpy()
    raise TypeError(
        f"cannot make a constant of {type(value).__name__}; give an array, number, string, shape, "
        "or these in a tuple or dictionary"
    )
