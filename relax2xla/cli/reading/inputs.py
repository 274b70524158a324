"""Arguments from files: .npy and .npz for arrays, .json for everything."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.cli.reading.values import Array, Declared, from_json, guessed, numbers
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.errors import CallError, FileFormatError
from relax2xla.importers.files import check_file
from relax2xla.ir import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.struct_info import show
from relax2xla.runtime.numpy_files import read_npy, read_npz

# In place of None, which is a value of optional inputs.
MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value that a caller gives: its names (ours, then the model's own) and struct info.

    ``kind``: what the model says of an input that is no tensor of numbers, where it says it
    """

    names: tuple[str, ...]
    info: StructInfo
    kind: Declared | None = field(default=None)

    def __str__(self) -> str:
        return f"a {self.kind}" if self.kind else show(self.info)


def leaves_of(params: Sequence[Var], kinds: Mapping[str, Declared] | None = None) -> list[Leaf]:
    """The values behind the parameters; fields of tuples are called ``name.0``, ``name.1``.

    kinds: what a model says of its inputs, by its own names
    """
    made: list[Leaf] = []
    stack: list[tuple[tuple[str, ...], StructInfo]] = [
        ((p.name_hint, *((p.span.name,) if p.span and p.span.name else ())), p.struct_info)
        for p in reversed(params)
    ]
    while stack:
        names, info = stack.pop()
        if isinstance(info, TupleStructInfo):
            fields = list(enumerate(info.fields))
            stack += [(tuple(f"{n}.{i}" for n in names), f) for i, f in reversed(fields)]
        else:
            kind = next((kinds[n] for n in names if n in kinds), None) if kinds else None
            made.append(Leaf(names, info, kind if isinstance(info, ObjectStructInfo) else None))
    return made


def given_values(leaves: Sequence[Leaf], words: Sequence[str]) -> list[Any]:
    """What the user gives, in order of the leaves; ``MISSING`` where there is nothing.

    ``NAME=1,2.5`` is numbers. ``FILE``: a .npy goes to the first input that has none yet; the
    arrays of a .npz and the values of a .json have the names of inputs. ``NAME=FILE`` is that
    input: of a .npz with several arrays the one of this name, for a sequence all of them in their
    order.
    """
    by_name = {n: i for i, leaf in enumerate(leaves) for n in reversed(leaf.names)}
    known = ", ".join(leaf.names[0] for leaf in leaves) or "none"
    made: list[Any] = [MISSING] * len(leaves)

    def put(index: int, value: Any, where: str) -> None:
        if made[index] is not MISSING:
            raise CallError(f"--inputs: {leaves[index].names[0]} is given twice ({where})")
        made[index] = value

    def at(label: str, where: str) -> int:
        if label not in by_name:
            raise CallError(f"--inputs: {where}: there is no input {label!r}; there are {known}")
        return by_name[label]

    for word in words:
        name, path = _split(word, by_name)
        if name is not None:
            index = at(name, str(path))
            literal = _literal(word, leaves, by_name)
            put(index, *(_named(path, leaves[index]) if literal is None else (literal, word)))
            continue
        for key, read, where in _contents(path):
            free = (i for i, value in enumerate(made) if value is MISSING)
            index = next(free, None) if key is None else at(key, where)
            if index is None:
                raise CallError(f"--inputs: {where} is one array too many; the inputs are {known}")
            put(index, read(leaves[index], where), where)
    return made


# Numbers after the name of an input, in place of a file.
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|true|false"
_NUMBERS = re.compile(rf"(?:{_NUMBER})(?:,(?:{_NUMBER}))*,?", re.ASCII)


def _literal(word: str, leaves: Sequence[Leaf], names: Mapping[str, int]) -> Array | None:
    """The array of ``NAME=1,2.5``, in the shape and dtype of the input; None for a file."""
    name, _, text = word.partition("=")
    if name not in names or not _NUMBERS.fullmatch(text.lower()) or os.path.exists(text):
        return None
    info = leaves[names[name]].info
    if not isinstance(info, TensorStructInfo):
        return None
    items = [v for v in text.lower().split(",") if v]
    dtype = numpy_dtype(info.dtype or "float32")
    numbers = [{"true": 1, "false": 0}.get(v, v) for v in items]
    try:
        wide = np.array([float(v) for v in numbers]) if is_float(info.dtype or "float32") else None
        made = np.array([int(v) for v in numbers], dtype) if wide is None else wide.astype(dtype)
    except (ValueError, OverflowError) as e:
        raise CallError(f"--inputs {word}: {name} is {show(info)}: {e}") from None
    dims = info.dims
    if dims is not None and all(isinstance(d, int) for d in dims):
        shape = [d for d in dims if isinstance(d, int)]
        if math.prod(shape) == len(made):
            return made.reshape(shape)
    return made


# Makes the argument for an input of what a file holds; the text says where that is.
Read = Callable[[Leaf, str], Any]


def files_in(words: Sequence[str]) -> list[Path]:
    """The files that ``given_values`` may read, whatever the names of the inputs are."""
    return [Path(w) for word in words for w in (word, word.partition("=")[2]) if w]


