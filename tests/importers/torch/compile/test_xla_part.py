"""Arguments of compiled graphs: arrays over their memory, or copies in memory that calls share."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from relax2xla.importers.torch.compile import xla_part  # noqa: E402
from relax2xla.importers.torch.compile.arguments import (  # noqa: E402
    OFTEN,
    PLACES,
    STAGED,
    STAGES,
    Borrowed,
    Stages,
)
from relax2xla.runtime.device import cpu  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_a_stage_holds_what_the_argument_holds(dtype: Any, shape: tuple[int, ...]) -> None:
    stages = Stages(cpu())
    for seed in (0, 1):
        value = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
        stage = stages.take(value)
        assert stage is not None
        memory, array = stage
        assert memory.data_ptr() == array.unsafe_buffer_pointer()
        torch.testing.assert_close(torch.from_dlpack(array), value, rtol=0, atol=0)
        stages.give_back([stage])
    again = stages.take(value)
    assert again is not None
    assert again[1] is array


def test_views_and_gradients_are_staged_as_values() -> None:
    stages = Stages(cpu())
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    for value in (x, x.t(), x[:, 1:3], x[1].expand(2, 4), torch.complex(x, x).conj()):
        stage = stages.take(value)
        assert stage is not None
        assert not stage[0].requires_grad
        torch.testing.assert_close(stage[0], value.detach().resolve_conj(), rtol=0, atol=0)


def test_what_is_not_staged() -> None:
    stages = Stages(cpu())
    assert stages.take(torch.zeros(STAGED // 4 + 1)) is None
    assert stages.take(torch.zeros(0)) is None


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.is_complex], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 300)], ids=str)
def test_an_array_over_a_tensor_serves_again(dtype: Any, shape: tuple[int, ...]) -> None:
    """If it has often been there; what is written to the tensor is seen in it."""
    borrowed = Borrowed(cpu())
    value = torch.ones(shape).to(dtype)
    assert [borrowed.find(value) for _ in range(OFTEN - 1)] == [None] * (OFTEN - 1)
    array = borrowed.find(value.requires_grad_(dtype.is_floating_point))
    assert array.unsafe_buffer_pointer() == value.data_ptr()
    value.detach().zero_()
    torch.testing.assert_close(torch.from_dlpack(array), value.detach(), rtol=0, atol=0)
    assert borrowed.find(value) is array
    assert len(borrowed) == 1


def test_an_array_does_not_keep_a_tensor_alive() -> None:
    borrowed = Borrowed(cpu())
    value = torch.ones(1000)
    gone = weakref.ref(value.untyped_storage())
    found = [borrowed.find(value) is not None for _ in range(OFTEN + 1)]
    assert found == [False] * (OFTEN - 1) + [True] * 2
    del value
    assert gone() is None


def test_one_place_may_hold_several_kinds() -> None:
    borrowed = Borrowed(cpu())
    memory = torch.arange(64, dtype=torch.int32)
    views = [memory, memory.view(torch.float32), memory.reshape(8, 8), memory[:8]]
    for _ in range(OFTEN):
        arrays = [borrowed.find(v) for v in views]
    for view, array in zip(views, arrays, strict=True):
        torch.testing.assert_close(torch.from_dlpack(array), view, rtol=0, atol=0, equal_nan=True)


def test_what_is_not_borrowed() -> None:
    """What lies apart, or not at the beginning of a line, or otherwise than it is read."""
    borrowed = Borrowed(cpu())
    x = torch.arange(64.0).reshape(8, 8)
    imaginary = torch.complex(x, x).conj()[0, 0].imag
    for value in (x.t(), x[:, 1:3], x[0, 1:], torch.complex(x, x), imaginary, torch.zeros(0)):
        for _ in range(OFTEN + 1):
            assert borrowed.find(value) is None
    assert len(borrowed) == 0


def test_so_many_places_are_remembered() -> None:
    borrowed = Borrowed(cpu())
    memory = torch.zeros(16 * 3 * PLACES)
    for place in range(3 * PLACES):
        for _ in range(OFTEN):
            borrowed.find(memory[16 * place : 16 * place + 4])
        assert len(borrowed) <= PLACES
    assert len(borrowed) > 0


def test_a_result_that_is_an_argument_has_memory_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="relax2xla")
    x = torch.ones(4)
    compiled(x)
    monkeypatch.setattr(xla_part.Built, "call", property(lambda self: lambda *a: a))
    for _ in range(OFTEN + 2):
        result = compiled(x)
        x.add_(1)
        torch.testing.assert_close(result, x - 1)


def test_memory_is_kept_for_so_many_shapes() -> None:
    stages = Stages(cpu())
    for size in range(1, 3 * STAGES):
        stage = stages.take(torch.ones(size))
        assert stage is not None
        stages.give_back([stage])
    assert len(stages) <= STAGES


def test_arguments_and_results_are_free_to_be_written_to() -> None:
    compiled = torch.compile(lambda x, y: (x * 2 + y, x.clone()), backend="relax2xla")
    x, y = torch.ones(4), torch.zeros(4)
    first, copy = compiled(x, y)
    x.fill_(7)
    second, _ = compiled(x, y)
    copy.fill_(-1)
    third, again = compiled(x, y)
    for result, expected in ((first, 2.0), (second, 14.0), (third, 14.0), (again, 7.0), (x, 7.0)):
        torch.testing.assert_close(result, torch.full((4,), expected))


def test_threads_have_memory_of_their_own() -> None:
    weight = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(lambda x: (x @ weight).tanh(), backend="relax2xla")
    inputs = [torch.full((2, 16), float(i)) for i in range(200)]
    compiled(inputs[0])
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(compiled, inputs))
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, (x @ weight).tanh())
