"""Operators that write in place: which are harmless, and their functional forms.

``torch.export`` keeps ``relu_`` and ``add_`` as they are. Where the tensor that is written was made
in the graph and nothing else that shares its memory is read afterwards, the operator is its
functional form, and the tensor's later readers get the result. A write to ``x[1:3]`` makes a new
``x`` too, for its later readers. In all other cases torch makes the graph functional, which takes
it several times as long as the import itself.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from relax2xla.importers.torch.engine.converters import CONVERTERS, operator_name
from relax2xla.importers.torch.source.torch_internals import (
    HigherOrderOperator,
    OpOverload,
    is_composite,
    is_vmap_trace,
    schema_of,
)

ATEN: Any = torch.ops.aten


def named(names: str) -> frozenset[Any]:
    """The ATen operators of names such as ``"slice.Tensor"``; ``"relu"`` is ``relu.default``."""
    found = (name.partition(".") for name in names.split())
    return frozenset(getattr(getattr(ATEN, n), overload or "default") for n, _, overload in found)


# Composite operators, which have no alias annotations, that always make new memory.
FRESH_COMPOSITES: Final = named(
    "batch_norm conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_transpose1d "
    "conv_transpose2d.input conv_transpose3d.input einsum group_norm instance_norm layer_norm "
    "linear matmul max_pool1d max_pool2d max_pool3d scaled_dot_product_attention softmax.int"
)
# Views of a part of a tensor, and the operators that put a new part in.
PARTS: Final[Mapping[Any, Any]] = {
    ATEN.slice.Tensor: ATEN.slice_scatter.default,
    ATEN.select.int: ATEN.select_scatter.default,
}
# Views of all of a tensor: by another name, and in another shape.
NAMES: Final = named("alias detach")
# They give what they take where it has the dtype, unless more is asked for; else new memory.
CONVERSIONS: Final = named("to.dtype to.dtype_layout to.device")
RESHAPES: Final = named("view unsqueeze squeeze squeeze.dim squeeze.dims")
# Operators that give a tensor another shape in place: who reads it later sees that shape.
NEW_SHAPES: Final = named(
    "squeeze_ squeeze_.dim squeeze_.dims swapaxes_ swapdims_ t_ transpose_ unsqueeze_"
)
# Of what torch takes for views in place, that whose result is as good as a new value.
NEW_VALUES: Final = frozenset({"detach_", "resize_", "resize_as_"})

NUMBERS = (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)

# Operators whose functional form has another name.
RENAMED: Final = {"normal_": "normal_functional"}

# Operators that write to running statistics without saying so, and the argument that makes them.
STATISTICS = {"batch_norm": 5, "instance_norm": 5}
# The place of the first of the statistics in both.
RUNNING_MEAN = 3


def _schema(op: Any) -> Any:
    """The schema of an operator; None for a Python function."""
    return schema_of(op) if isinstance(op, OpOverload) else None


@lru_cache(maxsize=1024)
def functional_form(op: Any) -> Any:
    """``aten.relu`` for ``aten.relu_``; None for an operator that does not write in place."""
    schema = schema_of(op)
    if not schema.is_mutable or not schema.name.startswith("aten::"):
        return None
    base = schema.name.removeprefix("aten::")
    if torch.Tag.inplace_view in op.tags and base not in NEW_VALUES and op not in NEW_SHAPES:
        return None  # another shape of the same value
    name = RENAMED.get(base, base[:-1] if base.endswith("_") else "")
    packet = getattr(ATEN, name, None) if name else None
    if packet is None:
        return None
    # Most have the same name: `add_.Tensor`, but `floor_divide_.Tensor` and `pow_.Scalar` have not.
    names = sorted(packet.overloads(), key=lambda name: name != (schema.overload_name or "default"))
    forms = [getattr(packet, name) for name in names]
    return next((f for f in forms if _types(f) == _types(op)), None)


def _types(op: Any) -> list[str]:
    return [str(a.type) for a in schema_of(op).arguments]


def may_alias(op: Any) -> bool:
    """Whether a result of ``op`` may lie in the memory of an argument."""
    schema = _schema(op)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


@lru_cache(maxsize=1024)
def makes_new_memory(op: Any) -> bool:
    """Whether the results of ``op`` never share memory with its arguments."""
    schema = _schema(op)
    if schema is None or schema.is_mutable:
        return False
    if may_alias(op):
        return False
    if op in FRESH_COMPOSITES:
        return True
    return not is_composite(op)


def unfollowed_write(module: GraphModule, own: Collection[Node] = ()) -> Node | None:
    """The first write in place that the importer cannot follow by itself, if there is one.

    ``own``: inputs that no other input shares memory with, whose last values are results.
    """
    order: dict[Node, int] = {}
    # They read memory that none of their arguments shows.
    by_strides = any(n.target is ATEN.as_strided.default for n in module.graph.nodes)
    for position, node in enumerate(module.graph.nodes):
        order[node] = position
        op = node.target
        if node.op == "get_attr":
            inner = getattr(module, str(op), None)
            if isinstance(inner, GraphModule) and _writes(inner):
                return node
        if node.op != "call_function":
            continue
        if (is_mutable(op) and not _harmless(node, order, own)) or _hidden(node):
            return node
        if by_strides and is_mutable(op) and torch.Tag.inplace_view not in op.tags:
            return node
    return None


def spell_out_statistics(graph: Graph) -> None:
    """Let writes of batch norm to running statistics be operators of their own."""
    for node in graph.nodes:
        if node.target is not ATEN.batch_norm.default or not _hidden(node):
            continue
        with graph.inserting_before(node):
            done = _called(node, ATEN._native_batch_norm_legit_functional.default, *node.args[:8])
            for place, old in ((3, node.args[RUNNING_MEAN]), (4, node.args[RUNNING_MEAN + 1])):
                new = _called(node, operator.getitem, done, place)
                _called(node, ATEN.copy_.default, old, new)
            node.replace_all_uses_with(_called(node, operator.getitem, done, 0))
        graph.erase_node(node)


def _called(near: Node, op: Any, *args: Any) -> Node:
    """A new call, which stands where ``near`` does in the user's source."""
    made = near.graph.call_function(op, args)
    with torch.no_grad():
        made.meta = {**near.meta, "val": op(*map_arg(args, lambda n: n.meta["val"]))}
    return made


