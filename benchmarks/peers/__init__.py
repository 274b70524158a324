"""Networks beside the peers: ``python -m benchmarks peers``, and some of them by hand in JAX."""

from __future__ import annotations

from typing import Any


def main(**given: Any) -> None:
    """See :mod:`benchmarks.peers.table`."""
    from benchmarks.peers import table

    table.main(**given)
