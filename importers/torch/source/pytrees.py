"""Types of containers that an exported program takes or gives, by name in its file.

torch reads a program whose inputs or results are, say, the ``ModelOutput``s of transformers only
where these are registered as pytrees, and their packages do that when they are imported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from importlib import metadata
from typing import Any, Final

from relax2xla.errors import FileFormatError
from relax2xla.importers.torch.source.torch_internals import pytree

# Packages that register their containers when the module of a type is imported.
REGISTERING: Final = ("transformers", "timm", "torchvision", "diffusers")
# Specifications of trees in the JSON of an archive, as strings.
_SPEC: Final = re.compile(rb'"(?:in|out)_spec": ?("(?:[^"\\]|\\.)*")')


def named_types(path: str | os.PathLike[str]) -> list[str]:
    """Names of the types of what the program in a ``.pt2`` file takes and gives."""
    names: dict[str, None] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".json"):
                continue
            for spec in set(_SPEC.findall(archive.read(info))):
                with contextlib.suppress(ValueError):
                    names |= dict.fromkeys(_types(json.loads(json.loads(spec))))
    return list(names)


def _types(spec: Any) -> Generator[str]:
    stack = [spec]
    while stack:
        top = stack.pop()
        if isinstance(top, list):
            stack += top
        elif isinstance(top, dict):
            if isinstance(top.get("type"), str):
                yield top["type"]
            stack += top.get("children_spec", ())


def tree_of(spec: Any, leaves: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """A tree of torch's as :mod:`relax2xla.importers.trees` has it; None for types of others.

    Classes that are dictionaries (``ModelOutput``) become dictionaries of their keys, data classes
    named tuples of their fields.
    """
    if spec.is_leaf():
        return next(leaves)
    parts = [tree_of(child, leaves) for child in children_of(spec)]
    if any(p is None for p in parts):
        return None
    kind: Any = spec.type
    context: Any = spec.context
    if kind in (tuple, list):
        return {kind.__name__: parts}
    if isinstance(kind, type) and issubclass(kind, dict) and kind is not dict:
        # OrderedDict: the keys; classes of transformers: the keys first, too.
        keys = context[0] if context and isinstance(context[0], list | tuple) else context
        return {"dict": [[k, p] for k, p in zip(keys, parts, strict=True)]}
    if kind is dict:
        return {"dict": [[k, p] for k, p in zip(context, parts, strict=True)]}
    for named in (kind, context):  # a namedtuple's own type, or torch's word for all of them
        fields: Any = getattr(named, "_fields", None)
        if fields:
            return {"named": [named.__name__, list(fields), parts]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        with contextlib.suppress(TypeError, ValueError):  # flattened by a rule of the user's
            held, empty = context
            if {*held, *empty} <= {f.name for f in dataclasses.fields(kind)}:
                none = [{"const": None} for _ in empty]
                return {"named": [kind.__name__, [*held, *empty], [*parts, *none]]}
    return None


def children_of(spec: Any) -> list[Any]:
    """The trees within one of torch's."""
    found: Any = getattr(spec, "children", None)
    made: Any = found() if callable(found) else spec.children_specs
    return list(made)


def unregistered(names: Iterable[str]) -> list[str]:
    """Those that torch does not know."""
    return [n for n in names if n not in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE]


def register_types(names: Iterable[str]) -> None:
    """Import the modules of types that an installed package of :data:`REGISTERING` has.

    Code of these packages runs, so that the file must be one that the user trusts.
    """
    for name in unregistered(names):
        package = name.partition(".")[0]
        if package not in REGISTERING or not _installed(package):
            continue
        # transformers writes ``module:Class``, others ``module.Class``.
        module, _, kind = name.replace(":", ".").rpartition(".")
        with contextlib.suppress(ImportError):
            cls = getattr(importlib.import_module(module), kind, None)
            if cls is not None and unregistered([name]) and package == "transformers":
                _register_cache(name, cls)


def _register_cache(name: str, cls: type) -> None:
    """Caches of transformers are registered by functions of it, which depend on its version."""
    with contextlib.suppress(ImportError, AttributeError):
        if ":" in name:
            module = importlib.import_module("transformers.exporters.exporter_dynamo")
            module.register_pytree_node(cls)
        elif cls.__name__ == "DynamicCache":
            module = importlib.import_module("transformers.integrations.executorch")
            register: Callable[[], None] = module.register_dynamic_cache_export_support
            register()


def _installed(package: str) -> bool:
    """Whether pip knows it: a folder of this name beside the user is none."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def refuse_unregistered(path: str | os.PathLike[str], names: Iterable[str]) -> None:
    """FileFormatError, with what to do, where the program needs a type that torch does not know."""
    unknown = unregistered(names)
    if not unknown:
        return
    name = unknown[0]
    package = name.partition(".")[0]
    more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    said = f"{path}: the program takes or gives values of the type {name}{more}"
    if package in REGISTERING and not _installed(package):
        raise FileFormatError(
            f"{said}, and the package {package} is not installed: pip install {package}"
        )
    module = re.split(r"[.:](?=\w+$)", name)[0]
    raise FileFormatError(
        f"{said}, which torch does not know. Import the module that registers it as a pytree: "
        f"--plugin MODULE on the command line (perhaps --plugin {module}, or a .py file that calls "
        "torch.utils._pytree.register_pytree_node or torch.export.register_dataclass), or import "
        "it in Python before the file is read"
    )