def lost_write(module: GraphModule) -> Node | None:
    """A write that torch itself gets wrong as it makes a graph functional, if there is one.

    Through the windows of ``unfold``: it sets what lies between them to zero.
    """
    for node in module.graph.nodes:
        for at in _written_to(node):
            if at.target is ATEN.unfold.default:
                return node
            view = may_alias(at.target) or at.target is operator.getitem or is_argument(at)
            if not view:
                break
    return None


def is_mutable(op: Any) -> bool:
    """Whether an operator writes to an argument."""
    schema = _schema(op)
    return schema is not None and schema.is_mutable


def _writes(module: GraphModule) -> bool:
    return any(is_mutable(node.target) or _hidden(node) for node in module.graph.nodes)


def _hidden(node: Node) -> bool:
    """What only torch can rewrite: running statistics (which no schema tells of), autocast
    regions, traces of ``torch.vmap``.
    """
    op: Any = node.target
    if isinstance(op, HigherOrderOperator):
        return op.name() == "wrap_with_autocast"
    if isinstance(op, OpOverload):
        at = STATISTICS.get(operator_name(op))
        given = at is not None and len(node.args) > at and bool(node.args[at])
        return given and node.args[RUNNING_MEAN] is not None
    return is_vmap_trace(op)


def _harmless(node: Node, order: dict[Node, int], own: Collection[Node]) -> bool:
    """Whether nobody but the readers of what ``node`` writes to can see that it writes."""
    form = functional_form(node.target)
    if form is None or operator_name(form) not in CONVERTERS:
        return False
    if node.target in NEW_SHAPES:
        return isinstance(node.args[0], Node) and node.args[0].op == "call_function"
    chain = {node, *written(node)}
    aliases = _aliases(node, chain, order, own)
    if aliases is None:
        return False
    # Those of the chain hold the result from here on, and so does what is taken of them later; the
    # others would hold what was before.
    return all(
        user is node or user in order
        for member in aliases
        if member not in chain
        for user in member.users
    )


