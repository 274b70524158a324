"""Text of tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from relax2xla.errors import FileFormatError
from relax2xla.frontend.nn.llm.text import FolderTokenizer, TextStream


class Bytes:
    """Every byte of UTF-8 is a token."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", "replace")


def pieces(text: str, stop: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    stream = TextStream(Bytes(), stop)
    made = []
    for token in Bytes().encode(text):
        made.append(stream.add(token))
        if stream.stopped:
            break
    return [*made, stream.end()], stream.stopped


def test_characters_come_whole() -> None:
    made, stopped = pieces("a€𝄞ü")
    assert [p for p in made if p] == ["a", "€", "𝄞", "ü"]
    assert not stopped


def test_an_incomplete_character_at_the_end_is_given_then() -> None:
    stream = TextStream(Bytes())
    assert [stream.add(t) for t in "é".encode()[:1]] == [""]
    assert stream.end() == "�"


@pytest.mark.parametrize(
    ("text", "stop", "want", "stopped"),
    [
        ("one two END three", ("END",), "one two ", True),
        ("aab", ("ab",), "a", True),  # the first a is held back, then given
        ("abcabd", ("abd",), "abc", True),
        ("no such wor", ("word",), "no such wor", False),
        ("x\n\nUser: y", ("User:", "\n\n"), "x", True),  # the earliest counts
        ("größe", ("öß",), "gr", True),
    ],
)
def test_stop_words(text: str, stop: tuple[str, ...], want: str, stopped: bool) -> None:
    made, ended = pieces(text, stop)
    assert "".join(made) == want
    assert ended is stopped


def test_tokenizers_of_folders(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    with pytest.raises(FileFormatError, match=r"has no tokenizer\.json"):
        FolderTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"tokenizer\.json: "):
        FolderTokenizer(tmp_path)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["</s>"],
        show_progress=False,
    )
    made.train_from_iterator(["a text of some words, and of more words"], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    found = FolderTokenizer(tmp_path)
    text = "more words: € 𝄞"
    tokens = found.encode(text)
    assert found.decode(tokens) == text
    stream = TextStream(found)
    assert "".join([*map(stream.add, tokens), stream.end()]) == text
    assert found.decode([*tokens, 0]) == text  # special tokens are no text
