"""Tokens to text as they come: whole characters only, up to stop words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from relax2xla.errors import FileFormatError, UnsupportedError


class Tokenizer(Protocol):
    """What turns text into tokens and back."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        ...


class FolderTokenizer:
    """The tokenizer of a folder, ``tokenizer.json``; needs the package ``tokenizers``.

    Raises FileFormatError where the file is missing or damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise UnsupportedError(
                "tokenizer.json is read by the package tokenizers: pip install '.[llm]', "
                "or give tokens in place of text"
            ) from None
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise FileFormatError(
                f"{folder} has no tokenizer.json; save it with save_pretrained of a fast tokenizer"
            )
        try:
            self._made: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception as e:  # the package raises Exception itself
            raise FileFormatError(f"{path}: {str(e)[:300]}") from None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that the tokenizer puts around it."""
        return list(self._made.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return self._made.decode(list(tokens), skip_special_tokens=True)


class TextStream:
    """Text of tokens one by one.

    A character may be of several tokens, and how a token is written may depend on the one before:
    a piece is the difference of two texts, that of the last tokens with and without the new ones.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._tokens: list[int] = []
        # Tokens from `_start` on are decoded; the text of those before `_told` was given.
        self._start = self._told = 0
        self._held = ""
        self.stopped = False

    def add(self, token: int) -> str:
        """What is certain after one more token; "" after a stop word came."""
        self._tokens.append(token)
        before = self._tokenizer.decode(self._tokens[self._start : self._told])
        now = self._tokenizer.decode(self._tokens[self._start :])
        if len(now) <= len(before) or now.endswith("�"):
            return ""
        self._start, self._told = self._told, len(self._tokens)
        return self._given(now[len(before) :])

    def end(self) -> str:
        """The rest: what could have become a stop word, and characters that stay incomplete."""
        if self.stopped:
            return ""
        before = self._tokenizer.decode(self._tokens[self._start : self._told])
        now = self._tokenizer.decode(self._tokens[self._start :])
        self._told = len(self._tokens)
        rest = self._given(now[len(before) :])
        held, self._held = self._held, ""
        return rest if self.stopped else rest + held

    def _given(self, new: str) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        places = [at for at in (text.find(word) for word in self._stop) if at >= 0]
        if places:
            self.stopped, self._held = True, ""
            return text[: min(places)]
        keep = max((_overlap(text, word) for word in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, word: str) -> int:
    """How many last characters of ``text`` may be the beginning of ``word``."""
    most = min(len(text), len(word) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(word[:n])), 0)
