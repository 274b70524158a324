"""The layers of docs/architecture.md, checked by reading the imports of every source file.

A module may import its own layer and the layers below it. An import inside a function counts as
well, unless DEFERRED names it; one under ``if TYPE_CHECKING:`` is free, except in STRICT rooms and
that FRAMEWORKS and PRIVATE hold everywhere. Rooms that do not exist yet need no entry removed.

Files import each other in no circle, at any depth, save those of CIRCLES; TYPE_CIRCLES are closed
by imports for types only. To cut one: what both need goes into a file below, or the lower one calls
a ``Late`` (``relax2xla/late.py``) that the upper one gives.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# From the bottom to the top. The longest name that fits decides: `dpl.rewrite` is not in the layer
# of `dpl`. The empty name is the package's own __init__, which shows all below it.
# `python -m tests.test_layers` writes the table of docs/architecture.md.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("dtypes", "processor", "budget", "late", "syntax", "version"),
    ("kernels",),
    ("tir",),
    ("ir",),
    ("stablehlo",),
    ("op", "stablehlo.loops"),
    ("builder",),
    ("script", "dpl", "op_attributes"),
    ("te",),
    ("topi",),
    ("analysis",),
    ("transform", "expr_functor", "instrument"),
    ("dpl.rewrite", "dpl.tidy"),
    ("runtime", "target"),
    ("transform.fusion",),
    ("vm.host",),
    ("vm.pjrt",),
    ("vm.observe",),
    ("vm.code",),
    ("vm.call",),
    ("vm.save",),
    ("vm.plan",),
    ("vm", "nd"),
    ("kv_state",),
    ("training",),
    ("", "error", "testing", "utils"),
    ("importers",),
    ("frontend", "interop", "onnx_backend"),
    ("tvm",),
    ("cli", "__main__"),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

# Imports at call time that go up, each with its reason: (importing room, imported room).
DEFERRED = {
    ("tir", "ir"): "PrimFunc.struct_info and types of variables are Relax's",
    ("tir", "script"): "PrimFunc.script() and .show() print TVMScript; buffers have its methods",
    ("ir", "script"): "IRModule.script(), .show() and repr() print TVMScript",
    ("ir", "op"): "calls on distributed tensors ask for the rules of sharding",
    ("ir", "op_attributes"): "Op.set_attr is register_op_attr",
    ("ir", "runtime"): "derive_func of FuncStructInfo names a registered function",
    ("ir", "transform"): "Function.inline_functions is a pass on one function",
    ("script", "target"): "T.target stands among a function's attributes",
    ("te", "topi"): "operators of te's tensors that broadcast are topi's",
    ("transform", "testing"): "FoldConstant runs what it folds",
    ("dpl", "dpl.rewrite"): "rewriters are passes, patterns are what passes are made of",
    ("script", "dpl.rewrite"): "@R.rewriter makes one",
    ("builder", "te"): "emit_te and call_te take functions of te",
    ("runtime", "vm.save"): "runtime.load_module() is relax2xla.load_module()",
    ("runtime", "vm.pjrt"): "vm.builtin.to_device puts an array on a device",
    ("transform", "interop"): "Gradient asks JAX for gradients that are no expressions here",
    ("", "importers"): "relax2xla.load() takes a file of any supported kind",
}

# Where this project has primitives of JAX.
_PRIMITIVES = ("vm.pjrt.jit", "vm.pjrt.held", "vm.pjrt.own_derivatives", "vm.pjrt.wide_derivatives")
# Who may import what, at any depth. An empty tuple: nobody.
FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "jax._src": (),
    "jaxlib": ("stablehlo", "vm.pjrt"),
    "jax.extend": ("stablehlo", "vm.pjrt.xla", *_PRIMITIVES),
    "jax.interpreters": ("stablehlo", *_PRIMITIVES),
    "torch": ("importers", "cli", "frontend.nn.torch"),
    "onnx": ("importers", "cli"),
    "onnxruntime": ("cli",),
}
# Rooms that consist of layers, each file in one. Imports for types count as all others, so that
# there are no circles between files of different layers.
STRICT = ("vm",)
# Files that import each other in a circle, each with what forces it. Empty is the aim.
CIRCLES = {
    (
        "ir.expr",
        "ir.struct_info",
        "ir.tensor_fields",
        "ir.types",
    ): "each expression has struct info, "
    "and a tensor's struct info has a shape, which is an expression: so Relax is defined",
    (
        "tir.function",
        "tir.kernel.specialize",
        "tir.stmt_functor",
    ): "PrimFunc.specialize is TVM's method, and its work is a rewriting of PrimFuncs",
}
# Inside one room, closed by imports under TYPE_CHECKING: nothing is loaded in a circle.
TYPE_CIRCLES = {
    ("dpl.pattern", "dpl.relations"): "patterns make relations, which are of patterns",
    ("script.functions", "script.macros"): "a macro is expanded by the parser that meets it",
    ("transform.core.passes", "transform.core.registry"): "the registry holds classes of passes",
    ("vm.plan.intrinsics", "vm.plan.lower"): "intrinsics write into the Lowerer that meets them",
    ("importers.onnx.engine.context", "importers.onnx.engine.objects"): "a context knows of which "
    "kind objects are, and rules of objects get the context",
    ("importers.torch.engine.control", "importers.torch.engine.graph_walk"): "control flow goes on "
    "with the walk that meets it",
}
# Importers use public names only, whatever the layer.
PRIVATE = ("importers",)


class Import(NamedTuple):
    """One imported name: ``kind`` is 'module', 'function', 'typing' (under TYPE_CHECKING), or
    'literal': the module that a call of ``importlib.import_module`` names."""

    target: str
    line: int
    kind: str


def within(name: str, rooms: tuple[str, ...]) -> bool:
    """Is the dotted ``name`` one of ``rooms``, or inside one of them?"""
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def room_of(name: str) -> str | None:
    """The entry of LAYERS that the dotted name (without ``relax2xla.``) belongs to."""
    parts = name.split(".") if name else []
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((p for p in prefixes if p in RANK), None if name else "")


def sources(root: Path) -> dict[str, Path]:
    """Dotted module name below ``relax2xla`` ('' is its __init__) to file."""
    found = {}
    for folder, prefix in ((root / "relax2xla", ()), (root / "importers", ("importers",))):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if prefix or parts[0] != "importers":  # the symlink shows importers/ again
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                found[".".join((*prefix, *parts))] = path
    return found


def _imported(node: ast.AST) -> str | None:
    """The module that ``importlib.import_module("a.b")`` names."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]
        ):
            return name
        case _:
            return None


