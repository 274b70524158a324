"""Graphs of AOTAutograd on their way to XLA: rewriting, and cutting out what torch has to run.

AOTAutograd gives functional graphs of ATen operators in which sizes and weights are inputs. Random
numbers stay torch's: its generator is state of the process, which ``torch.manual_seed`` sets.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Collection, Generator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.split_module import split_module
from torch.fx.traceback import preserve_node_meta
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointPolicy

from relax2xla.importers.torch.engine import converters
from relax2xla.importers.torch.engine.converters import CONVERTERS, operator_name
from relax2xla.importers.torch.source.decompositions import OWN, Table, multilabel_margin_loss
from relax2xla.importers.torch.source.inplace import is_mutable, may_alias, named
from relax2xla.importers.torch.source.program import Input, Output, Program
from relax2xla.importers.torch.source.torch_internals import (
    HigherOrderOperator,
    OpOverload,
    core_decompositions,
    detect_fake_mode,
    enable_python_dispatcher,
    kernels_of,
    make_fx,
    min_cut_partition,
    put_kernel,
)

ATEN: Any = torch.ops.aten
# Of these random operators only the shape, dtype and device of the first argument count.
LIKE = named(
    "rand_like randn_like randint_like randint_like.low_dtype bernoulli.p uniform "
    "normal_functional exponential geometric log_normal cauchy"
)
# Two tensors, of which one may be made of the other.
COMPARISONS = named("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor")
FLASH = ATEN._scaled_dot_product_flash_attention_for_cpu.default


def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """As torch's CPU kernel: the mask comes from ``bernoulli``, so eager draws the same numbers."""
    if train is False or p == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    # Eager fills a mask that lies in memory as ``x`` does, ``bernoulli`` makes a contiguous one.
    like = torch.empty_like(x)
    order = memory_order(like) or range(x.ndim)
    back = sorted(range(x.ndim), key=list(order).__getitem__)
    noise = ATEN.bernoulli.p(like.permute(*order), 1 - p).permute(*back)
    return x * noise * (1 / (1 - p)), noise.to(torch.bool)


def _native_layer_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mask: Sequence[bool],
) -> Any:
    """By means of rows: torch's own multiplies rows by their length, which XLA:CPU writes out."""
    inner = list(range(x.ndim - len(shape), x.ndim))
    outer = list(range(x.ndim - len(shape)))
    wide = torch.promote_types(x.dtype, torch.float32)
    left = (x.to(wide) - mean) * rstd
    g = grad.to(wide)
    made: list[torch.Tensor | None] = [None, None, None]
    if mask[0]:
        by = g if weight is None else g * weight.to(wide)
        means = by.mean(inner, keepdim=True), (by * left).mean(inner, keepdim=True)
        made[0] = (rstd * (by - means[0] - left * means[1])).to(x.dtype)
    if mask[1] and weight is not None:
        made[1] = ((g * left).sum(outer) if outer else g * left).to(weight.dtype)
    if mask[2] and bias is not None:
        made[2] = (g.sum(outer) if outer else g.clone()).to(bias.dtype)
    return tuple(made)


def table() -> Table:
    """Decompositions for AOTAutograd: those of core ATen, of operators without a converter.

    They are functional; others are tried when a graph needs them. Attention by the CPU's kernel is
    one of them: what torch says of the kernel's results makes a graph for each of several sizes.
    """
    converters.load()
    found: Table = {}
    for op, function in core_decompositions().items():
        if isinstance(op, OpOverload) and not is_random(op) and op not in OWN:
            if operator_name(op) not in CONVERTERS or op is FLASH:
                found[op] = function
    found[ATEN.native_dropout.default] = _native_dropout
    found[ATEN.native_layer_norm_backward.default] = _native_layer_norm_backward
    return found


