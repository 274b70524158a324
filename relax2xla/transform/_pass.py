"""Passes: functions from module to module, with a name, a level and a context.

A pass never changes the module that it is given. ``PassContext`` holds the optimisation level,
configuration, and instruments that see every pass before and after it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from relax2xla.errors import TransformError
from relax2xla.ir import Function, IRModule

ModuleRule = Callable[[IRModule, "PassContext"], IRModule]
FunctionRule = Callable[[Function, IRModule, "PassContext"], Function]


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What is known of a pass: ``opt_level`` is the level from which it runs."""

    name: str
    opt_level: int = 0
    required: tuple[str, ...] = ()


class PassInstrument(Protocol):
    """Sees every pass; ``before`` may return False to skip an optional pass."""

    def before(self, mod: IRModule, info: PassInfo) -> bool | None:
        """Called before the pass runs."""
        ...

    def after(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the module that the pass made."""
        ...


class PassContext:
    """How passes run: level, configuration, instruments, required and disabled passes."""

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] = (),
        disabled_pass: Sequence[str] = (),
        instruments: Sequence[PassInstrument] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = tuple(required_pass)
        self.disabled_pass = tuple(disabled_pass)
        self.instruments = tuple(instruments)
        self.config = dict(config or {})
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or the default one."""
        return _CURRENT.get() or _DEFAULT

    def __enter__(self) -> PassContext:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._tokens.pop())

    def enabled(self, info: PassInfo) -> bool:
        """Whether a pass of a pipeline runs here."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level


_DEFAULT = PassContext()
_CURRENT: ContextVar[PassContext | None] = ContextVar("relax2xla_pass_context", default=None)


class Pass:
    """A transformation of modules: ``new_mod = some_pass(mod)``."""

    def __init__(self, info: PassInfo, rule: ModuleRule) -> None:
        self.info = info
        self.rule = rule

    def __call__(self, mod: IRModule) -> IRModule:
        """Run on ``mod``; instruments of the current context see it."""
        context = PassContext.current()
        for instrument in context.instruments:
            if instrument.before(mod, self.info) is False:
                return mod
        new = self.rule(mod, context)
        if not isinstance(new, IRModule):
            raise TransformError(
                f"the pass {self.info.name} must return an IRModule; got {type(new).__name__}"
            )
        for instrument in context.instruments:
            instrument.after(new, self.info)
        return new

    def __repr__(self) -> str:
        return f"Pass({self.info.name}, opt_level={self.info.opt_level})"


class Sequential(Pass):
    """Passes one after the other; each runs only if the context enables it."""

    def __init__(
        self, passes: Sequence[Pass], opt_level: int = 0, name: str = "sequential"
    ) -> None:
        self.passes = tuple(passes)
        super().__init__(PassInfo(name, opt_level), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        for p in self.passes:
            if context.enabled(p.info):
                mod = p(mod)
        return mod


def module_pass(
    rule: ModuleRule | None = None, *, opt_level: int = 0, name: str | None = None
) -> Any:
    """Make a Pass of ``rule(mod, context) -> mod``; also used bare as a decorator."""

    def wrap(fn: ModuleRule) -> Pass:
        return Pass(PassInfo(name or fn.__name__, opt_level), fn)

    return wrap if rule is None else wrap(rule)


def function_pass(
    rule: FunctionRule | None = None, *, opt_level: int = 0, name: str | None = None
) -> Any:
    """Make a Pass of ``rule(func, mod, context) -> func`` over the Relax functions of a module."""

    def wrap(fn: FunctionRule) -> Pass:
        def run(mod: IRModule, context: PassContext) -> IRModule:
            new = {g: fn(f, mod, context) if isinstance(f, Function) else f for g, f in mod.items()}
            return mod.replace(new)

        return Pass(PassInfo(name or fn.__name__, opt_level), run)

    return wrap if rule is None else wrap(rule)


class PassTimer:
    """Instrument that measures each pass; ``render()`` gives a table in milliseconds."""

    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []
        self._starts: list[float] = []

    def before(self, mod: IRModule, info: PassInfo) -> None:
        """Start the clock."""
        self._starts.append(time.perf_counter())

    def after(self, mod: IRModule, info: PassInfo) -> None:
        """Stop the clock."""
        self.times.append((info.name, time.perf_counter() - self._starts.pop()))

    def render(self) -> str:
        """One line a pass."""
        return "\n".join(f"{name:32s} {1000 * t:10.2f} ms" for name, t in self.times)
