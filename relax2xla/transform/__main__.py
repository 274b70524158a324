"""``python -m relax2xla.transform``: docs/passes.md and ``__init__.pyi``, from the registry."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from relax2xla.transform.core import Pass, PassContext
from relax2xla.transform.core.registry import all_passes

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


def summary(p: type[Pass]) -> str:
    """The first sentence of its docstring, as Markdown."""
    doc = inspect.cleandoc(p.__doc__ or "").partition("\n\n")[0]
    doc = re.sub(r":(?:func|class|mod):`[~.]*([\w.]+)`", r"`\1`", doc.replace("``", "`"))
    return " ".join(re.split(r"(?<=[.])\s", doc)[0].split())


def page() -> str:
    """docs/passes.md."""
    lines = [HEAD, "| pass | level | stage | requires | ensures | |", "|---|---|---|---|---|---|"]
    for name, p in all_passes().items():
        info = p.info
        stage = f"{info.stage}, {info.platform}" if info.platform else info.stage
        stage += ", needed" if info.needed else ""
        given, made = (", ".join(f.name for f in fs) for fs in (info.requires, info.ensures))
        said = summary(p).replace("|", "\\|")
        lines.append(f"| `{name}` | {info.opt_level} | {stage} | {given} | {made} | {said} |")
    facts = {f.name: f for p in all_passes().values() for f in (*p.info.requires, *p.info.ensures)}
    lines += ["", *(f"- *{name}*: {facts[name].meaning}." for name in sorted(facts))]
    lines += ["", "## Keys of `config`", ""]
    lines += [f"- `{key}`, {what}." for key, what in PassContext.list_configs().items()]
    return "\n".join(lines) + "\n"


def stub() -> str:
    """``__init__.pyi``: the imports of ``__init__.py``, the passes and the pipelines."""
    source = Path(__file__).with_name("__init__.py").read_text("utf-8")
    own = [x for x in source.splitlines() if re.match(r"from .* import (\w+) as \1$", x)]
    homes = {name: p.__module__ for name, p in all_passes().items()}
    homes |= dict.fromkeys(("Pipeline", "get_pipeline"), "relax2xla.transform.pipeline")
    own += [f"from {home} import {name} as {name}" for name, home in homes.items()]
    return "\n".join(sorted(own, key=lambda line: (line.split()[1], line))) + "\n"


FILES = {ROOT / "docs/passes.md": page, Path(__file__).with_name("__init__.pyi"): stub}

if __name__ == "__main__":
    for path, made in FILES.items():
        path.write_text(made(), "utf-8")
