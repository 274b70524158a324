"""Networks of many architectures, exported with variable dimensions, against eager torch.

Each is tried on one route, at two sizes that are not those of the export;
RELAX2XLA_ALL_NETWORKS=1 tries all of them on all routes and sizes, static
ones too (``python -m benchmarks networks`` makes a table of that).
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

from .zoo import NETWORKS
from .zoo.routes import ROUTES, NotExported, check

DYNAMO = {
    "alexnet",
    "bilstm_tagger",
    "crnn_ocr",
    "fourier_operator",
    "gpt2_small",
    "resnet18",
    "seq2seq_attention",
}
EXPORT = {
    "autoencoder",
    "conformer",
    "elman_rnn",
    "gat",
    "reformer",
    "stylegan",
    "transformer_xl",
}


def sampled(name: str) -> str:
    """The route of a network; the one through TorchScript takes the fewest seconds."""
    if name in DYNAMO:
        return "onnx-dynamo"
    return "export" if name in EXPORT else "onnx-torchscript"


ALL = [(name, route, dynamic) for name in NETWORKS for route in ROUTES for dynamic in (False, True)]
SAMPLE = [(name, sampled(name), True) for name in NETWORKS]
CASES, VARIANTS = (ALL, (0, 1, 2)) if os.environ.get("RELAX2XLA_ALL_NETWORKS") else (SAMPLE, (1, 2))


@pytest.mark.parametrize(("name", "route", "dynamic"), CASES)
def test_network_agrees_with_torch(name: str, route: str, dynamic: bool) -> None:
    try:
        check(NETWORKS[name], route, dynamic, VARIANTS)
    except NotExported as e:
        pytest.skip(f"torch does not export it: {e}")
