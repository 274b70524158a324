"""What tests of the PyTorch importer share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quick_options import quick_options


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """TorchDynamo remembers nothing of other tests; random numbers begin anew."""
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module", autouse=True)
def operators_compiled_quickly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of one operator each: well compiled they are in test_opinfo, and in tests of models.

    Those of special functions look at the last digits, which users get.
    """
    name = request.path.name
    if not name.startswith("test_aten_") or name == "test_aten_special.py":
        yield
        return
    with quick_options():
        yield
