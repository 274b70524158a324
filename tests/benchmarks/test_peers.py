"""Networks of ``python -m benchmarks peers``: those of the papers, by their parameters."""

from __future__ import annotations

import pytest
import torch

from benchmarks.peers import pictures, volumetric

PUBLISHED = {
    "mobilenet_v3_large": 5_483_032,
    "efficientnet_b0": 5_288_548,
    "convnext_tiny": 28_589_128,
    "regnet_y_1_6gf": 11_202_430,
    "swin_t": 28_288_354,
    "vgg11": 132_863_336,
    "densenet121": 7_978_856,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_has_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        network = getattr(pictures, name)()
    assert sum(p.numel() for p in network.parameters()) == PUBLISHED[name]


def test_a_network_of_videos_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        network = volumetric.resnet3d_18()
    assert sum(p.numel() for p in network.parameters()) == 33_371_472
