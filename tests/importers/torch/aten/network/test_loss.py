"""Losses against eager torch: classes and probabilities, weights, smoothing, reductions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check, check_table  # noqa: E402

F = torch.nn.functional
AUTO = torch.export.Dim.AUTO


def logits(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


CLASSES = torch.tensor([[0, 3], [1, -100], [2, 2], [-100, 0], [3, 1]])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25])


def test_cross_entropy() -> None:
    table: dict[str, tuple[Any, ...]] = {}
    for reduction in ("none", "mean", "sum"):
        for smoothing in (0.0, 0.3):
            for weight in (None, WEIGHT):
                options = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight}

                def loss(x: Any, t: Any, options: Any = options) -> Any:
                    return F.cross_entropy(x, t, **options)

                name = f"{reduction} {smoothing} {weight is not None}"
                table |= {
                    f"classes {name}": (loss, logits(5, 4, 2), CLASSES),
                    f"one sample {name}": (loss, logits(4), torch.tensor(2)),
                    f"probabilities {name}": (loss, logits(5, 4), logits(5, 4).softmax(1)),
                }
    table["another class ignored"] = (
        lambda x, t: F.cross_entropy(x, t, WEIGHT, ignore_index=0, label_smoothing=0.1),
        logits(5, 4),
        torch.tensor([0, 1, 2, 0, 3]),
    )
    check_table(table)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
def test_losses_of_distributions() -> None:
    table: dict[str, tuple[Any, ...]] = {}
    x, y = logits(5, 4), logits(5, 4).exp()
    shares = torch.tensor([[0.0, 0.25, 0.5, 0.25]]).expand(5, 4).contiguous()  # 0 log 0 is 0
    for reduction in ("none", "mean", "sum"):
        own = {"reduction": reduction}
        table |= {
            f"kl_div {reduction}": (lambda x, t, o=own: F.kl_div(x, t, **o), x, shares),
            f"kl_div of logarithms {reduction}": (
                lambda x, t, o=own: F.kl_div(x, t, log_target=True, **o),
                x,
                shares.clamp(min=0.1).log(),
            ),
            f"poisson {reduction}": (lambda x, t, o=own: F.poisson_nll_loss(x, t, **o), x, y),
            f"poisson in full {reduction}": (
                lambda x, t, o=own: F.poisson_nll_loss(x, t, log_input=False, full=True, **o),
                x.exp(),
                3 * y,
            ),
            f"gaussian {reduction}": (
                lambda x, t, o=own: F.gaussian_nll_loss(x, t, 0.3, full=True, **o),
                x,
                y,
            ),
        }
    table["kl_div of a batch"] = (lambda x, t: F.kl_div(x, t, reduction="batchmean"), x, shares)
    check_table(table)


def test_any_batch() -> None:
    check(
        lambda x, t: [
            F.cross_entropy(x, t, WEIGHT, label_smoothing=0.2),
            F.cross_entropy(x, x.softmax(1), reduction="mean"),
            torch.masked_select(x, t.unsqueeze(1) > 1),
        ],
        (logits(5, 4, 2), CLASSES),
        [{0: AUTO, 2: AUTO}, {0: AUTO, 1: AUTO}],
        [(logits(3, 4, 3), torch.tensor([[0, 3, 1], [1, 1, -100], [2, 2, 0]]))],
    )


def test_losses() -> None:
    x, y = logits(4, 5), logits(5, 4).T
    labels = torch.tensor([0, 4, 2, 1])
    check_table(
        {
            "mse": (
                lambda x, y: [F.mse_loss(x, y, reduction=r) for r in ("none", "mean", "sum")],
                x,
                y,
            ),
            "l1": (lambda x, y: F.l1_loss(x, y), x, y),
            "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, -1), x, y),
            "cross_entropy": (F.cross_entropy, x, labels),
            "bce": (
                lambda x, y: [
                    F.binary_cross_entropy_with_logits(x, y, **form)
                    for form in (
                        {},
                        {"reduction": "none", "weight": y + 1},
                        {"reduction": "sum", "pos_weight": torch.arange(5.0)},
                        {"weight": y[:, :1], "pos_weight": y[0] + 2},
                    )
                ],
                torch.cat([x[:3], torch.tensor([[-1e4, -40, 0, 40, 1e4]])]),
                torch.sigmoid(y),
            ),
            "bce of halves": (
                lambda x, y: F.binary_cross_entropy_with_logits(x.half(), y.half()),
                x,
                y.sigmoid(),
            ),
            "huber": (
                lambda x, y: [
                    F.huber_loss(x, y, reduction=r, delta=d)
                    for r, d in (("none", 1.0), ("mean", 0.3), ("sum", 2.0))
                ],
                x,
                y,
            ),
            "smooth_l1": (
                lambda x, y: [
                    F.smooth_l1_loss(x, y, reduction=r, beta=b)
                    for r, b in (("none", 1.0), ("mean", 0.3), ("sum", 0.0))
                ],
                x,
                y,
            ),
            "multi margin": (
                lambda x, at: [
                    F.multi_margin_loss(x, at),
                    F.multi_margin_loss(x, at, p=2, margin=0.5, reduction="none"),
                    F.multi_margin_loss(x, at, weight=torch.arange(5.0), reduction="sum"),
                    F.multi_margin_loss(x[0], at[:1]),
                    F.multi_margin_loss(x[0, 0], at[0]),
                ],
                x,
                labels,
            ),
            "xlogy": (
                lambda x, y: [
                    torch.xlogy(x.relu(), y),
                    torch.xlogy(0, y),
                    torch.xlogy(x, 2.0),
                    torch.special.xlog1py(x.relu(), y - 1),
                    torch.special.xlog1py(x, 0),
                    torch.xlogy(torch.zeros(2), torch.tensor([float("nan"), 0])),
                    torch.xlogy(torch.arange(3), torch.arange(3)),
                ],
                x,
                y,
            ),
        }
    )
