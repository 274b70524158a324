"""``relax2xla view``: a model as a page to look at, or as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from relax2xla.cli.commands.saved import saved_functions
from relax2xla.cli.page.graph import Graph, graph_of
from relax2xla.cli.page.heat import Heat, read_profile, times_heat
from relax2xla.cli.process.console import note, print_json, size, status
from relax2xla.cli.reading.model import load_model, parse_shapes
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, write_atomically
from relax2xla.ir import IRModule

_FORMS = (".html", ".svg", ".dot", ".json", ".onnx")


def run_view(
    file: Path,
    output: Path | None,
    trust: bool,
    shape: Sequence[str],
    stablehlo: bool = True,
    profile: Path | None = None,
    as_json: bool = False,
    depth: int | None = None,
) -> None:
    """Write the page of ``file`` to ``output``, by default FILE.html in this directory.

    ``profile``: a file with times by the source's names, which colour the operators.
    ``depth``: in an .svg, modules inside of so many others are closed; None opens all.

    Raises TVMError for another extension than those of ``_FORMS``, BudgetError for programs that
    are too large for a picture.
    """
    target = _page_of(file) if output is None else output
    form = target.suffix.lower()
    if form not in _FORMS:
        raise TVMError(f"{target}: expected a name that ends in {', '.join(_FORMS)}")
    check_target(target, file, *([] if profile is None else [profile]))
    if depth is not None and form != ".svg":
        raise TVMError("--depth is for .svg: the modules of a page open and close, .dot has all")
    times = None if profile is None else read_profile(profile)
    if times is not None and form == ".dot":
        raise TVMError("--profile colours .html, .svg and .json, and is told in .onnx")
    if file.suffix.lower() == ".r2x":
        mod = saved_functions(file)
    else:
        mod = load_model(file, trust, parse_shapes(shape))

    def heat(graph: Graph) -> Heat | None:
        found = None if times is None else times_heat(graph, times, str(profile))
        if found is not None and found.remark:
            note(found.remark)
        return found

    with status(f"drawing {file.name}"):
        data = picture(mod, form, file.name, stablehlo, heat, depth)
        write_atomically(target, lambda stream: stream.write(data))
    note(f"wrote {target}: {size(len(data))}")
    if as_json:
        shown = graph_of(mod)
        print_json(
            {
                "file": str(file),
                "output": str(target),
                "bytes": len(data),
                "operators": sum(n.kind not in ("input", "output") for n in shown.nodes),
                "groups": len(shown.groups),
                "weights": len(shown.weights),
            }
        )


def _page_of(file: Path) -> Path:
    """The page of ``file`` in this directory, where no other file has that name."""
    from relax2xla.cli.page.page import GENERATOR

    target = Path(f"{file.stem}.html")
    if target.is_file():
        with target.open("rb") as there:
            if GENERATOR.encode() not in there.read(1024):
                raise TVMError(
                    f"{target} is there already, and is no page of ours; to replace it, -o {target}"
                )
    return target


def picture(
    mod: IRModule,
    form: str,
    title: str,
    stablehlo: bool = True,
    heat: Callable[[Graph], Heat | None] = lambda graph: None,
    depth: int | None = None,
) -> bytes:
    """``mod`` as a file of one of the extensions ``_FORMS``; ``heat`` colours its operators."""
    if form == ".html":
        from relax2xla.cli.page.page import page

        return page(mod, title, stablehlo, heat).encode("utf-8", "replace")
    from relax2xla.cli.page import exports, pictures
    from relax2xla.cli.page.layout import plans_of

    graph = graph_of(mod)
    if form == ".onnx":
        return exports.netron(graph, title, heat(graph))
    if form == ".json":
        text = exports.model_explorer(graph, title, heat(graph))
    elif form == ".svg":
        text = pictures.svg(graph, plans_of(graph), title, heat(graph), depth)
    else:
        text = pictures.dot(graph)
    return text.encode("utf-8", "replace")
