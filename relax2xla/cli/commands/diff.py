"""``relax2xla diff``: the first place where two programs are not the same, or models by meaning."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.commands.inspect import STABLEHLO
from relax2xla.cli.process.console import coloured, good, out, print_json
from relax2xla.cli.proof.comparison import Asked
from relax2xla.cli.proof.meaning import meaning, print_meaning, sizes_of
from relax2xla.cli.reading.inputs import leaves_of
from relax2xla.cli.reading.model import Sizes, load_model, parse_shapes
from relax2xla.errors import StructuralEqualError, TVMError
from relax2xla.importers.files import format_of, symbols
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.ir import Binding, Function, IRModule, Span, Var
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.transform import RaiseStableHLO
from relax2xla.transform.export import to_stablehlo

_MESSAGE: Final = re.compile(r"(?s)([^\n]*) at ([^\n]*)\n  lhs: (.*)\n  rhs: (.*)")
_STEP: Final = re.compile(r"\.?(\w+)|\[(\d+)\]")
# Columns of a terminal from which on both sides stand beside each other.
_WIDE: Final = 120
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
    level: str | None,
    asked: Asked,
    values: bool,
    trust: bool,
    shape: Sequence[str],
) -> int:
    """Compare and print; gives 0 where the programs are the same, else 1.

    level: what programs are compared as; None is the model, where formats differ or ``values`` are
           asked for, and the program as it is otherwise
    """
    if values and level not in (None, "model"):
        raise TVMError(f"--values goes with --as model, not with --as {level}")
    kinds = {_family(file) for file in files}
    shapes = parse_shapes(shape)
    a, b = _loaded(files, trust, shapes)
    whole = all(any(g.name_hint == "main" for g in mod.functions) for mod in (a, b))
    if not whole and (values or level == "model"):
        raise TVMError("models are compared by their function main, which one of the files has not")
    level = level or ("as-is" if not values and (len(kinds) == 1 or not whole) else "model")
    if level == "model":
        say = _plain_words if asked.json else _words
        found = meaning(
            (a, b),
            at_level(a, b, "relax"),
            files,
            lambda x, y: say(difference(x, y, files)),
            asked if values else None,
            (asked.rtol, asked.atol),
            shapes,
        )
        if asked.json:
            print_json(found.as_dict())
        else:
            print_meaning(found, files)
        return 0 if found.same else 1
    if level != "as-is":
        a, b = at_level(a, b, level)
    first = difference(a, b, files)
    if asked.json:
        print_json(_plain(first))
    elif first is None:
        out(f"{files[0]} and {files[1]} are the same program")
    else:
        out(_words(first))
    return 0 if first is None else 1


def _family(file: Path) -> str:
    """The format of a file; those of StableHLO are one."""
    name = format_of(file).name
    return "stablehlo" if name in STABLEHLO else name


def _plain_words(found: Difference | None) -> str:
    if found is None:
        return ""
    parts = ["\n".join(_side(side)) for side in found.sides]
    return "\n\n".join([f"{found.why} at {found.path}", *parts])


def _words(found: Difference | None) -> str:
    """A difference for people: in colours on a terminal, side by side on a wide one."""
    if found is None or not coloured(sys.stdout):
        return _plain_words(found)
    sides = [_side(side) for side in found.sides]
    head = f"{found.why} at {found.path}"
    width = shutil.get_terminal_size().columns
    if width < _WIDE:
        parts = ["\n".join(good(line, i == 1) for line in lines) for i, lines in enumerate(sides)]
        return "\n\n".join([head, *parts])
    half = (width - 3) // 2
    left, right = ([w for line in lines for w in _wrapped(line, half)] for lines in sides)
    rows = itertools.zip_longest(left, right, fillvalue="")
    text = (f"{good(a.ljust(half), False)} | {good(b, True)}" for a, b in rows)
    return "\n".join([head, "", *text])


def _wrapped(line: str, width: int) -> list[str]:
    return [line[i : i + width] for i in range(0, len(line), width)] or [""]


def _side(side: Side) -> list[str]:
    where = ", ".join(filter(None, (side.binding, side.source)))
    head = [side.file, *([f"  in {where}"] if where else [])]
    return [*head, *(f"    {line}" for line in side.text.splitlines())]


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
    if shapes:
        # The other one may have other names for these sizes.
        for i in (0, 1):
            if given := sizes_of(mods[i], mods[1 - i]):
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
