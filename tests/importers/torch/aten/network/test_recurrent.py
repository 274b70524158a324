"""Recurrent layers against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.importers.torch.helpers import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of weights and oneDNN


class Layers(nn.Module):
    """Recurrent layers of one input (batch, length, 5)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> list[Any]:
        turned = x.transpose(0, 1)
        return [layer(x if layer.batch_first else turned) for layer in self.layers]


def test_layers_of_every_form_are_loops() -> None:
    torch.manual_seed(0)
    module = Layers(
        nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True),
        nn.LSTM(5, 4, proj_size=3, bias=False),
        nn.GRU(5, 4, num_layers=2, bidirectional=True, dropout=0.5),
        nn.GRU(5, 3, bias=False, batch_first=True),
        nn.RNN(5, 4, nonlinearity="relu"),
        nn.RNN(5, 4, bidirectional=True),
    )
    batch = torch.export.Dim("batch")
    mod = check(module, [torch.randn(3, 6, 5)], ({0: batch},), [[torch.randn(2, 6, 5)]])
    assert str(mod).count("stablehlo.while_") == 4 + 1 + 4 + 1 + 1 + 2


class Given(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(5, 4, bidirectional=True, proj_size=2)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        return self.layer(x, (h, c))


def test_states_may_be_given() -> None:
    check(Given(), [torch.randn(4, 3, 5), torch.randn(2, 3, 2), torch.randn(2, 3, 4)])


def test_what_torch_compile_makes_of_an_lstm_is_a_loop_of_any_length() -> None:
    class Tagger(nn.Module):
        def __init__(self, bias: bool) -> None:
            super().__init__()
            self.layer = nn.LSTM(5, 4, 2, bias, batch_first=True, bidirectional=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    for bias in (True, False):
        module = Tagger(bias).eval()
        call = torch.compile(
            module, backend="relax2xla", fullgraph=True, options={"fallback": False}
        )
        with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
            for shape in ((3, 6, 5), (2, 9, 5)) if bias else ((3, 6, 5),):
                x = torch.randn(*shape)
                torch.testing.assert_close(call(x), module(x))


def test_dropout_in_training_is_between_layers() -> None:
    """All of it, as torch drops it: what is dropped in part is in tests/interop/test_draws.py."""

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(5, 4, 2, dropout=1.0)

        def forward(self, x: Any) -> Any:
            self.layer.train()
            return self.layer(x)

    check(Trained(), [torch.randn(3, 2, 5)])
