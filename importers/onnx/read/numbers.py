"""Which initializers without axes are weights: files do not tell them from a program's numbers.

Exporters give both a name: a temperature that is learnt, and the epsilon of a norm. Numbers are
worth knowing where a program is compiled, so a weight is what is likely to be one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from onnx import GraphProto, NodeProto

# Where torch.onnx writes what torch.export knows: ``p_scale: PARAMETER target='scale'``.
_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_PARAMETER = re.compile(r"^\S+: PARAMETER target='(.+)'$", re.MULTILINE)
# Names that are made: of paths of nodes, as torch's older exporter and TensorFlow's have them, and
# of words with a number at their end.
_MADE = re.compile(
    r"[/:]|^\W*$|^(val|const\w*|lifted_tensor|scalar\w*|_?tensor)?_*\d*$", re.IGNORECASE
)
# Operators whose further inputs are no weights: scales of integers, bounds, and what says a shape.
_NUMBERS = re.compile(
    r"Quant|QLinear|Integer|^Q[A-Z]|^(Clip|Dropout|NonMaxSuppression|OneHot|Pad|Resize)$"
)


def weights_without_axes(graph: GraphProto) -> Callable[[str], bool]:
    """Whether the initializer of a name, a floating-point number, is a weight of ``graph``."""
    known = next((p.value for p in graph.metadata_props if p.key == _SIGNATURE), None)
    if known is not None:
        return frozenset(_PARAMETER.findall(known)).__contains__
    read = _numbers(graph)
    return lambda name: name not in read and not _MADE.search(name)


def _numbers(graph: GraphProto) -> set[str]:
    """What operators read as numbers, and what that is computed from, where it is known."""
    known = {t.name for t in graph.initializer}
    made: dict[str, NodeProto] = {}
    todo: list[str] = []
    for node in graph.node:
        if all(i in known for i in node.input):
            known.update(node.output)
        made.update(dict.fromkeys(node.output, node))
        if node.op_type == "Range":
            todo += node.input
        elif _NUMBERS.search(node.op_type):
            todo += node.input[1:]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in known and name not in found:
            found.add(name)
            todo += made[name].input if name in made else ()
    return found
