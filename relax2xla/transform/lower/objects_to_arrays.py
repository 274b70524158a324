"""ObjectsToArrays: objects that hold arrays, such as caches, become these arrays (decision D21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relax2xla.analysis.variables import used_vars
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    Expr,
    ExternFunc,
    Function,
    If,
    IRModule,
    MatchCast,
    ObjectStructInfo,
    Op,
    PrimValue,
    SeqExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import dims_equal
from relax2xla.ir.rewrite import Rewriter, bindings_of
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.tir import Dim
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.inline_private import inline_functions


class CallSite:
    """One call of a packed function on an object, and the arrays that stand for the object.

    ``kept``: the arrays of the object as they are now; a call that changes one puts the next there.
    ``info``: of the result, None where it is the object again.
    """

    def __init__(self, arrays: _Arrays, name: str, args: Sequence[Expr], info: StructInfo) -> None:
        self._arrays = arrays
        self.name, self.args, self.info = name, tuple(args), info
        self.kept = arrays.kept

    def emit(self, value: Expr) -> Expr:
        """A variable for ``value``, in the function that is made."""
        return self._arrays.builder.emit(value)

    def given(self, name: str, dims: Sequence[Dim], dtype: str) -> Var:
        """The array ``name`` that comes with the step: an argument of the function that is made.

        Raises TransformError where another call has asked for other dimensions.
        """
        return self._arrays.given(name, dims, dtype)


class ObjectForm(Protocol):
    """What the arrays of an object are, and what calls of packed functions on it compute."""

    @property
    def kept(self) -> Sequence[TensorStructInfo]:
        """The arrays that the object keeps from call to call."""
        ...

    @property
    def targets(self) -> frozenset[str]:
        """Targets of custom calls of our own that the operators of its calls may have."""
        ...

    def call(self, site: CallSite) -> Expr | None:
        """The result of a call as operators; None where it is the object.

        The arguments are those after the object. Raises TransformError for what it cannot say.
        """
        ...

    def finish(self, func: Function) -> Function:
        """The function, when all its calls are operators, as suits steps of this form."""
        ...


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A function without objects.

    ``func`` takes the other parameters, and for each object the tuples of its kept arrays and of
    the given ones, whose names are ``given``; it gives the result, and the tuples of kept arrays. A
    result that is an object is the number of its parameter.
    """

    func: Function
    given: tuple[tuple[str, ...], ...]


@register()
class ObjectsToArrays(Pass):
    """Write a function that takes objects as one that takes, and gives, the arrays in them.

    Before: ``R.call_dps_packed("vm.builtin.attention_kv_cache_...", (cache, ...))``, which the host
    runs. After: operators on pools and tables, so that a step of a model is one XLA program.
    ``forms``: for parameters of the function ``name``, by place, what their objects are. The
    machine runs it when it sees the objects of a call. Results are those of the calls.
    """

    def __init__(self, name: str, forms: Mapping[int, ObjectForm]) -> None:
        super().__init__()
        self.name, self.forms = name, dict(forms)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        func = mod[self.name]
        if not isinstance(func, Function):
            raise TransformError(f"ObjectsToArrays: {self.name} is no Relax function")
        made = unfold_objects(func, self.forms, mod)
        return mod.replace({**mod.functions, mod.get_global_var(self.name): made.func})


def unfold_objects(func: Function, forms: Mapping[int, ObjectForm], mod: IRModule) -> Unfolded:
    """See :class:`ObjectsToArrays`; TransformError where the objects are used otherwise."""
    callees = {
        g.name_hint: f
        for g, f in mod.relax_functions().items()
        if any(_has_object(p.struct_info) for p in f.params) and f is not func
    }
    whole = inline_functions(func, callees) if callees else func
    normal = BlockBuilder().normalize(whole)
    assert isinstance(normal, Function)
    made = _Unfolding(normal, forms).run()
    func = made.func
    for form in forms.values():
        func = form.finish(func)
    return Unfolded(func, made.given)


def _has_object(info: StructInfo) -> bool:
    return any(isinstance(leaf, ObjectStructInfo) for leaf in flatten_info(info))


class _Arrays:
    """The arrays of one object in the function that is made."""

    def __init__(self, builder: BlockBuilder, hint: str, form: ObjectForm) -> None:
        self.builder, self.form, self.hint = builder, form, hint
        self.param = Var(f"{hint}_kept", TupleStructInfo(list(form.kept)))
        self.kept: list[Expr] = []
        self.named: dict[str, Var] = {}

    def given(self, name: str, dims: Sequence[Dim], dtype: str) -> Var:
        info = TensorStructInfo(tuple(dims), dtype)
        known = self.named.setdefault(name, Var(f"{self.hint}_{name}", info))
        before = known.struct_info
        assert isinstance(before, TensorStructInfo)
        if before.dtype != dtype or not dims_equal(before.dims, info.dims):
            raise TransformError(
                f"calls on `{self.hint}` take {name} as {show(before)} and as {show(info)}"
            )
        return known


