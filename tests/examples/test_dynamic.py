"""The example networks as dynamic StableHLO: one program for every batch (and BERT's length)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relax2xla as rx  # noqa: E402  (after the skip)
from examples.models import MODELS  # noqa: E402
from relax2xla.frontend.stablehlo import from_stablehlo  # noqa: E402
from relax2xla.frontend.torch import from_exported_program  # noqa: E402


def outputs_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def exported(program: Any) -> Any:
    """``program`` as dynamic StableHLO text, read back and built."""
    mod = from_exported_program(program)
    text = rx.to_stablehlo(mod)
    assert isinstance(text, str)
    assert "tensor<?x" in text.split("->")[0]
    back = from_stablehlo(text, raise_ops=False)
    return rx.VirtualMachine(rx.build(back, "cpu"))["main"]


def check(run: Any, module: Any, inputs: Any) -> None:
    with torch.no_grad():
        want = outputs_of(module(*inputs))
    got = run(*[x.numpy() for x in inputs])
    got = got if isinstance(got, tuple | list) else (got,)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), w.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_batches(name: str) -> None:
    model = MODELS[name]
    module = model.build(small=True)
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = tuple({0: batch} for _ in model.inputs)
    program = torch.export.export(
        module, model.example_inputs(2, 0, small=True), dynamic_shapes=shapes
    )
    run = exported(program)
    for size in (1, 3):
        check(run, module, model.example_inputs(size, 1, small=True))


def test_bert_of_any_length() -> None:
    model = MODELS["bert_base"]
    module = model.build(small=True)
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", max=32)
    inputs = model.example_inputs(2, 0, small=True)
    shapes = tuple({0: batch, 1: length} for _ in inputs)
    run = exported(torch.export.export(module, inputs, dynamic_shapes=shapes))
    for size, count in ((1, 5), (3, 9)):
        check(run, module, [x[:, :count] for x in model.example_inputs(size, 1, small=True)])
