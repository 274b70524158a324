"""Converters under symbolic sizes: one import, run for the sizes of the export and two others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla.errors import CallError, OpNotImplemented  # noqa: E402
from relax2xla.ir import assert_structural_equal  # noqa: E402
from tests.importers.torch.helpers import check, imported, run  # noqa: E402

AUTO = torch.export.Dim.AUTO


def same_at(
    functions: Sequence[Callable[..., Any]], make: Callable[..., Any], *sizes: Sequence[int]
) -> None:
    """Eager torch's results of all functions, as one program, for inputs of the sizes.

    ``make`` gives the inputs for a tuple of sizes; the export is for the first of them.
    """
    torch.manual_seed(0)
    first, *others = ([*make(*s)] for s in sizes)
    symbolic = [{i: AUTO for i, n in enumerate(x.shape) if n > 1} for x in first]
    check(lambda *xs: [f(*xs) for f in functions], first, symbolic, others, scale=5)


def matrices(batch: int, n: int, m: int) -> list[Any]:
    """Well-conditioned square matrices, and right-hand sides."""
    x = torch.randn(batch, n, n)
    return [x @ x.mT + 3 * torch.eye(n), torch.randn(batch, n, m)]


def test_square_matrices() -> None:
    linalg = torch.linalg
    same_at(
        [
            lambda a, b: linalg.slogdet(a),
            lambda a, b: linalg.inv(a),
            lambda a, b: linalg.solve(a, b),
            lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a)),
            lambda a, b: linalg.solve_triangular(a, b, upper=True),
            lambda a, b: linalg.eigh(a)[0],
            lambda a, b: torch.matrix_exp(a / 4),
        ],
        matrices,
        (3, 4, 2),
        (2, 5, 3),
        (4, 2, 6),
    )


@pytest.mark.parametrize(
    "sizes", [((3, 4, 5), (2, 4, 7), (4, 3, 3)), ((3, 5, 4), (2, 7, 4), (4, 3, 2))], ids=repr
)
def test_rectangular_matrices(sizes: Any) -> None:
    """Of the factors that are unique but for signs the sizes of their elements.

    The exported program is for matrices that are wide, or for such that are tall.
    """
    linalg = torch.linalg
    same_at(
        [
            lambda x: linalg.lu(x),
            lambda x: [f.abs() for mode in ("reduced", "r") for f in linalg.qr(x, mode=mode)],
            lambda x: linalg.qr(x, mode="complete")[1].abs(),
            lambda x: [f.abs() for f in linalg.svd(x, full_matrices=False)],
            lambda x: linalg.pinv(x),
        ],
        lambda *s: [torch.randn(s)],
        *sizes,
    )


def test_transforms() -> None:
    fft = torch.fft
    same_at(
        [
            lambda x: [fft.fft(x, norm=norm) for norm in ("forward", "backward", "ortho")],
            lambda x: fft.ifft2(x),
            lambda x: fft.rfft2(x),
            lambda x: fft.fftn(x),
            lambda x: fft.irfft(fft.rfft(x), n=x.shape[-1]),
            lambda x: fft.hfft(torch.complex(x, 2 * x)),
        ],
        lambda *s: [torch.randn(s)],
        (3, 4, 5),
        (2, 5, 6),
        (4, 2, 2),
    )


def test_parts_of_matrices() -> None:
    same_at(
        [
            lambda x: [torch.diagonal(x, 1), torch.diagonal(x, -1, 1, 0), torch.trace(x)],
            lambda x: torch.diagonal_scatter(x, torch.diagonal(x, 1) * 2, 1),
            lambda x: [x.unfold(1, 3, 2), x.unfold(0, 2, 1)],
            lambda x: x.as_strided((x.shape[0], x.shape[1] - 1), (x.shape[1], 1), 1),
            lambda x: [*torch.hsplit(x, 2), *torch.tensor_split(x, [1, -1]), *x.tensor_split(3)],
            lambda x: torch.topk(x, x.shape[1] // 2, dim=1),
            lambda x: torch.kthvalue(x, x.shape[0] - 1, dim=0),
            lambda x: [torch.median(x), torch.nanmedian(x, 0), torch.mode(x.round(), 1)],
            lambda x: torch.nonzero_static(x > 0, size=12),
            lambda x: torch.pdist(x),
            lambda x: x.masked_scatter(x > 0, x + 1),
            lambda x: x.clone().resize_(x.shape[0] - 1, x.shape[1]),
        ],
        lambda *s: [torch.randn(s)],
        (7, 8),
        (10, 10),
        (13, 6),
    )


def test_short_time_transforms() -> None:
    window = torch.hann_window(16)
    same_at(
        [
            lambda x: torch.stft(x, 16, 4, window=window, return_complex=True),
            lambda x: torch.stft(x, 16, 8, window=window, center=False, return_complex=True),
        ],
        lambda *s: [torch.randn(s)],
        (2, 64),
        (3, 80),
        (4, 33),
    )


def test_windows_with_their_places() -> None:
    f = torch.nn.functional
    same_at(
        [
            lambda x: f.max_pool2d(x, 3, 2, 1, return_indices=True),
            lambda x: f.max_pool2d(x, 2, 1, 0, 2, return_indices=True),
            lambda x: f.adaptive_max_pool2d(x, (3, 4), return_indices=True),
            lambda x: f.adaptive_avg_pool2d(x, (3, x.shape[3] // 2)),
            lambda x: f.avg_pool2d(x, 3, 2, 1, True, True, 5),
            lambda x: f.pixel_shuffle(x, 2),
        ],
        lambda *s: [torch.randn(s)],
        (2, 4, 10, 8),
        (3, 4, 6, 12),
        (4, 4, 8, 10),
    )


def test_smoothed_resizing() -> None:
    f = torch.nn.functional
    same_at(
        [
            lambda x, y, m=m, a=a: f.interpolate(
                x, y.shape[2:], mode=m, antialias=True, align_corners=a
            )
            for m in ("bilinear", "bicubic")
            for a in (False, True)
        ],
        lambda a, b, c, d: [torch.randn(2, 3, a, b), torch.randn(2, 3, c, d)],
        (10, 8, 4, 5),
        (7, 12, 9, 7),
        (3, 4, 3, 2),
    )


def test_sampling_volumes() -> None:
    f = torch.nn.functional
    same_at(
        [
            lambda x, g, p=p, a=a: f.grid_sample(x, g, padding_mode=p, align_corners=a)
            for p in ("zeros", "reflection")
            for a in (False, True)
        ],
        lambda *s: [torch.randn(2, 2, *s), torch.randn(2, 2, 3, 2, 3)],
        (4, 5, 6),
        (5, 4, 3),
        (2, 3, 1),
    )


def test_a_view_by_strides_stays_in_the_tensor() -> None:
    """Torch finds no condition for it; the sizes that would read beyond the end are refused."""
    x = torch.randn(4, 5)
    mod = check(
        lambda x: torch.as_strided_copy(x, (x.shape[0], 2), (x.shape[1], 1)),
        [x],
        [{0: AUTO, 1: AUTO}],
        [[torch.randn(3, 2)]],
    )
    with pytest.raises(CallError, match=r"main: `.*` does not hold for dimension"):
        run(mod, [torch.randn(3, 1)])


def test_numbers_made_of_sizes_may_be_negative() -> None:
    same_at(
        [lambda x: x + (x.shape[0] - 5), lambda x: x * -x.shape[1], lambda x: x - x.numel() // 2],
        lambda *s: [torch.randn(s)],
        (4, 8),
        (7, 3),
        (3, 2),
    )


def test_sizes_rounded_from_sums_of_fractions() -> None:
    """As convolutions pad (EnCodec): up to the whole number of frames."""

    def wider(amount: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: torch.nn.functional.pad(x, (0, amount(x.shape[-1])))

    same_at(
        [
            wider(lambda n: math.ceil((n - 2) / 2 + 1) * 2 - n),
            wider(lambda n: math.ceil((n - 3) / 3 + 1) * 3 - n),
            wider(lambda n: round(n / 2 + 0.25 * n)),
            wider(lambda n: math.trunc(n / 3 * 2 + 0.5)),
            wider(lambda n: math.trunc((n - 9) / 2) + 4),  # towards zero from both sides
        ],
        lambda *s: [torch.randn(s)],
        (2, 16),
        (2, 6),
        (2, 7),
    )


@pytest.mark.parametrize(
    "number", [lambda n: n / 49 * 49, lambda n: n / 49 * n, lambda n: n / 3 + 2 * n / 7]
)
def test_numbers_that_floats_may_round_to_whole_ones(number: Callable[[Any], Any]) -> None:
    """Python's 2 / 49 * 49 is less than 2."""
    with pytest.raises(OpNotImplemented, match="is rounded, and has no integer form"):
        imported(lambda x: x[: math.trunc(number(x.shape[0]))], [torch.ones(8)], [{0: AUTO}])


