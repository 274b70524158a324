"""What ONNX or torch calls by an operator's name becomes that operator, or here is why not.

So who adds an operator is sent to its converters: a composition that they had before computes the
same, but passes see many operators for one.
"""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
import torch

from relax2xla.ir.traits import Broadcasting, Channelwise, Pointwise
from relax2xla.op.__main__ import operators

IMPORTERS = Path(__file__).parents[2] / "importers"
EXCUSED = {
    "onnx": {
        "nn.dropout": "the mode of training is an operand",
        "nn.prelu": "the slopes broadcast",
        "nn.selu": "both constants are attributes",
        "nn.softplus": "without a threshold",
    },
    "torch": {
        "dequantize": "of torch's quantized tensors",
        "nn.dropout": "draws random numbers",
    },
}


def _key(name: str) -> str:
    return name.replace("_", "").lower()


def _known() -> dict[str, set[str]]:
    """The names of the sources' operators, as keys."""
    schemas = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    aten = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]
    return {
        "onnx": set(map(_key, schemas)),
        "torch": {_key(n.removeprefix("aten::").partition(".")[0]) for n in aten},
    }


@pytest.mark.parametrize("source", EXCUSED)
def test_converters_make_the_operator_of_that_name(source: str) -> None:
    code = "\n".join(p.read_text() for p in sorted((IMPORTERS / source).rglob("*.py")))
    names = _known()[source]
    missing = set[str]()
    for made in operators():
        short = made.name.removeprefix("relax.")
        alike = any(map(made.has, (Pointwise, Broadcasting, Channelwise)))
        if alike and _key(short.rpartition(".")[2]) in names:
            call = re.escape(short)
            if re.search(rf"\bR\.{call}\b|[\"']{call}[\"']", code) is None:
                missing.add(short)
    excused = EXCUSED[source]
    assert missing <= excused.keys(), (
        f"{source} has operators of the names {sorted(missing - excused.keys())}: let their "
        f"converters in importers/{source} make R.NAME, or say here why not"
    )
    assert excused.keys() <= missing, "nothing is excused that is made"
