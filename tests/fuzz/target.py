"""What a target is: how one input is made from a seed, and what is tried with it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar


class Wrong(Exception):
    """A result that someone else's truth contradicts, or a property that does not hold."""


class Target(ABC):
    """One kind of input.

    Inputs are numbered; number ``n`` is the same on every machine and at every time, as long as the
    installed packages that seeds are taken from are the same.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    # Seconds that one input may take before its worker is ended.
    seconds: ClassVar[float] = 30.0
    # Extension under which an input is kept for a look at it.
    suffix: ClassVar[str] = ".bin"
    # Whether every input is right, so that a refusal is a finding, too.
    is_right: ClassVar[bool] = False

    def __init__(self) -> None:
        # Called with what is done next, so that it is known where a process was when it ended.
        self.phase: Callable[[str], None] = lambda name: None

    def prepare(self, folder: Path) -> None:  # noqa: B027 (many have nothing to prepare)
        """Load what every input needs; once in each worker. ``folder`` is the worker's own."""

    @abstractmethod
    def make(self, draw: random.Random) -> Any:
        """An input."""

    @abstractmethod
    def attempt(self, made: Any, folder: Path) -> str:
        """Try an input: what became of it in one word, such as "read" or "ran".

        An error of relax2xla's (``TVMError``) is a refusal, of which those of right inputs are
        findings; :class:`Wrong` and any other exception
        is a finding, and so is the end of the process.
        """

    def show(self, made: Any) -> bytes:
        """An input as a file's contents."""
        return made if isinstance(made, bytes) else str(made).encode()

    def input(self, number: int) -> Any:
        """Input number ``number``."""
        return self.make(random.Random(f"{self.name}/{number}"))
