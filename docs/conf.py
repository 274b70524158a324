"""The site: the documents of this folder, and pages made of docstrings and of examples/.

`make docs` runs Sphinx with it. Pages that are made go to ``_made``, which git does not have.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from sphinx.application import Sphinx
from sphinx.util import logging

DOCS = Path(__file__).parent
MADE = DOCS / "_made"
sys.path.insert(0, str(DOCS.parent))

import relax2xla  # noqa: E402  (from the tree that this file is in)

project = "relax2xla"
author = "the relax2xla authors"
project_copyright = author
version = release = relax2xla.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["build"]
html_theme = "furo"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_title = f"relax2xla {version}"
myst_heading_anchors = 4
# Quotes are part of what is copied: pip install '.[torch]'.
smartquotes = False
# Signatures as they are written, not with the values of defaults and the homes of types.
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
add_module_names = False
toc_object_entries_show_parents = "hide"
suppress_warnings = [
    # Programs are shown with marks of their editors (`...`), and dialects that no lexer knows.
    "misc.highlighting_failure",
]

#: Rooms of the public API and what they are for; an object is documented where it comes first.
ROOMS = {
    "relax2xla": "What most programs need: build, run, load, save, convert.",
    "relax2xla.frontend.torch": "PyTorch programs into Relax.",
    "relax2xla.frontend.onnx": "ONNX models into Relax.",
    "relax2xla.frontend.stablehlo": "StableHLO into Relax.",
    "relax2xla.interop.jax": "To and from functions of JAX.",
    "relax2xla.transform": "Passes.",
    "relax2xla.dpl": "Patterns.",
    "relax2xla.analysis": "Questions about programs.",
    "relax2xla.training": "Losses, optimisers, trainers.",
    "relax2xla.script": "Text in and out.",
    "relax2xla.ir": "Expressions, types, modules.",
    "relax2xla.runtime": "Functions by name, external modules.",
    "relax2xla.instrument": "What watches passes.",
    "relax2xla.target": "Targets.",
    "relax2xla.errors": "Errors: cause, example, fix.",
}


def public(room: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes and functions of a room that are ours, with their names there."""
    for name in getattr(room, "__all__", None) or dir(room):
        if name.startswith("_"):
            continue
        made = getattr(room, name)
        home = getattr(made, "__module__", None) or ""
        if home.startswith("relax2xla") and (inspect.isclass(made) or inspect.isroutine(made)):
            # A room has what it shows; other files what is made in them.
            if hasattr(room, "__path__") or ".frontend." in room.__name__ or home == room.__name__:
                yield name, made


def write_api() -> None:
    """A page for each room, and the page that lists them."""
    seen: set[int] = set()
    for name in ROOMS:
        lines = [name, "=" * len(name), "", ROOMS[name], "", f".. currentmodule:: {name}", ""]
        for own, made in public(importlib.import_module(name)):
            if id(made) in seen or not inspect.getdoc(made):
                continue
            seen.add(id(made))
            kind = "class" if inspect.isclass(made) else "function"
            lines += [f".. auto{kind}:: {name}.{own}"]
            lines += ["   :members:", "   :show-inheritance:"] if kind == "class" else []
            lines += [""]
        write(f"api/{name}.rst", "\n".join(lines))
    lines = ["API", "===", "", "Operators have a page of their own, :doc:`/ops`.", ""]
    lines += [".. toctree::", "   :maxdepth: 1", "", *(f"   {name}" for name in ROOMS), ""]
    write("api/index.rst", "\n".join(lines))


