"""Functions of ``te`` called on Relax values: the loop-level function, and the ``call_tir`` of it.

What ``BlockBuilder.call_te`` and ``emit_te``, and lowerings that are functions of te, are made of.
Semantics are those of TVM v0.20's ``gen_call_tir_inputs``.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import (
    Expr,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
    VDevice,
)
from relax2xla.ir.struct_info import show
from relax2xla.te.operation import placeholder
from relax2xla.te.prim_func import create_prim_func
from relax2xla.te.tensor import Tensor
from relax2xla.tir.node import PrimExpr


@dataclass(frozen=True, slots=True)
class TirCall:
    """What a ``call_tir`` needs: the function, its arguments, results, symbolic parameters."""

    func: tir.PrimFunc
    args: list[Expr]
    out_sinfo: list[TensorStructInfo]
    tir_vars: ShapeExpr | None


def tir_call(func: Callable[..., Any], *args: Any, **kwargs: Any) -> TirCall:
    """Call ``func`` of te on Relax values.

    ``func`` takes a tensor for each Relax tensor (in lists, tuples and dictionaries as well), a
    list for a shape, a scalar for a number that is not known; what is no Relax value is handed on.
    It gives a tensor, or several. ``primfunc_attrs``: attributes for the function that is made.

    Raises TVMError for a tensor of unknown shape or dtype, TypeError for values of another kind.
    """
    attrs: Mapping[str, Any] = kwargs.pop("primfunc_attrs", None) or {}
    given = _Given()
    positional, named = given.convert(list(args)), given.convert(kwargs)
    made = func(*positional, **named)
    outs = [made] if isinstance(made, Tensor) else list(made)
    wrong = next((o for o in outs if not isinstance(o, Tensor)), None)
    if wrong is not None or not outs:
        raise TypeError(
            f"{getattr(func, '__name__', func)}: a function of te gives a tensor or a list of "
            f"tensors; got {type(wrong).__name__}"
        )
    unbound = given.unbound(outs)
    prim_func = create_prim_func([*given.params, *outs, *unbound], "int64")
    prim_func = prim_func.without_attr("global_symbol")
    for key, value in attrs.items():
        prim_func = prim_func.with_attr(key, value)
    return TirCall(
        prim_func,
        given.args,
        [TensorStructInfo(given.outside(o.shape), o.dtype, given.vdevice) for o in outs],
        ShapeExpr(given.outside(unbound)) if unbound else None,
    )


class _Given:
    """The arguments of one call, as te sees them; symbolic sizes are variables of its own there."""

    def __init__(self) -> None:
        self.args: list[Expr] = []
        self.params: list[Tensor | tir.Var] = []
        self.extra: list[PrimExpr] = []
        self.vdevice: VDevice | None = None
        self._inside: dict[tir.Var, tir.Dim] = {}

    def convert(self, value: Any) -> Any:
        """One argument, with all in it."""
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, list):
            return [self.convert(v) for v in value]
        if isinstance(value, tuple):
            return tuple(self.convert(v) for v in value)
        if isinstance(value, Mapping):
            if not all(isinstance(k, str) for k in value):
                raise TypeError("a function of te takes dictionaries with strings as their keys")
            return {k: self.convert(v) for k, v in value.items()}
        if isinstance(value, PrimExpr):
            made = self.prim(value)
            self.extra.append(made)
            return made
        if value is None or isinstance(value, int | float | str) or callable(value):
            return value
        if hasattr(value, "dtype") and hasattr(value, "item"):  # a scalar of numpy's
            return value.item()
        raise TypeError(f"a function of te takes no {type(value).__name__}: {value!r}")

    def expr(self, value: Expr) -> Any:
        info = value.struct_info
        if isinstance(info, TensorStructInfo):
            return self.tensor(value, info)
        if isinstance(info, ShapeStructInfo):
            if not isinstance(value, ShapeExpr):
                raise TVMError(f"a function of te takes shapes that are known; got {show(info)}")
            return [self.size(d) for d in value.values]
        if isinstance(info, PrimStructInfo):
            known = value.value if isinstance(value, PrimValue) else info.value
            if known is not None:
                return self.convert(known)
            made = tir.Var(self.name(value, string.ascii_lowercase, "scalar_input"), info.dtype)
            self.args.append(value)
            self.params.append(made)
            return made
        if isinstance(value, Tuple):
            return tuple(self.convert(f) for f in value.fields)
        raise TypeError(f"a function of te takes no {show(info)}")

    def tensor(self, value: Expr, info: TensorStructInfo) -> Tensor:
        if info.dims is None or not info.dtype:
            raise TVMError(
                f"a function of te takes tensors of known shape and dtype; `{value!r}` is "
                f"{show(info)}"
            )
        name = self.name(value, string.ascii_uppercase, "tensor_input")
        made = placeholder([self.size(d) for d in info.dims], info.dtype, name)
        self.args.append(value)
        self.params.append(made)
        self.vdevice = self.vdevice or info.vdevice
        return made

    def name(self, value: Expr, letters: str, otherwise: str) -> str:
        """What a parameter is called."""
        if isinstance(value, Var):
            return value.name_hint
        count = len(self.params)
        return letters[count] if count < len(letters) else f"{otherwise}_{count}"

    def size(self, value: tir.Dim) -> PrimExpr:
        return tir.as_prim_expr(self.prim(tir.as_prim_expr(value, "int64")), "int64")

    def prim(self, value: PrimExpr) -> PrimExpr:
        """A symbolic value with variables of the function's own."""
        for v in tir.free_vars(value):
            if v not in self._inside:
                self._inside[v] = type(v)(v.name, v.dtype)
        return tir.as_prim_expr(tir.substitute(value, self._inside), value.dtype)

    def unbound(self, outs: Sequence[Tensor]) -> list[tir.Var]:
        """Variables that are used and are the size of no axis: they become parameters."""
        tensors = [*(p for p in self.params if isinstance(p, Tensor)), *outs]
        used: dict[tir.Var, None] = {}
        for t in tensors:
            used.update((v, None) for d in t.shape for v in tir.free_vars(d))
        for e in self.extra:
            used.update((v, None) for v in tir.free_vars(e))
        bound = {d for t in tensors for d in t.shape if isinstance(d, tir.Var)}
        bound |= {p for p in self.params if isinstance(p, tir.Var)}
        return [v for v in used if v not in bound]

    def outside(self, values: Sequence[PrimExpr]) -> list[tir.Dim]:
        """Sizes in the caller's variables."""
        back: dict[tir.Var, tir.Dim] = {
            inside: v for v, inside in self._inside.items() if isinstance(inside, tir.Var)
        }
        return [tir.as_dim(tir.as_prim_expr(tir.substitute(_wide(v), back))) for v in values]


def _wide(value: PrimExpr) -> PrimExpr:
    """A size as an int64, which all sizes of Relax are."""
    if isinstance(value, tir.IntImm):
        return tir.const(value.value, "int64")
    return tir.cast("int64", value)


def gen_call_tir_inputs(
    func: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[tir.PrimFunc, list[Expr], list[TensorStructInfo], ShapeExpr | None]:
    """:func:`tir_call` as TVM's ``relax.utils`` has it: a tuple."""
    made = tir_call(func, *args, **kwargs)
    return made.func, made.args, made.out_sinfo, made.tir_vars


def infos(made: TirCall) -> StructInfo | list[StructInfo]:
    """What ``call_tir`` takes as ``out_sinfo``."""
    return made.out_sinfo[0] if len(made.out_sinfo) == 1 else list(made.out_sinfo)
