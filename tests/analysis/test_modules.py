"""The verdicts of ``modules.py``: those that TVM 0.25 refuses, and where this library is stricter.

They come from ``python tests/analysis/modules.py`` in TVM's Python.
"""

from __future__ import annotations

import pytest

import relax2xla
from relax2xla import ir, tir
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TVMError
from tests.analysis.modules import build, verdict

TVM_REFUSES = """
scope: use before definition
scope: free variable
scope: free variable in a call
scope: bound twice
scope: parameter bound again
scope: parameter twice
scope: bound in two blocks
scope: branch variable after
scope: branch variable in the other
scope: local function's parameter after
scope: local function's variable after
scope: value uses its own variable
dataflow: variable is the result
dataflow: variable after the block
dataflow: variable in the next block
dataflow: variable bound outside
dataflow: variable bound and used outside
dataflow: parameter
dataflow: branch inside
dataflow: impure call
anf: nested call
anf: nested in a tuple
anf: tuple as an argument
anf: result is a call
anf: result is an If
anf: condition computes
anf: sequence is bound
anf: function as an argument
anf: branch ends in a call
purity: packed in pure
purity: print in pure
purity: impure local function called
purity: packed in a branch
purity: pure local function is impure
symbols: undefined in a parameter
symbols: undefined in a variable
symbols: undefined in a shape
symbols: undefined in a scalar
symbols: undefined in the result
symbols: cast to an expression
symbols: of a cast in the result
symbols: of a branch after it
symbols: used before the cast
symbols: undefined in sinfo_args
info: wrong shape
info: wrong dtype
info: wrong rank
info: wrong kind
info: stronger
info: none on a variable
info: too many arguments
info: operator with two operands too many
module: wrong global_symbol
module: function not there
module: calls itself
module: shared variable
module: shared symbolic variable
""".strip().splitlines()

# Passes of this library rely on these, so they are checked; TVM lets them pass.
STRICTER = {
    "scope: same variable in both branches": "v is defined more than once",
    "anf: cast of a call": "match_cast takes a variable or constant",
    "info: cast to other than declared": "is cast to",
    "info: condition is no bool": "must be a 0-d bool tensor",
}
# Refused as soon as they are built.
EAGER = {
    "info: too many arguments": "takes 1 arguments; got 2",
    "info: operator with two operands too many": "takes 1 operands; got 2",
}
CASES = build(relax2xla, tir, ir)


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str) -> None:
    good = verdict(CASES[name], check_well_formed) is True
    assert good is (name not in TVM_REFUSES and name not in STRICTER)


@pytest.mark.parametrize(("name", "reason"), [*STRICTER.items(), *EAGER.items()])
def test_reason(name: str, reason: str) -> None:
    with pytest.raises(TVMError) as e:
        check_well_formed(CASES[name]())
    assert reason in str(e.value)


def test_there_are_enough() -> None:
    assert len(TVM_REFUSES) >= 50
    assert set(TVM_REFUSES) <= set(CASES)
