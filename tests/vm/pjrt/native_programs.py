"""Programs of one composite each, and which of them become calls of functions in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import TVMError
from relax2xla.ir import Function, Var
from relax2xla.kernels.native import Call, Family, Tensor
from relax2xla.runtime.native import NativeFunction
from relax2xla.vm.pjrt import native_calls

Array = np.ndarray[Any, Any]


def program(call: Call, family: Family, form: Function) -> rx.IRModule:
    """A module whose function is one composite."""
    params = [
        Var(f"x{i}", rx.TensorStructInfo(t.shape, t.dtype)) for i, t in enumerate(call.operands)
    ]
    symbol = f"main{family.forms}0"
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(
                rx.Op.get("relax.stablehlo.composite")(
                    *params,
                    name=call.name,
                    composite_attributes=call.attributes,
                    decomposition=symbol,
                    sinfo_args=[
                        rx.TensorStructInfo(t.shape, t.dtype) for t in family.results(call)
                    ],
                )
            )
        builder.emit_func_output(made)
    mod = builder.get()
    return mod.replace({**mod.functions, rx.GlobalVar(symbol): form})


def called(library: Mapping[str, NativeFunction], call: Call, operands: Sequence[Array]) -> Array:
    """What the function in C++ gives, of one result; all of it is written."""
    (made,) = all_called(library, call, operands, [call.result])
    return made


def all_called(
    library: Mapping[str, NativeFunction],
    call: Call,
    operands: Sequence[Array],
    results: Sequence[Tensor],
) -> list[Array]:
    """All that the function in C++ gives."""
    made = [np.full(t.shape, np.nan if "float" in t.dtype else 77, t.dtype) for t in results]
    library[call.symbol](*operands, *call.numbers, *made)
    return made


def replaced(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls that are made from now on."""
    made: list[Call] = []
    replace: Callable[..., None] = native_calls._replace

    def note(op: Any, family: Family, call: Call, key: str) -> None:
        made.append(call)
        replace(op, family, call, key)

    monkeypatch.setattr(native_calls, "_replace", note)
    return made


def run(mod: rx.IRModule, operands: list[Array]) -> Any:
    """The result, or a list of several."""
    made = rx.VirtualMachine(rx.build(mod, "cpu"))["main"](*operands)
    return list(map(np.asarray, made)) if isinstance(made, tuple) else np.asarray(made)


class Threads:
    """Threads that there are not: the parts of a call are done one after the other, the last first.

    parts: how many each call had
    """

    def __init__(self, count: int) -> None:
        self.parts: list[int] = []
        part = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

        def share(parts: int, work: Any, data: int) -> int:
            if parts:
                self.parts.append(parts)
            for i in reversed(range(parts)):
                work(data, i)
            return count

        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, part, ctypes.c_void_p)(share)
        self.address = ctypes.cast(self._call, ctypes.c_void_p).value


@contextmanager
def no_library(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """As on a machine whose compiler fails."""

    def fails(*args: Any) -> Any:
        raise TVMError("no library")

    monkeypatch.setattr(native_calls, "library", fails)
    native_calls.functions.cache_clear()
    try:
        yield
    finally:
        native_calls.functions.cache_clear()
