"""Regular expressions in time that is linear in the text, whatever the pattern.

Patterns come from files, and Python's ``re`` takes exponential time for some. These are matched as
a whole by following all ways through the pattern at once. Syntax and semantics: RE2's (classes such
as ``\\w`` are ASCII, ``$`` is the end of the text), without Unicode classes (``\\p``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from relax2xla.errors import CallError

Ranges = tuple[tuple[str, str], ...]

# Instructions of one pattern, repetitions written out; groups within groups; RE2's repetitions.
SIZE = 20_000
DEPTH = 200
REPEAT = 1000
LAST = chr(0x10FFFF)

DIGIT: Ranges = (("0", "9"),)
SPACE: Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
WORD: Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
CLASSES: dict[str, Ranges] = {"d": DIGIT, "s": SPACE, "w": WORD}
POSIX: dict[str, Ranges] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": DIGIT,
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


def _inverse(ranges: Ranges) -> Ranges:
    """All characters but these."""
    made: list[tuple[str, str]] = []
    start = 0
    for low, high in sorted(ranges):
        if ord(low) > start:
            made.append((chr(start), chr(ord(low) - 1)))
        start = max(start, ord(high) + 1)
    if start <= ord(LAST):
        made.append((chr(start), LAST))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Flags:
    """``fold``: without case, ``all``: . takes new lines, ``lines``: ^ and $ of lines."""

    fold: bool = False
    all: bool = False
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these ranges."""

    ranges: Ranges
    negated: bool = False
    fold: bool = False

    def takes(self, c: str) -> bool:
        """Whether ``c`` is one of them."""
        forms = {c, c.lower(), c.upper()} if self.fold else (c,)
        forms = {f for f in forms if len(f) == 1}
        return self.negated != any(a <= f <= b for f in forms for a, b in self.ranges)


@dataclass(frozen=True, slots=True)
class Place:
    """A condition on the characters before and behind ("" at the ends)."""

    holds: Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Join:
    """One after the other."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of them."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``low`` to ``high`` times, None: any number."""

    part: Any
    low: int
    high: int | None


def _is_word(c: str) -> bool:
    return bool(c) and any(a <= c <= b for a, b in WORD)


PLACES: dict[str, Place] = {
    "A": Place(lambda before, behind: not before),
    "z": Place(lambda before, behind: not behind),
    "b": Place(lambda before, behind: _is_word(before) != _is_word(behind)),
    "B": Place(lambda before, behind: _is_word(before) == _is_word(behind)),
    "^": Place(lambda before, behind: before in ("", "\n")),
    "$": Place(lambda before, behind: behind in ("", "\n")),
}


