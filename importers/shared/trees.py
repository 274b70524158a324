"""Trees of arguments and results, as text beside a function: what the source takes and gives.

Importers flatten what their sources nest. The nesting is kept in the ``metadata`` of the function's
span, as JSON of ``{"in": tree, "out": tree, "names": [...]}``. A tree is one of

    {"leaf": n}                    parameter n, or field n of the result
    {"const": value}               what the source fixed: None, a number, a string
    {"tuple": [...]}, {"list": [...]}
    {"dict": [[key, tree], ...]}
    {"named": [type, [field, ...], [tree, ...]]}
    {"node": [key, [tree, ...]]}   a node of a type of the user's, known in this process alone

``in`` is of ``(args, kwargs)``, ``names`` are those of positional arguments.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relax2xla.errors import CallError
from relax2xla.ir import Function, Span

Tree = dict[str, Any]
#: Ways to put nodes of the user's types together, by their key in a tree.
_NODES: dict[str, tuple[Callable[[Any], Sequence[Any]], Callable[[Sequence[Any]], Any]]] = {}


def register_node(
    key: str, flatten: Callable[[Any], Sequence[Any]], unflatten: Callable[[Sequence[Any]], Any]
) -> None:
    """Make a node of the user's known by ``key``."""
    _NODES[key] = flatten, unflatten


def with_trees(func: Function, trees: Mapping[str, Any]) -> Function:
    """``func`` with its trees in its span."""
    span = func.span or Span(kind="file")
    return func.replace(span=dataclasses.replace(span, metadata=json.dumps(trees)))


def trees_of(func: Function) -> Mapping[str, Any] | None:
    """The trees that an importer has kept, or None."""
    text = func.span.metadata if func.span is not None else ""
    if not text.startswith("{"):
        return None
    found = json.loads(text)
    return found if "in" in found and "out" in found else None


def flattened(tree: Tree, value: Any, where: str, leaves: dict[int, Any]) -> None:
    """Put the leaves of ``value`` into ``leaves``; CallError names the path that does not fit."""
    ((kind, inner),) = tree.items()
    if kind == "leaf":
        leaves[inner] = value
    elif kind == "const":
        _want_constant(value, inner, where)
    elif kind == "dict":
        if not isinstance(value, Mapping):
            raise CallError(f"{where} is a dictionary; given {type(value).__name__}")
        keys = [k for k, _ in inner]
        if {*keys} != {*value}:
            raise CallError(f"{where} has the keys {sorted(keys)}; given {sorted(map(str, value))}")
        for key, part in inner:
            flattened(part, value[key], f"{where}[{key!r}]", leaves)
    else:
        parts = inner if kind in ("tuple", "list") else inner[-1]
        given = _parts(tree, value, where)
        if len(given) != len(parts):
            raise CallError(f"{where} is a {kind} of {len(parts)}; given one of {len(given)}")
        fields = inner[1] if kind == "named" else range(len(parts))
        for field, part, item in zip(fields, parts, given, strict=True):
            step = f".{field}" if kind == "named" else f"[{field}]"
            flattened(part, item, f"{where}{step}", leaves)


def _want_constant(value: Any, inner: Any, where: str) -> None:
    """CallError where an argument is not what it was when the model was traced."""
    if value is None:
        return
    was = f"{where} was {inner!r} when the model was traced"
    try:
        is_same = bool(value == inner)
    except (TypeError, ValueError) as e:  # of arrays, and of what JAX traces
        how = "leave it out, or make it static (static_argnames of jax.jit)"
        raise CallError(f"{was}, and is no array; given {value!r}: {how}") from e
    if not is_same:
        raise CallError(f"{was}; given {value!r}")


def _parts(tree: Tree, value: Any, where: str) -> Sequence[Any]:
    ((kind, inner),) = tree.items()
    if kind == "node":
        try:
            return _NODES[inner[0]][0](value)
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise CallError(f"{where} does not fit the type it was traced with: {e}") from None
    if kind == "named" and not isinstance(value, tuple | list):
        with contextlib.suppress(AttributeError):  # a data class
            return [getattr(value, field) for field in inner[1]]
    if not isinstance(value, tuple | list):
        what = (
            f"{inner[0]} of {', '.join(inner[1])}" if kind == "named" else f"{kind} of {len(inner)}"
        )
        raise CallError(f"{where} is a {what}; given {type(value).__name__}")
    return value


def built(tree: Tree, fields: Sequence[Any]) -> Any:
    """The tree with the values ``fields`` at its leaves."""
    ((kind, inner),) = tree.items()
    if kind == "leaf":
        return fields[inner]
    if kind == "const":
        return inner
    if kind == "dict":
        return {key: built(part, fields) for key, part in inner}
    if kind in ("tuple", "list"):
        made = [built(part, fields) for part in inner]
        return made if kind == "list" else tuple(made)
    parts = [built(part, fields) for part in inner[-1]]
    if kind == "named":
        return _named_tuple(inner[0], tuple(inner[1]))(*parts)
    return _NODES[inner[0]][1](parts)


@functools.cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    made: Any = collections.namedtuple
    return made(name, fields)
