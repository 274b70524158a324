"""The builder and its stack of frames, whatever they build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Any, Self, TypeVar

from relax2xla import tir
from relax2xla.errors import BuilderError
from relax2xla.ir.expr import Var
from relax2xla.script.prim_func.buffers import named

T = TypeVar("T")
F = TypeVar("F", bound="IRBuilderFrame")

_BUILDERS: ContextVar[tuple[IRBuilder, ...]] = ContextVar("relax2xla_ir_builders", default=())


class IRBuilderFrame:
    """A scope of an IRBuilder: ``with`` opens it, and its end builds what it stands for.

    Nothing is built where the scope ends by an exception.
    """

    builder: IRBuilder

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        self.builder = IRBuilder.current()
        self.enter()
        self.builder.frames.append(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.builder.frames.pop() is not self:
            raise BuilderError(f"{type(self).__name__} ends before a frame inside it")
        try:
            if kind is None:
                self.exit()
        finally:
            self.leave()
        if kind is None:
            for callback in reversed(self._callbacks):
                callback()

    def add_callback(self, callback: Callable[[], Any]) -> None:
        """Call ``callback`` when the frame has ended; the last one added is the first."""
        self._callbacks.append(callback)

    def enter(self) -> None:
        """Begin, while the frame around is still the innermost."""

    def exit(self) -> None:
        """Build, when the frame around is the innermost again."""

    def leave(self) -> None:
        """Undo what ``enter`` opened, after ``exit`` or an exception."""


class IRBuilder:
    """Builds a Function, or an IRModule, from calls made inside ``with IRBuilder() as builder:``.

    ``builder.get()`` gives it after the outermost frame has ended.
    """

    def __init__(self) -> None:
        self.frames: list[IRBuilderFrame] = []
        self.result: Any = None
        # What the statements of loop-level functions keep (`tir.frame.Statements`).
        self.statements: object = None
        self._token: Token[tuple[IRBuilder, ...]] | None = None

    def __enter__(self) -> Self:
        if self.frames or self.result is not None or self._token is not None:
            raise BuilderError("an IRBuilder is used once; make another")
        self._token = _BUILDERS.set((*_BUILDERS.get(), self))
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        assert self._token is not None
        _BUILDERS.reset(self._token)

    @staticmethod
    def current() -> IRBuilder:
        """The innermost builder; BuilderError outside of any."""
        builders = _BUILDERS.get()
        if not builders:
            raise BuilderError("no IRBuilder is open; write `with IRBuilder() as builder:` first")
        return builders[-1]

    @staticmethod
    def is_in_scope() -> bool:
        """Whether an IRBuilder is open."""
        return bool(_BUILDERS.get())

    def get(self) -> Any:
        """What was built: a Function or an IRModule."""
        if self.result is None:
            raise BuilderError("nothing has been built; the outermost frame must have ended")
        return self.result

    def finish(self, result: Any) -> None:
        """``result`` is what the outermost frame built."""
        if self.result is not None:
            raise BuilderError(
                "an IRBuilder gives one function or module; put functions into I.ir_module()"
            )
        self.result = result

    def innermost(self, kind: type[F]) -> F | None:
        """The innermost open frame of a kind."""
        return next((f for f in reversed(self.frames) if isinstance(f, kind)), None)

    @staticmethod
    def name(s: str, v: T) -> T:
        """Give ``v``, a variable or a buffer, the name ``s``; gives ``v``."""
        match v:
            case Var():
                v.vid.name_hint = s
            case tir.Var():
                object.__setattr__(v, "name", s)
            case tir.IterVar():
                object.__setattr__(v.var, "name", s)
            case tir.Buffer():
                named(v, s)
            case _:
                raise TypeError(
                    f"IRBuilder.name names a variable or a buffer; got {type(v).__name__}"
                )
        return v

    @staticmethod
    def name_many(s: Sequence[str], vs: Sequence[T]) -> list[T]:
        """Give each variable of ``vs`` its name of ``s``; gives ``vs``."""
        if len(s) != len(vs):
            raise ValueError(f"name_many: {len(s)} names for {len(vs)} variables")
        return [IRBuilder.name(n, v) for n, v in zip(s, vs, strict=True)]


def want(kind: type[F], what: str, inside: str) -> F:
    """The innermost open frame of a kind, which ``what`` needs; else BuilderError."""
    frame = IRBuilder.current().innermost(kind)
    if frame is None:
        raise BuilderError(f"{what} outside of a {inside}; write `with {inside}:` around it")
    return frame
