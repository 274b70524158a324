"""Which parameters a program donates: by argument of ``build``, by attribute, as JAX marked them.

``build(mod, donate=["cache"])`` or the function attribute ``donate`` name parameters. Programs of
JAX mark parameters too (``donate_argnums``), but their callers here know nothing of it, and would
find their arrays deleted. So ``donate=True`` asks for it, and else a notice says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from relax2xla.errors import TVMError
from relax2xla.ir import (
    Expr,
    Function,
    IRModule,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.struct_info import flatten_info, show

ATTRIBUTE: Final = "donate"
# Attributes of arguments that JAX marks donated ones with.
_MARKS: Final = ("jax.buffer_donor", "tf.aliasing_output")

log = logging.getLogger("relax2xla.vm")

# Names or places of parameters, for the only public function or by function name; True: those that
# an imported program marks.
Donate = Literal[True] | Sequence[str | int] | Mapping[str, Sequence[str | int]]


def donated_params(mod: IRModule, donate: Donate | None) -> dict[str, tuple[Var, ...]]:
    """The donated parameters of each public function, by argument of ``build`` and by attribute.

    Raises TVMError for names and places that no parameter has, TypeError for anything else.
    """
    public = {
        g.name_hint: f for g, f in mod.relax_functions().items() if global_symbol(f) is not None
    }
    marked = {name: _marked(func) for name, func in public.items()}
    if donate is True:
        donate = {name: words for name, words in marked.items() if words}
    asked: dict[str, list[str | int]] = {}
    for gvar, func in mod.relax_functions().items():
        if ATTRIBUTE in func.attrs:
            if gvar.name_hint not in public:
                raise TVMError(
                    f"{gvar.name_hint} has the attribute `{ATTRIBUTE}` and is private; arguments "
                    "are donated in calls from Python only, so give it to a public function"
                )
            asked[gvar.name_hint] = _words(func.attrs[ATTRIBUTE], gvar.name_hint)
    if donate is not None and not isinstance(donate, Mapping):
        name = "main" if "main" in public or len(public) != 1 else next(iter(public))
        donate = {name: donate}
    for name, words in (donate or {}).items():
        if name not in public:
            raise TVMError(
                f"donate names the function {name!r}; the public ones are "
                f"{', '.join(public) or 'none'}"
            )
        asked[name] = [*asked.get(name, ()), *_words(words, name)]
    for name, words in marked.items():
        if words and name not in asked:
            log.warning(
                "%s: that the program donates %s is ignored, and the arrays are kept; "
                "build(mod, donate=True) gives their memory up at each call",
                name,
                ", ".join(words),
            )
    return {name: _params(name, public[name], words) for name, words in asked.items() if words}


def _marked(func: Function) -> list[str]:
    """Names of the parameters that an imported program marks as donated."""
    known = func.attrs.get("arg_attrs", {})
    return [
        p.name_hint
        for p in func.params
        if any(known.get(p.name_hint, {}).get(mark, False) is not False for mark in _MARKS)
    ]


def _words(value: Any, name: str) -> list[str | int]:
    if isinstance(value, str | int) or not isinstance(value, Sequence):
        value = [value]
    if not all(isinstance(v, str) or type(v) is int for v in value):
        raise TypeError(f"donate takes names or places of parameters of {name}; got {value!r}")
    return list(value)


def _params(name: str, func: Function, words: Sequence[str | int]) -> tuple[Var, ...]:
    made: list[Var] = []
    for word in words:
        if isinstance(word, int):
            found = func.params[word : word + 1] if word >= 0 else ()
        else:
            found = [p for p in func.params if p.name_hint == word]
        if len(found) != 1:
            known = ", ".join(p.name_hint for p in func.params) or "none"
            count = f"{len(found)} parameters" if found else "no parameter"
            raise TVMError(f"donate: {name} has {count} {word!r}; it has {known}")
        if found[0] in made:
            raise TVMError(f"donate: the parameter `{found[0].name_hint}` of {name} is there twice")
        made.append(found[0])
    return tuple(made)


def places(
    mod: IRModule, before: IRModule, donated: Mapping[str, Sequence[Var]], bound: IRModule
) -> dict[str, tuple[int, ...]]:
    """Places of donated parameters in the functions as they are built.

    ``before``: the user's module; ``bound``: with its weights bound; ``mod``: after the passes.
    Raises TVMError for weights, for what is no tensor, and for what is returned more than once.
    """
    made: dict[str, tuple[int, ...]] = {}
    for name, params in donated.items():
        old, new, final = before[name], bound[name], mod[name]
        assert isinstance(old, Function)
        assert isinstance(new, Function)
        assert isinstance(final, Function)
        if len(final.params) != len(new.params):
            raise TVMError(
                f"donate: the passes changed the parameters of {name}; name those that it has "
                f"afterwards with the attribute `{ATTRIBUTE}`, set by a pass"
            )
        left = _left(old, new)
        found: list[int] = []
        for p in params:
            if p not in left:
                raise TVMError(
                    f"donate: `{p.name_hint}` of {name} is a weight, bound by `params`; every call "
                    "uses it, so its memory cannot be given up"
                )
            leaves = flatten_info(p.struct_info)
            if not leaves or not all(isinstance(i, TensorStructInfo) for i in leaves):
                raise TVMError(
                    f"donate: `{p.name_hint}` of {name} is {show(p.struct_info)}; only tensors, "
                    "and tuples of them, have memory to give up"
                )
            found.append(left.index(p))
            _refuse_twice(name, final, final.params[found[-1]])
        made[name] = tuple(found)
    return made


def _left(old: Function, new: Function) -> list[Var]:
    """Parameters of ``old`` that ``new``, which has values for some of them, still takes."""
    if len(old.params) == len(new.params):
        return list(old.params)
    rest = iter(new.params)
    at = next(rest, None)
    left: list[Var] = []
    for p in old.params:
        if at is not None and (p is at or p.name_hint == at.name_hint):
            left.append(p)
            at = next(rest, None)
    return left


def _refuse_twice(name: str, func: Function, param: Var) -> None:
    """One piece of memory cannot be two results."""
    same: dict[Expr, Expr] = {
        b.var: b.value
        for b in bindings_of(func.body)
        if isinstance(b, VarBinding) and isinstance(b.value, Var | Tuple)
    }
    count = 0
    todo: list[Expr] = [func.body.body]
    while todo:
        value = todo.pop()
        if value is param:
            count += 1
        elif isinstance(value, Tuple):
            todo += value.fields
        elif isinstance(value, SeqExpr):
            todo.append(value.body)
        elif value in same:
            todo.append(same[value])
    if count > 1:
        raise TVMError(
            f"donate: {name} returns its parameter `{param.name_hint}` {count} times; its memory "
            "can become one result only. Do not donate it, or return it once"
        )
