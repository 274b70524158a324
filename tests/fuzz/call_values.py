"""Programs with calls of functions in C++, by what they are without any pass as the judge."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz.elements import told
from tests.fuzz.target import Target, Wrong

# How far a result may be off, of the largest value; more where something is rounded to float16.
NEAR, HALF = 2e-4, 4e-3
# What arguments are multiplied by: activations bend at small values, bounds are far out.
SCALES: Final = (1.0, 40.0, 4e6)
# Families of calls that no program has.
OTHERS: Final = ("integers", "recurrences")


class CallValues(Target):
    """A Relax program, its arguments, and which calls are made."""

    name, title, suffix = "call-values", "programs around calls in C++ against plain XLA", ".relax"
    is_right = True
    seconds = 60.0

    def prepare(self, folder: Path) -> None:
        """The functions, which take longer to compile than any input."""
        from relax2xla.kernels.native import may_call
        from relax2xla.vm.pjrt.native_calls import FAMILIES, functions

        if may_call():
            for family in FAMILIES:
                if family.name not in OTHERS:
                    functions(family)

    def make(self, draw: random.Random) -> Any:
        """A module, its arguments, which of them are not scaled, and whether all calls pay."""
        from tests.fuzz.call_programs import program

        return *program(draw), draw.random() < 0.5

    def show(self, made: Any) -> bytes:
        return made[0].script().encode()

    def attempt(self, made: Any, folder: Path) -> str:
        import relax2xla
        from relax2xla.testing import to_numpy

        mod, arrays, plain, all_pay = made
        self.phase("judge")
        judge = relax2xla.VirtualMachine(relax2xla.build(mod, "cpu", relax_pipeline="zero"))
        self.phase("build")
        with paying() if all_pay else measured():
            machine = relax2xla.VirtualMachine(relax2xla.build(mod, "cpu"))
        kind = "same"
        for scale in SCALES:
            inputs = [
                a if p else a * a.dtype.type(scale) for a, p in zip(arrays, plain, strict=True)
            ]
            self.phase("call")
            wanted, found = (to_numpy(m["main"](*inputs)) for m in (judge, machine))
            for i, (w, f) in enumerate(zip(wanted, found, strict=True)):
                if f.shape != w.shape or f.dtype != w.dtype:
                    raise Wrong(f"result {i} is {f.dtype}{f.shape} instead of {w.dtype}{w.shape}")
            if not all(np.isfinite(w).all() for w in wanted):
                kind = "not finite"
                continue
            half = "float16" in mod.script()
            for i, (w, f) in enumerate(zip(wanted, found, strict=True)):
                if problem := off(f, w, HALF if half else NEAR, scale):
                    raise Wrong(f"result {i} at {scale:g}: {problem}")
        return kind


def off(found: Any, wanted: Any, near: float, scale: float) -> str:
    """How ``found`` is further from ``wanted`` than rounding takes it; "" where it is not."""
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    bound = near * max(np.abs(wanted).max(initial=0), scale / 20)
    good = np.abs(found - wanted) <= bound
    if good.all():
        return ""
    return f"{told(good, found, wanted)} (largest {np.abs(wanted).max():g})"


@contextlib.contextmanager
def measured() -> Any:
    """On processors of which nothing is known, what those do that are."""
    from unittest import mock

    from relax2xla import processor

    known = processor.kind() or "avx2"
    with mock.patch.object(processor, "kind", return_value=known):
        yield


@contextlib.contextmanager
def paying() -> Any:
    """Whatever their sizes, calls take the place of operators."""
    from unittest import mock

    from relax2xla.transform.cpu.calls import attention, gradients, norms, products, slices

    with contextlib.ExitStack() as stack:
        stack.enter_context(measured())
        for module in (attention, gradients, norms, products, slices):
            stack.enter_context(mock.patch.object(module, "pays", return_value=True))
        yield
