"""One ATen operator is one function whose parameters are the arguments of the ATen schema.

::

    @aten("softmax.int", "_softmax")
    def softmax(ctx: Context, self: Expr, dim: int, dtype: Any = None) -> Expr: ...

Overloads share a function. A converter gets every argument that it names, with the schema's default
where the call gives none. An argument that it does not name must have its default value (or be
about placement in memory, which Relax decides by itself): anything else is a gap, never ignored.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relax2xla.importers.shared.gaps import Unsupported

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Converter:
    """A registered function, and the schema arguments that it takes."""

    function: Function
    params: frozenset[str]


CONVERTERS: dict[str, Converter] = {}


def aten(*names: str) -> Callable[[Function], Function]:
    """Register a converter for overloads such as ``"add.Tensor"``; a bare ``"relu"`` is
    ``relu.default``. Operators of other namespaces are written ``"prims::iota"``.
    """

    def register(function: Function) -> Function:
        params = frozenset(list(inspect.signature(function).parameters)[1:])
        for name in names:
            if name in CONVERTERS:
                raise RuntimeError(f"two converters for the ATen operator {name}")
            CONVERTERS[name] = Converter(function, params)
        return function

    return register


def register_converter(*names: str, override: bool = False) -> Callable[[Function], Function]:
    """Register a converter for an operator of ``torch.library``, such as ``"mylib::scale"``.

    ::

        @register_converter("mylib::scale")
        def scale(ctx: Context, x: Expr, factor: float) -> Expr:
            return relax2xla.op.multiply(x, ctx.tensor(factor, ctx.dtype()))

    The function's parameters after ``ctx`` are the arguments of the operator's schema by name;
    ``ctx`` knows what torch says of the result (``ctx.dims()``, ``ctx.dtype()``). A name with an
    overload is ``"mylib::scale.Tensor"``; ATen's own may be without ``"aten::"``. Raises ValueError
    for a name that has a converter, unless ``override``.
    """

    def register(function: Function) -> Function:
        params = frozenset(list(inspect.signature(function).parameters)[1:])
        for name in names:
            name = name.removeprefix("aten::").removesuffix(".default")
            if name in CONVERTERS and not override:
                raise ValueError(f"{name} has a converter; pass override=True to replace it")
            CONVERTERS[name] = Converter(function, params)
        return function

    return register


def operator_name(op: Any) -> str:
    """``aten.add.Tensor`` is "add.Tensor", ``aten.relu.default`` "relu", others keep "ns::"."""
    return op.name().removeprefix("aten::")


def _same_device(value: Any) -> bool:
    return value is None or torch.device(value).type != "meta"


# Where a tensor lies in memory is not part of a Relax tensor: these arguments cannot change a
# value, within the limits checked here.
PLACEMENT: Mapping[str, Callable[[Any], bool]] = {
    "device": _same_device,
    "layout": lambda v: v in (None, torch.strided),
    "pin_memory": lambda v: v in (None, False),
    "non_blocking": lambda v: isinstance(v, bool),
    "memory_format": lambda v: v is None or isinstance(v, torch.memory_format),
}


@dataclass(frozen=True, slots=True)
class _Argument:
    name: str
    required: bool
    default: Any
    wanted: str


_BOUND: dict[tuple[Any, int], list[_Argument]] = {}


def _arguments(op: Any, converter: Converter) -> list[_Argument]:
    key = (op, id(converter))
    found = _BOUND.get(key)
    if found is None:
        names = [a.name for a in op._schema.arguments]
        signature = inspect.signature(converter.function).parameters
        own = list(signature)[1:]
        found = []
        for i, a in enumerate(op._schema.arguments):
            # `from` is no name in Python, `from_` is.
            spelled = f"{a.name}_" if keyword.iskeyword(a.name) else a.name
            wanted = spelled if spelled in converter.params else ""
            # prims call the first operand otherwise than ATen.
            if not wanted and i < len(own) and own[i] not in names and not a.has_default_value():
                wanted = own[i]
            found.append(_Argument(a.name, not a.has_default_value(), a.default_value, wanted))
        missing = converter.params - {a.wanted for a in found}
        # A converter may serve overloads with fewer arguments: those it must have a default for.
        for name in missing:
            if signature[name].default is inspect.Parameter.empty:
                raise RuntimeError(f"{op}: the converter's parameter {name} is not in the schema")
        _BOUND[key] = found
    return found


def bind(
    op: Any, converter: Converter, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of a call by schema name; :class:`Unsupported` for one that is not handled."""
    bound: dict[str, Any] = {}
    refused: list[str] = []
    for i, a in enumerate(_arguments(op, converter)):
        if i < len(args):
            value = args[i]
        elif a.name in kwargs:
            value = kwargs[a.name]
        elif a.required:
            raise Unsupported(f"the argument {a.name} is missing")
        else:
            value = a.default
        if a.wanted:
            bound[a.wanted] = value
        elif a.name in PLACEMENT:
            if i >= len(args) and a.name not in kwargs:
                continue
            if not PLACEMENT[a.name](value):
                refused.append(f"{a.name}={value}")
        elif a.required or value is not a.default:
            if a.required or type(value) is not type(a.default) or value != a.default:
                refused.append(f"{a.name}={value!r}")
    if refused:
        raise Unsupported(f"the argument {', '.join(refused)} is not supported")
    return bound
