"""A decoder of language models in ``relax2xla.frontend.nn``, over a paged cache.

One class for all architectures of ``config.py``. Queries, keys and values come from one product,
and so do both halves of a gated network: fewer products, each of more rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from examples.models.llm.config import Config
from relax2xla.frontend import nn
from relax2xla.frontend.nn import op
from relax2xla.frontend.nn.llm.experts import ChosenLinear
from relax2xla.frontend.nn.llm.folder import Source, plain, plus_one, rows, stacked, transposed
from relax2xla.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode
from relax2xla.frontend.nn.llm.rotary import rotary_tables, rotate

Turn = tuple[nn.Tensor, nn.Tensor] | None


def _norm(c: Config, size: int) -> nn.Module:
    if c.norm == "layer":
        return nn.LayerNorm(size, c.eps)
    return nn.RMSNorm(size, -1, c.eps, bias=False)


def _active(x: nn.Tensor, name: str) -> nn.Tensor:
    if name == "gelu_tanh":
        return op.gelu(x, "tanh")
    return {"silu": op.silu, "gelu": op.gelu, "relu": op.relu}[name](x)


class Attention(nn.Module):
    """Attention of one layer to what the cache holds."""

    def __init__(self, c: Config, layer: int) -> None:
        self.config, self.layer = c, layer
        width = (c.heads + 2 * c.kv_heads) * c.head_dim
        self.qkv_proj = nn.Linear(c.hidden, width, bias=c.qkv_bias)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=c.out_bias)
        if c.qk_norm:
            self.q_norm, self.k_norm = _norm(c, c.head_dim), _norm(c, c.head_dim)

    def forward(self, x: nn.Tensor, turn: Turn, cache: PagedKVCache) -> nn.Tensor:
        """x: (1, n, hidden), the same shape."""
        c, n = self.config, x.shape[1]
        qkv = op.reshape(self.qkv_proj(x), [1, n, c.heads + 2 * c.kv_heads, c.head_dim])
        if turn is not None or c.qk_norm:
            q, k, v = op.split(qkv, [c.heads, c.heads + c.kv_heads], axis=2)
            if c.qk_norm:
                q, k = self.q_norm(q), self.k_norm(k)
            if turn is not None:
                how = c.turns[c.turn[self.layer]]
                q, k = rotate(q, turn, how), rotate(k, turn, how)
            qkv = op.concat([q, k, v], dim=2)
        window = c.windows[self.layer] if c.windows else None
        seen = cache.attention_with_fused_qkv(
            self.layer, qkv, c.heads, c.scale, window=window, cap=c.score_cap
        )
        return self.o_proj(op.reshape(seen, [1, n, c.heads * c.head_dim]))


class Network(nn.Module):
    """The network of a layer, gated or not."""

    def __init__(self, c: Config) -> None:
        self.config = c
        self.up_proj = nn.Linear(c.hidden, c.inner * (2 if c.gated else 1), bias=c.mlp_bias)
        self.down_proj = nn.Linear(c.inner, c.hidden, bias=c.mlp_bias)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """x: (1, n, hidden), the same shape."""
        y = self.up_proj(x)
        if self.config.gated:
            gate, y = op.split(y, 2, axis=-1)
            return self.down_proj(_active(gate, self.config.activation) * y)
        return self.down_proj(_active(y, self.config.activation))


class Experts(nn.Module):
    """Networks of which each token takes some, by the weights of a gate; others are not read."""

    def __init__(self, c: Config) -> None:
        self.config = c
        self.gate = nn.Linear(c.hidden, c.experts, bias=False)
        self.up_proj = ChosenLinear(c.experts, c.hidden, 2 * c.inner)
        self.down_proj = ChosenLinear(c.experts, c.inner, c.hidden)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """x: (1, n, hidden), the same shape."""
        c, n = self.config, x.shape[1]
        shares = op.softmax(self.gate(op.reshape(x, [n, c.hidden])).astype("float32"))
        best, which = op.topk(shares, c.experts_per_token, axis=-1)
        best = best / op.sum(best, axis=-1, keepdims=True)
        up = self.up_proj(op.reshape(x, [n, 1, c.hidden]), which)
        gate, y = op.split(up, 2, axis=-1)
        y = self.down_proj(_active(gate, c.activation) * y, which)
        by = op.reshape(best, [n, c.experts_per_token, 1])
        return op.reshape(op.sum(y * by.astype(y.dtype), axis=1), [1, n, c.hidden])


class Layer(nn.Module):
    """Attention and a network, each added to what came in."""

    def __init__(self, c: Config, layer: int) -> None:
        self.config = c
        self.input_norm = _norm(c, c.hidden)
        self.attention = Attention(c, layer)
        self.mlp = Experts(c) if c.experts else Network(c)
        if not c.parallel:
            self.mlp_norm = _norm(c, c.hidden)
        if c.post_norms:
            self.after_attention, self.after_mlp = _norm(c, c.hidden), _norm(c, c.hidden)

    def forward(self, x: nn.Tensor, turn: Turn, cache: PagedKVCache) -> nn.Tensor:
        """x: (1, n, hidden), the same shape."""
        y = self.input_norm(x)
        seen = self.attention(y, turn, cache)
        if self.config.parallel:
            return x + seen + self.mlp(y)
        x = x + (self.after_attention(seen) if self.config.post_norms else seen)
        y = self.mlp(self.mlp_norm(x))
        return x + (self.after_mlp(y) if self.config.post_norms else y)


class CausalLM(nn.Module):
    """Tokens to the logits of the next ones; what ``nn.llm.generate.Generator`` runs."""

    def __init__(self, c: Config) -> None:
        self.config = c
        self.vocab, self.context = c.vocab, c.context
        self.embed = nn.Embedding(c.vocab, c.hidden)
        if c.positions:
            self.positions = nn.Embedding(c.positions, c.hidden)
        self.layers = nn.ModuleList([Layer(c, i) for i in range(c.layers)])
        self.norm = _norm(c, c.hidden)
        if not c.tied:
            self.head = nn.Linear(c.hidden, c.vocab, bias=c.head_bias)

    def step(
        self, tokens: nn.Tensor, positions: nn.Tensor, rows: nn.Tensor, cache: PagedKVCache
    ) -> nn.Tensor:
        """tokens: (1, n); positions: (n,); rows: (b,), whose logits are wanted, all int32.

        result: (b, vocab), float32
        """
        c, n = self.config, tokens.shape[1]
        x = self.embed(tokens)
        if c.positions:
            x = x + op.reshape(self.positions(positions), [1, n, c.hidden])
        if c.embed_scale != 1.0:
            x = x * c.embed_scale
        turns = [rotary_tables(positions, how) for how in c.turns]
        for which, layer in zip(c.turn, self.layers, strict=True):
            x = layer(x, turns[which] if which >= 0 else None, cache)
        x = self.norm(op.take(op.reshape(x, [n, c.hidden]), rows, axis=0))
        logits = (self._tied(x) if c.tied else self.head(x)).astype("float32")
        return logits if c.cap is None else op.tanh(logits / c.cap) * c.cap

    def _tied(self, x: nn.Tensor) -> nn.Tensor:
        """x: (b, hidden) times the table of tokens."""
        quantised = getattr(self.embed, "product", None)
        if quantised is not None:
            return quantised(x)
        return op.matmul(x, op.permute_dims(self.embed.weight, [1, 0]))

    def create_paged_kv_cache(
        self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any
    ) -> PagedKVCache:
        """A cache for so many sequences and tokens in all, tokens of a step, tokens of a page."""
        c = self.config
        return PagedKVCache.create_generic(
            attn_kind="mha",
            max_batch_size=sequences,
            max_total_seq_len=tokens,
            prefill_chunk_size=chunk,
            page_size=page,
            support_sliding_window=sliding,
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads,
            qk_head_dim=c.head_dim,
            v_head_dim=c.head_dim,
            rope_mode=RopeMode.NONE,  # the model turns them, once for all layers
            rope_scale=1.0,
            rope_theta=1.0,
            dtype="float32" if c.experts else getattr(self, "dtype", "float32"),
        )

    # -- where the weights lie in a folder of transformers
    def sources(self) -> dict[str, Source]:
        """Of each parameter the tensors that it is made of."""
        return dict(_gpt2(self.config) if self.config.positions else _named(self.config))


def _pair(ours: str, theirs: str, bias: bool, **how: Any) -> Iterator[tuple[str, Source]]:
    yield f"{ours}.weight", plain(f"{theirs}.weight", **how)
    if bias:
        yield f"{ours}.bias", plain(f"{theirs}.bias", **how)


def _named(c: Config) -> Iterator[tuple[str, Source]]:
    """The names of Llama and its like."""
    phi = c.parallel
    layer_norm = c.norm == "layer"

    def norm(ours: str, theirs: str) -> Iterator[tuple[str, Source]]:
        if c.norm == "rms+1":
            yield f"{ours}.weight", plus_one(f"{theirs}.weight")
        else:
            yield from _pair(ours, theirs, layer_norm)

    def fused(ours: str, names: list[str], sizes: list[int], bias: bool) -> Iterator[Any]:
        for kind in ("weight", "bias") if bias else ("weight",):
            yield f"{ours}.{kind}", rows([f"{n}.{kind}" for n in names], sizes)

    yield "embed.weight", plain("model.embed_tokens.weight")
    for i in range(c.layers):
        ours, at = f"layers.{i}", f"model.layers.{i}"
        yield from norm(f"{ours}.input_norm", f"{at}.input_layernorm")
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attn = f"{at}.self_attn"
        if c.fused:
            yield f"{ours}.attention.qkv_proj.weight", plain(f"{attn}.qkv_proj.weight")
            yield f"{ours}.mlp.up_proj.weight", plain(f"{at}.mlp.gate_up_proj.weight")
        else:
            names = [f"{attn}.{n}_proj" for n in "qkv"]
            yield from fused(f"{ours}.attention.qkv_proj", names, [q, kv, kv], c.qkv_bias)
        yield from _pair(
            f"{ours}.attention.o_proj", f"{attn}.{'dense' if phi else 'o_proj'}", c.out_bias
        )
        if c.qk_norm:
            yield from norm(f"{ours}.attention.q_norm", f"{attn}.q_norm")
            yield from norm(f"{ours}.attention.k_norm", f"{attn}.k_norm")
        if c.post_norms:
            yield from norm(f"{ours}.after_attention", f"{at}.post_attention_layernorm")
            yield from norm(f"{ours}.mlp_norm", f"{at}.pre_feedforward_layernorm")
            yield from norm(f"{ours}.after_mlp", f"{at}.post_feedforward_layernorm")
        elif not phi:
            yield from norm(f"{ours}.mlp_norm", f"{at}.post_attention_layernorm")
        if c.experts:
            moe = f"{at}.block_sparse_moe"
            yield f"{ours}.mlp.gate.weight", plain(f"{moe}.gate.weight")
            for kind, parts in (("up_proj", ("w1", "w3")), ("down_proj", ("w2",))):
                names = [[f"{moe}.experts.{e}.{p}.weight" for p in parts] for e in range(c.experts)]
                yield f"{ours}.mlp.{kind}.weight", stacked(names)
        elif c.gated and not c.fused:
            names = [f"{at}.mlp.{n}_proj" for n in ("gate", "up")]
            yield from fused(f"{ours}.mlp.up_proj", names, [c.inner, c.inner], c.mlp_bias)
        elif not c.gated:
            yield from _pair(f"{ours}.mlp.up_proj", f"{at}.mlp.fc1", c.mlp_bias)
        if not c.experts:
            down = f"{at}.mlp.{'down_proj' if c.gated else 'fc2'}"
            yield from _pair(f"{ours}.mlp.down_proj", down, c.mlp_bias)
    yield from norm("norm", "model.final_layernorm" if phi else "model.norm")
    if not c.tied:
        yield from _pair("head", "lm_head", c.head_bias)


def _gpt2(c: Config) -> Iterator[tuple[str, Source]]:
    """The names of GPT-2, whose products have (in, out) weights."""
    top = "transformer."

    def linear(ours: str, theirs: str) -> Iterator[tuple[str, Source]]:
        yield f"{ours}.weight", transposed(f"{theirs}.weight", optional=top)
        yield f"{ours}.bias", plain(f"{theirs}.bias", optional=top)

    yield "embed.weight", plain(f"{top}wte.weight", optional=top)
    yield "positions.weight", plain(f"{top}wpe.weight", optional=top)
    for i in range(c.layers):
        ours, at = f"layers.{i}", f"{top}h.{i}"
        yield from _pair(f"{ours}.input_norm", f"{at}.ln_1", True, optional=top)
        yield from linear(f"{ours}.attention.qkv_proj", f"{at}.attn.c_attn")
        yield from linear(f"{ours}.attention.o_proj", f"{at}.attn.c_proj")
        yield from _pair(f"{ours}.mlp_norm", f"{at}.ln_2", True, optional=top)
        yield from linear(f"{ours}.mlp.up_proj", f"{at}.mlp.c_fc")
        yield from linear(f"{ours}.mlp.down_proj", f"{at}.mlp.c_proj")
    yield from _pair("norm", f"{top}ln_f", True, optional=top)
    if not c.tied:
        yield "head.weight", plain("lm_head.weight")
