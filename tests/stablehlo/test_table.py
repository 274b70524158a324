"""The table against jaxlib's own classes of the ops."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from types import ModuleType

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import _chlo_ops_gen, _sdy_ops_gen, _stablehlo_ops_gen

from relax2xla.errors import OpError
from relax2xla.ir import Op, TensorStructInfo, Var
from relax2xla.stablehlo.codecs import CODECS
from relax2xla.stablehlo.infer import RULES
from relax2xla.stablehlo.rows import OPS, chlo
from relax2xla.stablehlo.rows import stablehlo as hlo
from relax2xla.stablehlo.table import BY_MLIR_NAME, TABLE

# Operand segments are attributes of the operation, but not arguments of the class; a resource is
# part of the attribute ``value``.
SEGMENTS = {"operandSegmentSizes", "resultSegmentSizes", "resource"}


# What came after jaxlib 0.10: operations, and attributes of others.
NEW_OPS = {"stablehlo.collective_reduce"}
NEW_ATTRS = {
    "stablehlo.custom_call": {"result_tilings"},
    "stablehlo.collective_broadcast": {"has_dynamic_root"},
    "chlo.top_k": {"is_stable"},
    "sdy.all_reduce": {"reduction_op"},
    "sdy.reduce_scatter": {"reduction_op"},
}


def op_classes(module: ModuleType) -> dict[str, type]:
    return {
        c.OPERATION_NAME: c
        for c in vars(module).values()
        if inspect.isclass(c) and issubclass(c, ir.OpView) and c is not ir.OpView
    }


# A mesh is a symbol of the module, and a terminator is no call.
SHARDY = {n: c for n, c in op_classes(_sdy_ops_gen).items() if n not in ("sdy.mesh", "sdy.return")}
CLASSES = {**op_classes(_stablehlo_ops_gen), **op_classes(_chlo_ops_gen), **SHARDY}


def test_every_op_has_a_row() -> None:
    assert sorted(CLASSES.keys() - BY_MLIR_NAME.keys()) == []
    rows = {n for n in BY_MLIR_NAME if n.startswith(("stablehlo.", "chlo.", "sdy."))}
    assert sorted(rows - CLASSES.keys() - NEW_OPS) == []
    assert len(op_classes(_stablehlo_ops_gen)) >= 117


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_row_is_jaxlibs_class(name: str) -> None:
    row, cls = BY_MLIR_NAME[name], CLASSES[name]
    source = inspect.getsource(cls.__init__)
    attributes = set(re.findall(r'attributes\["(\w+)"\] = ', source))
    older = NEW_ATTRS.get(name, set()) - attributes
    assert row.attrs.keys() - SEGMENTS - older == attributes, "attributes"
    optional = set(re.findall(r'is not None: attributes\["(\w+)"\] = ', source))
    optional |= set(re.findall(r'if bool\(\w+\): attributes\["(\w+)"\] = ', source))
    assert set(row.required) - SEGMENTS == attributes - optional, "required attributes"
    operands = re.findall(
        r"operands\.(append|extend)\((?:_get_op_results_or_values\()?(\w+)", source
    )
    names = tuple(f"*{n}" if kind == "extend" else n for kind, n in operands)
    if not older:  # an operand that may be several now had another name
        assert tuple(o.lstrip("*") for o in row.operands) == tuple(n.lstrip("*") for n in names)
    count, exact = cls._ODS_REGIONS
    assert row.regions == (count if exact else -1), "regions"


def test_codecs_and_rules_exist() -> None:
    for row in TABLE.values():
        assert {c.removeprefix("?") for c in row.attrs.values()} <= CODECS.keys() | {"elements"}
        assert row.infer is None or row.infer in RULES
    assert {r.infer for r in TABLE.values()} - {None} == RULES.keys()


def test_rows_need_no_jaxlib() -> None:
    code = (
        "import sys; from relax2xla.stablehlo import rows;"
        "print([m for m in sys.modules if m.partition('.')[0] in ('jax', 'jaxlib', 'torch')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_names() -> None:
    assert hlo.and_.name == "relax.stablehlo.and_"
    assert hlo.cross_replica_sum.row.mlir_name == "stablehlo.cross-replica-sum"
    assert Op.get("relax.chlo.erf") is chlo.erf is OPS["relax.chlo.erf"]
    with pytest.raises(AttributeError, match="no row 'nothing'"):
        _ = hlo.nothing


def test_calls_say_what_is_wrong() -> None:
    x = Var("x", TensorStructInfo((2, 3), "float32"))
    y = Var("y", TensorStructInfo((3, 2), "float32"))
    with pytest.raises(OpError, match="takes the operands lhs, rhs; got 1"):
        hlo.add(x)
    with pytest.raises(OpError, match="no attribute 'axis'; it has: permutation"):
        hlo.transpose(x, axis=1)
    with pytest.raises(OpError, match="the attribute `permutation` is missing"):
        hlo.transpose(x)
    with pytest.raises(OpError, match="differ in dimension 0: 2 and 3"):
        hlo.add(x, y)
    with pytest.raises(OpError, match="sinfo_args"):
        hlo.reshape(x)
    with pytest.raises(OpError, match=r"R\.const"):
        hlo.add(x, 1.0)
    assert hlo.add(rhs=x, lhs=x).args == (x, x)
