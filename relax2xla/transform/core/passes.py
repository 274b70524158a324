"""Passes: functions from module to module, with a name, a level and a context.

A pass never changes the module that it is given. ``PassContext`` holds the optimisation level,
configuration, and instruments that see every pass before and after it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import Function, IRModule
from relax2xla.ir.collection import no_collection

log = logging.getLogger("relax2xla.transform")

ModuleRule = Callable[[IRModule, "PassContext"], IRModule]
FunctionRule = Callable[[Function, IRModule, "PassContext"], Function]


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What is known of a pass: ``opt_level`` is the level from which it runs."""

    name: str
    opt_level: int = 0
    required: tuple[str, ...] = ()


class PassInstrument:
    """Sees every pass that runs in a context; the methods of a subclass do what they like.

    Each of them may raise: the error reaches the user, and the context is left as it should be.
    :func:`relax2xla.instrument.pass_instrument` makes one of any class with some of the methods.
    """

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether the pass is to run; passes that the context requires run without being asked."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called before a pass that is to run."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the module that the pass made."""


class PassContext:
    """How passes run: level, configuration, instruments, required and disabled passes."""

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = _names(required_pass, "required_pass")
        self.disabled_pass = _names(disabled_pass, "disabled_pass")
        self.instruments = _instruments(instruments)
        self.config = dict(config or {})
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or the default one."""
        return _CURRENT.get() or _DEFAULT

    def __enter__(self) -> PassContext:
        self._enter_instruments()
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        _CURRENT.reset(self._tokens.pop())
        self._exit_instruments()

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Leave with the instruments there are, and enter with others."""
        made = _instruments(instruments)
        self._exit_instruments()
        self.instruments = made
        self._enter_instruments()

    def enabled(self, info: PassInfo) -> bool:
        """Whether a pass of a pipeline runs here."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def run(self, rule: Callable[[], IRModule], mod: IRModule, info: PassInfo) -> IRModule:
        """``rule()`` between the instruments; ``mod`` itself where one of them says no."""
        if info.name not in self.required_pass:
            # All are asked, so that each sees each pass.
            if not all([i.should_run(mod, info) for i in self.instruments]):
                return mod
        for instrument in self.instruments:
            instrument.run_before_pass(mod, info)
        new = rule()
        for instrument in self.instruments:
            instrument.run_after_pass(new, info)
        return new

    def _enter_instruments(self) -> None:
        """Enter each; where one raises, those entered before it are left, and none remains."""
        entered: list[PassInstrument] = []
        try:
            for instrument in self.instruments:
                instrument.enter_pass_ctx()
                entered.append(instrument)
        except BaseException:
            log.info("an instrument failed as the pass context was entered; all are disabled")
            self.instruments = ()
            for instrument in entered:
                instrument.exit_pass_ctx()
            raise

    def _exit_instruments(self) -> None:
        """Leave each, whatever another raises; the first error is raised at the end."""
        errors: list[BaseException] = []
        for instrument in self.instruments:
            try:
                instrument.exit_pass_ctx()
            except BaseException as e:
                errors.append(e)
        if errors:
            log.info("an instrument failed as the pass context was left; all are disabled")
            self.instruments = ()
            raise errors[0]


def _names(given: Sequence[str] | None, what: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"{what} is a list of names of passes; got the string {given!r}")
    return tuple(given or ())


def _instruments(given: Sequence[PassInstrument] | None) -> tuple[PassInstrument, ...]:
    for instrument in given or ():
        if not isinstance(instrument, PassInstrument):
            raise TypeError(
                f"{instrument!r} is no instrument; derive its class from PassInstrument, or "
                "decorate it with relax2xla.instrument.pass_instrument"
            )
    return tuple(given or ())


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

        def checked() -> IRModule:
            new = self.rule(mod, context)
            if not isinstance(new, IRModule):
                raise TransformError(
                    f"the pass {self.info.name} must return an IRModule; got {type(new).__name__}"
                )
            return new

        return context.run(checked, mod, self.info)

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
        with no_collection():
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
