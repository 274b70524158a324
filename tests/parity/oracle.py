"""What TVM says of the corpus. Run by TVM's Python; it reads the corpus and writes facts as JSON.

``python tests/parity/oracle.py FACTS.json``
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import tvm  # pyright: ignore[reportMissingImports]
from tvm import tirx  # pyright: ignore[reportMissingImports]
from tvm.script import from_source  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).resolve().parent))
import analyses
import corpus


def parsed(text: str) -> Any:
    """The module or function, or the first line of the error."""
    try:
        return from_source(text)
    except Exception as e:
        lines = [x for x in str(e).splitlines() if "error:" in x] or [type(e).__name__]
        return lines[-1].split("error:")[-1].strip()[:100]


def survives(text: str) -> bool:
    """Whether TVM lives through the text; some wrong programs end its process."""
    child = os.fork()
    if child == 0:
        os.close(2)
        parsed(text)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def body(text: str) -> str:
    """The text without its header."""
    return re.sub(r"^ *# from .*\n(\s*\n)?", "", text, flags=re.M).strip("\n")


class Making:
    """How TVM makes what ``analyses.verdicts`` asks for."""

    @staticmethod
    def attrs(values: dict[str, Any]) -> Any:
        """Attributes of a function."""
        return tvm.ir.make_node("ir.DictAttrs", **values)

    make = staticmethod(tvm.IRModule)

    @staticmethod
    def inferred(node: Any, info: Any) -> Any:
        """The node, with the struct info that normalising would give it."""
        tvm.relax.expr._update_struct_info(node, info)
        return node

    @staticmethod
    def named(name: str, info: Any) -> Any:
        """A GlobalVar."""
        return Making.inferred(tvm.relax.GlobalVar(name), info)


def main() -> None:
    """Write the facts."""
    programs: dict[str, Any] = {}
    for p in corpus.programs():
        made = parsed(p.text) if survives(p.text) else "TVM crashes"
        programs[p.name] = {"error": made} if isinstance(made, str) else body(made.script())
    analysed = {
        p.name: analyses.of_program(parsed(p.text), tvm.relax.analysis, hash)
        for p in corpus.written()
        if isinstance(programs[p.name], str)
    }
    equal: dict[str, bool] = {}
    made = {name: parsed(text) for name, text in corpus.edited().items()}
    for a, b in corpus.pairs():
        if not isinstance(made[a], str) and not isinstance(made[b], str):
            again = from_source(corpus.edited()[b])
            try:
                tvm.ir.assert_structural_equal(made[a], again)
            except ValueError:
                equal[f"{a} {b}"] = False
            else:
                equal[f"{a} {b}"] = True
    names = {x: tirx.Var(x, "int64") for x in "nmkh"}
    for x in ("floordiv", "floormod", "truncdiv", "truncmod", "ceildiv", "max", "min",
              "if_then_else", "Select"):  # fmt: skip
        names[x] = getattr(tirx, x)
    terms = {t: eval(t, {}, names) for t in corpus.TERMS}
    analyzer = tvm.arith.Analyzer()
    short = {t: str(analyzer.simplify(e)).replace("T.int64", "") for t, e in terms.items()}
    proved = [
        i
        for i, (a, b) in enumerate(corpus.proofs())
        if analyzer.can_prove_equal(terms[a], terms[b])
    ]
    facts = {
        "tvm": tvm.__version__,
        "programs": programs,
        "analyses": analysed,
        "well_formed": analyses.verdicts(tvm.relax, tirx, Making),
        "equal": [k for k, v in equal.items() if v],
        "compared": len(equal),
        "simplified": short,
        "proved": proved,
    }
    Path(sys.argv[1]).write_text(json.dumps(facts, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
