"""A module of rows, evaluated while JAX traces: every row by its rule of ``lax_rows``.

Rows without a rule, and calls that their rule does not know, run as a StableHLO program of their
own inside the trace. That is forward only: their derivative is an error with the row's name and the
name that the source has for it.
"""

from __future__ import annotations

import fnmatch
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla import tir
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import UnsupportedError
from relax2xla.interop.dimensions import in_jax
from relax2xla.interop.jax_functions import jax_function
from relax2xla.interop.known import Known
from relax2xla.interop.lax_rows import OPAQUE, RULES, Prepared, Region, Rule, Site
from relax2xla.interop.lax_rows.calls import NoRule
from relax2xla.interop.lax_rows.site import in_jax_width
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    ShapeExpr,
    Span,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import bindings_of, post_order_deep, reads
from relax2xla.ir.traits import ComputesElements
from relax2xla.stablehlo.draws import is_draw
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.prelude import ATTRIBUTE as PRELUDE
from relax2xla.vm.pjrt.jit import inline_program
from relax2xla.vm.pjrt.own_derivatives import of_elements
from relax2xla.vm.pjrt.xla import aval

#: Rows that compute in the program's own dtype, whatever the policy says.
_EXACT = frozenset(
    f"relax.stablehlo.{name}"
    for name in (
        "bitcast_convert",
        "cholesky",
        "custom_call",
        "fft",
        "reduce_precision",
        "rng",
        "rng_bit_generator",
        "triangular_solve",
    )
)


#: The value of an expression, of those of the variables and constants that it reads.
Step = Callable[[Mapping[Expr, Any]], Any]


# What sequences hold, and regions.
_AT_HAND = Var | Constant | Function
# What rules raise of calls that they do not know, and JAX of operands that do not fit.
_REFUSALS = (NoRule, TypeError, ValueError, NotImplementedError)