@cache
def imports(name: str, path: Path) -> tuple[Import, ...]:
    """Every import of one file; ``from a import b`` gives ``a.b``. Relative ones are resolved."""
    return tuple(_imports(name, path))


def _imports(name: str, path: Path) -> Iterator[Import]:
    module = ["relax2xla", *name.split(".")] if name else ["relax2xla"]
    package = module if path.name == "__init__.py" else module[:-1]
    todo: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text("utf-8")), "module")]
    while todo:
        node, kind = todo.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, kind) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = [*base, node.module] if node.module else base
            yield from (Import(".".join([*base, a.name]), node.lineno, kind) for a in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += [(child, "typing") for child in node.body]
            todo += [(child, kind) for child in node.orelse]
        elif isinstance(node, ast.Call) and (literal := _imported(node)):
            yield Import(literal, node.lineno, "literal")
            todo += [(child, kind) for child in ast.iter_child_nodes(node)]
        else:
            inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            new = "function" if inner and kind == "module" else kind
            todo += [(child, new) for child in ast.iter_child_nodes(node)]


def violations(root: Path) -> list[str]:
    """Every import in ``root`` that breaks a rule, as ``file:line: reason``."""
    files = sources(root)
    found = []
    for name, path in files.items():
        here = room_of(name)
        where = path.relative_to(root)
        if here is None or (here in STRICT and name != here):
            found.append(f"{where}:1: {name} is in no layer; give it one in LAYERS")
            continue
        for target, line, kind in sorted(imports(name, path), key=lambda found: found.line):
            for framework, allowed in FRAMEWORKS.items():
                if within(target, (framework,)) and not within(name, allowed):
                    found.append(f"{where}:{line}: {framework} is not to be imported here")
            if not within(target, ("relax2xla",)):
                continue
            tail = target.removeprefix("relax2xla").removeprefix(".")
            if within(name, PRIVATE) and not within(tail, PRIVATE) and "._" in f".{tail}":
                found.append(f"{where}:{line}: {target} is a private name")
            # `from relax2xla import x`: x is a module, or a name that the __init__ shows.
            is_module = tail in files or tail in RANK
            there = room_of(tail if is_module else tail.rpartition(".")[0])
            if there is None:
                found.append(f"{where}:{line}: {target} is in no layer")
            elif (kind == "typing" and not within(name, STRICT)) or (
                kind in ("function", "literal") and (here, there) in DEFERRED
            ):
                continue
            elif RANK[there] > RANK[here]:
                found.append(f"{where}:{line}: {here or 'relax2xla'} must not import {target}")
    return found


def test_the_tree_keeps_its_layers() -> None:
    assert violations(ROOT) == []


# -- circles ---------------------------------------------------------------------------------------
Graph = dict[str, set[str]]


def graph(root: Path, *, types: bool = False) -> Graph:
    """Which files each file imports. With ``types``, those for types too, within each room only:
    the package's own __init__ shows names of all rooms to type checkers.
    """
    files = sources(root)
    found: Graph = {name: set() for name in files}
    for name, path in files.items():
        for target, _, kind in imports(name, path):
            tail = target.removeprefix("relax2xla").removeprefix(".")
            home = tail if tail in files else tail.rpartition(".")[0]
            if not within(target, ("relax2xla",)) or home not in files or home == name:
                continue
            near = name.partition(".")[0] == home.partition(".")[0]
            if near if types else kind != "typing" and (near or kind != "literal"):
                found[name].add(home)
    return found


def circles(imported: Graph) -> list[tuple[str, ...]]:
    """The largest groups of files each of which reaches all the others."""
    left = {name: set(others) for name, others in imported.items()}
    while ends := {n for n, others in left.items() if not others & left.keys()}:
        left = {n: others for n, others in left.items() if n not in ends}
    reached: Graph = {}
    for name in left:
        todo, seen = [name], set[str]()
        while todo:
            new = left[todo.pop()] & left.keys() - seen
            seen |= new
            todo += new
        reached[name] = seen
    found = {tuple(sorted({o for o in reached[n] if n in reached[o]})) for n in left}
    return sorted(group for group in found if group)


def test_files_import_each_other_in_no_circle() -> None:
    assert circles(graph(ROOT)) == sorted(CIRCLES)


def test_circles_closed_by_imports_for_types_are_known() -> None:
    assert circles(graph(ROOT, types=True)) == sorted({**CIRCLES, **TYPE_CIRCLES})


def test_which_circles_are_found(tmp_path: Path) -> None:
    later = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from relax2xla.op import {}\n"
    write(
        tmp_path,
        {
            "relax2xla/__init__.py": "",
            "relax2xla/ir/__init__.py": "from relax2xla.ir.expr import Expr",
            "relax2xla/ir/expr.py": "from . import info",
            "relax2xla/ir/info.py": "def f():\n    from relax2xla.ir.lattice import join",
            "relax2xla/ir/lattice.py": "import relax2xla.ir.expr",
            "relax2xla/ir/module.py": "from relax2xla.ir.expr import Expr",
            "relax2xla/tir/a.py": 'import importlib as i\ni.import_module("relax2xla.tir.b")',
            "relax2xla/tir/b.py": "from relax2xla.tir import a",
            "relax2xla/te.py": "from relax2xla.topi import f",
            "relax2xla/topi.py": "def f():\n    import relax2xla.te",
            "relax2xla/op/__init__.py": "",
            "relax2xla/op/unary.py": later.format("binary"),
            "relax2xla/op/binary.py": "from relax2xla.op import unary",
        },
    )
    run = [("ir.expr", "ir.info", "ir.lattice"), ("te", "topi"), ("tir.a", "tir.b")]
    assert circles(graph(tmp_path)) == run
    assert circles(graph(tmp_path, types=True)) == [run[0], ("op.binary", "op.unary"), run[2]]


# -- docs/architecture.md --------------------------------------------------------------------------
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: python -m tests.test_layers -->\n", "<!-- end of rooms -->\n"


def rooms(root: Path) -> list[tuple[int, str, str]]:
    """Layer, path and first sentence of every room, from the bottom to the top.

    A room is an entry of LAYERS, or a package within one.
    """
    files = sources(root)
    packages = {name for name, path in files.items() if path.name == "__init__.py"}
    found = []
    for name in {*RANK, *packages}:
        room = room_of(name)
        assert room is not None, f"{name} is in no layer; give it one in LAYERS"
        assert name in files, f"LAYERS names {name}, and there is no such file"
        path = files[name]
        place = path.parent if path.name == "__init__.py" else path
        shown = place.relative_to(root).as_posix() + ("/" if place.is_dir() else "")
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert text, f"{shown} has no docstring that says what it holds"
        first = " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
        found.append((RANK[room], shown, first.replace("``", "`")))
    return sorted(found)


def page(root: Path) -> str:
    """docs/architecture.md with the table of the tree as it is."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    lines = ["| layer | room | what it holds |", "|---|---|---|"]
    lines += [f"| {rank} | `{path}` | {text} |" for rank, path, text in rooms(root)]
    return before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


def test_the_map_is_that_of_the_tree() -> None:
    assert PAGE.read_text("utf-8") == page(ROOT), "run python -m tests.test_layers"


def write(root: Path, files: dict[str, str]) -> None:
    """A fake tree: path to content."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")


