"""Generator: many texts at once are what each is alone; errors leave it as it was."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from examples.models.llm import CausalLM
from examples.models.llm.config import config_from
from relax2xla.errors import CallError, FileFormatError, RunError
from relax2xla.frontend import nn
from relax2xla.frontend.nn.llm.generate import Generator
from relax2xla.frontend.nn.llm.quantization import quantize
from relax2xla.frontend.nn.llm.sampling import Sampling

FIELDS = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 60,
}
PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]]


class Letters:
    """Token 10 is "a", 11 is "b" and so on; others are a dot."""

    def encode(self, text: str) -> list[int]:
        return [ord(c) - 87 for c in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(t + 87) if 10 <= t < 36 else "." for t in tokens)


@pytest.fixture(scope="module")
def generator() -> Generator:
    model = CausalLM(config_from(FIELDS))
    rng = np.random.default_rng(1)
    for _, p in model.named_parameters():
        p.data = rng.normal(size=p.shape).astype(np.float32) * 0.7
    return Generator(model, Letters(), sequences=2, tokens=64, chunk=16, page=4)


@pytest.fixture(scope="module")
def alone(generator: Generator) -> list[list[int]]:
    """Greedy tokens after each prompt, each the best by the logits of the whole text."""
    made: list[list[int]] = []
    for prompt in PROMPTS:
        tokens = generator.generate(prompt, Sampling(max_tokens=6))[0].tokens
        # Texts of 16 tokens, so that one program serves all.
        text = [*prompt, *tokens[:-1]]
        logits = generator.logits([*text, *[1] * (16 - len(text))])
        assert logits[len(prompt) - 1 : len(text)].argmax(1).tolist() == tokens
        made.append(tokens)
    return made


def test_texts_at_once_are_those_of_each_alone(
    generator: Generator, alone: list[list[int]]
) -> None:
    # Three texts and places for two; the third prompt is of more tokens than a step has left.
    made = generator.generate(PROMPTS, Sampling(max_tokens=6))
    assert [r.tokens for r in made] == alone
    assert [r.finish for r in made] == ["length"] * 3
    assert made[0].text == Letters().decode(alone[0])
    assert not generator.busy


def test_seeds_do_not_depend_on_company(generator: Generator) -> None:
    how = [Sampling(temperature=1.0, seed=i, max_tokens=6) for i in range(3)]
    together = [r.tokens for r in generator.generate(PROMPTS, how)]
    apart = [generator.generate(p, s)[0].tokens for p, s in zip(PROMPTS, how, strict=True)]
    assert together == apart


def test_streams_and_stop(generator: Generator, alone: list[list[int]]) -> None:
    whole = Letters().decode(alone[2])
    other = generator.submit(PROMPTS[0], Sampling(max_tokens=3))
    pieces = list(generator.stream(PROMPTS[2], Sampling(max_tokens=6)))
    assert "".join(p.text for p in pieces) == whole
    assert other.finish == "length"  # it went on beside the stream
    (ended,) = generator.generate([PROMPTS[2]], Sampling(stop=(whole[2:4],), max_tokens=6))
    assert (ended.text, ended.finish) == (whole[: whole.find(whole[2:4])], "stop")
    (ended,) = generator.generate([PROMPTS[2]], Sampling(stop_tokens=(alone[2][1],), max_tokens=6))
    assert ended.finish == "stop"
    assert ended.tokens == alone[2][: alone[2].index(alone[2][1]) + 1]


def test_a_stream_that_is_left_is_cancelled(generator: Generator) -> None:
    stream = generator.stream(PROMPTS[1])
    request = next(stream).request
    stream.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert request.finish == "cancelled"
    assert not generator.busy


def test_what_does_not_fit_is_refused(generator: Generator) -> None:
    cases: dict[str, Any] = {
        "has 60 tokens, and the context of the model is 60": ([1] * 60, None),
        "ask for at most 57": ([1, 2, 3], Sampling(max_tokens=58)),
        r"the tokens \[-1, 64\], and the model knows 64": ([3, 64, -1], None),
        "the prompt is empty": ([], None),
        "a prompt is text or tokens; got .None": ([None], None),
        "a prompt is text or tokens; got .1, 2.5": ([1, 2.5], None),
        "a prompt is text or tokens; got .1, 2}": ({1, 2}, None),
        "a prompt is text or tokens; got .1: 2}": ({1: 2}, None),
        "sampling is a Sampling; got .'max_tokens': 3": ([1], {"max_tokens": 3}),
    }
    for said, (prompt, how) in cases.items():
        with pytest.raises(CallError, match=said):
            generator.submit(prompt, how)
    nothing: Any = None
    with pytest.raises(CallError, match="prompts are texts, or lists of tokens; got None"):
        generator.generate(nothing)
    with pytest.raises(CallError, match="cancel takes what submit gave; got None"):
        generator.cancel(nothing)
    assert not generator.busy
    small = Generator.__new__(Generator)
    small.__dict__.update(generator.__dict__)
    small._pages = 2  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(CallError, match="do not fit the cache of 8 tokens"):
        small.submit([1] * 7, Sampling(max_tokens=3))
    small.tokenizer = None
    with pytest.raises(CallError, match="there is no tokenizer"):
        small.submit("abc")
    with pytest.raises(CallError, match="stop words need a tokenizer"):
        small.submit([1], Sampling(stop=("x",)))


def test_a_step_that_fails_leaves_the_cache(
    generator: Generator, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = generator.submit(PROMPTS[0], Sampling(max_tokens=6))
    generator.step()

    def broken(*_: Any) -> Any:
        raise RunError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(generator, "_compiled", {"step": broken})
        with pytest.raises(RunError, match="no memory"):
            generator.step()
    while request.finish is None:
        generator.step()
    assert request.tokens == alone[0]


def test_a_tokenizer_that_fails_ends_its_own_request_alone(
    generator: Generator, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = generator._cache.free_pages
    first, second = (generator.submit(p, Sampling(max_tokens=6)) for p in PROMPTS[:2])
    pieces = generator.step()
    decode, broken = first.stream, alone[0][1]
    assert decode is not None

    def add(token: int) -> str:
        raise KeyError(token)

    with monkeypatch.context() as patch:
        patch.setattr(decode, "add", add)
        with pytest.raises(KeyError, match=str(broken)) as raised:
            generator.step()
    assert raised.value.__notes__ == [f"request {first.number} was cancelled; the others go on"]
    assert (first.finish, generator.busy) == ("cancelled", True)
    while generator.busy:
        pieces += generator.step()
    assert [p.token for p in pieces if p.request is second] == second.tokens == alone[1]
    assert generator._cache.free_pages == free


def test_a_model_that_gives_no_numbers() -> None:
    model = CausalLM(config_from(FIELDS))
    for _, p in model.named_parameters():
        p.data = np.full(p.shape, np.nan, np.float32)
    broken = Generator(model, sequences=2, tokens=64, chunk=16, page=4)
    assert "0 sequences in hand of at most 2, 0 waiting>" in repr(broken)
    for how in (Sampling(max_tokens=2), Sampling(max_tokens=2, temperature=1.0)):
        with pytest.raises(RunError, match="logits are no numbers"):
            broken.generate([1, 2], how)


def test_a_model_in_few_bits_with_a_tied_table() -> None:
    tied = CausalLM(config_from({**FIELDS, "hidden_size": 32, "tie_word_embeddings": True}))
    rng = np.random.default_rng(2)
    for _, p in tied.named_parameters():
        p.data = rng.normal(size=p.shape).astype(np.float32) * 0.3
    exact = Generator(tied, sequences=1, tokens=32, chunk=16).logits(PROMPTS[2])
    quantize(tied, "q8f32_1", native=False)
    assert sum(p.dtype == "uint32" for p in tied.parameters()) == 5  # one of them the table
    close = Generator(tied, sequences=1, tokens=32, chunk=16).logits(PROMPTS[2])
    error = np.sqrt(np.mean((close - exact) ** 2) / np.mean(exact**2))
    assert 0 < error < 0.02


def test_one_thread_at_a_time(generator: Generator) -> None:
    failed: list[Exception] = []

    def other() -> None:
        try:
            generator.step()
        except RunError as e:
            failed.append(e)

    with generator._alone("step"):  # pyright: ignore[reportPrivateUsage]
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread is using this object" in str(failed[0])


class Waits:
    """Token 10 is "a", and so on; ``hold`` lets a step wait while it makes text."""

    def __init__(self) -> None:
        self.held, self.hold = threading.Event(), threading.Event()

    def encode(self, text: str) -> list[int]:
        return Letters().encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        self.held.set()
        assert self.hold.wait(60)
        return Letters().decode(tokens)


def test_what_other_threads_do_in_a_step_waits_for_its_end(
    generator: Generator, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, texts = Waits(), [Letters().decode(tokens) for tokens in alone]
    monkeypatch.setattr(generator, "tokenizer", waits)
    how = Sampling(max_tokens=6)
    kept, dropped = (generator.submit(PROMPTS[i], how) for i in (0, 1))

    def run() -> None:
        while generator.busy:
            generator.step()

    thread = threading.Thread(target=run)
    thread.start()
    assert waits.held.wait(60)
    with pytest.raises(RunError, match="another thread is using this object"):
        generator.generate([PROMPTS[2]], how)
    generator.cancel(dropped)
    waits.hold.set()
    thread.join()
    assert (kept.text, kept.finish) == (texts[0], "length")
    assert (dropped.finish, len(dropped.tokens) < 6) == ("cancelled", True)
    assert generator.generate([PROMPTS[2]], how)[0].text == texts[2]


def test_wrong_sizes() -> None:
    model = CausalLM(config_from(FIELDS))
    wrong: list[dict[str, Any]] = [{"sequences": 1.5}, {"tokens": 0}, {"chunk": 4}, {"page": True}]
    for sizes in wrong:
        with pytest.raises(CallError, match="all must be positive whole numbers"):
            Generator(model, **sizes)
    nothing: Any = nn.Linear(2, 2)
    with pytest.raises(
        CallError, match=r"a Linear is no model of text: it has no vocab, context, st"
    ):
        Generator(nothing)
    with pytest.raises(CallError, match="these are tokens"):
        Generator(model, end=[1, "</s>"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(CallError, match="end=None: these are tokens"):
        Generator(model, end=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CallError, match="a tokenizer has encode and decode; got 5"):
        Generator(model, 5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileFormatError, match=r"rope_scaling=\[1\]; it is a table of settings"):
        config_from({**FIELDS, "rope_scaling": [1]})
