"""Functions that lower files call and that higher ones have: each is given from above.

``repr`` of a node needs all kinds of nodes, and each kind is made of the node; so the node calls a
``Late``, and the file that prints gives it (``@printed.given``). Imports then go one way only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Late:
    """One such function; ``call`` is what was given."""

    __slots__ = ("call",)
    call: Callable[..., Any]

    def given(self, function: F) -> F:
        """A decorator of the function."""
        self.call = function
        return function
