"""Nets over time: recurrent ones, causal convolutions, speech."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .network import BATCH, RECURRENT, SEQUENCES, Network, attention, exporting, tokens

WORDS = 41


class Tagger(nn.Module):
    """Two layers of LSTM in both directions; a tag for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 12)
        self.lstm = nn.LSTM(12, 10, 2, bidirectional=True, batch_first=True)
        self.last = nn.Linear(20, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(self.embed(ids))[0]).log_softmax(-1)


class LSTMWithState(nn.Module):
    """A language model that takes and gives its state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 12), nn.LSTM(12, 12, batch_first=True)

    def forward(
        self, ids: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, (h, c) = self.lstm(self.embed(ids), (h, c))
        return F.linear(y, self.embed.weight), h, c


class GRUClassifier(nn.Module):
    """A GRU, time first, read off at its last states."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 8, bidirectional=True)
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, h = self.gru(x.transpose(0, 1))
        return self.last(torch.cat([h[0], h[1]], -1))


class Elman(nn.Module):
    """A plain recurrent net with ReLU, of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(4, 6, 2, nonlinearity="relu", batch_first=True)
        self.last = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rnn(x)[0][:, -1])


class TCN(nn.Module):
    """Causal dilated convolutions with weight norm written out (Bai et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(cin, 8, 3, dilation=2**i) for i, cin in enumerate((4, 8, 8))
        )
        self.gains = nn.ParameterList(torch.rand(8, 1, 1) + 0.5 for _ in range(3))
        self.short = nn.Conv1d(4, 8, 1)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        short = self.short(x)
        for i, (layer, gain) in enumerate(zip(self.layers, self.gains, strict=True)):
            weight = gain * layer.weight / layer.weight.flatten(1).norm(dim=1)[:, None, None]
            x = F.conv1d(F.pad(x, (2 * 2**i, 0)), weight, layer.bias, dilation=2**i).relu()
        return self.last((x + short)[:, :, -1])


