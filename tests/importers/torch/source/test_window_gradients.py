"""Gradients of convolutions, pools and pads beside torch's own kernels, in float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from relax2xla.importers.torch.source import window_gradients  # noqa: E402
from relax2xla.importers.torch.source.decompositions import OWN  # noqa: E402
from tests.importers.torch.helpers import check  # noqa: E402

ATEN = torch.ops.aten
SIZES = (7, 5, 6)

# channels in, channels out, groups
CHANNELS = ((4, 6, 1), (4, 6, 2), (4, 4, 4), (3, 6, 3))
# kernel, stride, padding, dilation, output_padding
KERNELS = ((1, 1, 0, 1, 0), (1, 2, 0, 1, 1), (1, 1, 1, 1, 0), (3, 1, 1, 1, 0), (2, 3, 1, 2, 1))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_convolutions_are_those_of_torchs_kernels(rank: int, transposed: bool) -> None:
    backward = ATEN.convolution_backward.default
    for size, out, groups in CHANNELS:
        for kernel, *numbers in KERNELS:
            stride, padding, dilation, more = ([n] * rank for n in numbers)
            window = (stride, padding, dilation, transposed, more if transposed else [0] * rank)
            x = torch.randn(2, size, *SIZES[:rank], dtype=torch.float64)
            lead = (size, out // groups) if transposed else (out, size // groups)
            weight = torch.randn(*lead, *[kernel] * rank, dtype=torch.float64)
            y = ATEN.convolution(x, weight, None, *window, groups)
            args = (torch.randn_like(y), x, weight, [out], *window, groups, [True] * 3)
            for mine, kernels in zip(OWN[backward](*args), backward(*args), strict=True):
                torch.testing.assert_close(mine, kernels)


@pytest.mark.parametrize(("rank", "transposed"), [(1, True), (3, False), (3, True)])
@pytest.mark.parametrize("channels", [3, 16])
def test_gradients_where_windows_lie_side_by_side(
    rank: int, transposed: bool, channels: int
) -> None:
    """With places left over behind them, and of no images."""
    backward = ATEN.convolution_backward.default
    for batch, kernel, more in ((2, (2, 3, 1), 1), (1, (1, 2, 2), 0), (0, (2, 2, 2), 0)):
        window = list(kernel[-rank:])
        extra = [more if transposed and k > 1 else 0 for k in window]
        numbers = (window, [0] * rank, [1] * rank, transposed, extra)
        one, other = (5, channels) if transposed else (channels, 5)
        x = torch.randn(batch, one, *(7, 5, 6)[:rank], dtype=torch.float64)
        lead = (one, other) if transposed else (other, one)
        weight = torch.randn(*lead, *window, dtype=torch.float64)
        y = ATEN.convolution(x, weight, None, *numbers, 1)
        args = (torch.randn_like(y), x, weight, [other], *numbers, 1)
        for mask in ([True] * 3, [False, True, False], [True, False, False]):
            made = OWN[backward](*args, mask)
            for mine, kernels, asked in zip(made, backward(*args, mask), mask, strict=True):
                if asked:
                    torch.testing.assert_close(mine, kernels)
                else:
                    assert mine is None


def test_windows_side_by_side_are_two_products() -> None:
    def back(grad: Any, x: Any, weight: Any) -> Any:
        window = ([2] * 3, [0] * 3, [1] * 3, True, [0] * 3, 1)
        return window_gradients.convolution_backward(
            grad, x, weight, None, *window, [True, True, False]
        )[:2]

    x, weight = torch.randn(1, 16, 3, 4, 4), torch.randn(16, 20, 2, 2, 2)
    grad = torch.randn(1, 20, 6, 8, 8)
    graph = make_fx(back, tracing_mode="fake")(grad, x, weight).graph
    assert len(graph.find_nodes(op="call_function", target=ATEN.mm.default)) == 2
    assert not graph.find_nodes(op="call_function", target=ATEN.convolution.default)


def test_of_any_size() -> None:
    """Depthwise, strided and over three axes, with symbolic batch and space."""

    def f(g: Any, x: Any, weight: Any, image: Any, volume: Any, kernel: Any) -> Any:
        steps = ([2, 2], [1, 1], [1, 1], False, [0, 0], 3, [True, True, False])
        values, places = ATEN.max_pool2d_with_indices(image, [3, 3], [2, 2], [1, 1])
        pool = ([3, 3], [2, 2], [1, 1], [1, 1], False)
        into = ([1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1, [True, True, False])
        beside = ([3, 3, 2], [0] * 3, [1] * 3, True, [0] * 3, 1, [True, True, False])
        whole = ATEN.convolution(volume, kernel[..., :2], None, *beside[:6])
        return (
            ATEN.convolution_backward(g, x, weight, None, *steps)[:2],
            ATEN.max_pool2d_with_indices_backward(values, image, *pool, places),
            ATEN.reflection_pad2d_backward(ATEN.reflection_pad2d(x, [1, 2, 0, 1]), x, [1, 2, 0, 1]),
            ATEN.convolution_backward(volume, volume, kernel, None, *into)[:2],
            ATEN.convolution_backward(whole, volume, kernel[..., :2], None, *beside)[:2],
        )

    def inputs(n: int, size: int) -> list[Any]:
        x = torch.randn(n, 3, size, size)
        g = torch.randn(n, 3, (size + 1) // 2, (size + 1) // 2)
        weight, kernel = torch.randn(3, 1, 3, 3), torch.randn(2, 2, 3, 3, 3)
        return [g, x, weight, torch.randn(n, 2, size, size), torch.randn(n, 2, 3, 4, 4), kernel]

    check(f, inputs(2, 6))
    n = torch.export.Dim("n", min=1)
    dims: list[Any] = [{0: n}, {0: n}, None, {0: n}, {0: n}, None]
    check(f, inputs(2, 6), dims, [inputs(5, 6), inputs(1, 6)])


# kernel, stride, padding, ceil_mode, count_include_pad, divisor
WINDOWS: list[tuple[int, int, int, bool, bool, int | None]] = [
    (2, 2, 0, False, True, None),
    (3, 2, 1, False, True, None),
    (3, 2, 1, False, False, None),
    (2, 2, 0, True, True, None),
    (3, 2, 1, True, True, 5),
    (2, 3, 1, True, False, None),
    (3, 4, 1, True, True, None),
]


def _like_the_kernel(name: str, forward: str, x: Any, *args: Any) -> None:
    """A decomposition's gradient is that of torch's kernel."""
    result = getattr(ATEN, forward)(x, *args)
    y, indices = result if isinstance(result, tuple) else (result, None)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rest = args if indices is None else (indices,)
    if "adaptive_avg" in name:
        rest = ()
    kernel = getattr(ATEN, name)
    torch.testing.assert_close(OWN[kernel.default](g, x, *rest), kernel(g, x, *rest))


@pytest.mark.parametrize("rank", [2, 3])
def test_gradients_of_pooling_are_those_of_torchs_kernels(rank: int) -> None:
    sizes = (7, 5, 6)[-rank:]
    x = torch.randn(2, 3, *sizes, dtype=torch.float64)
    for kernel, stride, padding, *rest in WINDOWS:
        window = [[n] * rank for n in (kernel, stride, padding)]
        _like_the_kernel(f"avg_pool{rank}d_backward", f"avg_pool{rank}d", x, *window, *rest)
        for spread in (1, 2):
            given = (*window, [spread] * rank, rest[0])
            y, indices = getattr(ATEN, f"max_pool{rank}d_with_indices")(x, *given)
            kernel = getattr(ATEN, f"max_pool{rank}d_with_indices_backward")
            args = (torch.randn_like(y), x, *given, indices)
            torch.testing.assert_close(OWN[kernel.default](*args), kernel(*args))
    average, largest = f"_adaptive_avg_pool{rank}d", f"adaptive_max_pool{rank}d"
    for name in (average, largest):
        _like_the_kernel(f"{name}_backward", name, x, [2, 4, 3][:rank])


@pytest.mark.parametrize("padding", [(2, 3), (-1, 3), (1, -1, -2, 3), (1, 2, 0, 3, 2, -1)])
def test_gradients_of_pads_are_those_of_torchs_kernels(padding: Any) -> None:
    rank = len(padding) // 2
    for sizes in ((7, 5, 6)[:rank], (5, 4, 1)[-rank:]):
        x = torch.randn(2, 3, *sizes).double()
        if x.shape[-1] + sum(padding[:2]) > 0:
            name = f"replication_pad{rank}d"
            _like_the_kernel(f"{name}_backward", name, x, padding)
        if max(padding) < min(sizes):
            name = f"reflection_pad{rank}d"
            _like_the_kernel(f"{name}_backward", name, x, padding)


@pytest.mark.parametrize("sizes", [(70,), (7, 70), (3, 1), (2, 2), (5, 6, 7), (4, 3, 66)])
def test_gradients_of_wide_and_of_narrow_borders_and_long_rows(sizes: Any) -> None:
    rank = len(sizes)
    for low, high in ((0, 1), (1, 0), (1, 1), (2, 1), (3, 3), (4, 0), (6, 5)):
        for padding in ([low, high] * rank, [low, high] + [0] * (2 * rank - 2)):
            x = torch.randn(2, 3, *sizes).double()
            _like_the_kernel(
                f"replication_pad{rank}d_backward", f"replication_pad{rank}d", x, padding
            )
            widest = zip(reversed(sizes), padding[::2], padding[1::2], strict=True)
            if all(max(pair) < size for size, *pair in widest):
                name = f"reflection_pad{rank}d"
                _like_the_kernel(f"{name}_backward", name, x, padding)


def test_gradients_of_pads_of_planes_of_any_size() -> None:
    def f(x: Any, small: Any) -> Any:
        made = ATEN.reflection_pad2d(x, [1, 2, 0, 1])
        more = ATEN.replication_pad2d(small, [1, 2, 6, 1])
        return (
            ATEN.reflection_pad2d_backward(made, x, [1, 2, 0, 1]),
            ATEN.replication_pad2d_backward(more, small, [1, 2, 6, 1]),
        )

    def inputs(n: int, size: int) -> list[Any]:
        return [torch.randn(n, 3, size, size + 1), torch.randn(n, 2, size, size)]

    size = torch.export.Dim("size", min=3, max=100)
    dims: list[Any] = [{2: size, 3: size + 1}, {2: size, 3: size}]
    check(f, inputs(2, 6), dims, [inputs(2, 3), inputs(2, 80)])


def _traced(groups: int, dtype: torch.dtype = torch.float32) -> Any:
    """A 3x3 convolution of 8 channels, back to its input and its weight."""

    def back(grad: Any, x: Any, weight: Any) -> Any:
        ones = [1, 1]
        return window_gradients.convolution_backward(
            grad, x, weight, None, ones, ones, ones, False, [0, 0], groups, [True, True, False]
        )[:2]

    image = torch.randn(2, 8, 6, 6, dtype=dtype)
    weight = torch.randn(8, 8 // groups, 3, 3, dtype=dtype)
    return make_fx(back, tracing_mode="fake")(image, image, weight).graph


OWN_WEIGHT: Any = torch.ops.relax2xla_gradients.weight.default


def test_groups_go_back_by_convolutions_of_the_same_direction() -> None:
    """XLA, and oneDNN's calls, have fast ones of these alone."""
    convolutions = _traced(4).find_nodes(op="call_function", target=ATEN.convolution.default)
    assert [node.args[6] for node in convolutions] == [False]
    doubles = _traced(4, torch.float64)
    convolutions = doubles.find_nodes(op="call_function", target=ATEN.convolution.default)
    assert [node.args[6] for node in convolutions] == [False, False]


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_gradients_of_weights_in_float32_are_one_operation(groups: int) -> None:
    """Which a pass looks for, and computes in C++ where it can."""
    graph = _traced(groups)
    assert len(graph.find_nodes(op="call_function", target=OWN_WEIGHT)) == 1
    assert not graph.find_nodes(op="call_function", target=ATEN.sum.dim_IntList)
    x, weight = torch.randn(2, 8, 6, 7), torch.randn(8, 8 // groups, 3, 3)
    grad = torch.randn(2, 8, 2, 4)
    window = ([2, 2], [1, 1], [2, 1])
    rest = (False, [0, 0], groups, [False, True, False])
    expected = ATEN.convolution_backward(grad, x, weight, None, *window, *rest)[1]
    torch.testing.assert_close(OWN_WEIGHT(x, grad, weight, *window, groups), expected)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("transposed", [False, True])
def test_those_of_volumes_are_one_operation_over_planes(
    groups: int, transposed: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each slice of the window where these would take much memory."""
    if large:
        monkeypatch.setattr(window_gradients, "MAX_JOINED", 0)
    window = ([2, 1, 2], [2, 1, 0], [2, 1, 2])
    rest = (transposed, [0, 0, 0], groups, [False, True, False])

    def back(grad: Any, x: Any, weight: Any) -> Any:
        return window_gradients.convolution_backward(grad, x, weight, None, *window, *rest)[1]

    x, weight = torch.randn(2, 8, 6, 5, 7), torch.randn(8, 8 // groups, 3, 2, 3)
    grad = torch.randn_like(ATEN.convolution(x, weight, None, *window, *rest[:3]))
    graph = make_fx(back, tracing_mode="fake")(grad, x, weight).graph
    operations = len(graph.find_nodes(op="call_function", target=OWN_WEIGHT))
    # Depthwise planes have none whose windows have gaps, as here.
    assert operations == ((0 if groups == 8 else 3) if large else 1)
    expected = ATEN.convolution_backward(grad, x, weight, None, *window, *rest)[1]
    torch.testing.assert_close(back(grad, x, weight), expected, rtol=1e-4, atol=1e-4)


def test_planes_whose_windows_are_spread_stay_sums_of_products() -> None:
    """Functions for planes have windows without gaps; XLA has no fast form for these."""

    def back(grad: Any, x: Any, weight: Any) -> Any:
        where = ([1, 1], [2, 2], [2, 2], False, [0, 0], 8, [False, True, False])
        return window_gradients.convolution_backward(grad, x, weight, None, *where)[1]

    image, weight = torch.randn(2, 8, 6, 6), torch.randn(8, 1, 3, 3)
    graph = make_fx(back, tracing_mode="fake")(image, image, weight).graph
    assert not graph.find_nodes(op="call_function", target=OWN_WEIGHT)
    expected = ATEN.convolution_backward(
        image, image, weight, None, [1, 1], [2, 2], [2, 2], False, [0, 0], 8, [False, True, False]
    )[1]
    torch.testing.assert_close(back(image, image, weight), expected, rtol=1e-4, atol=1e-4)


def test_depthwise_products_are_added_up_before_their_sums() -> None:
    """So each sum reads a row of an image: of the nine places in the window one each."""
    graph = _traced(8, torch.float64)
    sums = graph.find_nodes(op="call_function", target=ATEN.sum.dim_IntList)
    assert [node.args[0].meta["val"].numel() for node in sums] == [6 * 8] * 9