class _Unfolding:
    """The work on one function, whose bindings are normal."""

    def __init__(self, func: Function, forms: Mapping[int, ObjectForm]) -> None:
        self.func, self.builder = func, BlockBuilder()
        self.arrays = {
            i: _Arrays(self.builder, func.params[i].name_hint, form) for i, form in forms.items()
        }
        # Variables that are objects, by the place of the parameter that it is.
        self.objects: dict[Var, int] = {func.params[i]: i for i in forms}
        values: dict[Var, Expr] = {v: PrimValue(i) for v, i in self.objects.items()}
        self.rewriter = Rewriter(values=values)

    def run(self) -> Unfolded:
        rest = [p for i, p in enumerate(self.func.params) if i not in self.arrays]
        kept = [a.param for a in self.arrays.values()]
        with self.builder.function("main", [*rest, *kept]):
            with self.builder.dataflow():
                for a in self.arrays.values():
                    count = len(a.form.kept)
                    a.kept += [self.builder.emit(TupleGetItem(a.param, i)) for i in range(count)]
                for b in bindings_of(self.func.body):
                    self._binding(b)
                result = self.rewriter.expr(self.func.body.body)
                lasting = [Tuple(a.kept) for a in self.arrays.values()]
                out = self.builder.emit_output(Tuple([result, *lasting]))
            self.builder.emit_func_output(out)
        made = self.builder.get()["main"]
        assert isinstance(made, Function)
        given = [v for a in self.arrays.values() for v in a.named.values()]
        # A parameter for each: the machine puts them on the device one by one.
        made = Function(
            [*made.params, *given], made.body, attrs={**self.func.attrs, "global_symbol": "main"}
        )
        return Unfolded(made, tuple(tuple(a.named) for a in self.arrays.values()))

    def _binding(self, b: VarBinding | MatchCast | Any) -> None:
        value = b.value
        if isinstance(value, Var) and value in self.objects:
            self._alias(b.var, self.objects[value])
        elif isinstance(b, MatchCast):
            self._bind(b.var, self.builder.match_cast(self.rewriter.expr(value), b.struct_info))
        elif isinstance(value, Call) and (found := self._called(value)) is not None:
            self._call(b.var, value, *found)
        else:
            self._refuse_inside(b.var, value)
            self._bind(b.var, self.builder.emit(self.rewriter.expr(value), b.var.name_hint))

    def _bind(self, var: Var, new: Expr) -> None:
        self.rewriter.env[var] = new

    def _alias(self, var: Var, place: int) -> None:
        self.objects[var] = place
        self._bind(var, PrimValue(place))

    def _called(self, call: Call) -> tuple[str, Sequence[Expr], int] | None:
        """The packed function, its arguments, and which object is the first of them."""
        if isinstance(call.op, ExternFunc):
            name, args = call.op.global_symbol, call.args
        elif isinstance(call.op, Op) and call.op.name in PACKED:
            callee, *args = call.args
            name = callee.value if isinstance(callee, StringImm) else ""
            name = callee.global_symbol if isinstance(callee, ExternFunc) else name
            if call.op.name == _DPS and len(args) == 1 and isinstance(args[0], Tuple):
                args = args[0].fields
        else:
            return None
        if not args or not isinstance(args[0], Var) or args[0] not in self.objects:
            return None
        return name, args[1:], self.objects[args[0]]

    def _call(self, var: Var, call: Call, name: str, args: Sequence[Expr], place: int) -> None:
        arrays = self.arrays[place]
        if any(isinstance(a, Var) and a in self.objects for a in args):
            raise TransformError(f"{name} takes several objects")
        info = self.rewriter.info(call.struct_info)
        site = CallSite(arrays, name, [self.rewriter.expr(a) for a in args], info)
        made = arrays.form.call(site)
        if made is None:
            self._alias(var, place)
        else:
            self._bind(var, self.builder.emit(made, var.name_hint))

    def _refuse_inside(self, var: Var, value: Expr) -> None:
        """TransformError for an object where nothing says what becomes of it."""
        if isinstance(value, Tuple | TupleGetItem) or not self.objects:
            return
        found = next((v for v in used_vars(value) if v in self.objects), None)
        if found is not None:
            what = "a branch" if isinstance(value, If | SeqExpr | Function) else f"{value}"[:80]
            raise TransformError(
                f"`{var.name_hint}` uses the object `{found.name_hint}` in {what}, which has no "
                "form in arrays"
            )


_DPS = "relax.call_dps_packed"
PACKED = (_DPS, "relax.call_pure_packed", "relax.call_inplace_packed")