def test_slices_beyond_the_ends() -> None:
    """Bounds are cut at the sizes of the call."""

    def written(x: Any) -> Any:
        x = x.clone()
        x[-5:] *= 2
        x[1:9, -1:] = 7
        return x

    def stepped(x: Any) -> Any:
        x = x.clone()
        x[::2] = 7
        x[-5:-1:2, -1] *= 2
        x[0, 0:2:7] = 3
        return x

    every: list[Any] = [lambda x: x[-5::2] + 0, lambda x: x[-7:9:3] + 0, written, stepped]
    same_at(every, lambda *s: [torch.randn(s)], (6, 4), (5, 3), (6, 5))
    same_at([lambda x: x.roll(-1, 0), lambda x: x.roll(4)], lambda n: [torch.randn(n)], (4,), (0,))


@pytest.mark.parametrize(
    ("function", "size", "refused"),
    [
        (lambda x: x.squeeze(), 3, 1),
        (lambda x: x.squeeze([0]), 3, 1),
        (lambda x: x[:1] + 0, 3, 0),
        (lambda x: x[-2:] + 0, 3, 1),
        (lambda x: x.slice_scatter(x[-2:] * 2, 0, -2), 3, 1),
    ],
)
def test_sizes_at_which_the_result_has_another_shape(
    function: Any, size: int, refused: int
) -> None:
    """torch.export takes symbolic sizes for 2 at least, and decides by that."""
    mod = check(function, [torch.randn(4, 2)], [{0: AUTO}], [[torch.randn(size, 2)]])
    with pytest.raises(CallError, match="exported for sizes where it does"):
        run(mod, [torch.randn(refused, 2)])


