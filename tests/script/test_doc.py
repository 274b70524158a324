"""Docs of Python programs: their texts parse to what they say, and parts are underlined."""

from __future__ import annotations

import ast

import pytest

from relax2xla.ir.object_path import ObjectPath
from relax2xla.script.doc import (
    AssignDoc,
    ClassDoc,
    DictDoc,
    Doc,
    ExprDoc,
    ExprStmtDoc,
    ForDoc,
    FunctionDoc,
    IdDoc,
    IfDoc,
    LambdaDoc,
    LiteralDoc,
    OperationDoc,
    OperationKind,
    ReturnDoc,
    ScopeDoc,
    SliceDoc,
    StmtBlockDoc,
    TupleDoc,
)
from relax2xla.script.doc_printer import to_python_script

X, Y, Z = IdDoc("x"), IdDoc("y"), IdDoc("z")
BINARY = [k for k in OperationKind if OperationKind.Add <= k <= OperationKind.Or]
UNARY = [OperationKind.USub, OperationKind.Invert, OperationKind.Not]


def bracketed(doc: ExprDoc) -> str:
    """The expression with parentheses around each operation."""
    if not isinstance(doc, OperationDoc):
        return to_python_script(doc)
    operands = [IdDoc(f"({bracketed(o)})") for o in doc.operands]
    return to_python_script(OperationDoc(doc.kind, operands))


def test_parentheses_say_the_tree() -> None:
    inner: list[ExprDoc] = [OperationDoc(k, [X, Y]) for k in BINARY]
    inner += [OperationDoc(k, [X]) for k in UNARY]
    inner += [OperationDoc(OperationKind.IfThenElse, [X, Y, Z]), LambdaDoc([X], Y)]
    for one in inner:
        # Python joins `x and y and z` in one node, however they are grouped.
        chain = isinstance(one, OperationDoc) and one.kind in (OperationKind.And, OperationKind.Or)
        docs = [
            OperationDoc(k, [one, Z])
            for k in BINARY
            if not (chain and isinstance(one, OperationDoc) and k is one.kind)
        ]
        docs += [OperationDoc(k, [Z, one]) for k in BINARY]
        docs += [OperationDoc(k, [one]) for k in UNARY]
        for i in range(3):
            operands: list[ExprDoc] = [X, Y, Z]
            operands[i] = one
            docs.append(OperationDoc(OperationKind.IfThenElse, operands))
        for doc in docs:
            text = to_python_script(doc)
            assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(bracketed(doc))), text


def test_statements() -> None:
    body = [
        AssignDoc(TupleDoc([X, Y]), Z[SliceDoc(LiteralDoc(1), None, LiteralDoc(-2)), X]),
        IfDoc(X, [], [ReturnDoc(DictDoc({LiteralDoc('a"\n'): LiteralDoc(None)}))]),
        ForDoc(X, Y.attr("f").call(Z, key=LiteralDoc(0.5)), []),
        ScopeDoc(None, X, [ExprStmtDoc(Y)]),
    ]
    func = FunctionDoc(IdDoc("f"), [AssignDoc(X, LiteralDoc(1), Y)], [Z], LiteralDoc(None), body)
    func.comment = "what\n\nit does"
    text = to_python_script(ClassDoc(IdDoc("C"), [], [func, func]))
    ast.parse(text)
    assert text.startswith('class C:\n    @z\n    def f(x: y = 1) -> None:\n        """\n')
    assert text.count("        if x:\n            pass\n        else:\n") == 2
    with pytest.raises(ValueError, match="IfDoc"):
        IfDoc(X, [], [])
    with pytest.raises(ValueError, match="AssignDoc"):
        AssignDoc(X, None, None)


def lines(count: int) -> Doc:
    found: list[ExprStmtDoc] = []
    for i in range(count):
        name = IdDoc(f"x{i}")
        name.source_paths = [ObjectPath.root().attr("body").array_index(i)]
        found.append(ExprStmtDoc(name))
    return StmtBlockDoc(found)


def test_the_nearest_doc_is_underlined() -> None:
    path = ObjectPath.root().attr("body").array_index(4).attr("value")
    assert to_python_script(
        lines(9), print_line_numbers=True, num_context_lines=1, path_to_underline=[path]
    ) == "\n".join(
        ["(... 3 lines skipped ...)", "4 x3", "5 x4", "  ^^", "6 x5", "(... 3 lines skipped ...)"]
    )
    assert "^" not in to_python_script(lines(3), path_to_underline=[path])
    assert str(path) == "<root>.body[4].value"
