"""RNNState against lists of states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla.errors import RunError
from relax2xla.kv_state import RNNState
from relax2xla.runtime import get_global_func

INITIAL = [np.zeros((2, 3), np.float16), np.ones(4, np.float32)]


def test_random_operations(rng: np.random.Generator) -> None:
    history = 3
    state = RNNState(2, 4, history, INITIAL)
    first = [[a, a] for a in INITIAL]  # by state, by layer
    plain: dict[int, list[Any]] = {}  # the states that can be gone back to, and the last
    fresh = 0
    for _ in range(120):
        known = list(plain)
        what = rng.choice(["add", "fork", "pop", "remove", "step", "step"])
        if what == "add" and len(known) < 4:
            state.add_sequence(fresh)
            plain[fresh], fresh = [first], fresh + 1
        elif what == "fork" and known and len(known) < 4:
            parent = int(rng.choice(known))
            state.fork_sequence(parent, fresh)
            plain[fresh], fresh = list(plain[parent]), fresh + 1
        elif what == "pop" and known:
            i = int(rng.choice(known))
            n = int(rng.integers(0, history + 1))
            if n < len(plain[i]):
                state.popn(i, n)
                plain[i] = plain[i][: len(plain[i]) - n]
            else:
                with pytest.raises(RunError, match="can go back by"):
                    state.popn(i, n)
        elif what == "remove" and known:
            i = int(rng.choice(known))
            state.remove_sequence(i)
            del plain[i]
        elif what == "step" and known:
            ids = rng.permutation(known)[: rng.integers(1, len(known) + 1)].tolist()
            counts = rng.choice([1, 1, 2], len(ids)).tolist()
            state.begin_forward(ids, counts, [p for n in counts for p in range(-1, n - 1)])
            made: list[list[Any]] = [[], []]
            for k, initial in enumerate(INITIAL):
                for layer in range(2):
                    got = np.empty((len(ids), *initial.shape), initial.dtype)
                    state.get(layer, k, got)
                    np.testing.assert_array_equal(got, [plain[i][-1][k][layer] for i in ids])
                    new = rng.standard_normal(got.shape).astype(initial.dtype)
                    assert state.set(layer, k, new) is state
                    made[k].append(new)
            state.end_forward()
            for b, (i, n) in enumerate(zip(ids, counts, strict=True)):
                now = [[layer[b] for layer in of] for of in made]
                plain[i] = [*plain[i], now][-history:] if n == 1 else [now]
        for i, states in plain.items():
            for k in range(2):
                for layer in range(2):
                    np.testing.assert_array_equal(
                        state.debug_get(layer, k, i), states[-1][k][layer]
                    )


def test_what_it_is() -> None:
    state = RNNState(2, 4, 3, INITIAL)
    state.add_sequence(7)
    assert repr(state).startswith("<RNNState of 2 layers (float16 (2, 3), float32 (4,))")
    assert repr(state).endswith(" with a history of 3: 1 of 4 sequences>")


def test_mistakes() -> None:
    create = get_global_func("vm.builtin.rnn_state_create")
    begin = get_global_func("vm.builtin.kv_state_begin_forward")
    assert create is not None
    assert begin is not None
    state = create(1, 1, 1, [], [], INITIAL)
    state.add_sequence(0)
    out = np.empty((1, 2, 3), np.float16)
    for call, message in (
        (lambda: state.add_sequence(0), "is in the state already"),
        (lambda: state.add_sequence(1), "it holds 1 sequences"),
        (lambda: state.remove_sequence(1), "no sequence 1"),
        (lambda: state.fork_sequence(0, 1), "it holds 1 sequences"),
        (lambda: state.fork_sequence(0, 1, 3), "at its end"),
        (lambda: state.fork_sequence(0, 1, "1"), "a position must be a whole number; got '1'"),
        (lambda: state.popn(0, 1), "can go back by 0 steps"),
        (lambda: state.popn(0, "1"), "a count must be a whole number; got '1'"),
        (lambda: state.add_sequence(1.5), "a sequence's number must be a whole number; got 1.5"),
        (lambda: begin(state, 0, 1), "sequences' numbers must be whole numbers; got 0"),
        (lambda: begin(state, [0], [2], [-1, -1]), "chains"),
        (lambda: begin(state, [0], [0]), "gets tokens"),
        (lambda: state.get(0, 0, out), "call begin_forward first"),
    ):
        with pytest.raises(RunError, match=message):
            call()
    begin(state, [0], [1], None)
    with pytest.raises(RunError, match="state 2 of layer 0"):
        state.get(0, 2, out)
    with pytest.raises(RunError, match="data must be float16"):
        state.set(0, 0, out.astype(np.float32))
    with pytest.raises(RunError, match="data must be an array; got list"):
        state.set(0, 0, out.tolist())
    with pytest.raises(RunError, match="each of a layer and a state must be a whole number"):
        state.get("0", 0, out)
    with pytest.raises(RunError, match="each of layers, sequences and the length of the history"):
        RNNState(1, 1.5, 1, INITIAL)  # pyright: ignore[reportArgumentType]
    state.get(0, 0, out)
    assert not out.any()
