"""``relax2xla opt``: passes by name, over a module of any format."""

from __future__ import annotations

import difflib
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax2xla import transform
from relax2xla.cli.commands.convert import described, told_written
from relax2xla.cli.commands.inspect import weights
from relax2xla.cli.process.console import note, print_json, status
from relax2xla.cli.reading.model import load_model, parse_shapes
from relax2xla.cli.reading.weights import read_weights
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, form_of, render, write_program
from relax2xla.ir import IRModule
from relax2xla.transform.core import Pass, PassContext, PassInfo, PassInstrument
from relax2xla.transform.core.context import CHECK
from relax2xla.transform.core.registry import all_passes, takes_arguments
from relax2xla.transform.pipeline import PIPELINES

# What --print-before and --print-after take beside names.
ALL: Final = "all"


def run_opt(
    file: Path,
    passes: Sequence[str],
    output: Path | None,
    print_before: Sequence[str],
    print_after: Sequence[str],
    check: bool,
    trust: bool,
    shape: Sequence[str],
    as_json: bool = False,
) -> None:
    """Run ``passes`` on ``file``; write the module to ``output``, or as Relax text to stdout."""
    chosen = [p for words in passes for p in parse_passes(words)]
    before, after = _shown(print_before, "--print-before"), _shown(print_after, "--print-after")
    form = "relax"
    if output is not None:
        form = form_of(output)
        check_target(output, file)
    mod = load_model(file, trust, parse_shapes(shape))
    watch = _Watch(before, after)
    context = PassContext(instruments=[watch], config={CHECK: check})
    with status("running passes"), context:
        for p in chosen:
            mod = p(mod)
    if missing := [n for n in (*before, *after) if n != ALL and n not in watch.seen]:
        note(f"warning: {', '.join(missing)} did not run; there ran {', '.join(watch.seen)}")
    passed = {"file": str(file), "passes": watch.done}
    if output is None and as_json:
        text = render(mod, form).decode()
        print_json({**passed, "text": text})
        return
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(render(mod, form))
        sys.stdout.buffer.flush()
        return
    written, beside = write_program(mod, output, form)
    held = weights(list(mod.relax_functions().values()))
    told_written(output, written, held, beside)
    if as_json:
        print_json({**passed, **described(output, form, written, held, beside)})


def parse_passes(text: str) -> list[Pass]:
    """The passes of ``a,b,c``; TVMError with all names for one that does not exist."""
    words = [w.strip() for w in text.split(",")]
    if not all(words):
        raise TVMError(f"--passes {text!r}: expected names with commas between\n{_known()}")
    return [_make(w) for w in words]


def _make(word: str) -> Pass:
    name, equals, argument = word.partition("=")
    name = _full_name(name, "--passes")
    if name in WITH_ARGUMENT:
        return WITH_ARGUMENT[name](word, argument)
    if equals:
        takers = " and ".join(WITH_ARGUMENT)
        raise TVMError(f"--passes {word}: {name} takes no argument; only {takers} do")
    if name in PIPELINES:
        return transform.get_pipeline(name)
    if takes_arguments(all_passes()[name]):
        raise TVMError(
            f"--passes {word}: {name} takes arguments that no text says; call "
            f"relax2xla.transform.{name}(...) from Python"
        )
    return all_passes()[name]()


def _bind_params(word: str, file: str) -> Pass:
    """The parameters of main that have the names of arrays in ``file`` become these."""
    if not file:
        raise TVMError(f"--passes {word}: a file of weights is named as {word}=weights.safetensors")
    return transform.BindParams("main", {**read_weights(Path(file))})


def _convert_layout(word: str, layouts: str) -> Pass:
    data, slash, kernel = (layouts or "NHWC/HWIO").partition("/")
    fits = slash and sorted(data) == sorted("NCHW") and sorted(kernel) == sorted("OIHW")
    if not fits:
        raise TVMError(
            f"--passes {word}: the layouts of activations and kernels are written as "
            "ConvertLayout=NHWC/HWIO"
        )
    return transform.ConvertLayout({"relax.nn.conv2d": [data, kernel]})


