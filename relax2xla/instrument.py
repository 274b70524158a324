"""Instruments of passes: timing, printing, verifying (the names of ``tvm.instrument``).

``with relax2xla.transform.PassContext(instruments=[PassTimingInstrument()]):``, and each pass that
runs inside is seen before and after it runs.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from relax2xla.errors import WellFormedError
from relax2xla.ir import IRModule
from relax2xla.ir.check import check_well_formed
from relax2xla.transform.core.context import PassInfo
from relax2xla.transform.core.context import PassInstrument as PassInstrument


def pass_instrument(pi_cls: type[Any] | None = None) -> Any:
    """Make a PassInstrument class of one that has some of its methods; used as a decorator.

    Raises TypeError for what is no class.
    """
    if pi_cls is None:
        return pass_instrument
    if not isinstance(pi_cls, type):
        raise TypeError("pi_cls must be a class")
    if issubclass(pi_cls, PassInstrument):
        return pi_cls
    body = {
        "__doc__": pi_cls.__doc__,
        "__module__": pi_cls.__module__,
        "__qualname__": pi_cls.__qualname__,
    }
    return type(pi_cls.__name__, (pi_cls, PassInstrument), body)


@dataclass(frozen=True, slots=True)
class PassTime:
    """How long one pass ran, with ``depth`` others around it, and whether it changed anything."""

    name: str
    seconds: float
    own_seconds: float
    depth: int
    modified: bool


@dataclass(slots=True)
class _Running:
    """A pass that has begun: its place in the list of times, and what passes inside it took."""

    index: int
    mod: IRModule
    start: float
    inner: float = 0.0


class PassTimingInstrument(PassInstrument):
    """Measures each pass; ``times`` in the order in which they began, ``render()`` as a table.

    The figures stay after the context is left, until it is entered again.
    """

    def __init__(self) -> None:
        self._times: list[PassTime | None] = []
        self._running: list[_Running] = []

    @property
    def times(self) -> list[PassTime]:
        """The passes that ran to their end."""
        return [t for t in self._times if t is not None]

    def enter_pass_ctx(self) -> None:
        """Forget what was measured before."""
        self._times.clear()
        self._running.clear()

    def exit_pass_ctx(self) -> None:
        """Forget passes that began and failed."""
        self._running.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Start the clock."""
        self._times.append(None)
        self._running.append(_Running(len(self._times) - 1, mod, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Stop the clock."""
        if not self._running:
            return  # this instrument came while the pass was running
        done = self._running.pop()
        took = time.perf_counter() - done.start
        if self._running:
            self._running[-1].inner += took
        depth, modified = len(self._running), mod is not done.mod
        self._times[done.index] = PassTime(info.name, took, took - done.inner, depth, modified)

    def render(self) -> str:
        """One line a pass: its time, that without the passes inside it, and its share."""
        whole = sum(t.seconds for t in self.times if t.depth == 0) or 1.0
        return "\n".join(
            f"{'  ' * t.depth}{t.name}: {1e3 * t.seconds:.3f} ms "
            f"[{1e3 * t.own_seconds:.3f} ms] ({100 * t.seconds / whole:.1f} %)"
            for t in self.times
        )


class _Printing(PassInstrument):
    """Writes modules to ``file`` (standard output where it is None)."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file

    def write(self, text: str) -> None:
        """One piece of text and a line break."""
        (self.file or sys.stdout).write(f"{text}\n")


class PrintBeforeAll(_Printing):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print."""
        self.write(f"Before Running Pass: {info.name}\n{mod.script()}")


class PrintAfterAll(_Printing):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print."""
        self.write(f"After Running Pass: {info.name}\n{mod.script()}")


class PassPrintingInstrument(_Printing):
    """Prints the module before and after the passes of these names."""

    def __init__(
        self,
        print_before_pass_names: Sequence[str],
        print_after_pass_names: Sequence[str],
        file: TextIO | None = None,
    ) -> None:
        super().__init__(file)
        self.print_before_pass_names = tuple(print_before_pass_names)
        self.print_after_pass_names = tuple(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print, if the pass is one of those."""
        if info.name in self.print_before_pass_names:
            self.write(f"Print IR before: {info.name}\n{mod.script()}\n")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print, if the pass is one of those."""
        if info.name in self.print_after_pass_names:
            self.write(f"Print IR after: {info.name}\n{mod.script()}\n")


class VerifyEachPass(PassInstrument):
    """Checks the module before and after each pass; WellFormedError names the pass.

    ``check``: what is called with the module, and raises WellFormedError where it is wrong.
    """

    def __init__(self, check: Callable[[IRModule], None] = check_well_formed) -> None:
        self.check = check

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what the pass is given."""
        self._check(mod, f"(in what the pass {info.name} was given)")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what the pass made."""
        self._check(mod, f"(in what the pass {info.name} made)")

    def _check(self, mod: IRModule, note: str) -> None:
        try:
            self.check(mod)
        except WellFormedError as e:
            e.add_note(note)
            raise


class DumpIR(PassInstrument):
    """Writes the module after each pass to ``dump_dir/000_Name.py``, 001, and so on.

    ``refresh``: remove what an earlier run wrote there. OSError where that cannot be written.
    """

    def __init__(self, dump_dir: Path | str, refresh: bool = False) -> None:
        self.dump_dir = Path(dump_dir)
        self.counter = 0
        if refresh and self.dump_dir.is_dir():
            for path in self.dump_dir.iterdir():
                if re.fullmatch(r"\d{3,}_.*\.py", path.name):
                    path.unlink()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write."""
        self.dump_dir.mkdir(parents=True, exist_ok=True)
        name = re.sub(r'[<>:"/\\|?*]', "_", info.name)
        path = self.dump_dir / f"{self.counter:03d}_{name}.py"
        path.write_text(mod.script(), encoding="utf-8")
        self.counter += 1
