"""One ONNX operator is one function whose parameters are its inputs and attributes in the schema.

::

    @onnx_op("Softmax", since=13)
    def softmax(ctx: Context, input: Expr, *, axis: int = -1) -> Expr: ...

Positional parameters are inputs in the schema's order (``*inputs`` for variadic ones), keyword-only
ones are attributes with the schema's defaults; a parameter without a default must be given by the
node. ``since`` is the first opset of that form: the form with the largest ``since`` up to the
model's opset is used. A node with an input or attribute that the form lacks is a gap.

One function serves all opsets that differ in their signature alone; it has the parameters of all of
them, and each form says what is different in it (see :func:`onnx_op`)::

    @onnx_op("Unsqueeze", attributes="axes")
    @onnx_op("Unsqueeze", since=13)
    def unsqueeze(ctx: Context, data: Expr, axes: Lazy) -> Expr: ...

Attributes that many operators share are the keys of a TypedDict, whose annotations say defaults
(``Annotated[str, "NOTSET"]``): ``**window: Unpack[Windowed]``. The function gets all of them.

The annotation of an input says how the converter takes it: ``Expr`` as a value at run time,
:data:`Known` as an array that is known at import, :data:`Ints` as a list of (symbolic) integers,
:data:`Sizes` as a list of such that are not negative, :data:`Floats` as a list of (symbolic)
numbers. What is computed at run time comes as symbolic numbers that the machine binds then; as
:data:`Lazy` it stays an expression.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from relax2xla.errors import OpError, TVMError
from relax2xla.importers.onnx.engine.context import Missing
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Expr
from relax2xla.tir import Dim

Function = Callable[..., Any]
REQUIRED: Any = inspect.Parameter.empty
KNOWN = "known"
INTS = "ints"
SIZES = "sizes"
FLOATS = "floats"
LAZY = "lazy"
Known = Annotated[npt.NDArray[Any], KNOWN]
Ints = Annotated[Sequence[Dim], INTS]
Sizes = Annotated[Sequence[Dim], SIZES]
Floats = Annotated[Sequence[Any], FLOATS]
Lazy = Annotated[Sequence[Dim] | Expr, LAZY]

# Hints to the runtime of 2017 where it may write in place; they cannot change a value.
LEGACY = frozenset({"consumed_inputs"})


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a converter; ``form``: None for an expression, else KNOWN, INTS, ..."""

    name: str
    required: bool
    form: str | None


@dataclass(frozen=True, slots=True)
class Converter:
    """A registered function and its signature. ``variadic``: whether it has ``*inputs``."""

    op: str
    domain: str
    since: int
    function: Function
    inputs: tuple[Input, ...]
    variadic: bool
    attributes: Mapping[str, Any]

    def check(self, given: Sequence[bool], attributes: Sequence[str]) -> None:
        """Raise :class:`Unsupported` unless the function takes a node of this form.

        given: for each input of the node whether it is there
        """
        unknown = [a for a in attributes if a not in self.attributes and a not in LEGACY]
        if unknown:
            raise Unsupported(f"the attribute {', '.join(sorted(unknown))} is not supported")
        missing = [
            name
            for name, default in self.attributes.items()
            if default is REQUIRED and name not in attributes
        ]
        missing += [
            i.name
            for at, i in enumerate(self.inputs)
            if i.required and not (at < len(given) and given[at])
        ]
        if missing:
            raise Unsupported(f"{', '.join(missing)} is missing, which opset {self.since} requires")
        more = given[len(self.inputs) :]
        if self.variadic and not all(more):
            raise Unsupported("one of its inputs is left out, which its schema does not allow")
        if not self.variadic and any(more):
            raise Unsupported(f"it has {len(given)} inputs; {len(self.inputs)} are supported")


CONVERTERS: dict[tuple[str, str], list[Converter]] = {}


def onnx_op(
    *names: str,
    since: int = 1,
    domain: str = "",
    lacks: str = "",
    attributes: str = "",
    needs: str = "",
    **defaults: Any,
) -> Callable[[Function], Function]:
    """Register a converter for operators of ``domain`` ("" is ai.onnx) from opset ``since`` on.

    What this form has otherwise than the function, by names of parameters in one string:

    lacks:      those that it has not
    attributes: those that are inputs of other forms and attributes of this one
    needs:      those that are optional in other forms, and must be given in this one
    defaults:   attributes that are something else in this form where they are not given
    """

    def register(function: Function) -> Function:
        made = _converter("", "", 0, function)
        gone, moved, needed = set(lacks.split()), attributes.split(), set(needs.split())
        signature = {i.name: REQUIRED if i.required else None for i in made.inputs}
        signature |= made.attributes
        unknown = {*gone, *moved, *needed, *defaults} - set(signature)
        if unknown:
            raise RuntimeError(f"{function.__name__} has no parameter {', '.join(unknown)}")
        inputs = [i for i in made.inputs if i.name not in gone and i.name not in moved]
        if inputs != list(made.inputs[: len(inputs)]):
            raise RuntimeError(f"{function.__name__}: a form may lack its last inputs only")
        own = {n: signature[n] for n in (*made.attributes, *moved) if n not in gone} | defaults
        form = replace(
            made,
            domain=domain,
            since=since,
            function=functools.partial(made.function, **defaults) if defaults else made.function,
            inputs=tuple(replace(i, required=i.required or i.name in needed) for i in inputs),
            attributes={n: REQUIRED if n in needed else v for n, v in own.items()},
        )
        for name in names:
            forms = CONVERTERS.setdefault((domain, name), [])
            if any(c.since == since for c in forms):
                raise RuntimeError(f"two converters for {name} since opset {since}")
            forms.append(replace(form, op=name))
            forms.sort(key=lambda c: c.since)
        return function

    return register