class _Parser:
    """Recursive descent, as deep as groups are nested."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at, self.depth = pattern, 0, 0
        self.flags = Flags()

    def fail(self, what: str) -> CallError:
        return CallError(f"the pattern {self.text!r} is not valid: {what} at {self.at}")

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        found = self.peek(text)
        self.at += len(text) * found
        return found

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.fail("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def whole(self) -> Any:
        made = self.either()
        if self.at < len(self.text):
            raise self.fail("a ) without (")
        return made

    def either(self) -> Any:
        flags = self.flags
        parts = [self.join()]
        while self.take("|"):
            parts.append(self.join())
        self.flags = flags
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def join(self) -> Any:
        parts: list[Any] = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            if self.take("\\Q"):
                end = self.text.find("\\E", self.at)
                quoted = self.text[self.at : end if end >= 0 else None]
                self.at += len(quoted) + 2 * (end >= 0)
                parts += [self.char(c) for c in quoted]
                if quoted:
                    parts.append(self.repeated(parts.pop()))
                continue
            parts.append(self.repeated(self.atom()))
        return Join(tuple(parts))

    def repeated(self, part: Any) -> Any:
        count = self.count()
        if count is None:
            return part
        self.take("?")  # as few as possible: the same texts match
        if self.count() is not None:
            raise self.fail("a repetition of a repetition")
        return Repeat(part, *count)

    def count(self) -> tuple[int, int | None] | None:
        for sign, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return count
        end = self.text.find("}", self.at)
        if not self.peek("{") or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high) or not low.isascii():
            return None  # a brace like any other character
        self.at = end + 1
        least = int(low[:6])
        most = (int(high[:6]) if high else None) if comma else least
        if max(least, most or 0) > REPEAT or (most is not None and most < least):
            raise self.fail(f"the repetition {low}{comma}{high}")
        return least, most

    def char(self, c: str) -> Chars:
        return Chars(((c, c),), fold=self.flags.fold)

    def atom(self) -> Any:
        c = self.next()
        if c == "(":
            return self.group()
        if c == "[":
            return self.set()
        if c == ".":
            return Chars((), True) if self.flags.all else Chars((("\n", "\n"),), True)
        if c == "^":
            return PLACES["^" if self.flags.lines else "A"]
        if c == "$":
            return PLACES["$" if self.flags.lines else "z"]
        if c in "*+?":
            raise self.fail("a repetition of nothing")
        if c != "\\":
            return self.char(c)
        if self.at < len(self.text) and self.text[self.at] in "AzbB":
            return PLACES[self.next()]
        return Chars(*self.escape(), fold=self.flags.fold)

    def escape(self) -> tuple[Ranges, bool]:
        c = self.next()
        if c.lower() in CLASSES:
            return CLASSES[c.lower()], c.isupper()
        if c == "x":
            digits = self.next()
            if digits == "{":
                end = self.text.find("}", self.at)
                digits, self.at = self.text[self.at : max(end, self.at)], end + 1
            else:
                digits += self.next()
            try:
                made = chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self.fail(f"the character \\x{digits}") from None
        elif c in CONTROL:
            made = CONTROL[c]
        elif c.isalnum() and c.isascii():
            raise self.fail(f"\\{c} is not supported")
        else:
            made = c
        return ((made, made),), False

    def set(self) -> Chars:
        negated = self.take("^")
        ranges: list[tuple[str, str]] = []
        first = True
        while first or not self.take("]"):
            first = False
            if self.take("[:"):
                name, _, _ = self.text[self.at :].partition(":]")
                other, name = name.startswith("^"), name.removeprefix("^")
                if name not in POSIX:
                    raise self.fail(f"the class [:{name}:]")
                self.at += len(name) + other + 2
                ranges += _inverse(POSIX[name]) if other else POSIX[name]
                continue
            c = self.next()
            low, other = self.escape() if c == "\\" else (((c, c),), False)
            if len(low) == 1 and low[0][0] == low[0][1] and self.peek("-") and not self.peek("-]"):
                self.next()
                c = self.next()
                high, other = self.escape() if c == "\\" else (((c, c),), False)
                if other or len(high) != 1 or high[0][0] < low[0][0]:
                    raise self.fail("the range of characters")
                low = ((low[0][0], high[0][0]),)
            ranges += _inverse(low) if other else low
        return Chars(tuple(ranges), negated, self.flags.fold)

    def group(self) -> Any:
        flags = self.flags
        if self.take("?"):
            if self.take("P<") or (self.peek("<") and not self.peek("<=") and not self.peek("<!")):
                self.take("<")
                name, end, _ = self.text[self.at :].partition(">")
                if not end or not name.isidentifier():
                    raise self.fail("the name of a group")
                self.at += len(name) + 1
            elif not self.options():
                return Join(())
        self.depth += 1
        if self.depth > DEPTH:
            raise self.fail(f"groups are nested more than {DEPTH} deep")
        made = self.either()
        if not self.take(")"):
            raise self.fail("a ( without )")
        self.depth -= 1
        self.flags = flags
        return made

    def options(self) -> bool:
        """(?i) for what follows, which gives False, or (?i:...)."""
        on, names = True, {"i": "fold", "s": "all", "m": "lines"}
        values = {n: getattr(self.flags, n) for n in names.values()}
        while (c := self.next()) not in ":)":
            if c == "-" and on:
                on = False
            elif c in names:
                values[names[c]] = on
            else:
                raise self.fail(f"(?{c} is not supported")
        self.flags = Flags(**values)
        return c == ":"


@dataclass(slots=True)
class Pattern:
    """A program: ``tests``: what each instruction asks, ``after``: those behind it.

    An instruction that asks nothing goes on at once; the last one is the match.
    """

    tests: list[Chars | Place | None] = field(default_factory=list[Chars | Place | None])
    after: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])

    def add(self, test: Chars | Place | None, after: tuple[int, ...]) -> int:
        """A new instruction; gives its place."""
        if len(self.tests) >= SIZE:
            raise CallError(f"the pattern has more than {SIZE} parts, repetitions written out")
        self.tests.append(test)
        self.after.append(after)
        return len(self.tests) - 1

    def before(self, node: Any, then: int) -> int:
        """Instructions for ``node``, after which ``then`` follows; gives the first one."""
        match node:
            case Join(parts):
                for part in reversed(parts):
                    then = self.before(part, then)
                return then
            case Either(parts):
                return self.add(None, tuple(self.before(p, then) for p in parts))
            case Repeat(part, low, high):
                if high is None:
                    again = self.add(None, ())
                    self.after[again] = (self.before(part, again), then)
                    then = again
                else:
                    end = then
                    for _ in range(high - low):
                        then = self.add(None, (self.before(part, then), end))
                for _ in range(low):
                    then = self.before(part, then)
                return then
            case _:
                return self.add(node, (then,))

    def fullmatch(self, text: str) -> bool:
        """Whether all of ``text`` matches."""
        now = self._reached([len(self.tests) - 1], "", text[:1])
        for i, c in enumerate(text):
            if not now:
                return False
            ahead: list[int] = []
            for at in now:
                test = self.tests[at]
                if isinstance(test, Chars) and test.takes(c):
                    ahead += self.after[at]
            now = self._reached(ahead, c, text[i + 1 : i + 2])
        return 0 in now

    def _reached(self, starts: Iterable[int], before: str, behind: str) -> set[int]:
        """What can be come to without a character."""
        seen = set(starts)
        stack = list(seen)
        while stack:
            at = stack.pop()
            test = self.tests[at]
            if test is None or (isinstance(test, Place) and test.holds(before, behind)):
                new = [n for n in self.after[at] if n not in seen]
                seen.update(new)
                stack += new
        return seen


@functools.lru_cache(maxsize=64)
def compiled(pattern: str) -> Pattern:
    """The program of a pattern. CallError for one that is not valid, or too large."""
    tree = _Parser(pattern).whole()
    made = Pattern()
    end = made.add(None, ())
    first = made.before(tree, end)
    made.add(None, (first,))
    return made
