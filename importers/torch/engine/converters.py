"""One ATen operator is one function whose parameters are the arguments of the ATen schema.

::

    @aten("softmax.int", "_softmax", ignored="dtype half_to_float")
    def softmax(ctx: Context, self: Expr, dim: int) -> Expr: ...

Overloads share a function. A converter gets every argument that it names, with the schema's default
where the call gives none. One that it does not name must have its default value, unless it is
``ignored`` or about placement in memory, which Relax decides by itself: anything else is a gap.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from relax2xla.importers.shared.modules import load_modules
from relax2xla.importers.torch.engine.context import NARROW, Context, dtype_of
from relax2xla.ir import Expr

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Converter:
    """A registered function.

    params:  the schema arguments that it takes
    ignored: those that change no value (they choose a kernel, concern the gradient or a check), or
             of which torch's shape and dtype of the result tell all
    wide:    computed in float32 where tensors are of a narrow kind, and rounded at the end: torch's
             kernels for float16 and bfloat16 hold their sums and products in float32 and round
             once, and the function is several operations here
    """

    function: Function
    params: frozenset[str]
    ignored: frozenset[str] = frozenset()
    wide: bool = False

    def __call__(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        """The value for bound arguments."""
        narrow = {k for k, v in arguments.items() if self.wide and _is_narrow(v)}
        if not narrow:
            return self.function(ctx, **arguments)
        made = self.function(
            replace(ctx, wide=True),
            **{
                k: ctx.emit(ctx.cast(v, "float32")) if k in narrow else v
                for k, v in arguments.items()
            },
        )
        if not isinstance(made, list | tuple):
            return ctx.cast(made, ctx.dtype())
        return [x if x is None else ctx.cast(x, ctx.dtype(i)) for i, x in enumerate(made)]


def _is_narrow(x: Any) -> bool:
    narrow = isinstance(x, Expr) and getattr(x.struct_info, "dtype", "") in NARROW
    return narrow and dtype_of(x) in NARROW


CONVERTERS: dict[str, Converter] = {}


@functools.cache
def load() -> None:
    """Fill ``CONVERTERS``: each module of converters registers its own when it is imported."""
    load_modules("relax2xla.importers.torch.aten")


def aten(*names: str, ignored: str = "", wide: bool = False) -> Callable[[Function], Function]:
    """Register a converter for overloads such as ``"add.Tensor"``; a bare ``"relu"`` is
    ``relu.default``. Operators of other namespaces are written ``"prims::iota"``.

    A string may hold several names. ignored, wide: see :class:`Converter`.
    """

    def register(function: Function) -> Function:
        made = _converter(function, ignored, wide)
        for name in " ".join(names).split():
            if name in CONVERTERS:
                raise RuntimeError(f"two converters for the ATen operator {name}")
            CONVERTERS[name] = made
        return function

    return register


def _converter(function: Function, ignored: str = "", wide: bool = False) -> Converter:
    params = list(inspect.signature(function).parameters)[1:]
    return Converter(function, frozenset(params), frozenset(ignored.split()), wide)


def overloads(names: str, suffixes: Iterable[str]) -> Iterator[str]:
    """The overloads of these operators (in one string) with such suffixes, as far as torch has
    them: torch has several names for some operators, and not every overload by each.
    """
    for name in names.split():
        known = getattr(torch.ops.aten, name).overloads()
        for suffix in suffixes:
            if suffix in known:
                yield name if suffix == "default" else f"{name}.{suffix}"


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
        made = _converter(function)
        for name in names:
            name = name.removeprefix("aten::").removesuffix(".default")
            if name in CONVERTERS and not override:
                raise ValueError(f"{name} has a converter; pass override=True to replace it")
            CONVERTERS[name] = made
        return function

    return register


def operator_name(op: Any) -> str:
    """``aten.add.Tensor`` is "add.Tensor", ``aten.relu.default`` "relu", others keep "ns::"."""
    return op.name().removeprefix("aten::")