# Those of users, which come before the package's own and before functions of the model.
CUSTOM: dict[tuple[str, str], list[Converter]] = {}
# The group of entry points that name modules to import: each registers converters.
ENTRY_POINTS = "relax2xla.onnx_converters"


def register_converter(
    op: str, *, domain: str = "", since: int = 1
) -> Callable[[Function], Function]:
    """Register a user's converter: for an operator of an own domain, or in place of a built-in one.

    ::

        @register_converter("Clamp01", domain="com.example")
        def clamp01(ctx: Context, X: Expr, *, scale: float = 1.0) -> Expr:
            return R.clip(R.multiply(X, const(scale, "float32")), 0, 1)

    The function is written as the package's own are (see the module): parameters are the operator's
    inputs and, keyword-only, its attributes; an input or attribute that it lacks is a gap. It gives
    an expression, or a list with one for each output. A later registration of the same operator and
    ``since`` replaces the earlier one.
    """

    def register(function: Function) -> Function:
        key = (_domain(domain), op)
        forms = [c for c in CUSTOM.get(key, ()) if c.since != since]
        forms.append(_converter(op, key[0], since, _guarded(function)))
        CUSTOM[key] = sorted(forms, key=lambda c: c.since)
        return function

    return register


def _guarded(function: Function) -> Function:
    """What a user's function raises is no damage of the model, and names the function."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (TVMError, Unsupported, Missing):
            raise
        except Exception as e:
            raise OpError(
                f"the registered converter {function.__qualname__} fails: {type(e).__name__}: {e}"
            ) from e

    return call


def unregister_converter(op: str, *, domain: str = "") -> None:
    """Take back what :func:`register_converter` registered for an operator."""
    if CUSTOM.pop((_domain(domain), op), None) is None:
        raise KeyError(f"no converter is registered for {op!r} of the domain {domain!r}")


@functools.cache
def load_entry_points() -> None:
    """Import what installed packages name in the group :data:`ENTRY_POINTS`, once."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as e:  # whatever code of another package raises
            raise TVMError(
                f"the entry point {point.name} of the group {ENTRY_POINTS} ({point.value}) cannot "
                f"be loaded: {type(e).__name__}: {e}. Mend or uninstall the package"
            ) from e


def custom(domain: str, op: str, opset: int) -> Converter | None:
    """A user's converter of an operator at an opset."""
    return _newest(CUSTOM.get((domain, op), ()), opset)


def find(domain: str, op: str, opset: int) -> Converter | None:
    """The converter of an operator at an opset."""
    return custom(domain, op, opset) or _newest(CONVERTERS.get((domain, op), ()), opset)


def _newest(forms: Iterable[Converter], opset: int) -> Converter | None:
    best = None
    for made in forms:
        if made.since <= opset:
            best = made
    return best


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


@functools.lru_cache(1)  # the forms of a function register one after the other
def _converter(name: str, domain: str, since: int, function: Function) -> Converter:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    hints = typing.get_type_hints(function, include_extras=True)
    inputs: list[Input] = []
    attributes: dict[str, Any] = {}
    variadic = False
    for p in parameters:
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            variadic = True
        elif p.kind is inspect.Parameter.KEYWORD_ONLY:
            attributes[p.name] = p.default
        elif p.kind is inspect.Parameter.VAR_KEYWORD:
            for shared in typing.get_args(hints.get(p.name)):
                of_all = _shared(shared)
                attributes |= of_all
                given = {n: v for n, v in of_all.items() if v is not REQUIRED}
                function = functools.partial(function, **given)
        else:
            # An optional input may stand before one that is required.
            optional = type(None) in typing.get_args(hints.get(p.name))
            required = p.default is REQUIRED and not optional
            inputs.append(Input(p.name, required, _form(hints.get(p.name))))
    return Converter(name, domain, since, function, tuple(inputs), variadic, attributes)


@functools.cache
def _shared(attributes: Any) -> dict[str, Any]:
    """The attributes that a TypedDict has, and their defaults."""
    hints = typing.get_type_hints(attributes, include_extras=True)
    return {n: getattr(hint, "__metadata__", (REQUIRED,))[0] for n, hint in hints.items()}


def _form(hint: Any) -> str | None:
    """The mark of an annotation, possibly in a union with None."""
    for part in (hint, *typing.get_args(hint)):
        for mark in getattr(part, "__metadata__", ()):
            if mark in (KNOWN, INTS, SIZES, FLOATS, LAZY):
                return str(mark)
    return None


def one(values: Sequence[Any], what: str) -> Any:
    """The number in an input of one element, which may be symbolic."""
    if len(values) != 1:
        raise Unsupported(f"{what} must have one element; it has {len(values)}")
    return values[0]


def as_int(array: npt.NDArray[Any], what: str) -> int:
    """The integer in an array of one element."""
    if array.size != 1:
        raise Unsupported(f"{what} must have one element; it has the shape {array.shape}")
    return int(np.asarray(array).reshape(()))
