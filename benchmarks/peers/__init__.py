"""Networks beside the peers: ``python -m benchmarks peers``, and some of them by hand in JAX."""

from __future__ import annotations

from collections.abc import Sequence


def main(quick: bool = False, only: Sequence[str] | None = None, inductor: bool = False) -> None:
    """See :mod:`benchmarks.peers.table`."""
    from benchmarks.peers import table

    table.main(quick, only, inductor)
