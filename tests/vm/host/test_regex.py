"""Regular expressions against Python's ``re``, where both mean the same; and how long they take."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla.errors import CallError
from relax2xla.vm.host.regex import compiled

# Python's ``re`` takes \\Z for RE2's \\z, and ASCII classes with a flag.
PLACES = ["^", r"\b"]
ATOMS = st.sampled_from(
    [*PLACES, "a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", "[a-c0-9_]", "(a|b)", "(?:ab|)", "-"]
)
COUNTS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])
PARTS = st.tuples(ATOMS, COUNTS).map(lambda p: p[0] if p[0] in PLACES else p[0] + p[1])
JOINED = st.lists(PARTS, max_size=4).map("".join)
PATTERNS = st.recursive(
    JOINED,
    lambda inner: st.one_of(
        st.tuples(inner, COUNTS).map(lambda p: f"({p[0]}){p[1]}"),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(PATTERNS, st.lists(st.text("ab1 -c", max_size=6), max_size=6))
def test_patterns_mean_what_they_mean_to_python(pattern: str, texts: list[str]) -> None:
    theirs = re.compile(pattern, re.ASCII)
    ours = compiled(pattern)
    for text in texts:
        assert ours.fullmatch(text) == bool(theirs.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)",
            "account@gmail.com",
            "account@hotmail.com",
        ),
        (r"(?i)ab(?-i:C)", "AbC", "abc"),
        (r"(?i:x)y", "Xy", "XY"),
        (r"(?s).", "\n", ""),
        (r".", "x", "\n"),
        (r"(?m)a$\nb", "a\nb", "ab"),
        (r"a$", "a", "a\n"),
        (r"[[:alpha:]_-]+", "a_-Z", "a1"),
        (r"[[:^digit:]]", "x", "1"),
        (r"[]^a-]+", "]^a-", "b"),
        (r"[\D]", "x", "1"),
        (r"\x41\x{1F600}\t", "A\U0001f600\t", "A"),
        (r"\Qa.b\E*", "a.bbb", "aab"),
        (r"(?P<name>x)(?<other>y)", "xy", "x"),
        (r"\w", "a", "é"),
        (r"é+", "éé", "e"),
        (r"a{,2}", "a{,2}", "aa"),
        (r"\Aa\z", "a", "b"),
    ],
)
def test_syntax_of_re2(pattern: str, yes: str, no: str) -> None:
    assert compiled(pattern).fullmatch(yes)
    assert not compiled(pattern).fullmatch(no)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "[a", "a**", "*a", r"\1", "(?=a)", "(?<=a)", "(?<!a)", r"\pL", "[z-a]"),
        *("a{2,1}", "a{1001}", "((a{900}){900})", "(" * 300 + ")" * 300, "(?x)a", "\\"),
        *("[[:no:]]", r"\x{110000}"),
    ],
)
def test_what_is_not_valid_is_an_error(pattern: str) -> None:
    with pytest.raises(CallError):
        compiled(pattern)


def test_no_pattern_takes_exponential_time() -> None:
    """Each would take Python's ``re`` longer than the world has stood."""
    for pattern in ("(a+)+b", "(a|aa)+b", "(a*)*b", "(.*)(.*)(.*)(.*)b", "((a?){9}){9}b"):
        assert not compiled(pattern).fullmatch("a" * 200)
