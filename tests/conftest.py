"""What every test may use. Settings of pytest itself are in pyproject.toml."""

from __future__ import annotations

import gc
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

# Most of what tests and their imports make goes without the cyclic collector or stays for good;
# at Python's own thresholds it takes a fifth of the time of collecting the tests.
gc.set_threshold(20_000, 20, 10)

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


def pytest_collection_finish() -> None:
    """Leave what all tests share out of cyclic collections.

    The modules of torch, jax, onnx and of the tests are half a million objects, which nobody lets
    go of before the end and which each full collection would walk.
    """
    gc.collect()
    gc.freeze()


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
