"""The registry: every pass of the project by its name.

One decorator on its class makes a pass known to :mod:`relax2xla.transform`, to ``disabled_pass``
and ``required_pass``, to ``relax2xla opt`` and to docs/passes.md; see CONTRIBUTING.md.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from relax2xla.errors import TransformError
from relax2xla.transform.core.context import PassInfo, Stage
from relax2xla.transform.core.facts import Fact

if TYPE_CHECKING:
    from relax2xla.transform.core.passes import Pass

P = TypeVar("P", bound="type[Pass]")
_PASSES: dict[str, type[Pass]] = {}
# What relax2xla.transform shows beside passes, by its home; loaded as they are.
OTHERS: Final = {
    "ApplyPassToFunction": "relax2xla.transform.core.passes",
    "PrintIR": "relax2xla.transform.core.passes",
    "Pipeline": "relax2xla.transform.pipeline",
    "get_pipeline": "relax2xla.transform.pipeline",
    "FusionPattern": "relax2xla.transform.fusion.patterns",
    "PatternCheckContext": "relax2xla.transform.fusion.patterns",
    "register_codegen": "relax2xla.transform.fusion.codegen",
}


def register(
    *,
    opt_level: int = 0,
    stage: Stage = "module",
    platform: str = "",
    requires: tuple[Fact, ...] = (),
    ensures: tuple[Fact, ...] = (),
    needed: bool = False,
    one_device: bool = False,
) -> Callable[[P], P]:
    """Make a class a pass of the project under its own name; see :class:`PassInfo`."""

    def wrap(cls: P) -> P:
        name = cls.__name__
        cls.info = PassInfo(
            name, opt_level, (), stage, platform, requires, ensures, needed, one_device
        )
        if name in _PASSES:
            raise TypeError(f"there are two passes named {name}")
        _PASSES[name] = cls
        return cls

    return wrap


def all_passes() -> dict[str, type[Pass]]:
    """Every pass by name, in order; this imports the rooms of ``transform``."""
    room = Path(__file__).parent.parent
    for found in pkgutil.walk_packages([str(room)], "relax2xla.transform."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    return dict(sorted(_PASSES.items()))


def get_pass(name: str) -> type[Pass]:
    """The pass of that name; TransformError with the names there are."""
    found = _PASSES.get(name) or all_passes().get(name)
    if found is None:
        raise TransformError(f"there is no pass {name!r}; there are {', '.join(sorted(_PASSES))}")
    return found


def takes_arguments(made: type[Pass]) -> bool:
    """Whether the class cannot be called without arguments."""
    given = list(inspect.signature(made).parameters.values())
    named = (p for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return any(p.default is p.empty for p in named)


def refuse_without_needed(disabled: tuple[str, ...]) -> None:
    """TransformError where ``disabled`` names a pass that no program can do without."""
    for name in disabled:
        if name in _PASSES and _PASSES[name].info.needed:
            raise TransformError(
                f"disabled_pass names {name}, and without it there is no program for XLA; leave it "
                "out of disabled_pass"
            )
