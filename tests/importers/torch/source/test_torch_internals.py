"""What is private to torch stands in one file of the importer: read from its sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4] / "importers/torch"
INTERNALS = ROOT / "source/torch_internals.py"
#: Modules without an underscore that torch documents no more than those with one.
EXPERIMENTAL = ("torch.fx.experimental", "torch._")
#: Names of operators may begin with an underscore.
OPERATORS = ("torch.ops.", "ATEN.", "aten.")
#: Attributes with an underscore that are part of an interface: AOTAutograd asks for the first, the
#: second is Python's, of named tuples.
ASKED_FOR = {"_boxed_call", "_fields"}


def is_private(module: str) -> bool:
    """Whether a dotted name is one that torch does not document."""
    return module.startswith(EXPERIMENTAL) or (
        module.startswith("torch.") and "._" in module and not module.startswith(OPERATORS)
    )


def private_uses(source: str) -> Iterator[tuple[int, str]]:
    """Lines and names of imports and attributes that are private to torch."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            whole = ast.unparse(node)
            own = whole.startswith(("self.", "cls.", *OPERATORS))
            dunder = node.attr.startswith("__") or node.attr in ASKED_FOR
            if not own and not dunder:
                yield node.lineno, whole
            continue
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and str(name.value).startswith("_"):
                if not str(name.value).startswith("__") and name.value not in ASKED_FOR:
                    yield node.lineno, ast.unparse(node)
            continue
        else:
            continue
        yield from ((node.lineno, name) for name in names if is_private(name))


def test_one_file_names_what_is_private_to_torch() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if path != INTERNALS
        for line, name in private_uses(path.read_text("utf-8"))
    ]
    assert not found, "move these to torch_internals.py, with the reason:\n" + "\n".join(found)
    assert len(list(private_uses(INTERNALS.read_text("utf-8")))) > 10


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch._ops import OpOverload",
        "from torch.utils import _pytree as pytree",
        "from torch.fx.experimental.proxy_tensor import make_fx",
        "torch._C._jit()",
        "op._schema",
        "getattr(program, '_guards_code', ())",
    ],
)
def test_a_private_use_is_seen(source: str) -> None:
    assert list(private_uses(source))


@pytest.mark.parametrize(
    "source",
    [
        "import torch.fx",
        "from torch.fx import Node",
        "torch.ops.aten._conj.default",
        "self._made",
        "type(x).__name__",
    ],
)
def test_a_public_use_is_not(source: str) -> None:
    assert not list(private_uses(source))


def test_core_decompositions_have_operators_that_come_later() -> None:
    torch = pytest.importorskip("torch")
    from relax2xla.importers.torch.source.torch_internals import core_decompositions

    before = core_decompositions()
    assert core_decompositions() is before
    assert dict(before).keys() == torch.export.default_decompositions().keys()
    library = torch.library.Library("relax2xla_comes_later", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    twice = torch.ops.relax2xla_comes_later.twice.default
    assert twice not in before
    assert twice in core_decompositions()