class Evaluator:
    """Evaluates the functions of ``mod``. ``dtype``: of the policy, or None; see ``extract_jax``.

    ``remat``: patterns of module paths whose bindings are computed again for derivatives.
    ``symbols``: what symbolic dimensions of the module are in JAX. ``precise``: calls that compute
    in the program's own dtypes, whatever the policy says.

    What does not depend on the values is found once, so one evaluator serves many traces.
    """

    def __init__(
        self,
        mod: IRModule,
        dtype: Any = None,
        remat: Sequence[str] = (),
        symbols: Mapping[tir.Var, Any] | None = None,
        precise: Iterable[Call] = (),
    ) -> None:
        self.mod, self.dtype, self.remat = mod, dtype, tuple(remat)
        self.symbols = symbols or {}
        self._precise = set(map(id, precise))
        self.functions = {g.name_hint: f for g, f in mod.relax_functions().items()}
        # Symbols that are no names in Relax ("chlo.erf.impl") are attributes of their functions.
        self._symbols = {
            f.attrs["sym_name"]: f for f in self.functions.values() if "sym_name" in f.attrs
        }
        self._named_in_jax = functools.cache(functools.partial(jax_function, mod))
        self._planned: dict[SeqExpr, _Plan] = {}
        self._parts: dict[tuple[Function, tuple[int, ...]], Function] = {}

    def named(self, name: str) -> Function:
        """The function of the module of this name, or this symbol."""
        return self._symbols.get(name) or self.functions[name]

    def part(self, func: Function, fields: Sequence[int]) -> Function:
        """``func`` with these fields of its result alone, and what they need."""
        key = func, tuple(fields)
        if key not in self._parts:
            self._parts[key] = _part(func, fields)
        return self._parts[key]

    def fields_read(self, call: Call) -> Set[int] | None:
        """The fields that are read of a call's result; None where all may be."""
        return self._fields_read.get(call, None)

    @functools.cached_property
    def _fields_read(self) -> Mapping[Call, Set[int]]:
        """Of each call that is bound to a variable of which nothing but fields is read."""
        calls: dict[Expr, Call] = {}
        fields: dict[Expr, list[tuple[Expr, int]]] = {}
        read: set[Expr] = set()
        for func in self.functions.values():
            for node in post_order_deep(func):
                if not isinstance(node, SeqExpr):
                    continue
                read.update(reads(node.body))
                for b in bindings_of(node):
                    value = b.value
                    if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
                        fields.setdefault(value.tuple_value, []).append((b.var, value.index))
                        continue
                    read.update(reads(value))
                    if isinstance(value, Call):
                        calls[b.var] = value
        return {
            call: {i for field, i in fields.get(var, ()) if field in read or field in fields}
            for var, call in calls.items()
            if var not in read
        }

    def dimension(self, dim: Any) -> Any:
        """A dimension as JAX has it."""
        return dim if isinstance(dim, int) else in_jax(dim, self.symbols)

    def known(self, expr: Expr, env: Mapping[Expr, Any]) -> np.ndarray[Any, Any] | None:
        """A small value that depends on no argument, by its definition or by what ``env`` has."""
        return self._values.value(expr, env)

    @functools.cached_property
    def _values(self) -> Known:
        return Known(self.mod, self.value)

    @property
    def prelude(self) -> Sequence[Any]:
        """Symbols of the module that are no functions, as text."""
        return self.mod.attrs.get(PRELUDE) or ()

    def call(self, func: Function, args: Sequence[Any], env: Mapping[Expr, Any]) -> Any:
        """The result of ``func``; ``env`` holds what it captures."""
        held = dict(env)
        held.update(zip(func.params, args, strict=True))
        return self.seq(func.body, held)

    def seq(self, seq: SeqExpr, env: dict[Expr, Any]) -> Any:
        """The result of a sequence; its variables go into ``env``."""
        plan = self._planned.get(seq)
        if plan is None:
            plan = self._planned[seq] = self._plan(seq)
        for data, equal in plan.constants:
            env.update(dict.fromkeys(equal, constant(data)))
        env.update((c, c.data) for c in plan.states)
        if plan.steps is None:
            self._in_pieces(list(bindings_of(seq)), seq.body, env)
            return self.value(seq.body, env)
        for var, step in plan.steps:
            env[var] = step(env)
        return plan.result(env)

    def _plan(self, seq: SeqExpr) -> _Plan:
        """What is done for a sequence each time that it is evaluated."""
        bindings = list(bindings_of(seq))
        values = [*(b.value for b in bindings), seq.body]
        found = dict.fromkeys(c for v in values for c in _constants(v))
        states = {c for v in values if is_draw(v) for c in _constants(v)}
        constants = _by_value(c for c in found if c not in states)
        result = self._step(seq.body, None)
        if self.remat and any(map(self._path, bindings)):
            return _Plan(constants, states, None, result)
        steps = [(b.var, self._step(b.value, b.span or b.var.span)) for b in bindings]
        return _Plan(constants, states, steps, result)

    def _step(self, expr: Expr, span: Span | None) -> Step:
        """How one expression is evaluated."""
        if isinstance(expr, Var | Constant):
            return operator.itemgetter(expr)
        if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Var):
            made, index = expr.tuple_value, expr.index
            return lambda env: env[made][index]
        if isinstance(expr, Call) and isinstance(expr.op, Op) and self.dtype is None:
            rule = RULES.get(expr.op.name)
            if rule is not None and all(isinstance(a, _AT_HAND) for a in expr.args):
                return self._ruled(expr, rule, span)
        return lambda env: self.value(expr, env, span)

    def _ruled(self, call: Call, rule: Rule, span: Span | None) -> Step:
        """How a row is evaluated whose operands are at hand."""
        site, operands = Site(call, self), self._operands(call.args)
        of = rule.prepare(site) if isinstance(rule, Prepared) else functools.partial(rule, site)
        if isinstance(call.op, Op) and call.op.has(ComputesElements):
            of = of_elements(of)

        def step(env: Mapping[Expr, Any]) -> Any:
            given = operands(env)
            try:
                return of(*given)
            except _REFUSALS as e:
                return self._refused(call, list(given), span, e)

        return step

    def _operands(self, args: Sequence[Expr]) -> Callable[[Mapping[Expr, Any]], Sequence[Any]]:
        """How operands that are at hand are read."""
        match args:
            case _ if not args or any(isinstance(a, Function) for a in args):
                return lambda env: [
                    Region(a, env, self) if isinstance(a, Function) else env[a] for a in args
                ]
            case [only]:
                return lambda env: (env[only],)
            case _:
                return operator.itemgetter(*args)

    def value(self, expr: Expr, env: Mapping[Expr, Any], span: Span | None = None) -> Any:
        """The value of one expression in A-normal form."""
        match expr:
            case Var():
                return env[expr]
            case Constant():
                return env[expr] if expr in env else constant(expr.data)
            case Tuple():
                return tuple(self.value(f, env) for f in expr.fields)
            case TupleGetItem():
                made = self.value(expr.tuple_value, env)
                return made[expr.index]
            case Function():
                return Region(expr, env, self)
            case Call(op=GlobalVar() as named):
                args = [self.value(a, env) for a in expr.args]
                known = self._named_in_jax(named.name_hint)
                if known is not None:
                    return known(*args)
                return self.call(self.functions[named.name_hint], args, {})
            case Call(op=Op(name="relax.shape_to_tensor"), args=[ShapeExpr() as sizes]):
                dims = [self.dimension(d) for d in sizes.values]
                wide = in_jax_width(np.dtype(np.int64))
                if all(isinstance(d, int) for d in dims):
                    return np.asarray(dims, wide)
                parts = [jnp.asarray(d) for d in dims]
                return jnp.stack([lax.convert_element_type(p, wide) for p in parts])
            case Call(op=Op()):
                return self._row(expr, [self.value(a, env) for a in expr.args], span)
            case Call(op=Var()):
                return env[expr.op](*(self.value(a, env) for a in expr.args))
            case _:
                raise UnsupportedError(f"{expr!r} cannot be evaluated while JAX traces")

    def _row(self, call: Call, args: list[Any], span: Span | None) -> Any:
        assert isinstance(call.op, Op)
        name = call.op.name
        # Sums of many are taken in the program's own dtype, and lowered as a whole.
        sums = self.dtype is not None and _adds_up(args) and any(map(self._is_low, args))
        if self.dtype is not None:
            args = self._by_policy(call, args, sums or id(call) in self._precise)
        rule = RULES.get(name)
        try:
            if rule is None:
                raise NoRule(OPAQUE.get(name, ""))
            if call.op.has(ComputesElements):
                rule = of_elements(rule)
            made = rule(_Policy(call, self, args) if self.dtype else Site(call, self), *args)
        except _REFUSALS as e:
            return self._refused(call, args, span, e)
        low: Any = self.dtype
        return jax.tree.map(lambda m: lax.convert_element_type(m, low), made) if sums else made

    def _refused(self, call: Call, args: list[Any], span: Span | None, why: Exception) -> Any:
        """What becomes of a row that its rule does not take; raises what is an error."""
        assert isinstance(call.op, Op)
        if isinstance(why, NoRule):
            return opaque(self.mod, call, args, f"{call.op.name}{_place(span)} ({why})")
        why.add_note(f"  in {call.op.describe(call)}{_place(span)}")
        raise why

    # -- the policy of dtypes
    def _by_policy(self, call: Call, args: list[Any], precise: bool) -> list[Any]:
        """Operands as the policy has them: floats that meet one of its dtype become that.

        precise: or the other way round
        """
        assert isinstance(call.op, Op)
        if precise or call.op.name in _EXACT:
            return [lax.convert_element_type(a, np.float32) if self._is_low(a) else a for a in args]
        if not any(map(self._is_low, args)):
            return args
        return [
            lax.convert_element_type(a, self.dtype)
            if not isinstance(a, Region | tuple) and jnp.result_type(a) == np.float32
            else a
            for a in args
        ]

    def _is_low(self, value: Any) -> bool:
        return not isinstance(value, Region | tuple) and jnp.result_type(value) == self.dtype

    # -- pieces that are computed again
    def _path(self, b: Binding) -> str:
        """The module that is to be computed again in which ``b`` stands, or ""."""
        span = b.span or b.var.span
        parts = span.name.split(".") if span is not None and span.name else []
        for n in range(1, len(parts) + 1):
            head = ".".join(parts[:n])
            if any(fnmatch.fnmatchcase(head, p) for p in self.remat):
                return head
        return ""

    def _in_pieces(self, bindings: Sequence[Binding], body: Expr, env: dict[Expr, Any]) -> None:
        """All bindings; those of one module after another under ``jax.checkpoint``."""
        last: dict[Expr, int] = {}
        for i, b in enumerate(bindings):
            last.update((v, i) for v in _variables(b.value))
        last.update((v, len(bindings)) for v in _variables(body))
        start = 0
        while start < len(bindings):
            path = self._path(bindings[start])
            end = start + 1
            while end < len(bindings) and self._path(bindings[end]) == path:
                end += 1
            if not path:
                # What has no path of its own, between two of one module, belongs to neither.
                for b in bindings[start:end]:
                    env[b.var] = self.value(b.value, env, b.span or b.var.span)
            else:
                self._piece(bindings[start:end], end, last, env)
            start = end

    def _piece(
        self, piece: Sequence[Binding], end: int, last: Mapping[Expr, int], env: dict[Expr, Any]
    ) -> None:
        kept = [b.var for b in piece if last.get(b.var, -1) >= end]
        used = dict.fromkeys(v for b in piece for v in _variables(b.value) if v in env)
        arrays = [v for v in used if not isinstance(env[v], Region)]

        def run(values: list[Any]) -> list[Any]:
            inner = {**env, **dict(zip(arrays, values, strict=True))}
            for b in piece:
                inner[b.var] = self.value(b.value, inner, b.span or b.var.span)
            regions.update({v: inner[v] for v in kept if isinstance(inner[v], Region)})
            return [None if isinstance(inner[v], Region) else inner[v] for v in kept]

        regions: dict[Expr, Any] = {}
        made = jax.checkpoint(run)([env[v] for v in arrays])
        env.update(zip(kept, made, strict=True))
        env.update(regions)


