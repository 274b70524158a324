"""``torch.compile(model, backend="relax2xla")``: graphs of torch run by XLA, forward and backward.

TorchDynamo gives Python's graphs, AOTAutograd turns them into functional ATen graphs (one for
inference; a forward and a backward one for training). Each is imported as an exported program is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from relax2xla.errors import OpNotImplemented
from relax2xla.importers.shared.gaps import Gaps
from relax2xla.importers.torch.compile.call_plan import device_of, elsewhere, planned
from relax2xla.importers.torch.compile.graphs import (
    copy_written,
    corrected,
    is_torchs,
    partitioned,
    placeholders_of,
    plain_attention,
    prepared,
    raw_results_of,
    retraced,
    split,
    table,
    traced,
)
from relax2xla.importers.torch.compile.saved_images import in_order
from relax2xla.importers.torch.compile.xla_part import Part
from relax2xla.importers.torch.engine.export import import_program
from relax2xla.importers.torch.engine.graph_walk import Options, Walk
from relax2xla.importers.torch.source.decompositions import Table, decompositions
from relax2xla.importers.torch.source.spans import Spans
from relax2xla.importers.torch.source.torch_internals import (
    TracingContext,
    aot_autograd,
    unset_fake_temporarily,
)
from relax2xla.transform.pipeline import get_pipeline

log = logging.getLogger("relax2xla.torch")

Compiled = Callable[..., Any]

#: What ``torch.compile(..., options={...})`` can set, with the defaults.
OPTIONS: Mapping[str, Any] = {"freeze": True, "fallback": True, "pipeline": None}
#: Torch's modes, of which its own compiler makes other programs; XLA makes the same ones.
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def relax_dynamo(
    pipeline: Any = None, *, freeze: bool = True, fallback: bool = True
) -> Callable[..., Compiled]:
    """A backend of ``torch.compile`` that runs graphs with XLA.

    pipeline:  a Pass or the name of a pipeline, applied to the Relax module before it is built;
               None is the default pipeline
    freeze:    compile the weights of inference graphs in, which is what makes layouts cheap on the
               CPU. They are watched: where torch has written to one, the graph is compiled anew,
               and after the third time they are arguments for good
    fallback:  let torch run the operators that have no converter, with one warning that names
               them; False makes them an error (``OpNotImplemented``)

    ``torch.compile(model, backend="relax2xla", options={"freeze": False})`` is the same by name.
    Tensors go in and come out over the same memory where it is aligned, also the weights. Random
    numbers are drawn by torch, so that ``torch.manual_seed`` holds.
    """
    settings = _checked({"pipeline": pipeline, "freeze": freeze, "fallback": fallback})
    return functools.partial(_backend, settings)


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the pipeline in place of its name; ValueError or TypeError for wrong ones."""
    unknown = set(settings) - set(OPTIONS)
    if unknown:
        raise ValueError(
            f"the backend relax2xla has no option {', '.join(map(repr, sorted(unknown)))}; it has "
            f"{', '.join(OPTIONS)}"
        )
    made = dict(settings)
    pipeline = made.get("pipeline")
    if isinstance(pipeline, str):
        made["pipeline"] = pipeline = get_pipeline(pipeline)
    if pipeline is not None and not callable(pipeline):
        raise TypeError(
            f"pipeline is None, a Pass or the name of a pipeline; got {type(pipeline).__name__}"
        )
    for name in ("freeze", "fallback"):
        if not isinstance(made.get(name, True), bool):
            raise TypeError(f"{name} is True or False; got {made[name]!r}")
    return made


