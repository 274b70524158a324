"""Properties of all operators: what is inferred is what comes out, on random shapes and dtypes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla import op
from relax2xla.ir import Op
from relax2xla.op import binary, unary
from tests.op.harness import Case, run, var_like

FLOATS = ("float16", "float32", "float64")
DTYPES = (*FLOATS, "int8", "int32", "int64", "uint8", "uint64", "bool")
UNARY_FLOAT = (op.acos, op.asinh, op.cos, op.erf, op.exp, op.log, op.rsqrt, op.sigmoid, op.tanh)
UNARY_ANY = (op.abs, op.sign, op.square, op.logical_not, op.isnan, op.isfinite, op.floor, op.round)
BINARY_ANY = (op.add, op.multiply, op.maximum, op.equal, op.less, op.logical_and, op.logical_xor)
BINARY_REAL = (op.subtract, op.divide, op.floor_divide, op.mod, op.power)
REDUCTIONS = (op.sum, op.prod, op.max, op.min, op.mean, op.variance, op.std)
SCANS = (op.cumsum, op.cumprod, op.sort, op.argsort, op.flip, op.topk, op.repeat)
RESHAPES = (op.flatten, op.squeeze, op.permute_dims, op.tile, op.expand_dims, op.split)
FAMILIES = ("unary", "binary", "reduce", "shape", "cast")
WITH_AXIS = ("scan", "index", "where")


def _array(draw: Any, shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(0, 5, shape).astype(dtype)


@st.composite
def calls(draw):
    """One call of a random operator on random operands, as a Case without truth."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    family = draw(st.sampled_from((*FAMILIES, *WITH_AXIS) if shape else FAMILIES))
    dtype = draw(st.sampled_from(DTYPES))
    x = _array(draw, shape, dtype)
    axis = draw(st.integers(-len(shape), len(shape) - 1)) if shape else 0
    inputs = [x]
    options: tuple[Any, ...] = ()
    if family == "unary":
        made = draw(st.sampled_from(UNARY_FLOAT if dtype in FLOATS else UNARY_ANY))
    elif family == "binary":
        made = draw(st.sampled_from(BINARY_ANY + (BINARY_REAL if dtype != "bool" else ())))
        other = tuple(1 if draw(st.booleans()) else d for d in shape[draw(st.integers(0, 4)) :])
        inputs.append(_array(draw, other, dtype))
    elif family == "reduce":
        made = draw(st.sampled_from(REDUCTIONS))
        axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1)))) if shape else []
        options = (axes, draw(st.booleans()))
    elif family == "scan":
        made = draw(st.sampled_from(SCANS))
        options = (2, axis) if made in (op.topk, op.repeat) else (axis,)
    elif family == "index":
        made = op.strided_slice
        begin, end = draw(st.integers(-6, 6)), draw(st.integers(-6, 6))
        options = ([axis], [begin], [end], [draw(st.sampled_from((-3, -1, 1, 2)))])
    elif family == "where":
        made, inputs = op.where, [_array(draw, shape[-1:], "bool"), x, x[..., :1]]
    elif family == "cast":
        made, options = op.astype, (draw(st.sampled_from((*DTYPES, "bfloat16"))),)
    else:
        made = draw(st.sampled_from(RESHAPES))
        options = {op.tile: ((2, 1),), op.expand_dims: (-1,), op.split: (3, axis)}.get(made, ())
        if made is op.split and not shape:
            made, options = op.flatten, ()
    return Case(made.name, lambda *operands: made(*operands, *options), inputs, None)


@settings(max_examples=15)
@given(st.lists(calls(), min_size=4, max_size=12))
def test_inference_is_what_comes_out(cases):
    # ``run`` compares each result's dtype and shape with the inferred struct info.
    run(cases)


def test_every_operator_is_documented_and_reachable():
    for name in Op.list_op_names():
        found = Op.get(name)
        if type(found) is not Op:
            continue  # a row of an MLIR dialect
        assert found.__doc__, f"{name} has no docstring"
        assert len(found.__doc__.split("\n")[0]) > 3
        home: Any = op
        for part in name.split(".")[1:]:
            assert hasattr(home, part), f"{name} is not in relax2xla.op"
            home = getattr(home, part)


def test_lowerings_have_the_operators_signature():
    for name in Op.list_op_names():
        found = Op.get(name)
        if found.lowering is None:
            continue
        code = found.lowering.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        own = list(code.co_varnames[:count])
        expected = [p.name for p in found.params if not p.variadic]
        assert own == expected, name


@pytest.mark.parametrize("module", [unary, binary])
def test_families_refuse_tuples(module):
    import relax2xla.ir as ir
    from relax2xla.errors import OpError

    empty = ir.Tuple([])
    for made in vars(module).values():
        if isinstance(made, Op):
            operands = [empty if p.kind.operand else "float32" for p in made.params]
            with pytest.raises(OpError, match="must be"):
                made(*operands)


def test_import_is_light():
    code = (
        "import sys, time, relax2xla.ir, relax2xla.tir; t = time.perf_counter(); "
        "import relax2xla.op; print(time.perf_counter() - t); "
        "assert not {'jax', 'jaxlib', 'torch', 'onnx'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The target is 0.15 s; the margin is for a busy machine.
    assert float(done.stdout) < 0.6


def test_a_call_says_where_it_went_wrong():
    x = var_like(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="out of range") as error:
        op.sum(x, 7)
    assert 'relax.sum(x: Tensor((2, 3), dtype="float32"), axis=(7,)' in error.value.__notes__[0]
