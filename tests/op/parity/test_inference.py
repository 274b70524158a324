"""Inference of every operator against TVM 0.25, over calls of a table.

``tvm.json`` holds what TVM said, so that the comparison runs everywhere. Where the environment
variable ``RELAX2XLA_TVM_PYTHON`` names an interpreter that has TVM, it is asked again, and with
``RELAX2XLA_RECORD`` set as well the file is written anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from relax2xla import ir, op, tir
from relax2xla.errors import TVMError
from tests.op.parity.cases import calls

HERE = Path(__file__).parent
TABLE = HERE / "tvm.json"
TVM = os.environ.get("RELAX2XLA_TVM_PYTHON", "")
# Calls by the reason for which inference differs from TVM on purpose.
REASONS: dict[str, list[str]] = json.loads((HERE / "differences.json").read_text())
DIFFERENCES = {text: reason for reason, texts in REASONS.items() for text in texts}
SYMBOLS = {v: tir.Var(v, "int64") for v in ("n", "m", "h")}


def t(*shape: Any, dtype: str = "float32") -> ir.Var:
    return ir.Var("x", ir.TensorStructInfo(shape, dtype))


def u(ndim: int = -1, dtype: str = "float32") -> ir.Var:
    return ir.Var("x", ir.TensorStructInfo(None, dtype, ndim=ndim))


NAMES: dict[str, Any] = {
    "op": op,
    "t": t,
    "u": u,
    "s": lambda *d: ir.ShapeExpr(d),
    "su": lambda ndim=-1: ir.Var("s", ir.ShapeStructInfo(ndim=ndim)),
    "c": ir.const,
    "p": ir.PrimValue,
    "dt": ir.DataTypeImm,
    "tup": lambda *f: ir.Tuple(f),
    **SYMBOLS,
}


def shape_info(dims: Any = None, ndim: int = -1) -> ir.StructInfo:
    return ir.ShapeStructInfo(dims, ndim)


RESULTS: dict[str, Any] = {
    "Tensor": lambda shape=None, dtype="", ndim=-1: ir.TensorStructInfo(shape, dtype, ndim=ndim),
    "Tuple": lambda *f: ir.TupleStructInfo(f),
    "Shape": shape_info,
    "Prim": lambda dtype=None, value=None: ir.PrimStructInfo(dtype, value),
    "Object": ir.ObjectStructInfo(),
    "max": tir.max,
    "min": tir.min,
    "T": tir,
    "s": ir.Var("s", ir.ShapeStructInfo(ndim=-1)),
    **SYMBOLS,
}


def same(a: ir.StructInfo, b: ir.StructInfo) -> bool:
    if isinstance(a, ir.TupleStructInfo) and isinstance(b, ir.TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(map(same, a.fields, b.fields))
    if isinstance(a, ir.TensorStructInfo) and isinstance(b, ir.TensorStructInfo):
        if isinstance(b.shape, ir.Var) and isinstance(a.shape, ir.Var):
            return a.dtype == b.dtype
        if (a.dims is None) != (b.dims is None) or (a.ndim, a.dtype) != (b.ndim, b.dtype):
            return False
        return all(map(tir.can_prove_equal, a.dims or (), b.dims or ()))
    if isinstance(a, ir.ShapeStructInfo) and isinstance(b, ir.ShapeStructInfo):
        if (a.values is None) != (b.values is None) or a.ndim != b.ndim:
            return False
        return all(map(tir.can_prove_equal, a.values or (), b.values or ()))
    return type(a) is type(b)


def ours(text: str) -> ir.StructInfo | str:
    """The struct info of a call, or "error" for an error of this library."""
    try:
        return eval(text, NAMES).struct_info
    except (TVMError, TypeError):  # a Python TypeError is what a wrong signature raises
        return "error"


def difference(text: str, theirs: str) -> str | None:
    """What differs from TVM, in words."""
    if theirs == "crash":
        return None
    got = ours(text)
    try:
        want = theirs if theirs in ("error", "Object") else eval(theirs, RESULTS)
    except TVMError:
        want = "nonsense, such as a negative dimension"
    if isinstance(got, str) or isinstance(want, str):
        agree = theirs == "Object" and isinstance(got, ir.ObjectStructInfo)
        return None if got == want or agree else f"{text}: {got}, TVM {theirs}"
    return None if same(got, want) else f"{text}: {got}, TVM {theirs}"


def recorded() -> dict[str, str]:
    return json.loads(TABLE.read_text())


def ask(texts: list[str]) -> dict[str, str]:
    """What TVM says of each call; "crash" where its process dies."""
    said: dict[str, str] = {}
    while texts:
        done = subprocess.run(
            [TVM, str(HERE / "oracle.py")],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        said.update(zip(texts, answers, strict=False))
        if len(answers) < len(texts):
            said[texts[len(answers)]] = "crash"
        texts = texts[len(answers) + 1 :]
    return said


@pytest.mark.skipif(not TVM, reason="RELAX2XLA_TVM_PYTHON names no interpreter with TVM")
def test_the_record_is_what_tvm_says():
    said = ask(list(calls()))
    if os.environ.get("RELAX2XLA_RECORD"):
        TABLE.write_text(json.dumps(said, indent=0) + "\n")
    assert said == recorded()


def test_every_call_is_recorded():
    assert set(recorded()) == set(calls())
    assert len(recorded()) > 1000


def test_inference_is_that_of_tvm():
    wrong = [
        d
        for text, theirs in recorded().items()
        if text not in DIFFERENCES and (d := difference(text, theirs)) is not None
    ]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong)


def test_differences_are_real():
    table = recorded()
    same_again = [text for text in DIFFERENCES if difference(text, table[text]) is None]
    assert not same_again, "no difference any more:\n" + "\n".join(same_again)