def _part(func: Function, fields: Sequence[int]) -> Function:
    """``func`` with these fields of its result alone, and what they need."""
    seq = func.body
    bound: dict[Expr, Expr] = {b.var: b.value for b in bindings_of(seq)}
    whole = seq.body
    while isinstance(whole, Var) and whole in bound:
        whole = bound[whole]
    if not isinstance(whole, Tuple):  # one result, which is no tuple, or that of a call
        if not isinstance(whole.struct_info, TupleStructInfo):
            return func
        variable = seq.body
        made = [TupleGetItem(variable, i) for i in fields]
    else:
        made = [whole.fields[i] for i in fields]
    needed: set[Expr] = set()
    for field in made:
        needed.update(reads(field))
    kept: list[Binding] = []
    for b in reversed(list(bindings_of(seq))):
        if b.var in needed or isinstance(b, MatchCast):  # which says what sizes are
            needed.update(reads(b.value, inside=True))
            kept.append(b)
    body = SeqExpr([BindingBlock(kept[::-1])], Tuple(made), seq.span)
    return Function(func.params, body, is_pure=func.is_pure, attrs=func.attrs, span=func.span)


def _adds_up(args: Sequence[Any]) -> bool:
    """Whether a row combines many elements by a sum or a product."""
    region = args[-1] if args else None
    return isinstance(region, Region) and region.binary in ("add", "multiply")


