"""Which names of TVM's documentation are here: the mapping of names and the list of later work."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# Homes, the longest prefix first: those of TVM and ours.
HOMES: tuple[tuple[str, str], ...] = (
    ("tvm.relay.analysis", "relax2xla.analysis"),
    ("tvm.relax", "relax2xla"),
    ("tvm", "relax2xla"),
)
# Names that move: to another home, or to what a name of a type means here.
MOVED: dict[str, str] = {
    "tvm.ir.op.Op": "relax2xla.ir.Op",
    "tvm._ffi.base.TVMError": "relax2xla.TVMError",
    "tvm.relax.GlobalVar": "relax2xla.GlobalVar",
    "tvm.relax.frontend.torch.fx.TorchFXImporter": "relax2xla.frontend.torch.TorchFXImporter",
}
# Later or other work: the prefix of names, and why.
LATER: tuple[tuple[str, str], ...] = (
    ("tvm.relay", "Relay is gone from TVM; of it `post_order_visit` and `free_vars` are here"),
    ("tvm.relax.frontend.nn", "the nn front end is a later issue"),
    ("tvm.relax.training", "training is a later issue"),
    ("tvm.relax.transform.Gradient", "training is a later issue"),
    ("tvm.relax.frontend", "the importers' issues"),
    ("tvm.relax.dynamo", "the importers' issues"),
    ("tvm.relax.torch", "the importers' issues"),
    ("tvm.relax.transform", "the issue of passes"),
    ("tvm.relax.VMInstrumentReturnKind", "VM internals"),
    ("tvm.relax.VMExecutable", "VM internals"),
    ("tvm.relax.VirtualMachine", "VM internals"),
    ("tvm.relax.ExecBuilder", "VM internals"),
    ("tvm.relax.VMClosure", "VM internals"),
    ("tvm.relax.VMFuncScope", "VM internals"),
    ("tvm.relax.Executable", "VM internals"),
    ("tvm.relax.expr_functor._PyExprVisitor", "a private class of TVM"),
    ("tvm.relax.testing", "the nn front end is a later issue"),
    ("tvm.testing", "helpers of TVM's own tests"),
    ("T", "statements of loop-level functions are kept as text; they come with TIR"),
    ("RB", "a parser extension of TVM's own tests (BYOC on `R`)"),
    ("tvm.relax.backend", "GPU back ends"),
    ("tvm.te", "te comes with TIR"),
    ("tvm.topi", "te comes with TIR"),
    ("tvm.tir", "TIR execution"),
    ("tvm.runtime", "the runtime's issue"),
    ("tvm.contrib", "graph executors are no part of Relax"),
    ("tvm.meta_schedule", "meta-schedule"),
    ("tvm.dlight", "GPU schedules"),
    ("tvm.String", "Python's str"),
    ("tvm.DataType", "a dtype is its name here, a str"),
    ("tvm.ir.Array", "Python's tuple"),
    ("tvm.ir.EnvFunc", "the registered name, a str"),
    ("tvm.driver", "Relay's driver"),
    ("TVM_", "C++ macros"),
    ("onnx.", "the onnx package's own behaviour; the importer's issue"),
    ("vm.", "builtins of TVM's own virtual machine"),
)


class Entry(NamedTuple):
    """One name of the documentation: its parameters, and what it is ("method", "class", ...)."""

    name: str
    kind: str
    params: tuple[str, ...]


def entries() -> Iterator[Entry]:
    """The copied list of names, one a line: name, kind, parameters."""
    for line in (HERE / "names.tsv").read_text("utf-8").splitlines():
        name, kind, params = line.split("\t")
        yield Entry(name, kind, tuple(params.split()))


def home(name: str) -> str:
    """The dotted name under which ``name`` is here, if it is."""
    if name in MOVED:
        return MOVED[name]
    for theirs, ours in HOMES:
        if name == theirs or name.startswith(f"{theirs}."):
            return ours + name[len(theirs) :]
    return name


def cover(name: str) -> tuple[str, ...]:
    """The tests of what ``name`` promises: of the name itself, else of what has it."""
    while name:
        if name in COVER:
            return COVER[name]
        name = name.rpartition("#" if "#" in name else ".")[0]
    return ()


def _cover() -> dict[str, tuple[str, ...]]:
    lines = (HERE / "cover.tsv").read_text("utf-8").splitlines()
    return {name: tuple(tests.split()) for name, tests in (x.split("\t") for x in lines)}


COVER = _cover()


def find(dotted: str) -> Any:
    """The object of a dotted name; LookupError if there is none."""
    module, *rest = dotted.split(".")
    if module != "relax2xla":
        raise LookupError(dotted)
    value: Any = importlib.import_module(module)
    for i, part in enumerate(rest):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join([module, *rest[: i + 1]]))
            except ImportError:
                raise LookupError(dotted) from None
    return value


def used() -> Iterator[tuple[str, int]]:
    """Names that three or more of TVM's graph-level test files use, and how many do."""
    for line in (HERE / "used.tsv").read_text("utf-8").splitlines():
        name, files = line.split("\t")
        yield name, int(files)


SCRIPT = {"R": "relax", "T": "tir", "I": "ir"}


def home_of_used(name: str) -> str:
    """The dotted name here of a name in programs, where R, T and I are namespaces."""
    room, _, rest = name.partition(".")
    return f"relax2xla.script.{SCRIPT[room]}.{rest}" if room in SCRIPT else home(name)


def later(name: str) -> str:
    """Why a name may be absent; empty if it may not."""
    return next(
        (
            why
            for start, why in LATER
            if name == start or name.startswith(start if start[-1] in "._" else f"{start}.")
        ),
        "",
    )


def parameters(value: Any) -> list[str] | None:
    """Names of parameters without self; None where Python cannot tell."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return [p.name for p in found if p.name != "self"]


def status(entry: Entry) -> tuple[str, str]:
    """``present``, ``other parameters``, ``later`` or ``absent``, and a remark.

    A promise in prose (a name with ``#``) is present where tests cover it.
    """
    if entry.kind == "behaviour" or "#" in entry.name:
        why = later(entry.name.split("#")[0])
        if entry.name in COVER or (cover(entry.name) and not why):
            return "present", ""
        return ("later", why) if why else ("absent", "")
    try:
        value = find(home(entry.name))
    except LookupError:
        why = later(entry.name)
        return ("later", why) if why else ("absent", "")
    ours = parameters(value)
    wanted = [p.split("=")[0].lstrip("*") for p in entry.params]
    missing = [p for p in wanted if p and ours is not None and p not in ours and p != "span"]
    return ("other parameters", "lacks " + ", ".join(missing)) if missing else ("present", "")
