"""Weights from elsewhere into a Module: state dicts, safetensors files, folders of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relax2xla.errors import FileFormatError
from relax2xla.frontend.nn.tree import ModuleTree, named
from relax2xla.frontend.nn.values import Parameter

Rename = Callable[[str], str | None] | Mapping[str, str]


def load_state_dict(
    module: ModuleTree, state_dict: Mapping[str, Any], strict: bool = True, *, cast: bool = False
) -> tuple[list[str], list[str]]:
    """Bind the parameters of ``module`` to the values of ``state_dict``, by path.

    Values are Parameters that hold data, or arrays (torch, numpy, jax): what ``state_dict()`` of
    torch gives is taken as it is. cast: arrays take the dtypes of the parameters. Gives
    ``(missing, unexpected)``: paths without a value, and names without a parameter; a parameter
    that stands in two places (tied weights) needs one. ``strict``: KeyError for these. ValueError
    for values that do not fit or hold no data. Nothing is bound before all of that was checked, and
    the message names every one.
    """
    params = dict(named(module, Parameter))
    unexpected = [name for name in state_dict if name not in params]
    given = {id(params[name]) for name in state_dict if name in params}
    missing = [name for name, p in params.items() if id(p) not in given]
    if strict and (missing or unexpected):
        raise KeyError(f"missing keys: {missing}; unexpected keys: {unexpected}")
    fitting: list[tuple[Parameter, Any]] = []
    wrong: list[str] = []
    for name, value in state_dict.items():
        if name in params:
            try:
                fitting.append((params[name], params[name].checked(_array(value), cast)))
            except (ValueError, TypeError) as e:
                wrong.append(f"{name}: {e}")
    if wrong:
        raise ValueError("\n".join(["these values do not fit their parameters:", *wrong]))
    for param, array in fitting:
        param._data = array  # pyright: ignore[reportPrivateUsage]
    return missing, unexpected


def load_safetensors(
    module: ModuleTree,
    path: str | Path,
    strict: bool = True,
    *,
    rename: Rename | None = None,
    cast: bool = False,
) -> tuple[list[str], list[str]]:
    """``load_state_dict`` of a .safetensors file, or of all of those in a folder.

    rename: the path of the parameter for a name in the file, a function (None: the tensor is not
    wanted) or regular expressions with their replacements, applied in turn. Raises
    FileFormatError for damaged files, folders without one, and names that come twice.
    """
    from relax2xla.runtime.weights import load_weights

    path = Path(path)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise FileFormatError(f"{path}: there is no .safetensors file in this folder")
    found: dict[str, Any] = {}
    for file in files:
        for name, array in load_weights(file).items():
            place = _renamed(name, rename)
            if place is None:
                continue
            if place in found:
                raise FileFormatError(f"{file}: {name} is a second value for {place}")
            found[place] = array
    return load_state_dict(module, found, strict, cast=cast)


def _renamed(name: str, rename: Rename | None) -> str | None:
    if rename is None:
        return name
    if callable(rename):
        return rename(name)
    for pattern, replacement in rename.items():
        name = re.sub(pattern, replacement, name)
    return name


def _array(value: Any) -> Any:
    if not isinstance(value, Parameter):
        return value
    if value.data is None:
        raise ValueError("the Parameter that is given holds no data")
    return value.data