class WaveNet(nn.Module):
    """Gated causal convolutions with skips; mu-law classes in and out (Oord et al. 2016)."""

    def __init__(self, levels: int = 32) -> None:
        super().__init__()
        self.levels = levels
        self.first = nn.Conv1d(levels, 8, 1)
        self.gated = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(3))
        self.skip, self.residual = (
            nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3)) for _ in range(2)
        )
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(8, 8, 1), nn.ReLU(), nn.Conv1d(8, levels, 1))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        mu = self.levels - 1
        squeezed = wave.sign() * torch.log1p(mu * wave.abs()) / math.log1p(mu)
        classes = ((squeezed + 1) / 2 * mu + 0.5).to(torch.int64)
        x = self.first(F.one_hot(classes, self.levels).float().transpose(-1, -2))
        skips: list[torch.Tensor] = []
        for i, gated in enumerate(self.gated):
            a, b = gated(F.pad(x, (2**i, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            skips.append(self.skip[i](y))
            x = x + self.residual[i](y)
        return self.last(torch.stack(skips).sum(0))


class Seq2Seq(nn.Module):
    """A GRU reads; another, with attention, writes the likeliest words in a loop."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.embed = nn.Embedding(WORDS, 8)
        self.read, self.cell = nn.GRU(8, 12, batch_first=True), nn.GRUCell(20, 12)
        self.last = nn.Linear(12, WORDS)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        memory, state = self.read(self.embed(ids))
        h = state[0]
        word = torch.ones_like(ids[:, 0])
        logits, words = [], []
        for _ in range(self.steps):
            weights = (memory @ h[:, :, None]).squeeze(-1).softmax(-1)
            context = (weights[:, None] @ memory).squeeze(1)
            h = self.cell(torch.cat([self.embed(word), context], -1), h)
            y = self.last(h)
            word = y.argmax(-1)
            logits.append(y)
            words.append(word)
        return torch.stack(logits, 1), torch.stack(words, 1)


class CRNN(nn.Module):
    """Text in pictures: a convolution net, columns as time, LSTM, CTC's scores and best path."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.lstm, self.last = nn.LSTM(24, 8, bidirectional=True), nn.Linear(16, 7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.body(x).flatten(1, 2).permute(2, 0, 1)
        y = self.last(self.lstm(x)[0]).log_softmax(-1)
        return y, y.argmax(-1).T


class Speech(nn.Module):
    """Log-mel features by STFT, strided convolutions, a transformer (Radford et al. 2022)."""

    def __init__(self, size: int = 32, mels: int = 10) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("mel", torch.rand(mels, size // 2 + 1))
        self.conv1 = nn.Conv1d(mels, 16, 3, padding=1)
        self.conv2 = nn.Conv1d(16, 16, 3, stride=2, padding=1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(
            wave, self.size, self.size // 2, window=self.window, center=False, return_complex=True
        )
        power = torch.view_as_real(spectrum).square().sum(-1)
        mel = (self.mel @ power).clamp(min=1e-10).log10()
        mel = torch.maximum(mel, mel.amax(dim=(1, 2), keepdim=True) - 8.0)
        x = F.gelu(self.conv2(F.gelu(self.conv1((mel + 4.0) / 4.0))))
        return self.body(x.transpose(-1, -2))


class Conformer(nn.Module):
    """Half perceptron, attention, gated depthwise convolution, half perceptron."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.shrink = nn.Conv2d(1, 4, 3, 2, 1)
        self.into = nn.Linear(16, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.halves = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 24), nn.SiLU(), nn.Linear(24, width)) for _ in range(2)
        )
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.pointwise, self.out = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.shrink(x[:, None]).relu()
        x = self.into(x.transpose(1, 2).flatten(2))
        x = x + 0.5 * self.halves[0](self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.pointwise(self.norms[2](x).transpose(-1, -2)), dim=1)
        x = x + self.out(F.silu(self.bn(self.depthwise(y)))).transpose(-1, -2)
        x = x + 0.5 * self.halves[1](self.norms[3](x))
        return self.norms[4](x)


class StateSpace(nn.Module):
    """A selective state space, its recurrence written out over a fixed length (Mamba, 2023)."""

    def __init__(self, width: int = 8, state: int = 4, length: int = 6) -> None:
        super().__init__()
        self.length = length
        self.into, self.conv = nn.Linear(width, 2 * width), nn.Conv1d(width, width, 3, groups=width)
        self.bc, self.step = nn.Linear(width, 2 * state), nn.Linear(width, width)
        self.log_a = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.into(x).chunk(2, -1)
        x = F.silu(self.conv(F.pad(x.transpose(-1, -2), (2, 0))).transpose(-1, -2))
        b, c = self.bc(x).chunk(2, -1)
        step = F.softplus(self.step(x))
        decay = torch.exp(-step[..., None] * self.log_a.exp())
        fed = (step * x)[..., None] * b[:, :, None]
        h = torch.zeros_like(fed[:, 0])
        made = []
        for t in range(self.length):
            h = decay[:, t] * h + fed[:, t]
            made.append((h * c[:, t, None]).sum(-1))
        return self.out(torch.stack(made, 1) * F.silu(gate))


class NBeats(nn.Module):
    """Blocks that explain a series backwards and forwards, residually (Oreshkin et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 7)) for _ in range(2)
        )
        t = torch.arange(16) / 16
        self.register_buffer("basis", torch.stack([t**0, t, t**2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        scale = x.std(1, keepdim=True) + 1e-5
        x = (x - mean) / scale
        forecast = torch.zeros_like(x[:, :4])
        for block in self.blocks:
            theta = block(x)
            x = x - theta[:, :3] @ self.basis[:, :12]
            forecast = forecast + theta[:, 3:6] @ self.basis[:, 12:] + theta[:, 6:]
        return forecast * scale + mean


NETWORKS = {
    "bilstm_tagger": Network(Tagger, tokens(WORDS), **RECURRENT),
    "lstm_with_state": Network(
        LSTMWithState,
        lambda d, batch, length: (
            d.tokens(WORDS, batch, length),
            d.normal(1, batch, 12),
            d.normal(1, batch, 12),
        ),
        ({0: "batch", 1: "length"}, {1: "batch"}, {1: "batch"}),
        SEQUENCES["sizes"],
        exporting("length"),
    ),
    "gru_classifier": Network(
        GRUClassifier, lambda d, batch, length: (d.normal(batch, length, 6),), **RECURRENT
    ),
    "elman_rnn": Network(
        Elman, lambda d, batch, length: (d.normal(batch, length, 4),), **RECURRENT
    ),
    "tcn": Network(
        TCN,
        lambda d, batch, length: (d.normal(batch, 4, length),),
        ({0: "batch", 2: "length"},),
        {"batch": BATCH, "length": (16, 12, 21)},
    ),
    "wavenet": Network(
        WaveNet,
        lambda d, batch, length: (d.uniform(batch, length) * 2 - 1,),
        ({0: "batch", 1: "length"},),
        {"batch": BATCH, "length": (16, 12, 21)},
    ),
    "seq2seq_attention": Network(Seq2Seq, tokens(WORDS), **RECURRENT),
    "crnn_ocr": Network(
        CRNN,
        lambda d, batch, width: (d.normal(batch, 1, 12, width),),
        ({0: "batch", 3: "width"},),
        {"batch": BATCH, "width": (8, 20, 14)},
        exporting("width"),
    ),
    "speech_stft": Network(
        Speech,
        lambda d, batch, length: (d.normal(batch, length),),
        ({0: "batch", 1: "length"},),
        {"batch": BATCH, "length": (160, 200, 133)},
        attention("batch", "length"),
    ),
    "conformer": Network(
        Conformer,
        lambda d, batch, length: (d.normal(batch, length, 8),),
        ({0: "batch", 1: "length"},),
        {"batch": BATCH, "length": (12, 17, 9)},
        attention("batch", "length"),
    ),
    "state_space": Network(StateSpace, lambda d, batch: (d.normal(batch, 6, 8),)),
    "nbeats": Network(NBeats, lambda d, batch: (d.normal(batch, 12),)),
}
