"""How the tests of topi compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled() -> Iterator[None]:
    """XLA took half of the time of these tests to compile well what runs once.

    Loops as rows under the options that users have: tests/te, tests/tir, tests/stablehlo.
    """
    from relax2xla.vm.pjrt import compiler

    options = {**compiler.COMPILER_OPTIONS, **compiler.RUN_ONCE_OPTIONS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "COMPILER_OPTIONS", options)
        yield
