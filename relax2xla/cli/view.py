"""``relax2xla view``: a model as a page to look at, or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relax2xla.cli.console import note, size, status
from relax2xla.cli.model import load_model, parse_shapes
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, write_atomically
from relax2xla.ir import IRModule

_FORMS = (".html", ".svg", ".dot")


def run_view(
    file: Path, output: Path | None, trust: bool, shape: Sequence[str], stablehlo: bool = True
) -> None:
    """Write the page of ``file`` to ``output``, by default FILE.html in this directory.

    Raises TVMError for another extension than .html, .svg and .dot, BudgetError for programs that
    are too large for a picture.
    """
    target = Path(f"{file.stem}.html") if output is None else output
    form = target.suffix.lower()
    if form not in _FORMS:
        raise TVMError(f"{target}: expected a name that ends in {', '.join(_FORMS)}")
    check_target(target)
    mod = load_model(file, trust, parse_shapes(shape))
    with status(f"drawing {file.name}"):
        data = picture(mod, form, file.name, stablehlo).encode("utf-8", "replace")
        write_atomically(target, lambda stream: stream.write(data))
    note(f"wrote {target}: {size(len(data))}")


def picture(mod: IRModule, form: str, title: str, stablehlo: bool = True) -> str:
    """``mod`` as the text of a ``.html``, ``.svg`` or ``.dot`` file."""
    if form == ".html":
        from relax2xla.cli.page.page import page

        return page(mod, title, stablehlo)
    from relax2xla.cli.page.graph import graph_of
    from relax2xla.cli.page.layout import plans_of
    from relax2xla.cli.page.pictures import dot, svg

    graph = graph_of(mod)
    return dot(graph) if form == ".dot" else svg(graph, plans_of(graph), title)
