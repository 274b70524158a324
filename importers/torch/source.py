"""What the importer walks over: an fx graph of ATen operators, with what its ends mean.

The graph comes from ``torch.export`` or from AOTAutograd (``torch.compile``); both become a
:class:`Program`, and one importer serves both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import GraphModule, Node

from relax2xla.importers.torch.guards import Condition, conditions

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
class Input:
    """A placeholder. ``name``: the weight's own name, or the user's; ``value``: tensor or number.

    A "number" is fixed by the export; "refused" is what has no counterpart (tokens, objects).
    """

    node: Node
    meaning: InputMeaning
    name: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Output:
    """A field of the graph's result: the user's, or the new value of what ``target`` names."""

    meaning: OutputMeaning
    target: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """``ranges``: of the symbols (sympy symbol to an interval with ``lower`` and ``upper``).

    ``decompose``: the same program made functional, with torch's decompositions of a table.
    ``conditions``: those on sizes of the user's inputs under which it was traced.
    """

    module: GraphModule
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    ranges: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    decompose: Callable[[dict[Any, Any]], Program] | None = None
    conditions: Sequence[Condition] = ()

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
            inputs.append(Input(node, "refused", f"{spec.arg.name} of kind {spec.kind.name}"))
        else:
            name = spec.target or node.name
            inputs.append(Input(node, meaning, name, _tensor_of(program, spec)))
    outputs: list[Output] = []
    for spec in program.graph_signature.output_specs:
        kind: OutputKind = spec.kind
        meaning = _OUTPUTS.get(kind.name, "refused")
        outputs.append(Output(meaning, spec.target or (kind.name if meaning == "refused" else "")))

    def decompose(table: dict[Any, Any]) -> Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about classes of its own
            return exported(program.run_decompositions(table), guards)

    ranges = program.range_constraints
    return Program(program.graph_module, inputs, outputs, ranges, decompose, guards)


def _tensor_of(program: ExportedProgram, spec: Any) -> torch.Tensor:
    """The value of a parameter, buffer or constant."""
    state: Any = program.state_dict
    constants: Any = program.constants
    stored = spec.kind != InputKind.CONSTANT_TENSOR and spec.target in state
    return (state if stored else constants)[spec.target]
