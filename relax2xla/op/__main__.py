"""What is written from the operators' units: docs/ops.md, and what type checkers read.

``python -m relax2xla.op`` prints the reference of all operators; ``python -m relax2xla.op --stubs``
writes ``__init__.pyi`` into the packages.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Final

from relax2xla.ir.op import Op
from relax2xla.op.shared.checks import BOOL, FLOAT, INEXACT, INTEGER, NUMBER, REAL
from relax2xla.op.shared.exports import ROOT, exports

HEAD = """# Operators

Every Relax operator, by its name in TVMScript; in Python the same name in `relax2xla.op`.
`python -m relax2xla.op > docs/ops.md` writes this page from the operators themselves.

*Runs as*: **StableHLO**, lowered to it by `LegalizeOps`; **host**, computed by the virtual machine
between compiled parts, or no computation at all.

The operations of StableHLO, CHLO and Shardy (`R.stablehlo.*`, `R.chlo.*`, `R.sdy.*`) are described
in their own specifications; [StableHLO](stablehlo.md) says how they are written here.
"""
STUB = """# Written by python -m relax2xla.op --stubs.
\"\"\"{summary}\"\"\"

{imports}
"""
# Each with an __init__ that says what is there by walking it.
PACKAGES: Final = (ROOT, f"{ROOT}.image", f"{ROOT}.nn", f"{ROOT}.vision")
GRADIENTS: Final = f"{ROOT}.shared.gradients"
CANNOT_RUN = ("relax.vm.", "relax.memory.alloc", "relax.memory.kill")

# Lists of dtypes in the descriptions of families, in words.
SHORT = (
    ((*NUMBER, *BOOL), "any dtype"),
    (NUMBER, "any number"),
    (REAL, "any integer or float"),
    (INEXACT, "any float or complex"),
    (INTEGER, "any integer"),
    (FLOAT, "any float"),
)


def operators() -> list[Op[...]]:
    """All operators that are no rows of an MLIR dialect, by name."""
    found = (Op.get(name) for name in Op.list_op_names())
    return [o for o in found if type(o) is Op]


def signature(made: Op[...]) -> str:
    """The parameters with their defaults; types are in the description."""
    parts: list[str] = []
    keyword_only = False
    for p in made.signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(part.startswith("*") for part in parts):
                parts.append("*")
        star = "*" if p.kind is inspect.Parameter.VAR_POSITIONAL else ""
        default = "" if p.default is p.empty else f"={p.default!r}"
        parts.append(f"{star}{p.name}{default}")
    return f"R.{made.name.removeprefix('relax.')}({', '.join(parts)})"


def runs_as(made: Op[...]) -> str:
    """Where calls are computed."""
    if made.name.startswith(CANNOT_RUN):
        return "nothing: XLA plans memory by itself"
    if made.name.startswith("relax.call_tir"):
        return "StableHLO: the loops of the function become axes of tensors"
    if "call_tir" in made.name:
        return "nothing yet: functions of TIR on parts of tensors do not run"
    effects = "" if made.pure else ", has effects"
    return ("StableHLO" if made.lowering is not None else "host") + effects


def text(made: Op[...]) -> str:
    """The description as Markdown: double backticks become single ones, indents lists."""
    doc = inspect.cleandoc(made.__doc__ or "").replace("``", "`")
    for dtypes, words in SHORT:
        doc = doc.replace(", ".join(dtypes), words)
    doc = re.sub(r":(?:func|class):`[~.]*([\w.]+)`", r"`\1`", doc)
    summary, _, rest = doc.partition("\n")
    body = rest.strip("\n")
    return summary + (f"\n\n```text\n{body}\n```" if body else "")


def reference() -> str:
    """The whole page."""
    groups: dict[str, list[Op[...]]] = {}
    for made in operators():
        groups.setdefault(".".join(made.name.split(".")[1:-1]), []).append(made)
    parts = [HEAD]
    for room, members in sorted(groups.items()):
        parts.append(f"## {'`R.' + room + '`' if room else '`R`'} ({len(members)})\n")
        for made in members:
            parts.append(f"### `{made.name.removeprefix('relax.')}`\n")
            parts.append(f"`{signature(made)}`\n\n{text(made)}\n\nRuns as: {runs_as(made)}\n")
    return "\n".join(parts)


def stub(package: str) -> str:
    """The ``__init__.pyi`` of a package: where each name that it shows comes from."""
    rooms = {o.name.split(".")[1] for o in operators() if o.name.count(".") > 1}
    found = {(e.module, e.name) for e in exports(package)}
    if package == ROOT:
        found |= {(package, room) for room in rooms}
        found |= {(exports.__module__, "COMPOSED"), (GRADIENTS, "register_gradient")}
    lines = [f"from {module} import {name} as {name}" for module, name in sorted(found)]
    head = inspect.getdoc(sys.modules[package]) or ""
    return STUB.format(summary=head.partition("\n")[0], imports="\n".join(lines))


def stubs() -> dict[Path, str]:
    """The stubs of all packages of operators, by their files."""
    folder = Path(__file__).parents[1]
    names = {p: p.split(".")[1:] for p in PACKAGES}
    return {folder.joinpath(*parts, "__init__.pyi"): stub(p) for p, parts in names.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["--stubs"]:
        for file, content in stubs().items():
            file.write_text(content)
    else:
        sys.stdout.write(reference())
