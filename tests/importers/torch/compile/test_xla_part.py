"""Arguments of compiled graphs: small ones are copied into memory that calls share in turn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from relax2xla.importers.torch.compile.xla_part import STAGED, STAGES, Stages  # noqa: E402
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
        stages.give_back([stage], [])
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


def test_a_stage_that_is_a_result_is_not_used_again() -> None:
    stages = Stages(cpu())
    x = torch.ones(3)
    first = stages.take(x)
    assert first is not None
    stages.give_back([first], [first[1]])
    second = stages.take(2 * x)
    assert second is not None
    assert second[1] is not first[1]
    assert first[0].tolist() == [1, 1, 1]


def test_memory_is_kept_for_so_many_shapes() -> None:
    stages = Stages(cpu())
    for size in range(1, 3 * STAGES):
        stage = stages.take(torch.ones(size))
        assert stage is not None
        stages.give_back([stage], [])
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
