"""A small Llama in ``relax2xla.frontend.nn``: tried at once, exported, and run with a cache.

The same model is written in torch; both get the same random weights and give the same logits.

    python examples/nn_llama.py

needs torch (in a clone: pip install '.[torch]').
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import relax2xla as rx
from relax2xla.frontend import nn
from relax2xla.frontend.nn import op, spec


@dataclass(frozen=True)
class Config:
    """Sizes of a Llama."""

    vocab: int = 512
    hidden: int = 64
    inner: int = 160
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    longest: int = 128
    theta: float = 10000.0

    @property
    def size(self) -> int:
        """Elements of one head."""
        return self.hidden // self.heads


def rotation(config: Config) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cosines and sines of rotary position embedding: (longest, 1, size), one row a position."""
    halves = config.theta ** (-np.arange(0, config.size, 2) / config.size)
    angles = np.arange(config.longest)[:, None] * np.tile(halves, 2)
    made = angles[:, None, :]
    return np.cos(made).astype(np.float32), np.sin(made).astype(np.float32)


# -- the model in nn -------------------------------------------------------------------------------
class Attention(nn.Module):
    """Attention whose heads of the query share those of key and value; a cache for each of them."""

    def __init__(self, config: Config) -> None:
        self.heads, self.kv_heads, self.size = config.heads, config.kv_heads, config.size
        width = config.kv_heads * config.size
        self.q_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        self.k_proj = nn.Linear(config.hidden, width, bias=False)
        self.v_proj = nn.Linear(config.hidden, width, bias=False)
        self.o_proj = nn.Linear(config.hidden, config.hidden, bias=False)
        entry = [config.kv_heads, config.size]
        self.keys, self.values = nn.KVCache(16, entry), nn.KVCache(16, entry)

    def forward(self, x: nn.Tensor, turn: Any, total: Any = None) -> nn.Tensor:
        """x: (batch, n, hidden). total: all tokens so far, with a cache; None: without one."""
        b, n, _ = x.shape
        q = rotated(op.reshape(self.q_proj(x), [b, n, self.heads, self.size]), turn)
        k = rotated(op.reshape(self.k_proj(x), [b, n, self.kv_heads, self.size]), turn)
        v = op.reshape(self.v_proj(x), [b, n, self.kv_heads, self.size])
        if total is not None:
            self.keys.append(op.squeeze(k, 0))
            self.values.append(op.squeeze(v, 0))
            k = op.unsqueeze(self.keys.view(total), 0)
            v = op.unsqueeze(self.values.view(total), 0)
        seen = op.scaled_dot_product_attention(q, k, v, is_causal=n != 1)
        return self.o_proj(op.reshape(seen, [b, n, self.heads * self.size]))


def rotated(x: nn.Tensor, turn: tuple[nn.Tensor, nn.Tensor]) -> nn.Tensor:
    """x: (batch, n, heads, size), turned by the cosines and sines of its positions."""
    first, second = op.split(x, 2, axis=-1)
    return x * turn[0] + op.concat([-second, first], dim=-1) * turn[1]


