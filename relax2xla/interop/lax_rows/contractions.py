"""Products, convolutions, and the rows of linear algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.dtypes import BY_MLIR
from relax2xla.interop.lax_rows.shapes import known
from relax2xla.interop.lax_rows.site import Prepared, Rule, Site

_PRECISIONS = {
    "DEFAULT": lax.Precision.DEFAULT,
    "HIGH": lax.Precision.HIGH,
    "HIGHEST": lax.Precision.HIGHEST,
}


# Algorithms that JAX has names for, by what they say: the dtype of the operands' parts and that of
# the sum, how many parts an operand has, how many products there are. XLA:CPU takes only these,
# and JAX only by their names.
_PRESETS = {
    ("f16", "f16", 1, 1): lax.DotAlgorithmPreset.F16_F16_F16,
    ("f32", "f32", 1, 1): lax.DotAlgorithmPreset.F32_F32_F32,
    ("f64", "f64", 1, 1): lax.DotAlgorithmPreset.F64_F64_F64,
    ("bf16", "f32", 1, 1): lax.DotAlgorithmPreset.BF16_BF16_F32,
    ("bf16", "f32", 1, 3): lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    ("bf16", "f32", 1, 6): lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
}


def _precision(site: Site) -> Any:
    algorithm = site.attrs.get("algorithm")
    if algorithm is not None:
        return _algorithm(algorithm)
    found = site.attrs.get("precision_config")
    if not found or all(p == "DEFAULT" for p in found):
        return None
    return tuple(_PRECISIONS[p] for p in found)


def _algorithm(found: Mapping[str, Any]) -> Any:
    lhs, rhs = (
        (found[f"{side}_precision_type"], found[f"{side}_component_count"])
        for side in ("lhs", "rhs")
    )
    products = found["num_primitive_operations"]
    preset = _PRESETS.get((lhs[0], found["accumulation_type"], lhs[1], products))
    if preset is not None and lhs == rhs and not found["allow_imprecise_accumulation"]:
        return preset
    return lax.DotAlgorithm(**{n: _type(v) if n.endswith("_type") else v for n, v in found.items()})


def _type(text: str) -> Any:
    """The dtype of an MLIR type; tf32 is a name of its own in JAX."""
    return BY_MLIR[text].numpy if text in BY_MLIR else text


def _dims(site: Site, name: str = "dot_dimension_numbers") -> Any:
    dims = site.attrs[name]
    lhs, rhs = (tuple(dims.get(f"{s}_contracting_dimensions", ())) for s in ("lhs", "rhs"))
    left, right = (tuple(dims.get(f"{s}_batching_dimensions", ())) for s in ("lhs", "rhs"))
    return (lhs, rhs), (left, right)


def _element_type(site: Site, *xs: Any) -> Any:
    """The dtype of the result, where the operands do not say it.

    JAX would ask for it again in backward passes, outside of what makes 64 bits known to it.
    """
    if all(x.dtype == site.dtype for x in xs):
        return None  # as the next line says of almost all rows, which takes longer
    return None if jnp.result_type(*xs) == site.dtype else site.dtype


def _dot_general(site: Site) -> Callable[..., Any]:
    dims, precision = _dims(site), _precision(site)
    return lambda x, y: lax.dot_general(
        x, y, dims, precision=precision, preferred_element_type=_element_type(site, x, y)
    )


def _dot(site: Site, x: Any, y: Any) -> Any:
    kind = _element_type(site, x, y)
    return lax.dot(x, y, precision=_precision(site), preferred_element_type=kind)


def _ragged_dot(site: Site, x: Any, y: Any, sizes: Any) -> Any:
    dims = site.attrs["ragged_dot_dimension_numbers"]
    numbers = lax.RaggedDotDimensionNumbers(
        _dims(site, "ragged_dot_dimension_numbers"),
        tuple(dims.get("lhs_ragged_dimensions", ())),
        tuple(dims.get("rhs_group_dimensions", ())),
    )
    return lax.ragged_dot_general(
        x,
        y,
        sizes,
        numbers,
        precision=_precision(site),
        preferred_element_type=_element_type(site, x, y),
    )


def _convolution(site: Site) -> Callable[..., Any]:
    dims = site.attrs["dimension_numbers"]
    kinds = ("input", "kernel", "output")
    places = {k: tuple(dims.get(f"{k}_spatial_dimensions", ())) for k in kinds}
    count = len(places["input"])
    reversal = site.attrs.get("window_reversal") or ()
    turned = [a for a, r in zip(places["kernel"], reversal, strict=False) if r]
    numbers = lax.ConvDimensionNumbers(
        (dims["input_batch_dimension"], dims["input_feature_dimension"], *places["input"]),
        (
            dims["kernel_output_feature_dimension"],
            dims["kernel_input_feature_dimension"],
            *places["kernel"],
        ),
        (dims["output_batch_dimension"], dims["output_feature_dimension"], *places["output"]),
    )
    edges = site.pairs("padding", count)
    strides, inner, outer = (
        site.ints(n, 1, count) for n in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    groups, batch_groups = site.attrs["feature_group_count"], site.attrs["batch_group_count"]
    precision = _precision(site)

    def convolved(x: Any, w: Any, *padding: Any) -> Any:
        around = edges
        if padding:
            flat = known(np.asarray(padding[0]).reshape(-1), "padding")
            around = list(zip(flat[::2], flat[1::2], strict=True))
        w = lax.rev(w, turned) if turned else w
        return lax.conv_general_dilated(
            x,
            w,
            strides,
            around,
            inner,
            outer,
            numbers,
            groups,
            batch_groups,
            precision,
            _element_type(site, x, w),
        )

    return convolved


def _einsum(site: Site, *xs: Any) -> Any:
    return jnp.einsum(site.attrs["einsum_config"], *xs)


def _adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _cholesky(site: Site, x: Any) -> Any:
    if site.attrs.get("lower"):
        return lax.linalg.cholesky(x, symmetrize_input=False)
    return _adjoint(lax.linalg.cholesky(_adjoint(x), symmetrize_input=False))


def _triangular_solve(site: Site, a: Any, b: Any) -> Any:
    turned = site.attrs["transpose_a"]
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=site.attrs["left_side"],
        lower=site.attrs["lower"],
        transpose_a=turned in ("TRANSPOSE", "ADJOINT"),
        conjugate_a=turned == "ADJOINT",
        unit_diagonal=site.attrs["unit_diagonal"],
    )


def _fft(site: Site, x: Any) -> Any:
    return lax.fft(x, site.attrs["fft_type"], site.ints("fft_length"))


RULES: dict[str, Rule] = {
    "stablehlo.dot_general": Prepared(_dot_general),
    "stablehlo.dot": _dot,
    "chlo.ragged_dot": _ragged_dot,
    "stablehlo.convolution": Prepared(_convolution),
    "stablehlo.dynamic_conv": Prepared(_convolution),
    "stablehlo.einsum": _einsum,
    "stablehlo.unary_einsum": _einsum,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
    "stablehlo.fft": _fft,
}
