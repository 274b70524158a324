"""``@R.macro``: statements that the parser inserts where the macro is called.

The body is parsed anew at each call, into the bindings of the function that calls it, and what it
returns is the value of the call. A hygienic macro sees its parameters and what its definition
could name; another sees the names of its caller.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from relax2xla.errors import DiagnosticError
from relax2xla.script.evaluate import Evaluator, Scope
from relax2xla.script.markers import Decorator, Macro
from relax2xla.script.source import Source

if TYPE_CHECKING:
    from relax2xla.script.functions import FunctionParser

# A macro that calls itself never ends.
MAX_DEPTH: Final = 64


def macro_in_text(parser: FunctionParser, node: ast.FunctionDef) -> Macro | None:
    """The macro that a function of a text defines; None if it is no macro."""
    if len(node.decorator_list) != 1:
        return None
    decorator = node.decorator_list[0]
    call = decorator if isinstance(decorator, ast.Call) else None
    kind = parser.value(decorator if call is None else call.func)
    if not isinstance(kind, Decorator) or kind.name != "R.macro":
        return None
    hygienic = True
    for k in [] if call is None else call.keywords:
        value = parser.value(k.value)
        if k.arg != "hygienic" or not isinstance(value, bool):
            parser.source.fail(k, "@R.macro has one option: hygienic=True or hygienic=False")
        hygienic = value
    if call is not None and call.args:
        parser.source.fail(call.args[0], "options of @R.macro are given by keyword")
    a = node.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs:
        parser.source.fail(node, "a macro in a text takes plain parameters only")
    first = len(a.args) - len(a.defaults)
    kind_of = inspect.Parameter.POSITIONAL_OR_KEYWORD
    params = [
        inspect.Parameter(p.arg, kind_of)
        if i < first
        else inspect.Parameter(p.arg, kind_of, default=parser.value(a.defaults[i - first]))
        for i, p in enumerate(a.args)
    ]
    names = {**parser.outside, **parser.scope.names}
    return Macro(node, parser.source, inspect.Signature(params), names, hygienic)


@contextmanager
def inside(
    parser: Evaluator, macro: Macro, node: ast.Call, args: list[Any], kwargs: dict[str, Any]
) -> Generator[None]:
    """``parser`` reads the body of ``macro(*args, **kwargs)``, which stands at ``node``.

    Errors show the macro's own line, with a note that says where it is used.
    """
    name = macro.node.name
    if parser.depth_of_macros >= MAX_DEPTH:
        parser.source.fail(node, f"the macro {name!r} calls itself without end")
    try:
        bound = macro.signature.bind(*args, **kwargs)
    except TypeError as e:
        parser.source.fail(node, f"the macro {name!r}: {e}", e)
    bound.apply_defaults()
    saved: tuple[Source, Mapping[str, Any], Scope] = parser.source, parser.outside, parser.scope
    place = parser.source.span(node)
    if macro.hygienic:
        parser.scope, parser.outside = Scope(None), macro.outside
    else:
        parser.scope = Scope(parser.scope)
    parser.source = macro.source
    parser.depth_of_macros += 1
    parser.scope.names.update(bound.arguments)
    try:
        yield
    except DiagnosticError as e:
        e.add_note(f"in the macro {name!r}, used at {place.file}:{place.line}:{place.column}")
        raise
    finally:
        parser.source, parser.outside, parser.scope = saved
        parser.depth_of_macros -= 1


def expand(
    parser: FunctionParser, macro: Macro, node: ast.Call, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The value of ``macro(*args, **kwargs)``; its statements become bindings of the caller."""
    with inside(parser, macro, node, args, kwargs):
        return _value(parser, macro.node)


def _value(parser: FunctionParser, node: ast.FunctionDef) -> Any:
    *body, last = node.body
    for s in body:
        if isinstance(s, ast.Return):
            parser.source.fail(s, "only the last statement of a macro may be a return")
        parser.statement(s)
    if not isinstance(last, ast.Return) or last.value is None:
        parser.source.fail(last, f"the macro {node.name!r} must end with `return value`")
    return parser.value(last.value)
