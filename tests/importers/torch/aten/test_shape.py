"""Reshaping, slicing, joining and padding against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check, check_table  # noqa: E402

g = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=g)


X = randn(2, 3, 4)
INTS = torch.arange(24).reshape(2, 3, 4)


def test_the_same_elements() -> None:
    check_table(
        {
            "view": (lambda x: (x.view(6, 4), x.view(-1), x.view(2, -1, 2)), X),
            "reshape": (lambda x: (x.transpose(0, 1).reshape(6, 4), x.reshape_as(x)), X),
            "flatten": (lambda x: (x.flatten(), x.flatten(1), x.flatten(0, 1)), X),
            "unflatten": (lambda x: (x.unflatten(2, (2, -1)), x.unflatten(-1, (2, 2))), X),
            "squeeze": (lambda x: (x.squeeze(), x.squeeze(1), x.squeeze(0)), randn(2, 1, 3, 1)),
            "unsqueeze": (lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[:, None, ..., None]), X),
            "clone": (lambda x: (x.clone(), x.contiguous(), x.detach()), X),
            "ravel": (torch.ravel, X),
            "dropout in evaluation": (lambda x: F.dropout(x, 0.5, False), X),
        }
    )


def test_conversions() -> None:
    check_table(
        {
            "to": (lambda x: (x.int(), x.double(), x.half(), x.bool(), x.to(torch.uint8)), X.abs()),
            "towards zero": (lambda x: (x * 10).long(), X),
            "within limits": (
                lambda x: (
                    x.clamp(0, 255).to(torch.uint8),
                    x.clamp(-128, 127).to(torch.int8),
                    x.clamp(-128, 300).to(torch.int8),
                    x.clamp(-1000, 1000).to(torch.int16),
                ),
                torch.tensor(
                    [-1e9, -129.5, -0.5, 127.9, 299.0, 1e9, math.inf, -math.inf, math.nan]
                ),
            ),
            "of integers": (lambda x: (x.float(), x.to(torch.int8), x.bool()), INTS),
            "bfloat16": (lambda x: x.bfloat16().float(), X),
            "type_as": (lambda x, y: x.type_as(y), INTS, X),
            "to.other": (lambda x, y: x.to(y), INTS, X),
            "bitcast": (lambda x: x.view(torch.int32), X),
            "bits of other widths": (
                lambda x: (x.view(torch.uint8), x.half().view(torch.int16), x.half().view(x.dtype)),
                randn(2, 3, 4),
            ),
        }
    )


def test_axes() -> None:
    check_table(
        {
            "permute": (lambda x: (x.permute(2, 0, 1), x.permute(0, -1, 1)), X),
            "transpose": (lambda x: (x.transpose(0, 2), x.transpose(-1, -2), x.swapaxes(0, 1)), X),
            "t": (lambda x: (x.t(), x.T, x.mT), randn(2, 3)),
            "mT": (lambda x: x.mT, X),
            "movedim": (lambda x: (x.movedim(0, 2), x.movedim((0, 1), (2, 0))), X),
            "expand": (lambda x: (x.expand(2, 3, 4), x.expand(5, -1, -1, 4)), randn(2, 3, 1)),
            "broadcast_to": (lambda x: torch.broadcast_to(x, (2, 3)), randn(3)),
            "expand_as": (lambda x, y: x.expand_as(y), randn(1, 4), randn(3, 4)),
            "repeat": (lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 1)), X),
            "tile": (lambda x: (x.tile(2), x.tile(2, 1, 1, 2)), X),
            "repeat_interleave": (lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3)), X),
            "flip": (lambda x: (x.flip(0), x.flip(1, 2), x.fliplr(), x.flipud()), X),
            "roll": (lambda x: (x.roll(1, 0), x.roll((1, -2), (0, 2)), x.roll(5)), X),
        }
    )


def test_parts() -> None:
    check_table(
        {
            "slice": (lambda x: (x[:, 1:3], x[..., ::2], x[:, -2:], x[:, :-1], x[1:, 5:]), X),
            "narrow": (lambda x: x.narrow(1, 1, 2), X),
            "select": (lambda x: (x[0], x[:, -1], x.select(2, 1)), X),
            "split": (lambda x: (*x.split(2, 2), *x.split(3, 2), *x.split([1, 2], 1)), X),
            "chunk": (lambda x: (*x.chunk(2, 2), *x.chunk(2, 1), *x.chunk(1)), X),
            "tensor_split": (lambda x: (*x.tensor_split(3, 2), *x.tensor_split((1, 2), 1)), X),
            "unbind": (lambda x: (*x.unbind(0), *x.unbind(-1)), X),
            "diagonal": (lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-1, 2, 1)), X),
            "diag": (torch.diag, randn(3, 4)),
            "unfold": (lambda x: (x.unfold(2, 2, 1), x.unfold(1, 2, 1)), X),
        }
    )


def test_joining() -> None:
    check_table(
        {
            "cat": (lambda x, y: (torch.cat([x, y]), torch.cat([x, y], -1)), X, X),
            "cat promotes": (lambda x, y: torch.cat([x, y], 1), X, INTS),
            "cat with an empty vector": (lambda x, y: torch.cat([y, x]), X, torch.zeros(0)),
            "stack": (lambda x, y: (torch.stack([x, y]), torch.stack([x, y], -1)), X, X),
            "hstack": (lambda x, y: (torch.hstack([x, y]), torch.vstack([x, y])), X, X),
        }
    )


def test_floats_that_do_not_fit_integers() -> None:
    """As C casts them on processors with SSE: torch saturates nothing."""
    values = [-1.0, -1.5, 255.5, 300, -129, 40000, -40000, 70000, 3e9, -3e9, 5e18, 1e19, 1e30]
    x = torch.tensor([*values, -1e30, math.inf, -math.inf, math.nan], dtype=torch.float64)
    kinds = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64]
    small = x[(x > -(2**31)) & (x < 2**32)]  # beyond, torch's uint32 differs by the position
    table: dict[str, Any] = {
        str(kind): (lambda x: [x.to(t) for t in (*kinds, torch.uint64)], x.to(kind))
        for kind in (torch.float64, torch.float32, torch.float16)
    }
    table["uint32"] = (lambda x: (x.to(torch.uint32), x.float().to(torch.uint32)), small)
    table["others"] = (
        lambda x, y: (x.byte(), y.clone().copy_(x), x.type_as(y), x.sum(dtype=torch.int64)),
        x[:8].float(),
        torch.zeros(8, dtype=torch.uint8),
    )
    check_table(table)


def test_integers_are_padded_with_the_whole_part() -> None:
    x = torch.ones(2, 2, dtype=torch.int32)
    check_table(
        {
            "parts": (lambda x: [F.pad(x, (1, 1), value=v) for v in (1.5, -1.5, 300.7, 2.0)], x),
            "bytes": (lambda x: F.pad(x, (1, 0, 0, 1), value=254.9), x.byte()),
        }
    )
    n = torch.export.Dim("n", max=7)
    check(lambda x: F.pad(x, (0, x.shape[0]), value=1.5), [x], [{0: n}], [[x[:1]]])


def test_padding_and_triangles() -> None:
    image = randn(2, 3, 5, 6)
    check_table(
        {
            "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0)), X),
            "pad cuts": (lambda x: F.pad(x, (-1, 2, 1, -1)), X),
            "reflect": (lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), image),
            "replicate": (lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), image),
            "circular": (lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), image),
            "what is cut off is reflected": (
                lambda x: [F.pad(x, (s - 1, -1), mode="reflect") for s in x.shape[-1:]],
                randn(2, 3, 4),
            ),
            "tril": (lambda x: (x.tril(), x.tril(-1), x.triu(1)), X),
            "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), randn(2, 8, 3, 4)),
            "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), randn(2, 3, 4, 6)),
            "broadcast_tensors": (
                lambda x, y: torch.broadcast_tensors(x, y, x + y),
                randn(2, 1, 3),
                randn(4, 1),
            ),
            "meshgrid": (
                lambda x, y: [torch.meshgrid(x, y, indexing=i) for i in ("ij", "xy")],
                randn(3),
                randn(2),
            ),
            "diff": (lambda x: (x.diff(), x.diff(2, 0, prepend=x), (x > 0).diff()), X),
            "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), randn(2, 6, 3, 4)),
        }
    )


def test_symbolic_sizes() -> None:
    n = torch.export.Dim("n", min=3, max=20)

    def parts(x: Any) -> Any:
        half = x.shape[0] + 1
        doubled = torch.cat([x, x])
        return (
            doubled.view(2, x.shape[0], 4).transpose(0, 1).flatten(1),
            doubled[:half],
            x[1:],
            x[:-1],
            x[-1],
            x.unsqueeze(1).expand(-1, 3, -1),
            torch.zeros(x.shape[0], half),
            x.repeat(2, 1),
            F.pad(x, (0, 0, 1, 0)),
            x.split([1, x.shape[0] - 1])[1],
            torch.arange(x.shape[0]),
        )

    check(parts, [randn(5, 4)], [{0: n}], [[randn(9, 4)]])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_symbolic_bounds_of_either_sign() -> None:
    """A segment and its memory, as in Transformer-XL: the last rows, positions by a float step."""

    def last(x: Any, y: Any) -> Any:
        n = y.shape[0]
        rows = torch.arange(x.shape[0] - 1, -1, -1.0)
        view = x.as_strided((n, 3), (3, 1), 3 * (x.shape[0] - n))
        return x[-n:] + y, x[1 - n :], x[n:], x[-n:-1], x[:-n], rows, view

    dims = [{0: torch.export.Dim("m", min=8, max=20)}, {0: torch.export.Dim("n", min=3, max=7)}]
    other = [randn(15, 3), randn(6, 3)]
    check(last, [randn(10, 3), randn(4, 3)], dims, [other])
