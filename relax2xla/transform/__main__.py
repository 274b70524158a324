"""``python -m relax2xla.transform``: docs/passes.md and ``__init__.pyi``, from the registry."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from relax2xla.transform.core import Pass, PassContext
from relax2xla.transform.core.registry import OTHERS, all_passes

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD = """# Passes

Every pass of `relax2xla.transform`, from the registry; `python -m relax2xla.transform` writes this
page. CONTRIBUTING.md says how to add one.

```python
from relax2xla.transform import FoldBatchNorm, PassContext

mod = FoldBatchNorm()(mod)
with PassContext(disabled_pass=["ExpandDepthwise"]):
    executable = relax2xla.build(mod)
```

A pass gives a new module, and never changes the one that it is given; where it has nothing to
change it gives that very module back, so instruments see whether it did anything
(`PassTimingInstrument` and `relax2xla opt` say so). `relax2xla opt model.onnx --pass NAME` runs
one.

- **kind**: *real* passes do what they say; an *identity* takes TVM's arguments and gives the module
  back, since XLA or `build` does what it is for; a *refused* one raises an error that says what to
  use instead.
- **level**: from which `PassContext(opt_level=)` a pipeline runs the pass; 2 is the default.
- **stage**: `module` passes see the module as it is. `static` passes work on static shapes: the
  virtual machine runs those of the pipeline on each function that it specialises for the shapes of
  a call, on the platform that is named (on any where none is). Instruments see a module of that
  function alone.
- **needed**: steps of `build`, or of the way to StableHLO, without which there is no program: they
  always run there, and `build` refuses a context that disables one. A `Sequential` of yours leaves
  them out if you say so.
- **requires**, **ensures**: what holds of the module before and after, beside that it is well
  formed. `PassContext(config={"relax2xla.check": True})` checks all that at each pass; the error
  names the pass.

## The context of an executable

`build` keeps its context with the executable, and `export_library` saves it: the level, and which
passes are disabled and required, hold as well for the functions that the machine specialises later,
in any thread and after the context is left. `config` is kept in memory alone. The context around a
call adds to that: its instruments see the passes that run, and what it disables does not run (a
program that is compiled already stays). `LiftWeights` can be disabled, too: weights are then
constants of the program.

## All passes
"""

MEASURED = """## Measured

Small networks before and after a pass: milliseconds of a call on XLA:CPU, on two cores of a shared
server, each pair in one run (`python -m benchmarks pass_networks`). A pass whose name is missing
here is for other passes, for smaller programs, or for programs that TVM has made.
"""


def summary(p: type[Pass]) -> str:
    """The first sentence of its docstring, as Markdown."""
    doc = inspect.cleandoc(p.__doc__ or "").partition("\n\n")[0]
    doc = re.sub(r":(?:func|class|mod):`[~.]*([\w.]+)`", r"`\1`", doc.replace("``", "`"))
    return " ".join(re.split(r"(?<=[.])\s", doc)[0].split())


def figures(p: type[Pass]) -> str | None:
    """What its docstring says behind ``Measured:``, as Markdown."""
    for paragraph in inspect.cleandoc(p.__doc__ or "").split("\n\n"):
        if paragraph.startswith("Measured: "):
            return " ".join(paragraph.removeprefix("Measured: ").replace("``", "`").split())
    return None


def page() -> str:
    """docs/passes.md."""
    lines = [HEAD, "| pass | kind | level | stage | requires | ensures | |"]
    lines.append("|---" * 7 + "|")
    for name, p in all_passes().items():
        info = p.info
        stage = f"{info.stage}, {info.platform}" if info.platform else info.stage
        stage += ", needed" if info.needed else ""
        given, made = (", ".join(f.name for f in fs) for fs in (info.requires, info.ensures))
        said = summary(p).replace("|", "\\|")
        row = f"| `{name}` | {p.kind} | {info.opt_level} | {stage} | {given} | {made} | {said} |"
        lines.append(row)
    facts = {f.name: f for p in all_passes().values() for f in (*p.info.requires, *p.info.ensures)}
    lines += ["", *(f"- *{name}*: {facts[name].meaning}." for name in sorted(facts))]
    lines += ["", MEASURED, "| pass | before, after |", "|---|---|"]
    said = {name: figures(p) for name, p in all_passes().items()}
    lines += [f"| `{name}` | {what} |" for name, what in said.items() if what is not None]
    lines += ["", "## Keys of `config`", ""]
    lines += [f"- `{key}`, {what}." for key, what in PassContext.list_configs().items()]
    return "\n".join(lines) + "\n"


def stub() -> str:
    """``__init__.pyi``: the imports of ``__init__.py``, the passes and what is beside them."""
    source = Path(__file__).with_name("__init__.py").read_text("utf-8")
    own = [x for x in source.splitlines() if re.match(r"from .* import (\w+) as \1$", x)]
    homes = {name: p.__module__ for name, p in all_passes().items()}
    homes |= OTHERS
    own += [f"from {home} import {name} as {name}" for name, home in homes.items()]
    lines = sorted(own, key=lambda line: (line.split()[1], line))
    return "".join(map(_wrapped, lines))


def _wrapped(line: str) -> str:
    """An import as ruff's format has it."""
    home, _, names = line.partition(" import ")
    return f"{line}\n" if len(line) <= 100 else f"{home} import (\n    {names},\n)\n"


FILES = {ROOT / "docs/passes.md": page, Path(__file__).with_name("__init__.pyi"): stub}

if __name__ == "__main__":
    for path, made in FILES.items():
        path.write_text(made(), "utf-8")
