"""Layers against torch's, with torch's own weights; state dicts; dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from relax2xla import errors, tir
from relax2xla.frontend import nn

RNG = torch.Generator().manual_seed(1)


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RNG)


LAYERS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 8), torch.nn.Linear(4, 8), (3, 2, 4)),
    "linear without bias": (nn.Linear(4, 8, False), torch.nn.Linear(4, 8, False), (4,)),
    "conv1d": (
        nn.Conv1D(4, 6, 3, 2, 1, 2, 2),
        torch.nn.Conv1d(4, 6, 3, 2, 1, 2, 2),
        (2, 4, 12),
    ),
    "conv2d": (
        nn.Conv2D(4, 6, [3, 2], 2, 1, groups=2),
        torch.nn.Conv2d(4, 6, (3, 2), 2, 1, groups=2),
        (2, 4, 9, 8),
    ),
    "conv3d": (nn.Conv3D(4, 6, 2, groups=2), torch.nn.Conv3d(4, 6, 2, groups=2), (1, 4, 4, 5, 6)),
    "conv1d_transpose": (
        nn.ConvTranspose1D(4, 6, 3, 2, 1, 1, groups=2),
        torch.nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2),
        (2, 4, 9),
    ),
    "layer_norm": (nn.LayerNorm(8), torch.nn.LayerNorm(8), (2, 3, 8)),
    "layer_norm without weights": (
        nn.LayerNorm(8, None, elementwise_affine=False),
        torch.nn.LayerNorm(8, elementwise_affine=False),
        (2, 3, 8),
    ),
    "rms_norm": (nn.RMSNorm(8, -1, 1e-3, bias=False), torch.nn.RMSNorm(8, 1e-3), (2, 3, 8)),
    "group_norm": (nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6), (2, 6, 4, 5)),
    "relu": (nn.ReLU(), torch.nn.ReLU(), (5,)),
    "silu": (nn.SiLU(), torch.nn.SiLU(), (5,)),
    "gelu": (nn.GELU(), torch.nn.GELU(), (5,)),
    "identity": (nn.Identity(), torch.nn.Identity(), (5,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch(name: str) -> None:
    ours, theirs, shape = LAYERS[name]
    for p in theirs.parameters():
        torch.nn.init.normal_(p, generator=RNG)
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    x = rand(*shape)
    made = ours(x)
    assert isinstance(made, torch.Tensor)
    np.testing.assert_allclose(made, theirs(x).detach(), atol=2e-5)


def test_embedding() -> None:
    ours, theirs = nn.Embedding(9, 5), torch.nn.Embedding(9, 5)
    ours.load_state_dict(theirs.state_dict())
    for x in (torch.tensor([3, 0, 8]), torch.tensor([[[1], [2]]])):
        np.testing.assert_array_equal(ours(x), theirs(x).detach())


def test_rms_norm_with_bias() -> None:
    layer = nn.RMSNorm(4, -1)
    layer.weight.data, layer.bias.data = rand(4), rand(4)
    x = rand(2, 4)
    wanted = torch.nn.functional.rms_norm(x, [4], torch.tensor(np.asarray(layer.weight.data)), 1e-5)
    np.testing.assert_allclose(layer(x), wanted + torch.from_dlpack(layer.bias.data), atol=1e-5)


def fill(module: nn.Module) -> None:
    for p in module.parameters():
        p.data = rand(*p.shape)


def test_layers_of_diffusion_models() -> None:
    layer = nn.TimestepEmbedding(4, 8, out_dim=6, post_act_fn="silu", cond_proj_dim=3)
    fill(layer)
    w = {k: torch.from_dlpack(p.data) for k, p in layer.state_dict().items()}
    x, c = rand(2, 4), rand(2, 3)
    h = (x + c @ w["cond_proj.weight"].T) @ w["linear_1.weight"].T + w["linear_1.bias"]
    h = torch.nn.functional.silu(h) @ w["linear_2.weight"].T + w["linear_2.bias"]
    np.testing.assert_allclose(layer(x, c), torch.nn.functional.silu(h), atol=1e-5)
    plain = nn.TimestepEmbedding(4, 8)
    fill(plain)
    with pytest.raises(ValueError, match="cond_proj_dim"):
        plain(x, c)
    with pytest.raises(errors.UnsupportedError, match="an activation is one of"):
        nn.TimestepEmbedding(4, 8, act_fn="mish")
    steps = nn.Timesteps(6, flip_sin_to_cos=True)(torch.zeros(2))
    np.testing.assert_allclose(steps, [[1, 1, 1, 0, 0, 0]] * 2)


@pytest.mark.parametrize("scale_qk", [True, False])
def test_attention(scale_qk: bool) -> None:
    layer = nn.Attention(8, 6, heads=2, dim_head=4, norm_num_groups=2, scale_qk=scale_qk)
    fill(layer)
    w = {k: torch.from_dlpack(p.data) for k, p in layer.state_dict().items()}
    x, other = rand(2, 5, 8), rand(2, 7, 6)
    norm = torch.nn.functional.group_norm(
        x.transpose(1, 2), 2, w["group_norm.weight"], w["group_norm.bias"]
    ).transpose(1, 2)
    q, k, v = (
        (t @ w[f"to_{n}.weight"].T).unflatten(-1, (2, 4)).transpose(1, 2)
        for t, n in ((norm, "q"), (other, "k"), (other, "v"))
    )
    scale = None if scale_qk else 1.0
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
    wanted = out.transpose(1, 2).flatten(2) @ w["to_out.0.weight"].T + w["to_out.0.bias"]
    np.testing.assert_allclose(layer(x, other), wanted, atol=1e-4)
    with pytest.raises(errors.UnsupportedError, match="attention_mask"):
        layer(x, other, x)


# -- parameters ------------------------------------------------------------------------------------
def test_what_a_parameter_holds() -> None:
    p = nn.Parameter([2, "n"], "float32")
    assert p.data is None
    assert repr(p) == 'Parameter([2, n], "float32")'
    for value in (np.ones((2, 3), "float32"), torch.ones(2, 5), jax.numpy.ones((2, 1))):
        p.data = value
        assert isinstance(p.data, jax.Array)
        assert p.data.shape == value.shape
    with pytest.raises(ValueError, match="shape mismatch"):
        p.data = np.ones((3, 3), "float32")
    with pytest.raises(ValueError, match="dtype mismatch: the parameter is float32"):
        p.data = np.ones((2, 3))
    with pytest.raises(TypeError, match="expected an array"):
        p.data = "weights"
    with pytest.raises(ValueError, match="keeps its dtype"):
        p.to("float16")
    p.data = None
    p.to("float16")
    p.to()
    assert p.dtype == "float16"


def test_what_a_parameter_holds_is_its_own() -> None:
    p, given = nn.Parameter([2], "int64"), np.array([1, 2**40])
    p.data = given
    given[0] = 7
    assert np.asarray(p.data).tolist() == [1, 2**40]
    b = nn.Parameter([2], "bfloat16")
    b.data = torch.tensor([1.5, 2], dtype=torch.bfloat16)
    assert b.data.dtype == "bfloat16"


def test_the_default_dtype() -> None:
    assert nn.get_default_dtype() == "float32"
    nn.set_default_dtype("float16")
    try:
        assert nn.Linear(2, 2).weight.dtype == "float16"
        assert nn.KVCache(2, [2]).dtype == "float16"
    finally:
        nn.set_default_dtype("float32")
    with pytest.raises(TypeError, match="unknown dtype"):
        nn.set_default_dtype("float31")


@pytest.mark.parametrize("size", [-1, True, 1.5])
def test_wrong_sizes(size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="a size"):
        nn.Parameter([size])


def test_symbolic_sizes() -> None:
    n = tir.Var("n", "int64")
    assert nn.Parameter([n, 2]).shape[0] is n
    assert nn.Linear(4, "m").weight.shape[0].dtype == "int64"
    assert str(nn.Conv2D(n, 8, 3, groups=2).weight.shape[1]) == "n // 2"
    with pytest.raises(ValueError, match="3 groups"):
        nn.Conv1D(4, 6, 3, groups=3)


def test_to() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.dtype = "float32"
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, out_dtype="float32")])
            self.named = nn.ModuleDict({"a": nn.Linear(2, 2)})
            self.cache = nn.KVCache(4, [2])
            self.nothing = None

    model = Model()
    model.to("float16")
    found = {k: p.dtype for k, p in model.named_parameters()}
    assert found.pop("layers.1.bias") == "float32"  # of the product, which has a dtype of its own
    assert set(found.values()) == {"float16"}
    assert (model.dtype, model.cache.dtype) == ("float16", "float16")


# -- state dicts -----------------------------------------------------------------------------------
class Two(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)
        self.second = nn.ParameterDict({"scale": nn.Parameter([3])})
        self.tied = self.first.bias


def test_state_dict_holds_references() -> None:
    model, into = Two(), {}
    assert model.state_dict(prefix="m.", destination=into) is into
    assert list(into) == ["m.first.weight", "m.first.bias", "m.second.scale", "m.tied"]
    assert into["m.tied"] is model.first.bias
    assert next(model.named_parameters("x."))[0] == "x.first.weight"


def values() -> dict[str, np.ndarray]:
    weight = np.ones((3, 2), "float32")
    return {"first.weight": weight, "first.bias": weight[:, 0], "second.scale": weight[:, 1] * 2}


def test_loading_names_everything_that_is_wrong() -> None:
    model = Two()
    assert model.load_state_dict(values()) == ([], [])  # `tied` is the bias of `first`
    given = values()
    given["other"] = given.pop("first.weight")
    with pytest.raises(KeyError, match=r"missing keys: \['first.weight'\]; unexpected.*'other'"):
        model.load_state_dict(given)
    assert model.load_state_dict(given, strict=False) == (["first.weight"], ["other"])
    given = {k: v * 3 for k, v in values().items()}
    given["first.weight"] = np.ones((2, 3), "float32")
    given["second.scale"] = given["second.scale"].astype("float64")
    with pytest.raises(ValueError, match=r"(?s)first.weight: shape.*second.scale: dtype"):
        model.load_state_dict(given)
    assert np.asarray(model.first.bias.data).tolist() == [1, 1, 1]  # as before
    del given["first.weight"]
    model.load_state_dict(given, strict=False, cast=True)
    assert np.asarray(model.second["scale"].data).tolist() == [6, 6, 6]


def test_loading_from_another_module() -> None:
    model, source = Two(), Two()
    with pytest.raises(ValueError, match="holds no data"):
        model.load_state_dict(source.state_dict())
    source.load_state_dict(values())
    model.load_state_dict(source.state_dict())
    assert np.asarray(model.second["scale"].data).tolist() == [2, 2, 2]


def test_safetensors(tmp_path: Path) -> None:
    model = Two()
    given = {k: torch.tensor(v) for k, v in values().items()}
    save_file(given, tmp_path / "a.safetensors")
    assert nn.load_safetensors(model, tmp_path / "a.safetensors") == ([], [])
    assert np.asarray(model.second["scale"].data).tolist() == [2, 2, 2]

    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(errors.FileFormatError, match=r"no \.safetensors file"):
        nn.load_safetensors(model, folder)
    save_file({"model.0.weight": given["first.weight"] * 5}, folder / "1.safetensors")
    rest = {"model.0.bias": given["first.bias"], "model.scale": given["second.scale"] * 5}
    save_file({**rest, "x": given["first.bias"] + 1}, folder / "2.safetensors")
    rules = {r"^model\.0": "first", r"^model\.scale$": "second.scale"}
    with pytest.raises(KeyError, match=r"missing keys: \[\]; unexpected keys: \['x'\]"):
        nn.load_safetensors(model, folder, rename=rules)
    places = {"model.0.weight": "first.weight", "model.0.bias": "first.bias", "x": None}
    found = nn.load_safetensors(model, folder, rename=lambda n: places.get(n, "second.scale"))
    assert found == ([], [])
    assert np.asarray(model.first.weight.data)[0, 0] == 5
    assert np.asarray(model.second["scale"].data).tolist() == [10, 10, 10]
    with pytest.raises(errors.FileFormatError, match="second value for first"):
        nn.load_safetensors(model, folder, rename=lambda n: "first.bias")


def test_modules_say_what_they_are() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.first = nn.Linear(4, 8, bias=False)
            self.rest = nn.ModuleList([nn.ReLU(), nn.Linear(8, 2, dtype="float16")])

    class Twin(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 8, bias=False)
            self.rest = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Linear(8, 2)])

    ours = repr(Net())
    assert ours.replace(", dtype=float16", "").replace("Net", "Twin") == repr(Twin())
    assert "Linear(in_features=8, out_features=2, bias=True, dtype=float16)" in ours
    assert repr(nn.Parameter((2, "n"))) == 'Parameter([2, n], "float32")'
    assert repr(nn.Embedding(10, 4)) == "Embedding(num=10, dim=4)"