def write_gallery() -> None:
    """Every program of examples/ with what it says of itself, and a picture of it."""
    listed: list[str] = []
    cards: list[str] = []
    for path in sorted((DOCS.parent / "examples").glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        if path.stem == "__init__" or not said:
            continue
        first, _, rest = said.partition("\n\n")
        title = first.replace("\n", " ").rstrip(".")
        # What is indented is a command.
        rest = re.sub(r"^    (.+)$", r"```sh\n\1\n```", rest, flags=re.MULTILINE)
        shown = f"```{{literalinclude}} /../examples/{path.name}\n:language: python\n```"
        drawn = DOCS / "gallery" / f"{path.stem}.svg"
        picture = ""
        if drawn.exists():
            source = f"/gallery/{drawn.name}"
            alt = f"The program of {path.name} as a graph"
            picture = f"```{{image}} {source}\n:alt: {alt}\n:class: program\n```\n\n"
            cards.append(
                f"````{{container}} card\n```{{image}} {source}\n:alt: {alt}\n"
                f":target: {path.stem}.html\n```\n[{title}]({path.stem}.md)\n````\n"
            )
        write(f"gallery/{path.stem}.md", f"# {title}\n\n{rest}\n\n{picture}{shown}\n")
        listed.append(path.stem)
    names = "\n".join(listed)
    grid = "\n".join(cards)
    write(
        "gallery/index.md",
        "# Examples\n\nPrograms of the folder `examples/`, each with the graph of what it builds, "
        f"drawn by `relax2xla view`.\n\n`````{{container}} cards\n{grid}`````\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n",
    )


def write(name: str, text: str) -> None:
    """Write a made page."""
    path = MADE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


_FACT = re.compile(r"((?:``)?[A-Za-z_*][\w.*]*(?:, [\w.*]+)*(?:``)?):\s+(\S.*)")


def as_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: lines ``x: what it is`` become items, `code` becomes code."""
    text: list[str] = []
    item = literal = False
    for line in lines:
        indented = line.startswith(" ") or not line.strip()
        literal = literal and indented
        if literal:
            text.append(line)
        elif item and indented and line.strip():
            text.append("  " + _plain(line.strip()))
        elif fact := _FACT.match(line):
            text += [] if item else [""]
            text.append(f"- ``{fact[1].strip('`')}``: {_plain(fact[2])}")
            item = True
        else:
            text += [""] if item else []
            text.append(_plain(line))
            item = False
        literal = literal or line.endswith("::")
    lines[:] = [*text, ""]


def inside(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links to what is beside this folder say its name alone: the site does not have it."""
    if "/" not in docname:
        source[0] = re.sub(r"\[([^]]+)\]\(\.\./([^)]+)\)", r"\1 (`\2`)", source[0])


def _plain(line: str) -> str:
    """A line without what reStructuredText would take for markup by mistake."""
    parts = re.split(r"(``.*?``|:\w+:`.*?`|`[^`]+`)", line)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([*|_])", r"\\\1", part)
        elif part.startswith("`") and not part.startswith("``"):
            parts[i] = f"`{part}`"
    return "".join(parts)


class Page(HTMLParser):
    """The places of a page, and the links on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is a place, and what leads to one."""
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in ("href", "src") and value and not re.match(r"[a-z]+:", value):
                self.links.append(value)


def check_links(app: Sphinx, failure: Exception | None) -> None:
    """Warn of links inside the site that lead nowhere, after sources are led back to their room.

    viewcode leads from all of a file to one room; what is in it may stand in another.
    """
    if failure is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages = {path: Page(path) for path in sorted(out.rglob("*.html"))}
    for path, page in pages.items():
        text = path.read_text("utf-8")
        for link in dict.fromkeys(page.links):
            name, _, place = unquote(link).partition("#")
            to = (path.parent / name.partition("?")[0]).resolve() if name else path
            there = pages.get(to)
            if to.exists() and (not place or there is None or place in there.places):
                continue
            own = place.removeprefix("relax2xla")
            mended = f"{to.stem}{own}"
            if path.is_relative_to(out / "_modules") and there and mended in there.places:
                text = text.replace(f'href="{link}"', f'href="{link.partition("#")[0]}#{mended}"')
            else:
                logging.getLogger(__name__).warning(f"{path.relative_to(out)}: no {link}")
        if text != path.read_text("utf-8"):
            path.write_text(text, "utf-8")


def setup(app: Sphinx) -> None:
    """Make the pages before Sphinx looks for documents."""
    shutil.rmtree(MADE, ignore_errors=True)
    write_api()
    write_gallery()
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("source-read", inside)
    app.connect("build-finished", check_links)
