"""Matrix products: matmul, linear, einsum, outer. Semantics: Relax, and numpy's where Relax says
nothing.
"""

from __future__ import annotations

from relax2xla.errors import OpError
from relax2xla.ir.expr import Call, Expr
from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.op_param import DTypeLike, TupleLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Einsum, MatMul, Opaque
from relax2xla.op.shared.checks import (
    NUMBER,
    broadcast_dims,
    common_dtype,
    differ,
    fields_of,
    tensor,
    want_fields,
    want_tensor,
)
from relax2xla.op.shared.einsum import contract_all, parse, result_dims
from relax2xla.op.shared.exports import composed
from relax2xla.op.shared.lowering import (
    broadcast_shapes,
    broadcast_to,
    contraction_dtype,
    convert,
    dot_general,
    dtype_of,
    info_of,
    reshape,
    shape_of,
)


@op("relax.matmul", MatMul())
def matmul(x1: Expr, x2: Expr, out_dtype: DTypeLike = None) -> StructInfo:
    """Matrix product with broadcasting of the leading (batch) axes, as numpy's ``matmul``.

    x1:     (*a, m, k), or (k,) for one row
    x2:     (*b, k, n), or (k,) for one column; dtype of ``x1``, any number
    result: (*broadcast(a, b), m, n), without m where ``x1`` has one axis and without n where ``x2``
            has; dtype ``out_dtype``, by default that of the operands
    float16 and bfloat16 are summed in float32. Raises ``OpError`` for scalars, sizes k that differ
    and batch axes that cannot be broadcast.
    """
    a, b = want_tensor(x1, "x1", NUMBER), want_tensor(x2, "x2", NUMBER)
    for name, info in (("x1", a), ("x2", b)):
        if info.ndim == 0:
            raise OpError(f"`{name}` must not be a scalar; use R.multiply")
    dtype = out_dtype or common_dtype((a, b), ("x1", "x2"))
    if a.ndim < 0 or b.ndim < 0:
        return tensor(None, dtype, like=a)
    ndim = max(a.ndim, b.ndim, 2) - (a.ndim == 1) - (b.ndim == 1)
    if a.dims is None or b.dims is None:
        return tensor(None, dtype, ndim, a)
    left, right = a.dims[-1], b.dims[-2 if b.ndim > 1 else 0]
    if differ(left, right):
        raise OpError(
            f"the last axis of `x1` {show(a)} has size {left}, but the one of `x2` {show(b)} that "
            f"it is multiplied with has size {right}"
        )
    batch = broadcast_dims((a.dims[:-2], b.dims[:-2]), "the batch axes of `x1` and `x2`")
    if batch is None:
        return tensor(None, dtype, ndim, a)
    rows = a.dims[-2:-1]
    columns = b.dims[-1:] if b.ndim > 1 else ()
    return tensor((*batch, *rows, *columns), dtype, like=a)


@matmul.legalize
def _matmul(x1: Expr, x2: Expr, out_dtype: DTypeLike = None) -> Expr:
    dtype = out_dtype or dtype_of(x1)
    operand, result = contraction_dtype(dtype_of(x1), dtype_of(x2), dtype)
    a, b = convert(x1, operand), convert(x2, operand)
    sa, sb = shape_of(a), shape_of(b)
    batch_b = sb[:-2]
    if all(d == 1 for d in batch_b) and len(batch_b) <= max(len(sa) - 2, 0):
        # A single matrix on the right: all axes of `a` but the last are rows. No batch axes.
        b = reshape(b, sb[-2:])
        return convert(dot_general(a, b, ([len(sa) - 1], [0]), ((), ()), result), dtype)
    # Here `b` has batch axes. A vector or a matrix on the left is broadcast along them.
    batch = broadcast_shapes(sa[:-2], batch_b)
    a = broadcast_to(a, (*batch, *sa[-2:]))
    b = broadcast_to(b, (*batch, *sb[-2:]))
    axes = list(range(len(batch)))
    last = len(shape_of(a)) - 1
    out = dot_general(a, b, ([last], [len(batch)]), (axes, axes), result)
    return convert(out, dtype)


@composed
def linear(data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: DTypeLike = None) -> Call:
    """``data @ weight.T + bias``; no operator: it builds permute_dims, matmul and add, as in TVM.

    data:   (*s, in)
    weight: (out, in), or (in,)
    bias:   (out,) or None; of the result's dtype
    result: (*s, out), dtype ``out_dtype``, by default that of ``data``
    """
    turned = Op.get("relax.permute_dims")(weight)
    product = matmul(data, turned, out_dtype=out_dtype)
    return product if bias is None else Op.get("relax.add")(product, bias)


@op("relax.outer", Opaque())
def outer(x1: Expr, x2: Expr) -> Rule:
    """Outer product of two vectors: ``result[i, j] = x1[i] * x2[j]``.

    x1:     (m,), any number
    x2:     (n,), of the same dtype
    result: (m, n)
    Raises ``OpError`` for other ranks and dtypes.
    """
    a, b = want_tensor(x1, "x1", NUMBER, 1), want_tensor(x2, "x2", NUMBER, 1)
    dtype = common_dtype((a, b), ("x1", "x2"))
    dims = None if a.dims is None or b.dims is None else (*a.dims, *b.dims)
    return tensor(dims, dtype, 2, a), lambda: dot_general(x1, x2, ((), ()))


@op("relax.einsum", Einsum())
def einsum(operands: TupleLike, subscripts: str) -> StructInfo:
    """Einstein summation, as numpy's ``einsum``.

    operands:   tuple of tensors of one dtype, any number
    subscripts: such as "bij,bjk->bik"; one letter an axis, ``...`` for axes that are broadcast, a
                letter twice in one operand takes its diagonal; without ``->`` the letters that
                occur once, in alphabetical order
    result:     the axes behind ``->``, dtype of the operands
    float16 and bfloat16 are summed in float32. Raises ``OpError`` for malformed subscripts, ranks
    that do not fit them, and sizes that differ for one letter.
    """
    fields = want_fields(operands, "operands")
    infos: list[TensorStructInfo] = []
    for i, field in enumerate(fields):
        if not isinstance(field, TensorStructInfo):
            raise OpError(f"`operands` must be tensors; field {i} is {show(field)}")
        infos.append(field)
    dtype = common_dtype(infos, [f"operands[{i}]" for i in range(len(infos))])
    if any(i.ndim < 0 for i in infos):
        return tensor(None, dtype, like=infos[0])
    inputs, output = parse(subscripts, [i.ndim for i in infos])
    if any(i.dims is None for i in infos):
        return tensor(None, dtype, len(output), infos[0])
    dims = result_dims(inputs, output, [i.dims or () for i in infos])
    return tensor(dims, dtype, len(output), infos[0])


@einsum.legalize
def _einsum(operands: TupleLike, subscripts: str) -> Expr:
    values = fields_of(operands)
    inputs, output = parse(subscripts, [info_of(v).ndim for v in values])
    dtype = dtype_of(values[0])
    operand, result = contraction_dtype(dtype, dtype, dtype)
    made = contract_all([convert(v, operand) for v in values], inputs, output, result)
    return convert(made, dtype)
