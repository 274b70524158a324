"""StableHLO programs as text, MLIR bytecode and portable artefacts, both ways."""

from __future__ import annotations

import re
from typing import Any, Literal

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import EmitError, StableHLOParseError
from relax2xla.ir.module import IRModule
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.stablehlo.codecs import type_to_sinfo
from relax2xla.stablehlo.described import described
from relax2xla.stablehlo.emitter import LeftOut, emit
from relax2xla.stablehlo.locations import read_location
from relax2xla.stablehlo.mlir import context, first_line, ir, lower_chlo, operations, to_bytecode
from relax2xla.stablehlo.mlir import stablehlo as hlo
from relax2xla.stablehlo.origin import as_read
from relax2xla.stablehlo.untrusted import bytecode, guard, limits

Form = Literal["text", "bytecode", "portable"]
BYTECODE_MAGIC = bytecode.MAGIC
_TOO_LARGE = "the program asks for more memory than there is; is it damaged?"
_LACKING = re.compile(r"failed to legalize operation 'vhlo\.(\w+)_v\d+'")
# Strings of text: what makes them the value of an attribute, the string, and what follows.
_STRING = re.compile(rb'(=\s*)?"((?:[^"\\\n]|\\.)*)"(\s*[,}>])?')
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
_HIGH = re.compile(rb"\\[89A-Fa-f][0-9A-Fa-f]")
_DIAGNOSTIC = re.compile(r'error: "-":(\d+):(\d+): (.*)')


def to_stablehlo(
    mod: IRModule,
    form: Form = "text",
    version: str | None = None,
    debug_info: bool = False,
    left_out: LeftOut | None = None,
) -> str | bytes:
    """``mod`` as a StableHLO program; every call must be a row (run ``LegalizeOps`` before).

    ``form``: "text" gives a str; "bytecode" MLIR bytecode; "portable" a portable artefact, which
    other versions of StableHLO can read, at the StableHLO ``version`` ("1.0.0"; by default the
    current one). ``debug_info`` writes the spans as MLIR locations (the binary forms always do),
    which name layers and weights; names of arguments, results and dimensions are attributes.
    ``left_out`` names resources for constants whose data the program is not to hold.
    """
    made = emit(described(as_read(mod)), left_out=left_out, resources=form != "portable")
    return serialize(made, form, version, debug_info)


def serialize(
    module: ir.Module, form: Form = "text", version: str | None = None, debug_info: bool = False
) -> str | bytes:
    """An MLIR module in one of the forms of :func:`to_stablehlo`."""
    if version is not None and form != "portable":
        raise ValueError(f'a version belongs to form="portable"; got form={form!r}')
    match form:
        case "text":
            return str(module.operation.get_asm(enable_debug_info=debug_info))
        case "bytecode":
            return to_bytecode(module)
        case "portable":
            target = version or hlo.get_current_version()
            _check_version(target)
            return _portable(module, target)
        case _:
            raise ValueError(f'form must be "text", "bytecode" or "portable"; got {form!r}')


def _portable(module: ir.Module, target: str) -> bytes:
    said: list[str] = []
    lower_chlo(module)
    # Told now: where it fails, the writer leaves the operations of its own dialect.
    foreign = _foreign_ops(module)
    handler: Any = module.context.attach_diagnostic_handler(
        lambda d: said.append(f"{d.message} (at {_place(d.location)})") is None
    )
    try:
        return hlo.serialize_portable_artifact(module, target)
    except (ValueError, ir.MLIRError) as e:
        found = _LACKING.search(said[0]) if said else None
        if found is not None:
            dialect = "func" if found[1] in ("func", "call", "return") else "stablehlo"
            what = f"StableHLO {target} lacks {dialect}.{found[1]} in the form used"
            place = said[0].rpartition(" (at ")[2].removesuffix(")")
            raise EmitError(
                f"{what} at {place}: the operation, one of its attributes or one of its types "
                "came later; name a newer version"
            ) from e
        if foreign:
            raise EmitError(
                f"a portable artefact holds StableHLO only; this program has {foreign}. Write it "
                'as form="bytecode", or lower these operations before'
            ) from e
        if place := _unwritable_attribute(module, target):
            raise EmitError(
                f"a portable artefact at StableHLO {target} cannot hold {place}. Write the program "
                'as form="bytecode", or leave the attribute out'
            ) from e
        raise EmitError(
            f"the program cannot be written at StableHLO {target}: {first_line(e)}; "
            "it may use what came later than that version"
        ) from e
    finally:
        handler.detach()


def _place(loc: ir.Location) -> str:
    return str(read_location(loc) or "unknown location")


def _foreign_ops(module: ir.Module) -> str:
    """Names of the operations that no StableHLO version has."""
    names = dict.fromkeys(op.name for op in operations(module))
    known = ("builtin", "func", "stablehlo")
    return ", ".join(n for n in names if n.partition(".")[0] not in known)


def _unwritable_attribute(module: ir.Module, target: str) -> str:
    """The first attribute that no portable artefact can hold, such as ``unit``; "" for none."""
    fine: set[ir.Attribute] = set()
    with module.context, ir.Location.unknown():
        for op in operations(module):
            for name in op.attributes:
                try:
                    value = op.attributes[name]
                except TypeError:  # complex elements, which jaxlib cannot wrap
                    continue
                # Those of StableHLO are parts of its operations, and are written as such; names of
                # functions mean nothing elsewhere.
                if value in fine or re.search(r"#stablehlo\.|^@[^:]*$", str(value)):
                    continue
                alone = ir.Module.create()
                alone.operation.attributes["value"] = value
                try:
                    hlo.serialize_portable_artifact(alone, target)
                except (ValueError, ir.MLIRError):
                    said = str(value)
                    shown = said if len(said) < 80 else f"{said[:80]} ..."
                    return f"the attribute {name} = {shown} of {op.name} at {_place(op.location)}"
                fine.add(value)
    return ""


