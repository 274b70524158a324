"""Every operator is called by a test of its values, and by random calls, or here is why not.

That each refuses misuse is in test_misuse.py, which goes through the registry by itself.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from relax2xla.ir import Op
from tests.op import (
    test_oracle_index,
    test_oracle_nn,
    test_oracle_shapes,
    test_oracle_vision,
    test_oracle_windows,
    test_oracles,
)

HERE = Path(__file__).parent
# These compare no values.
NO_VALUES = {"test_misuse.py", "test_coverage.py", "test_reference.py"}
# Operators or families, and where and why they are tested elsewhere.
ELSEWHERE = {
    "call_py_func": "tests/vm/code/test_host_work.py: Python functions run on the machine",
    "distributed.call_tir_local_view": "tests/op/test_distributed.py: a PrimFunc of each worker",
    "image.decode": "tests/importers/onnx/test_image.py: the host decodes",
    "maps": "tests/importers/onnx/test_maps.py: dictionaries on the host",
    "sequence": "tests/importers/onnx/test_sequences.py: lists on the host",
    "text": "tests/importers/onnx/test_strings.py: strings on the host",
}

# Operators or families of which no random calls are drawn: why, and which test gives their values.
NOT_DRAWN = {
    **ELSEWHERE,
    "assert_op": "tests/vm/code/test_host_work.py: an effect on the host",
    "builtin.alloc_tensor": "tests/op/test_intrinsic.py: takes a shape alone",
    "call_builtin_with_ctx": "tests/vm/code/test_host_work.py: calls a registered function",
    "call_dps_packed": "tests/vm/code/test_host_work.py: calls a registered function",
    "call_inplace_packed": "tests/vm/code/test_host_work.py: calls a registered function",
    "call_pure_packed": "tests/vm/code/test_host_work.py: calls a registered function",
    "call_tir": "tests/transform/lower/test_kernels.py: calls a function of the module",
    "call_tir_inplace": "tests/transform/lower/test_kernels.py: calls a function of the module",
    "call_tir_with_grad": "tests/transform/grad/test_kernels.py: calls a function of the module",
    "ccl": "tests/op/test_intrinsic.py: one worker; programs of several do not run",
    "distributed": "tests/op/test_distributed.py: needs several devices",
    "grad.differentiate_as": "tests/op/test_grad.py: the value is the operand's",
    "hint_on_device": "tests/op/test_intrinsic.py: the value is the operand's",
    "image.col2im": "tests/op/image/test_patches.py: torch's fold",
    "image.resample": "tests/op/image/test_resampling.py: torch and ONNX's reference",
    "inspect": "tests/op/test_intrinsic.py: a scalar that follows from the type",
    "invoke_closure": "tests/vm/call/test_tvm_methods.py: calls a function of the module",
    "invoke_pure_closure": "tests/vm/code/test_host_work.py: calls a function of the module",
    "make_closure": "tests/vm/call/test_tvm_methods.py: takes a function of the module",
    "memory": "tests/op/test_memory.py: XLA plans memory; a view has few forms",
    "null_value": "tests/op/test_intrinsic.py: no value",
    "number_to_tensor": "tests/op/test_numbers.py: a number, no tensor",
    "print": "tests/vm/code/test_host_work.py: an effect on the host",
    "random_key": "tests/vm/host/test_operators.py: random itself",
    "signal": "tests/op/test_signal.py: numpy's spectra",
    "tensor_to_bits": "tests/op/test_numbers.py: a shape, read on the host",
    "to_vdevice": "tests/op/test_intrinsic.py: the value is the operand's",
    "vm": "tests/op/test_memory.py: XLA plans memory",
}
TABLES = (
    test_oracles.SIMPLE,
    test_oracle_index.INDEXING,
    test_oracle_index.HOSTED,
    test_oracle_nn.NN,
    test_oracle_shapes.MADE,
    test_oracle_shapes.CHANGED,
    test_oracle_vision.IMAGES,
    test_oracle_vision.BOXES,
    test_oracle_windows.CONVOLUTIONS,
    test_oracle_windows.POOLS,
    test_oracle_windows.NORMS,
)


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
    used = {name for table in TABLES for name in table}
    patterns: set[str] = set()
    host = [HERE.parent / "vm" / f for f in ("code/test_host_work.py", "host/test_operators.py")]
    for file in [*HERE.rglob("*.py"), *host]:
        if file.name not in NO_VALUES and "parity" not in file.parts:
            found, more = names_in(ast.parse(file.read_text()))
            used |= found
            patterns |= more
    known = re.compile("|".join(f"(nn\\.)?{p}" for p in patterns))
    names = {n.removeprefix("relax.") for n in Op.list_op_names() if type(Op.get(n)) is Op}
    untested = {n for n in names - used if not known.fullmatch(n)}
    untested = {n for n in untested if n.partition(".")[0] not in ELSEWHERE and n not in ELSEWHERE}
    assert untested == set(), (
        "put them, with their truth, into a table of tests/op/test_oracles.py (or of the other "
        "test_oracle_*.py); what a row cannot say is in the file that mirrors theirs"
    )


def family(name: str) -> str:
    return name.partition(".")[0]


def test_every_operator_is_drawn_at_random() -> None:
    drawn = {name for table in TABLES for name in table}
    names = {n.removeprefix("relax.") for n in Op.list_op_names() if type(Op.get(n)) is Op}
    assert drawn <= names, "a table names what is no operator"
    left = names - drawn
    forgotten = {n for n in left if n not in NOT_DRAWN and family(n) not in NOT_DRAWN}
    assert forgotten == set(), (
        "put them, with their truth, into a table of tests/op/test_oracles.py (or of the other "
        "test_oracle_*.py), or say in NOT_DRAWN which test gives their values"
    )
    # Nothing is excused that is drawn, or that is no operator.
    assert NOT_DRAWN.keys() <= left | {family(n) for n in left}


@pytest.mark.parametrize(("name", "where"), NOT_DRAWN.items(), ids=NOT_DRAWN)
def test_the_tests_elsewhere_name_the_operator(name: str, where: str) -> None:
    text = (HERE.parents[1] / where.partition(":")[0]).read_text()
    assert name.rpartition(".")[2] in text.lower(), where
