"""Ways into the parser: ``from_source`` for texts, decorators for definitions in Python files."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import types
from collections import ChainMap
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from relax2xla import ir, tir
from relax2xla.errors import DiagnosticError
from relax2xla.ir.diagnostics import reported
from relax2xla.script.ir_names import ir as I
from relax2xla.script.markers import Macro
from relax2xla.script.parser import Parser
from relax2xla.script.relax_names import relax as R
from relax2xla.script.source import Source
from relax2xla.script.tir_names import tir as T

_HERE = os.path.dirname(os.path.abspath(__file__))


def from_source(
    program: str | type | types.FunctionType,
    extra_vars: Mapping[str, Any] | None = None,
    check_well_formed: bool = True,
    *,
    filename: str = "<str>",
) -> ir.IRModule | ir.Function | tir.PrimFunc:
    """The module or function that a text (or a class or function with source) describes.

    The text is parsed and never executed. ``extra_vars`` are Python values that it may name beside
    ``I``, ``R`` and ``T``; ``filename`` is shown in errors. Raises DiagnosticError, which shows the
    place; ``check_well_formed`` adds the rules of ``relax2xla.ir.check``.
    """
    if not isinstance(program, str):
        return _definition(program, _caller(), extra_vars or {}, check_well_formed)
    source = Source(program, filename)
    tree = source.parse()
    with reported(), ir.no_collection(), source.shallow(tree):
        return Parser(source, extra_vars or {}, check_well_formed).text(tree)


def decorate_function(
    func: Any, private: bool = False, pure: bool = True, check_well_formed: bool = True
) -> Any:
    """``@R.function`` outside of a class: the Function. Inside, the class's decorator parses it.

    The options are read from the source, as the parser sees them.
    """
    frame = _caller()
    # The body of a class is the one place where both names are local.
    if "__qualname__" in frame.f_locals and "__module__" in frame.f_locals:
        return func
    return _definition(func, frame, {})


def decorate_kernel(
    func: Any, private: bool = False, check_well_formed: bool = True, s_tir: bool = False
) -> Any:
    """``@T.prim_func``: the PrimFunc, as :func:`decorate_function` makes a Function."""
    return decorate_function(func, private, True, check_well_formed)


def decorate_module(cls: type, check_well_formed: bool = True, s_tir: bool = False) -> ir.IRModule:
    """``@I.ir_module``: the IRModule of a class. Its options are read from the source."""
    made = _definition(cls, _caller(), {})
    if not isinstance(made, ir.IRModule):
        raise TypeError(f"I.ir_module decorates a class; got {type(cls).__name__}")
    return made


def decorate_macro(func: Any, hygienic: bool = True) -> Macro:
    """``@R.macro``: statements to insert where the macro is called.

    ``hygienic``: the body sees what its definition could name, with the values of that time; else
    what its callers can name.
    """
    if not isinstance(func, types.FunctionType):
        # A ValueError, as TVM's, where the options are given without their names.
        raise ValueError(
            f"R.macro decorates a function; got {type(func).__name__}. Options have names: "
            "@R.macro(hygienic=False)"
        )
    if not isinstance(hygienic, bool):
        raise TypeError("R.macro: hygienic must be True or False; write @R.macro(hygienic=False)")
    node, source, outside = _located(func, _caller(), {})
    if not isinstance(node, ast.FunctionDef):
        raise TypeError("R.macro decorates a function; got a class")
    return Macro(node, source, inspect.signature(func), dict(outside), hygienic)


def decorate_rewriter(rewriter_mod: Any) -> Any:
    """``@R.rewriter``: a PatternMatchingRewriter of a class with ``pattern`` and ``replacement``.

    An IRModule is taken as well.
    """
    made = rewriter_mod
    if not isinstance(made, ir.IRModule):
        made = _definition(rewriter_mod, _caller(), {})
    if not isinstance(made, ir.IRModule):
        raise TypeError(f"R.rewriter decorates a class; got {type(rewriter_mod).__name__}")
    from relax2xla.dpl.rewrite import PatternMatchingRewriter

    return PatternMatchingRewriter.from_module(made)


def _caller() -> types.FrameType:
    """The frame that uses a decorator of this package."""
    frame = inspect.currentframe()
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == _HERE:
        frame = frame.f_back
    if frame is None:
        raise RuntimeError("a decorator of TVMScript was called from nowhere")
    return frame


def _definition(
    thing: Any, frame: types.FrameType, extra: Mapping[str, Any], check: bool = True
) -> ir.IRModule | ir.Function | tir.PrimFunc:
    node, source, outside = _located(thing, frame, extra)
    with reported(), source.shallow(node):
        return Parser(source, outside, check, numpy=True).definition(node)


def _located(
    thing: Any, frame: types.FrameType, extra: Mapping[str, Any]
) -> tuple[ast.ClassDef | ast.FunctionDef, Source, Mapping[str, Any]]:
    """The definition of a class or function, the file that has it, and what it can name."""
    if isinstance(thing, types.FunctionType):
        code = thing.__code__
        filename, line = code.co_filename, code.co_firstlineno
        cells = zip(code.co_freevars, thing.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
        module_names = thing.__globals__
    elif isinstance(thing, type):
        filename, line = frame.f_code.co_filename, frame.f_lineno
        closure = {}
        module_names = frame.f_globals
    else:
        raise TypeError(f"TVMScript is a text, a class or a function; got {type(thing).__name__}")
    text = "".join(linecache.getlines(filename, frame.f_globals))
    node = _find(text, filename, thing.__name__, line, isinstance(thing, type)) if text else None
    if node is None:
        raise DiagnosticError(
            f"the source of {thing.__qualname__!r} is not available (defined in {filename}); "
            "define it in a file, or give its text to relax2xla.script.from_source"
        )
    outside = ChainMap(dict(extra), closure, dict(frame.f_locals), module_names)
    return node, Source(text, filename), outside


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False  # the enclosing function has not assigned it yet
    return True


@lru_cache(maxsize=16)
def _definitions(text: str, filename: str) -> dict[str, list[ast.ClassDef | ast.FunctionDef]]:
    """All classes and functions of a file by name; parsing it once serves all its programs."""
    found: dict[str, list[ast.ClassDef | ast.FunctionDef]] = {}
    for node in ast.walk(Source(text, filename).parse()):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def _find(
    text: str, filename: str, name: str, line: int, is_class: bool
) -> ast.ClassDef | ast.FunctionDef | None:
    """The definition of ``name`` around ``line``; the innermost if there are several."""
    best: ast.ClassDef | ast.FunctionDef | None = None
    for node in _definitions(text, filename).get(name, []):
        if isinstance(node, ast.ClassDef) is not is_class:
            continue
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if first <= line <= (node.end_lineno or first) and (best is None or first >= best.lineno):
            best = node
    if best is None and is_class:
        # Given to from_source as an object, far from its definition.
        same = [
            n for n in _definitions(text, filename).get(name, []) if isinstance(n, ast.ClassDef)
        ]
        best = same[0] if len(same) == 1 else None
    return best


I.ir_module.given(decorate_module)
R.function.given(decorate_function)
R.macro.given(decorate_macro)
R.rewriter.given(decorate_rewriter)
T.prim_func.given(decorate_kernel)
T.macro.given(decorate_macro)