class _Plan(NamedTuple):
    """What is done for a sequence.

    constants: what it reads, and the nodes that have this value
    states:    what draws read, which is no number and stays as wide as it is
    steps:     for each binding; None: in pieces (``remat``)
    """

    constants: Sequence[tuple[np.ndarray[Any, Any], Sequence[Constant]]]
    states: Iterable[Constant]
    steps: list[tuple[Var, Step]] | None
    result: Step


class _Policy(Site):
    """A site whose float32 is the policy's dtype where the operands have it."""

    def __init__(self, call: Call, runner: Evaluator, args: Sequence[Any]) -> None:
        super().__init__(call, runner)
        low = any(
            not isinstance(a, Region | tuple) and jnp.result_type(a) == runner.dtype for a in args
        )
        self.instead = np.dtype(runner.dtype) if low else None

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the result under the policy."""
        declared = in_jax_width(numpy_dtype(self.outputs[0].dtype))
        is_cast = isinstance(self.call.op, Op) and self.call.op.name == "relax.stablehlo.convert"
        if self.instead is not None and declared == np.float32 and not is_cast:
            return self.instead
        return declared


def constant(data: np.ndarray[Any, Any]) -> Any:
    """An array of the program; one number everywhere costs one number."""
    narrow = in_jax_width(data.dtype) if data.dtype.itemsize >= 8 else data.dtype
    if narrow != data.dtype:
        data = _narrowed(data, narrow)
    if data.size > 1 and not any(data.strides):
        return lax.broadcast_in_dim(data[(0,) * data.ndim], data.shape, ())
    # Of an array that it has seen, JAX keeps the dtype that its x64 flag made of it then.
    return data.view() if data.dtype.itemsize >= 8 else data


def _narrowed(data: np.ndarray[Any, Any], narrow: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array as JAX has it without its x64 flag; UnsupportedError for integers that do not fit.

    The largest and least integers of 64 bits stay what they mean: reductions begin with them, and
    conversions end at them.
    """
    if data.dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return data.astype(narrow)
    wide, limits = np.iinfo(data.dtype), np.iinfo(narrow)
    made = data.clip(limits.min, limits.max)
    lost = data[(made != data) & (data != wide.min) & (data != wide.max)]
    if lost.size:
        raise UnsupportedError(
            f"the constant {lost.flat[0]} does not fit the 32 bits that JAX has; use x64='exact', "
            "or switch on jax_enable_x64"
        )
    return made.astype(narrow)


