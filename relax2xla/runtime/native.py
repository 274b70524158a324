"""Native functions: symbols of an object file or a shared library, called with DLPack tensors.

A function writes into its last arguments (destination-passing style). Arrays are given by their
memory, without a copy. A library is code that runs in this process, so that only a caller in
Python, or a user who says that a saved executable is to be trusted, can bring one.
"""

from __future__ import annotations

import ctypes
import hashlib
import operator
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.dtypes import dtype_name
from relax2xla.errors import TVMError
from relax2xla.runtime.compiler import find_compiler, run_compiler
from relax2xla.runtime.convert import to_host

# Kinds of arguments, as <relax2xla/call.h> has them.
_TENSOR, _INTEGER, _FLOAT, _TEXT = range(4)
# DLPack's device type of the host, and its dtype codes by numpy's kinds.
_CPU: Final = 1
_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT: Final = 4
_MESSAGE: Final = 4096
_PREFIX: Final = "relax2xla_call_"


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Value(ctypes.Union):
    _fields_ = (
        ("tensor", ctypes.POINTER(_DLTensor)),
        ("integer", ctypes.c_int64),
        ("floating", ctypes.c_double),
        ("text", ctypes.c_char_p),
    )


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int64), ("value", _Value))


class NativeModule:
    """An external module whose functions are those of a shared library.

    names: its symbols. Each is a function exported by ``TVM_DLL_EXPORT_TYPED_FUNC``, or a plain C
    function that gives an int, 0 for success; the latter takes ``DLTensor*``, ``int64_t``,
    ``double`` and ``const char*``. Raises TVMError for a library that cannot be loaded, and for
    symbols that it has not.

    content: what the library was made of, which tells it from others whose symbols are the same;
    by default the file's bytes. tuned: it was compiled for the processor of this machine alone.

    ``library``: the file's bytes; ``digest``: of the content.
    """

    def __init__(
        self,
        path: str | Path,
        names: Iterable[str],
        content: bytes | None = None,
        tuned: bool = False,
    ) -> None:
        try:
            self.library = Path(path).read_bytes()
            # Loading runs the library's own initialisers.
            self._library = ctypes.CDLL(str(path))
        except OSError as e:
            raise TVMError(
                f"the external module cannot be loaded: {e}. An undefined symbol has to be in the "
                "sources, or in a library that compile_options name; sources that include TVM's "
                "own headers need TVM's library, those with relax2xla's (TVM_HOME not set) nothing"
            ) from None
        self.digest = hashlib.sha256(content or self.library).hexdigest()[:32]
        self.tuned = tuned
        self.functions = {name: self._function(name) for name in dict.fromkeys(names)}

    @staticmethod
    def from_object(
        path: str | Path,
        names: Iterable[str],
        content: bytes | None = None,
        tuned: bool = False,
    ) -> NativeModule:
        """The module of an object file, linked by the machine's compiler; of a shared library."""
        path = Path(path)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            library = path if _is_shared(path) else Path(folder) / "external.so"
            if library is not path:
                command = [*find_compiler(), "-shared", "-fPIC", str(path), "-o", str(library)]
                run_compiler(command, f"the object file {path.name} cannot be linked")
            return NativeModule(library.resolve(), names, content or path.read_bytes(), tuned)

    @staticmethod
    def from_library(library: bytes, names: Iterable[str], digest: str) -> NativeModule:
        """The module of a shared library's bytes, with the digest that its keys have."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "external.so"
            path.write_bytes(library)
            made = NativeModule(path, ())
        made.digest = digest
        made.functions = {name: made._function(name) for name in dict.fromkeys(names)}
        return made

    def get_function(self, name: str) -> Callable[..., None] | None:
        """The function of that symbol; None without one."""
        return self.functions.get(name)

    def use_threads(self, address: int) -> None:
        """Tell a library that includes <relax2xla/threads.h> what shares its work out."""
        use = self._library.relax2xla_use_threads
        use.argtypes, use.restype = [ctypes.c_void_p], None
        use(address)

    def __repr__(self) -> str:
        return f"NativeModule({', '.join(self.functions)})"

    def _function(self, name: str) -> NativeFunction:
        typed = getattr(self._library, _PREFIX + name, None)
        found = typed or getattr(self._library, name, None)
        if found is None:
            raise TVMError(
                f"the external module has no symbol {name!r}; export the function with "
                f'TVM_DLL_EXPORT_TYPED_FUNC({name}, function), or declare it extern "C"'
            )
        return NativeFunction(name, found, typed is not None, f"{name}@{self.digest}")


class NativeFunction:
    """A native function as a packed one; it takes arrays, numbers and strings, and gives nothing.

    Arrays that it writes to must be numpy arrays in order of rows; jax arrays are read in place
    on the CPU, and copied to the host from elsewhere. Raises TVMError where the function fails.

    ``typed``: the function takes arguments as <relax2xla/call.h> has them; else it is a C function.
    ``key``: its name, and what its module was made of. ``address``: where its code is.
    """

    def __init__(self, name: str, pointer: Any, typed: bool, key: str) -> None:
        self.__name__ = name
        self.typed, self.key = typed, key
        # ctypes never unloads a library, so that the address is good for ever.
        self._call, self.address = pointer, ctypes.cast(pointer, ctypes.c_void_p).value
        self._call.restype = ctypes.c_int
        if typed:
            self._call.argtypes = [
                ctypes.POINTER(_Argument),
                ctypes.c_int32,
                ctypes.c_char_p,
                ctypes.c_size_t,
            ]

    def __call__(self, *args: Any) -> None:
        # Arrays stay alive until the function has returned.
        kept: list[Any] = []
        given = [self._argument(i, a, kept) for i, a in enumerate(args)]
        if not self.typed:
            status = self._call(*(_plain(a) for a in given))
            if status != 0:
                raise TVMError(
                    f"{self.__name__} gave the status {status}; a plain C function gives an int, 0 "
                    "for success (one that gives void gives anything: export it with "
                    "TVM_DLL_EXPORT_TYPED_FUNC)"
                )
            return
        message = ctypes.create_string_buffer(_MESSAGE)
        packed = (_Argument * len(given))(*given)
        if self._call(packed, len(given), message, _MESSAGE) != 0:
            raise TVMError(f"{self.__name__}: {message.value.decode('utf-8', 'replace')}")

    def __repr__(self) -> str:
        return f"NativeFunction({self.__name__})"

    def _argument(self, place: int, value: Any, kept: list[Any]) -> _Argument:
        match value:
            case str():
                text = value.encode("utf-8")
                kept.append(text)
                return _Argument(_TEXT, _Value(text=text))
            case bool() | int():
                if not -(2**63) <= value < 2**63:
                    raise TVMError(f"{self.__name__}: argument {place} does not fit 64 bits")
                return _Argument(_INTEGER, _Value(integer=operator.index(value)))
            case float():
                return _Argument(_FLOAT, _Value(floating=value))
            case tuple() | list() | None:
                raise TVMError(
                    f"{self.__name__}: argument {place} is {type(value).__name__}; a native "
                    "function takes tensors, numbers and strings: give the items one by one"
                )
            case _:
                array = value if isinstance(value, np.ndarray) else to_host(value)
        tensor = self._tensor(place, array, kept)
        return _Argument(_TENSOR, _Value(tensor=ctypes.pointer(tensor)))

    def _tensor(self, place: int, array: np.ndarray[Any, Any], kept: list[Any]) -> _DLTensor:
        if not array.flags.c_contiguous:
            if array.flags.writeable:
                raise TVMError(
                    f"{self.__name__}: argument {place} is an array with strides; give one in "
                    "order of rows (numpy.ascontiguousarray)"
                )
            array = np.ascontiguousarray(array)
        name = dtype_name(array.dtype)
        code = _BFLOAT if name == "bfloat16" else _CODES.get(array.dtype.kind)
        if code is None:
            raise TVMError(
                f"{self.__name__}: argument {place} is of {name}, which external functions cannot "
                "take; cast it, or give its bytes as uint8"
            )
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor = _DLTensor(
            array.ctypes.data, _CPU, 0, array.ndim, code, 8 * array.itemsize, 1, shape, None, 0
        )
        kept += [array, shape, tensor]
        return tensor


def _plain(argument: _Argument) -> Any:
    """An argument as ctypes passes it to a C function."""
    match argument.kind:
        case 0:
            return argument.value.tensor
        case 1:
            return ctypes.c_int64(argument.value.integer)
        case 2:
            return ctypes.c_double(argument.value.floating)
        case _:
            return argument.value.text


def _is_shared(path: Path) -> bool:
    """Whether a file is a shared library already (of ELF, or Mach-O of 64 bits)."""
    with path.open("rb") as file:
        head = file.read(20)
    elf = head[:4] == b"\x7fELF" and int.from_bytes(head[16:18], "little") == 3
    macho = head[:4] == b"\xcf\xfa\xed\xfe" and int.from_bytes(head[12:16], "little") == 6
    return elf or macho
