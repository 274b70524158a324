"""A pause of Python's cyclic collector for code that builds large trees."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Generator[None]:
    """Run the body (or, as a decorator, the function) without cyclic collections.

    The collector would walk the growing trees, and all of torch's and jax's objects, again and
    again, and find nothing: it takes up to half of the time of an import.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
