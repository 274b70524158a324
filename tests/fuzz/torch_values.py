"""Random torch functions, exported and imported, against eager torch, with float64 as the judge."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.fuzz.relax_values import off
from tests.fuzz.target import Target, Wrong

MOST: Final = 4096  # elements of a value
# Steps by text: what they make of values x, y and whole numbers i, j. Text, so that a program can
# be read where one is found to differ.
STEPS: Final = tuple(
    """
x + y
x - y
x * y
x * 0.5 + 1
x / (1 + y.abs())
torch.maximum(x, y)
torch.minimum(x, y)
torch.atan2(x, y)
torch.where(x > 0, x, y)
torch.where(x >= y, x, -x)
x.tanh()
x.sigmoid()
x.sin()
x.cos()
x.abs()
x.exp().clamp(max=50)
x.abs().log1p()
(x * x + 1).sqrt()
(x * x + 1).rsqrt()
x.erf()
x.relu()
x.neg()
F.gelu(x)
F.silu(x)
F.elu(x)
F.softplus(x)
F.leaky_relu(x, 0.2)
F.hardtanh(x)
x.clamp(-1, 1)
x.clamp(min=y)
x.lerp(y, 0.3)
torch.addcmul(x, x, y, value=0.5)
x.sum()
x.sum(i)
x.sum(i, keepdim=True)
x.mean(i, keepdim=True)
x.amax(i)
x.amin(i, keepdim=True)
x.max(i).values
x.var(i, unbiased=False)
x.std(i, keepdim=True, correction=0)
x.logsumexp(i)
x.norm(dim=i)
x.cumsum(i)
x.softmax(i)
x.log_softmax(i)
x.flip(i)
x.roll(1, i)
x.transpose(i, j)
x.movedim(i, j)
x.unsqueeze(i)
x.squeeze(i)
x.reshape(-1)
x.flatten(0)
x.narrow(i, 0, 1)
x.select(i, 0)
x.select(i, -1)
x.index_select(i, torch.tensor([0, 0]))
x.unflatten(i, (1, -1))
x.diff(dim=i)
x.repeat_interleave(2, i)
x.expand(2, *x.shape)
x.contiguous().view(-1)[::2]
x[..., :1]
x[..., 1:]
x[None]
x[..., None, :]
x.chunk(2, i)[0]
x.split(2, i)[-1]
x.sort(i).values
x.topk(1, i).values
x.argmax(i).to(x.dtype)
(x > y).to(x.dtype)
(x > 0).sum(i).to(x.dtype)
(x > 0).any(i).to(x.dtype)
torch.cat([x, x], i)
torch.stack([x, x.sin()], i)
x.tril()
x.triu(1)
x @ x.transpose(-1, -2)
torch.einsum("...ij,...kj->...ik", x, x)
F.layer_norm(x, x.shape[-1:])
F.pad(x, (1, 2), value=0.5)
F.pad(x, (0, -1))
x.masked_fill(x > 0.5, 0.25)
x.take_along_dim(x.argsort(i), i)
x.scatter(i, torch.zeros_like(x, dtype=torch.long), y.expand_as(x))
x.gather(i, torch.zeros_like(x, dtype=torch.long))
torch.outer(x.flatten()[:8], y.flatten()[:8])
F.normalize(x, dim=i)
F.cosine_similarity(x, x + 1, dim=i)
F.avg_pool1d(x, 2, ceil_mode=True)
F.max_pool2d(x, 2, padding=1)
F.interpolate(x, scale_factor=2.0)
x.to(torch.int32).to(x.dtype)
x.round()
x.trunc()
x.remainder(1.5)
x.fmod(1.5)
torch.floor_divide(x, 0.75)
x.nan_to_num()
x.add_(1.0)
x.mul_(y)
x.t()
""".strip().splitlines()
)


class TorchValues(Target):
    """A function of a few tensors."""

    name, title, suffix = "torch-values", "random torch functions against eager torch", ".py"
    is_right = True
    seconds = 120.0

    def prepare(self, folder: Path) -> None:
        importlib.import_module("torch._dynamo")  # which takes longer than an input

    def make(self, draw: random.Random) -> Any:
        """The function's text, its lines, its inputs."""
        import torch

        generator = torch.Generator().manual_seed(draw.getrandbits(31))
        shapes = [(2, 3), (2, 3), (3,), (1, 3, 4), (2, 1, 3), (4, 4), (), (0, 3), (2, 2, 4, 4)]
        given = [torch.randn(draw.choice(shapes), generator=generator) for _ in range(2)]
        lines: list[str] = []
        # Steps are tried as they are drawn, so that the program runs.
        for _ in range(draw.randint(2, 10)):
            for _ in range(20):
                i, j = draw.randint(-3, 2), draw.randint(-3, 2)
                before = [f"x{n}" for n in range(len(given) + len(lines))]
                x, y = draw.choice(before[-3:]), draw.choice(before)
                step = draw.choice(STEPS)
                line = _named(step, {"x": x, "y": y, "i": str(i), "j": str(j)})
                if _runs([*lines, line], given):
                    lines.append(line)
                    break
        return lines, given

    def show(self, made: Any) -> bytes:
        lines, given = made
        return text_of(lines, given).encode()

    def attempt(self, made: Any, folder: Path) -> str:
        import torch

        import relax2xla
        from relax2xla.frontend.torch import from_exported_program
        from relax2xla.testing import to_numpy

        lines, given = made
        function = compiled(lines, given)

        class Module(torch.nn.Module):
            def forward(self, *xs: Any) -> Any:
                return function(*xs)

        own = function(*(t.clone() for t in given))
        exact = function(*(t.double() for t in given))
        try:
            self.phase("export")
            program = torch.export.export(Module(), tuple(t.clone() for t in given))
        except Exception:  # torch's own limits
            return "not exported"
        self.phase("import")
        mod = from_exported_program(program)
        self.phase("build")
        machine = relax2xla.VirtualMachine(relax2xla.build(mod))
        self.phase("call")
        found = to_numpy(machine["main"](*(t.clone() for t in given)))
        found = found[: len(own)]  # what the function wrote to its inputs comes after
        if not all(torch.isfinite(e).all() for e in exact):
            return "not finite"
        scale = max((float(e.abs().max()) for e in exact if e.numel()), default=0.0)
        for i, (f, o, e) in enumerate(zip(found, own, exact, strict=True)):
            o = o.detach().numpy()
            if f.shape != o.shape or f.dtype != o.dtype:
                raise Wrong(f"result {i} is {f.dtype}{f.shape} instead of {o.dtype}{o.shape}")
            near = np.abs(o - e.numpy())
            if near.max(initial=0) > 1e-3 * max(scale, 1.0):
                return "torch's own rounding decides"
            if problem := off(np.asarray(f), o, e.numpy(), scale):
                if any("mul_(" in line for line in lines):
                    # Eager torch writes while it reads where one operand is a part of the other.
                    plain = program.run_decompositions({}).module()(*(t.clone() for t in given))
                    other = plain[i].detach().numpy()
                    if not off(np.asarray(f), other, other.astype(np.float64), scale):
                        return "as torch's own program without writes in place"
                raise Wrong(f"result {i}: {problem}: {'; '.join(lines)}")
        return "same"


def _named(step: str, names: dict[str, str]) -> str:
    import re

    return re.sub(r"(?<![\w.])([xyij])(?!\w)", lambda m: names[m[1]], step)


def text_of(lines: list[str], given: list[Any]) -> str:
    """The function as Python."""
    names = [f"x{n}" for n in range(len(given))]
    made = [f"# shapes: {[tuple(t.shape) for t in given]}", f"def function({', '.join(names)}):"]
    made += [f"    x{len(given) + n} = {line}" for n, line in enumerate(lines)]
    last = [f"x{len(given) + n}" for n in range(len(lines))][-3:]
    return "\n".join([*made, f"    return ({', '.join(last)},)" if last else "    return ()"])


def compiled(lines: list[str], given: list[Any]) -> Any:
    """The function itself."""
    import torch
    from torch.nn import functional as F

    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(text_of(lines, given), space)
    return space["function"]


def _runs(lines: list[str], given: list[Any]) -> bool:
    import torch

    try:
        with torch.no_grad():
            last = compiled(lines, given)(*(t.clone() for t in given))[-1]
    except Exception:
        return False
    return isinstance(last, torch.Tensor) and last.numel() <= MOST and last.dtype == torch.float32
