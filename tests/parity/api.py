"""Which names of TVM's documentation are here: the mapping of names and the list of later work."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# Homes, the longest prefix first: those of TVM and ours.
HOMES: tuple[tuple[str, str], ...] = (
    ("tvm.relay.analysis", "relax2xla.analysis"),
    ("tvm.relax.testing.nn", "relax2xla.frontend.nn.expr_modules"),
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
# Names that are not here: the prefix, the status, and why. "replaced": something that is no part of
# relax2xla does the same; "not planned": what has no place in a compiler of Relax for XLA.
ELSEWHERE: tuple[tuple[str, str, str], ...] = (
    (
        "tvm.relay",
        "not planned",
        "Relay is gone from TVM; its analyses are those of Relax",
    ),
    ("tvm.relax.frontend.nn.llm", "later", "caches of language models are a later issue"),
    ("tvm.relax.frontend", "later", "the importers' issues"),
    ("tvm.relax.dynamo", "later", "the importers' issues"),
    ("tvm.relax.torch", "later", "the importers' issues"),
    ("tvm.relax.transform", "later", "the issue of passes"),
    ("tvm.relax.VirtualMachine#rpc-dltensor", "not planned", "there is no RPC"),
    ("tvm.relax.VMClosure", "replaced", "a closure is a Python callable"),
    ("tvm.relax.VMFuncScope", "replaced", "a context manager of Python's contextlib"),
    ("tvm.relax.Executable", "replaced", "by VMExecutable, which relax.build gives"),
    ("tvm.relax.expr_functor._PyExprVisitor", "not planned", "a private class of TVM"),
    (
        "tvm.testing",
        "not planned",
        "for programs for TVM only, by `relax2xla.tvm`",
    ),
    ("T", "replaced", "the parser of T.prim_func reads it; elsewhere it has no meaning"),
    ("RB", "not planned", "a parser extension of TVM's own tests (BYOC on `R`)"),
    ("tvm.relax.backend", "not planned", "GPU back ends"),
    ("tvm.runtime.NDArray", "replaced", "jax.Array; numpy and torch arrays are taken, too"),
    ("tvm.runtime.Object", "replaced", "Python's object"),
    ("tvm.runtime.PackedFunc", "replaced", "a Python callable"),
    ("tvm.runtime.BenchmarkResult", "replaced", "what vm.time_evaluator(...)() gives"),
    ("tvm.runtime.Module.time_evaluator", "replaced", "VirtualMachine.time_evaluator"),
    ("tvm.runtime.Module", "replaced", "VMExecutable, which has the compiled programs"),
    ("tvm.runtime", "later", "the runtime's issue"),
    ("tvm.contrib", "not planned", "graph executors are no part of Relax"),
    ("tvm.meta_schedule", "not planned", "meta-schedule"),
    ("tvm.dlight", "not planned", "GPU schedules"),
    ("tvm.String", "replaced", "Python's str"),
    ("tvm.DataType", "replaced", "a dtype is its name, a str; DataType adds its parts"),
    ("tvm.ir.Array", "replaced", "Python's tuple; lists are taken, too"),
    ("tvm.ir.EnvFunc", "replaced", "the registered name, a str of Python's"),
    ("tvm.driver", "not planned", "Relay's driver"),
    ("TVM_", "not planned", "C++ macros"),
    ("onnx.", "replaced", "by the onnx package itself, which the importer reads"),
    ("vm.", "not planned", "builtins of TVM's own virtual machine"),
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


def elsewhere(name: str) -> tuple[str, str] | None:
    """The status of a name that may be absent, and why; None if it may not."""
    for start, status, why in ELSEWHERE:
        if name == start or name.startswith(start if start[-1] in "._" else f"{start}."):
            return status, why
    return None


def parameters(value: Any) -> list[str] | None:
    """Names of parameters without self; None where Python cannot tell.

    An enumeration has one: Python 3.13 shows ``*values`` for those that have no members yet.
    """
    if isinstance(value, type) and issubclass(value, Enum):
        return ["value"]
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return [p.name for p in found if p.name != "self"]


def status(entry: Entry) -> tuple[str, str]:
    """``present``, ``other parameters``, a status of ``ELSEWHERE`` or ``absent``, and a remark.

    A promise in prose (a name with ``#``) is present where tests cover it.
    """
    if entry.kind == "behaviour" or "#" in entry.name:
        found = elsewhere(entry.name) or elsewhere(entry.name.split("#")[0])
        if entry.name in COVER or (cover(entry.name) and found is None):
            return "present", ""
        return found or ("absent", "")
    try:
        value = find(home(entry.name))
    except LookupError:
        return elsewhere(entry.name) or ("absent", "")
    ours = parameters(value)
    wanted = [p.split("=")[0].lstrip("*") for p in entry.params]
    missing = [p for p in wanted if p and ours is not None and p not in ours and p != "span"]
    return ("other parameters", "lacks " + ", ".join(missing)) if missing else ("present", "")
