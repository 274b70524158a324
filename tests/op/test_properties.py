"""Properties of all operators: documented, reachable, light to import; errors say where."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from relax2xla import op
from relax2xla.ir import Op
from relax2xla.op import binary, unary
from tests.op.harness import var_like


def test_every_operator_is_documented_and_reachable():
    for name in Op.list_op_names():
        found = Op.get(name)
        if type(found) is not Op:
            continue  # a row of an MLIR dialect
        assert found.__doc__, f"{name} has no docstring"
        assert len(found.__doc__.split("\n")[0]) > 3
        home: Any = op
        for part in name.split(".")[1:]:
            assert hasattr(home, part), f"{name} is not in relax2xla.op: import it there"
            home = getattr(home, part)


def test_lowerings_have_the_operators_signature():
    for name in Op.list_op_names():
        found = Op.get(name)
        # Of a body that returns both there is one signature.
        if found.lowering is None or found.lowering.__module__ == Op.__module__:
            continue
        code = found.lowering.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        own = list(code.co_varnames[:count])
        expected = [p.name for p in found.params if not p.variadic]
        assert own == expected, name
        assert len(expected) <= 5, f"{name}: a long signature stands once; see Rule in ir/op.py"


@pytest.mark.parametrize("module", [unary, binary])
def test_families_refuse_tuples(module: ModuleType):
    import relax2xla.ir as ir
    from relax2xla.errors import OpError

    empty = ir.Tuple([])
    for made in vars(module).values():
        if isinstance(made, Op):
            operands = [empty if p.kind.operand else "float32" for p in made.params]
            with pytest.raises(OpError, match="must be"):
                made(*operands)


def test_import_is_light():
    heavy = "{'jax', 'jaxlib', 'torch', 'onnx'}"
    code = f"import sys, relax2xla.op; sys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_a_call_says_where_it_went_wrong():
    x = var_like(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="out of range") as error:
        op.sum(x, 7)
    assert 'relax.sum(x: Tensor((2, 3), dtype="float32"), axis=(7,)' in error.value.__notes__[0]
