"""PassContext: which passes run, what they are told, and who sees them.

Every pass of the project runs here: those of pipelines and of ``build``, and those of the machine
when it specialises a function for the shapes of a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal

from relax2xla.errors import TransformError, WellFormedError
from relax2xla.ir import IRModule
from relax2xla.ir.check import check_well_formed
from relax2xla.transform.core.facts import Fact

log = logging.getLogger("relax2xla.transform")

Stage = Literal["module", "static"]
# Keys of ``PassContext(config=...)`` that mean something here, and what.
CHECK: Final = "relax2xla.check"
CONSUME_PARAMS: Final = "relax.lift_transform_params.consume_params"
EXTERNAL_ON_HOST: Final = "relax2xla.external_on_host"
FUSE_DEPTH: Final = "relax.FuseOps.max_depth"
CONFIG: Final[dict[str, str]] = {
    CHECK: "bool: check modules before and after each pass; the error names the pass",
    CONSUME_PARAMS: "bool: LiftTransformParams calls `vm.builtin.tuple_reset_item` behind the last "
    "read of each weight",
    EXTERNAL_ON_HOST: "bool: functions of external modules run on the host, between XLA programs, "
    "one after another",
    FUSE_DEPTH: "int: how many calls FuseOps puts into one function at most; 256 otherwise",
}


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What is known of a pass.

    ``opt_level``: the level of a context from which the pass runs in pipelines. ``required``: names
    of passes that a Sequential runs before it. ``stage``: "module", over a module as it is; or
    "static", for functions of static shapes, which the machine runs when it specialises one for
    ``platform`` ("" is any). ``requires`` and ``ensures``: facts of the modules before and after.
    ``needed``: without it no program could be compiled, so ``build`` refuses to leave it out.
    ``one_device``: not for programs that are spread over several devices. ``traceable``: what TVM's
    tuning records of a pass; nothing here asks for it.
    """

    name: str
    opt_level: int = 0
    required: tuple[str, ...] = ()
    stage: Stage = "module"
    platform: str = ""
    requires: tuple[Fact, ...] = ()
    ensures: tuple[Fact, ...] = ()
    needed: bool = False
    one_device: bool = False
    traceable: bool = False

    def is_for(self, platform: str, several: bool = False) -> bool:
        """Whether the pass is for programs on a platform, on one device or on ``several``."""
        return self.platform in ("", platform) and not (several and self.one_device)


class PassInstrument:
    """Sees every pass that runs in a context; the methods of a subclass do what they like.

    A pass that changed nothing gives the very module that it was given. Each method may raise: the
    error reaches the user, and the context is left as it should be.
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
    """How passes run: level, configuration, instruments, required and disabled passes.

    ``config``: keys of :meth:`list_configs`, and whatever programs written for TVM say.
    """

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
        for key in self.config:
            if key.startswith("relax2xla.") and key not in CONFIG:
                raise ValueError(f"no pass reads the config {key!r}; known: {', '.join(CONFIG)}")
        self._tokens: list[Token[PassContext | None]] = []

    def __repr__(self) -> str:
        shown = {
            "opt_level": self.opt_level,
            "required_pass": list(self.required_pass),
            "disabled_pass": list(self.disabled_pass),
            "instruments": list(self.instruments),
            "config": self.config,
        }
        told = ", ".join(f"{k}={v!r}" for k, v in shown.items() if v or k == "opt_level")
        return f"PassContext({told})"

    @staticmethod
    def current() -> PassContext:
        """The innermost context, or the default one."""
        return _CURRENT.get() or _DEFAULT

    @staticmethod
    def list_configs() -> dict[str, str]:
        """The keys of ``config`` that have an effect, and what each means."""
        return dict(CONFIG)

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

    # -- running

    def enabled(self, info: PassInfo) -> bool:
        """Whether a pass of a pipeline runs here."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def run(
        self, rule: Callable[[], IRModule], mod: IRModule, info: PassInfo, whole: bool = True
    ) -> IRModule:
        """``rule()`` between the instruments; ``mod`` itself where one says no, or nothing changed.

        ``whole``: ``mod`` holds all that its functions call; instruments ask ``sees_whole_module``.
        """
        token = _WHOLE.set(whole)
        try:
            return self._run(rule, mod, info)
        finally:
            _WHOLE.reset(token)

    def _run(self, rule: Callable[[], IRModule], mod: IRModule, info: PassInfo) -> IRModule:
        if info.name not in self.required_pass:
            # All are asked, so that each sees each pass.
            if not all([i.should_run(mod, info) for i in self.instruments]):
                return mod
        for instrument in self.instruments:
            instrument.run_before_pass(mod, info)
        if self.config.get(CHECK):
            _check(mod, info.requires, f"what the pass {info.name} was given")
        new = _or_old(rule(), mod)
        if self.config.get(CHECK):
            _check(new, info.ensures, f"what the pass {info.name} made")
        for instrument in self.instruments:
            instrument.run_after_pass(new, info)
        return new

    # -- what an executable keeps of the context that it was built in

    def kept(self) -> PassContext:
        """This context without its instruments."""
        return PassContext(
            self.opt_level, self.required_pass, self.disabled_pass, None, self.config
        )

    @contextmanager
    def resumed(self) -> Generator[None, None, None]:
        """Run passes as this context says, and the present one, whose instruments see them.

        The level is that of this context; what either disables or requires is.
        """
        now = PassContext.current()
        both = PassContext(
            self.opt_level,
            (*self.required_pass, *now.required_pass),
            (*self.disabled_pass, *now.disabled_pass),
            now.instruments,
            {**self.config, **now.config},
        )
        token = _CURRENT.set(both)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    # -- instruments

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
_WHOLE: ContextVar[bool] = ContextVar("whole", default=True)
_CURRENT: ContextVar[PassContext | None] = ContextVar("relax2xla_pass_context", default=None)


def _or_old(new: IRModule, old: IRModule) -> IRModule:
    """``old`` where ``new`` holds the very same functions and says the same, else ``new``."""
    same = (
        isinstance(new, IRModule)
        and len(new) == len(old)
        and all(f is h and g is k for (g, f), (k, h) in zip(new.items(), old.items(), strict=True))
        and new.attrs is old.attrs
        and new.global_infos == old.global_infos
    )
    return old if same else new


def sees_whole_module() -> bool:
    """Whether the module of the pass that runs now holds all that its functions call.

    The machine runs passes on one function that it specialises.
    """
    return _WHOLE.get()


def _check(mod: IRModule, facts: Sequence[Fact], what: str) -> None:
    """WellFormedError or TransformError, with ``what`` in its message, where ``mod`` is wrong."""
    try:
        check_well_formed(mod, whole=sees_whole_module())
    except WellFormedError as e:
        raise WellFormedError(f"{e}\n  in {what}", e.function, e.span) from None
    for fact in facts:
        if (why := fact.broken(mod)) is not None:
            raise TransformError(f"{what} must have {fact.name} ({fact.meaning}), but {why}")
