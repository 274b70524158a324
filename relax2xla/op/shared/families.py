"""Families of operators that share a unit: of one, two and three spatial axes, or sum and product.

A family is one function with the signature that all members have, and a line for each::

    max_pool2d = member("relax.nn.max_pool2d", _pool, True, 2, doc=..., defaults=...)

They are assignments and no loop, so that type checkers see the names, and with each the signature.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.op_param import Kind
from relax2xla.ir.traits import Trait

P = ParamSpec("P")
Which = TypeVar("Which")


@dataclass(frozen=True, slots=True)
class OfRank:
    """How an attribute is converted, which depends on the number of spatial axes."""

    convert: Callable[[Any, int], Any]


@functools.cache
def _described(rule: Callable[..., Rule]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters of a family's unit but the first, and what all annotations mean."""
    own, *parameters = inspect.signature(rule).parameters.values()
    hints = typing.get_type_hints(rule, include_extras=True)
    return parameters, {name: hint for name, hint in hints.items() if name != own.name}


def member(
    name: str,
    rule: Callable[Concatenate[Which, P], Rule],
    which: Which,
    ndim: int = 0,
    *,
    traits: Sequence[Trait],
    doc: str,
    follows: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Op[P]:
    """One member of a family of operators, the one of ``ndim`` spatial axes where it has them.

    ``rule`` is the unit that the family shares. Its first argument says ``which`` member it is; the
    others are the operator's, with ``defaults`` in the place of those that it states. ``traits``
    are those of every operator.
    """
    parameters, hints = _described(rule)

    def made(*args: P.args, **kwargs: P.kwargs) -> Rule:
        return rule(which, *args, **kwargs)

    def at_rank(hint: Any) -> Any:
        kind = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, OfRank)), None)
        if kind is None:
            return hint
        return Annotated[Any, Kind(False, lambda value: kind.convert(value, ndim))]

    unknown = defaults.keys() - {p.name for p in parameters}
    if unknown:
        raise RuntimeError(f"{name} has no parameter {', '.join(sorted(unknown))}")
    signature = [p.replace(default=defaults.get(p.name, p.default)) for p in parameters]
    made.__annotations__ = {n: at_rank(h) for n, h in hints.items()}
    setattr(made, "__signature__", inspect.Signature(signature))  # noqa: B010
    return op(name, *traits, doc=doc, follows=follows)(made)
