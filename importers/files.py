"""Model files of every supported kind to and from an IRModule, by extension and content.

Files are treated as hostile (design decision D12): nothing is read before its kind and size are
known, Relax text is parsed and never executed, and ``.pt2``, which can run code as it is read,
needs ``trust=True``. Files are written under another name in the same folder and then renamed, so
that what stands at a path is complete whatever happens.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import logging
import os
import stat
import warnings
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, get_args

from relax2xla import tir
from relax2xla.budget import physical_memory
from relax2xla.errors import FileFormatError, LegalizeError, TVMError
from relax2xla.importers.beside import Beside, Found, location_of, weights_file
from relax2xla.importers.shared.gaps import reason_of
from relax2xla.ir import Function, IRModule, TensorStructInfo, VarBinding
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, unify
from relax2xla.ir.struct_info import StructInfo, show
from relax2xla.runtime.whole_file import is_stream, whole_file
from relax2xla.stablehlo.exported import is_exported
from relax2xla.tir import Dim

# Sizes of symbolic dimensions by name, or the whole shape of a parameter by its name.
Shapes = Mapping[str, int | Sequence[int]]
Form = Literal["relax", "mlir", "mlirbc", "stablehlo"]

MLIR_BYTECODE: Final = b"ML\xefR"
ZIP: Final = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file: its name, the extensions it goes by, and the package that reads it."""

    name: str
    suffixes: tuple[str, ...]
    title: str
    package: str = ""
    extra: str = ""


FORMATS: Final = (
    Format("onnx", (".onnx",), "ONNX model", "onnx", "onnx"),
    Format("pt2", (".pt2",), "PyTorch exported program", "torch", "torch"),
    Format("mlir", (".mlir",), "StableHLO text"),
    Format("mlirbc", (".mlirbc",), "MLIR bytecode"),
    Format("stablehlo", (".stablehlo",), "StableHLO portable artefact"),
    Format("exported", (".jax_export", ".jax_exported"), "serialised program of jax.export"),
    Format("relax", (".relax", ".py"), "Relax text (TVMScript)"),
)
BY_SUFFIX: Final = {suffix: f for f in FORMATS for suffix in f.suffixes}
KNOWN: Final = ", ".join(BY_SUFFIX)
WRITABLE: Final = tuple(f for f in FORMATS if f.name in get_args(Form))
# What jax.export writes has no extension of its own; it is known by its content.
_EXPORTED: Final = next(f for f in FORMATS if f.name == "exported")
_STABLEHLO: Final = ("mlir", "mlirbc", "stablehlo")

_EXPORT: Final = "In torch: torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
# What to do with files that people have, but that are no programs we can read.
HINTS: Final = {
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt"),
        f"it may hold weights alone, or need its classes. {_EXPORT}",
    ),
    ".safetensors": "it holds weights without the network; export the model to .onnx or .pt2",
    **dict.fromkeys(
        (".tflite", ".pb", ".h5", ".keras"),
        "convert it to ONNX with tf2onnx, or write it as StableHLO",
    ),
    **dict.fromkeys((".onnx.data", ".data"), "it holds the weights of an .onnx file; give that"),
}


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format that the extension of ``path`` names; FileFormatError for one that names none.

    A program of ``jax.export`` may have any extension that names no other kind of model.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    found = BY_SUFFIX.get(suffix)
    if (found is None or found.name in _STABLEHLO) and _holds_exported(path):
        return _EXPORTED
    if found is not None:
        return found
    if suffix == ".r2x":
        raise FileFormatError(
            f"{path} is a saved executable, which relax2xla run and inspect take, and load_module; "
            "it holds compiled programs, and no model to read: give the model that it was made of"
        )
    what = f"the extension {suffix!r} is" if suffix else "a name without extension is"
    hint = f". {path.name}: {HINTS[suffix]}" if suffix in HINTS else ""
    raise FileFormatError(f"{path}: {what} not known; known are {KNOWN}{hint}")


