"""More calls over symbolic dimensions: every axis that an operator cares about, every mode.

As in dynamic_samples.py, of which these are the rest; "m", "k", "h" and "w" are further symbols.
"""

from __future__ import annotations

from typing import Any

from relax2xla import op
from tests.transform.lower.dynamic_samples import Sample, call, first_dim

X = ("n", "m")
SPACE = (2, "k", "h", "w")


def dims(x: Any) -> Any:
    """All dimensions of a sample."""
    return x.struct_info.dims


def _named(name: str, *cases: Sample) -> dict[str, Sample]:
    return {f"{name} {i}": case for i, case in enumerate(cases)}


def _calls(name: str, operands: Any, *options: dict[str, Any]) -> dict[str, Sample]:
    return _named(name, *((operands, call(name, **o)) for o in options))


POOLS: tuple[dict[str, Any], ...] = (
    {"pool_size": (2, 3), "strides": (2, 1), "padding": (1, 0, 1, 2)},
    {"pool_size": (3, 2), "strides": (2, 3), "padding": (1, 0, 0, 1), "ceil_mode": True},
)
RESIZES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("nearest_neighbor", "half_pixel", {"rounding_method": "round_prefer_floor"}),
    ("nearest_neighbor", "tf_half_pixel_for_nn", {"rounding_method": "ceil"}),
    ("nearest_neighbor", "asymmetric", {"rounding_method": ""}),
    ("linear", "align_corners", {}),
    ("linear", "pytorch_half_pixel", {}),
    ("cubic", "half_pixel", {"cubic_exclude": 1}),
    ("linear", "tf_crop_and_resize", {"roi": (0.2, -0.1, 0.8, 1.2), "extrapolation_value": 7.0}),
)

