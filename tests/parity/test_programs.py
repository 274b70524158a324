"""Printed text, inferred struct info, equality and symbolic arithmetic are those of TVM.

``facts.json`` holds what TVM 0.25 says of the corpus (made by ``oracle.py``). KNOWN lists every
difference with its reason; a difference that is not listed fails, and so does a listed one that has
gone. With ``RELAX2XLA_TVM`` set to a Python that has the wheel, the facts themselves are checked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import relax2xla
from relax2xla import analysis, tir
from relax2xla.errors import DiagnosticError
from relax2xla.ir.equal import structural_equal, structural_hash
from relax2xla.script import from_source
from tests.parity import analyses, corpus
from tests.parity.known import (
    KNOWN_ANALYSES,
    KNOWN_PAIRS,
    KNOWN_PROOFS,
    KNOWN_SIMPLIFIED,
    KNOWN_WELL_FORMED,
    TABLE,
    reason,
    reasons,
)

HERE = Path(__file__).parent
FACTS: dict[str, Any] = json.loads((HERE / "facts.json").read_text("utf-8"))
PROGRAMS = corpus.programs()


def text_of(program: corpus.Program) -> str | None:
    """Our text without its header; None where the parser refuses the program."""
    try:
        made = from_source(program.text)
    except DiagnosticError:
        return None
    text = made.script(show_meta=True)
    assert structural_equal(made, from_source(text)), "the text does not give the program back"
    return re.sub(r"^# from .*\n", "", text, flags=re.M).strip("\n")


@cache
def verdicts() -> dict[str, str]:
    """Program to ``same text``, ``both refuse``, ``other text``, ``only TVM/relax2xla refuses``."""
    found: dict[str, str] = {}
    for p in PROGRAMS:
        fact, ours = FACTS["programs"][p.name], text_of(p)
        if isinstance(fact, dict):
            found[p.name] = "both refuse" if ours is None else "only TVM refuses"
        elif ours is None:
            found[p.name] = "only relax2xla refuses"
        else:
            found[p.name] = "same text" if ours == fact else "other text"
    return found


def test_corpus_is_large_and_current() -> None:
    assert len(PROGRAMS) >= 300
    assert set(FACTS["programs"]) == {p.name for p in PROGRAMS}, "run tests/parity/oracle.py again"


@pytest.mark.parametrize("category", sorted({p.category for p in PROGRAMS}))
def test_text_is_that_of_tvm(category: str) -> None:
    names = [p.name for p in PROGRAMS if p.category == category]
    wrong = [
        f"{n}: {v}, {reason(n, v) or 'no reason is listed'}"
        for n in names
        if (v := verdicts()[n]) not in ("same text", "both refuse") and not reason(n, v)
    ]
    assert not wrong, "\n".join(wrong)


def test_each_known_difference_is_one() -> None:
    """Each row's programs differ as it says, all of them, and no row speaks of others."""
    found = {reason(n, v) for n, v in verdicts().items()}
    assert [why for _, why in reasons() if why not in found] == []
    wide = [
        f"{n}: {v}, not {kind} ({why})"
        for kind, names, why in TABLE
        for n, v in verdicts().items()
        if re.match(names, n) and v != kind
    ]
    assert not wide, "\n".join(wide)


def test_analyses_are_those_of_tvm() -> None:
    """Of programs of which TVM has the same text; the other texts have other analyses."""
    different: set[str] = set()
    for p in corpus.written():
        if verdicts()[p.name] != "same text":
            continue
        ours = analyses.of_program(from_source(p.text), analysis, id)
        for function, facts in FACTS["analyses"][p.name].items():
            if not isinstance(facts, dict):
                different |= {f"{p.name} {function}"} if facts != ours[function] else set()
                continue
            different |= {f"{p.name} {k}" for k, v in facts.items() if v != ours[function][k]}
    assert different == set(KNOWN_ANALYSES)


class Making:
    """How we make what ``analyses.verdicts`` asks for; struct infos are known from the start."""

    attrs = dict
    make = relax2xla.IRModule
    named = relax2xla.GlobalVar

    @staticmethod
    def inferred(node: Any, info: Any) -> Any:
        return node


def test_well_formed_is_that_of_tvm() -> None:
    ours = analyses.verdicts(relax2xla, tir, Making)
    facts = FACTS["well_formed"]
    assert ours.keys() == facts.keys()
    assert len(set(ours.values())) == 2
    assert {name for name in ours if ours[name] != facts[name]} == set(KNOWN_WELL_FORMED)


def test_equality_is_that_of_tvm() -> None:
    texts = corpus.edited()
    left = {n: from_source(t) for n, t in texts.items()}
    right = {n: from_source(t) for n, t in texts.items()}
    equal = set(FACTS["equal"])
    different: set[str] = set()
    for a, b in corpus.pairs():
        same = structural_equal(left[a], right[b])
        if same != (f"{a} {b}" in equal):
            different.add(f"{a} {b}")
        if same:
            assert structural_hash(left[a]) == structural_hash(right[b]), (a, b)
    assert different == set(KNOWN_PAIRS)


def terms() -> dict[str, Any]:
    """The terms as symbolic integers."""
    names: dict[str, Any] = {v: tir.Var(v, "int64") for v in "nmkh"}
    for f in ("floordiv", "floormod", "truncdiv", "truncmod", "ceildiv", "max", "min",
              "if_then_else", "Select"):  # fmt: skip
        names[f] = getattr(tir, f)
    return {t: eval(t, {}, names) for t in corpus.TERMS}


def test_simplify_is_that_of_tvm() -> None:
    made = {t: str(tir.simplify(e)) for t, e in terms().items()}
    # TVM writes a literal alone as T.int64(0), of which the facts keep (0).
    facts = {t: re.sub(r"\((-?\d+)\)", r"\1", s) for t, s in FACTS["simplified"].items()}
    assert {t for t in made if made[t] != facts[t]} == set(KNOWN_SIMPLIFIED)


def test_proofs_are_those_of_tvm() -> None:
    made = terms()
    proved = {corpus.proofs()[i] for i in FACTS["proved"]}
    ours = {(a, b) for a, b in corpus.proofs() if tir.can_prove_equal(made[a], made[b])}
    assert not proved - ours, "TVM proves more"
    assert ours - proved == set(KNOWN_PROOFS)


def test_report_is_current() -> None:
    from tests.parity.report import DOCUMENT, document

    counts = Counter((n.split("/")[0], v) for n, v in verdicts().items())
    assert DOCUMENT.read_text("utf-8") == document(counts), "run `python -m tests.parity.report`"


@pytest.mark.skipif(not os.environ.get("RELAX2XLA_TVM"), reason="RELAX2XLA_TVM names no Python")
def test_facts_are_those_of_the_wheel(tmp_path: Path) -> None:
    target = tmp_path / "facts.json"
    command = [os.environ["RELAX2XLA_TVM"], str(HERE / "oracle.py"), str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    assert json.loads(target.read_text("utf-8")) == FACTS
