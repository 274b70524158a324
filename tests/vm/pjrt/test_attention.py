"""The function in C++ for attention, against its form in rows, numpy in float64 and torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla.frontend.torch import from_exported_program
from relax2xla.kernels.attention import FAMILY, MASKS, Attention, Lie, Rotation
from relax2xla.kernels.native import Tensor
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.attention import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Attention | Rotation, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def attention(
    batch: int = 1,
    heads: int = 2,
    queries: int = 5,
    keys: int = 9,
    depth: int = 8,
    wide: int = 8,
    scale: float = 0.5,
    biases: tuple[tuple[int, int, int, int], ...] = (),
    mask: str = "",
    packed: bool = False,
) -> Attention:
    """``packed``: queries lie alone, keys and values in one tensor; else heads come first."""
    sizes = (batch, heads, queries, keys, depth, wide)
    both = heads * (depth + wide)
    lies = (Lie(heads * depth), Lie(both), Lie(both, heads * depth)) if packed else (Lie(0),) * 3
    return Attention(*sizes, *lies, scale, biases, mask)


def operands_of(call: Attention | Rotation) -> list[Array]:
    rng = np.random.default_rng(call.heads)
    return [rng.standard_normal(t.shape, "float32") for t in call.operands]


def heads_of(operand: Array, lie: Lie, heads: int, width: int) -> Array:
    """[batch, heads, rows, width] in float64."""
    if lie.pitch:
        cut = operand[..., lie.offset : lie.offset + heads * width]
        operand = cut.reshape(*cut.shape[:2], heads, width).transpose(0, 2, 1, 3)
    return operand.astype("float64")


def expected(call: Attention, operands: list[Array]) -> Array:
    query = heads_of(operands[0], call.query, call.heads, call.depth)
    key = heads_of(operands[1], call.key, call.heads, call.depth)
    value = heads_of(operands[2], call.value, call.heads, call.wide)
    scores = call.scale * query @ key.swapaxes(2, 3)
    for bias in operands[3 : 3 + len(call.biases)]:
        scores = scores + bias
    if call.mask:
        behind = abs(call.queries - call.keys) if call.mask == "BottomRight" else 0
        seen = np.arange(call.keys) <= np.arange(call.queries)[:, None] + behind
        scores = np.where(seen, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    made = powers / powers.sum(-1, keepdims=True) @ value
    return made.transpose(0, 2, 1, 3)


# Sizes that fill tiles, panels and vectors, and that do not; blocks of queries, and one; one key.
CALLS = [
    attention(1, 12, 128, 128, 64, 64, 0.125, ((1, 1, 1, 128),)),
    attention(2, 3, 49, 49, 32, 32, 0.2, ((1, 3, 49, 49), (2, 1, 49, 49))),
    attention(1, 2, 197, 197, 64, 64, 0.125),
    attention(3, 1, 8, 15, 7, 5, -0.3, ((3, 1, 8, 1),)),
    attention(1, 5, 1, 1, 1, 1),
    attention(1, 2, 17, 33, 40, 24, 0.3, ((1, 2, 1, 33), (1, 1, 17, 33))),
    attention(1, 1, 300, 700, 16, 16, 0.25),
    attention(2, 2, 13, 100, 9, 48, 1.0),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_heads_wherever_they_lie(mask: str, packed: bool) -> None:
    for call in CALLS:
        lies = attention(*sizes_of(call), packed=packed)
        call = replace(call, mask=mask, query=lies.query, key=lies.key, value=lies.value)
        assert not call.problem()
        operands = operands_of(call)
        wanted = expected(call, operands)
        np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-5, atol=2e-6)


def sizes_of(call: Attention) -> tuple[int, ...]:
    return call.batch, call.heads, call.queries, call.keys, call.depth, call.wide


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", CALLS[:5], ids=range(5))
def test_the_form_in_rows(call: Attention) -> None:
    for mask in MASKS:
        call = replace(call, mask=mask)
        operands = operands_of(call)
        wanted = evaluate(form(call), operands)
        np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-5, atol=2e-6)


# Heads first and by rows, with others beside them; tables for all of a batch, and for each.
ROTATIONS = [
    Rotation(1, 128, 16, 64, Lie(1024), 1, 1),
    Rotation(2, 5, 3, 10, Lie(0), 2, 1),
    Rotation(3, 7, 2, 6, Lie(40, 9), 1, 3),
    Rotation(1, 1, 1, 2, Lie(0), 1, 1),
]


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", ROTATIONS, ids=range(4))
def test_rotations(call: Rotation) -> None:
    assert not call.problem()
    x, *tables = operands = operands_of(call)
    rows = heads_of(x, call.lie, call.heads, call.width).transpose(0, 2, 1, 3)
    first, second = np.split(rows, 2, axis=3)
    cosine, sine = (t[:, :, None].astype("float64") for t in tables)
    wanted = rows * cosine + np.concatenate([-second, first], axis=3) * sine
    made = called(call, operands)
    np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made, evaluate(form(call), operands), rtol=1e-6, atol=1e-6)


def test_what_is_no_number_stays_with_its_query() -> None:
    """A score that is none, an infinite one, and queries that see nothing, as numpy has them."""
    call = attention(1, 1, 6, 20, 4, 4, 1.0, ((1, 1, 6, 20),))
    operands = operands_of(call)
    bias = operands[3]
    bias[0, 0, 0, 3] = np.nan
    bias[0, 0, 1, 3] = np.inf
    bias[0, 0, 2] = -np.inf
    bias[0, 0, 3, 5:] = -np.inf
    bias[0, 0, 4, ::2] = np.finfo("float32").min
    with np.errstate(invalid="ignore"):
        wanted = expected(call, operands)
    assert np.isnan(wanted[0, :3]).all()
    np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-5, atol=2e-6)


def test_a_key_that_is_far_away_counts_nothing() -> None:
    """Powers of less than -87 are 0: what a mask hides may be as large as it wants."""
    call = attention(1, 1, 2, 20, 4, 4, 1.0, ((1, 1, 1, 20),))
    operands = operands_of(call)
    operands[3][..., 7] = -1e4
    operands[2][:, :, 7] = 3e38
    wanted = expected(call, operands)
    assert np.abs(wanted).max() < 10
    np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-5, atol=2e-6)


def test_scores_far_from_0() -> None:
    call = attention(1, 1, 30, 50, 16, 16, 30.0)
    operands = operands_of(call)
    np.testing.assert_allclose(
        called(call, operands), expected(call, operands), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_threads_gives_the_same_numbers(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    large = [c for c in CALLS if c.multiplications > 5_000_000]
    for call in large:
        operands = operands_of(call)
        made = native_programs.called(shared, call, operands)
        np.testing.assert_array_equal(made, called(call, operands))
    assert len(threads.parts) == len(large) == 3
    assert all(2 <= parts <= 8 * count for parts in threads.parts)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(96, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, x, x, need_weights=False)[0]


@pytest.mark.filterwarnings("ignore")
def test_threads_take_heads_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as come: what they give is what one gives, each time."""
    torch.manual_seed(0)
    layer, x = Layer().eval(), torch.randn(2, 150, 96)
    mod = from_exported_program(torch.export.export(layer, (x,)))
    made = native_programs.replaced(monkeypatch)
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    with torch.no_grad():
        wanted = layer(x).numpy()
    for _ in range(20):
        (got,) = run(x.numpy())
        np.testing.assert_allclose(np.asarray(got), wanted, atol=2e-6)
    assert [type(c) for c in made].count(Attention) == 1


