"""What TVM infers for the calls of cases.py; run by an interpreter that has TVM 0.25.

Reads a JSON list of calls from standard input, writes one JSON string for each: the printed struct
info, or "error". It may die on the way: TVM does, of some calls.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tvm import relax, tirx  # pyright: ignore[reportMissingImports]


def names() -> dict[str, Any]:
    """What the texts of the calls use."""

    def t(*shape: Any, dtype: str = "float32") -> Any:
        return relax.Var("x", relax.TensorStructInfo(shape, dtype))

    def u(ndim: int = -1, dtype: str = "float32") -> Any:
        return relax.Var("x", relax.TensorStructInfo(dtype=dtype, ndim=ndim))

    return {
        "op": relax.op,
        "t": t,
        "u": u,
        "s": lambda *d: relax.ShapeExpr(d),
        "su": lambda ndim=-1: relax.Var("s", relax.ShapeStructInfo(ndim=ndim)),
        "c": relax.const,
        "p": relax.PrimValue,
        "dt": relax.DataTypeImm,
        "tup": lambda *f: relax.Tuple(f),
        **{v: tirx.Var(v, "int64") for v in ("n", "m", "h")},
    }


def main() -> None:
    env = names()
    for text in json.load(sys.stdin):
        builder = relax.BlockBuilder()
        try:
            made = builder.normalize(eval(text, env))
            result = str(made.struct_info).replace("R.", "").replace("T.int64", "")
        except Exception:
            result = "error"
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
