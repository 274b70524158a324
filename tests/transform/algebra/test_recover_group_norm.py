"""RecoverGroupNorm: torch's results of what its exporter writes, and nothing else taken for one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.transform import RecoverGroupNorm
from relax2xla.transform.core import run_on_function

RNG = np.random.default_rng(9)
X = RNG.standard_normal((2, 6, 4, 5)).astype("f")


def instances(
    split: tuple[int, ...] = (2, 3, -1), gamma: float = 1, back: tuple[int, ...] = X.shape
) -> rx.Function:
    x = rx.Var("x", rx.TensorStructInfo(X.shape))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        each = builder.emit(R.reshape(x, split))
        size = each.struct_info.shape[1]
        given = [rx.const(np.full(int(size), v, "f")) for v in (gamma, 0)]
        normal = builder.emit(R.nn.instance_norm(each, *given, channel_axis=1, axes=[2]))
        builder.emit_func_output(builder.emit(R.reshape(normal, back)))
    return builder.get()["main"]


def test_results_are_torchs() -> None:
    func = run_on_function([RecoverGroupNorm()], instances(), "main")
    assert "group_norm" in func.script()
    expected = torch.nn.functional.group_norm(torch.from_numpy(X), 3).numpy()
    np.testing.assert_allclose(rx.testing.evaluate(func, [X]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "other",
    [{"split": (1, 6, -1)}, {"split": (2, 4, -1)}, {"gamma": 2}, {"back": (2, 6, 5, 4)}],
    ids=str,
)
def test_others_stay(other: dict[str, object]) -> None:
    func = instances(**other)  # type: ignore[arg-type]
    assert run_on_function([RecoverGroupNorm()], func, "main") is func