def _check_version(version: str) -> None:
    oldest, newest = hlo.get_minimum_version(), hlo.get_current_version()
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    numbers = tuple(map(int, version.split("."))) if match else None
    low, high = (tuple(map(int, v.split("."))) for v in (oldest, newest))
    if numbers is None or not low <= numbers <= high:
        raise ValueError(f"version must be one from {oldest} to {newest}; got {version!r}")


def parse(
    source: str | bytes, ctx: ir.Context | None = None, *, isolate: bool = False
) -> ir.Module:
    """The verified MLIR module of StableHLO text, MLIR bytecode or a portable artefact.

    ``isolate``: the binary forms are read in a child process first, where they can do no harm.
    Raises :class:`StableHLOParseError`, with line and column where the text is wrong.
    """
    ctx = ctx or context()
    data = source.encode() if isinstance(source, str) else source
    if not data.strip():
        raise StableHLOParseError("the StableHLO program is empty")
    if data.startswith(BYTECODE_MAGIC):
        bytecode.check(data)
        cleaned = guard.clean(data) if isolate else None
        if cleaned is not None:
            return _parsed(cleaned, ctx)
        bytecode.check_strings(data)
        return _parse_binary(data, ctx)
    if b"\0" in data:
        raise StableHLOParseError(
            "neither MLIR text nor bytecode: it has zero bytes, but does not start with "
            f"{BYTECODE_MAGIC!r}"
        )
    limits.check_text(data)
    try:
        if _HIGH.search(data):
            _check_escapes(data)
        return _parsed(data.decode(), ctx)
    except UnicodeDecodeError as e:
        raise StableHLOParseError(f"neither MLIR bytecode nor UTF-8 text: {e}") from e


def checked_bytecode(data: bytes) -> bytes:
    """The bytecode or portable artefact ``data`` as MLIR read it, in new bytecode.

    Strings that are not UTF-8 may be the values of attributes, but no names. To be called where
    damaged data may end the process.
    """
    module = _parse_binary(data, context())
    try:
        bytecode.check_strings(data)
    except StableHLOParseError:
        get_asm: Any = module.operation.get_asm
        _check_escapes(get_asm(binary=True, enable_debug_info=True))
    made = serialize(module, "bytecode")
    assert isinstance(made, bytes)
    return made


def _parse_binary(data: bytes, ctx: ir.Context) -> ir.Module:
    if b"StableHLO_v" in data[:64]:
        return _parse_portable(data, ctx)
    return _parsed(data, ctx)


def _parsed(data: str | bytes, ctx: ir.Context) -> ir.Module:
    try:
        return ir.Module.parse(data, ctx)
    except (ir.MLIRError, ValueError) as e:
        raise StableHLOParseError(_explain(str(e), data)) from e
    except MemoryError as e:
        raise StableHLOParseError(_TOO_LARGE) from e


def _check_escapes(data: bytes) -> None:
    """StableHLOParseError for a string that is no UTF-8, unless it is the value of an attribute.

    jaxlib ends the process where it should show such a name or location.
    """
    for found in _STRING.finditer(data):
        try:
            _ESCAPE.sub(lambda e: bytes([int(e[1], 16)]), found[2]).decode()
        except UnicodeDecodeError:
            if found[1] and found[3]:
                continue
            line = data.count(b"\n", 0, found.start(2)) + 1
            text = found[2][:60].decode(errors="replace")
            raise StableHLOParseError(f'line {line}: the name "{text}" is not UTF-8') from None


def _parse_portable(data: bytes, ctx: ir.Context) -> ir.Module:
    # Without a handler MLIR writes its diagnostics to the process's standard error.
    said: list[str] = []
    handler: Any = ctx.attach_diagnostic_handler(lambda d: said.append(d.message) is None)
    try:
        return hlo.deserialize_portable_artifact(ctx, data)
    except (ir.MLIRError, ValueError) as e:
        reason = "; ".join(said) or first_line(e)
        raise StableHLOParseError(f"not a readable portable artefact: {reason}") from e
    except MemoryError as e:
        raise StableHLOParseError(_TOO_LARGE) from e
    finally:
        handler.detach()


def _explain(message: str, data: str | bytes) -> str:
    """MLIR's diagnostic with the line of the text and a caret."""
    found = _DIAGNOSTIC.search(message)
    if isinstance(data, bytes) or found is None:
        kind = "MLIR bytecode" if isinstance(data, bytes) else "StableHLO text"
        return f"not valid {kind}: {' '.join(message.split())[:400]}"
    line, column, text = int(found[1]), int(found[2]), found[3]
    lines = data.split("\n")
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    start = max(0, column - 60)
    return (
        f"line {line}, column {column}: {text}\n"
        f"  {shown[start : start + 100]}\n  {' ' * (column - 1 - start)}^"
    )


def main_types(module: ir.Module) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    """Shapes and dtypes of what ``main`` takes and gives, which are static tensors."""
    main = next(
        op.operation
        for op in module.body.operations
        if "sym_name" in op.operation.attributes
        and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
    )
    types = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

    def plain(t: ir.Type) -> tuple[Any, Any]:
        info = type_to_sinfo(t)
        assert isinstance(info, TensorStructInfo)
        return info.dims, numpy_dtype(info.dtype)

    with module.context:
        return [plain(t) for t in types.inputs], [plain(t) for t in types.results]
