"""FuseOpsByPattern: what a pattern matches becomes a function of its own, marked with its name.

For XLA such a function is a private one like any other, and is fused with what is around it all the
same; they are for code generators of one's own (:mod:`relax2xla.transform.fusion.codegen`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relax2xla.analysis.variables import udchain
from relax2xla.dpl.match import Matcher, key_of
from relax2xla.dpl.pattern import CallPattern, DFPattern, TupleGetItemPattern
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.core.kernel_calls import PRIMITIVE
from relax2xla.transform.fusion.grouping import (
    CODEGEN,
    COMPOSITE,
    Fuser,
    Group,
    by_name,
    dataflow_blocks,
    is_made,
    single_assignment,
)


class PatternCheckContext:
    """What a check of :class:`FusionPattern` is told of a match.

    matched_expr: the call at the root; annotated_expr: by the names of ``annotation_patterns``,
    what they have matched; matched_bindings: the bindings that would be fused; var_usages: which
    variables of the block read a variable; value_to_bound_var: the variables of the block by value
    """

    def __init__(
        self, root: Call, annotated: Mapping[str, Expr], bound: Mapping[Var, Expr], site: _Block
    ) -> None:
        self.matched_expr: Expr = root
        self.annotated_expr = annotated
        self.matched_bindings = bound
        self._block = site

    @property
    def var_usages(self) -> Mapping[Var, Sequence[Var]]:
        """By a variable of the block, those whose values read it."""
        return self._block.usages

    @property
    def value_to_bound_var(self) -> Mapping[Expr, Var]:
        """By a value of the block, the variable it is bound to."""
        return self._block.variables


Check = Callable[[PatternCheckContext], bool]
AttrsGetter = Callable[[Mapping[str, Expr]], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class FusionPattern:
    """A pattern with a name: what it matches becomes a function with the attribute ``Composite``.

    name: up to its first dot, the code generator ("mylib.matmul_bias"); annotation_patterns: parts
    of the pattern by name, for the functions that follow; check: says whether a match is one;
    attrs_getter: gives more attributes of the function
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict[str, DFPattern])
    check: Check | None = None
    attrs_getter: AttrsGetter | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.pattern, DFPattern):
            raise TypeError(
                "a FusionPattern is a name and a pattern; got "
                f"{type(self.name).__name__} and {type(self.pattern).__name__}"
            )

    @staticmethod
    def of(given: Any) -> FusionPattern:
        """``given``, or the pattern of a tuple of the fields; ValueError for anything else."""
        if isinstance(given, FusionPattern):
            return given
        if isinstance(given, tuple):
            fields: tuple[Any, ...] = given
            return FusionPattern(*fields)
        raise ValueError(f"Invalid pattern: {given!r}; give a FusionPattern or a tuple")


class _Block:
    """A dataflow block for patterns and their checks; some facts are found when they are asked for.

    ``bindings`` are those with a variable; ``matcher`` knows them all, but for copies: a variable
    that is bound to another one is a leaf, so a copy ends what is fused.
    """

    def __init__(self, block: DataflowBlock) -> None:
        self.block = block
        self.bindings = [b for b in block.bindings if isinstance(b, VarBinding)]
        self.matcher = Matcher()
        self._calls: list[int] = []
        self._by_key: dict[object, list[int]] = {}
        for i, b in enumerate(self.bindings):
            value = b.value
            if not isinstance(value, Var):
                self.matcher.define(b.var, value)
            if isinstance(value, Call):
                self._calls.append(i)
                self._by_key.setdefault(key_of(value), []).append(i)

    def roots(self, pattern: DFPattern) -> Iterator[tuple[Var, Call]]:
        """The calls that ``pattern`` may match, by its keys, in the order of the bindings."""
        keys = pattern.keys()
        if keys is None:
            found: Sequence[int] = self._calls
        else:
            found = sorted({i for key in keys for i in self._by_key.get(key, ())})
        for i in found:
            value = self.bindings[i].value
            assert isinstance(value, Call)
            yield self.bindings[i].var, value

    @functools.cached_property
    def usages(self) -> Mapping[Var, Sequence[Var]]:
        return udchain(self.block)

    @functools.cached_property
    def variables(self) -> Mapping[Expr, Var]:
        return {b.value: b.var for b in self.bindings}


@register()
class FuseOpsByPattern(Pass):
    """Make a function of what each pattern matches, for code generators, and call it there.

    patterns: :class:`FusionPattern`, or tuples of its fields; those that come first go first.
    Within a dataflow block (see ConvertToDataflow) a pattern takes what it can from the front to
    the back; what an earlier match holds is left to it, unless the new one holds all of that.
    The functions have the attributes ``Composite`` (the name of the pattern) and ``Primitive``.
    bind_constants: constants stay in the functions, else they are arguments of theirs.
    annotate_codegen: a public function around each, with the attribute ``Codegen``, for RunCodegen.
    entry_functions: names of the functions to look at; all where none is given.
    Raises TVMError where a match and what lies between its parts need each other, and ValueError
    where functions share variables. The cost is linear in the bindings, for each pattern.
    """

    def __init__(
        self,
        patterns: Sequence[Any],
        bind_constants: bool = True,
        annotate_codegen: bool = False,
        entry_functions: Sequence[str] | None = None,
    ) -> None:
        self.patterns = tuple(map(FusionPattern.of, patterns))
        self.bind_constants, self.annotate_codegen = bind_constants, annotate_codegen
        self.entry_functions = tuple(entry_functions or ())

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        named = [mod.get_global_var(n) for n in self.entry_functions] or by_name(mod)
        entries = [g for g in named if isinstance(mod[g], Function) and not is_made(mod[g])]
        fuser = Fuser(mod, lift_constants=not self.bind_constants)
        found = {g: dataflow_blocks(mod[g]) for g in entries}
        single_assignment(block for blocks in found.values() for block in blocks)
        sites = {g: [_Block(block) for block in blocks] for g, blocks in found.items()}
        for pattern in self.patterns:
            for gvar in entries:
                groups: dict[Var, Group] = {}
                for site in sites[gvar]:
                    groups.update(_matches(pattern, site))
                if groups:
                    fuser.fuse(gvar, groups)
                    sites[gvar] = [_Block(b) for b in dataflow_blocks(fuser.function(gvar))]
        made = fuser.result()
        return annotated(made) if self.annotate_codegen else made