def test_what_is_allowed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "relax2xla/__init__.py": "from .errors import E as E",
            "relax2xla/errors.py": "",
            "relax2xla/ir/__init__.py": "from .expr import Var",
            "relax2xla/ir/expr.py": "from .. import errors\nfrom ..errors import E\nimport numpy",
            "relax2xla/ir/module.py": "def f():\n    from relax2xla.script import show",
            "relax2xla/script/__init__.py": "from relax2xla import ir",
            "relax2xla/op/unary.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from relax2xla.builder import BlockBuilder\n",
            "relax2xla/builder.py": "",
            "relax2xla/stablehlo/emit.py": "def f():\n    from jaxlib.mlir import ir\nimport jax",
            "relax2xla/vm/__init__.py": "from relax2xla.vm.plan.build import build",
            "relax2xla/vm/pjrt/xla.py": "import jax.extend.core",
            "relax2xla/vm/call/machine.py": "from relax2xla.vm.pjrt import xla",
            "relax2xla/vm/save/writer.py": "from relax2xla.vm.call.machine import VirtualMachine",
            "relax2xla/runtime/modules.py": "def f():\n    from relax2xla.vm.save import reader",
            "relax2xla/vm/plan/build.py": "from relax2xla.vm.save.writer import collect",
            "importers/torch/__init__.py": "import torch\nfrom relax2xla import Var, op\n"
            "from relax2xla.importers._names import Names\nfrom .._names import Names",
            "importers/_names.py": "",
        },
    )
    assert violations(tmp_path) == []