def _bind_symbolic_vars(word: str, sizes: str) -> Pass:
    """Symbolic variables of all functions become the sizes written behind their names."""
    pairs = [text.partition("=") for text in sizes.split("/")]
    if not all(name and size.isdigit() for name, _, size in pairs):
        raise TVMError(f"--passes {word}: sizes are written as BindSymbolicVars=n=3/m=4")
    return transform.BindSymbolicVars({name: int(size) for name, _, size in pairs})


def _legalize_ops(word: str, to: str) -> Pass:
    """Operators become rows, or calls of loop-level functions."""
    if to not in ("", "rows", "kernels"):
        raise TVMError(f"--passes {word}: write LegalizeOps, or LegalizeOps=kernels")
    return transform.LegalizeOps(to=to or "rows")


# Passes that take an argument, from what was written and what stands behind the "=".
WITH_ARGUMENT: Final[dict[str, Callable[[str, str], Pass]]] = {
    "BindParams": _bind_params,
    "BindSymbolicVars": _bind_symbolic_vars,
    "ConvertLayout": _convert_layout,
    "LegalizeOps": _legalize_ops,
}


def _full_name(word: str, option: str) -> str:
    """The pass that ``word`` names, whatever its case and hyphens: legalize-ops is LegalizeOps."""
    by_plain = {_plain(n): n for n in names()}
    if _plain(word) in by_plain:
        return by_plain[_plain(word)]
    close = difflib.get_close_matches(_plain(word), list(by_plain), 1)
    hint = f"; did you mean {by_plain[close[0]]}?" if close else "."
    raise TVMError(f"{option}: there is no pass {word!r}{hint}\n{_known()}")


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def names() -> list[str]:
    """Every pass and every pipeline."""
    return [*all_passes(), *PIPELINES]


def _known() -> str:
    # In lines, since the command line cuts long ones.
    return textwrap.fill(f"There are {', '.join(names())}", 100, subsequent_indent="  ")


def _shown(words: Sequence[str], option: str) -> list[str]:
    given = [w.strip() for word in words for w in word.split(",")]
    return [ALL if n == ALL else _full_name(n, option) for n in given]


@dataclass(slots=True)
class _Running:
    """A pass that has begun."""

    start: float
    mod: IRModule


class _Watch(PassInstrument):
    """Sees every pass: prints modules where asked, and a line when it is done."""

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        self.print_before = set(before)
        self.print_after = set(after)
        self.seen: list[str] = []
        self.running: list[_Running] = []
        #: What each pass did, in the order in which they ended; those inside of others, deeper.
        self.done: list[dict[str, Any]] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print, and start the clock."""
        if info.name not in self.seen:
            self.seen.append(info.name)
        if self.print_before & {info.name, ALL}:
            note(f"# ---- before {info.name}\n{mod.script()}")
        self.running.append(_Running(time.perf_counter(), mod))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Say what the pass did, and print."""
        began = self.running.pop()
        took = 1e3 * (time.perf_counter() - began.start)
        indent = "  " * len(self.running)
        before, after = _bindings(began.mod), _bindings(mod)
        changed = mod is not began.mod
        did = f"{before} -> {after} bindings{'' if changed else ', unchanged'}"
        self.done.append(
            {"name": info.name, "depth": len(self.running), "changed": changed}
            | {"bindings_before": before, "bindings_after": after, "ms": took}
        )
        note(f"{indent}{info.name}: {did}, {took:.1f} ms")
        if self.print_after & {info.name, ALL}:
            note(f"# ---- after {info.name}\n{mod.script()}")


def _bindings(mod: IRModule) -> int:
    return sum(len(b.bindings) for f in mod.relax_functions().values() for b in f.body.blocks)
