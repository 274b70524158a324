"""What a form is made of, and how an operator gets one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import is_kind
from relax2xla.errors import BudgetError, OpError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.op import OfCall
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.op import call_tir
from relax2xla.te.from_relax import infos, tir_call


class Stays(Exception):
    """This call has no loop-level form; the message says why, for a warning."""


@dataclass(frozen=True, slots=True)
class Site(OfCall):
    """A call that is to become one of a loop-level function, and the builder that it is made in."""

    builder: BlockBuilder
    call: Call

    @property
    def dtype(self) -> str:
        """The dtype of the result, a tensor."""
        return tensor_of(self.call).dtype

    def te(
        self,
        func: Callable[..., Any],
        *args: Any,
        name: str = "",
        part: bool = False,
        **kwargs: Any,
    ) -> Expr:
        """A call of what ``func`` computes of tensors; ``name`` of the function, else its own.

        part: it is not the whole result. Of that Stays where its dtypes or ranks are not those of
        the operator, and of what TIR has no expression for, such as powers of integers.
        """
        seen = [i for e in (self.call, *self.args) for i in flatten_info(e.struct_info)]
        if any(isinstance(i, TensorStructInfo) and is_kind(i.dtype, "complex") for i in seen):
            raise Stays("TIR has no complex numbers")
        try:
            made = tir_call(func, *args, **kwargs)
        except (OpError, BudgetError) as e:
            raise Stays(f"TIR cannot say it: {e}") from e
        if not part:
            self._keep_promise(made.out_sinfo)
        gvar = self.builder.add_func(made.func, name or func.__name__)
        return call_tir(gvar, made.args, infos(made), made.tir_vars)

    def _keep_promise(self, given: Sequence[TensorStructInfo]) -> None:
        wanted = flatten_info(self.call.struct_info)
        for w, g in zip(wanted, given, strict=True):
            if not isinstance(w, TensorStructInfo) or (w.dtype, w.ndim) != (g.dtype, g.ndim):
                raise Stays(f"a loop-level function of it gives {show(g)}, not {show(w)}")

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


def value_of_shape(x: Expr) -> ShapeExpr:
    """The sizes of an operand that is a shape, a variable or written out."""
    info = x.struct_info
    if not isinstance(info, ShapeStructInfo) or info.values is None:
        raise Stays("its shape is known only where the program runs")
    return ShapeExpr(info.values)


def scalar(x: Expr) -> Any:
    """A constant without axes as a number of its dtype; anything else as it is."""
    number = plain(x)
    dtype = "" if number is x else tensor_of(x).dtype
    return tir.const(number, dtype) if dtype.startswith(("float", "int", "uint", "bool")) else x


def plain(x: Expr) -> Any:
    """A constant without axes as a number of Python; anything else as it is."""
    return x.data.item() if isinstance(x, Constant) and x.data.shape == () else x


def as_list(value: Any) -> Any:
    """A tuple as a list, as call_te takes it; anything else as it is."""
    return list(value) if isinstance(value, tuple) else value


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
