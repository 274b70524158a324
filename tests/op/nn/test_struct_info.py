"""Inference against TVM 0.25: tvm_struct_info.tsv holds calls and what TVM infers, or "error"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import StructInfo, TensorStructInfo, TupleStructInfo, Var

LINES = Path(__file__).with_name("tvm_struct_info.tsv").read_text().splitlines()[1:]
N, H = tir.Var("n", "int64"), tir.Var("h", "int64")


def t(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def u(ndim: int = -1, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(None, dtype, ndim=ndim))


NAMES = {"op": op, "nn": op.nn, "n": N, "h": H, "t": t, "u": u}
RESULTS = {"Tensor": TensorStructInfo, "Tuple": lambda *f: TupleStructInfo(f), "n": N, "h": H}


def same(a: StructInfo, b: StructInfo) -> bool:
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(map(same, a.fields, b.fields))
    if not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo):
        return False
    if (a.dims is None) != (b.dims is None) or (a.ndim, a.dtype) != (b.ndim, b.dtype):
        return False
    return all(map(tir.can_prove_equal, a.dims or (), b.dims or ()))


@pytest.mark.parametrize("line", LINES)
def test_as_tvm(line: str) -> None:
    call, result = line.split("\t")
    if result == "error":
        with pytest.raises(OpError):
            eval(call, NAMES)
        return
    got = eval(call, NAMES).struct_info
    assert same(got, eval(result.replace("R.", ""), RESULTS)), got