def test_a_condition_that_holds_nowhere() -> None:
    """How many elements there are is known at the call, and there may be none."""

    def parts(x: Any, m: Any) -> Any:
        own = x[m]
        y = torch.zeros_like(x)
        y[m] = own * 2
        runs = torch.unique_consecutive(own[:, 0], return_inverse=True, return_counts=True)
        return (
            y,
            x.index_put((m,), own, accumulate=True),
            x.masked_scatter(m[:, None].expand_as(x), own + 1),
            (own > 0).any(),
            (own > 0).any(0),
            (own > 0).all(),
            *runs,
        )

    rows = torch.tensor([True, False, True, True, False])
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    check(parts, (x, rows), others=[(x, torch.zeros_like(rows)), (x, torch.ones_like(rows))])


# -- sizes that a program does not take ------------------------------------------------------------
def test_the_range_of_a_derived_size_is_torchs() -> None:
    n = torch.export.Dim("n", min=1, max=5)
    mod = imported(lambda x: x * 2, [torch.randn(7)], [{0: 2 * n + 1}])
    for size in (3, 11):
        assert run(mod, [torch.ones(size)])[0].shape == (size,)
    for size in (1, 13):
        with pytest.raises(CallError, match="range 3 to 11"):
            run(mod, [torch.ones(size)])


def test_a_size_that_the_program_cannot_have() -> None:
    mod = imported(lambda x: x[:, :-1] + x.sum(1, True), [torch.randn(3, 7)], [{1: AUTO}])
    assert run(mod, [torch.ones(3, 1)])[0].shape == (3, 0)
    with pytest.raises(CallError, match=r"main: there is no program for s\d+ = 0: .*negative"):
        run(mod, [torch.ones(3, 0)])


def test_a_size_that_must_be_known() -> None:
    rows = torch.export.Dim("rows", min=4, max=64)
    with pytest.raises(OpNotImplemented, match="it is rows") as caught:
        imported(
            lambda x: torch.nn.functional.interpolate(x, scale_factor=1.7),
            [torch.ones(1, 1, 8, 8)],
            [{2: rows}],
        )
    assert "recursion" not in str(caught.value)


def test_sizes_have_the_names_of_dims_or_of_torch() -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    given: Any = (lambda x: x + 1, [torch.ones(3, 4)], [{0: batch}])
    named = imported(*given)["main"]
    assert named.attrs["tir_var_upper_bound"] == {"batch": 64}
    others = imported(*given, name_dims=False)["main"]
    (name,) = others.attrs["tir_var_upper_bound"]
    assert name.startswith("s")
    assert str(others.params[0].struct_info.dims[0]) == name
    assert_structural_equal(
        named.without_attr("tir_var_upper_bound").without_attr("tir_var_lower_bound"),
        others.without_attr("tir_var_upper_bound").without_attr("tir_var_lower_bound"),
        map_free_vars=True,
    )
