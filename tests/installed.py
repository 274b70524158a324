"""A program run as if nothing were installed but what one install line brings.

``python tests/installed.py EXTRAS PROGRAM ...``, with extras of pyproject.toml separated by commas,
runs PROGRAM where packages that ``pip install '.[EXTRAS]'`` does not bring cannot be imported. It
costs nothing, where an environment of its own would cost minutes and gigabytes: requirements are
followed through the metadata of what is installed here.
"""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parent.parent


def brought_by(extras: Iterable[str]) -> set[str]:
    """Names of the distributions that ``pip install '.[extras]'`` brings, ours among them."""
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = canonical(project["name"])
    todo = [Requirement(f"{own}[{','.join(extras)}]")]
    seen: set[tuple[str, str]] = set()
    while todo:
        needed = todo.pop()
        for extra in ("", *needed.extras):
            key = (canonical(needed.name), extra)
            if key in seen:
                continue
            seen.add(key)
            if key[0] == own:  # the file, not what was installed from an older one
                lines = (
                    project["optional-dependencies"][extra] if extra else project["dependencies"]
                )
                todo += map(Requirement, lines)
                continue
            try:
                further = metadata.requires(needed.name) or ()
            except metadata.PackageNotFoundError:
                continue  # a build without it, as torch's for the CPU is without CUDA's packages
            rows = [Requirement(line) for line in further]
            todo += [r for r in rows if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def canonical(name: str) -> str:
    """The form of a distribution's name in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


class Only(PathFinder):
    """Finds modules and metadata of some distributions, and everything that is in none."""

    known: ClassVar[set[str]] = set()
    refused: ClassVar[set[str]] = set()

    @classmethod
    def limit(cls, known: set[str]) -> None:
        """From now on only distributions in ``known`` are there."""
        cls.known = known
        for module, owners in metadata.packages_distributions().items():
            if not known.intersection(map(canonical, owners)):
                cls.refused.add(module)
        sys.meta_path[:] = [cls if f is PathFinder else f for f in sys.meta_path]

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if path is None and fullname in cls.refused:
            return None
        return super().find_spec(fullname, path, target)

    @classmethod
    def find_distributions(cls, *args: Any, **kwargs: Any) -> Any:
        found = super().find_distributions(*args, **kwargs)
        return (d for d in found if canonical(d.metadata["Name"] or "") in cls.known)


if __name__ == "__main__":
    names, program, *rest = sys.argv[1:]
    loaded = set(sys.modules)
    brought = brought_by(filter(None, names.split(",")))
    for module in set(sys.modules) - loaded:
        if module.partition(".")[0] == "packaging":
            del sys.modules[module]
    Only.limit(brought)
    sys.argv[:] = [program, *rest]
    sys.path[0] = str(ROOT)
    runpy.run_path(program, run_name="__main__")