def test_what_is_found(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "relax2xla/errors.py": "import relax2xla.dtypes",
            "relax2xla/dtypes.py": "import torch.nn",
            "relax2xla/ir/expr.py": "def f():\n    from ..topi import add",
            "relax2xla/ir/module.py": "from ..script import show",
            "relax2xla/transform/lower/legalize.py": "from jaxlib.mlir import ir\n"
            "from jax import extend",
            "relax2xla/script/__init__.py": "from relax2xla import Var",
            "relax2xla/vm/pjrt/xla.py": "from jax._src import core",
            "relax2xla/vm/call/machine.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import jaxlib\nelse:\n    import relax2xla.cli",
            "relax2xla/vm/call/executable.py": "def f():\n"
            "    from relax2xla.vm.save.writer import collect",
            "relax2xla/vm/save/writer.py": "from relax2xla.vm.call.executable import Executable",
            "relax2xla/vm/code/builtins.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from relax2xla.vm.plan import regions",
            "relax2xla/vm/plan/regions.py": "",
            "relax2xla/vm/attic/old.py": "from relax2xla.vm.attic import older",
            "relax2xla/cli/__init__.py": "",
            "relax2xla/garage.py": "",
            "importers/onnx.py": "from relax2xla.ir._core import Var\nfrom relax2xla.op import _u",
        },
    )
    assert violations(tmp_path) == [
        "relax2xla/dtypes.py:1: torch is not to be imported here",
        "relax2xla/errors.py:1: errors must not import relax2xla.dtypes",
        "relax2xla/garage.py:1: garage is in no layer; give it one in LAYERS",
        "relax2xla/ir/expr.py:2: ir must not import relax2xla.topi.add",
        "relax2xla/ir/module.py:1: ir must not import relax2xla.script.show",
        "relax2xla/script/__init__.py:1: script must not import relax2xla.Var",
        "relax2xla/transform/lower/legalize.py:1: jaxlib is not to be imported here",
        "relax2xla/transform/lower/legalize.py:2: jax.extend is not to be imported here",
        "relax2xla/vm/attic/old.py:1: vm.attic.old is in no layer; give it one in LAYERS",
        "relax2xla/vm/call/executable.py:2: vm.call must not import "
        "relax2xla.vm.save.writer.collect",
        "relax2xla/vm/call/machine.py:3: jaxlib is not to be imported here",
        "relax2xla/vm/call/machine.py:5: vm.call must not import relax2xla.cli",
        "relax2xla/vm/code/builtins.py:3: vm.code must not import relax2xla.vm.plan.regions",
        "relax2xla/vm/pjrt/xla.py:1: jax._src is not to be imported here",
        "importers/onnx.py:1: relax2xla.ir._core.Var is a private name",
        "importers/onnx.py:2: relax2xla.op._u is a private name",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(ROOT), "utf-8")