VARIANTS: dict[str, Sample] = {
    **_calls("cumsum", (X,), {"axis": 0}, {"axis": 1, "exclusive": True}, {}),
    **_calls("cumprod", (X,), {"axis": -1}, {"exclusive": True}),
    **_named("cumsum bool", (((*X, "bool"),), call("cumsum", axis=1))),
    **_calls("multinomial_from_uniform", ((2, "m"), (2, 1), (2, 1, "int64")), {}),
    **_calls("topk", (X,), {"k": 2}, {"k": -1, "axis": 0, "largest": False}),
    **_calls("median", (X,), {"axis": [1]}),
    **_calls("nn.batch_flatten", (SPACE,), {}),
    **_calls("nn.max_pool2d", (SPACE,), *POOLS),
    **_calls("nn.avg_pool2d", (SPACE,), *POOLS, {**POOLS[1], "count_include_pad": True}),
    **_calls("nn.adaptive_avg_pool2d", (SPACE,), {"output_size": (3, 2)}, {"output_size": None}),
    **_calls(
        "nn.pad",
        (X,),
        *({"pad_width": [0, 1, 2, 1], "pad_mode": m} for m in ("reflect", "circular", "replicate")),
    ),
    **_calls("nn.conv2d", (("n", 3, "h", "w"), (2, 3, 3, 2)), {"padding": 1, "strides": 2}),
    **_calls("nn.conv2d_transpose", (("n", 3, "h", "w"), (3, 2, 3, 2)), {"strides": 2}),
    **_calls("nn.softmax", (X,), {"axis": 1}),
    **_calls("nn.layer_norm", (X, ("m",), ("m",)), {"axes": [1]}),
    **_calls("nn.rms_norm", (X, ("m",)), {}),
    **_calls("nn.batch_norm", (SPACE, *(("k",),) * 4), {"axis": 1}),
    **_calls("nn.attention", (("k", "n", 2, "h"),) * 3, {}, {"causal_mask": "TopLeft"}),
    **_calls("nn.cross_entropy_with_logits", (X, X), {}),
    **_calls("nn.nll_loss", (("n", 3), ("n", "int64"), (3,)), {"reduction": "none"}),
    **_named(
        "grad pools",
        *(
            (
                (SPACE,),
                lambda x, p=p, kind=kind, o=o: call(f"grad.{kind}_backward", **p)(
                    call(f"nn.{kind}", **p)(x), x
                ),
            )
            for p, kind, o in ((POOLS[0], "max_pool2d", 0), (POOLS[1], "avg_pool2d", 0))
        ),
    ),
    **_calls("grad.take_backward", (("n", 2), X, (2, "int64")), {"axis": 1}),
    **_named(
        "image.resize2d",
        *(
            (
                (SPACE,),
                lambda x, m=m, c=c, o=o: op.image.resize2d(
                    x, (5, 8), method=m, coordinate_transformation_mode=c, **o
                ),
            )
            for m, c, o in RESIZES
        ),
        ((SPACE,), lambda x: op.image.resize2d(x, (dims(x)[2] * 2, dims(x)[3]))),
        (((1, 2, 4, 4), X), lambda x, y: op.image.resize2d(x, dims(y), method="cubic")),
    ),
    **_named(
        "image.affine_grid", (((2, 2, 3), X), lambda x, y: op.image.affine_grid(x, dims(y), False))
    ),
    **_calls(
        "image.grid_sample",
        (SPACE, (2, 2, "n", 4)),
        {"padding_mode": "border"},
        {"method": "nearest", "padding_mode": "zeros", "align_corners": True},
        {"padding_mode": "reflection", "align_corners": True},
        {"method": "bicubic", "padding_mode": "reflection"},
    ),
    **_named(
        "split",
        ((X,), call("split", indices_or_sections=4)),
        ((X,), call("split", indices_or_sections=[-1], axis=1)),
        ((X,), call("split", indices_or_sections=[2, 8], axis=1)),
        ((X, ("k",)), lambda x, y: op.split(x, [first_dim(y) - 4, first_dim(y)])),
    ),
    **_named(
        "einsum",
        ((X, ("m", "k"), ("k", "h")), lambda *a: op.einsum(a, "ij,jk,kl->il")),
        ((X, ("m", "k"), ("k", "n", "h")), lambda *a: op.einsum(a, "ij,jk,kil->l")),
        ((("n", "n", "m"), ("m",)), lambda *a: op.einsum(a, "iij,j->ij")),
        (((2, "n", "m"), (1, "m", "k")), lambda *a: op.einsum(a, "...ij,...jk->...ik")),
    ),
    **_named(
        "slice_scatter",
        ((X, ("n", 2)), lambda x, y: op.slice_scatter(x, y, 0, 4, 2, axis=1)),
        ((X, ("k", "m")), lambda x, y: op.slice_scatter(x, y, 0, first_dim(y), 1)),
        ((X, (2, "m")), lambda x, y: op.slice_scatter(x, y, -2, 100, 1)),
    ),
    **_named(
        "memory.view",
        ((X,), lambda x: op.memory.view(x, (dims(x)[1], first_dim(x)))),
        ((X,), lambda x: op.memory.view(x, (first_dim(x), dims(x)[1]), "int32")),
    ),
    **_named(
        "strided_slice",
        ((X, ("k",)), lambda x, y: op.strided_slice(x, [0, 1], [0, 1], [first_dim(y), -1])),
        ((X,), lambda x: op.strided_slice(x, [1], [first_dim(x)], [-1], [2])),
    ),
    **_named("arange", ((X,), lambda x: op.arange(first_dim(x), first_dim(x) + dims(x)[1], 3))),
    **_named("one_hot", ((X, (3, "int64")), lambda x, i: op.one_hot(i, 1.0, 0.0, dims(x)[1], 0))),
    **_named("tile", ((X,), lambda x: op.tile(x, [1, 2, 2]))),
    **_named("repeat", ((X,), lambda x: op.repeat(x, 2))),
    **_named("roll", ((X,), lambda x: op.flip(x, 1))),
    **_named("broadcast", ((X, ("m",)), lambda x, y: op.broadcast_to(y, dims(x)))),
    **_named("sort", ((X,), lambda x: op.argsort(x, 1, True)), ((X,), lambda x: op.sort(x, -1))),
    **_named("argmax", ((X,), lambda x: op.argmax(x, 1, True))),
    **_named("take", ((X, ("k", "int64")), lambda x, i: op.take(x, i, 1, mode="wrap"))),
    **_named("gather_nd", ((X, ("k", 2, "int64")), lambda x, i: op.gather_nd(x, i))),
    **_named("triu", ((X, ("k",)), lambda x, y: op.triu(x, first_dim(y)))),
    **_named(
        "collapse_sum_like", ((("k", "n", "m"), ("m",)), lambda x, y: op.collapse_sum_like(x, y))
    ),
    **_named("dequantize", (((*X, "int8"), ("m",), ("m", "int8")), call("dequantize", axis=1))),
    **_named(
        "reverse_sequence",
        ((X, ("n", "int64")), call("reverse_sequence", seq_axis=1, batch_axis=0)),
    ),
}
