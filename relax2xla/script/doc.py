"""Python programs as trees, to be printed: the classes of ``tvm.script.printer.doc``.

What builds a text for people puts these together; ``doc_printer.to_python_script`` writes it.
Equality is by identity. ``source_paths`` of a doc say which parts of a program it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

from relax2xla.ir.object_path import ObjectPath


class Doc:
    """Base class."""

    def __init__(self) -> None:
        self._source_paths: tuple[ObjectPath, ...] = ()

    @property
    def source_paths(self) -> tuple[ObjectPath, ...]:
        """Which parts of a program this shows."""
        return self._source_paths

    @source_paths.setter
    def source_paths(self, value: Sequence[ObjectPath]) -> None:
        self._source_paths = tuple(value)


class ExprDoc(Doc):
    """An expression."""

    def attr(self, name: str) -> AttrAccessDoc:
        """``self.name``"""
        return AttrAccessDoc(self, name)

    def call(self, *args: ExprDoc, **kwargs: ExprDoc) -> CallDoc:
        """``self(*args, **kwargs)``"""
        return CallDoc(self, *args, **kwargs)

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> IndexDoc:
        return IndexDoc(self, list(indices) if isinstance(indices, tuple) else [indices])

    def __iter__(self) -> Any:
        # Indexing would make it one without an end.
        raise RuntimeError(f"{type(self).__name__} cannot be iterated")


class StmtDoc(Doc):
    """A statement; ``comment`` stands beside or above it."""

    def __init__(self, comment: str | None = None) -> None:
        super().__init__()
        self._comment = comment

    @property
    def comment(self) -> str | None:
        """The comment, None for none."""
        return self._comment

    @comment.setter
    def comment(self, value: str | None) -> None:
        self._comment = value


# -- expressions ---------------------------------------------------------------------------------
class LiteralDoc(ExprDoc):
    """None, a string, a number or a truth."""

    def __init__(self, value: str | float | bool | None, path: ObjectPath | None = None) -> None:
        super().__init__()
        if value is not None and not isinstance(value, str | int | float):
            raise TypeError(
                f"LiteralDoc holds None, a string or a number; got {type(value).__name__}"
            )
        self.value = value
        if path is not None:
            self.source_paths = [path]


class IdDoc(ExprDoc):
    """A name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class AttrAccessDoc(ExprDoc):
    """``value.name``"""

    def __init__(self, value: ExprDoc, name: str) -> None:
        super().__init__()
        self.value, self.name = value, name


class SliceDoc(Doc):
    """``start:stop:step`` between brackets."""

    def __init__(
        self, start: ExprDoc | None = None, stop: ExprDoc | None = None, step: ExprDoc | None = None
    ) -> None:
        super().__init__()
        self.start, self.stop, self.step = start, stop, step


Index: TypeAlias = ExprDoc | SliceDoc


class IndexDoc(ExprDoc):
    """``value[indices]``"""

    def __init__(self, value: ExprDoc, indices: Sequence[Index]) -> None:
        super().__init__()
        self.value, self.indices = value, tuple(indices)


class CallDoc(ExprDoc):
    """``callee(*args, **kwargs)``"""

    def __init__(self, callee: ExprDoc, *args: ExprDoc, **kwargs: ExprDoc) -> None:
        super().__init__()
        self.callee, self.args = callee, args
        self.kwargs_keys, self.kwargs_values = tuple(kwargs), tuple(kwargs.values())


class OperationKind(IntEnum):
    """Operators of Python, under the names of ``ast``; numbered as TVM numbers them."""

    _UnaryStart = 0
    USub = 1
    Invert = 2
    Not = 3
    _UnaryEnd = 4
    _BinaryStart = 5
    Add = 6
    Sub = 7
    Mult = 8
    Div = 9
    FloorDiv = 10
    Mod = 11
    Pow = 12
    LShift = 13
    RShift = 14
    BitAnd = 15
    BitOr = 16
    BitXor = 17
    Lt = 18
    LtE = 19
    Eq = 20
    NotEq = 21
    Gt = 22
    GtE = 23
    And = 24
    Or = 25
    _BinaryEnd = 26
    _SpecialStart = 27
    IfThenElse = 28
    _SpecialEnd = 29


class OperationDoc(ExprDoc):
    """An operator and its operands; IfThenElse has the condition first."""

    def __init__(self, kind: OperationKind, operands: Sequence[ExprDoc]) -> None:
        super().__init__()
        self.kind, self.operands = OperationKind(kind), tuple(operands)


