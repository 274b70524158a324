"""What a model needs and what is missing, without converting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from relax2xla.errors import Gap
from relax2xla.importers.onnx.engine.functions import Functions, domain_of, gaps_of, opsets_of
from relax2xla.importers.onnx.engine.model import load_converters
from relax2xla.importers.onnx.read.source import Model, read


@dataclass(frozen=True, slots=True)
class Support:
    """``opsets``: versions by domain; ``operators``: how many nodes of each; ``gaps``: what is
    missing.

    Operators of ai.onnx are named without their domain. Nodes of subgraphs and of the model's own
    functions count as they stand there.
    """

    opsets: dict[str, int]
    operators: dict[str, int]
    gaps: tuple[Gap, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing that can be told without converting the model."""
        return not self.gaps

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "complete": self.complete}

    def as_text(self) -> str:
        """For people."""
        versions = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in self.opsets.items())
        lines = [f"opsets: {versions or 'none'}"]
        lines += [f"  {name}: {count}" for name, count in self.operators.items()]
        if self.complete:
            return "\n".join([*lines, "every operator and attribute is supported"])
        lines += ["not supported:", *(g.as_text() for g in self.gaps)]
        return "\n".join(lines)


def support(model: Model) -> Support:
    """What ``model`` (a message, a path or bytes) needs, and what of it is missing.

    Raises ``FileFormatError`` for what is no ONNX model.
    """
    load_converters()
    proto = read(model).proto
    opsets = opsets_of(proto.opset_import)
    opsets.setdefault("", 1)
    gaps, _ = gaps_of(proto, opsets, Functions.of(proto))
    return Support(opsets, _counts(proto), tuple(gaps.gaps()))


def _counts(proto: ModelProto) -> dict[str, int]:
    counts: Counter[str] = Counter()
    stack: list[Iterable[NodeProto]] = [proto.graph.node, *(f.node for f in proto.functions)]
    while stack:
        for node in stack.pop():
            domain = domain_of(node.domain)
            counts[f"{domain}.{node.op_type}" if domain else node.op_type] += 1
            for a in node.attribute:
                graphs: list[GraphProto] = [a.g] if a.HasField("g") else list(a.graphs)
                stack.extend(g.node for g in graphs)
    return dict(counts.most_common())