def _by_value(
    constants: Iterable[Constant],
) -> Sequence[tuple[np.ndarray[Any, Any], Sequence[Constant]]]:
    """Constants by their arrays. Those of one number everywhere are one where they are equal.

    Programs are full of these: each relu has its own zeros, each norm its own epsilon.
    """
    found: dict[Any, list[Constant]] = {}
    for c in constants:
        data, key = c.data, id(c.data)
        if data.size and not any(data.strides):
            key = data.dtype, data.shape, np.asarray(data[(0,) * data.ndim]).tobytes()
        found.setdefault(key, []).append(c)
    return [(equal[0].data, equal) for equal in found.values()]


def _constants(expr: Expr) -> list[Constant]:
    """Constants that an expression reads, those of its regions aside."""
    if isinstance(expr, Constant):
        return [expr]
    operands = expr.args if isinstance(expr, Call) else ()
    fields = expr.fields if isinstance(expr, Tuple) else operands
    return [a for a in fields if isinstance(a, Constant)]


def _variables(expr: Expr) -> list[Expr]:
    """Variables in an expression, those that its regions capture included."""
    return [n for n in post_order_deep(expr) if isinstance(n, Var)]


def _place(span: Span | None) -> str:
    return f" at {span}" if span is not None and str(span) else ""


# ---- rows without a rule
def opaque(mod: IRModule, call: Call, args: Sequence[Any], what: str) -> Any:
    """The call as a program of its own: forward only, its derivative is an error with ``what``."""
    site = Site(call, Evaluator(mod))
    arrays = [a for a in args if not isinstance(a, Region | tuple)]
    if len(site.outputs) != len(_leaves(call)) or any(isinstance(a, tuple) for a in args):
        raise UnsupportedError(f"{what} cannot be part of a JAX function")
    params: list[Var] = []
    operands: list[Expr] = []
    for n, (given, value) in enumerate(zip(call.args, args, strict=True)):
        if isinstance(value, Region):
            if _captured(value):
                raise UnsupportedError(f"{what} uses values from around it inside a region")
            operands.append(value.func)
            continue
        params.append(Var(f"a{n}", given.struct_info))
        operands.append(params[-1])
    made = Call(call.op, operands, call.attrs, call.sinfo_args or (call.struct_info,))
    result = Var("result", made.struct_info)
    body = SeqExpr([BindingBlock([VarBinding(result, made)])], result)
    func = Function(params, body, attrs={"global_symbol": "main"})
    rest = {g: f for g, f in mod.relax_functions().items() if g.name_hint != "main"}
    whole = IRModule({GlobalVar("main"): func, **rest})
    text = str(emit(whole, resources=False))
    outputs = [aval(o) for o in site.outputs]

    @jax.custom_jvp
    def forward(*xs: Any) -> list[Any]:
        return inline_program(xs, text, outputs)

    @forward.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise UnsupportedError(f"no derivative is known of {what}; use jax.lax.stop_gradient")

    return site.result(forward(*arrays))


def _leaves(call: Call) -> Sequence[Any]:
    info = call.struct_info
    return info.fields if isinstance(info, TupleStructInfo) else (info,)


def _captured(region: Region) -> bool:
    own = {*region.func.params, *region.values}
    return any(v not in own for b in region.values.values() for v in _variables(b))