class LambdaDoc(ExprDoc):
    """``lambda args: body``"""

    def __init__(self, args: Sequence[IdDoc], body: ExprDoc) -> None:
        super().__init__()
        self.args, self.body = tuple(args), body


class TupleDoc(ExprDoc):
    """``(elements)``"""

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        super().__init__()
        self.elements = tuple(elements)


class ListDoc(ExprDoc):
    """``[elements]``"""

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        super().__init__()
        self.elements = tuple(elements)


class DictDoc(ExprDoc):
    """``{key: value}``"""

    def __init__(self, content: Mapping[ExprDoc, ExprDoc]) -> None:
        super().__init__()
        self.keys, self.values = tuple(content), tuple(content.values())


# -- statements ----------------------------------------------------------------------------------
class StmtBlockDoc(Doc):
    """Statements one after the other."""

    def __init__(self, stmts: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.stmts = tuple(stmts)


class AssignDoc(StmtDoc):
    """``lhs: annotation = rhs``, of which one of annotation and rhs may be left out."""

    def __init__(
        self, lhs: ExprDoc, rhs: ExprDoc | None = None, annotation: ExprDoc | None = None
    ) -> None:
        super().__init__()
        if rhs is None and annotation is None:
            raise ValueError("AssignDoc: expected rhs, annotation or both")
        if annotation is not None and not isinstance(lhs, IdDoc):
            raise ValueError("AssignDoc: only a name can be annotated (lhs is no IdDoc)")
        self.lhs, self.rhs, self.annotation = lhs, rhs, annotation


class IfDoc(StmtDoc):
    """``if predicate: then_branch else: else_branch``; one of the branches may be empty."""

    def __init__(
        self,
        predicate: ExprDoc,
        then_branch: Sequence[StmtDoc],
        else_branch: Sequence[StmtDoc] | None = None,
    ) -> None:
        super().__init__()
        if not then_branch and not else_branch:
            raise ValueError("IfDoc: both branches are empty")
        self.predicate = predicate
        self.then_branch, self.else_branch = tuple(then_branch), tuple(else_branch or ())


class WhileDoc(StmtDoc):
    """``while predicate: body``"""

    def __init__(self, predicate: ExprDoc, body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.predicate, self.body = predicate, tuple(body)


class ForDoc(StmtDoc):
    """``for lhs in rhs: body``"""

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.lhs, self.rhs, self.body = lhs, rhs, tuple(body)


class ScopeDoc(StmtDoc):
    """``with rhs as lhs: body``; without ``lhs`` nothing is named."""

    def __init__(self, lhs: ExprDoc | None, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.lhs, self.rhs, self.body = lhs, rhs, tuple(body)


class ExprStmtDoc(StmtDoc):
    """An expression as a statement."""

    def __init__(self, expr: ExprDoc) -> None:
        super().__init__()
        self.expr = expr


class AssertDoc(StmtDoc):
    """``assert test, msg``"""

    def __init__(self, test: ExprDoc, msg: ExprDoc | None = None) -> None:
        super().__init__()
        self.test, self.msg = test, msg


class ReturnDoc(StmtDoc):
    """``return value``"""

    def __init__(self, value: ExprDoc) -> None:
        super().__init__()
        self.value = value


class FunctionDoc(StmtDoc):
    """``def name(args) -> return_type: body``; the comment is its docstring."""

    def __init__(
        self,
        name: IdDoc,
        args: Sequence[AssignDoc],
        decorators: Sequence[ExprDoc],
        return_type: ExprDoc | None,
        body: Sequence[StmtDoc],
    ) -> None:
        super().__init__()
        self.name, self.args, self.decorators = name, tuple(args), tuple(decorators)
        self.return_type, self.body = return_type, tuple(body)


class ClassDoc(StmtDoc):
    """``class name: body``; the comment is its docstring."""

    def __init__(self, name: IdDoc, decorators: Sequence[ExprDoc], body: Sequence[StmtDoc]) -> None:
        super().__init__()
        self.name, self.decorators, self.body = name, tuple(decorators), tuple(body)


class CommentDoc(StmtDoc):
    """Lines of a comment of their own."""

    def __init__(self, comment: str) -> None:
        super().__init__(comment)


class DocStringDoc(StmtDoc):
    """A docstring."""

    def __init__(self, docs: str) -> None:
        super().__init__(docs)
