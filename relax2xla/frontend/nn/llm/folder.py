"""Folders of models as transformers saves them: config.json, tensors (one file or several), tokens.

A model says in ``Source``s which tensors each of its parameters is made of; ``bind`` finds, checks
and binds them. Nothing in a folder is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import dtype_name, is_float
from relax2xla.errors import FileFormatError
from relax2xla.frontend.nn.module import Module
from relax2xla.frontend.nn.tree import named
from relax2xla.frontend.nn.values import Parameter
from relax2xla.runtime.weights import load_weights

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
_INDEX = "model.safetensors.index.json"


def read_config(folder: str | Path, name: str = "config.json") -> dict[str, Any]:
    """The object that ``config.json`` holds; FileFormatError where there is none."""
    folder = Path(folder)
    path = folder / name
    if not path.is_file():
        what = "is no folder" if not folder.is_dir() else f"has no {name}"
        raise FileFormatError(
            f"{folder} {what}; a model's folder has config.json, *.safetensors and tokenizer.json, "
            "as save_pretrained of transformers writes them"
        )
    try:
        made = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as e:
        raise FileFormatError(f"{path}: {str(e)[:300]}") from None
    if not isinstance(made, dict):
        raise FileFormatError(f"{path} holds no object")
    return cast("dict[str, Any]", made)


def read_tensors(folder: str | Path) -> dict[str, Array]:
    """All tensors by name, memory-mapped: of the files that the index names, or of all there are.

    Raises FileFormatError where files are missing (all of them are named) or damaged, where there
    is none, and for names that come twice.
    """
    folder = Path(folder)
    if (folder / _INDEX).is_file():
        placed: Any = read_config(folder, _INDEX).get("weight_map")
        if not isinstance(placed, dict) or not all(isinstance(f, str) for f in placed.values()):
            raise FileFormatError(f"{folder / _INDEX} has no weight_map of names and files")
        names = sorted(set(cast("dict[str, str]", placed).values()))
        if outside := [n for n in names if Path(n).name != n]:
            raise FileFormatError(f"{folder / _INDEX} names files of other folders: {outside}")
        files = [folder / n for n in names]
        if missing := [f.name for f in files if not f.is_file()]:
            raise FileFormatError(f"{folder} lacks the files {', '.join(missing)} of its index")
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        other = sorted(f.name for f in folder.glob("*.bin"))
        more = f" It has {', '.join(other[:3])}: save it again as safetensors." if other else ""
        raise FileFormatError(f"{folder}: there is no .safetensors file in this folder.{more}")
    found: dict[str, Array] = {}
    for file in files:
        for name, array in load_weights(file).items():
            if name in found:
                raise FileFormatError(f"{file}: the tensor {name} is in another file, too")
            found[name] = array
    return found


# -- what parameters are made of -------------------------------------------------------------------
@dataclass(frozen=True)
class Source:
    """How a parameter is made of tensors.

    names: of the tensors. shapes: theirs, of the parameter's shape. make: the parameter's value of
    them, in the parameter's dtype already. optional: what some folders leave out before the names.
    """

    names: tuple[str, ...]
    shapes: Callable[[Shape], list[Shape]]
    make: Callable[[Sequence[Array]], Array]
    optional: str = ""


def plain(name: str, optional: str = "") -> Source:
    """The tensor as it is."""
    return Source((name,), lambda shape: [shape], lambda given: given[0], optional)


def plus_one(name: str) -> Source:
    """The tensor plus one: norms whose weight counts from 1."""
    return Source((name,), lambda shape: [shape], lambda given: given[0] + 1)


def transposed(name: str, optional: str = "") -> Source:
    """The tensor (in, out) as (out, in)."""
    return Source((name,), lambda shape: [shape[::-1]], lambda given: given[0].T, optional)


def rows(names: Sequence[str], sizes: Sequence[int]) -> Source:
    """Tensors of ``sizes`` rows one after the other."""
    return Source(
        tuple(names), lambda shape: [(size, *shape[1:]) for size in sizes], np.concatenate
    )


def stacked(names: Sequence[Sequence[str]]) -> Source:
    """(n, m * rows, ...) of n times m tensors of so many rows each."""
    parts = len(names[0])

    def shapes(shape: Shape) -> list[Shape]:
        return [(shape[1] // parts, *shape[2:])] * (len(names) * parts)

    def make(given: Sequence[Array]) -> Array:
        each = [given[i * parts : (i + 1) * parts] for i in range(len(names))]
        return np.stack([np.concatenate(g) for g in each])

    return Source(tuple(n for group in names for n in group), shapes, make)


def bind(
    model: Module,
    tensors: Mapping[str, Array],
    sources: Mapping[str, Source],
    ignored: Sequence[str] = (),
) -> None:
    """Bind the parameters of ``model``, by path, to what ``sources`` makes of ``tensors``.

    Values are cast to the dtypes of the parameters. ignored: regular expressions of names that may
    be there and are not used. Raises FileFormatError that names every tensor that is missing, of
    another shape, no floating point, or unexpected; then nothing is bound. ValueError for
    parameters without a source.
    """
    params = dict(named(model, Parameter))
    if unknown := sorted(set(params) ^ set(sources)):
        raise ValueError(f"parameters without a source, or sources without one: {unknown}")
    wrong: list[str] = []
    used: set[str] = set()
    places: dict[str, list[str]] = {}
    for path, source in sources.items():
        shape = tuple(int(n) for n in params[path].shape)
        places[path] = []
        for name, wanted in zip(source.names, source.shapes(shape), strict=True):
            short = name.removeprefix(source.optional)
            place = name if name in tensors else short
            places[path].append(place)
            if place not in tensors:
                wrong.append(f"{name} is missing: {list(wanted)} wanted")
            elif tensors[place].shape != wanted:
                has = list(tensors[place].shape)
                wrong.append(f"{place} is of the shape {has}; config.json says {list(wanted)}")
            elif not is_float(kind := dtype_name(tensors[place].dtype)):
                wrong.append(f"{place} is of {kind}; weights are floating point")
            used.add(place)
    spare = [n for n in tensors if n not in used and not any(re.search(p, n) for p in ignored)]
    wrong += [f"{n} is unexpected: the model has no place for it" for n in spare]
    if wrong:
        raise FileFormatError(
            "\n".join(["the tensors of the folder are not those of the model:", *wrong])
        )
    for path, source in sources.items():
        param = params[path]
        dtype = np.dtype(param.dtype)
        param.data = source.make([tensors[n].astype(dtype, copy=False) for n in places[path]])