def _holds_exported(path: Path) -> bool:
    """Whether a file holds what jax.export wrote; no more of it is read than that takes."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            return is_exported(data)
    except (OSError, ValueError):
        return False


def load(
    path: str | os.PathLike[str], trust: bool = False, shapes: Shapes | None = None
) -> IRModule:
    """The module in a file: ONNX, a PyTorch exported program, StableHLO in any form, or Relax text.

    StableHLO may be what ``jax.export`` serialised, which is known by its content.

    path:   what the file holds follows from its extension (``FORMATS``) and is checked
    trust:  reading a ``.pt2`` file can run code that is in it; True says that you trust its origin
    shapes: sizes of symbolic dimensions (``{"n": 4}``) or whole shapes of parameters
            (``{"x": (1, 3, 224, 224)}``); others stay symbolic

    StableHLO is read as it is, one row an operation, so that it can be written back unchanged;
    ``transform.RaiseStableHLO`` puts high-level operators in place of rows.

    Raises :class:`FileFormatError` for a file that is missing, unknown or damaged,
    :class:`OpNotImplemented` with everything in it that has no converter, and TVMError for shapes
    that do not fit.
    """
    path = Path(path)
    kind = checked_format(path)
    if kind.name == "pt2" and not trust:
        raise FileFormatError(
            f"{path}: reading a .pt2 file can run code that is in it. If you trust where it comes "
            "from, say so: trust=True, or --trust on the command line"
        )
    check_package(kind)
    with reading(path):
        return _LOADERS[kind.name](path, shapes or {})


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
    """What reading a file raises names it, and damage is a FileFormatError."""
    try:
        yield
    except TVMError as e:
        if str(path) not in str(e):
            e.add_note(f"(in {path})")
        raise
    except OSError as e:
        raise FileFormatError(f"{path}: cannot be read: {_reason(e)}") from e
    except (RecursionError, MemoryError) as e:
        raise FileFormatError(
            f"{path}: the {format_of(path).title} is nested too deeply or too large to be read "
            f"({type(e).__name__})"
        ) from e
    except Exception as e:  # whatever a reader of another project raises on damaged content
        raise FileFormatError(
            f"{path} cannot be read as {format_of(path).title}: {reason_of(e)}. Is it complete, "
            "and is that what it holds?"
        ) from e


def checked_format(path: Path) -> Format:
    """The format of a file that can be read and begins as one of that format does."""
    head = check_file(path)
    kind = format_of(path)
    _check_content(path, kind, head)
    return kind


def check_package(kind: Format) -> None:
    """TVMError where the package that reads ``kind`` is not installed."""
    if kind.package and importlib.util.find_spec(kind.package) is None:
        raise TVMError(
            f"reading {kind.suffixes[0]} files needs the package {kind.package}; "
            f"{how_to_install(kind.extra)}"
        )


def how_to_install(extra: str) -> str:
    """What brings the packages of an extra: relax2xla is installed from a clone."""
    return f"run this in your clone of relax2xla: pip install '.[{extra}]'"


def check_file(path: Path) -> bytes:
    """The first bytes of a file that can be read, is not empty and fits into memory."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise FileFormatError(
                f"{path} is a link to {path.readlink()}, where there is no file"
            ) from None
        raise FileFormatError(f"{path}: there is no such file{_similar(path)}") from None
    except (OSError, ValueError) as e:
        raise FileFormatError(f"{path}: cannot be read: {_reason(e)}") from None
    if stat.S_ISDIR(status.st_mode):
        inside = sorted(p.name for p in _listing(path) if p.suffix.lower() in BY_SUFFIX)
        hint = f"; it holds {', '.join(inside[:5])}" if inside else ""
        raise FileFormatError(f"{path} is a directory; give one file{hint}")
    if not stat.S_ISREG(status.st_mode):
        raise FileFormatError(f"{path} is no regular file (a pipe or a device)")
    if status.st_size == 0:
        raise FileFormatError(f"{path} is empty; write or copy it again")
    memory = physical_memory()
    if memory and status.st_size > memory:
        raise FileFormatError(
            f"{path} has {status.st_size / 2**30:.1f} GiB; this machine has "
            f"{memory / 2**30:.1f} GiB of memory"
        )
    try:
        with path.open("rb") as file:
            return file.read(64)
    except OSError as e:
        raise FileFormatError(f"{path}: cannot be read: {_reason(e)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _listing(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _similar(path: Path) -> str:
    names = [p.name for p in _listing(path.parent) if p.suffix.lower() in BY_SUFFIX]
    close = difflib.get_close_matches(path.name, names, 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _check_content(path: Path, kind: Format, head: bytes) -> None:
    """FileFormatError where the first bytes are not those of ``kind``."""
    is_bytecode, is_zip = head.startswith(MLIR_BYTECODE), head.startswith(ZIP)
    found = "MLIR bytecode" if is_bytecode else "a zip archive" if is_zip else "text or other data"
    if kind.name == "pt2" and is_zip and not zipfile.is_zipfile(path):
        raise FileFormatError(f"{path} is truncated: the archive has no end. Copy it again")
    if kind.name == "pt2" and not is_zip:
        wanted = "an archive that torch.export.save wrote"
    elif kind.name == "exported" and not _holds_exported(path):
        wanted = f"a {kind.title}"
    elif kind.name in ("mlirbc", "stablehlo") and not is_bytecode:
        wanted = f"{kind.title}, which starts with {MLIR_BYTECODE!r}"
    elif kind.name in ("onnx", "relax") and (is_bytecode or is_zip):
        wanted = kind.title
    elif kind.name == "mlir" and is_zip:
        wanted = f"{kind.title} or bytecode"
    else:
        return
    hint = " (StableHLO text has the extension .mlir)" if head.strip()[:1].isascii() else ""
    hint = hint if kind.name in ("mlirbc", "stablehlo") else ""
    raise FileFormatError(
        f"{path}: its extension says {wanted}; it holds {found}{hint}. Is it complete, and does it "
        "have the right extension?"
    )


# -- reading ---------------------------------------------------------------------------------------
def _load_onnx(path: Path, shapes: Shapes) -> IRModule:
    from relax2xla.importers.onnx import load as load_onnx

    return load_onnx.load(path, shapes)


def _load_pt2(path: Path, shapes: Shapes) -> IRModule:
    from relax2xla.importers.torch import from_exported_program

    return bind_shapes(from_exported_program(load_exported(path)), shapes)


def load_exported(path: str | os.PathLike[str]) -> Any:
    """The ExportedProgram in a ``.pt2`` file. Reading it can run code that is in the file."""
    import torch

    from relax2xla.importers.torch.source import dims, pytrees

    extra = {dims.FILE: ""} if _has_extra(path, dims.FILE) else None
    names = pytrees.named_types(path)
    pytrees.register_types(names)
    log, kept = logging.getLogger("torch.export"), _Reasons()
    handlers, propagate = log.handlers, log.propagate
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about classes of its own
        log.handlers, log.propagate = [kept], False
        try:
            program = torch.export.load(path, extra_files=extra)
            if extra is not None:
                dims.give_names(program, extra[dims.FILE])
            return program
        except Exception as e:  # of many classes, and what torch logged may say more
            pytrees.refuse_unregistered(path, names)
            if not isinstance(e, RuntimeError):
                raise
            if _is_pickled(path):
                raise FileFormatError(
                    f"{path} holds what torch.save or torch.jit.save wrote, no exported program. "
                    f"{_EXPORT}"
                ) from e
            if kept.errors:
                raise kept.errors[0] from e
            raise
        finally:
            log.handlers, log.propagate = handlers, propagate


def _has_extra(path: str | os.PathLike[str], name: str) -> bool:
    """Whether an archive of torch has an extra file of this name: asked for others, torch warns."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(n.endswith(f"/extra/{name}") for n in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False  # torch says what is wrong with it


class _Reasons(logging.Handler):
    """The errors that torch logs while it reads a file; what it raises then does not say them."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])


def _is_pickled(path: str | os.PathLike[str]) -> bool:
    """Whether an archive is laid out as those of torch.save and torch.jit.save are."""
    with zipfile.ZipFile(path) as archive:
        return any(name.split("/")[1:] == ["data.pkl"] for name in archive.namelist())


def _load_stablehlo(path: Path, shapes: Shapes) -> IRModule:
    from relax2xla.importers.stablehlo import from_stablehlo

    data = path.read_bytes()
    weights = Found(path.parent)
    mod = from_stablehlo(data, raise_ops=False, weights=weights)
    if not shapes:
        return mod
    infos = [p.struct_info for p in _bind(_entry(mod), shapes).params]
    if missing := symbols(infos):
        raise TVMError(f"give the sizes of all dynamic dimensions; missing: {', '.join(missing)}")
    wanted = [
        ([d for d in i.dims or () if isinstance(d, int)], i.dtype)
        for i in infos
        if isinstance(i, TensorStructInfo)
    ]
    return from_stablehlo(data, wanted, raise_ops=False, weights=weights)


def _load_relax(path: Path, shapes: Shapes) -> IRModule:
    from relax2xla.script import from_source
    from relax2xla.script.metadata import arrays_from

    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise FileFormatError(f"{path} is no Relax text: {e}") from None
    if "\0" in text:
        raise FileFormatError(f"{path} is no Relax text: it holds zero bytes")
    if not text.strip():
        raise FileFormatError(f"{path} holds white space only")
    with arrays_from(Found(path.parent)):
        found = from_source(text, filename=str(path))
    mod = found if isinstance(found, IRModule) else IRModule.from_expr(found)
    return bind_shapes(mod, shapes)


_LOADERS: Final[dict[str, Callable[[Path, Shapes], IRModule]]] = {
    "onnx": _load_onnx,
    "pt2": _load_pt2,
    "mlir": _load_stablehlo,
    "mlirbc": _load_stablehlo,
    "stablehlo": _load_stablehlo,
    "exported": _load_stablehlo,
    "relax": _load_relax,
}


# -- shapes ----------------------------------------------------------------------------------------
def _entry(mod: IRModule) -> Function:
    """The function ``main``, or the only one; TVMError where there is neither."""
    functions = list(mod.relax_functions().values())
    if "main" in mod and isinstance(mod["main"], Function):
        return mod["main"]
    if len(functions) == 1:
        return functions[0]
    raise TVMError("the module has no function main")


def symbols(infos: Sequence[StructInfo]) -> list[str]:
    """Names of the symbolic dimensions in struct infos, in order."""
    return list(dict.fromkeys(v.name for i in infos for v in free_symbolic_vars(i)))


def bind_shapes(mod: IRModule, shapes: Shapes) -> IRModule:
    """``mod`` with sizes for symbolic dimensions of its entry; see :func:`load`."""
    if not shapes:
        return mod
    main = _entry(mod)
    gvar = next(g for g, f in mod.items() if f is main)
    return mod.replace({**mod.functions, gvar: _bind(main, shapes)})


def _bind(func: Function, shapes: Shapes) -> Function:
    params = {p.name_hint: p for p in func.params}
    variables = {v.name: v for p in func.params for v in free_symbolic_vars(p.struct_info)}
    env: SymMap = {}
    for name, value in shapes.items():
        if isinstance(value, int):
            if name not in variables:
                known = ", ".join(variables) or "none: every dimension is known"
                raise TVMError(f"there is no symbolic dimension {name!r}; there are {known}")
            env[variables[name]] = value
            continue
        if name not in params:
            raise TVMError(f"there is no parameter {name!r}; there are {', '.join(params)}")
        info = params[name].struct_info
        dtype = info.dtype if isinstance(info, TensorStructInfo) else "float32"
        try:
            unify(info, TensorStructInfo(tuple(value), dtype), env)
        except Mismatch as e:
            raise TVMError(
                f"the parameter {name} is {show(info)}; the given shape has {e}"
            ) from None
    sizes: dict[tir.Var | str, Dim] = {**env}
    return func.bind_symbolic_vars(sizes) if sizes else func


# -- writing ---------------------------------------------------------------------------------------
def save(
    mod: IRModule,
    path: str | os.PathLike[str],
    form: Form | None = None,
    version: str | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> int:
    """Write ``mod`` to a file that :func:`load` reads; gives its size in bytes.

    form:    "relax" (text with its arrays), "mlir" (StableHLO text), "mlirbc" (bytecode) or
             "stablehlo" (a portable artefact, which other versions of StableHLO read); None: by the
             extension of ``path``
    version: of StableHLO, for the portable artefact
    weights: a .safetensors file in the same folder, or below it, for the arrays of 1 KiB and more,
             which the program then names and several programs may share; "inline": in the program
             itself. None: inline, but beside text (``path`` with .safetensors) that has more than
             1 MiB of them

    Reading maps such a file into memory, and checks names, dtypes and shapes. Each file appears
    complete or not at all. Raises :class:`FileFormatError` for a path that cannot be written,
    :class:`LegalizeError` and :class:`EmitError` for a module that the form cannot hold.
    """
    path = Path(path)
    form = form or form_of(path)
    check_target(path)
    return write_program(mod, path, form, version, weights)[0]


def write_program(
    mod: IRModule,
    path: Path,
    form: Form,
    version: str | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> tuple[int, Path | None]:
    """As :func:`save`; gives the size, and the file with the weights if there is one."""
    asked = None if weights is None else os.fspath(weights)
    file = weights_file(mod, path, form, asked)
    beside = None if file is None else Beside(location_of(file, path))
    if file is not None:
        check_target(file)
    data = render(mod, form, version, beside)

    def write(stream: BinaryIO) -> None:
        stream.write(data)
        if beside is not None and file is not None:
            # The program is on its way, and takes its place when the weights have: where either
            # cannot be written, what was there before stays, and fits.
            beside.write(file)

    write_atomically(path, write)
    return len(data), file


def form_of(path: str | os.PathLike[str]) -> Form:
    """The form that an output's extension names."""
    for row in WRITABLE:
        if Path(path).suffix.lower() in row.suffixes:
            return row.name  # pyright: ignore[reportReturnType]
    known = ", ".join(s for row in WRITABLE for s in row.suffixes)
    raise FileFormatError(
        f"{path}: the output's extension does not say what to write; known are {known}. (The "
        "commands that have --to take any name with it.)"
    )


def render(
    mod: IRModule, form: Form, version: str | None = None, beside: Beside | None = None
) -> bytes:
    """``mod`` in one of the forms of :func:`save`; ``beside`` takes arrays out of it."""
    from relax2xla.importers.stablehlo import WEIGHTS
    from relax2xla.script.metadata import encode
    from relax2xla.script.printer import OMITTED
    from relax2xla.script.tables import script_tables, with_names_of_text

    if form == "relax":
        if version is not None:
            raise TVMError("a StableHLO version belongs to the form stablehlo")
        mod = with_names_of_text(mod)
        if beside is None:
            return (mod.script(show_meta=True, show_sources=True).rstrip() + "\n").encode()
        text, tables = script_tables(mod)
        if tables:
            arrays = encode(tables, True, beside.location, beside)
            text = f'{text.removesuffix(OMITTED)}metadata = I.metadata("""{arrays}""")'
        return (text.rstrip() + "\n").encode()
    from relax2xla.stablehlo import to_stablehlo
    from relax2xla.stablehlo.described import described
    from relax2xla.stablehlo.origin import as_read
    from relax2xla.stablehlo.rows import DISCARDABLE
    from relax2xla.transform import LegalizeOps

    try:
        rows = LegalizeOps(every=True)(mod)
    except LegalizeError as e:
        unknown = symbols([p.struct_info for f in mod.relax_functions().values() for p in f.params])
        if not unknown:
            raise
        raise LegalizeError(
            f"{e}\nThe symbolic dimensions are {', '.join(unknown)}; give their sizes: "
            f"shapes={{{unknown[0]!r}: 4}}, or --shape {unknown[0]}=4 on the command line"
        ) from e
    kinds: dict[str, Literal["text", "bytecode", "portable"]] = {
        "mlir": "text",
        "mlirbc": "bytecode",
        "stablehlo": "portable",
    }
    try:
        rows = described(as_read(rows), whole=True)
        if beside is not None:
            told = {**rows.attrs.get(DISCARDABLE, {}), WEIGHTS: beside.location}
            rows = rows.with_attr(DISCARDABLE, told)
        made = to_stablehlo(rows, kinds[form], version, _names_layers(rows), beside)
    except ValueError as e:
        if isinstance(e, TVMError):
            raise
        raise TVMError(str(e)) from None
    return made.encode() if isinstance(made, str) else made


def _names_layers(mod: IRModule) -> bool:
    """Whether text of ``mod`` is to have locations: they name a layer or a weight."""
    return any(
        span is not None and bool(span.name)
        for func in mod.relax_functions().values()
        for block in func.body.blocks
        for b in block.bindings
        for span in (b.span, b.value.span if isinstance(b, VarBinding) else None)
    )


def _same(a: Path, b: Path) -> bool:
    # Path.exists raises for names that no file can have, such as the numbers of an input.
    return os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)


def check_target(path: Path, *read: Path) -> None:
    """FileFormatError where no file can be written at ``path``; found before the work is done.

    ``read``: files that the same command reads, none of which it may write over
    """
    if any(_same(path, other) for other in read):
        raise FileFormatError(f"{path} is the file that is read; give another name")
    if is_stream(path):
        return
    if path.exists() and not path.is_file():
        raise FileFormatError(f"{path} is a directory or a disk; give a file's path to write to")
    folder = path.parent
    if not folder.is_dir():
        raise FileFormatError(f"{path}: there is no directory {folder} to write to")
    if not os.access(folder, os.W_OK):
        raise FileFormatError(f"{path}: the directory {folder} cannot be written to")


def check_targets(paths: Sequence[Path], *read: Path) -> None:
    """As :func:`check_target` for each of ``paths``, no two of which may be one file."""
    for i, path in enumerate(paths):
        check_target(path, *read)
        if not is_stream(path) and path.resolve() in (p.resolve() for p in paths[:i]):
            raise FileFormatError(
                f"{path} is named twice, and what is written first would be lost; give each output "
                "a name of its own"
            )


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a file beside ``path`` that then takes its place; nothing on failure."""
    check_target(path)
    try:
        with whole_file(path) as file:
            write(file)
    except OSError as e:
        raise FileFormatError(f"{path}: cannot be written: {_reason(e)}") from e
