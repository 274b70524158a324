"""Frames of loop-level functions: what a statement of ``T`` opens, for ``with``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from relax2xla import tir
from relax2xla.errors import BuilderError
from relax2xla.ir import PrimType
from relax2xla.script.ir_builder.base import IRBuilder, IRBuilderFrame
from relax2xla.script.ir_builder.ir import IRModuleFrame
from relax2xla.script.prim_func import forms, frames
from relax2xla.script.prim_func.values import dtype_name
from relax2xla.tir import stmt as s


class Statements:
    """What the statements of one builder have said so far: the owner of the forms of ``T``."""

    def __init__(self) -> None:
        self.frames: list[frames.Frame] = [frames.Frame()]
        self.func = forms.FunctionHead()
        self.line = 0
        self.symbols: dict[str, tir.Var] = {}

    def symbol_named(self, name: str) -> tir.Dim:
        """The symbolic variable of a name; it is made when it is first named."""
        return self.symbols.setdefault(name, tir.Var(name, "int64"))

    def flush(self, builder: IRBuilder) -> None:
        """What stands in no frame is what the builder gives."""
        entries, self.frames[0].entries = self.frames[0].entries, []
        for entry in entries:
            builder.finish(entry)


def statements() -> Statements:
    """Those of the innermost builder; of none where no builder is open."""
    if not IRBuilder.is_in_scope():
        return Statements()
    builder = IRBuilder.current()
    if not isinstance(builder.statements, Statements):
        builder.statements = Statements()
    return builder.statements


class TIRFrame(IRBuilderFrame):
    """A frame of a loop-level function; ``with`` gives what it defines, or the frame itself."""

    given: Any = None
    state: Statements
    inner: frames.Frame | None = None

    def __enter__(self) -> Any:
        super().__enter__()
        return self if self.given is None else self.given

    def opened(self) -> frames.Frame:
        """The frame in which statements are collected."""
        return frames.Frame()

    def enter(self) -> None:
        self.state = statements()
        self.inner = self.opened()
        self.state.frames.append(self.inner)

    def exit(self) -> None:
        made = self.closed(self.close())
        if made is not None:
            self.state.frames[-1].entries.append(made)
        if len(self.state.frames) == 1:
            self.state.flush(self.builder)

    def close(self) -> s.Stmt:
        """The statements that were collected, in one."""
        inner, self.inner = self.inner, None
        assert inner is not None
        if self.state.frames.pop() is not inner:
            raise BuilderError(f"{type(self).__name__} ends before a frame inside it")
        return inner.close()

    def closed(self, body: s.Stmt) -> s.Stmt | None:
        """The statement around ``body``."""
        raise NotImplementedError

    def leave(self) -> None:
        if self.inner is not None:
            while self.state.frames.pop() is not self.inner:
                pass
            self.inner = None


class LoopFrame(TIRFrame):
    """One loop, or several of ``T.grid``."""

    def __init__(self, loop: frames.Loop) -> None:
        super().__init__()
        self.loop = loop
        self.given = loop.vars[0] if len(loop.vars) == 1 else list(loop.vars)

    def opened(self) -> frames.Frame:
        return frames.Frame(loop=self.loop)

    def closed(self, body: s.Stmt) -> s.Stmt:
        return frames.nested(self.loop, body, 0)


class OpenFrame(TIRFrame):
    """A statement with a body: ``T.allocate``, ``T.attr``, ``T.LetStmt``, ``T.While`` ..."""

    def __init__(self, opener: frames.Opener) -> None:
        super().__init__()
        self.opener = opener
        self.given = opener.value

    def closed(self, body: s.Stmt) -> s.Stmt:
        return self.opener.wrap(body)


class BlockFrame(TIRFrame):
    """``T.block``"""

    DETECT: ClassVar[str] = "tir.script_parsing_detect_access"

    def __init__(self, block: frames.BlockOpener) -> None:
        super().__init__()
        self.block = block

    def opened(self) -> frames.Frame:
        return frames.Frame(block=self.block)

    def closed(self, body: s.Stmt) -> s.Stmt | None:
        if self.builder.innermost(PrimFuncFrame) is None:
            # No function will find out what the block reads (1) and writes (2).
            lacks = (self.block.reads is None) + 2 * (self.block.writes is None)
            if lacks:
                found = {self.DETECT: tir.IntImm("int64", lacks)}
                self.block.annotations = {**(self.block.annotations or {}), **found}
            made = frames.block_of(self.block, body, 0)[0]
        else:
            made = self.state.func.block(self.block, body, 0)
        if self.block.realized:
            return made
        if len(self.state.frames) > 1:
            raise BuilderError("a block that is not realized stands alone, in no other frame")
        self.builder.finish(made.block)
        return None


class InitFrame(TIRFrame):
    """``T.init``"""

    def closed(self, body: s.Stmt) -> None:
        block = next((f.block for f in reversed(self.state.frames) if f.block is not None), None)
        if block is None:
            raise BuilderError("T.init stands in a block; write `with T.block(...):` around it")
        block.init = body


class BranchFrame(IRBuilderFrame):
    """``T.If``, ``T.Then`` and ``T.Else``"""

    def __init__(self, branch: frames.Branch) -> None:
        super().__init__()
        self.branch = branch

    def enter(self) -> None:
        self.branch.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.branch.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def exit(self) -> None:
        state = statements()
        if len(state.frames) == 1:
            state.flush(self.builder)


class PrimFuncFrame(TIRFrame):
    """A function under construction."""

    def __init__(self, is_private: bool) -> None:
        super().__init__()
        self.is_private = is_private
        self.name: str | None = None
        self.ret: str | None = None

    def enter(self) -> None:
        if self.builder.innermost(PrimFuncFrame) is not None:
            raise BuilderError("a function in a function; build it with an IRBuilder of its own")
        super().enter()
        self.state.func = forms.FunctionHead()

    def closed(self, body: s.Stmt) -> None:
        head = self.state.func
        attrs = dict(head.attrs)
        if self.is_private and "global_symbol" in attrs:
            raise BuilderError("a private function has no global_symbol")
        if self.name is not None and not self.is_private:
            attrs.setdefault("global_symbol", self.name)
        func = head.finished(body, self.ret, attrs)
        self.state.func = forms.FunctionHead()
        module = self.builder.innermost(IRModuleFrame)
        if module is None:
            self.builder.finish(func)
            return
        if self.name is None:
            raise BuilderError("a function of a module needs a name; call T.func_name")
        if self.name not in module.global_vars:
            module.declare(self.name, func)
        module.define(self.name, func)

    @classmethod
    def current(cls, what: str) -> Self:
        """The function under construction, which ``what`` needs."""
        frame = IRBuilder.current().innermost(cls)
        if frame is None:
            raise BuilderError(f"{what} outside of a function; write `with T.prim_func():`")
        return frame


def result_dtype(value: Any) -> str:
    """The dtype that a function returns, of ``T.int32``, a name or a PrimType."""
    return value.dtype if isinstance(value, PrimType) else dtype_name(value)


FRAMES: dict[type[Any], Callable[[Any], IRBuilderFrame]] = {
    frames.Loop: LoopFrame,
    frames.Opener: OpenFrame,
    frames.BlockOpener: BlockFrame,
    frames.InitOpener: lambda _: InitFrame(),
    frames.Branch: BranchFrame,
}
