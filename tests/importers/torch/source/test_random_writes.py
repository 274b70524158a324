"""Random programs that write to buffers, inputs, temporaries and views of them, against eager."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relax2xla  # noqa: E402
from relax2xla.errors import UnsupportedError  # noqa: E402
from relax2xla.frontend.torch import from_exported_program  # noqa: E402

# What a step makes of a value ``t`` and another one, ``u``: a new value, or None after a write.
VIEWS: list[Any] = [
    lambda t, u: t[0:2],
    lambda t, u: t[-1],
    lambda t, u: t.reshape(-1),
    lambda t, u: t.t(),
    lambda t, u: t.detach(),
    lambda t, u: t.to(torch.float32),
]
VALUES: list[Any] = [
    lambda t, u: t * 2 + 1,
    lambda t, u: t.to(torch.float64).to(torch.float32),
    lambda t, u: u.sum() - t,
]
WRITES: list[Any] = [
    lambda t, u: t.add_(1.5),
    lambda t, u: t.mul_(u.mean()),
    lambda t, u: t.clamp_(max=3),
    lambda t, u: t.copy_(u.sum()),
    lambda t, u: t[1:].sub_(u.mean()),
    lambda t, u: t.select(0, 0).fill_(0.25),
    lambda t, u: t.index_copy_(0, torch.tensor([1]), torch.ones_like(t[:1])),
]


class Writes(nn.Module):
    """A program of a random seed; every fifth one has two buffers in one memory."""

    a: Any
    b: Any
    part: Any

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("a", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("b", torch.ones(3, 4))
        self.register_buffer("part", self.a[1:] if seed % 5 == 0 else torch.zeros(2, 4))
        self.weight = nn.Parameter(torch.full((3, 4), 0.5), requires_grad=False)

    def forward(self, x: Any, y: Any) -> Any:
        draw = random.Random(self.seed)
        values = [self.a, self.b, self.part, self.weight, x, y]
        self.part.add_(self.a.mean())  # both are used in every program
        for _ in range(draw.randint(2, 9)):
            kind = draw.choice([VIEWS, VALUES, WRITES, WRITES])
            t, u = draw.choice(values), draw.choice(values)
            step = draw.choice(kind)
            if t.dim() == 2 and t.shape[0] > 1:
                values.append(step(t, u))
        return tuple(draw.sample(values, draw.randint(1, 4)))


@pytest.mark.parametrize("seed", range(36))
def test_writes_are_those_of_eager_torch(seed: int) -> None:
    module = Writes(seed)
    generator = torch.Generator().manual_seed(seed)
    args = [torch.randn(3, 4, generator=generator) for _ in range(2)]
    program = torch.export.export(copy.deepcopy(module), tuple(a.clone() for a in args))
    try:
        mod = from_exported_program(program)
    except UnsupportedError as e:
        if "torch cannot take the writes in place out" not in str(e):
            raise
        return
    attrs = mod["main"].attrs
    given = [*(a.numpy() for a in args), *map(np.array, attrs.get("state_values", []))]
    found = relax2xla.VirtualMachine(relax2xla.build(mod))["main"](*given)
    wanted = dict(enumerate(module(*args)))
    state, inputs = attrs.get("state", {}), attrs.get("mutated_inputs", {})
    before, after = Writes(seed).state_dict(), module.state_dict()
    for name, value in after.items():
        if name in state:
            wanted[int(state[name][1])] = value
        else:
            assert torch.equal(value, before[name]), name
    for name, value in zip("xy", args, strict=True):
        if name in inputs:
            wanted[int(inputs[name])] = value
    assert len(found) == len(wanted)
    for at, value in wanted.items():
        np.testing.assert_allclose(np.asarray(found[at]), value, rtol=1e-5, atol=1e-5)
