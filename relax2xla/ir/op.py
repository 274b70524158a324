"""One operator, one unit (design decision D1).

A decorated function is an operator: its signature is the operator's signature, its body the struct-
info rule, its docstring the documentation; calling the result builds the Call. Traits say what
passes may suppose of it (:mod:`relax2xla.ir.traits`); ``.legalize`` beside it states the lowering::

    @op("relax.nn.softmax", AlongAxis())
    def softmax(data: Expr, axis: int = -1) -> StructInfo:
        '''Softmax along one axis ...'''
        x = want_tensor(data, "data", dtypes=FLOAT)
        norm_axis(axis, x.ndim)
        return x


    @softmax.legalize
    def _(data: Expr, axis: int = -1) -> Expr: ...

A body that is annotated ``-> Rule`` returns both, the struct info and a function without parameters
that lowers: the signature stands once, and what the checks found out need not be found again::

    @op("relax.nn.dropout")
    def dropout(data: Expr, rate: float = 0.5) -> Rule:
        '''In inference ...'''
        x = want_tensor(data, "data", dtypes=FLOAT)
        return TupleStructInfo((x, x)), lambda: Tuple([data, full_like(data, 1)])

Annotations say what a parameter is. Operands: ``Expr`` (a number becomes a constant of the other
operand's dtype), ``Expr | None``, ``TupleLike``, ``ShapeLike``, ``PrimLike``, and ``*args: Expr``.
Everything else is an attribute; ``DTypeLike``, ``IntsLike``, ``AxesLike`` convert what users write
(``relax2xla.ir.op_param``).
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.errors import OpError, TVMError
from relax2xla.ir import late
from relax2xla.ir.expr import (
    Call,
    Constant,
    Expr,
    PrimValue,
    StringImm,
    Var,
)
from relax2xla.ir.make import const
from relax2xla.ir.op_param import EXPR, Param, param_of
from relax2xla.ir.struct_info import (
    DTensorStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.ir.traits import Trait
from relax2xla.tir.call import OpName
from relax2xla.tir.intrinsic import OTHER_BUILTINS, RULES, name_of

P = ParamSpec("P")
T = TypeVar("T", bound=Trait)


Rule = tuple[StructInfo, Callable[[], Expr]]
"""What a body returns that also lowers (see the module's docstring)."""
Given = Mapping[str, Any]
"""Arguments of a call as the user wrote them, by name; see :meth:`Op.shorthand`."""
Shorthand = Callable[[Given], Given]
PrimalGradient = Callable[[Var, Call, Expr, Any], Sequence[Expr]]
"""Gradients of a call's operands, of its variable, the call, the gradient of its result, and the
BlockBuilder that they are for (see :mod:`relax2xla.op.shared.gradients`)."""


class Op(Expr, Generic[P]):
    """One operator: everything the compiler knows about it.

    ``infer``: struct-info rule, or None where calls state their result in ``sinfo_args``;
    ``lowering``: the legalisation, same signature, or None; ``smooth``: another one whose rows have
    the framework's derivatives (see :meth:`derivative`); ``primal_gradient``: its gradient as
    expressions (see :mod:`relax2xla.op.shared.gradients`); ``sugar``: rewrites what users write
    (see :meth:`shorthand`); ``pure``: no side effects; ``distributed``: the struct-info rule is for
    distributed tensors, too (else ``relax2xla.op.shared.sharding`` has one, or they are refused).
    """

    registry: typing.ClassVar[dict[str, Op[...]]] = {}
    # Its own part of A-normal form, FNormalize: of a builder (or None) and a call, the call to have
    # in its place; the very same one where it is normal. See ``relax2xla.op_attributes``.
    normal: Callable[[Any, Call], Expr] | None = None

    def __init__(
        self,
        name: str,
        infer: Callable[P, StructInfo] | None,
        params: Sequence[Param],
        signature: inspect.Signature,
        doc: str,
        pure: bool = True,
        follows: Mapping[str, str] | None = None,
        distributed: bool = False,
        traits: Sequence[Trait] = (),
    ) -> None:
        self.name = name
        self.infer = infer
        self.params = tuple(params)
        self.operands = tuple(p for p in params if p.kind.operand)
        attrs = [p for p in params if not p.kind.operand]
        self.attr_names = frozenset(p.name for p in attrs)
        self.defaults = {p.name: p.default for p in attrs if not p.required}
        # What binding positional arguments needs; None where the signature says more.
        self._names = None if any(p.variadic for p in params) else [p.name for p in params]
        self._positional = sum(not p.keyword for p in params)
        self._least = sum(p.required for p in params)
        self.signature = signature
        self.lowering: Callable[P, Expr] | None = None
        self.smooth: Callable[P, Expr] | None = None
        self.primal_gradient: PrimalGradient | None = None
        self.sugar: Shorthand | None = None
        self.pure = pure
        self.distributed = distributed
        self.traits = tuple(traits)
        self._trait_of: dict[type[Trait], Trait | None] = {}
        self.spellings: list[Callable[P, Expr | None]] = []
        self.attributes: dict[str, tuple[int, Any]] = {}
        self.follows = dict(follows or {})
        self.__doc__ = doc
        self.span = None
        self.struct_info_ = None

    @staticmethod
    @late.operator.given
    def get(name: str) -> Op[...]:
        """The operator ``name``, such as "relax.add"; TVMError if there is none.

        Of a builtin of loop-level functions, such as "tir.call_extern", the name, as calls have it.
        """
        if name.startswith("tir.") and name_of(name) in (*RULES, *OTHER_BUILTINS):
            builtin: Any = OpName(name)
            return builtin
        found = Op.registry.get(name)
        if found is None:
            for prefix, module in PROVIDERS:
                if name.startswith(prefix):
                    importlib.import_module(module)
                    found = Op.registry.get(name)
                    break
        if found is None:
            raise TVMError(f"there is no operator {name!r}; see relax2xla.op for the names")
        return found

    def get_attr(self, name: str) -> Any:
        """The attribute of this name, None where there is none.

        Those that programs have registered, ``FPrimalGradient``, ``FPurity``, and
        ``FInferStructInfo``, of which the context is not used.
        """
        if name in self.attributes:
            return self.attributes[name][1]
        if name == "FInferStructInfo" and self.infer is not None:
            return lambda call, context=None: self.infer_call(call)
        return {"FPrimalGradient": self.primal_gradient, "FPurity": self.pure}.get(name)

    def has_attr(self, name: str) -> bool:
        """Whether there is an attribute of this name."""
        return self.get_attr(name) is not None

    def set_attr(self, name: str, value: Any, plevel: int = 10) -> None:
        """Give an attribute; see :func:`relax2xla.op_attributes.register_op_attr`."""
        importlib.import_module("relax2xla.op_attributes").set_attr(self, name, value, plevel)

    def reset_attr(self, name: str) -> None:
        """Take back what :meth:`set_attr` gave."""
        importlib.import_module("relax2xla.op_attributes").reset_attr(self, name)

    def trait(self, kind: type[T]) -> T | None:
        """What the operator's trait of this kind says; None where it has none."""
        if kind not in self._trait_of:
            self._trait_of[kind] = next((t for t in self.traits if isinstance(t, kind)), None)
        return typing.cast(T | None, self._trait_of[kind])

    def has(self, kind: type[Trait]) -> bool:
        """Whether the operator has a trait of this kind."""
        return self.trait(kind) is not None

    def is_pure_call(self, call: Call) -> bool:
        """Whether ``call``, of this operator, has no side effects."""
        return self.pure

    @staticmethod
    def list_op_names() -> list[str]:
        """Names of all operators, sorted."""
        for _, module in PROVIDERS:
            importlib.import_module(module)
        return sorted(Op.registry)

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Call:
        """Build a call; converts what users write to operands and attributes, and infers."""
        sinfo_args: Any = kwargs.pop("sinfo_args", ())
        span: Any = kwargs.pop("span", None)
        given = self._given(args, kwargs)
        if self.sugar is not None:
            self._want_values(given)
            try:
                whole = {name: whole_operand(value) for name, value in given.items()}
                given.update(self.sugar(whole))
            except TVMError as e:
                e.add_note(f"  in {self.name}{self.signature}")
                raise
            except (TypeError, AttributeError, ValueError) as e:
                # What cannot be written shorter is none of the accepted forms.
                raise OpError(f"{self.name}{self.signature}: {e}") from e
        operands: list[Expr] = []
        attrs: dict[str, Any] = {}
        missing = None
        for p in self.params:
            value = given[p.name]
            if not p.kind.operand:
                attrs[p.name] = self._convert(p, value)
            elif p.variadic:
                operands.extend(self._convert(p, v) for v in value)
            elif value is None and not p.required:
                missing = p.name
            elif missing is not None:
                raise OpError(f"{self.name}: `{p.name}` needs `{missing}` to be given too")
            else:
                operands.append(self._convert(p, value))
        for name, source in self.follows.items():
            attrs[name] = attrs[name] or attrs[source]
        if any(not isinstance(o, Expr) for o in operands):
            operands = self._scalars(operands)
        if isinstance(sinfo_args, StructInfo):
            sinfo_args = (sinfo_args,)
        return Call(self, operands, attrs, sinfo_args, span)

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, defaults included; TypeError where they do not fit."""
        names = self._names
        if names is not None and not kwargs and self._least <= len(args) <= self._positional:
            # `inspect` takes longer for this than inference.
            given = dict(zip(names, args, strict=False))
            given.update((p.name, p.default) for p in self.params[len(args) :])
            if all(v is not inspect.Parameter.empty for v in given.values()):
                return given
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{self.name}{self.signature}: {e}") from None
        bound.apply_defaults()
        return bound.arguments

    def _convert(self, p: Param, value: Any) -> Any:
        try:
            return p.kind.convert(value)
        except (TypeError, ValueError, AttributeError) as e:
            raise OpError(f"{self.name}: parameter `{p.name}`: {e}") from None

    def _want_values(self, given: Mapping[str, Any]) -> None:
        """OpError unless what stands for a tensor is an expression, a number or an array."""
        for p in self.params:
            value = given[p.name]
            if p.kind is EXPR and not isinstance(value, Expr | int | float | str | np.generic):
                if not isinstance(value, np.ndarray | tir.PrimExpr | tuple | list):
                    raise OpError(
                        f"{self.name}: `{p.name}` must be a Relax expression or a number; "
                        f"got {type(value).__name__}"
                    )

    def _scalars(self, operands: Sequence[Any]) -> list[Expr]:
        """Python numbers and arrays among the operands as constants of the tensors' dtype."""
        infos = [o.struct_info_ for o in operands if isinstance(o, Expr)]
        dtype = next((i.dtype for i in infos if isinstance(i, TensorStructInfo) and i.dtype), None)
        made: list[Expr] = []
        for p, o in zip(self._operand_names(len(operands)), operands, strict=True):
            if isinstance(o, Expr):
                made.append(o)
            elif isinstance(o, bool | int | float | np.generic | np.ndarray):
                if isinstance(o, float) and dtype is not None and not is_float(dtype):
                    raise OpError(
                        f"{self.name}: `{p}` is the float {o}, but the tensor it meets is {dtype}; "
                        f"cast the tensor or write R.const({o}, ...)"
                    )
                made.append(const(o, None if isinstance(o, np.ndarray) else dtype))
            elif isinstance(o, tir.PrimExpr):
                made.append(PrimValue(o))
            elif isinstance(o, str):
                made.append(StringImm(o))
            else:
                raise OpError(
                    f"{self.name}: `{p}` must be a Relax expression or a number; "
                    f"got {type(o).__name__}"
                )
        return made

    def _operand_names(self, count: int) -> list[str]:
        names = [p.name for p in self.operands]
        return names + names[-1:] * (count - len(names)) if names else []

    def bind(self, call: Call) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments with which ``call`` calls a rule of this operator."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        rest = list(call.args)
        positional = True
        for p in self.params:
            if p.variadic:
                args.extend(rest)
                rest, positional = [], False
                continue
            if p.kind.operand:
                if rest:
                    value: Any = rest.pop(0)
                elif p.required:
                    raise OpError(f"{self.name}: the operand `{p.name}` is missing")
                else:
                    value = p.default
            elif p.name in call.attrs:
                value = call.attrs[p.name]
            elif p.required:
                raise OpError(f"{self.name}: the attribute `{p.name}` is missing")
            else:
                value = self._convert(p, p.default)
            if positional and not p.keyword:
                args.append(value)
            else:
                kwargs[p.name] = value
        if rest:
            raise OpError(f"{self.name} takes {len(self.operands)} operands; got {len(call.args)}")
        unknown = [k for k in call.attrs if k not in self.attr_names]
        if unknown:
            known = ", ".join(p.name for p in self.params if not p.kind.operand) or "none"
            raise OpError(f"{self.name} has no attribute {', '.join(unknown)}; it has {known}")
        return args, kwargs

    def infer_call(self, call: Call) -> StructInfo | None:
        """Struct info of ``call``; an OpError gets a note that shows the whole call.

        None where it cannot be told yet, for an operand is a variable without struct info.
        """
        if call.sinfo_args:
            return (
                call.sinfo_args[0]
                if len(call.sinfo_args) == 1
                else TupleStructInfo(call.sinfo_args)
            )
        if self.infer is None:
            return TupleStructInfo(())
        try:
            if not self.distributed and any(map(_is_distributed, call.args)):
                return importlib.import_module("relax2xla.op.shared.sharding").infer(self, call)
            rule: Callable[..., StructInfo] = self.infer
            args, kwargs = self.bind(call)
            if call.attrs and any(map(is_symbolic, call.attrs.values())):
                return self._infer_symbolic(args, kwargs)
            made = rule(*args, **kwargs)
            # One object where equal ones would do: passes compare and hash them all the time.
            for operand in call.args:
                if operand.struct_info_ == made:
                    return operand.struct_info_
            return made
        except TVMError as e:
            if any(isinstance(a, Var) and a.struct_info_ is None for a in call.args):
                return None
            e.add_note(f"  in {self.describe(call)}")
            raise

    def _infer_symbolic(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> StructInfo:
        """The result where attributes hold symbolic integers.

        What the rule says of them counts; where it has to know their values, results are tensors
        of unknown shape, whose dtypes are those which the rule gives for other values.
        """
        rule: Callable[..., StructInfo] | None = self.infer
        assert rule is not None
        try:
            return rule(*args, **kwargs)
        except (TypeError, ValueError) as e:
            error = e
        found: list[StructInfo | None] = []
        for guess in (0, 1, 2):
            try:
                made = rule(
                    *(_guessed(a, guess) for a in args),
                    **{k: _guessed(v, guess) for k, v in kwargs.items()},
                )
            except (TypeError, ValueError):
                continue
            found.append(_shapeless(made))
        # A tuple counts only if its length does not depend on the value.
        several = len(found) > 1 or isinstance(next(iter(found), None), TensorStructInfo)
        if several and found[0] is not None and all(f == found[0] for f in found):
            return found[0]
        raise OpError(
            f"{self.name}: with a symbolic attribute the result cannot be told: {error}"
        ) from None

    def legalize(self, rule: Callable[P, Expr]) -> Callable[P, Expr]:
        """Register the lowering of this operator; decorates a function of the same signature."""
        if self.lowering is not None:
            raise RuntimeError(f"{self.name} already has a legalisation")
        self.lowering = rule
        return rule

    def derivative(self, rule: Callable[P, Expr]) -> Callable[P, Expr]:
        """Register the lowering to differentiate; decorates a function of the same signature.

        It computes the same values as the legalisation. Differentiated row by row, it gives the
        derivative that torch has, also where the function has a kink or a part overflows
        (decision D18). Operators whose legalisation does so already need none.
        """
        if self.smooth is not None:
            raise RuntimeError(f"{self.name} already has a derivative")
        self.smooth = rule
        return rule

    def shorthand(self, rule: Shorthand) -> Shorthand:
        """Register what users may write shorter: a function that takes what is given, by the names
        of the parameters, and returns what of it to replace before the call is built
        (``arange(5)``, ``reshape(x, -1)``).
        """
        self.sugar = rule
        return rule

    def spelling(self, rule: Callable[P, Expr | None]) -> Callable[P, Expr | None]:
        """Register rows in which other programs write what this operator computes, for raising: a
        function of the same signature, which may give None where its attributes do not fit.
        """
        self.spellings.append(rule)
        return rule

    def describe(self, call: Call) -> str:
        """``call`` with the struct info of each operand, for messages."""
        names = self._operand_names(len(call.args))
        shown = [f"{n}: {show(a.struct_info_)}" for n, a in zip(names, call.args, strict=False)]
        shown += [f"{k}={v!r}" for k, v in call.attrs.items()]
        return f"{self.name}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Op.get, (self.name,))

    def __deepcopy__(self, memo: object) -> Op[P]:
        return self


def _is_distributed(operand: Expr) -> bool:
    return type(operand.struct_info_) is DTensorStructInfo


def whole_operand(value: Any) -> Any:
    """A distributed operand as a variable of the whole tensor; all else as it is."""
    if isinstance(value, Expr) and isinstance(value.struct_info_, DTensorStructInfo):
        return Var("operand", value.struct_info_.tensor_sinfo)
    return value


def is_symbolic(value: Any) -> bool:
    """Whether an attribute holds a symbolic integer, also inside a tuple."""
    if isinstance(value, tuple):
        return any(map(is_symbolic, value))
    return isinstance(value, tir.PrimExpr) and bool(tir.free_vars(value))


def _shapeless(info: StructInfo) -> StructInfo | None:
    """``info`` without shapes; None for what is neither a tensor nor a tuple of them."""
    if isinstance(info, TensorStructInfo):
        return TensorStructInfo(None, info.dtype)
    if not isinstance(info, TupleStructInfo):
        return None
    fields = [f for f in map(_shapeless, info.fields) if f is not None]
    return TupleStructInfo(fields) if len(fields) == len(info.fields) else None


def _guessed(value: Any, guess: int) -> Any:
    """``value`` with ``guess`` for symbolic integers among attributes; operands stay."""
    if isinstance(value, tuple):
        return tuple(_guessed(v, guess) for v in value)
    return guess if is_symbolic(value) else value


# Where operators live, longest prefix first: looking one up loads its room.
PROVIDERS: list[tuple[str, str]] = [
    ("relax.stablehlo.", "relax2xla.stablehlo.rows"),
    ("relax.chlo.", "relax2xla.stablehlo.rows"),
    ("relax.sdy.", "relax2xla.stablehlo.rows"),
    ("relax.interpreter.", "relax2xla.stablehlo.rows"),
    ("relax.", "relax2xla.op"),
]


def register(made: Op[P]) -> Op[P]:
    """Put an operator in the registry; its name must be new."""
    if made.name in Op.registry:
        raise RuntimeError(f"the operator {made.name} is defined twice")
    Op.registry[made.name] = made
    return made


def _halves(
    rule: Callable[P, StructInfo | Rule],
) -> tuple[Callable[P, StructInfo], Callable[P, Expr]]:
    """A body that returns both, as a struct-info rule and a lowering."""
    whole = typing.cast(Callable[P, Rule], rule)

    def infer(*args: P.args, **kwargs: P.kwargs) -> StructInfo:
        return whole(*args, **kwargs)[0]

    def lower(*args: P.args, **kwargs: P.kwargs) -> Expr:
        return whole(*args, **kwargs)[1]()

    return infer, lower


def op(
    name: str,
    *traits: Trait,
    pure: bool = True,
    doc: str | None = None,
    follows: Mapping[str, str] | None = None,
    distributed: bool = False,
) -> Callable[[Callable[P, StructInfo | Rule]], Op[P]]:
    """Make an operator of a struct-info rule (see the module's docstring).

    ``traits``: what passes may suppose of it, see :mod:`relax2xla.ir.traits`.
    ``pure=False``: calls have side effects. ``doc`` replaces the rule's docstring (families).
    ``follows={"out_layout": "layout"}``: an attribute left out takes the value of another.
    ``distributed``: the rule is for distributed tensors, too.
    """

    def wrap(rule: Callable[P, StructInfo | Rule]) -> Op[P]:
        signature = inspect.signature(rule)
        hints = typing.get_type_hints(rule, include_extras=True)
        params = [param_of(n, p, hints[n]) for n, p in signature.parameters.items()]
        text = inspect.cleandoc(doc or rule.__doc__ or "")
        infer, lower = typing.cast(Callable[P, StructInfo], rule), None
        if hints.get("return") == Rule:
            infer, lower = _halves(rule)
            signature = signature.replace(return_annotation=StructInfo.__name__)
        made = Op(name, infer, params, signature, text, pure, follows, distributed, traits)
        made.lowering = lower
        return register(made)

    return wrap


def is_op(expr: Expr, name: str) -> bool:
    """Whether ``expr`` is a call of the operator ``name``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


def trait_of(call: Call, kind: type[T]) -> T:
    """The trait of this kind that the operator of ``call`` has."""
    found = call.op.trait(kind) if isinstance(call.op, Op) else None
    assert found is not None, f"{call.op!r} has no {kind.__name__}"
    return found


def call_attrs(call: Call) -> Mapping[str, Any]:
    """Attributes of ``call`` with the operator's defaults filled in."""
    if not isinstance(call.op, Op) or not call.op.defaults:
        return call.attrs
    return {**call.op.defaults, **call.attrs}


class OfCall:
    """What a rule reads of the ``call`` that it is about."""

    __slots__ = ()
    call: Call

    @property
    def args(self) -> Sequence[Expr]:
        """The operands."""
        return self.call.args

    @property
    def x(self) -> Expr:
        """The first operand."""
        return self.call.args[0]

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes, defaults included."""
        return call_attrs(self.call)


def constant_value(expr: Expr) -> Any:
    """numpy value of a Constant or PrimValue literal, else None."""
    if isinstance(expr, Constant):
        return expr.data
    if isinstance(expr, PrimValue) and isinstance(expr.value, tir.IntImm | tir.FloatImm):
        return expr.value.value
    return None
