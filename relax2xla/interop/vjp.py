"""Gradients of calls as JAX derives them, for operators that have no expression of their own.

The call is traced as ``extract_jax`` has it, so its gradient is that of ``jax.grad``: of the rows
that the operator is lowered to, or of its ``.derivative``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from relax2xla.analysis.variables import all_global_vars
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import TransformError, TVMError
from relax2xla.interop.jax import extract_jax, traced
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.equal import structural_equal, structural_hash
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.op.shared.gradients.table import is_differentiable
from relax2xla.op.shared.lowering import relax
from relax2xla.tir import PrimFunc


class Vjps:
    """Gradients of calls, as functions of rows in the module of ``builder``."""

    def __init__(self, builder: BlockBuilder) -> None:
        self.builder = builder
        self._made: dict[int, list[tuple[Function, GlobalVar]]] = {}

    def partials(self, call: Call, adjoint: Expr) -> Sequence[Expr]:
        """Gradients of the operands of ``call``, of that of its result; those it has none of are
        ``R.grad.no_grad``.

        Emits one call of a private function ``NAME_vjp(operands, gradients)``. Raises
        TransformError where a size is not known, and where JAX has no derivative of a row.
        """
        leaves = [leaf for a in call.args for leaf in _leaves(a)]
        given = [leaf for leaf in leaves if is_differentiable(leaf.struct_info)]
        none = relax("grad.no_grad", adjoint)
        if not given:
            return [none for _ in call.args]
        grads = [g for g in _leaves(adjoint) if is_differentiable(g.struct_info)]
        function = self._function(call, leaves)
        made = Call(function, [*leaves, *grads])
        fields = iter([made] if len(given) == 1 else list(self.builder.emit(made)))
        return [_gathered(a, fields) or none for a in call.args]

    def _function(self, call: Call, leaves: Sequence[Expr]) -> GlobalVar:
        """The function that computes the gradients of ``call``; equal calls share one."""
        for leaf in leaves:
            _want_static(call, leaf)
        forward = _forward(call, leaves)
        known = self._made.setdefault(structural_hash(forward), [])
        for func, gvar in known:
            if structural_equal(func, forward):
                return gvar
        mod = _with_callees(forward, call, self.builder.get())
        name = call.op.name if isinstance(call.op, Op) else f"{call.op!r}"
        base = name.removeprefix("relax.").replace(".", "_")
        try:
            backward = _backward(mod)
        except (TypeError, ValueError, NotImplementedError, TVMError) as e:
            raise TransformError(f"Gradient: JAX cannot differentiate {name}: {e}") from e
        gvar = self._added(backward, f"{base}_vjp")
        known.append((forward, gvar))
        return gvar

    def _added(self, mod: IRModule, name: str) -> GlobalVar:
        """The functions of a module in that of the builder; gives the name of its ``main``."""
        new: dict[Expr, Expr] = {}
        todo = [mod.get_global_var("main")]
        while todo:
            gvar = todo[-1]
            func = mod[gvar]
            callees = [g for g in all_global_vars(func.body) if g not in new]
            if callees:
                todo += callees
                continue
            todo.pop()
            if gvar not in new:
                func = rewrite_function(func.replace(attrs={}), rule=new.get)
                hint = name if gvar.name_hint == "main" else gvar.name_hint
                new[gvar] = self.builder.add_func(func, hint)
        made = new[mod.get_global_var("main")]
        assert isinstance(made, GlobalVar)
        return made


# ---- what a call takes
def _leaves(operand: Expr) -> Iterator[Expr]:
    """The tensors in an operand, in order."""
    if isinstance(operand, Tuple):
        for field in operand.fields:
            yield from _leaves(field)
    elif isinstance(operand.struct_info_, TensorStructInfo):
        yield operand
    elif isinstance(operand.struct_info_, TupleStructInfo):
        for field in operand:
            yield from _leaves(field)


def _gathered(operand: Expr, fields: Iterator[Expr]) -> Expr | None:
    """The gradient of an operand, of those of its tensors; None if it has none."""
    info = operand.struct_info_
    if not is_differentiable(info):
        return None
    if isinstance(info, TupleStructInfo):
        return Tuple([_field(f, fields) for f in operand])
    return next(fields)


def _field(operand: Expr, fields: Iterator[Expr]) -> Expr:
    """As :func:`_gathered`, inside a tuple: zeros where there is no gradient."""
    info = operand.struct_info
    if isinstance(info, TupleStructInfo):
        return Tuple([_field(f, fields) for f in operand])
    if is_differentiable(info):
        return next(fields)
    assert isinstance(info, TensorStructInfo)
    return relax("zeros", info.dims, info.dtype)


def _want_static(call: Call, leaf: Expr) -> None:
    info = leaf.struct_info
    assert isinstance(info, TensorStructInfo)
    dims = info.dims
    if dims is None or not info.dtype or any(not isinstance(d, int) for d in dims):
        raise TransformError(
            f"Gradient: {call.op!r} has no gradient in expressions, and JAX needs the sizes of its "
            f"operands; one is {show(info)}. Bind symbolic variables first: BindSymbolicVars"
        )


# ---- the call as a function
def _forward(call: Call, leaves: Sequence[Expr]) -> Function:
    """``call`` as a function of its tensors."""
    params = [Var(f"x{i}", leaf.struct_info) for i, leaf in enumerate(leaves)]
    given = iter(params)
    args = [_inside(a, given) for a in call.args]
    body = Call(call.op, args, call.attrs, call.sinfo_args, call.span)
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(body)
        gvar = builder.emit_func_output(made)
    return builder.get()[gvar.name_hint]


def _inside(operand: Expr, params: Iterator[Var]) -> Expr:
    """An operand over the parameters."""
    info = operand.struct_info_
    if isinstance(info, TensorStructInfo):
        return next(params)
    if isinstance(info, TupleStructInfo):
        return Tuple([_inside(f, params) for f in operand])
    if isinstance(operand, Var):
        raise TransformError(
            f"Gradient: the operand `{operand.name_hint}` is {show(operand.struct_info)}, which "
            "JAX has nothing for"
        )
    return operand


def _with_callees(forward: Function, call: Call, mod: IRModule) -> IRModule:
    """A module of ``forward`` and of what it calls."""
    functions: dict[Any, Any] = {}
    todo = [e for e in (call.op, *call.args) if isinstance(e, GlobalVar)]
    while todo:
        gvar = todo.pop()
        if gvar in functions:
            continue
        found = mod[gvar]
        if isinstance(found, PrimFunc):
            functions[gvar] = found
            continue
        if not isinstance(found, Function):
            raise TransformError(f"Gradient: {gvar.name_hint} is no Relax function")
        functions[gvar] = found.replace(attrs={})
        todo += all_global_vars(found.body)
    taken = {g.name_hint for g in functions}
    name = "main"
    while name in taken:
        name += "_"
    return IRModule({GlobalVar(name): forward, **functions})


def _backward(mod: IRModule) -> IRModule:
    """A module whose ``main`` takes what the first function of ``mod`` takes and gradients of its
    results, and gives gradients of its floats."""
    import jax

    gvar = next(iter(mod))
    forward = mod[gvar]
    fn, weights = extract_jax(mod, gvar.name_hint)
    inputs = [_shape(p.struct_info) for p in forward.params]
    is_float = [is_differentiable(p.struct_info) for p in forward.params]
    outputs = [_shape(i) for i in _tensors(forward.ret_struct_info)]
    has_grad = [is_differentiable(i) for i in _tensors(forward.ret_struct_info)]

    def main(*args: Any) -> Any:
        values, grads = args[: len(inputs)], iter(args[len(inputs) :])

        def run(*floats: Any) -> list[Any]:
            given = iter(floats)
            mixed = [next(given) if f else v for v, f in zip(values, is_float, strict=True)]
            return jax.tree.leaves(fn(weights, *mixed))

        _, pull = jax.vjp(run, *(v for v, f in zip(values, is_float, strict=True) if f))
        return pull(
            [
                next(grads) if flows else _no_tangent(o)
                for o, flows in zip(outputs, has_grad, strict=True)
            ]
        )

    with jax.enable_x64(True):
        given = [*inputs, *(o for o, g in zip(outputs, has_grad, strict=True) if g)]
        return traced(main, given, {}, own_derivatives=False)


def _shape(info: StructInfo) -> Any:
    import jax

    assert isinstance(info, TensorStructInfo)
    return jax.ShapeDtypeStruct(info.dims, numpy_dtype(info.dtype))


def _no_tangent(like: Any) -> Any:
    """The gradient that JAX has of what is no float."""
    import jax
    import numpy as np

    return np.zeros(like.shape, jax.dtypes.float0)


def _tensors(info: StructInfo) -> Iterator[TensorStructInfo]:
    if isinstance(info, TupleStructInfo):
        for field in info.fields:
            yield from _tensors(field)
    else:
        assert isinstance(info, TensorStructInfo)
        yield info
