"""ExternModule: functions from outside that a model calls, compiled before or by us."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.frontend.nn.values import unwrap_nested, wrap_nested
from relax2xla.ir import Expr, IRModule, PrimValue, StringImm, Tuple
from relax2xla.op.intrinsic import call_dps_packed
from relax2xla.runtime.compiler import INCLUDE, find_compiler, run_compiler
from relax2xla.runtime.native import NativeModule
from relax2xla.transform.fusion.codegen import AttachExternModules


class ExternModule:
    """Functions that someone else compiled, by symbol: ``module["symbol"](x, y)`` calls one.

    symbols: for each symbol a function of the same arguments that gives what it returns, made with
    ``nn.Tensor.placeholder``. The functions write into tensors that they get after their arguments
    (destination-passing style).
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]) -> None:
        self.symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        """The function ``func_name``; KeyError where it is no symbol of the module."""
        if func_name not in self.symbols:
            raise KeyError(f"{func_name!r}; the symbols are {sorted(self.symbols)}")

        def call(*args: Any) -> Any:
            out = unwrap_nested(self.symbols[func_name](*args), f"what {func_name} returns")
            return wrap_nested(
                call_dps_packed(func_name, packed_args(args), out.struct_info), func_name
            )

        call.__name__ = func_name
        return call

    def load(self) -> Any:
        """The module as one of the runtime."""
        raise NotImplementedError


def linked(mod: IRModule, externs: Sequence[ExternModule]) -> IRModule:
    """``mod`` with external modules attached; those without ``load`` have registered functions."""
    loadable = [m for m in externs if type(m).load is not ExternModule.load]
    return AttachExternModules(loadable)(mod)