def written(node: Node) -> list[Node]:
    """What an in-place operator writes to: its target, and what that is a view or a result of.

    Each but the first stands in the one before it as its first argument.
    """
    found: list[Node] = []
    at: Any = node.args[0]
    if node.target in NEW_SHAPES:
        return [at]
    while isinstance(at, Node):
        found.append(at)
        view = at.target in PARTS or at.target in RESHAPES or _is_name(at)
        at = at.args[0] if view or _form_of(at) is not None else None
    return found


def writes_to(node: Node) -> Node | None:
    """The node that makes the memory to which an operator writes; None where it writes to none."""
    found = list(_written_to(node))
    return found[-1] if found else None


def _written_to(node: Node) -> Iterator[Node]:
    """What an operator writes to, then each thing that it may be a view of, to the last one."""
    at: Any = node.args[0] if is_mutable(node.target) and node.args else None
    while isinstance(at, Node):
        yield at
        at = next(iter(_sources(at)), None) if at.op == "call_function" else None


def _is_name(node: Node) -> bool:
    """Whether a value is another one by another name."""
    if node.target in CONVERSIONS:
        asked = (*node.args[1:], *node.kwargs.values())
        plain = all(isinstance(a, torch.dtype | torch.device | torch.layout) for a in asked)
        return plain and _same_dtype(node)
    return node.target in NAMES or is_argument(node)


def is_argument(node: Node) -> bool:
    """Whether a value is the first argument itself, which the schema does not say.

    Torch loses what is written to such a one as it makes a graph functional.
    """
    if node.target is ATEN.dropout.default:  # it drops nothing in evaluation
        share, training = (*node.args[1:], *node.kwargs.values())
        return not (share and training)
    return node.target is ATEN.type_as.default and _same_dtype(node)


def _same_dtype(node: Node) -> bool:
    source: Any = node.args[0]
    return node.meta["val"].dtype == source.meta["val"].dtype


def _form_of(node: Node) -> Any:
    """The functional form of what writes elements."""
    if not isinstance(node.target, OpOverload) or node.target in NEW_SHAPES:
        return None
    return functional_form(node.target)


def _aliases(
    node: Node, chain: set[Node], order: Mapping[Node, int], own: Collection[Node]
) -> set[Node] | None:
    """Values that may share memory with what ``node`` writes to; None where inputs may that are
    not ``own``.

    What is taken later (it is not in ``order``) of those in ``chain`` is left out.
    """
    found: set[Node] = set()
    todo: list[Any] = [node.args[0]]
    while todo:
        at = todo.pop()
        if at in found:
            continue
        if not isinstance(at, Node) or not (at.op == "call_function" or at in own):
            return None
        found.add(at)
        todo += _sources(at) if at.op == "call_function" else ()
        users = [u for u in at.users if at not in chain or u in order]
        todo += [user for user in users if user is not node and _shares(user, at)]
    return found


def _maker(node: Node) -> Node:
    """The node that makes the memory of a value: of one of several results, the operator."""
    source = node.args[0] if node.target is operator.getitem else None
    return source if isinstance(source, Node) else node


def _shares(user: Node, value: Node) -> bool:
    """Whether the result of ``user`` may share the memory of its argument ``value``."""
    if user.op != "call_function" or isinstance(user.meta.get("val"), NUMBERS):
        return False
    return any(source is value for source in _sources(user))


def _sources(node: Node) -> Sequence[Any]:
    """The arguments of a call whose memory its results may share."""
    if _form_of(node) is not None:
        return node.args[:1]
    if makes_new_memory(_maker(node).target):
        return ()
    if node.target in CONVERSIONS and not _same_dtype(node):
        return ()
    if may_alias(node.target):
        # Views say whose memory: of `expand_as(self, other)` it is that of `self` alone.
        shared = [a.alias_info is not None for a in _schema(node.target).arguments]
        if shared.count(True) == 1 and shared[0] and node.args:
            return node.args[:1]
    return node.all_input_nodes
