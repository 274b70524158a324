"""Every operator is called by a test of its values, or is listed here with the reason why not.

That each refuses misuse is in test_misuse.py, which goes through the registry by itself.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from relax2xla.ir import Op

HERE = Path(__file__).parent
# These compare no values.
NO_VALUES = {"test_misuse.py", "test_coverage.py", "test_reference.py"}
# Operators or families, and where and why they are tested elsewhere.
ELSEWHERE = {
    "call_py_func": "tests/vm/test_regions.py: Python functions run on the machine",
    "distributed.call_tir_local_view": "tests/op/test_distributed.py: a PrimFunc of each worker",
    "image.decode": "tests/importers/onnx/test_image.py: the host decodes",
    "maps": "tests/importers/onnx/test_maps.py: dictionaries on the host",
    "sequence": "tests/importers/onnx/test_sequences.py: lists on the host",
    "text": "tests/importers/onnx/test_strings.py: strings on the host",
}


def names_in(tree: ast.AST) -> tuple[set[str], set[str]]:
    """What a file calls ``op.nn.conv2d`` or names in a string, and patterns of f-strings."""
    found: set[str] = set()
    patterns: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(node.value.removeprefix("relax.").split())
        elif isinstance(node, ast.JoinedStr):
            fixed = [v.value if isinstance(v, ast.Constant) else None for v in node.values]
            if any(isinstance(v, str) and len(v) > 3 for v in fixed):
                parts = [re.escape(v) if isinstance(v, str) else r"\w*" for v in fixed]
                patterns.add("".join(parts))
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if path and isinstance(node, ast.Name):
            path.insert(0, node.id)
        found.update(".".join(path[i:]) for i in range(len(path)))
    return found, patterns


def test_every_operator_has_a_test_of_values() -> None:
    used: set[str] = set()
    patterns: set[str] = set()
    for file in [*HERE.rglob("*.py"), *(HERE.parent / "vm").glob("test_host*.py")]:
        if file.name not in NO_VALUES and "parity" not in file.parts:
            found, more = names_in(ast.parse(file.read_text()))
            used |= found
            patterns |= more
    known = re.compile("|".join(f"(nn\\.)?{p}" for p in patterns))
    names = {n.removeprefix("relax.") for n in Op.list_op_names() if type(Op.get(n)) is Op}
    untested = {n for n in names - used if not known.fullmatch(n)}
    untested = {n for n in untested if n.partition(".")[0] not in ELSEWHERE and n not in ELSEWHERE}
    assert untested == set()


def test_the_tests_elsewhere_exist() -> None:
    for where in ELSEWHERE.values():
        assert (HERE.parents[1] / where.partition(":")[0]).is_file(), where
