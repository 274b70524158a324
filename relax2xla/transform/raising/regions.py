"""Rows compared by what they compute: their attributes, and their regions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla.ir import Call, Constant, Expr, Function, Tuple, Var, VarBinding
from relax2xla.ir.base import Attrs
from relax2xla.ir.rewrite import bindings_of, children, post_order
from relax2xla.ir.traits import Commutative
from relax2xla.transform.raising.graph import Graph, row_has, row_name

Key = tuple[tuple[str, ...], str]


def _is_default(name: str, value: Any) -> bool:
    if name in ("indices_are_sorted", "unique_indices"):
        return not value
    if name == "precision_config":
        return all(v == "DEFAULT" for v in value)
    if name in ("window_strides", "base_dilations", "window_dilations", "lhs_dilation"):
        return all(v == 1 for v in value)
    if name == "rhs_dilation":
        return all(v == 1 for v in value)
    if name == "padding":
        return all(v == 0 for pair in value for v in pair)
    if name == "window_reversal":
        return not any(value)
    if name == "result_accuracy":
        return "DEFAULT" in str(value)
    return value is None


def plain_attrs(call: Call) -> dict[str, Any]:
    """Attributes of a row without those that say what is the default anyway."""
    made: dict[str, Any] = {}
    for name, value in call.attrs.items():
        if isinstance(value, Attrs):
            made[name] = {k: v for k, v in value.items() if v != ()}
        elif not _is_default(name, value):
            made[name] = value
    return made


def flips(e: Expr) -> bool:
    """Whether the operands of a row may change places."""
    if row_has(e, Commutative):
        return True
    return isinstance(e, Call) and e.attrs.get("comparison_direction") in ("EQ", "NE")


def region_key(region: Expr) -> Key | None:
    """A value that is equal for regions that compute the same; None for large or nested ones.

    It is a digest, so that its size does not grow with what the region shares.
    """
    if not isinstance(region, Function):
        return None
    keys: dict[Expr, str] = {p: f"param {i}" for i, p in enumerate(region.params)}

    def key_of(root: Expr) -> str:
        done: dict[int, str] = {}
        for node in post_order(root):
            done[id(node)] = _key(node, [done[id(k)] for k in children(node)], keys)
        return done[id(root)]

    for count, b in enumerate(bindings_of(region.body)):
        if count > 64 or not isinstance(b, VarBinding) or isinstance(b.value, Function):
            return None
        keys[b.var] = key_of(b.value)
    types = tuple([str(p.struct_info_) for p in region.params])
    return (types, key_of(region.body.body))


def region_of(graph: Graph, e: Expr) -> Key | None:
    """:func:`region_key` of what ``e`` is bound to, found once."""
    if e not in graph.regions:
        graph.regions[e] = region_key(graph.value(e))
    return graph.regions[e]


def _key(node: Expr, kids: Sequence[str], known: Mapping[Expr, str]) -> str:
    if isinstance(node, Var):
        return known.get(node) or f"free {id(node)}"
    if isinstance(node, Constant):
        value = node.data
        nan = value.dtype.kind not in "biu" and bool((value != value).all())
        return _digest("const", str(node.struct_info_), "nan" if nan else value.tobytes().hex())
    if isinstance(node, Tuple):
        return _digest("tuple", *kids)
    if isinstance(node, Call):
        name = row_name(node)
        attrs = plain_attrs(node)
        kids = sorted(kids) if flips(node) else kids
        return _digest(name, repr(sorted(attrs.items())), *kids)
    return f"other {id(node)}"


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
