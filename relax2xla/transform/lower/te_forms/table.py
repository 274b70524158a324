"""What a form is made of, and how an operator gets one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    PrimValue,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.op import call_attrs


class Stays(Exception):
    """This call has no loop-level form; the message says why, for a warning."""


@dataclass(frozen=True, slots=True)
class Site:
    """A call that is to become one of a loop-level function, and the builder that it is made in."""

    builder: BlockBuilder
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

    @property
    def dtype(self) -> str:
        """The dtype of the result, a tensor."""
        return tensor_of(self.call).dtype

    def te(self, func: Callable[..., Any], *args: Any, name: str = "", **kwargs: Any) -> Expr:
        """A call of what ``func`` computes of tensors; ``name`` of the function, else its own."""
        return self.builder.call_te(func, *args, **kwargs, primfunc_name_hint=name or None)

    def fields(self, value: Expr) -> list[Expr]:
        """The tensors of a tuple: as they were put into it, where that is known."""
        found: Expr | None = value
        while isinstance(found, Var):
            value, found = found, self.builder.lookup_binding(found)
        if isinstance(found, Tuple):
            return list(found.fields)
        info = value.struct_info
        assert isinstance(info, TupleStructInfo)
        return [self.builder.emit(TupleGetItem(value, n)) for n in range(len(info.fields))]


Form = Callable[[Site], Expr]
FORMS: Final[dict[str, Form]] = {}


def form(*names: str) -> Callable[[Form], Form]:
    """Make a function the form of operators; it raises :class:`Stays` where a call has none."""

    def wrap(made: Form) -> Form:
        for name in names:
            assert name not in FORMS, f"{name} has two forms"
            FORMS[name] = made
        return made

    return wrap


# ---- what the forms share
def tensor_of(x: Expr) -> TensorStructInfo:
    """The struct info of a tensor."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise Stays(f"{x!r} is no tensor")
    return info


def shape_of(x: Expr) -> ShapeExpr:
    """The shape of a tensor; of every operand it is known where a form is asked for."""
    dims = tensor_of(x).dims
    assert dims is not None
    return ShapeExpr(dims)


def scalar(x: Expr) -> Any:
    """A constant without axes as a number of its dtype; anything else as it is."""
    number = plain(x)
    dtype = "" if number is x else tensor_of(x).dtype
    return tir.const(number, dtype) if dtype.startswith(("float", "int", "uint", "bool")) else x


def plain(x: Expr) -> Any:
    """A constant without axes as a number of Python; anything else as it is."""
    return x.data.item() if isinstance(x, Constant) and x.data.shape == () else x


def prim(x: Expr) -> Any:
    """The value of an operand that is a number."""
    if not isinstance(x, PrimValue):
        raise Stays(f"{x!r} is a number that is known only where the program runs")
    return x.value


def one_layout(site: Site, given: str) -> None:
    """Stays where the result has its axes in another order than the operand."""
    out = site.attrs["out_layout"]
    if out is not None and out != site.attrs[given]:
        raise Stays(f"its {given} is {site.attrs[given]}, its out_layout {out}")