def relax2xla_backend(graph: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Compiled:
    """The backend that ``torch.compile`` finds by the name "relax2xla"."""
    return relax_dynamo()(graph, example_inputs, **kwargs)


def _backend(
    settings: Mapping[str, Any],
    graph: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    if mode not in MODES:
        raise ValueError(
            f"there is no mode {mode!r}; torch has {', '.join(map(str, MODES[1:]))}, which are all "
            "the same to the backend relax2xla"
        )
    settings = {**settings, **_checked(options or {})}
    aot = aot_autograd(
        fw_compiler=functools.partial(_compile, settings, forward=True),
        bw_compiler=functools.partial(_compile, settings),
        inference_compiler=functools.partial(_compile, settings, inference=True),
        partition_fn=_partitioned,
        decompositions=table(),
    )
    attention = plain_attention() if torch.is_grad_enabled() else contextlib.nullcontext()
    with attention, corrected():
        return aot(graph, example_inputs)


def _partitioned(
    joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:
    """A joint graph as a forward and a backward one, with what goes from one to the other."""
    forward, backward = partitioned(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    in_order(forward, backward, num_fwd_outputs)
    return forward, backward


def _compile(
    settings: Mapping[str, Any],
    graph: GraphModule,
    example_inputs: Sequence[Any],
    inference: bool = False,
    forward: bool = False,
) -> Compiled:
    """An ATen graph as a function of a list of tensors and sizes (which it empties)."""
    graph = prepared(graph)
    static = _places("static_input_indices") if inference else ()
    if forward:
        copy_written(graph, _places("mutated_inp_runtime_indices"))
    missing: dict[str, str] = {}
    run = _part(settings, graph, static, missing)
    if missing:
        shown = "; ".join(f"{op} ({why})" for op, why in missing.items())
        warnings.warn(
            f"relax2xla leaves these operators to torch: {shown}. The rest of the graph runs on "
            "XLA",
            stacklevel=2,
        )

    def boxed(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return run(*given)

    boxed._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return boxed


def _places(kind: str) -> Sequence[int]:
    """The places of one kind among a graph's inputs, as AOTAutograd has found them."""
    context = TracingContext.try_get()
    metadata: Any = None if context is None else context.fw_metadata
    return tuple(getattr(metadata, kind, None) or ())


def _part(
    settings: Mapping[str, Any],
    graph: GraphModule,
    static: Sequence[int],
    missing: dict[str, str],
) -> Compiled:
    """A graph on XLA as far as it goes; notes in ``missing`` what had to be left to torch."""
    torchs = {n for n in graph.graph.nodes if is_torchs(n)} | _elsewhere(settings, graph, missing)
    tried: set[Any] = set()
    while not torchs:
        copy: dict[Any, Any] = {}
        made, walk = _on_xla(settings, graph, static, copy)
        if made is not None:
            return made
        more = decompositions(walk.open - tried)
        tried |= set(more)
        again = _decomposed(graph, more)
        if again is not None:
            graph = again
            continue
        if not settings["fallback"]:
            walk.gaps.raise_all()
        torchs = {n for n in graph.graph.nodes if copy.get(n) in walk.failed}
        _note(missing, walk.gaps)
        if not torchs:
            raise OpNotImplemented("torch.compile:", walk.gaps.gaps())
    return _in_parts(settings, graph, static, torchs, missing)


def _elsewhere(
    settings: Mapping[str, Any], graph: GraphModule, missing: dict[str, str]
) -> set[Node]:
    """The operators on tensors of other devices than the graph's, which torch runs."""
    device = device_of(graph)
    gaps, found = Gaps("graph of torch.compile"), set[Node]()
    for node in graph.graph.nodes:
        if node.op == "call_function" and (other := elsewhere(node, device)) is not None:
            found.add(node)
            reason = f"a tensor on the device {other} in a graph for {device}"
            gaps.add(str(node.target), reason, Spans().where(node), "move it there before the call")
    if not settings["fallback"]:
        gaps.raise_if_any()
    _note(missing, gaps)
    return found


def _note(missing: dict[str, str], gaps: Gaps) -> None:
    """Add what a warning says of operators that are left to torch."""
    for gap in gaps.gaps():
        at = f" at {gap.nodes[0]}" if gap.nodes else ""
        missing.setdefault(gap.op, f"{gap.reason}{at}")


def _decomposed(graph: GraphModule, table: Table) -> GraphModule | None:
    """The graph with those of the decompositions that torch can trace, or None without any."""
    if not table:
        return None
    try:
        return retraced(graph, table)
    except (AssertionError, RuntimeError) as e:
        log.debug("torch cannot decompose %s: %s", ", ".join(map(str, table)), e)
    made: GraphModule | None = None
    # One that fails says nothing of the others.
    for op, function in table.items() if len(table) > 1 else ():
        again = _decomposed(graph, {op: function})
        if again is not None:
            graph = made = again
    return made


def _on_xla(
    settings: Mapping[str, Any], graph: GraphModule, static: Sequence[int], copy: dict[Any, Any]
) -> tuple[Part | None, Walk]:
    """The whole graph as one part, or None and what is in the way; ``copy``: nodes walked over."""
    inner = Graph()
    inner.output(inner.graph_copy(graph.graph, copy))
    work = GraphModule(graph, inner)
    plan = planned(work)
    program = dataclasses.replace(traced(work, plan.feeds), decompose=None)
    with unset_fake_temporarily():  # the graph's constants are real
        made = import_program(program, Options(lenient=True))
    if made.mod is None:
        return None, made.walk
    device = device_of(work)
    part = Part(made.mod, plan, settings["pipeline"], device, static, settings["freeze"])
    return part, made.walk


def _in_parts(
    settings: Mapping[str, Any],
    graph: GraphModule,
    static: Sequence[int],
    torchs: Collection[Node],
    missing: dict[str, str],
) -> Compiled:
    """A graph as a chain of parts, of which torch runs those with ``torchs``."""
    weights = {n for i, n in enumerate(placeholders_of(graph)) if i in set(static)}
    names = {n.name for n in weights}
    whole, ours = split(graph, torchs)
    for node in whole.graph.nodes:
        if node.op != "call_module" or node.target not in ours:
            continue
        part: Any = getattr(whole, node.target)
        mine = [i for i, n in enumerate(placeholders_of(part)) if n.name in names]
        alone = not isinstance(raw_results_of(part), tuple | list)
        call = _part(settings, part, mine, missing)
        delattr(whole, node.target)
        setattr(whole, node.target, functools.partial(_only, call) if alone else call)
    return whole.forward


def _only(call: Compiled, *args: Any) -> Any:
    """The one result of a part that torch wants by itself."""
    (result,) = call(*args)
    return result
