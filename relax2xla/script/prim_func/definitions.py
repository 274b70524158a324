"""Names in the text of a loop-level function: where each is defined, and what declares buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from relax2xla import tir
from relax2xla.script.literals import quote
from relax2xla.script.marks import Marks
from relax2xla.script.names import Names
from relax2xla.script.prim_func.expression_text import ExpressionText
from relax2xla.script.prim_func.implied import common_paths
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, PointerVar
from relax2xla.tir.functor import free_vars


@dataclass(slots=True)
class _Frame:
    """Lines of an open statement; ``node`` is the statement, None for the function."""

    node: object
    lines: list[str] = field(default_factory=list[str])


class Definitions:
    """Frames of lines, and the names that are defined in them.

    What nothing defines before its first use is defined in the innermost frame that holds all its
    uses. The settings are those of ``PrimFuncPrinter``.
    """

    def __init__(
        self,
        prefix: Callable[[], str],
        attribute: Callable[[Any], str],
        function: Callable[[str], str],
        *,
        step: str = "    ",
        reserved: Sequence[str] = (),
        sugar: bool = True,
        block: str = "block",
        marks: Marks | None = None,
    ) -> None:
        self.marks = marks
        self.t = prefix
        self._attribute = attribute
        self.names = Names(reserved)
        # Variables that are parts of a buffer and have no name of their own, such as ``A.data``.
        self.parts: dict[int, tuple[Buffer, str]] = {}
        self.step = step
        self.sugar = sugar
        self.block_word = block
        self.frames: list[_Frame] = []
        self.loops: dict[tir.Var, s.For] = {}
        self.expr = ExpressionText(prefix, self.var, self.buffer, function, marks)
        self.root: s.Stmt | None = None
        self.paths: dict[int, list[object]] | None = None

    # -- frames ----------------------------------------------------------------------------------
    @contextmanager
    def _frame(self, node: object) -> Generator[_Frame]:
        frame = _Frame(node)
        self.frames.append(frame)
        try:
            yield frame
        finally:
            self.frames.pop()

    def _line(self, text: str) -> None:
        self.frames[-1].lines.append(text)

    def _inner(self, node: object, body: Callable[[], None]) -> list[str]:
        """The lines that ``body`` writes in a frame of its own, indented."""
        with self.names.scope(), self._frame(node) as frame:
            body()
        return [self.step + line for line in frame.lines]

    # -- names -----------------------------------------------------------------------------------
    def _known(self, thing: object) -> bool:
        return id(thing) in self.names.of or id(thing) in self.parts

    def _define(self, var: tir.Var, frame: _Frame | None = None) -> str:
        known = self.names.of.get(id(var))
        if known is not None:
            return known
        hoist = frame is not None and frame is not self.frames[-1]
        return self.names.define(var, var.name or "v", hoist=hoist)

    def _define_buffer(self, buffer: Buffer, hoist: bool = False) -> str:
        return self.names.define(buffer, buffer.name or "buffer", hoist=hoist)

    def var(self, var: tir.Var) -> str:
        """The name of a variable; one that nothing defines is defined where all its uses see it."""
        known = self.names.of.get(id(var))
        if known is not None:
            return known
        if id(var) in self.parts:
            buffer, part = self.parts[id(var)]
            return f"{self.buffer(buffer)}.{part}"
        frame = self._lowest(var)
        name = self._define(var, frame)
        frame.lines.append(f"{name} = {self._created(var)}")
        return name

    def buffer(self, buffer: Buffer) -> str:
        """The name of a buffer; one that nothing declares is declared where all its uses see it."""
        known = self.names.of.get(id(buffer))
        if known is not None:
            return known
        frame = self._lowest(buffer)
        name = self._define_buffer(buffer, hoist=frame is not self.frames[-1])
        self.frames.append(frame)
        call = self._buffer_call("Buffer", buffer, [], own_data=True)
        self.frames.pop()
        frame.lines.append(f"{name} = {call}")
        return name

    def _created(self, var: tir.Var) -> str:
        size = "is_size_var=True" if isinstance(var, tir.SizeVar) else ""
        if isinstance(var, PointerVar):
            return f"{self.t()}.handle({quote(var.element)}, {quote(var.scope)})"
        return f"{self.t()}.{var.dtype}({size})"

    def _type(self, var: tir.Var) -> str:
        """The annotation of a variable."""
        if isinstance(var, PointerVar):
            return f"{self.t()}.handle({quote(var.element)}, {quote(var.scope)})"
        return f"{self.t()}.{var.dtype}"

    def _lowest(self, thing: object) -> _Frame:
        """The innermost open frame that holds all uses of ``thing``."""
        path = {id(x) for x in self._path(thing)}
        for frame in reversed(self.frames):
            if frame.node is None or id(frame.node) in path:
                return frame
        return self.frames[0]

    def _holds_all(self, node: s.Stmt, var: tir.Var) -> bool:
        return any(x is node for x in self._path(var))

    def _path(self, thing: object) -> list[object]:
        if self.paths is None:
            self.paths = {} if self.root is None else common_paths(self.root)
        return self.paths.get(id(thing), [])

    # -- buffers ---------------------------------------------------------------------------------
    def _alloc(self, buffer: Buffer) -> None:
        shown = self._define_buffer(buffer)
        word = "sblock_alloc_buffer" if self.block_word == "sblock" else "alloc_buffer"
        call = self._buffer_call(word, buffer, [], own_data=True)
        self._line(f"{shown} = {call}")

    def _own_pointer(self, buffer: Buffer) -> None:
        if not self._known(buffer.data):
            self.parts[id(buffer.data)] = buffer, "data"

    def _buffer_call(self, method: str, buffer: Buffer, args: list[str], *, own_data: bool) -> str:
        """``T.method(...)`` with the options in which ``buffer`` differs from a plain one."""
        uses = Counter(
            v
            for d in (*buffer.shape, *buffer.strides, buffer.elem_offset, buffer.data)
            for v in free_vars(d)
        )
        new: list[tir.Var] = []
        later: list[tuple[tir.Var, str]] = []

        def declare(var: tir.Var) -> None:
            self._define(var)
            new.append(var)

        for d in buffer.shape:
            if isinstance(d, tir.Var) and not self._known(d):
                declare(d)
        shape = self._tuple([self.expr.dim(d) for d in buffer.shape])
        args = [*args, shape]
        if buffer.dtype != "float32":
            args.append(quote(buffer.dtype))
        if not self._known(buffer.data):
            if own_data and uses[buffer.data] == 1:
                later.append((buffer.data, "data"))
            else:
                declare(buffer.data)
                args.append(f"data={self.var(buffer.data)}")
        else:
            args.append(f"data={self.var(buffer.data)}")
        if buffer.strides:
            steps: list[str] = []
            for i, d in enumerate(buffer.strides):
                if isinstance(d, tir.Var) and not self._known(d):
                    if uses[d] == 1:
                        later.append((d, f"strides[{i}]"))
                        steps.append(quote(d.name))
                        continue
                    declare(d)
                steps.append(self.expr.dim(d))
            args.append(f"strides={self._tuple(steps)}")
        offset, factor = buffer.elem_offset, False
        if isinstance(offset, tir.Var) and not self._known(offset):
            if uses[offset] == 1:
                later.append((offset, "elem_offset"))
            else:
                declare(offset)
            factor = True
        elif offset != 0:
            args.append(f"elem_offset={self.expr.dim(offset)}")
        if buffer.scope != "global":
            args.append(f"scope={quote(buffer.scope)}")
        if buffer.data_alignment != 64:
            args.append(f"align={buffer.data_alignment}")
        if factor or buffer.offset_factor != 1:
            args.append(f"offset_factor={buffer.offset_factor}")
        if buffer.buffer_type != "default":
            args.append(f"buffer_type={quote(buffer.buffer_type)}")
        if buffer.axis_separators:
            args.append(f"axis_separators=[{', '.join(map(str, buffer.axis_separators))}]")
        if new:
            names = ", ".join(self.var(v) for v in new)
            self._line(f"{names} = {', '.join(map(self._created, new))}")
        self.parts.update((id(var), (buffer, part)) for var, part in later)
        return f"{self.t()}.{method}({', '.join(args)})"

    def _tuple(self, texts: Sequence[str], brackets: bool = False) -> str:
        if brackets:
            return f"[{', '.join(texts)}]"
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