def _split(word: str, names: Mapping[str, int]) -> tuple[str | None, Path]:
    """``NAME=FILE`` or ``FILE``; a path may itself hold an equals sign."""
    name, equals, path = word.partition("=")
    if equals and (name in names or not os.path.exists(word)):
        return name, Path(path)
    return None, Path(word)


def _contents(path: Path) -> Iterator[tuple[str | None, Read, str]]:
    """What a file without a name of an input holds: names (None for one array), values, places."""
    if path.suffix.lower() == ".json":
        data = _json(path)
        if not isinstance(data, dict):
            raise CallError(
                f"--inputs: {path} holds no object with the names of inputs; name the one that it "
                f"is for: --inputs NAME={path}"
            )
        for key, value in data.items():
            yield key, _of_json(value), f"{path}:{key}"
        return
    for key, array in _arrays(path):
        yield key, _of_array(array), f"{path}:{key}" if key else str(path)


def _named(path: Path, leaf: Leaf) -> tuple[Any, str]:
    """The argument in a file that the user gives for one input, and where it is."""
    if path.suffix.lower() == ".json":
        return _of_json(_json(path))(leaf, str(path)), str(path)
    arrays = list(_arrays(path))
    if leaf.kind is not None and leaf.kind.sequence and path.suffix.lower() == ".npz":
        items = [_element(array, leaf, f"{path}:{key}") for key, array in arrays]
        return tuple(items), str(path)
    if len(arrays) > 1:
        arrays = [(key, array) for key, array in arrays if key in leaf.names]
    if len(arrays) != 1:
        held = ", ".join(str(key) for key, _ in _arrays(path)) or "none"
        raise CallError(
            f"--inputs: {leaf.names[0]}={path} is for one input; the file has the arrays {held}, "
            f"and none is called {leaf.names[-1]}. Without {leaf.names[0]}= each goes to the input "
            "of its name"
        )
    ((key, array),) = arrays
    where = f"{path}:{key}" if key else str(path)
    return _of_array(array)(leaf, where), where


def _of_array(array: Array) -> Read:
    return lambda leaf, where: _checked(array, leaf, where)


def _of_json(data: Any) -> Read:
    def read(leaf: Leaf, where: str) -> Any:
        what, info = f"--inputs: {where}", leaf.info
        if isinstance(info, ObjectStructInfo):
            kind = leaf.kind or guessed(data)
            value = from_json(data, kind, what)
            return value
        if isinstance(info, TensorStructInfo):
            return numbers(data, info.dtype or guessed(data).dtype or "float32", what)
        if isinstance(info, ShapeStructInfo) and isinstance(data, list):
            return tuple(int(n) for n in numbers(data, "int64", what))
        if isinstance(info, PrimStructInfo) and not isinstance(data, list | dict):
            return numbers(data, info.dtype, what).item()
        raise CallError(f"{what}: {leaf.names[0]} is {leaf}; got {data!r}")

    return read


def _checked(array: Array, leaf: Leaf, where: str) -> Any:
    info = leaf.info
    if isinstance(info, ObjectStructInfo):
        if leaf.kind is not None and (leaf.kind.sequence or leaf.kind.keys):
            raise CallError(
                f"--inputs: {where}: {leaf.names[0]} is {leaf}, no array; give a .json file"
            )
        return _element(array, leaf, where)
    if not isinstance(info, TensorStructInfo):
        raise CallError(f"--inputs: {where}: {leaf.names[0]} is {leaf}, no array")
    return _of_dtype(array, info.dtype, leaf, where) if info.dtype else array


def _element(array: Array, leaf: Leaf, where: str) -> Array:
    """A tensor of an optional or a sequence, or of strings, as the machine has it."""
    dtype = leaf.kind.dtype if leaf.kind is not None else ""
    if dtype:
        return _of_dtype(array, dtype, leaf, where)
    if array.dtype.kind in "US":
        text = array if array.dtype.kind == "U" else np.char.decode(array, "utf-8")
        return text.astype(object)
    if leaf.kind is not None:
        raise CallError(f"--inputs: {where}: {leaf.names[0]} is {leaf}; the array is {array.dtype}")
    return array


def _of_dtype(array: Array, dtype: str, leaf: Leaf, where: str) -> Array:
    wanted = numpy_dtype(dtype)
    # numpy writes bfloat16 and other dtypes that it does not know as plain bytes.
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    if array.dtype != wanted:
        raise CallError(
            f"--inputs: {where}: {leaf.names[0]} is {leaf}; the array is {array.dtype} of "
            f"shape {array.shape}. Convert it with .astype({wanted.name!r})"
        )
    return array


def _json(path: Path) -> Any:
    check_file(path)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise FileFormatError(f"{path} is no JSON: {e}") from None


def _arrays(path: Path) -> Iterator[tuple[str | None, Array]]:
    """The arrays of an .npz by name, or the one of an .npy; nothing in them can run code."""
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("rb") as file:
            yield None, read_npy(file, path.stat().st_size, str(path))
    elif suffix == ".npz":
        yield from read_npz(path)
    else:
        raise FileFormatError(
            f"{path}: inputs are .npy, .npz or .json files; save them with numpy.savez"
        )
