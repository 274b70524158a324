"""Texts of docs, with parts underlined: ``tvm.script.printer.doc_printer``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from relax2xla.ir.object_path import ObjectPath
from relax2xla.script import doc as d
from relax2xla.script.doc import OperationKind as K
from relax2xla.script.literals import float_text
from relax2xla.script.marks import marked

# Python's precedences, the weakest first.
(_LAMBDA, _CHOICE, _OR, _AND, _NOT, _COMPARE, _BIT_OR, _BIT_XOR, _BIT_AND, _SHIFT) = range(10)
_SUM, _PRODUCT, _UNARY, _POWER, _ATOM = range(10, 15)
_UNARIES: Final = {K.USub: ("-", _UNARY), K.Invert: ("~", _UNARY), K.Not: ("not ", _NOT)}
_BINARIES: Final = {
    K.Add: ("+", _SUM),
    K.Sub: ("-", _SUM),
    K.Mult: ("*", _PRODUCT),
    K.Div: ("/", _PRODUCT),
    K.FloorDiv: ("//", _PRODUCT),
    K.Mod: ("%", _PRODUCT),
    K.Pow: ("**", _POWER),
    K.LShift: ("<<", _SHIFT),
    K.RShift: (">>", _SHIFT),
    K.BitAnd: ("&", _BIT_AND),
    K.BitOr: ("|", _BIT_OR),
    K.BitXor: ("^", _BIT_XOR),
    K.Lt: ("<", _COMPARE),
    K.LtE: ("<=", _COMPARE),
    K.Eq: ("==", _COMPARE),
    K.NotEq: ("!=", _COMPARE),
    K.Gt: (">", _COMPARE),
    K.GtE: (">=", _COMPARE),
    K.And: ("and", _AND),
    K.Or: ("or", _OR),
}
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_python_script(
    doc: d.Doc,
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[ObjectPath] | None = None,
) -> str:
    """The text of ``doc`` as Python.

    Docs that show one of ``path_to_underline``, or the longest way towards it, are underlined;
    ``num_context_lines`` keeps so many lines around them only (None and -1: all). ValueError for
    comments of several lines beside a statement.
    """
    printer = _Printer(indent_spaces)
    printer.doc(doc)
    text = "".join(printer.parts).rstrip()
    spans = printer.underlined(path_to_underline or ())
    return marked(text, spans, print_line_numbers, num_context_lines)


class _Printer:
    def __init__(self, indent: int) -> None:
        self.step = " " * indent
        self.depth = 0
        self.parts: list[str] = []
        self.length = 0
        self.shown: list[tuple[int, int, Sequence[ObjectPath]]] = []

    def underlined(self, paths: Sequence[ObjectPath]) -> list[tuple[int, int]]:
        """Where the docs stand that come closest to each path."""
        found: list[tuple[int, int]] = []
        for path in paths:
            near = [
                (len(p), start, end)
                for start, end, shown in self.shown
                for p in shown
                if p.is_prefix_of(path)
            ]
            best = max((n for n, _, _ in near), default=0)
            found += [(start, end) for n, start, end in near if n == best]
        return found

    # -- text ------------------------------------------------------------------------------------
    def put(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def new_line(self) -> None:
        self.put("\n" + self.step * self.depth)

    def doc(self, doc: d.Doc) -> None:
        """Any doc, and where it stands."""
        start = self.length
        match doc:
            case d.StmtBlockDoc():
                self.statements(doc.stmts)
            case d.SliceDoc():
                self.slice(doc)
            case d.StmtDoc():
                self.statement(doc)
            case d.ExprDoc():
                self.expression(doc)
            case _:
                raise TypeError(f"expected a Doc; got {type(doc).__name__}")
        if doc.source_paths:
            self.shown.append((start, self.length, doc.source_paths))

    def listed(self, docs: Sequence[d.Doc]) -> None:
        for i, x in enumerate(docs):
            if i:
                self.put(", ")
            self.doc(x)

    # -- expressions -----------------------------------------------------------------------------
    def child(self, doc: d.ExprDoc, demanded: int) -> None:
        """An operand, in parentheses where it binds less than is demanded."""
        loose = _precedence(doc) < demanded
        if loose:
            self.put("(")
        self.doc(doc)
        if loose:
            self.put(")")

    def expression(self, doc: d.ExprDoc) -> None:
        match doc:
            case d.LiteralDoc():
                self.put(_literal(doc.value))
            case d.IdDoc():
                self.put(doc.name)
            case d.AttrAccessDoc():
                self.child(doc.value, _ATOM)
                self.put(f".{doc.name}")
            case d.IndexDoc():
                self.child(doc.value, _ATOM)
                self.put("[")
                if doc.indices:
                    self.listed(doc.indices)
                else:
                    self.put("()")
                self.put("]")
            case d.CallDoc():
                self.child(doc.callee, _ATOM)
                self.put("(")
                self.listed(doc.args)
                for i, (key, value) in enumerate(
                    zip(doc.kwargs_keys, doc.kwargs_values, strict=True)
                ):
                    self.put(f"{', ' if i or doc.args else ''}{key}=")
                    self.doc(value)
                self.put(")")
            case d.OperationDoc():
                self.operation(doc)
            case d.LambdaDoc():
                self.put("lambda ")
                self.listed(doc.args)
                self.put(": ")
                self.child(doc.body, _LAMBDA)
            case d.TupleDoc():
                self.put("(")
                self.listed(doc.elements)
                self.put(",)" if len(doc.elements) == 1 else ")")
            case d.ListDoc():
                self.put("[")
                self.listed(doc.elements)
                self.put("]")
            case d.DictDoc():
                self.put("{")
                for i, (key, value) in enumerate(zip(doc.keys, doc.values, strict=True)):
                    self.put(", " if i else "")
                    self.doc(key)
                    self.put(": ")
                    self.doc(value)
                self.put("}")
            case _:
                raise TypeError(f"a {type(doc).__name__} has no text")

    def operation(self, doc: d.OperationDoc) -> None:
        kind, operands = doc.kind, doc.operands
        wanted = 1 if kind in _UNARIES else 2 if kind in _BINARIES else 3
        if len(operands) != wanted:
            raise ValueError(
                f"OperationDoc: {kind.name} has {wanted} operands, not {len(operands)}"
            )
        if kind in _UNARIES:
            token, own = _UNARIES[kind]
            self.put(token)
            self.child(operands[0], own)
        elif kind in _BINARIES:
            token, own = _BINARIES[kind]
            # Powers group to the right; comparisons would form a chain.
            self.child(operands[0], own + (own in (_POWER, _COMPARE)))
            self.put(f" {token} ")
            self.child(operands[1], _UNARY if own == _POWER else own + 1)
        elif kind is K.IfThenElse:
            # TVM leaves the parentheses of a choice in `yes` out, which Python reads otherwise.
            condition, yes, no = operands
            self.child(yes, _CHOICE + 1)
            self.put(" if ")
            self.child(condition, _CHOICE + 1)
            self.put(" else ")
            self.child(no, _CHOICE + 1)
        else:
            raise ValueError(f"OperationDoc: {kind!r} is no operator")

    def slice(self, doc: d.SliceDoc) -> None:
        if doc.start is not None:
            self.doc(doc.start)
        self.put(":")
        if doc.stop is not None:
            self.doc(doc.stop)
        if doc.step is not None:
            self.put(":")
            self.doc(doc.step)

    def bare(self, doc: d.ExprDoc) -> None:
        """A tuple of several without its parentheses."""
        if isinstance(doc, d.TupleDoc) and len(doc.elements) > 1:
            self.listed(doc.elements)
        else:
            self.doc(doc)

    # -- statements ------------------------------------------------------------------------------
    def statements(self, docs: Sequence[d.StmtDoc]) -> None:
        for i, x in enumerate(docs):
            if i:
                self.new_line()
            self.doc(x)

    def block(self, docs: Sequence[d.StmtDoc], docstring: str | None = None) -> None:
        """An indented block."""
        self.depth += 1
        if docstring:
            self.new_line()
            self.docstring(docstring)
        for i, x in enumerate(docs):
            if i and isinstance(docs[i - 1], d.FunctionDoc):
                self.put("\n")
            self.new_line()
            self.doc(x)
        if not docs:
            self.new_line()
            self.put("pass")
        self.depth -= 1

    def lines(self, lines: Sequence[str]) -> None:
        for i, line in enumerate(lines):
            if i:
                self.put("\n" if not line else "\n" + self.step * self.depth)
            self.put(line)

    def docstring(self, text: str) -> None:
        if text:
            self.lines(['"""', *text.split("\n"), '"""'])

    def above(self, doc: d.StmtDoc) -> None:
        """The comment of a statement with a body."""
        if doc.comment:
            self.lines([f"# {line}" for line in doc.comment.split("\n")])
            self.new_line()

    def beside(self, doc: d.StmtDoc) -> None:
        """The comment of a statement of one line."""
        if doc.comment:
            if "\n" in doc.comment:
                raise ValueError(
                    f"the comment of a {type(doc).__name__} cannot have newlines: {doc.comment!r}"
                )
            self.put(f"  # {doc.comment}")

    def statement(self, doc: d.StmtDoc) -> None:
        match doc:
            case d.CommentDoc():
                if doc.comment:
                    self.lines([f"# {line}" for line in doc.comment.split("\n")])
            case d.DocStringDoc():
                self.docstring(doc.comment or "")
            case d.FunctionDoc() | d.ClassDoc():
                self.definition(doc)
            case d.IfDoc() | d.WhileDoc() | d.ForDoc() | d.ScopeDoc():
                self.above(doc)
                self.compound(doc)
            case _:
                self.simple(doc)
                self.beside(doc)

    def simple(self, doc: d.StmtDoc) -> None:
        match doc:
            case d.AssignDoc():
                self.bare(doc.lhs)
                if doc.annotation is not None:
                    self.put(": ")
                    self.doc(doc.annotation)
                if doc.rhs is not None:
                    self.put(" = ")
                    (self.doc if doc.annotation is not None else self.bare)(doc.rhs)
            case d.ExprStmtDoc():
                self.doc(doc.expr)
            case d.AssertDoc():
                self.put("assert ")
                self.doc(doc.test)
                if doc.msg is not None:
                    self.put(", ")
                    self.doc(doc.msg)
            case d.ReturnDoc():
                self.put("return ")
                self.doc(doc.value)
            case _:
                raise TypeError(f"a {type(doc).__name__} has no text")

    def compound(self, doc: d.IfDoc | d.WhileDoc | d.ForDoc | d.ScopeDoc) -> None:
        match doc:
            case d.IfDoc():
                self.put("if ")
                self.doc(doc.predicate)
                self.put(":")
                self.block(doc.then_branch)
                if doc.else_branch:
                    self.new_line()
                    self.put("else:")
                    self.block(doc.else_branch)
                return
            case d.WhileDoc():
                self.put("while ")
                self.doc(doc.predicate)
            case d.ForDoc():
                self.put("for ")
                self.bare(doc.lhs)
                self.put(" in ")
                self.doc(doc.rhs)
            case d.ScopeDoc():
                self.put("with ")
                self.doc(doc.rhs)
                if doc.lhs is not None:
                    self.put(" as ")
                    self.doc(doc.lhs)
        self.put(":")
        self.block(doc.body)

    def definition(self, doc: d.FunctionDoc | d.ClassDoc) -> None:
        for x in doc.decorators:
            self.put("@")
            self.doc(x)
            self.new_line()
        if isinstance(doc, d.ClassDoc):
            self.put("class ")
            self.doc(doc.name)
        else:
            self.put("def ")
            self.doc(doc.name)
            self.put("(")
            self.listed(doc.args)
            self.put(")")
            if doc.return_type is not None:
                self.put(" -> ")
                self.doc(doc.return_type)
        self.put(":")
        self.block(doc.body, doc.comment)


def _precedence(doc: d.ExprDoc) -> int:
    match doc:
        case d.LambdaDoc():
            return _LAMBDA
        case d.OperationDoc():
            found = _UNARIES.get(doc.kind) or _BINARIES.get(doc.kind)
            return _CHOICE if found is None else found[1]
        case _:
            return _ATOM


def _literal(value: Any) -> str:
    if isinstance(value, str):
        shown = "".join(
            _ESCAPES.get(c, c if c.isprintable() else c.encode("unicode_escape").decode())
            for c in value
        )
        return f'"{shown}"'
    return float_text(value) if isinstance(value, float) else str(value)
