"""Damage: bytes, text and JSON with something changed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Final

NUMBERS: Final = (
    *("-1", "0", "1", "2", "3", "7", "64", "4096", "2147483647", "2147483648", "-2147483648"),
    *("4294967296", "4611686018427387904", "9223372036854775807", "-9223372036854775808"),
    *("9223372036854775808", "18446744073709551616", "1e400", "nan", "0.5"),
)
JUNK: Final = "%<>x0 f:{}[]()\"@#\0é\n'\\,=-"
VALUES: Final = (
    *(None, True, False, 0, 1, -1, 2, 3, 1.5, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30),
    *("", "x", "main", "float32", "../x", "é", [], {}, [0], [[]], {"a": 1}, [1, 2, 3]),
)
_NUMBER: Final = re.compile(r"(?<![\w%#@])-?\d+(?![\w.])")
_WORD: Final = re.compile(r"[%@#!]?\w+(?:\.\w+)*")
_GROUP: Final = re.compile(r"\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)|\"[^\"]*\"")


def some_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes changed, cut off, left out, or there twice."""
    if not data:
        return draw.randbytes(8)
    made = bytearray(data)
    match draw.randrange(6):
        case 0:
            return bytes(made[: draw.randrange(len(made))])
        case 1:
            at, size = draw.randrange(len(made)), draw.choice((1, 2, 4, 8, 64))
            del made[at : at + size]
        case 2:
            at, size = draw.randrange(len(made)), draw.choice((1, 2, 4, 8, 64))
            made[at:at] = made[at : at + size]
        case 3:
            at = draw.randrange(len(made))
            size = draw.choice((1, 2, 4, 8))
            value = draw.choice((0, 1, 2**7, 2**15, 2**31, 2**63 - 1, 2**64 - 1))
            made[at : at + size] = (value % 256**size).to_bytes(size, "little")
        case _:
            for _ in range(draw.choice((1, 1, 2, 8))):
                made[draw.randrange(len(made))] = draw.randrange(256)
    return bytes(made)


def some_text(text: str, draw: random.Random, words: Sequence[str], others: Sequence[str]) -> str:
    """A text with one to three changes.

    words: what the language knows, to put in place of other words. others: texts of the language,
    to take lines from.
    """
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        text = _change(text, draw, words, others)
    return text


def _change(text: str, draw: random.Random, words: Sequence[str], others: Sequence[str]) -> str:
    kind = draw.randrange(15)
    if kind in (0, 1, 2):
        return _replace(text, draw, _NUMBER, _number(draw))
    if kind in (3, 4):
        return _replace(text, draw, _WORD, draw.choice(words))
    if kind == 5:  # another word of the same text
        found = _WORD.findall(text)
        return _replace(text, draw, _WORD, draw.choice(found)) if found else text
    if kind == 6:
        return _replace(text, draw, _GROUP, draw.choice(("", "[]", "<>", "()", '""', "{}")))
    if kind == 7:  # another group of the same text
        found = _GROUP.findall(text)
        return _replace(text, draw, _GROUP, draw.choice(found)) if found else text
    if kind == 8:
        return text[: draw.randrange(len(text) + 1)]
    if kind == 9:
        at = draw.randrange(len(text) + 1)
        junk = "".join(draw.choice(JUNK) for _ in range(draw.randrange(1, 5)))
        return text[:at] + junk + text[at + draw.randrange(12) :]
    if kind >= 12:  # the same everywhere, so that what belongs together still fits
        spots = (_NUMBER if kind == 12 else _WORD).findall(text)
        if not spots:
            return text
        old = draw.choice(spots)
        new = _number(draw) if kind == 12 else draw.choice((*words, *spots))
        return re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda m: new, text)
    lines = text.split("\n")
    at = draw.randrange(len(lines))
    if kind == 10:
        what = draw.choice(("drop", "twice", "swap"))
        if what == "drop":
            del lines[at]
        elif what == "twice":
            lines.insert(at, lines[at])
        else:
            to = draw.randrange(len(lines))
            lines[at], lines[to] = lines[to], lines[at]
    else:
        lines.insert(at, draw.choice(draw.choice(others).split("\n")))
    return "\n".join(lines)


def _number(draw: random.Random) -> str:
    """More often one that a program may well have."""
    return draw.choice(NUMBERS if draw.random() < 0.4 else NUMBERS[:7])


def _replace(text: str, draw: random.Random, pattern: re.Pattern[str], by: str) -> str:
    spots = [m.span() for m in pattern.finditer(text)]
    if not spots:
        return text
    start, end = draw.choice(spots)
    return text[:start] + by + text[end:]


def some_json(value: Any, draw: random.Random) -> Any:
    """A copy of plain data with one to three values changed, left out, or there twice."""
    holder = [_copy(value)]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        spots = [(c, k) for c in _containers(holder) for k in _keys(c)]
        inside, key = draw.choice(spots)
        match draw.randrange(8):
            case 0:
                del inside[key]
                if inside is holder:
                    holder.append(draw.choice(VALUES))
            case 1 if isinstance(inside, list) and inside is not holder:
                inside.append(_copy(inside[key]))
            case 2:
                other, at = draw.choice(spots)
                if key in _keys(inside) and at in _keys(other):
                    inside[key] = _copy(other[at])
            case 3 if isinstance(inside[key], int) and not isinstance(inside[key], bool):
                inside[key] += draw.choice((-1, 1, 2, 100))
            case 4 if isinstance(inside[key], str) and inside[key]:
                at = draw.randrange(len(inside[key]))
                inside[key] = inside[key][:at] + draw.choice(JUNK) + inside[key][at + 1 :]
            case _:
                inside[key] = _copy(draw.choice(VALUES))
    return holder[0]


def _containers(top: Any) -> list[Any]:
    made, stack = list[Any](), [top]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            made.append(value)
            stack += value.values() if isinstance(value, dict) else value
    return made


def _keys(container: Any) -> list[Any]:
    return list(container) if isinstance(container, dict) else list(range(len(container)))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list | tuple) else value
