"""Sampling. Source: TVM Relax v0.20."""

from __future__ import annotations

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import op
from relax2xla.ir.op_param import DTypeLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Opaque, Random
from relax2xla.op.shared.checks import FLOAT, INTEGER, differ, want_tensor, with_dtype
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    convert,
    dtype_of,
    full_like,
    hlo,
    reduce,
    relax,
    reshape,
    shape_of,
)


@op("relax.multinomial_from_uniform", Opaque())
def multinomial_from_uniform(
    prob: Expr, uniform_sample: Expr, sample_indices: Expr, dtype: DTypeLike = "int64"
) -> StructInfo:
    """Draws from distributions: the first category whose cumulative probability exceeds a number.

    prob: (batch, categories), floating point, each row sums to 1; uniform_sample: (n, 1), numbers
    in [0, 1); sample_indices: (n, 1), integers: of which row each is a draw
    result: (n, 1), ``dtype``; of a row that sums to less than the number the last category
    """
    want_tensor(prob, "prob", FLOAT, ndim=2)
    uniform = want_tensor(uniform_sample, "uniform_sample", FLOAT, ndim=2)
    rows = want_tensor(sample_indices, "sample_indices", INTEGER, ndim=2)
    for name, info in (("uniform_sample", uniform), ("sample_indices", rows)):
        if info.dims is not None and isinstance(info.dims[1], int) and info.dims[1] != 1:
            raise OpError(f"`{name}` must have the shape (n, 1); got {show(info)}")
    if uniform.dims is not None and rows.dims is not None:
        a, b = uniform.dims[0], rows.dims[0]
        if differ(a, b):
            raise OpError(f"{a} numbers were given for {b} sample indices; they must be as many")
    return with_dtype(uniform, dtype or "int64")


@multinomial_from_uniform.legalize
def _(prob: Expr, uniform_sample: Expr, sample_indices: Expr, dtype: DTypeLike = "int64") -> Expr:
    count, (_, categories) = shape_of(uniform_sample)[0], shape_of(prob)
    rows = relax("take", relax("cumsum", prob, axis=1), reshape(sample_indices, (count,)), axis=0)
    numbers = convert(reshape(uniform_sample, (count,)), dtype_of(prob))
    reached = compare(rows, broadcast_in_dim(numbers, (count, categories), [0]), "LE")
    passed = reduce(convert(reached, "int32"), "add", [1], keepdims=True)
    last = hlo("minimum", passed, full_like(passed, categories - 1))
    return convert(last, dtype or "int64")


@op("relax.random_key", Opaque(), Random())
def random_key(name: str = "") -> StructInfo:
    """A number that is another one at each run, for random bits to be made from on the device.

    The host draws it from numpy's global generator, so that ``numpy.random.seed`` makes the runs
    of a program repeatable.

    name: tells the keys of a program apart: calls with the same name may become one
    result: (1,), uint64
    """
    return TensorStructInfo((1,), "uint64")
