"""``relax2xla diff``: the first place where two programs are not the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax2xla.cli._console import out
from relax2xla.cli._model import load_model, parse_shapes
from relax2xla.errors import StructuralEqualError
from relax2xla.ir import Binding, IRModule, Span, Var
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.transform import LegalizeOps, RaiseStableHLO

_MESSAGE: Final = re.compile(r"(?s)([^\n]*) at ([^\n]*)\n  lhs: (.*)\n  rhs: (.*)")
_STEP: Final = re.compile(r"\.?(\w+)|\[(\d+)\]")
# How MLIR calls text that came from no file.
_NO_FILE: Final = re.compile(r"(?<![\w./-])-(?=:\d+:\d+)")


@dataclass(frozen=True, slots=True)
class Side:
    """One program at the difference: the text there, and the binding that it is in."""

    file: str
    text: str
    binding: str
    source: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Where and why two programs differ."""

    why: str
    path: str
    sides: tuple[Side, Side]


def run_diff(
    files: tuple[Path, Path],
    level: str,
    as_json: bool,
    trust: bool,
    shape: Sequence[str],
) -> int:
    """Compare and print; gives 0 where the programs are the same, else 1."""
    shapes = parse_shapes(shape)
    mods: list[IRModule] = []
    for file in files:
        mod = load_model(file, trust, shapes)
        mods.append(_LEVELS[level](mod))
    found = difference(mods[0], mods[1], files)
    if as_json:
        out(json.dumps(_plain(found), indent=2))
    elif found is None:
        out(f"{files[0]} and {files[1]} are the same program")
    else:
        out(f"{found.why} at {found.path}")
        for side in found.sides:
            out(f"\n{side.file}")
            where = ", ".join(filter(None, (side.binding, side.source)))
            if where:
                out(f"  in {where}")
            out("\n".join(f"    {line}" for line in side.text.splitlines()))
    return 0 if found is None else 1


_LEVELS: Final[dict[str, Any]] = {
    "as-is": lambda mod: mod,
    "stablehlo": lambda mod: LegalizeOps()(mod),
    "relax": lambda mod: RaiseStableHLO()(mod),
}


def difference(a: IRModule, b: IRModule, files: tuple[Path, Path]) -> Difference | None:
    """The first difference; names of variables and places in the source do not count."""
    try:
        assert_structural_equal(a, b)
    except StructuralEqualError as e:
        found = _MESSAGE.fullmatch(str(e))
        if found is None:
            raise
        why, path, *texts = found.groups()
        sides = [
            Side(str(file), text, *_place(mod, path, file))
            for file, text, mod in zip(files, texts, (a, b), strict=True)
        ]
        return Difference(why, path, (sides[0], sides[1]))
    return None


def _place(mod: IRModule, path: str, file: Path) -> tuple[str, str]:
    """The innermost binding or parameter on ``path``, and where in the source it comes from."""
    names = [g.name_hint for g in mod.functions if path.startswith(f"{g.name_hint}.")]
    if not names:
        return "", ""
    name = max(names, key=len)
    node: Any = mod[name]
    binding = f"the function {name}"
    spans: list[Span | None] = [getattr(node, "span", None)]
    for found in _STEP.finditer(path, len(name)):
        step, index = found.groups()
        try:
            node = getattr(node, step) if step else node[int(index)]
        except (AttributeError, IndexError, KeyError, TypeError):
            break  # the path goes on where only the other program has something
        if step != "var":
            binding, spans = _named(node) or (binding, spans)
    span = next((s for s in spans if s is not None), None)
    return binding, "" if span is None else _NO_FILE.sub(lambda _: str(file), str(span))


def _named(node: object) -> tuple[str, list[Span | None]] | None:
    match node:
        case Binding():
            return f"the binding {node.var.name_hint}", [node.var.span, node.value.span]
        case Var():
            return f"the parameter {node.name_hint}", [node.span]
        case _:
            return None


def _plain(found: Difference | None) -> dict[str, Any]:
    if found is None:
        return {"equal": True}
    sides = [
        {"file": s.file, "text": s.text, "binding": s.binding, "source": s.source}
        for s in found.sides
    ]
    return {"equal": False, "why": found.why, "path": found.path, "sides": sides}
