"""What every test may use. Settings of pytest itself are in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests import compile_once
from tests.quick_options import is_quick, quick_options

# No deadline: the first call of a function may compile. In CI the examples are the same each time,
# so a red run is a change in the code and not in the luck.
settings.register_profile("relax2xla", deadline=None, max_examples=50, print_blob=True)
settings.register_profile("ci", settings.get_profile("relax2xla"), derandomize=True)
# Compiled programs of other runs do not count; tests of the cache make their own.
os.environ["RELAX2XLA_CACHE"] = "0"
settings.load_profile("ci" if os.environ.get("CI") else "relax2xla")

# The folder of what the session compiles in C++, made by the process that starts the others.
COMPILED = "RELAX2XLA_TESTS_COMPILED"


def pytest_configure(config: pytest.Config) -> None:
    """Compile the library's functions in C++ once, not in each process; see compile_once.py."""
    if os.name != "posix" or COMPILED in os.environ:
        return
    folder, path = Path(tempfile.mkdtemp(prefix="relax2xla-tests-")), os.environ.get("PATH")

    def leave() -> None:
        os.environ.pop(COMPILED, None)
        if path is None:
            os.environ.pop("PATH", None)
        else:
            os.environ["PATH"] = path
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(leave)
    os.environ["PATH"] = compile_once.install(folder, os.environ)
    os.environ[COMPILED] = str(folder)


@pytest.fixture(scope="module", autouse=True)
def compiled_as_listed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of one operator each are compiled quickly; see quick_options.py."""
    path = request.path.relative_to(Path(__file__).parent).as_posix()
    with quick_options() if is_quick(path) else nullcontext():
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, fresh for each test."""
    return np.random.default_rng(0)


@pytest.fixture
def quickly_compiled() -> Iterator[None]:
    """Compile as for programs that run once."""
    with quick_options():
        yield
