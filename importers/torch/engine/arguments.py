"""The arguments of a call of an ATen operator, by the names of its schema."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.converters import Converter
from relax2xla.importers.torch.source.torch_internals import schema_of


def _same_device(value: Any) -> bool:
    return value is None or torch.device(value).type != "meta"


# Where a tensor lies in memory is not part of a Relax tensor: these arguments cannot change a
# value, within the limits checked here.
PLACEMENT: Mapping[str, Callable[[Any], bool]] = {
    "device": _same_device,
    "layout": lambda v: v in (None, torch.strided),
    "pin_memory": lambda v: v in (None, False),
    "non_blocking": lambda v: isinstance(v, bool),
    "memory_format": lambda v: v is None or isinstance(v, torch.memory_format),
}
# What no converter takes, with the gap where a call gives it.
REFUSED: Mapping[str, tuple[str, str]] = {
    "generator": (
        "a torch.Generator: its state is not part of the program",
        "leave it out, or draw the numbers outside and pass them in as an argument",
    ),
}


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of a schema; ``wanted``: the converter's name for it, "" where it has none."""

    name: str
    required: bool
    default: Any
    wanted: str
    ignored: bool


_BOUND: dict[tuple[Any, int], list[_Argument]] = {}


def _arguments(op: Any, converter: Converter) -> list[_Argument]:
    key = (op, id(converter))
    found = _BOUND.get(key)
    if found is None:
        schema = schema_of(op).arguments
        names = [a.name for a in schema]
        signature = inspect.signature(converter.function).parameters
        own = list(signature)[1:]
        found = []
        for i, a in enumerate(schema):
            ignored, required = a.name in converter.ignored, not a.has_default_value()
            # `from` is no name in Python, `from_` is.
            spelled = f"{a.name}_" if keyword.iskeyword(a.name) else a.name
            wanted = spelled if spelled in converter.params else ""
            # prims call the first operand otherwise than ATen.
            if not wanted and i < len(own) and own[i] not in names and required and not ignored:
                wanted = own[i]
            found.append(_Argument(a.name, required, a.default_value, wanted, ignored))
        missing = converter.params - {a.wanted for a in found}
        # A converter may serve overloads with fewer arguments: those it must have a default for.
        for name in missing:
            if signature[name].default is inspect.Parameter.empty:
                raise RuntimeError(f"{op}: the converter's parameter {name} is not in the schema")
        _BOUND[key] = found
    return found


def bind(
    op: Any, converter: Converter, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a call by schema name; :class:`Unsupported` for one that is not handled."""
    bound: dict[str, Any] = {}
    refused: list[str] = []
    for i, a in enumerate(_arguments(op, converter)):
        if i < len(args):
            value = args[i]
        elif a.name in kwargs:
            value = kwargs[a.name]
        elif a.required:
            raise Unsupported(f"the argument {a.name} is missing")
        else:
            value = a.default
        if a.wanted:
            bound[a.wanted] = value
        elif a.ignored:
            continue
        elif a.name in REFUSED:
            if value is not None:
                raise Unsupported(*REFUSED[a.name])
        elif a.name in PLACEMENT:
            if i >= len(args) and a.name not in kwargs:
                continue
            if not PLACEMENT[a.name](value):
                refused.append(f"{a.name}={value}")
        elif a.required or value is not a.default:
            if a.required or type(value) is not type(a.default) or value != a.default:
                refused.append(f"{a.name}={value!r}")
    if refused:
        raise Unsupported(f"the argument {', '.join(refused)} is not supported")
    return bound
