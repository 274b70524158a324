"""What callers give a compiled function, as what its programs take: arrays, shapes and numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from relax2xla.dtypes import DTYPES, dtype_name, is_integer
from relax2xla.errors import ArgumentTypeError, CallError
from relax2xla.ir import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.runtime.convert import to_host
from relax2xla.runtime.device import Device
from relax2xla.vm.call.call_shapes import Key, infos_of
from relax2xla.vm.call.signatures import positional
from relax2xla.vm.call.specialise import match
from relax2xla.vm.pjrt import xla
from relax2xla.vm.pjrt.jax_arguments import narrowed, plain, widened


class Arguments:
    """The arguments of the function ``name`` on ``device``.

    ``leaves`` are the struct infos of ``params`` without their tuples, and ``dtypes`` numpy's for
    its tensors (None where any is taken). ``narrowed``: places of tensors that take arrays of twice
    their width, as ``jax.jit`` does. ``hint`` ends the message for a wrong number of arguments.
    """

    def __init__(
        self,
        name: str,
        params: Sequence[Var],
        device: Device | None,
        narrowed: Collection[int] = (),
        hint: str = "",
    ) -> None:
        self.name, self.params, self.device, self._hint = name, tuple(params), device, hint
        self.names = [p.name_hint for p in params]
        self.leaves = [leaf for p in params for leaf in flatten_info(p.struct_info)]
        self.only_tensors = all(isinstance(p.struct_info, TensorStructInfo) for p in params)
        said = [p.dtype for p in self.leaves if isinstance(p, TensorStructInfo)]
        self.dtypes = [np.dtype(DTYPES[d].numpy) if d in DTYPES else None for d in said]
        self.narrowed = frozenset(narrowed if self.only_tensors else ())

    def positional(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Arguments in the order of the parameters; CallError where they do not fit."""
        return positional(self.name, self.names, args, kwargs) if kwargs else args

    def refuse_count(self, count: int) -> NoReturn:
        """CallError: so many arguments do not fit."""
        raise CallError(
            f"{self.name} takes {len(self.params)} arguments ({', '.join(self.names)}); got "
            f"{count}{self._hint}"
        )

    def refuse_lists(self, args: Sequence[Any], error: CallError) -> None:
        """ArgumentTypeError instead of ``error`` where a list that is no such array was given."""
        for param, value in zip(self.params, args, strict=True):
            if isinstance(param.struct_info, TensorStructInfo) and isinstance(value, list | tuple):
                raise ArgumentTypeError(
                    f"{error}; `{param.name_hint}` was given as a {type(value).__name__}"
                ) from None

    def on_device(self, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arrays among the arguments, on the device, and what their program is found by."""
        leaves = self._flat(args)
        if len(leaves) != len(self.leaves):
            self.refuse_count(len(args))
        buffers: list[Any] = []
        key: list[Any] = []
        for i, (value, info) in enumerate(zip(leaves, self.leaves, strict=True)):
            if isinstance(info, TensorStructInfo):
                buffer = self._buffer(value, info, i)
                buffers.append(buffer)
                key.append((buffer.shape, buffer.dtype))
            else:
                key.append(value)
        return buffers, key

    def placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Arguments as values that later calls take as they are; CallError where they do not fit.

        Arrays are copied to the device, so the caller may write to its own.
        """
        buffers, key = self.on_device(self.positional(args, kwargs))
        match(self.name, self.params, infos_of(self.params, key))
        arrays, rest = iter(buffers), iter(key)

        def build(info: StructInfo) -> Any:
            if isinstance(info, TupleStructInfo):
                return tuple(build(f) for f in info.fields)
            value = next(rest)
            return next(arrays) if isinstance(info, TensorStructInfo) else value

        return [build(p.struct_info) for p in self.params]

    def key(self, args: Sequence[Any]) -> Key:
        """What the program for ``args``, as :meth:`placed` gave them, is found by."""
        return tuple((v.shape, v.dtype) if xla.is_array(v) else v for v in self._flat(args))

    def _flat(self, args: Sequence[Any]) -> Sequence[Any]:
        """Arguments flattened as the parameters' tuples are."""
        if self.only_tensors:
            return args
        if len(args) != len(self.params):
            self.refuse_count(len(args))
        out: list[Any] = []
        for p, a in zip(self.params, args, strict=True):
            _flatten(a, p.struct_info, f"{self.name}: `{p.name_hint}`", out.append)
        return out

    def _buffer(self, value: Any, info: TensorStructInfo, index: int) -> Any:
        """``value`` as an array on the device; the dtype is checked by the specialisation."""
        if not xla.is_array(value):
            value = plain(value)
        if xla.is_array(value):
            return widened(xla.on_device(value, self.device), info.dtype)
        if xla.is_tracer(value):
            return value
        try:
            host = to_host(value, info.dtype)
            if index in self.narrowed:
                host = narrowed(host, info.dtype)
        except CallError as e:
            raise CallError(f"{self.name}: argument {index} ({show(info)}): {e}") from None
        try:
            dtype_name(host.dtype)
        except TypeError:
            raise CallError(
                f"{self.name}: argument {index} has the dtype {host.dtype}; expected {show(info)}"
            ) from None
        # A copy: the caller may write to its array as soon as this call returns.
        return xla.device_put(host, self.device)


def _flatten(value: Any, info: StructInfo, where: str, add: Callable[[Any], None]) -> None:
    """Call ``add`` with what is in an argument; CallError where it is not what ``info`` says."""
    if isinstance(info, TupleStructInfo):
        if not isinstance(value, tuple | list) or len(value) != len(info.fields):
            got = f"{len(value)} items" if isinstance(value, tuple | list) else type(value)
            raise CallError(f"{where} must be a tuple of {len(info.fields)}; got {got}")
        for i, (v, f) in enumerate(zip(value, info.fields, strict=True)):
            _flatten(v, f, f"{where}[{i}]", add)
    elif isinstance(info, TensorStructInfo):
        add(value)
    elif isinstance(info, ShapeStructInfo | PrimStructInfo):
        add(_host_value(value, info, where))
    else:
        raise CallError(
            f"{where} is {show(info)}; only tensors, shapes and numbers (and tuples of them) can "
            "be passed to a compiled function"
        )


def _host_value(value: Any, info: ShapeStructInfo | PrimStructInfo, where: str) -> Any:
    """A shape as a tuple of integers, a number as Python's; CallError for anything else."""
    try:
        if isinstance(info, ShapeStructInfo):
            return tuple(map(operator.index, value))
        plain = value.item() if hasattr(value, "item") else value
        if is_integer(info.dtype):
            return operator.index(plain)
        return bool(plain) if info.dtype == "bool" else float(plain)
    except (TypeError, ValueError):
        kind = "a shape (a tuple of integers)" if isinstance(info, ShapeStructInfo) else "a number"
        raise ArgumentTypeError(
            f"{where} must be {kind} for {show(info)}; got {type(value).__name__}"
        ) from None
