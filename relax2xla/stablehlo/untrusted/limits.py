"""A program's sizes and depth, checked before XLA sees it.

XLA ends the process where they are absurd. Every value of every function is compared with
:mod:`relax2xla.budget`, and regions may lie in each other :data:`DEPTH` times. What the program
needs as a whole is known once it is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from relax2xla import budget
from relax2xla.errors import BudgetError, StableHLOParseError, UnsupportedError
from relax2xla.stablehlo.codecs import dtype_of
from relax2xla.stablehlo.locations import read_location
from relax2xla.stablehlo.mlir import ir

# XLA's own walks overflow their stack between 200 and 400.
DEPTH: Final = 128
# Calls in each other, of functions which may have regions of their own.
CALLS: Final = 64
# Operations of a program once each call is a copy of what it calls; they take 5 to 10 GB.
OPERATIONS: Final = 500_000
# Brackets of text in each other. MLIR's parser overflows its stack at several thousand; a region is
# two of them.
BRACKETS: Final = 1200
# Brackets in strings and comments mean nothing. Strings alone are found much faster.
_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"', re.DOTALL)
_STRING_OR_COMMENT: Final = re.compile(rb'"(?:[^"\\\n]+|\\.)*"|//[^\n]*')
# Labels of two operands and of the result, which may be left out.
_LABELS: Final = r"([A-Za-z]*(?:\.\.\.)?[A-Za-z]*)"
_EINSUM: Final = re.compile(f"{_LABELS},{_LABELS}(?:->{_LABELS})?")
_OPENING: Final = b"([{<"
_CLOSING: Final = b")]}>"
_OTHERS: Final = bytes(b for b in range(256) if b not in _OPENING + _CLOSING)
# By how much each byte changes the depth.
_STEPS: Final = np.zeros(256, np.int8)
_STEPS[list(_OPENING)] = 1
_STEPS[list(_CLOSING)] = -1


def check(module: ir.Module) -> set[str]:
    """BudgetError for a module that XLA would not survive; gives the dtypes of its values."""
    dtypes: set[str] = set()
    fine: set[Any] = set()
    stack = [(module.operation, 0)]
    while stack:
        parent, depth = stack.pop()
        for region in parent.regions:
            if depth > DEPTH:
                raise BudgetError(
                    f"{_place(parent)}: regions lie in each other more than {DEPTH} times, which "
                    "XLA does not survive; make functions of the inner ones"
                )
            for block in region.blocks:
                for argument in block.arguments:
                    if argument.type not in fine:
                        dtypes |= _check_type(argument.type, parent)
                        fine.add(argument.type)
                for op in block.operations:
                    op = op.operation
                    if op.name in _CHECKS:
                        _CHECKS[op.name](op)
                    for value in op.results:
                        if value.type not in fine:
                            dtypes |= _check_type(value.type, op)
                            fine.add(value.type)
                    if len(op.regions):
                        stack.append((op, depth + 1))
    return dtypes


def _check_type(t: ir.Type, op: Any) -> set[str]:
    """BudgetError where a value of type ``t`` is too large; gives its dtypes."""
    if isinstance(t, ir.TupleType):
        return set().union(*(_check_type(t.get_type(i), op) for i in range(t.num_types)))
    if not isinstance(t, ir.RankedTensorType):
        return set()
    dtype = dtype_of(t.element_type)
    budget.check([d for d in t.shape if d >= 0], dtype, f"{_place(op)}: a value")
    return {dtype}


def _check_fft(op: Any) -> None:
    """StableHLOParseError for lengths that are not those of the data, which end the process."""
    lengths = list(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    # The real side has the lengths; the other one has half of the last.
    real = op.results[0] if "IRFFT" in str(op.attributes["fft_type"]) else op.operands[0]
    shape = list(ir.RankedTensorType(real.type).shape)[-len(lengths) :]
    if lengths and lengths != shape and not any(d < 0 for d in shape):
        raise StableHLOParseError(
            f"{_place(op)}: fft_length is {lengths}; the transformed dimensions are {shape}"
        )


def _check_pad(op: Any) -> None:
    """BudgetError where the padding is too large that a negative one takes away again.

    XLA pads first, and cuts then.
    """
    given = ir.RankedTensorType(op.operands[0].type)
    low, high, inner = (
        list(ir.DenseI64ArrayAttr(op.attributes[name]))
        for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    sizes = [
        size + max(a, 0) + max(b, 0) + max(size - 1, 0) * i
        for size, a, b, i in zip(given.shape, low, high, inner, strict=True)
        if size >= 0
    ]
    budget.check(sizes, dtype_of(given.element_type), f"{_place(op)}: what is padded")


def _check_bitcast(op: Any) -> None:
    """UnsupportedError between truth values and parts of numbers, of which XLA gives other shapes.

    StableHLO holds a truth value in one bit, XLA in eight.
    """
    given, made = (ir.RankedTensorType(v.type) for v in (op.operands[0], op.results[0]))
    if given.rank != made.rank and "bool" in {dtype_of(t.element_type) for t in (given, made)}:
        raise UnsupportedError(
            f"{_place(op)}: XLA has no truth values of one bit ({given} to {made}); shift the "
            "numbers and compare their lowest bits"
        )


def _check_einsum(op: Any) -> None:
    """StableHLOParseError where labels do not fit the operands, which ends the process, or the
    result, whose shape would be another one.
    """
    config = ir.StringAttr(op.attributes["einsum_config"]).value
    shapes = [tuple(ir.RankedTensorType(v.type).shape) for v in (*op.operands, *op.results)]
    found = _EINSUM.fullmatch(config)
    fits, sizes = found is not None, dict[str, int]()
    for at, text in enumerate(found.groups() if found else ()):
        if text is None:
            continue
        if at == 2 and "..." not in config:
            fits = fits and len(text) == len(set(text) & sizes.keys())
        if "..." in text:
            fits = fits and len(text) - 3 <= len(shapes[at])
            continue
        fits = fits and len(text) == len(shapes[at])
        for label, size in zip(text, shapes[at], strict=False):
            known = sizes.setdefault(label, size)
            fits = fits and (known == size or min(known, size) < 0)
    if not fits:
        raise StableHLOParseError(
            f'{_place(op)}: einsum_config "{config}" does not fit the shapes {shapes[0]} and '
            f"{shapes[1]}, or the result's {shapes[2]}"
        )


#: Checks of operations beyond the sizes of their values.
_CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "stablehlo.bitcast_convert": _check_bitcast,
    "stablehlo.einsum": _check_einsum,
    "stablehlo.fft": _check_fft,
    "stablehlo.pad": _check_pad,
}


def _place(op: Any) -> str:
    where = read_location(op.location)
    return f"{op.name} at {where}" if where is not None else op.name


def check_text(data: bytes) -> None:
    """BudgetError for text with more brackets in each other than MLIR survives."""
    if sum(data.count(bytes((b,))) for b in _OPENING) <= BRACKETS:
        return
    noise = _STRING_OR_COMMENT if b"//" in data else _STRING
    # Arrows and comparisons close nothing.
    plain = noise.sub(b"", data).replace(b"->", b"").replace(b">=", b"")
    brackets = np.frombuffer(plain.translate(None, _OTHERS), np.uint8)
    depths = np.cumsum(_STEPS[brackets], dtype=np.int64)
    if depths.max(initial=0) > BRACKETS:
        raise BudgetError(
            f"brackets lie in each other more than {BRACKETS} times, which MLIR does not survive; "
            "is the program damaged?"
        )
