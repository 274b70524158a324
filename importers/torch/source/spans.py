"""Where the user's source made a node: module path, file and line (design decision D10)."""

from __future__ import annotations

import re
from typing import Any

from torch.fx import Node

from relax2xla.ir import Span

FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# Frames inside torch say nothing of the user's source.
LIBRARY = re.compile(
    r"[/\\]site-packages[/\\]torch[/\\]|[/\\]torch[/\\](nn|_dynamo|export|fx)[/\\]"
)


class Spans:
    """Spans of nodes; stack traces that repeat are read once."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, int]] = {}

    def named(self, name: str) -> Span:
        """A span that is a name only."""
        return Span(name=name)

    def of(self, node: Node) -> Span:
        """Module path such as ``encoder.layers.0.attention``, and the line in the user's file."""
        file, line = self.place(node.meta.get("stack_trace") or "")
        return Span(name=module_path(node), file=file, line=line)

    def place(self, trace: str) -> tuple[str, int]:
        """File and line of the innermost frame that is not torch's."""
        found = self._places.get(trace)
        if found is None:
            frames = FRAME.findall(trace)
            own = [f for f in frames if not LIBRARY.search(f[0])] or frames
            found = (own[-1][0], int(own[-1][1])) if own else ("", 0)
            self._places[trace] = found
        return found

    def where(self, node: Node) -> str:
        """The node for messages: its name, its module and its line."""
        span = self.of(node)
        place = f"{span.file}:{span.line}" if span.file else ""
        inside = f"in {span.name}" if span.name else ""
        return ", ".join(p for p in (node.name, inside, place) if p)


def module_path(node: Node) -> str:
    """The path of the innermost module, without torch's own prefix; "" for the root."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")
