"""Nets over points, graphs, tables and fields."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .network import Network


class PointNet(nn.Module):
    """A set of points, first turned by a matrix it learns, then pooled (Qi et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.matrix = nn.Linear(8, 9)
        self.body = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.last = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = self.matrix(self.turn(x).max(-1).values).view(-1, 3, 3)
        x = torch.bmm(matrix + torch.eye(3, device=x.device), x)
        return self.last(torch.amax(self.body(x), 2))


class NearestPoints(nn.Module):
    """Edges to the nearest neighbours in feature space, as in DGCNN (Wang et al. 2018)."""

    def __init__(self, neighbours: int = 4) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.edge, self.last = nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = torch.cdist(x, x).topk(self.neighbours, largest=False).indices
        batch, count, width = x.shape
        flat = near.reshape(batch, -1, 1).expand(-1, -1, width)
        others = x.gather(1, flat).view(batch, count, self.neighbours, width)
        own = x[:, :, None].expand_as(others)
        edges = F.leaky_relu(self.edge(torch.cat([own, others - own], -1)), 0.2)
        return self.last(edges.max(2).values.mean(1))


class GCN(nn.Module):
    """Normalised sums over neighbours by scatter_add (Kipf and Welling 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def spread(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        ones = torch.ones(x.shape[0], device=x.device)
        degree = ones.scatter_add(0, target, torch.ones_like(target, dtype=x.dtype))
        weight = degree.rsqrt()
        messages = x[source] * (weight[source] * weight[target])[:, None]
        summed = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(messages), messages)
        return summed + x / degree[:, None]

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.spread(self.first(x), edges).relu()
        return self.spread(self.second(x), edges).log_softmax(-1)


class GAT(nn.Module):
    """A softmax over each node's incoming edges, by scatter_reduce (Velickovic et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.score = nn.Linear(5, 8), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        source, target = edges.unbind(0)
        scores = F.leaky_relu(self.score(torch.cat([x[source], x[target]], -1)).squeeze(-1), 0.2)
        none = torch.zeros(x.shape[0], device=x.device)
        top = none.scatter_reduce(0, target, scores, "amax", include_self=False)
        weights = torch.exp(scores - top[target])
        total = none.index_add(0, target, weights)
        weights = weights / total[target]
        made = torch.zeros_like(x).index_add(0, target, weights[:, None] * x[source])
        return F.elu(made)


class DeepFM(nn.Module):
    """Factorisation machine beside a perceptron, with bags of categories (Guo et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.fields = nn.ModuleList(nn.Embedding(n, 6) for n in (11, 7, 5))
        self.linear = nn.ModuleList(nn.Embedding(n, 1) for n in (11, 7, 5))
        self.bag = nn.EmbeddingBag(20, 6, mode="mean")
        self.deep = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids: torch.Tensor, bag: torch.Tensor) -> torch.Tensor:
        vectors = [table(ids[:, i]) for i, table in enumerate(self.fields)]
        x = torch.stack([*vectors, self.bag(bag)], 1)
        pairs = 0.5 * (x.sum(1).square() - x.square().sum(1)).sum(-1, keepdim=True)
        first = sum(table(ids[:, i]) for i, table in enumerate(self.linear))
        return torch.sigmoid(first + pairs + self.deep(x.flatten(1))).squeeze(-1)


class DLRM(nn.Module):
    """Dot products of all pairs of features, below the diagonal (Naumov et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, 8, mode="sum") for n in (13, 9))
        self.top = nn.Sequential(nn.Linear(11, 8), nn.ReLU(), nn.Linear(8, 1))
        at = torch.tril_indices(3, 3, offset=-1)
        self.register_buffer("rows", at[0])
        self.register_buffer("columns", at[1])

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        all_ = torch.stack([x, *(t(ids[:, i]) for i, t in enumerate(self.tables))], 1)
        pairs = torch.bmm(all_, all_.transpose(-1, -2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, pairs], 1))


