"""MLIR locations <-> Span (design decision D10). All functions need a current MLIR context."""

from __future__ import annotations

from typing import Final

from relax2xla.ir.base import Span
from relax2xla.stablehlo.mlir import ir

# What MLIR calls text that came from no file.
PARSED_FILE: Final = "-"


def read_location(loc: ir.Location) -> Span | None:
    """The Span of a location; None for the unknown location."""
    match loc:
        case ir.UnknownLoc():
            return None
        case ir.NameLoc():
            child = read_location(loc.child_loc)
            return Span(name=loc.name_str, children=() if child is None else (child,))
        case ir.FileLineColLoc():
            return Span(
                file=loc.filename,
                line=loc.start_line,
                column=loc.start_col,
                end_line=loc.end_line,
                end_column=loc.end_col,
                kind="file",
            )
        case ir.CallSiteLoc():
            pair = (loc.callee, loc.caller)
            return Span(kind="callsite", children=tuple(read_location(c) or _UNKNOWN for c in pair))
        case ir.FusedLoc():
            metadata = loc.metadata
            return Span(
                kind="fused",
                children=tuple(read_location(_cast(c)) or _UNKNOWN for c in loc.locations),
                metadata="" if metadata is None else str(metadata),
            )
        case _:
            return Span(name=str(loc), kind="opaque")


# An unknown location among the children of another.
_UNKNOWN = Span(kind="opaque")


def _cast(loc: object) -> ir.Location:
    if not isinstance(loc, ir.Location):
        raise TypeError(f"expected an MLIR location; got {type(loc).__name__}")
    return loc


def module_span(first: Span | None) -> Span | None:
    """Where a module is that does not say it; ``first``: where its first function is.

    In text that came from no file it is at the start, which is that of the word ``module`` or (in
    column 0 of MLIR) of no such word at all. Elsewhere the location is unknown.
    """
    if first is None or first.file != PARSED_FILE:
        return None
    start = 1 if first.column > 1 else 0
    return read_location(ir.Location.file(PARSED_FILE, start, start))


def write_location(span: Span | None) -> ir.Location:
    """The location of a Span; None is the unknown location."""
    if span is None or span == _UNKNOWN:
        return ir.Location.unknown()
    match span.kind:
        case "name":
            child = write_location(span.children[0]) if span.children else _place(span)
            return child if child and span.file and not span.name else _named(span.name, child)
        case "file":
            return _place(span) or _unknown()
        case "callsite":
            callee, caller = map(write_location, span.children)
            return ir.Location.callsite(callee, [caller])
        case "fused":
            metadata = ir.Attribute.parse(span.metadata) if span.metadata else None
            children = [write_location(c) for c in span.children]
            return ir.Location.fused(children, metadata)
        case "opaque":
            # jaxlib parses no location by itself, only one of an operation.
            return ir.Module.parse(f"module {{}} {span.name}").operation.location


def _named(name: str, child: ir.Location | None) -> ir.Location:
    return ir.Location.name(name, child)


def _unknown() -> ir.Location:
    return ir.Location.unknown()


def _place(span: Span) -> ir.Location | None:
    if not span.file:
        return None
    file = span.file.encode("utf-8", "backslashreplace").decode()  # MLIR's names are UTF-8
    if (span.end_line, span.end_column) in ((0, 0), (span.line, span.column)):
        return ir.Location.file(file, span.line, span.column)
    return ir.Location.file(file, span.line, span.column, span.end_line, span.end_column)