WRONG: list[tuple[Attention | Rotation, str]] = [
    (Rotation(1, 5, 2, 7, Lie(0), 1, 1), "two halves"),
    (Rotation(1, 0, 2, 8, Lie(0), 1, 1), "sizes are positive"),
    (Rotation(3, 5, 2, 8, Lie(0), 1, 2), "angles are there"),
    (Rotation(1, 5, 2, 8, Lie(15), 1, 1), "rows hold all heads"),
    (attention(heads=0), "sizes are positive"),
    (attention(mask="Left"), "a mask is one of"),
    (attention(scale=float("nan")), "multiplied by a number"),
    (replace(attention(), query=Lie(15)), "rows hold all heads"),
    (replace(attention(), key=Lie(40, 25)), "rows hold all heads"),
    (replace(attention(), value=Lie(40, -1)), "rows hold all heads"),
    (replace(attention(), value=Lie(0, 1)), "rows hold all heads"),
    (attention(biases=((1, 2, 5, 9),) * 3), "up to 2 tensors"),
    (attention(biases=((1, 2, 5, 8),)), "along each axis"),
    (attention(keys=1 << 23), "at most"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG, ids=range(len(WRONG)))
def test_calls_that_cannot_be(call: Attention | Rotation, problem: str) -> None:
    assert problem in call.problem()


GOOD = attention(2, 3, 5, 9, 8, 4, 0.1, ((1, 3, 1, 9),), packed=True)


def read(attributes: Mapping[str, object], operands: list[Tensor], result: Tensor) -> object:
    return FAMILY.read(GOOD.name, attributes, operands, [result])


def test_what_files_bring_is_checked() -> None:
    assert read(GOOD.attributes, GOOD.operands, GOOD.result) == GOOD
    for place in range(5):
        for shape in ((99,), (*GOOD.operands[place].shape[:-1], 98)):
            changed = list(GOOD.operands)
            changed[place] = Tensor(shape, "float32")
            assert isinstance(read(GOOD.attributes, changed, GOOD.result), str)
    wrong = [("added", 2), ("added", 7), ("added", -1), ("depth", 9), ("keys", 10)]
    wrong += [("mask", "Right"), ("query", (24, 1)), ("key", (1, 2, 3)), ("scale", "much")]
    for name, value in wrong:
        assert isinstance(read({**GOOD.attributes, name: value}, GOOD.operands, GOOD.result), str)
    assert isinstance(read({}, GOOD.operands, GOOD.result), str)
    assert isinstance(read(GOOD.attributes, GOOD.operands[:3], GOOD.result), str)
    turned = ROTATIONS[2]
    assert FAMILY.read(turned.name, turned.attributes, turned.operands, [turned.result]) == turned
    for place in range(3):
        changed = list(turned.operands)
        changed[place] = Tensor((2, *changed[place].shape[1:]), "float32")
        found = FAMILY.read(turned.name, turned.attributes, changed, [turned.result])
        assert isinstance(found, str)
    wider = GOOD.result._replace(shape=(2, 5, 3, 5))
    assert isinstance(read(GOOD.attributes, GOOD.operands, wider), str)


@pytest.mark.parametrize("form_is_called", [True, False])
def test_a_program_of_a_composite(form_is_called: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number that scores are multiplied by comes through with all its digits."""
    call = replace(GOOD, scale=0.1 * 3)
    operands = operands_of(call)
    made = native_programs.replaced(monkeypatch)
    mod = native_programs.program(call, FAMILY, form(call))
    if form_is_called:
        with native_programs.no_library(monkeypatch):
            got = native_programs.run(mod, operands)
    else:
        got = native_programs.run(mod, operands)
    assert made == ([] if form_is_called else [call])
    np.testing.assert_allclose(got, expected(call, operands), rtol=2e-5, atol=2e-6)