def _matches(pattern: FusionPattern, site: _Block) -> dict[Var, Group]:
    """What ``pattern`` matches in a block, as groups of variables."""
    found: dict[Var, Group] = {}
    for var, value in site.roots(pattern.pattern):
        if site.matcher.match(pattern.pattern, value):
            _take(pattern, site, var, value, site.matcher, found)
    return found


def _take(
    pattern: FusionPattern,
    site: _Block,
    var: Var,
    root: Call,
    matcher: Matcher,
    found: dict[Var, Group],
) -> None:
    """Make a group of a match, unless a check or an earlier match is against it."""
    bound = {var: root, **dict(_held(matcher))}
    parts = pattern.annotation_patterns.items()
    annotations = {n: matcher.found[p] for n, p in parts if p in matcher.found}
    if pattern.check is not None and not pattern.check(
        PatternCheckContext(root, annotations, bound, site)
    ):
        return
    earlier = [found[v] for v in bound if v in found]
    if any(len(g.members) > 1 and not all(v in bound for v in g.members) for g in earlier):
        return
    more = {} if pattern.attrs_getter is None else pattern.attrs_getter(annotations)
    group = Group(list(bound), {COMPOSITE: pattern.name, **more})
    found.update(dict.fromkeys(bound, group))


def _held(matcher: Matcher) -> Iterator[tuple[Var, Expr]]:
    """The variables whose values are of the match itself, and no operands of it."""
    for node, value in matcher.found.items():
        at = matcher.at[node]
        if isinstance(node, CallPattern | TupleGetItemPattern) and isinstance(at, Var):
            yield at, value


# -- functions for code generators -----------------------------------------------------------------
def codegen_name(composite: str) -> str:
    """The code generator that the name of a pattern says: what stands before the first dot."""
    return composite.partition(".")[0]


def annotated(mod: IRModule) -> IRModule:
    """``mod`` with each composite function inside a public one that names its code generator."""
    wrapped: dict[GlobalVar, GlobalVar] = {}
    made = dict(mod.functions)
    for gvar, func in mod.relax_functions().items():
        if COMPOSITE in func.attrs:
            new = GlobalVar(f"{gvar.name_hint}_{codegen_name(func.attrs[COMPOSITE])}")
            wrapped[gvar] = new
            outer = _around(func).with_attrs(
                {CODEGEN: codegen_name(func.attrs[COMPOSITE]), "global_symbol": new.name_hint}
            )
            del made[gvar]
            made[new] = outer
            new.struct_info_ = outer.struct_info_
    if not wrapped:
        return mod
    for gvar, func in mod.relax_functions().items():
        if not is_made(func):
            made[gvar] = Rewriter(rule=_renamed(wrapped)).function(func)
    return mod.replace(made)


def _renamed(names: Mapping[GlobalVar, GlobalVar]) -> Callable[[Expr], Expr | None]:
    return lambda node: names.get(node) if isinstance(node, GlobalVar) else None


def without_primitive(func: Function) -> Function:
    """``func`` without the mark that it is one kernel."""
    return func.without_attr(PRIMITIVE) if PRIMITIVE in func.attrs else func


def _around(func: Function) -> Function:
    """A function that binds ``func`` to a variable and calls it."""
    inner = without_primitive(func)
    params = [Var(p.name_hint, p.struct_info_) for p in func.params]
    local = Var("local_func", inner.struct_info_)
    output = Var("output", inner.ret_struct_info)
    bindings = [
        VarBinding(local, inner),
        VarBinding(output, Call(local, params, struct_info=inner.ret_struct_info)),
    ]
    body = SeqExpr([BindingBlock(bindings)], output)
    return Function(params, body, func.ret_struct_info, inner.is_pure)


# -- patterns by name ------------------------------------------------------------------------------
_registered: list[FusionPattern] = []


def register_patterns(patterns: Iterable[Any]) -> None:
    """Keep patterns under their names; those of the end come first when they are asked for.

    patterns: :class:`FusionPattern`, or tuples of its fields; TypeError for anything else
    """
    given = list(patterns)
    wrong = next((p for p in given if not isinstance(p, FusionPattern | tuple)), None)
    if wrong is not None:
        raise TypeError(f"Cannot register type {type(wrong).__name__} as pattern")
    _registered.extend(map(FusionPattern.of, given))


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """The registered patterns whose names start with ``prefix``, in the order to try them."""
    return [p for p in reversed(_registered) if p.name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """The registered pattern of that name; None without one."""
    return next((p for p in reversed(_registered) if p.name == name), None)


def remove_patterns(names: Iterable[str]) -> None:
    """Forget the patterns of these names."""
    gone = set(names)
    _registered[:] = [p for p in _registered if p.name not in gone]
