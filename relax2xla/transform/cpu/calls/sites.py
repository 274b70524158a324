"""Composites for functions in C++, and what follows them: what the passes that make them share.

A *site* is a composite and what it takes. A bias, an addition and an activation behind it become
part of it, each in the place of its own binding, where nothing else reads what it follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from relax2xla import op as R
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.builder import BlockBuilder
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Span,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.kernels.native import Call as NativeCall
from relax2xla.kernels.native import Family, Tensor
from relax2xla.transform.core.values import tensor_of, vector_of
from relax2xla.transform.cpu.calls.activations import OPERATORS, spelling
from relax2xla.transform.cpu.calls.loop_weights import constants_before_loops

_COMPOSITE: Final = "relax.stablehlo.composite"

_x, _other = wildcard(), wildcard()


class Site(NamedTuple):
    """A composite: what it is for, and what it takes.

    described: a call of the family, with its ``ending`` and maybe ``added``; weight: as the call
    takes it; bias, scale: vectors; None: there is none; more: operands between image and weight
    """

    described: Any
    image: Expr
    weight: Expr
    bias: Expr | None = None
    added: Expr | None = None
    more: tuple[Expr, ...] = ()
    scale: Expr | None = None


class Sites(ABC):
    """The composites of one function, of one family.

    adds: whether calls take an addition of the result's shape; endings: which of
    ``kernels.native.ENDINGS`` they take
    """

    family: Family
    adds = False
    endings: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.sites: dict[Expr, Site] = {}
        self.symbols: dict[Any, str] = {}

    @abstractmethod
    def rules(self) -> list[Rule]:
        """What makes calls of operators, and what else there is but what all share."""
        ...

    @abstractmethod
    def rows(self, described: Any, params: Sequence[Expr]) -> Expr:
        """What a call computes, in operators."""
        ...

    def axis(self, described: Any) -> int:
        """The axis of the result along which the bias lies."""
        return -1

    # -- a function ------------------------------------------------------------------------------
    def function(self, func: Function) -> Function:
        """``func`` with composites; itself where there is nothing to call."""
        followers = [
            Rule(is_op("relax.add")(_x, _other), self._sum),
            *(
                Rule(is_op(name)(_x), lambda m, e=ending: self._ended(m, e))
                for ending, name in OPERATORS.items()
            ),
            Rule(is_op("relax.multiply")(_x, _other), self._spelled),
            Rule(is_op("relax.divide")(_x, _other), self._spelled),
            Rule(is_op("relax.minimum")(_x, _other), self._spelled),
        ]
        made, modified = rewrite(func, [*self.rules(), *followers])
        return constants_before_loops(made) if modified else func

    def forms(self, func: Function) -> Mapping[GlobalVar, Function]:
        """The functions that the composites of ``func`` name."""
        used = named_forms(func)
        return {GlobalVar(s): self.form(d) for d, s in self.symbols.items() if s in used}

    def form(self, described: Any) -> Function:
        """The function of rows that a composite for a call names."""
        infos = [TensorStructInfo(t.shape, t.dtype) for t in described.operands]
        params = [Var(f"x{i}", info) for i, info in enumerate(infos)]
        builder = BlockBuilder()
        with builder.function("form", params, private=True):
            with builder.dataflow():
                made = builder.emit_output(self.rows(described, params))
            builder.emit_func_output(made)
        (func,) = builder.get().relax_functions().values()
        return func

    # -- sites -----------------------------------------------------------------------------------
    def call(self, described: Any, operands: Sequence[Expr]) -> Call:
        """The composite for a call."""
        forms = self.family.forms
        symbol = self.symbols.setdefault(described, f"{self.name}{forms}{len(self.symbols)}")
        return composite_of(described, operands, symbol, further=self.family.further(described))

    def composite(self, m: Match, site: Site) -> Expr | None:
        """The call for a site, in the place of a match; None where there is none."""
        if site.described.problem():
            return None
        self.sites[m.var] = site
        return self.call(site.described, self._operands(m, site))

    def _operands(self, m: Match, site: Site) -> list[Expr]:
        results = site.described.result.shape[self.axis(site.described)]
        bias = const(np.zeros(results, "float32")) if site.bias is None else site.bias
        if site.scale is not None:
            rows = [R.reshape(v, (1, results)) for v in (bias, site.scale)]
            bias = m.bind("bias", R.concat(rows, axis=0))
        if not self.adds:
            return [site.image, *site.more, site.weight, bias]
        added = const(np.zeros(1, "float32")) if site.added is None else site.added
        return [site.image, *site.more, site.weight, bias, added]

    def open(self, m: Match, at: Expr, uses: int = 1) -> Site | None:
        """The site that computes ``at``, where something can follow: all its ``uses`` do."""
        site = self.sites.get(at)
        if site is None or m.uses(at) != uses or site.described.ending:
            return None
        return site if self.axis(site.described) == -1 else None

    # -- what follows ----------------------------------------------------------------------------
    def _sum(self, m: Match) -> Expr | None:
        for at, other in ((m[_x], m[_other]), (m[_other], m[_x])):
            site, info = self.open(m, at), other.struct_info_
            if site is None or not isinstance(info, TensorStructInfo) or info.dtype != "float32":
                continue
            flat = None
            if site.bias is None and site.added is None:
                flat = self.along_results(m, site, other)
            if flat is not None:
                grown = site._replace(bias=flat)
            elif info.dims == site.described.result.shape and self.adds and site.added is None:
                described = replace(site.described, added=True)
                grown = site._replace(added=other, described=described)
            else:
                continue
            m.drop(at)
            return self.composite(m, grown)
        return None

    def along_results(self, m: Match, site: Site, value: Expr) -> Expr | None:
        """A value with a number for each result of a site, as a vector; None for another value."""
        return vector_of(m, value, site.described.result.shape)

    def _ended(self, m: Match, ending: str) -> Expr | None:
        site = self.open(m, m[_x]) if ending in self.endings else None
        if site is None:
            return None
        m.drop(m[_x])
        described = replace(site.described, ending=ending)
        return self.composite(m, site._replace(described=described))

    def _spelled(self, m: Match) -> Expr | None:
        """An activation written out in arithmetic on one value."""
        found = spelling(m, self.sites) if self.sites else None
        site = None if found is None else self.open(m, found.leaf, found.reads)
        # Numbers may have more axes than the value, and so has the result then.
        if found is None or site is None or tensor_of(m.value) != tensor_of(found.leaf):
            return None
        ending = found.ending()
        if not ending or ending not in self.endings:
            return None
        for v in (found.leaf, *found.between):
            m.drop(v)
        return self.composite(m, site._replace(described=replace(site.described, ending=ending)))


def with_composites(mod: IRModule, kind: Callable[[str], Sites]) -> IRModule:
    """The functions of ``mod`` with composites, and the functions that these name."""
    new = dict(mod.functions)
    forms = {name for func in mod.relax_functions().values() for name in named_forms(func)}
    for gvar, func in mod.relax_functions().items():
        if gvar.name_hint in forms:
            continue
        sites = kind(gvar.name_hint)
        # What nobody reads would count as a second reader.
        clean = remove_all_unused(func)
        made = sites.function(clean)
        if made is not clean:
            new[gvar] = made
            new.update(sites.forms(made))
    return mod if new == mod.functions else mod.replace(new)


def named_forms(func: Function) -> set[str]:
    """The functions of rows that the composites of a function name."""
    values = [b.value for b in bindings_deep(func.body) if isinstance(b, VarBinding)]
    named = Op.get(_COMPOSITE)
    return {
        str(call_attrs(v)["decomposition"]) for v in values if isinstance(v, Call) and v.op is named
    }


def composite_of(
    described: NativeCall,
    operands: Sequence[Expr],
    symbol: str,
    span: Span | None = None,
    further: Sequence[Tensor] = (),
) -> Call:
    """The composite for a call, whose form in rows is the function ``symbol``.

    further: results behind the first, with which it gives a tuple
    """
    return Op.get(_COMPOSITE)(
        *operands,
        name=described.name,
        composite_attributes=described.attributes,
        decomposition=symbol,
        sinfo_args=[TensorStructInfo(t.shape, t.dtype) for t in (described.result, *further)],
        span=span,
    )


def composite_call(value: Expr, family: Family) -> NativeCall | None:
    """The call that ``value`` is a composite for; None where it is none of the family."""
    if not isinstance(value, Call) or value.op is not Op.get(_COMPOSITE):
        return None
    attrs = call_attrs(value)
    operands, result = list(map(tensor_of, value.args)), tensor_of(value)
    known = [t for t in operands if t is not None]
    if result is None or len(known) < len(operands):
        return None
    made = family.read(str(attrs["name"]), attrs["composite_attributes"], known, [result])
    return None if isinstance(made, str) else made