def is_random(op: Any) -> bool:
    """Whether results depend on torch's generator."""
    if not isinstance(op, OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in op.tags and op is not FLASH


@contextlib.contextmanager
def plain_attention() -> Generator[None]:
    """Attention as matmuls and softmax, which have gradients that XLA can compute."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@contextlib.contextmanager
def corrected() -> Generator[None]:
    """Our decompositions instead of wrong ones of torch, which its tracing applies by itself."""
    op = ATEN.multilabel_margin_loss_forward.default
    key = torch.DispatchKey.Autograd
    torchs = kernels_of(op).get(key)
    if torchs is None:  # a torch that has no decomposition of its own there
        yield
        return
    try:
        put_kernel(op, key, multilabel_margin_loss)
        yield
    finally:
        put_kernel(op, key, torchs)


def partitioned(
    joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:
    """A joint graph as a forward and a backward one.

    What the backward graph computes again is rounded in another way there, which comparisons show:
    the elements that equal their maximum would be others, or none. So what they compare is kept.
    """
    forward = _before(results_of(joint)[:num_fwd_outputs], set())
    compared = [n for n in joint.graph.nodes if n.target in COMPARISONS]
    # Views and what the backward graph alone computes are exact where their operands are.
    for node in _before(compared, {n for n in forward if not may_alias(n.target)}):
        if node in forward:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)


def copy_written(forward: GraphModule, places: Collection[int]) -> None:
    """Let a forward graph save copies of the inputs that torch writes to when it is done.

    Checkpoints compute again from such ones: from the statistics of a batch norm, for one. What
    the inputs at ``places`` become are other results.
    """
    written = {n for i, n in enumerate(placeholders_of(forward)) if i in places}
    (output,) = (n for n in forward.graph.nodes if n.op == "output")
    for node in written & set(results_of(forward)):
        with forward.graph.inserting_before(output):
            copy = forward.graph.call_function(ATEN.clone.default, (node,))
        copy.meta = dict(node.meta)
        output.replace_input_with(node, copy)


def _before(nodes: Sequence[Any], ends: Collection[Node]) -> set[Node]:
    """Nodes and what they are made of, up to ``ends``, which are among them."""
    found: set[Node] = set()
    todo = [n for n in nodes if isinstance(n, Node)]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += () if node in ends else node.all_input_nodes
    return found


# -- as a program --------------------------------------------------------------------------------
def traced(module: GraphModule, feeds: Collection[int]) -> Program:
    """A graph of AOTAutograd, or a part of one, as a :class:`Program`.

    ``feeds``: the places of the placeholders that are parameters, called ``p0``, ``p1``, ...; the
    others are sizes that the shapes of these tell, or are not used.
    """
    placeholders = placeholders_of(module)
    inputs = [
        Input(n, "input", f"p{i}") if i in feeds else Input(n, "number", n.name, n.meta["val"])
        for i, n in enumerate(placeholders)
    ]
    count = len(results_of(module))

    def decompose(table: Table) -> Program:
        return traced(retraced(module, table), feeds)

    return Program(module, inputs, [Output("result")] * count, {}, decompose)


def placeholders_of(module: GraphModule) -> list[Node]:
    """The arguments of a graph."""
    return [n for n in module.graph.nodes if n.op == "placeholder"]


def raw_results_of(module: GraphModule) -> Any:
    """What the graph returns, as its output node has it."""
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    return output.args[0]


def results_of(module: GraphModule) -> Sequence[Any]:
    """What the graph returns: nodes and constants."""
    fields = raw_results_of(module)
    return fields if isinstance(fields, tuple | list) else [fields]


def memory_order(value: torch.Tensor) -> list[int] | None:
    """Axes from the slowest to the fastest in memory; None where that is their own order.

    torch promises the strides of a result to what reads it, channels_last for one.
    """
    if value.ndim < 2:
        return None
    strides = [_hint(s) for s in value.stride()]
    sizes = [_hint(s) for s in value.shape]
    order = sorted(range(value.ndim), key=lambda a: (-strides[a], a))
    # Axes of size one have no place of their own; a broadcast axis (stride 0) none at all.
    moved = [a for a in order if sizes[a] != 1]
    if moved == sorted(moved) or any(strides[a] == 0 for a in moved):
        return None
    return order


def is_dense(value: torch.Tensor) -> bool:
    """Whether each place of a tensor's memory is that of one element, in some order of axes."""
    axes = sorted((_hint(s), _hint(n)) for s, n in zip(value.stride(), value.shape, strict=True))
    step = 1
    for stride, size in axes if all(size for _, size in axes) else ():
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 2)


@contextlib.contextmanager
def _real_constants(mode: Any) -> Generator[None]:
    """Let tensors with values be operands among fake ones."""
    before = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


class _Retrace(Interpreter):
    """Values keep the strides that torch's own operators give, which the kernels of what is left to
    torch, and what reads the results, may rely on.

    Views of what a decomposition laid out in memory in another way become copies.
    """

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        torchs = n.meta.get("val")
        if n.op != "call_function" or not isinstance(torchs, torch.Tensor):
            return made
        if memory_order(made) == memory_order(torchs):
            return made
        return torch.ops.prims.copy_strided(made, torchs.stride())

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is ATEN.view.default or target is ATEN._unsafe_view.default:
            target = ATEN.reshape.default
        return super().call_function(target, args, kwargs)


def retraced(module: GraphModule, table: Table) -> GraphModule:
    """The graph traced again with decompositions; places in the source are kept."""
    values = [n.meta["val"] for n in placeholders_of(module)]
    known = [n.meta["val"] for n in module.graph.nodes if "val" in n.meta]
    mode = detect_fake_mode(known)
    with contextlib.ExitStack() as stack:
        if mode is not None:
            # Constants of the graph are real tensors.
            stack.enter_context(_real_constants(mode))
            stack.enter_context(mode)
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(preserve_node_meta())
        stack.enter_context(torch.no_grad())
        made = make_fx(_Retrace(module).run, decomposition_table=table)(*values)
    made.graph.eliminate_dead_code()
    for node in made.graph.nodes:
        if is_mutable(node.target):
            raise RuntimeError(f"torch's decomposition writes in place: {node.target}")
    return made


