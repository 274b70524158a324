"""LAPACK through XLA:CPU: the custom calls that jaxlib registers, with typed arguments.

Matrices are the last two axes, any number of axes may stand before them. LAPACK wants columns to be
contiguous, so the layouts of the calls say that the rows' axis is the fastest one. On other devices
than the CPU these calls do not exist, and XLA says so by the name of the call.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context, Dims, dims_of, dtype_of, scalar
from relax2xla.ir import Expr, Op, StructInfo, TensorStructInfo, TupleStructInfo

#: LAPACK's letter for a dtype.
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
#: Versions of the typed interface that XLA calls them by.
TYPED = 4

Result = tuple[Dims, str]


def letter(x: Expr) -> str:
    """LAPACK's letter for the dtype of ``x``; a gap for one that it does not know."""
    dtype = dtype_of(x)
    if dtype not in LETTERS:
        raise Unsupported(f"linear algebra on {dtype} matrices")
    return LETTERS[dtype]


def call_lapack(
    ctx: Context,
    routine: str,
    operands: Sequence[Expr],
    results: Sequence[Result],
    **config: str,
) -> list[Expr]:
    """A LAPACK routine, such as ``getrf``, in the dtype of the first operand, which is a matrix.

    results: shape and dtype of each; those with two axes more than the batch are matrices
    config:  its flags, a letter each
    """
    batch = len(dims_of(operands[0])) - 2
    infos: list[StructInfo] = [TensorStructInfo(dims, dtype) for dims, dtype in results]
    made = Op.get("relax.stablehlo.custom_call")(
        *operands,
        call_target_name=f"lapack_{letter(operands[0])}{routine}_ffi",
        api_version=TYPED,
        backend_config={k: {"mlir": f"{ord(v)} : ui8"} for k, v in config.items()},
        operand_layouts=[_layout(len(dims_of(x)), batch) for x in operands],
        result_layouts=[_layout(len(dims), batch) for dims, _ in results],
        sinfo_args=infos[0] if len(infos) == 1 else TupleStructInfo(infos),
    )
    value = ctx.emit(made)
    return [value] if len(infos) == 1 else [ctx.emit(value[i]) for i in range(len(infos))]


def _layout(ndim: int, batch: int) -> tuple[int, ...]:
    """Axes from the fastest to the slowest: inside a matrix by columns, then the batch."""
    return (*range(batch, ndim), *reversed(range(batch)))


def failed(ctx: Context, info: Expr, x: Expr, axes: int) -> Expr:
    """``x`` with NaN where LAPACK reports a failure; ``axes``: those of ``x`` after the batch's."""
    bad = R.not_equal(info, scalar(0, "int32"))
    bad = ctx.reshape(bad, (*dims_of(info), *[1] * axes))
    return R.where(bad, scalar(float("nan"), dtype_of(x)), x)
