"""What a program was traced under: conditions on sizes, beyond the ranges of each.

Where Python code branches on sizes (``if x.shape[0] > x.shape[1]``), the program is the branch that
was taken, and torch keeps the condition as text: ``L['x'].size()[0] > L['x'].size()[1]``. Where it
computes with floats (``int(x.shape[0] / 3)``), the program is often for one value of the result.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from typing import Any

from torch.export import ExportedProgram

from relax2xla import syntax, tir
from relax2xla.importers.torch.source.torch_internals import guards_of, pytree
from relax2xla.script.arithmetic import arithmetic

#: How a tensor lies in memory, which no Relax tensor has.
LAYOUT = re.compile(r"\._base\b|\.stride\(\)|\.storage_offset\(\)")

#: Python's floats.
FLOAT = "T.float64({})"


def _trunc(number: str) -> str:
    return f"T.int64({number})"


def _floor(number: str) -> str:
    whole = _trunc(number)
    return f"T.if_then_else({FLOAT.format(whole)} > {number}, {whole} - 1, {whole})"


def _ceil(number: str) -> str:
    return f"(0 - {_floor(f'(0.0 - {number})')})"


def _round(number: str) -> str:
    # Floats next to it are whole: the sum is rounded to the nearest, of two to the even one.
    return _trunc(f"({number} + {1.5 * 2**52} - {1.5 * 2**52})")


#: Whole numbers of floats, by what torch calls the functions that make them.
WHOLE = {"math.trunc": _trunc, "math.floor": _floor, "math.ceil": _ceil, "round": _round}

#: The larger and the smaller one, as releases of torch spell them.
EXTREMA = {"max": "max", "min": "min", "torch.sym_max": "max", "torch.sym_min": "min"}

Condition = Callable[[Callable[[int, int], tir.Dim]], Any]


def conditions(program: ExportedProgram) -> list[Condition]:
    """The conditions of a program, each a function of "the size of input i along axis a".

    Those on memory do not matter here; one of something else than sizes of inputs gives a warning.
    """
    found: list[Condition] = []
    texts = guards_of(program)
    inputs = _inputs(program) if texts else {}
    for text in texts:
        if LAYOUT.search(text):
            continue
        try:
            tree = _Sizes(inputs).visit(syntax.parse(text, mode="eval").body)
            _value(tree, lambda i, a: tir.Var("n", "int64"))
        except (SyntaxError, ValueError, TypeError) as e:
            warnings.warn(
                f"the program is for arguments with `{text}`, which is not checked: {e}",
                stacklevel=2,
            )
            continue
        found.append(lambda size, tree=tree: _value(tree, size))
    return found


def _value(tree: ast.expr, size: Callable[[int, int], tir.Dim]) -> Any:
    def resolve(name: str) -> tir.Dim:
        _, i, a = name.split("_")
        return size(int(i), int(a))

    return arithmetic(tree, resolve)


def _inputs(program: ExportedProgram) -> dict[str, int]:
    """The number of each input among the flattened ones, by what conditions call it."""
    spec = program.call_spec.in_spec
    signature = program.module_call_graph[0].signature
    if spec is None or signature is None or program.example_inputs is None:
        return {}
    names = signature.forward_arg_names or []
    # A class that was registered (a cache) may be made of tensors alone: it is taken as it was
    # given. Arguments by name are flattened in the order of the specification.
    args, kwargs = program.example_inputs
    tree = args, {name: kwargs[name] for name in spec.child(1).context}
    found: dict[str, int] = {}
    leaves: list[tuple[Any, Any]] = pytree.tree_flatten_with_path(tree)[0]
    for leaf, ((kind, key, *rest), _) in enumerate(leaves):
        # Arguments by place, then those by name.
        root = key.key if kind.idx else names[key.idx] if key.idx < len(names) else ""
        inside = pytree.keystr(tuple(rest))
        texts = [f"L['{root}']{inside}", f"L['flat_args'][{leaf}]"]
        if several := re.fullmatch(r"(.+)_(\d+)", root):
            texts.append(f"L['{several[1]}'][{several[2]}]{inside}")
        found.update({ast.unparse(syntax.parse(t, mode="eval")): leaf for t in texts})
    return found


class _Sizes(ast.NodeTransformer):
    """``L['x'].size()[0]`` becomes the name ``size_0_0``, Python's functions those of TVMScript."""

    def __init__(self, inputs: dict[str, int]) -> None:
        self.inputs = inputs

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=source, attr="size"), args=[]),
                slice=ast.Constant(value=int() as axis),
            ):
                place = self.inputs.get(ast.unparse(source))
                if place is not None:
                    return ast.Name(f"size_{place}_{axis}", ast.Load())
            case _:
                pass
        raise ValueError(f"`{ast.unparse(node)}` is no size of an input")

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Div):
            left, right = (_parsed(FLOAT.format(ast.unparse(x))) for x in (left, right))
        return ast.BinOp(left, node.op, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        if name in EXTREMA:
            args = ", ".join(ast.unparse(self.visit(a)) for a in node.args)
            return _parsed(f"T.{EXTREMA[name]}({args})")
        if len(node.args) == 1 and name in ("torch.sym_float", *WHOLE):
            number = FLOAT.format(ast.unparse(self.visit(node.args[0])))
            return _parsed(WHOLE[name](number) if name in WHOLE else number)
        raise ValueError(f"`{ast.unparse(node)}` is no arithmetic on sizes")


def _parsed(text: str) -> ast.expr:
    return syntax.parse(text, mode="eval").body
