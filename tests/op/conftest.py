"""How the operators' tests compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled() -> Iterator[None]:
    """XLA took four fifths of these tests' time to compile well what runs once.

    The operators' values under the options that users have: tests/importers and tests/integration.
    """
    from relax2xla.vm.pjrt import compiler

    options = {**compiler.COMPILER_OPTIONS, **compiler.RUN_ONCE_OPTIONS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "COMPILER_OPTIONS", options)
        yield
