"""LazyTransformParams: weights loaded when they are needed, stored and freed when they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relax2xla import op
from relax2xla.analysis.variables import free_vars
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExternFunc,
    Function,
    IRModule,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeStructInfo,
    StructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import result_info
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.struct_info import flatten_info
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.params.common import loaded_where_read, number_of_inputs
from relax2xla.transform.params.lazy_callbacks import joined


@register()
class LazyTransformParams(Pass):
    """Make functions whose names end in ``transform_params`` call packed functions for weights.

    fget_item, fset_item: names of packed functions (None for the second: results are returned);
    extra_get_item_params, extra_set_item_params: variables that become parameters of the function
    and first arguments of every such call.

    Weights are the parameters behind the first ``num_input``, or the fields of the one tuple there.
    ``fget_item(*extra, index)`` gives one before it is read; ``fset_item(*extra, index, value)``
    takes a result after the last value that reads it, and then weights are freed
    (``vm.kill_object``). Shapes and numbers among the weights stay parameters. Raises
    TransformError where there are dataflow blocks, in which nothing impure may stand: run
    ToNonDataflow before.
    """

    def __init__(
        self,
        fget_item: str = "get_item",
        fset_item: str | None = "set_item",
        extra_get_item_params: Sequence[Var] | None = None,
        extra_set_item_params: Sequence[Var] | None = None,
    ) -> None:
        if not isinstance(fget_item, str):
            raise TypeError(f"fget_item is the name of a packed function; got {fget_item!r}")
        self.fget_item, self.fset_item = fget_item, fset_item
        self.extra_get_item_params = tuple(extra_get_item_params or ())
        self.extra_set_item_params = tuple(extra_set_item_params or ())

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = dict(mod.functions)
        for gvar, func in mod.relax_functions().items():
            if gvar.name_hint.endswith("transform_params"):
                if any(isinstance(b, DataflowBlock) for b in func.body.blocks):
                    raise TransformError(
                        f"LazyTransformParams: {gvar.name_hint} has dataflow blocks, in which no "
                        "packed function with effects can be called; run ToNonDataflow before"
                    )
                new[gvar] = self._lazy(func)
        return mod.replace(new)

    def _lazy(self, func: Function) -> Function:
        inputs = number_of_inputs(func, self.info.name) or 0
        given = func.params[inputs:]
        weights = {var: i for i, var in enumerate(given)}
        extra_get, extra_set = (
            [Var(p.name_hint, p.struct_info, p.span) for p in ps]
            for ps in (self.extra_get_item_params, self.extra_set_item_params)
        )
        loaded: list[Var] = []

        def get(index: int, info: StructInfo, held: Var) -> list[Binding]:
            call = _packed(self.fget_item, *extra_get, PrimValue(index))
            item = Var(f"{held.name_hint}_item", ObjectStructInfo(), held.span)
            return [VarBinding(item, call, held.span), MatchCast(held, item, info, held.span)]

        def field(b: Binding, bundle: Var) -> list[Binding]:
            """``b``, or what takes its place where it reads a field of the tuple of weights."""
            value = b.value
            if not isinstance(value, TupleGetItem) or value.tuple_value is not bundle:
                return [b]
            loaded.append(b.var)
            cast = Var(f"{b.var.name_hint}_cast", value.struct_info, b.span)
            return [*get(value.index, value.struct_info, cast), VarBinding(b.var, cast, b.span)]

        def load(var: Var, dataflow: bool) -> tuple[list[Binding], Var]:
            held = Var(var.name_hint, var.struct_info, var.span)
            loaded.append(held)
            return get(weights[var], var.struct_info, held), held

        body = func.body
        if len(given) == 1 and isinstance(given[0].struct_info, TupleStructInfo):
            bundle = given[0]
            body = _fields_alone(body, bundle)
            bindings = [x for b in bindings_of(body) for x in field(b, bundle)]
            if any(bundle in free_vars(b.value) for b in bindings):
                raise TransformError(
                    f"LazyTransformParams: {bundle.name_hint} may only be read field by field, or "
                    "be the result"
                )
            body = SeqExpr([BindingBlock(bindings)] if bindings else [], body.body, body.span)
        else:
            body = loaded_where_read(body, weights, load, once=True)
        if self.fset_item is not None:
            body = _handed_over(body, set(loaded), self.fset_item, extra_set)
        kinds = PrimStructInfo | ShapeStructInfo
        sizes = [i for p in given for i in flatten_info(p.struct_info) if isinstance(i, kinds)]
        params = [*func.params[:inputs], *extra_get, *extra_set]
        params += [Var("symbolic_var_holder", i) for i in sizes]
        ret = result_info(params, body.struct_info)
        attrs = {k: v for k, v in func.attrs.items() if k != "relax.force_pure"}
        return Function(params, body, ret, False, attrs, func.span)


def _fields_alone(seq: SeqExpr, bundle: Var) -> SeqExpr:
    """``seq``; where its result is the whole tuple ``bundle``, a tuple of its fields instead."""
    info = bundle.struct_info
    if seq.body is not bundle or not isinstance(info, TupleStructInfo):
        return seq
    fields = [Var(f"{bundle.name_hint}_{i}", f) for i, f in enumerate(info.fields)]
    reads = [VarBinding(v, TupleGetItem(bundle, i)) for i, v in enumerate(fields)]
    return SeqExpr([*seq.blocks, BindingBlock(reads)], Tuple(fields), seq.span)


def _handed_over(seq: SeqExpr, loaded: set[Var], name: str, extra: Sequence[Var]) -> SeqExpr:
    """``seq``, which hands its results to the packed function ``name`` and gives ``()``.

    Behind the last reader of a variable it is handed over, if it is a result, and freed, if it was
    ``loaded``.
    """
    bindings = list(bindings_of(seq))
    whole = seq.body
    at = next((b for b in bindings if b.var is whole), None)
    result = at.value if at is not None else whole
    if not isinstance(result, Tuple):
        raise TransformError("LazyTransformParams: the function must give a tuple that it makes")
    places: dict[Expr, list[int]] = {}
    for i, value in enumerate(result.fields):
        places.setdefault(value, []).append(i)
    ends: dict[Var, list[Var]] = {}
    ended: set[Var] = set()
    for b in reversed(bindings):
        if b is not at:
            last = [v for v in (*free_vars(b.value), b.var) if v not in ended]
            ended.update(last)
            ends[b.var] = last

    def done(value: Expr) -> Iterator[Binding]:
        for i in places.get(value, ()):
            call = _packed(name, *extra, PrimValue(i), value)
            yield VarBinding(Var("_", ObjectStructInfo()), call)
        if value in loaded:
            yield VarBinding(Var("_", TupleStructInfo([])), op.vm.kill_object(value))

    out: list[Binding] = []
    nothing: Expr = Tuple([])
    for b in bindings:
        if b is at:
            nothing = Var(b.var.name_hint, TupleStructInfo([]), b.span)
            out.append(VarBinding(nothing, Tuple([]), b.span))
        else:
            out += [b, *(x for v in ends[b.var] for x in done(v))]
    held = {b.var for b in bindings}
    rest = [v for v in places if v not in held]
    return SeqExpr(
        joined([BindingBlock([*out, *(x for v in rest for x in done(v))])]), nothing, seq.span
    )


def _packed(name: str, *args: Expr) -> Call:
    return Call(ExternFunc(name), args, sinfo_args=[ObjectStructInfo()])
