"""``relax2xla diff``: the first place where two programs are not the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.process.console import out, print_json
from relax2xla.cli.reading.inputs import leaves_of
from relax2xla.cli.reading.model import Sizes, load_model, parse_shapes
from relax2xla.errors import StructuralEqualError, TVMError
from relax2xla.importers.files import symbols
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.ir import Binding, Function, IRModule, Span, Var
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.transform import RaiseStableHLO
from relax2xla.transform.export import to_stablehlo

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
    a, b = _loaded(files, trust, shapes)
    if level != "as-is":
        a, b = at_level(a, b, level)
    found = difference(a, b, files)
    if as_json:
        print_json(_plain(found))
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


def _loaded(files: tuple[Path, Path], trust: bool, shapes: Sizes) -> list[IRModule]:
    """Both programs; a size may be that of one of them, where the other is static already."""
    mods = [load_model(file, trust, {}) for file in files]
    known = [_names(mod) for mod in mods]
    for name in shapes:
        if not any(name in names for names in known):
            has = [f"{f} has {', '.join(n) or 'none'}" for f, n in zip(files, known, strict=True)]
            raise TVMError(
                f"--shape {name}: neither program has such an input or symbolic dimension; "
                f"{'; '.join(has)}"
            )
    for i, names in enumerate(known):
        if given := {n: size for n, size in shapes.items() if n in names}:
            mods[i] = load_model(files[i], trust, given)
    return mods


def _names(mod: IRModule) -> dict[str, None]:
    """Inputs and symbolic dimensions of a program."""
    params = [p for f in mod.relax_functions().values() for p in f.params]
    leaves = leaves_of(params)
    names = dict.fromkeys(symbols([leaf.info for leaf in leaves]))
    return names | dict.fromkeys(n for leaf in leaves for n in leaf.names)


def at_level(a: IRModule, b: IRModule, level: str) -> tuple[IRModule, IRModule]:
    """Both programs as StableHLO has them, or (level "relax") raised from that.

    Each is written as StableHLO and read again, so that nothing is left of where it comes from, and
    attributes of functions, which frameworks add, are left out. At the level "relax" programs that
    StableHLO cannot hold, because of host functions, for one, are compared as they are.
    """
    try:
        mods = [_through_stablehlo(mod) for mod in (a, b)]
    except (TVMError, NotImplementedError):
        if level == "stablehlo":
            raise
        mods = [a, b]
    if level == "relax":
        mods = [RaiseStableHLO()(mod) for mod in mods]
    return _bare(mods[0]), _bare(mods[1])


def _through_stablehlo(mod: IRModule) -> IRModule:
    return from_stablehlo(to_stablehlo(mod, debug_info=True), raise_ops=False)


def _bare(mod: IRModule) -> IRModule:
    """``mod`` without attributes, but for the names of public functions."""
    functions = {
        gvar: f.replace(attrs={k: v for k, v in f.attrs.items() if k == "global_symbol"})
        if isinstance(f, Function)
        else f
        for gvar, f in mod.functions.items()
    }
    return IRModule(functions)


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