class Layer(nn.Module):
    """Attention and a gated network, each after a norm and added to what came in."""

    def __init__(self, config: Config) -> None:
        self.input_layernorm = nn.RMSNorm(config.hidden, -1, bias=False)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, -1, bias=False)
        self.gate_proj = nn.Linear(config.hidden, config.inner, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.inner, bias=False)
        self.down_proj = nn.Linear(config.inner, config.hidden, bias=False)

    def forward(self, x: nn.Tensor, turn: Any, total: Any = None) -> nn.Tensor:
        """(batch, n, hidden), the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), turn, total)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(op.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    """Tokens to the logits of the next token."""

    def __init__(self, config: Config) -> None:
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.hidden, -1, bias=False)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)
        self.turns = [nn.Tensor.from_const(table) for table in rotation(config)]

    def _run(self, tokens: nn.Tensor, start: Any, total: Any = None) -> nn.Tensor:
        positions = op.arange(start, start + tokens.shape[1], dtype="int32")
        turn = tuple(op.take(table, positions, axis=0) for table in self.turns)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, turn, total)
        return self.lm_head(self.norm(x))

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        """(batch, n) to the logits of every position, (batch, n, vocab), without a cache."""
        return self._run(tokens, 0)

    def prefill(self, tokens: nn.Tensor) -> nn.Tensor:
        """The first tokens of a text, (1, n), which the caches then hold."""
        return self._run(tokens, 0, tokens.shape[1])

    def decode(self, token: nn.Tensor, total: Any) -> nn.Tensor:
        """One more token, (1, 1), the last of ``total``."""
        return self._run(token, total - 1, total)


# -- the same in torch -----------------------------------------------------------------------------
def torch_logits(config: Config, weights: dict[str, torch.Tensor], tokens: Any) -> torch.Tensor:
    """What the model gives for ``tokens`` (batch, n), by torch's functions."""
    functional = torch.nn.functional
    cos, sin = (torch.tensor(t[: tokens.shape[1], 0]) for t in rotation(config))

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.rms_norm(x, [config.hidden], weights[f"{name}.weight"], 1e-5)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ weights[f"{name}.weight"].T

    def heads(x: torch.Tensor, name: str, count: int) -> torch.Tensor:
        return linear(x, name).unflatten(-1, (count, config.size)).transpose(1, 2)

    def turned(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    x = weights["embed_tokens.weight"][torch.as_tensor(tokens)]
    for i in range(config.layers):
        at = f"layers.{i}"
        y = norm(x, f"{at}.input_layernorm")
        q = turned(heads(y, f"{at}.self_attn.q_proj", config.heads))
        k = turned(heads(y, f"{at}.self_attn.k_proj", config.kv_heads))
        v = heads(y, f"{at}.self_attn.v_proj", config.kv_heads)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + linear(seen.transpose(1, 2).flatten(2), f"{at}.self_attn.o_proj")
        y = norm(x, f"{at}.post_attention_layernorm")
        gate = functional.silu(linear(y, f"{at}.gate_proj"))
        x = x + linear(gate * linear(y, f"{at}.up_proj"), f"{at}.down_proj")
    return linear(norm(x, "norm"), "lm_head")


def random_weights(model: nn.Module, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights for every parameter, by name: what torch's ``state_dict()`` would give."""
    rng = torch.Generator().manual_seed(seed)
    return {
        name: torch.ones(p.shape)
        if name.endswith("norm.weight")
        else torch.randn(p.shape, generator=rng) * p.shape[-1] ** -0.5
        for name, p in model.named_parameters()
    }


def difference(ours: Any, theirs: torch.Tensor) -> float:
    """The largest difference of two arrays of one shape."""
    assert ours.shape == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs.numpy()).max())


def main() -> dict[str, float]:
    """Try, export and run the model; print and give how far it is from torch."""
    config = Config()
    model = Llama(config)
    weights = random_weights(model)
    model.load_state_dict(weights)
    tokens = np.random.default_rng(1).integers(0, config.vocab, (1, 12), np.int32)
    wanted = torch_logits(config, weights, tokens)
    found = {"tried at once": difference(model(tokens), wanted)}

    # Exported: one Relax function a method, for any number of tokens; weights are parameters.
    text = {"tokens": spec.Tensor([1, "n"], "int32")}
    plain = {**text, "$": {"effect_mode": "none"}}
    mod, params = model.export_tvm({"forward": plain})
    vm = rx.VirtualMachine(rx.build(mod))
    found["exported"] = difference(vm["forward"](tokens, *(p.data for _, p in params)), wanted)

    # With a cache: the first eight tokens at once, then one after the other.
    one = {"token": spec.Tensor([1, 1], "int32"), "total": "int"}
    compiled = model.jit({"prefill": text, "decode": one}, out_format="jax")
    logits = [np.asarray(compiled["prefill"](tokens[:, :8]))]
    for total in range(9, 13):
        logits.append(np.asarray(compiled["decode"](tokens[:, total - 1 : total], total)))
    found["with a cache"] = difference(np.concatenate(logits, axis=1), wanted)
    for way, error in found.items():
        print(f"{way}: the logits differ from torch's by at most {error:.1e}")
    return found


if __name__ == "__main__":
    main()
