"""``verify --bisect``: the part of a model that departs, as a model with its inputs.

What makes the first value that departs is tried alone, on the values that the reference has for
its inputs. If it agrees then, what departs needs its neighbours (a fusion, for instance), and what
comes before it is taken in, twice as many each time, until the piece departs as well.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from relax2xla.errors import TVMError
from relax2xla.importers.files import write_atomically

T = TypeVar("T")

INPUTS, SCRIPT = "inputs.npz", "reproduce.py"

_TEXT: Final = '''"""A part of a model alone: relax2xla beside the references of relax2xla verify.

Options of relax2xla verify may follow, such as --taps or --json.
"""
# {nodes}

import sys
from pathlib import Path

from relax2xla.cli import main

here = Path(__file__).parent
inputs = ["--inputs", str(here / "{inputs}")]
{plugins}sys.exit(main(["verify", str(here / "{model}"), *inputs, *{options!r}, *sys.argv[1:]]))
'''


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a model as a model: the names of its nodes, its file, and arrays for its inputs."""

    nodes: list[str]
    file: str
    data: bytes
    inputs: Mapping[str, Any]


def grown(
    last: T, before: Callable[[T], Iterable[T]], order: Callable[[T], int]
) -> Iterator[list[T]]:
    """``last`` alone, then with twice as many of what it is computed from, the nearest first.

    before: what a node takes values from; order: of the program, in which the nodes are given
    """
    chosen = {order(last): last}
    for node in (nearest := [last]):
        for made in before(node):
            if order(made) not in chosen:
                chosen[order(made)] = made
                nearest.append(made)
    size = 1
    while True:
        yield sorted(nearest[:size], key=order)
        if size >= len(nearest):
            return
        size *= 2


def reproduce(
    folder: Path,
    pieces: Iterable[Piece],
    departs: Callable[[Path, Path], bool],
    options: Sequence[str],
    plugins: Sequence[str] = (),
) -> tuple[list[str], bool]:
    """Write the first of the pieces that departs, else the last one, and its script.

    departs: whether a model, on inputs in a file, gives something else than the reference
    options: of ``verify``, for the script
    plugins: what it loads as well: files, which are copied beside it, and names of modules

    Gives the names of the piece's nodes, and whether it departs. Raises TVMError for a folder that
    cannot be written to.
    """
    names: list[str] = []
    model, departed = "", False
    for piece in pieces:
        names, model = piece.nodes, piece.file
        _write(folder, piece)
        if departed := departs(folder / model, folder / INPUTS):
            break
    if not names:
        return [], False
    # Names come from the model, and the script is code: JSON leaves no line of the comment.
    text = _TEXT.format(
        nodes=json.dumps(names),
        inputs=INPUTS,
        model=model,
        options=list(options),
        plugins=_with_plugins(folder, plugins),
    )
    write_atomically(folder / SCRIPT, lambda file: file.write(text.encode()))
    return names, departed


def _with_plugins(folder: Path, plugins: Sequence[str]) -> str:
    """A line of the script that loads plug-ins; files are copied, since the folder may be moved."""
    if not plugins:
        return ""
    places: list[str] = []
    for i, plugin in enumerate(plugins):
        if not plugin.endswith(".py"):
            places.append(repr(plugin))
            continue
        data = Path(plugin).read_bytes()
        name = f"plugin_{i}_{Path(plugin).name}"
        write_atomically(folder / name, lambda file, data=data: file.write(data))
        places.append(f"str(here / {name!r})")
    return f'for plugin in ({", ".join(places)},):\n    inputs += ["--plugin", plugin]\n'


def check_folder(folder: Path) -> None:
    """TVMError where the folder is a file, or what it is to be in does not exist."""
    if folder.exists() and not folder.is_dir():
        raise TVMError(f"--bisect {folder}: that is a file; name a folder, which is made")
    if not folder.parent.is_dir():
        raise TVMError(f"--bisect {folder}: there is no directory {folder.parent}")


def _write(folder: Path, piece: Piece) -> None:
    folder.mkdir(exist_ok=True)
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **piece.inputs)
    write_atomically(folder / INPUTS, lambda file: file.write(data.getvalue()))
    write_atomically(folder / piece.file, lambda file: file.write(piece.data))
