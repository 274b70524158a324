"""Generating text with a model over a paged cache: many requests at once, each token as it comes.

``Generator`` is a loop of steps. A step gives every request in hand its next token, and what room
is left takes tokens of prompts (continuous batching): requests come and go between steps. A server
calls ``submit`` and ``step``; ``generate`` and ``stream`` do so themselves.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from relax2xla.errors import CallError, RunError
from relax2xla.frontend.nn import spec
from relax2xla.frontend.nn.llm.kv_cache import PagedKVCache
from relax2xla.frontend.nn.llm.sampling import Sampler, Sampling
from relax2xla.frontend.nn.llm.text import TextStream, Tokenizer
from relax2xla.runtime.progress import report
from relax2xla.vm.call.objects import power_of_two

if TYPE_CHECKING:
    from relax2xla.frontend.nn.jit import CompiledModule
    from relax2xla.frontend.nn.values import Tensor

# What a model has; see ``Model``.
_NEEDED: Final = ("vocab", "context", "jit", "step", "create_paged_kv_cache")
# A step with tokens of prompts is padded to at least so many, so that programs are few.
_LEAST: Final = 16


class Model(Protocol):
    """What a Generator needs of a model, a ``nn.Module``.

    vocab: the number of tokens; context: the longest sequence.
    """

    vocab: int
    context: int

    def jit(self, spec: Any, *, out_format: str = ...) -> CompiledModule:
        """``nn.Module.jit``."""
        ...

    def step(self, tokens: Tensor, positions: Tensor, rows: Tensor, cache: PagedKVCache) -> Tensor:
        """tokens (1, n), positions (n,), rows (b,): int32; the logits of those rows (b, vocab)."""
        ...

    def create_paged_kv_cache(
        self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any
    ) -> PagedKVCache:
        """The cache."""
        ...


@dataclass
class Request:
    """One text in the making.

    tokens: what was generated; text: of them, without the stop word. finish: None while it goes on,
    then "stop" (a stop word, or the end of text), "length" (max_tokens), or "cancelled".
    """

    number: int
    prompt: tuple[int, ...]
    sampling: Sampling
    limit: int
    sampler: Sampler
    stream: TextStream | None
    tokens: list[int] = field(default_factory=list[int])
    text: str = ""
    finish: str | None = None
    cached: int = 0

    @property
    def pending(self) -> tuple[int, ...]:
        """Tokens that are not in the cache yet."""
        if self.cached < len(self.prompt):
            return self.prompt[self.cached :]
        return tuple(self.tokens[self.cached - len(self.prompt) :])


@dataclass(frozen=True)
class Piece:
    """What a step added to a request: a token, the text that is certain now, why it ended."""

    request: Request
    token: int
    text: str
    finish: str | None


class Generator:
    """Texts of a model whose parameters hold data.

    tokenizer: of text; None: prompts are tokens. sequences: requests in hand at once; others wait.
    tokens: of all of them that the cache has room for (None: ``sequences`` times 1024, or the
    context where that is shorter). chunk: tokens of a step. end: tokens that end a text.

    One thread at a time: RunError for a second one. A step whose model raises leaves the cache as
    it was; where the tokenizer or the choice of a token raises, that request is cancelled, and the
    next step gives what the others got.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer | None = None,
        *,
        sequences: int = 8,
        tokens: int | None = None,
        chunk: int = 256,
        page: int = 16,
        end: int | Sequence[int] = (),
    ) -> None:
        # As a caller without types may have it.
        lacking = [n for n in _NEEDED if not hasattr(model, n)]
        if lacking:
            raise CallError(
                f"a {type(model).__name__} is no model of text: it has no {', '.join(lacking)}; "
                "see generate.Model"
            )
        if tokens is None:
            tokens = sequences * min(model.context, 1024)
        sizes = {"sequences": sequences, "tokens": tokens, "chunk": chunk, "page": page}
        if any(_index(n) < 1 for n in sizes.values()) or chunk < sequences:
            raise CallError(
                f"{', '.join(f'{k}={v!r}' for k, v in sizes.items())}: all must be positive whole "
                "numbers, and a step (chunk) must have room for a token of each sequence"
            )
        ends = list(end) if isinstance(end, Iterable) else [end]
        if any(_index(t) < 0 for t in ends):
            raise CallError(f"end={end!r}: these are tokens, whole numbers")
        if tokenizer is not None and not all(hasattr(tokenizer, n) for n in ("encode", "decode")):
            raise CallError(
                f"a tokenizer has encode and decode; got {tokenizer!r:.100} (a folder's is "
                "text.FolderTokenizer)"
            )
        self.tokenizer = tokenizer
        self.end = frozenset(ends)
        self.vocab, self.context = model.vocab, model.context
        self._sequences, self._chunk, self._page = sequences, chunk, page
        self._pages = -(-tokens // page)
        self._compiled = model.jit(_SPEC, out_format="jax")
        made = self._compiled["create_paged_kv_cache"]
        self._cache: Any = made(sequences, self._pages * page, chunk, page, 0)
        self._waiting: deque[Request] = deque()
        self._active: list[Request] = []
        self._made: list[Piece] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return (
            f"<Generator of {self.vocab:,} tokens and a context of {self.context:,}: "
            f"{len(self._active)} sequences in hand of at most {self._sequences}, "
            f"{len(self._waiting)} waiting>"
        )

    # -- whole texts
    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        sampling: Sampling | Sequence[Sampling] | None = None,
    ) -> list[Request]:
        """The texts that follow prompts (text, or tokens), all of them done.

        sampling: for all, or one for each prompt; None: greedy. Raises as ``submit``.
        """
        several = _prompts(prompts)
        how: list[Any] = (
            [sampling or Sampling()] * len(several)
            if not isinstance(sampling, list | tuple)
            else list(sampling)
        )
        if len(how) != len(several):
            raise CallError(f"{len(how)} samplings for {len(several)} prompts")
        ready = [self._request(p, s) for p, s in zip(several, how, strict=True)]
        self._waiting.extend(ready)
        try:
            while any(r.finish is None for r in ready):
                # What is done counts no tokens that a text ended without.
                left = sum(r.limit - len(r.tokens) for r in ready if r.finish is None)
                done = sum(len(r.tokens) for r in ready)
                report("generating", done, done + left, "tokens")
                self.step()
            done = sum(len(r.tokens) for r in ready)
            report("generating", done, done, "tokens")
        except BaseException:
            for request in ready:
                self.cancel(request)
            raise
        return ready

    def stream(
        self, prompt: str | Sequence[int], sampling: Sampling | None = None
    ) -> Iterator[Piece]:
        """The pieces of one text as they come; other requests go on beside it.

        An iterator that is left before its end cancels the request.
        """
        request = self.submit(prompt, sampling)
        try:
            while request.finish is None:
                yield from (piece for piece in self.step() if piece.request is request)
        finally:
            self.cancel(request)

    # -- step by step
    def submit(self, prompt: str | Sequence[int], sampling: Sampling | None = None) -> Request:
        """Let a request wait for its turn.

        Raises CallError for an empty prompt, for tokens that the model has not, and for one that
        does not fit the context or the cache with its ``max_tokens``.
        """
        request = self._request(prompt, sampling or Sampling())
        self._waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """End a request; nothing happens to one that is done."""
        if not isinstance(request, Request):
            raise CallError(f"cancel takes what submit gave; got {request!r:.100}")
        if request.finish is not None:
            return
        request.finish = "cancelled"
        # Where a step runs (in another thread), the next one lets it go.
        if self._lock.acquire(blocking=False):
            try:
                self._let_go()
            finally:
                self._lock.release()

    @property
    def busy(self) -> bool:
        """Whether there is a request that is not done, or a piece that no step has given yet."""
        kept = any(piece.request.finish != "cancelled" for piece in self._made)
        return kept or any(r.finish is None for r in (*self._active, *self._waiting))

    def step(self) -> list[Piece]:
        """One step of the model, and what it gave; nothing where there is no request."""
        with self._alone("step"):
            self._let_go()
            self._admit()
            plan = self._plan()
            if not plan:
                return self._given()
            logits = self._run(
                [(r.number, r.cached, r.pending[:n]) for r, n in plan],
                [sum(n for _, n in plan[: i + 1]) - 1 for i in range(len(plan))],
            )
            # The cache has these tokens now, whatever becomes of what follows.
            for request, count in plan:
                request.cached += count
            failed: Exception | None = None
            for row, (request, _) in zip(logits, plan, strict=True):
                if request.pending or request.finish is not None:
                    continue
                try:
                    self._made.append(self._took(request, request.sampler(row)))
                except Exception as e:
                    request.finish = "cancelled"
                    e.add_note(f"request {request.number} was cancelled; the others go on")
                    failed = failed or e
            self._let_go()
            if failed is not None:
                raise failed
            return self._given()

    def logits(self, prompt: str | Sequence[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The logits after each token of a prompt, (n, vocab): to score texts, and to compare.

        Raises as ``submit``.
        """
        with self._alone("logits"):
            request = self._request(prompt, Sampling(max_tokens=1), 0)
            if self._reserved() + self._need(request) > self._pages:
                raise RunError("the cache has no room for this text beside the requests in hand")
            self._cache.add_sequence(request.number)
            made: list[Any] = []
            try:
                while request.pending:
                    part = request.pending[: self._chunk]
                    rows = range(len(part))
                    made.append(self._run([(request.number, request.cached, part)], rows))
                    request.cached += len(part)
            finally:
                self._cache.remove_sequence(request.number)
            return np.concatenate(made)

    # -- inside
    def _given(self) -> list[Piece]:
        """The pieces that nobody has got yet: a step that raises leaves those of the others."""
        made, self._made = self._made, []
        return [piece for piece in made if piece.request.finish != "cancelled"]

    def _alone(self, what: str) -> _Alone:
        return _Alone(self._lock, what)

    def _request(self, prompt: str | Sequence[int], sampling: Sampling, least: int = 1) -> Request:
        if not isinstance(sampling, Sampling):
            raise CallError(f"sampling is a Sampling; got {sampling!r:.100}")
        tokens = self._tokens(prompt)
        left = self.context - len(tokens)
        if left < least:
            raise CallError(
                f"the prompt has {len(tokens)} tokens, and the context of the model is "
                f"{self.context}; shorten the prompt"
            )
        wanted = sampling.max_tokens
        if least and wanted is not None and wanted > left:
            raise CallError(
                f"the prompt of {len(tokens)} tokens and max_tokens={wanted} are more than the "
                f"context of {self.context}; ask for at most {left}"
            )
        room = self._pages * self._page
        limit = min(left, room - len(tokens)) if wanted is None else wanted
        stream = None
        if self.tokenizer is not None:
            stream = TextStream(self.tokenizer, sampling.stop)
        elif sampling.stop:
            raise CallError("stop words need a tokenizer; give stop_tokens in place of them")
        made = Request(next(self._numbers), tokens, sampling, limit, Sampler(sampling), stream)
        if limit < least or self._need(made) > self._pages:
            raise CallError(
                f"the prompt of {len(tokens)} tokens and {wanted or 1} more do not fit the cache "
                f"of {room} tokens; make the Generator with more tokens"
            )
        return made

    def _tokens(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise CallError("the prompt is text, and there is no tokenizer; give tokens")
            prompt = self.tokenizer.encode(prompt)
        try:
            if isinstance(prompt, Mapping | Set):  # which have no order, or are none of tokens
                raise TypeError
            tokens = tuple(operator.index(t) for t in prompt)
        except TypeError:
            raise CallError(f"a prompt is text or tokens; got {prompt!r:.100}") from None
        if not tokens:
            raise CallError("the prompt is empty; begin with the token of the beginning")
        if unknown := sorted({t for t in tokens if not 0 <= t < self.vocab}):
            raise CallError(
                f"the prompt has the tokens {unknown[:8]}, and the model knows {self.vocab}, from "
                "0 on: is the tokenizer of another model?"
            )
        return tokens

    def _need(self, request: Request) -> int:
        """Pages that a request may come to fill; its last token is never read again."""
        return -(-(len(request.prompt) + max(request.limit, 1) - 1) // self._page)

    def _reserved(self) -> int:
        return sum(map(self._need, self._active))

    def _let_go(self) -> None:
        """Of requests that were cancelled."""
        for request in [r for r in self._active if r.finish is not None]:
            self._leave(request)

    def _admit(self) -> None:
        """Take up those that wait, in their order, as long as pages for all of each are left."""
        while self._waiting and len(self._active) < self._sequences:
            if self._waiting[0].finish is not None:
                self._waiting.popleft()
                continue
            if self._reserved() + self._need(self._waiting[0]) > self._pages:
                return
            request = self._waiting.popleft()
            self._cache.add_sequence(request.number)
            self._active.append(request)

    def _plan(self) -> list[tuple[Request, int]]:
        """Requests of a step, and how many tokens of each: first those that need only one."""
        room = self._chunk
        order = sorted(self._active, key=lambda r: len(r.pending) > 1)
        plan: list[tuple[Request, int]] = []
        for request in order:
            count = min(len(request.pending), room)
            if count:
                plan.append((request, count))
                room -= count
        return plan

    def _run(
        self, parts: Sequence[tuple[int, int, Sequence[int]]], rows: Sequence[int]
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """A step of (sequence, its length, new tokens), and the logits of ``rows`` of it."""
        counts = [len(new) for _, _, new in parts]
        count = sum(counts)
        least = _LEAST if max(counts) > 1 else 1
        tokens, positions = (np.zeros(power_of_two(count, least), np.int32) for _ in range(2))
        tokens[:count] = [t for _, _, new in parts for t in new]
        positions[:count] = np.concatenate([at + np.arange(len(new)) for _, at, new in parts])
        wanted = np.zeros(power_of_two(len(rows)), np.int32)
        wanted[: len(rows)] = rows
        self._cache.begin_forward([number for number, _, _ in parts], counts)
        try:
            made = self._compiled["step"](tokens[None], positions, wanted, self._cache)
            logits = np.asarray(made)[: len(rows)]
            if np.isnan(np.max(logits)):
                raise RunError(
                    "the model's logits are no numbers (NaN), so there is no next token; its "
                    "weights may hold NaN, or numbers too large for its dtype"
                )
        except BaseException:
            self._cache.end_forward()
            for number, _, new in parts:
                self._cache.popn(number, len(new))
            raise
        self._cache.end_forward()
        return logits

    def _took(self, request: Request, token: int) -> Piece:
        request.tokens.append(token)
        how, text, finish = request.sampling, "", None
        ends = token in how.stop_tokens or (token in self.end and not how.ignore_end)
        if request.stream is not None and not ends:
            text = request.stream.add(token)
        if ends or (request.stream is not None and request.stream.stopped):
            finish = "stop"
        elif len(request.tokens) >= request.limit:
            finish = "length"
        if finish is not None:
            text += request.stream.end() if request.stream is not None else ""
            if request.stream is not None and request.stream.stopped:
                finish = "stop"
            self._leave(request)
            request.finish = request.finish or finish  # it may have been cancelled meanwhile
        request.text += text
        return Piece(request, token, text, finish)

    def _leave(self, request: Request) -> None:
        self._cache.remove_sequence(request.number)
        self._active.remove(request)


class _Alone:
    """Holds a lock that nobody else has; RunError where somebody has it."""

    def __init__(self, lock: threading.Lock, what: str) -> None:
        self._lock, self._what = lock, what

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RunError(
                f"Generator.{self._what}: another thread is using this object; let one thread at "
                "a time call it"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_SPEC: Final[dict[str, Any]] = {
    "create_paged_kv_cache": {
        **dict.fromkeys(("sequences", "tokens", "chunk", "page", "sliding"), int),
        "$": {"param_mode": "none", "effect_mode": "none"},
    },
    "step": {
        "tokens": spec.Tensor([1, "n"], "int32"),
        "positions": spec.Tensor(["n"], "int32"),
        "rows": spec.Tensor(["b"], "int32"),
        "cache": spec.Object(PagedKVCache),
        "$": {"param_mode": "plain", "effect_mode": "none"},
    },
}


def _index(value: Any) -> int:
    """A whole number; -1 for what is none."""
    return -1 if isinstance(value, bool) or not hasattr(value, "__index__") else int(value)


def _prompts(given: Any) -> list[Any]:
    """A list of prompts, of one as well."""
    if not isinstance(given, str | Sequence | np.ndarray):
        raise CallError(f"prompts are texts, or lists of tokens; got {given!r:.100}")
    if isinstance(given, str) or (len(given) and isinstance(given[0], int | np.integer)):
        return [given]
    return list(given)