class ObjectModule(ExternModule):
    """An ExternModule whose functions are in an object file, compiled before.

    symbols: as of ExternModule. filepath: the object file, or a shared library. Sources compile
    with the headers of ``SourceModule.get_includes()``. Raises ValueError where it is no file.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]], filepath: str | Path) -> None:
        self.filepath = Path(filepath)
        if not self.filepath.is_file():
            raise ValueError(f"Not a file: {self.filepath}")
        self._loaded: NativeModule | None = None
        super().__init__(symbols)

    def load(self) -> NativeModule:
        """Link the file, the first time, load it into this process, and find the symbols.

        Raises TVMError for a file that cannot be linked or loaded, and for a missing symbol.
        """
        if self._loaded is None:
            self._loaded = NativeModule.from_object(self.filepath, self.symbols)
        return self._loaded


class SourceModule(ExternModule):
    """An ExternModule of C++ source code, which the machine's compiler compiles.

    symbols: as of ExternModule. source_code: the text, or the path of a file of it.
    source_format: "cpp", or "cu" (CUDA). compile_options: by default those of
    ``get_compile_options``. compiler: by default that of the environment variable CXX, or c++, g++
    or clang++ (for "cu": nvcc). output_format: "obj", an object file; "wasm" changes its suffix.

    Functions take ``DLTensor*`` for tensors, the results last, integers, floats and strings; they
    are exported by ``TVM_DLL_EXPORT_TYPED_FUNC(symbol, function)`` of
    ``<tvm/runtime/packed_func.h>``, or are plain C functions (``extern "C"``) that give 0 for
    success and take numbers as int64_t and double. Tensors lie in the memory of the host, in order
    of rows. An exception, or a status other than 0, is a TVMError of the call.

    Raises ValueError for other formats, and for a path that is no file.
    """

    def __init__(
        self,
        symbols: Mapping[str, Callable[..., Any]],
        source_code: str | Path,
        source_format: str,
        compile_options: Sequence[str] | None = None,
        compiler: str | None = None,
        output_format: str = "obj",
    ) -> None:
        _check_format(source_format)
        if output_format not in _OUTPUT_SUFFIXES:
            raise ValueError(
                f"Invalid output format: {output_format!r}; expected one of "
                f"{list(_OUTPUT_SUFFIXES)}"
            )
        self.source_code = _source(source_code)
        self.source_format = source_format
        self.compile_options = (
            self.get_compile_options(source_format)
            if compile_options is None
            else list(compile_options)
        )
        self.compiler = compiler
        self.source_suffix = f".{source_format}"
        self.output_suffix = _OUTPUT_SUFFIXES[output_format]
        self._loaded: NativeModule | None = None
        super().__init__(symbols)

    @staticmethod
    def tvm_home() -> Path:
        """The folder of TVM's sources that the environment variable TVM_HOME names, or one above.

        It has the folders ``include`` and ``3rdparty``. Raises ValueError where there is none, and
        where TVM_HOME is not set: relax2xla needs no TVM.
        """
        given = os.environ.get("TVM_HOME")
        if not given:
            raise ValueError(
                "TVM_HOME is not set. relax2xla has headers of its own (get_includes()); set "
                "TVM_HOME to a folder of TVM with `include` and `3rdparty` to compile with TVM's"
            )
        start = Path(given).resolve()
        for folder in (start, *start.parents):
            if (folder / "include").is_dir() and (folder / "3rdparty").is_dir():
                return folder
        raise ValueError(
            f"TVM_HOME is {given!r}, and neither it nor a folder above has the folders `include` "
            "and `3rdparty`"
        )

    @staticmethod
    def get_includes(tvm_pkg: Sequence[str] | None = None) -> list[Path]:
        """The folders of headers: relax2xla's own, which have what external functions include.

        Where TVM_HOME is set: TVM's, DLPack's and DMLC-Core's there, and those of ``tvm_pkg``,
        paths below its ``3rdparty``. Raises ValueError for a folder that is not there.
        """
        if not os.environ.get("TVM_HOME"):
            if tvm_pkg:
                raise ValueError(
                    f"tvm_pkg={list(tvm_pkg)} names folders of TVM's `3rdparty`; set TVM_HOME"
                )
            return [INCLUDE]
        home = SourceModule.tvm_home()
        third = ["dlpack/include", "dmlc-core/include", *(tvm_pkg or ())]
        found = [home / "include", *(home / "3rdparty" / name for name in third)]
        for folder in found:
            if not folder.is_dir():
                raise ValueError(f"Not a directory: {folder}")
        return found

    @staticmethod
    def get_compile_options(source_format: str, tvm_pkg: Sequence[str] | None = None) -> list[str]:
        """The compiler's options for "cpp" or "cu": folders of headers, ``-c -O3 -std=c++17``,
        position-independent code, and with TVM_HOME those of DMLC-Core.

        tvm_pkg: as of ``get_includes``. Raises ValueError for other formats.
        """
        _check_format(source_format)
        made = [o for path in SourceModule.get_includes(tvm_pkg) for o in ("-I", str(path))]
        made += ["-c", "-O3", "-std=c++17", "-DDMLC_USE_FOPEN64=0"]
        made.append("-DDMLC_USE_LOGGING_LIBRARY=<tvm/runtime/logging.h>")
        made.append("-fPIC" if source_format == "cpp" else "-Xcompiler=-fPIC")
        return made

    def compile(self, output_path: str | Path) -> None:
        """Compile the source into the file ``output_path``.

        Raises CompilerError, a TVMError, where there is no compiler, and with what it printed where
        it fails.
        """
        default = "nvcc" if self.source_format == "cu" else None
        command = find_compiler(self.compiler or default)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"main{self.source_suffix}"
            made = Path(folder) / f"main{self.output_suffix}"
            source.write_text(self.source_code, "utf-8")
            names = ", ".join(self.symbols)
            run_compiler(
                [*command, *self.compile_options, str(source), "-o", str(made)],
                f"the source of the external module ({names}) does not compile",
            )
            shutil.move(made, Path(output_path))

    def load(self) -> NativeModule:
        """Compile the source, the first time, load it into this process, and find the symbols.

        Raises TVMError for CUDA and for WebAssembly, which a call from the host cannot run.
        """
        if self.source_format == "cu" or self.output_suffix == ".wasm":
            raise TVMError(
                f"an external module of {self.source_suffix} compiled to {self.output_suffix} "
                "cannot be called: functions get memory of the host; compile() writes the file"
            )
        if self._loaded is None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"main{self.output_suffix}"
                self.compile(path)
                tuned = any(o.endswith("=native") for o in self.compile_options)
                self._loaded = NativeModule.from_object(path, self.symbols, self._content(), tuned)
        return self._loaded

    def _content(self) -> bytes:
        """What the code is made of; the object file names the folder that it was made in."""
        command = find_compiler(self.compiler)
        return repr((self.source_code, self.compile_options, command)).encode()


_OUTPUT_SUFFIXES = {"obj": ".obj" if os.name == "nt" else ".o", "wasm": ".wasm"}


def _check_format(source_format: str) -> None:
    if source_format not in ("cpp", "cu"):
        raise ValueError(f"Invalid source format: {source_format!r}; expected one of ['cpp', 'cu']")


def _source(given: str | Path) -> str:
    """The source code of a text or a file."""
    if isinstance(given, Path):
        if not given.is_file():
            raise ValueError(f"Not a file: {given}")
        return given.read_text("utf-8")
    try:
        # Text of many lines is no path, nor is one too long for a name.
        return Path(given).read_text("utf-8") if Path(given).is_file() else given
    except (OSError, ValueError):
        return given


def packed_args(args: Any) -> Expr:
    """Arguments of a packed function: Tensors, numbers (of 64 bits), strings, tuples of them."""
    match args:
        case tuple() | list():
            return Tuple([packed_args(a) for a in args])
        case bool() | int():
            return PrimValue(tir.IntImm("int64", int(args)))
        case float():
            return PrimValue(tir.FloatImm("float64", args))
        case str():
            return StringImm(args)
        case tir.PrimExpr():
            return PrimValue(args)
        case _:
            return unwrap_nested(args, "an argument of a packed function")
