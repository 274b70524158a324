"""Convolutions: values against torch, struct info against TVM's, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.op import nn
from tests.op.nn.support import Batch

N = tir.Var("n", "int64")
H = tir.Var("h", "int64")
C = tir.Var("c", "int64")
PLAIN: dict[int, tuple[str, str]] = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}
SIZES = {1: (11,), 2: (9, 10), 3: (5, 6, 7)}

# kernel, in channels, out channels, keywords of torch (padding also in Relax's four-number form)
CONVS: list[tuple[Any, int, int, dict[str, Any]]] = [
    (3, 4, 6, {}),
    (3, 4, 6, {"stride": 2, "padding": 1}),
    (2, 4, 6, {"dilation": 3, "padding": 2}),
    (3, 4, 6, {"groups": 2, "padding": 1}),
    (3, 6, 6, {"groups": 6, "padding": 1}),
    (3, 4, 8, {"groups": 4, "stride": 2}),
    (1, 4, 5, {"stride": 2}),
]
TRANSPOSED: list[tuple[Any, int, int, dict[str, Any]]] = [
    (3, 4, 6, {}),
    (3, 4, 6, {"stride": 2, "padding": 1, "output_padding": 1}),
    (2, 4, 6, {"stride": 3, "dilation": 2, "output_padding": 2}),
    (3, 4, 6, {"groups": 2, "stride": 2}),
    (3, 6, 6, {"groups": 6, "stride": 2, "padding": 1}),
    (3, 4, 8, {"groups": 4, "dilation": 2}),
    (1, 4, 5, {"stride": 2, "padding": 0}),
]


def to_relax(keywords: dict[str, Any]) -> dict[str, Any]:
    return {{"stride": "strides"}.get(k, k): v for k, v in keywords.items()}


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_conv(ndim: int) -> None:
    batch = Batch()
    relax, ref = getattr(nn, f"conv{ndim}d"), getattr(F, f"conv{ndim}d")
    for kernel, inner, outer, keywords in CONVS:
        x = random(2, inner, *SIZES[ndim])
        w = random(outer, inner // keywords.get("groups", 1), *(kernel,) * ndim)
        made = relax(batch.var(x), batch.var(w), **to_relax(keywords))
        batch.add(f"{kernel} {keywords}", made, ref(x, w, **keywords), 1e-4)
    batch.check()


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_conv_transpose(ndim: int) -> None:
    batch = Batch()
    relax, ref = getattr(nn, f"conv{ndim}d_transpose"), getattr(F, f"conv_transpose{ndim}d")
    for kernel, inner, outer, keywords in TRANSPOSED:
        x = random(2, inner, *SIZES[ndim])
        w = random(inner, outer // keywords.get("groups", 1), *(kernel,) * ndim)
        made = relax(batch.var(x), batch.var(w), **to_relax(keywords))
        batch.add(f"{kernel} {keywords}", made, ref(x, w, **keywords), 1e-4)
    batch.check()


def laid_out(value: torch.Tensor, source: str, target: str) -> torch.Tensor:
    return value.permute([source.index(c) for c in target]).contiguous()


@pytest.mark.parametrize("transposed", [False, True])
def test_layouts(transposed: bool) -> None:
    batch = Batch()
    kernel_layout = "IOHW" if transposed else "OIHW"
    relax = nn.conv2d_transpose if transposed else nn.conv2d
    ref = F.conv_transpose2d if transposed else F.conv2d
    for data, kernel, out in (
        ("NHWC", "HWIO", None),
        ("NHWC", "OHWI", "NCHW"),
        ("HWNC", "HWOI", "CNHW"),
        ("NCWH", "IWHO", "NHWC"),
    ):
        for groups in (1, 2):
            x = random(2, 4, 7, 8)
            w = random(4, 6 // groups, 3, 2) if transposed else random(6, 4 // groups, 3, 2)
            want = ref(x, w, stride=(2, 1), padding=(1, 0), groups=groups)
            made = relax(
                batch.var(laid_out(x, "NCHW", data)),
                batch.var(laid_out(w, kernel_layout, kernel)),
                strides=(2, 1),
                padding=(1, 0),
                groups=groups,
                data_layout=data,
                kernel_layout=kernel,
                out_layout=out,
            )
            name = f"{data} {kernel} {out} {groups}"
            batch.add(name, made, laid_out(want, "NCHW", out or data), 1e-4)
    batch.check()


def test_padding_forms() -> None:
    batch = Batch()
    x, w = random(1, 2, 6, 7), random(3, 2, 3, 3)
    want = F.conv2d(F.pad(x, (2, 4, 1, 3)), w)  # torch: last axis first
    batch.add("asymmetric", nn.conv2d(batch.var(x), batch.var(w), padding=(1, 2, 3, 4)), want, 1e-4)
    x, w = random(1, 2, 9), random(3, 2, 3)
    made = nn.conv1d(batch.var(x), batch.var(w), padding=(0, 2))
    batch.add("one axis", made, F.conv1d(F.pad(x, (0, 2)), w), 1e-4)
    x, w = random(1, 2, 9), random(2, 3, 3)
    made = nn.conv1d_transpose(batch.var(x), batch.var(w), padding=(0, 2), strides=2)
    batch.add("transposed", made, F.conv_transpose1d(x, w, stride=2)[:, :, :-2], 1e-4)
    batch.check()


def test_dtypes() -> None:
    batch = Batch()
    for dtype, tol in ((torch.float64, 1e-12), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        x, w = random(1, 4, 6, 6, dtype=dtype), random(5, 4, 3, 3, dtype=dtype)
        want = F.conv2d(x.double(), w.double()).to(dtype)
        batch.add(str(dtype), nn.conv2d(batch.var(x), batch.var(w)), want, tol)
    x, w = random(1, 4, 6, 6, dtype=torch.float16), random(5, 4, 3, 3, dtype=torch.float16)
    made = nn.conv2d(batch.var(x), batch.var(w), out_dtype="float32")
    batch.add("wider", made, F.conv2d(x.float(), w.float()), 1e-4)
    x, w = random(1, 4, 6, 6), random(5, 4, 3, 3)
    made = nn.conv2d(batch.var(x), batch.var(w), out_dtype="float16")
    batch.add("narrower", made, F.conv2d(x, w).half(), 1e-2)
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 127, (1, 3, 5, 5), dtype=np.int8)
    b = rng.integers(-128, 127, (2, 3, 3, 3), dtype=np.int8)
    want = F.conv2d(torch.tensor(a).double(), torch.tensor(b).double()).to(torch.int32)
    batch.add("int8", nn.conv2d(batch.var(a), batch.var(b), out_dtype="int32"), want)
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info() -> None:
    # TVM 0.25 infers the same for each (recorded).
    x, w = tensor(N, 3, H, 8), tensor(4, 3, 3, 3)
    assert str(nn.conv2d(x, w, strides=2, padding=(1, 2)).struct_info) == (
        'Tensor((n, 4, (h - 1) // 2 + 1, 5), dtype="float32")'
    )
    grown = nn.conv2d_transpose(tensor(2, 3, 8, 8), tensor(3, 4, 3, 3), strides=2, output_padding=1)
    assert grown.struct_info == TensorStructInfo((2, 4, 18, 18), "float32")
    out = nn.conv2d(tensor(2, 3, 8, 8), w, out_layout="NHWC", out_dtype="float16").struct_info
    assert out == TensorStructInfo((2, 6, 6, 4), "float16")
    unknown = nn.conv2d(Var("x", TensorStructInfo(ndim=4)), w).struct_info
    assert unknown == TensorStructInfo(None, "float32", ndim=4)
    assert nn.conv2d(Var("x", TensorStructInfo()), w).struct_info == unknown
    assert nn.conv2d(Var("x", TensorStructInfo((2, 3, 8, 8), "")), w).struct_info.dtype == ""


def test_attributes_are_stored_as_tvm_does() -> None:
    attrs = nn.conv2d(tensor(2, 3, 8, 8), tensor(4, 3, 3, 3), padding=1, out_dtype="void").attrs
    assert dict(attrs) == {
        "strides": (1, 1),
        "padding": (1, 1, 1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": None,
    }


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"data": (3, 8, 8)}, "`data` must have rank 4"),
        ({"weight": (4, 3, 3)}, "`weight` must have rank 4"),
        ({"data": (2, 5, 8, 8)}, r"`data` has 5 channels .* expects 3 \(I of OIHW\) in each of 1"),
        ({"groups": 3}, "expects 3 .* in each of 3 groups"),
        # Symbolic, and different all the same.
        ({"data": (2, C, 8, 8), "weight": (4, C + 2, 3, 3)}, "channels .* but `weight` expects"),
        (
            {"data": (2, C * 3, 8, 8), "weight": (6, C - 1, 3, 3), "groups": 3},
            "channels .* but `weight` expects",
        ),
        ({"weight": (4, 1, 3, 3), "groups": 3}, "`groups` is 3; it must divide the 4 output"),
        ({"groups": 0}, "`groups` must be at least 1"),
        ({"strides": 0}, "`strides` must be at least 1"),
        ({"dilation": (1, -1)}, "`dilation` must be at least 1"),
        ({"strides": (1, 1, 1)}, "parameter `strides`: .*must have 1 or 2 entries"),
        ({"padding": (1, 1, 1)}, "parameter `padding`: .*must have 1, 2 or 4 entries"),
        ({"data_layout": "NCHW4c"}, "must have rank 5"),
        ({"kernel_layout": "OIH"}, "`kernel_layout` must be a permutation of 'OIHW'"),
        ({"out_layout": "NHWW"}, "`out_layout` must be a permutation of 'NCHW'"),
        ({"weight": (4, 3, 9, 3)}, "does not fit in a dimension of 8"),
        ({"dtype": "float16"}, "must have one dtype"),
        ({"dtype": "bool"}, "`data` must be one of"),
    ],
)
def test_errors(keywords: dict[str, Any], message: str) -> None:
    x = tensor(*keywords.pop("data", (2, 3, 8, 8)), dtype=keywords.pop("dtype", "float32"))
    w = tensor(*keywords.pop("weight", (4, 3, 3, 3)))
    with pytest.raises(OpError, match=message):
        nn.conv2d(x, w, **keywords)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"weight": (4, 3, 3, 3)}, "`data` has 3 channels .* expects 4"),
        ({"groups": 2}, "`groups` is 2; it must divide the 3 input"),
        ({"output_padding": 1}, "`output_padding` must be less than the stride"),
        ({"padding": 20}, "leaves nothing"),
    ],
)
def test_transposed_errors(keywords: dict[str, Any], message: str) -> None:
    w = tensor(*keywords.pop("weight", (3, 4, 3, 3)))
    with pytest.raises(OpError, match=message):
        nn.conv2d_transpose(tensor(2, 3, 8, 8), w, **keywords)
