"""XLA's options for what runs once, where compiling is what takes a test's time.

What users run is compiled better: tests whose yardstick are whole models, the suites of ONNX and
torch, and what passes and the machine do, keep the options that users have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def quick_options() -> Iterator[None]:
    """Compile as for programs that run once, until the end."""
    from relax2xla.vm.pjrt import compiler

    options = {**compiler.COMPILER_OPTIONS, **compiler.RUN_ONCE_OPTIONS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "COMPILER_OPTIONS", options)
        yield