# -- rewriting -----------------------------------------------------------------------------------
def prepared(module: GraphModule) -> GraphModule:
    """The graph with attention whole again, and with random numbers that need no data first."""
    for node in list(module.graph.nodes):
        if node.target is FLASH:
            _attention(module, node)
        elif node.target in LIKE:
            _from_shape(module, node)
        elif "val" not in node.meta and _keeps_random(node):
            _describe(node)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _attention(module: GraphModule, node: Node) -> None:
    """The kernel of torch's choice for the CPU as the operator that it computes."""
    args: list[Any] = [*node.args, *(0.0, False)[len(node.args) - 3 :]]
    users = list(node.users)
    first = all(u.target is operator.getitem and u.args[1] == 0 for u in users)
    if args[3] != 0 or not first or not users:
        return
    with module.graph.inserting_before(node):
        mask = node.kwargs.get("attn_mask")
        whole = module.graph.call_function(
            ATEN.scaled_dot_product_attention.default,
            (*args[:3], mask, 0.0, args[4]),
            {"scale": node.kwargs.get("scale")},
        )
    whole.meta = {**node.meta, "val": users[0].meta["val"]}
    for user in users:
        user.replace_all_uses_with(whole)
        module.graph.erase_node(user)
    module.graph.erase_node(node)


def _has_effect(node: Node) -> bool:
    """Whether an operator is called for what it does beside its results (checks, prints)."""
    return isinstance(node.target, HigherOrderOperator) and node.target.name() == "with_effects"


def _keeps_random(node: Node) -> bool:
    """Whether a node draws random numbers and keeps the state, or draws them again from it."""
    op = node.target
    return isinstance(op, HigherOrderOperator) and "rng_state" in op.name()


def _describe(node: Node) -> None:
    """What torch does not say: the value of ``(operator, ...)`` or ``(state, operator, ...)``."""
    at = next(i for i, a in enumerate(node.args) if isinstance(a, OpOverload))
    values = [a.meta.get("val") if isinstance(a, Node) else a for a in node.args[at + 1 :]]
    kwargs = {k: v.meta.get("val") if isinstance(v, Node) else v for k, v in node.kwargs.items()}
    op: Any = node.args[at]
    mode = detect_fake_mode(values)
    with contextlib.nullcontext() if mode is None else mode:
        value = op(*values, **kwargs)
    if at:
        node.meta["val"] = value
        return
    node.meta["val"] = None, value
    for user in node.users:
        user.meta["val"] = value if user.args[1] == 1 else None


def _from_shape(module: GraphModule, node: Node) -> None:
    """Let a random operator take an empty tensor of the shape, so that it waits for no data."""
    like: Any = node.args[0]
    value: torch.Tensor = like.meta["val"]
    if like.target is ATEN.empty.memory_format or value.layout != torch.strided:
        return
    symbols = {
        str(n.meta["val"].node.expr): n
        for n in module.graph.nodes
        if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.SymInt)
    }
    sizes: list[Any] = []
    for size in value.shape:
        known = size if isinstance(size, int) else symbols.get(str(size.node.expr))
        if known is None:
            return  # then it runs after what makes the shape
        sizes.append(known)
    # In the order in which the operator fills memory, which is that of what it is given.
    with contextlib.nullcontext() if (mode := detect_fake_mode(value)) is None else mode:
        order = memory_order(torch.empty_like(value)) or range(value.ndim)
    with module.graph.inserting_before(node):
        empty = module.graph.call_function(
            ATEN.empty_permuted.default,
            (sizes, list(order)),
            {"dtype": value.dtype, "device": value.device},
        )
    empty.meta = {"val": value, "relax2xla_torch": True}
    node.replace_input_with(like, empty)


# -- parts ---------------------------------------------------------------------------------------
def is_torchs(node: Node) -> bool:
    """Whether torch runs a node whatever converters there are."""
    effect = _keeps_random(node) or is_random(node.target) or _has_effect(node)
    return effect or "relax2xla_torch" in node.meta


def split(module: GraphModule, torchs: Collection[Node]) -> tuple[GraphModule, set[str]]:
    """The graph as a chain of parts, of which XLA and torch run every second one.

    Gives the graph of parts and the names of XLA's. Random operators keep their order.
    """
    stages: dict[Node, int] = {}
    last = 0
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        reached = max((stages[n] for n in node.all_input_nodes if n in stages), default=0)
        if node.target is operator.getitem:
            stages[node] = reached  # fields of a result stay with it
            continue
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat):
            stages[node] = reached
            continue
        mine = 0 if node in torchs else 1
        stage = reached + (reached + mine) % 2
        if node in torchs:
            stage = last = max(stage, last)
        stages[node] = stage
    for node in module.graph.nodes:
        if node.op == "get_attr":
            stages[node] = min((stages[u] for u in node.users if u in stages), default=0)
    metas = {n.name: n.meta for n in module.graph.nodes}
    made = split_module(module, None, lambda n: stages[n])  # pyright: ignore[reportArgumentType]
    for name, part in made.named_children():
        if not name.startswith("submod_"):
            continue  # the graph of a higher-order operator
        for node in placeholders_of(part):  # pyright: ignore[reportArgumentType]
            node.meta = dict(metas[node.name])
    ours = {f"submod_{s}" for s in set(stages.values()) if s % 2}
    return made, ours