class NeRF(nn.Module):
    """Colours along rays: encoded positions, a perceptron, volume rendering."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", math.pi * 2.0 ** torch.arange(3))
        self.body = nn.Sequential(nn.Linear(21, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(
        self, origins: torch.Tensor, directions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        t = torch.linspace(0.5, 2.0, 8, device=origins.device)
        points = origins[:, None] + directions[:, None] * t[:, None]
        angles = (points[..., None] * self.rates).flatten(-2)
        y = self.body(torch.cat([points, angles.sin(), angles.cos()], -1))
        alpha = 1 - torch.exp(-F.relu(y[..., 3]) * (1.5 / 7))
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)
        weights = alpha * through[:, :-1]
        return (weights[..., None] * y[..., :3].sigmoid()).sum(1), (weights * t).sum(1)


class FourierOperator(nn.Module):
    """Products of the lowest modes of a real FFT (Li et al. 2020)."""

    def __init__(self, width: int = 6, modes: int = 4) -> None:
        super().__init__()
        self.modes = modes
        self.into, self.out = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        self.real, self.imaginary = (
            nn.Parameter(torch.randn(width, width, modes) / width) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        size = x.shape[-1]
        spectrum = torch.view_as_real(torch.fft.rfft(x))[..., : self.modes, :]
        a, b = spectrum[..., 0], spectrum[..., 1]
        real = torch.einsum("bim,iom->bom", a, self.real)
        real = real - torch.einsum("bim,iom->bom", b, self.imaginary)
        imaginary = torch.einsum("bim,iom->bom", a, self.imaginary)
        imaginary = imaginary + torch.einsum("bim,iom->bom", b, self.real)
        # The inverse, of few modes, as sums of sines.
        angles = torch.arange(size)[None] * torch.arange(self.modes)[:, None]
        angles = angles * (2 * math.pi / size)
        twice = torch.where(torch.arange(self.modes) == 0, 1.0, 2.0) / size
        y = (real * twice) @ angles.cos() - (imaginary * twice) @ angles.sin()
        return self.out(F.gelu(y + x))


class NeuralODE(nn.Module):
    """A field integrated by Runge-Kutta in fixed steps (Chen et al. 2018)."""

    def __init__(self, steps: int = 3) -> None:
        super().__init__()
        self.steps = steps
        self.field = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4))

    def slope(self, t: float, x: torch.Tensor) -> torch.Tensor:
        return self.field(torch.cat([x, torch.full_like(x[:, :1], t)], -1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = 1.0 / self.steps
        for i in range(self.steps):
            t = i * h
            k1 = self.slope(t, x)
            k2 = self.slope(t + h / 2, x + h / 2 * k1)
            k3 = self.slope(t + h / 2, x + h / 2 * k2)
            k4 = self.slope(t + h, x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x


class Siamese(nn.Module):
    """Two inputs, one set of weights, cosine and distances; quantised nearest codes (VQ)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.SELU(), nn.Linear(12, 8))
        self.codes = nn.Parameter(torch.randn(5, 8))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, y = self.body(a), self.body(b)
        distances = x.square().sum(1, keepdim=True) - 2 * x @ self.codes.T
        nearest = (distances + self.codes.square().sum(1)).argmin(1)
        far = F.pairwise_distance(x, y)
        return F.cosine_similarity(x, y, dim=1), far, F.embedding(nearest, self.codes)


class Policy(nn.Module):
    """Actor and critic: a squashed Gaussian's mode and log-probability, a value, masked actions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh())
        self.mean, self.log_std, self.value = nn.Linear(16, 2), nn.Linear(16, 2), nn.Linear(16, 1)
        self.discrete = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.body(x)
        mean, log_std = self.mean(x), self.log_std(x).clamp(-5, 2)
        density = (-log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        squash = (2 * (math.log(2) - mean - F.softplus(-2 * mean))).sum(-1)
        logits = self.discrete(x).masked_fill(allowed == 0, -1e9)
        return mean.tanh(), density - squash, self.value(x).squeeze(-1), logits.softmax(-1)


_GRAPH = (
    lambda d, nodes, edges: (d.normal(nodes, 5), d.tokens(nodes, 2, edges)),
    ({0: "nodes"}, {1: "edges"}),
    {"nodes": (6, 9, 4), "edges": (14, 20, 7)},
)
_POINTS = {"batch": (2, 3, 5), "points": (10, 8, 12)}
NETWORKS = {
    "pointnet": Network(
        PointNet,
        lambda d, batch, points: (d.normal(batch, 3, points),),
        ({0: "batch", 2: "points"},),
        _POINTS,
    ),
    "dgcnn": Network(
        NearestPoints,
        lambda d, batch, points: (d.normal(batch, points, 3),),
        ({0: "batch", 1: "points"},),
        _POINTS,
    ),
    "gcn": Network(GCN, *_GRAPH),
    "gat": Network(GAT, *_GRAPH),
    "deepfm": Network(
        DeepFM,
        lambda d, batch: (d.tokens(5, batch, 3), d.tokens(20, batch, 4)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "dlrm": Network(
        DLRM,
        lambda d, batch: (d.normal(batch, 4), d.tokens(9, batch, 2, 3)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "nerf": Network(
        NeRF,
        lambda d, rays: (d.normal(rays, 3), d.normal(rays, 3)),
        ({0: "rays"}, {0: "rays"}),
        {"rays": (6, 9, 4)},
    ),
    "fourier_operator": Network(FourierOperator, lambda d, batch: (d.normal(batch, 1, 16),)),
    "neural_ode": Network(NeuralODE, lambda d, batch: (d.normal(batch, 4),)),
    "siamese_vq": Network(
        Siamese,
        lambda d, batch: (d.normal(batch, 6), d.normal(batch, 6)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "actor_critic": Network(
        Policy,
        lambda d, batch: (d.normal(batch, 6), d.tokens(2, batch, 4)),
        ({0: "batch"}, {0: "batch"}),
    ),
}
