"""What the importer walks over: an fx graph of ATen operators, with what its ends mean.

The graph comes from ``torch.export`` or from AOTAutograd (``torch.compile``); both become a
:class:`Program`, and one importer serves both.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import GraphModule, Node

from relax2xla.importers.torch.source.guards import Condition, conditions
from relax2xla.importers.torch.source.inplace import is_argument
from relax2xla.importers.torch.source.pytrees import children_of, tree_of

InputMeaning = Literal["input", "parameter", "buffer", "constant", "number", "refused"]
OutputMeaning = Literal["result", "buffer", "parameter", "input", "refused"]

_INPUTS: Mapping[InputKind, InputMeaning] = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_OUTPUTS: Mapping[str, OutputMeaning] = {
    "USER_OUTPUT": "result",
    "BUFFER_MUTATION": "buffer",
    "PARAMETER_MUTATION": "parameter",
    "USER_INPUT_MUTATION": "input",
}


@dataclass(frozen=True, slots=True)
class Output:
    """A field of the graph's result: the user's, or the new value of what ``target`` names."""

    meaning: OutputMeaning
    target: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """A placeholder. ``name``: the weight's own name, or the user's; ``value``: tensor or number.

    A "number" is fixed by the export; "refused" is what has no counterpart (tokens, objects).
    """

    node: Node
    meaning: InputMeaning
    name: str
    value: Any = None

    @property
    def target(self) -> str:
        """What an output names it by that is its new value."""
        return self.node.name if self.meaning == "input" else self.name

    @property
    def new_value(self) -> Output | None:
        """Its new value among the outputs; None for what a program may not write to."""
        if self.meaning in ("input", "buffer", "parameter"):
            return Output(self.meaning, self.target)
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """``ranges``: of the symbols (sympy symbol to an interval with ``lower`` and ``upper``).

    ``decompose``: the same program made functional, with torch's decompositions of a table.
    ``conditions``: those on sizes of the user's inputs under which it was traced. ``trees``: how
    the user nests arguments and results.
    """

    module: GraphModule
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    ranges: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    decompose: Callable[[dict[Any, Any]], Program] | None = None
    conditions: Sequence[Condition] = ()
    trees: Mapping[str, Any] | None = None

    @property
    def changes(self) -> set[tuple[OutputMeaning, str]]:
        """What the program gives new values to, beside its results."""
        return {(o.meaning, o.target) for o in self.outputs if o.meaning != "result"}


def exported(program: ExportedProgram, known: Sequence[Condition] | None = None) -> Program:
    """An ExportedProgram as a :class:`Program`; ``known``: its conditions, else they are read."""
    guards = conditions(program) if known is None else known
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    inputs: list[Input] = []
    for spec in program.graph_signature.input_specs:
        node = placeholders[spec.arg.name]
        meaning = _INPUTS.get(spec.kind, "refused")
        if meaning == "input":
            if isinstance(spec.arg, ConstantArgument):
                inputs.append(Input(node, "number", node.name, spec.arg.value))
            else:
                inputs.append(Input(node, "input", node.name))
        elif meaning == "refused":
            name = f"{spec.arg.name} of kind {spec.kind.name}"
            inputs.append(Input(node, "refused", name, program.constants.get(spec.target or "")))
        else:
            name = spec.target or node.name
            inputs.append(Input(node, meaning, name, _tensor_of(program, spec)))
    outputs: list[Output] = []
    for spec in program.graph_signature.output_specs:
        kind: OutputKind = spec.kind
        meaning = _OUTPUTS.get(kind.name, "refused")
        outputs.append(Output(meaning, spec.target or (kind.name if meaning == "refused" else "")))

    def decompose(table: dict[Any, Any]) -> Program:
        module = program.graph_module
        with (
            warnings.catch_warnings(),
            _spelled_out(module),
            _aliased(module),
            _by_one_name(program),
        ):
            warnings.simplefilter("ignore")  # torch warns about classes of its own
            made = program.run_decompositions(table)
        return exported(made, guards)

    ranges = program.range_constraints
    trees = trees_of_call(program, inputs)
    return Program(program.graph_module, inputs, outputs, ranges, decompose, guards, trees)


@contextlib.contextmanager
def _spelled_out(module: GraphModule) -> Generator[None]:
    """Let what ``copy_`` converts and broadcasts be operators of their own meanwhile.

    run_decompositions takes the last copy into a buffer for its source
    (``_remove_unnecessary_copy_op_pass``), for those too that read the buffer.
    """
    graph = module.graph
    made: list[tuple[Node, Node]] = []
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not torch.ops.aten.copy_.default:
            continue
        into, source = node.args[0].meta["val"], node.args[1]
        value = source.meta["val"]
        steps: list[Any] = []
        if value.dtype != into.dtype:
            steps.append((torch.ops.aten.to.dtype, into.dtype))
        if _broadcasts(value, into):
            steps.append((torch.ops.aten.expand_as.default, node.args[0]))
        for op, other in steps:
            with graph.inserting_before(node):
                step = graph.call_function(op, (node.args[1], other))
            value = op(value, into if isinstance(other, Node) else other)
            step.meta = {**node.meta, "val": value}
            node.update_arg(1, step)
            made.append((node, step))
    if made:
        module.recompile()
    try:
        yield
    finally:
        for node, step in reversed(made):
            node.update_arg(1, step.args[0])
            graph.erase_node(step)
        if made:
            module.recompile()


@contextlib.contextmanager
def _by_one_name(program: ExportedProgram) -> Generator[None]:
    """Let a buffer of several names, that of a shared module, be used by the first meanwhile.

    run_decompositions refuses to write to what it is given twice, so the others are copies.
    """
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    state: Any = program.state_dict
    constants: Any = program.constants
    first = dict[int, Node]()
    undo = list[Callable[[], object]]()
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.BUFFER or spec.target is None:
            continue
        held = state if spec.target in state else constants
        value, node = held[spec.target], placeholders[spec.arg.name]
        one = first.setdefault(id(value), node)
        if one is node:
            continue
        for user in list(node.users):
            undo.append(partial(_with_arguments, user, user.args, user.kwargs))
            user.replace_input_with(node, one)
        undo.append(partial(held.__setitem__, spec.target, value))
        held[spec.target] = value.clone()
    if undo:
        program.graph_module.recompile()
    try:
        yield
    finally:
        for back in reversed(undo):
            back()
        if undo:
            program.graph_module.recompile()


def _with_arguments(node: Node, args: Any, kwargs: Any) -> None:
    node.args, node.kwargs = args, kwargs


@contextlib.contextmanager
def _aliased(module: GraphModule) -> Generator[None]:
    """Let what is its first argument itself be an alias of it meanwhile, which has a schema that
    says so (see ``is_argument``).
    """
    found = [
        (node, node.target, node.args, node.kwargs)
        for node in module.graph.nodes
        if node.op == "call_function" and is_argument(node)
    ]
    for node, _, args, _ in found:
        node.target, node.args, node.kwargs = torch.ops.aten.alias.default, args[:1], {}
    if found:
        module.recompile()
    try:
        yield
    finally:
        for node, target, args, kwargs in found:
            node.target, node.args, node.kwargs = target, args, kwargs
        if found:
            module.recompile()


def _broadcasts(value: Any, into: Any) -> bool:
    """Whether ``value`` has another shape than ``into``, and one that can be broadcast to it."""
    sizes, wanted = list(map(str, value.shape)), list(map(str, into.shape))
    last = wanted[len(wanted) - len(sizes) :]
    return sizes != wanted and all(s in ("1", w) for s, w in zip(sizes, last, strict=False))


def _tensor_of(program: ExportedProgram, spec: Any) -> torch.Tensor:
    """The value of a parameter, buffer or constant."""
    state: Any = program.state_dict
    constants: Any = program.constants
    stored = spec.kind != InputKind.CONSTANT_TENSOR and spec.target in state
    return (state if stored else constants)[spec.target]


def trees_of_call(program: ExportedProgram, inputs: Sequence[Input]) -> Mapping[str, Any] | None:
    """How the user nests arguments and results, or None where torch does not say."""
    spec = program.call_spec
    if spec.in_spec is None or spec.out_spec is None:
        return None
    parameters = itertools.count()
    leaves: list[Any] = []
    for i in inputs:
        if i.meaning == "input":
            leaves.append({"leaf": next(parameters)})
        elif i.meaning == "number":
            plain = i.value is None or isinstance(i.value, bool | int | float | str)
            leaves.append({"const": i.value if plain else str(i.value)})
    if len(leaves) != spec.in_spec.num_leaves:
        return None
    results = [{"leaf": n} for n in range(spec.out_spec.num_leaves)]
    given, made = tree_of(spec.in_spec, iter(leaves)), tree_of(spec.out_spec, iter(results))
    if given is None:
        return None
    if made is None:  # of a type of the user's: the results in a row, as the program gives them
        made = {"tuple": results}
    names = [i.name for i in inputs if i.meaning in ("input", "number")]
    return {"in": given, "out": made, "names": _argument_names(spec.in_spec, names)}


def _argument_names(spec: Any, names: Sequence[str]) -> list[str]:
    """Names of positional arguments: of their placeholders, where each is one."""
    made: list[str] = []
    place = 0
    for part in children_of(children_of(spec)[0]):
        made.append(names[place] if part.is_leaf() else f"argument {len(made)}")
        place += part.num_leaves
    return made
