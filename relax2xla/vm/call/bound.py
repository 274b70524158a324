"""One function of an executable on one device: its programs by call shape, and its calls.

A call goes one of two roads (decision D5): functions of few arguments and weights run under JAX's
C++ dispatch, which also checks the arguments; functions with many weights run straight on PJRT,
where an argument costs least. Each call shape is specialised, compiled and cached once (decision
D7).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from relax2xla.dtypes import DTYPES, dtype_name, is_integer
from relax2xla.errors import CallError, OpError, StructInfoError
from relax2xla.ir import (
    IRModule,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
    no_collection,
)
from relax2xla.ir.struct_info import show
from relax2xla.runtime.convert import to_host
from relax2xla.runtime.device import Device
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.gate_mlir import check_mlir
from relax2xla.transform.lower.legalize import flatten_info
from relax2xla.vm.call.arguments import difference, positional, signature
from relax2xla.vm.call.canonical import is_narrowed, narrowed, plain, widened
from relax2xla.vm.call.numbers import named
from relax2xla.vm.call.packing import with_packs
from relax2xla.vm.call.placing import WeightStore
from relax2xla.vm.call.specialise import Packed, Program, match, specialise
from relax2xla.vm.call.staging import OTHER, staged
from relax2xla.vm.executable import Entry, VMExecutable
from relax2xla.vm.pjrt import jit, xla
from relax2xla.vm.pjrt.xla import ARRAY
from relax2xla.vm.plan.ranges import check_ranges

if TYPE_CHECKING:
    from relax2xla.vm.call.donation import Reuse

log = logging.getLogger("relax2xla.vm")

# Up to this many arguments and weights the jitted road is the faster one (benchmarks/dispatch.py).
JIT_ARGUMENTS = 8
# Programs kept for one function; the least recently used one goes first.
CACHE_SIZE = 64
# Programs of one function after which a warning is due.
WARN_AFTER = 32

Key = tuple[Any, ...]


@dataclass(slots=True)
class _History:
    """What a function has compiled, for the log: the last arguments, and how many programs."""

    last: tuple[StructInfo, ...] | None = None
    count: int = 0


class BoundFunction:
    """One function of an executable on one device."""

    def __init__(
        self,
        executable: VMExecutable,
        name: str,
        device: Device | None,
        store: WeightStore | None = None,
    ) -> None:
        self.name = name
        self.entry: Entry = executable[name]
        self.device = device
        self.params: tuple[Var, ...] = self.entry.params
        self._executable = executable
        self._cache: OrderedDict[Key, tuple[xla.Loaded, Packed]] = OrderedDict()
        self._lock = threading.RLock()
        self._store = executable.store if store is None else store
        # The weights as programs take them, once they are placed.
        self._operands: list[Any] | None = None
        # What an argument costs beside the rest is known of the CPU only.
        on_cpu = xla.jax_device(device).platform == "cpu"
        self._packs = self.entry.packs if on_cpu else ()
        self._flat = [leaf for p in self.params for leaf in flatten_info(p.struct_info)]
        self._only_tensors = all(isinstance(p.struct_info, TensorStructInfo) for p in self.params)
        self._dtypes = [p.dtype for p in self._flat if isinstance(p, TensorStructInfo)]
        self._wanted = [np.dtype(DTYPES[d].numpy) if d in DTYPES else None for d in self._dtypes]
        self._jit = self._jit_serves()
        # JAX's C++ dispatch with the weights given, once they are placed.
        self._fast: Callable[..., Any] | None = None
        # The program of the last call on the other road: shapes and dtypes that it fits, and it.
        self._direct: tuple[list[tuple[Any, Any]], Callable[..., Any]] | None = None
        # The program of the last call with numpy arrays alone (vm.staging).
        self._staged: Callable[[Sequence[Any]], Any] | None = None
        self._stages: dict[Key, Any] = {}
        # Counts what made these wrong, for calls that were on their way then.
        self._generation = 0
        # Programs that are kept, programs after which a warning is due, and what was compiled.
        self.limit, self.warn_after = CACHE_SIZE, WARN_AFTER
        self._history = _History()
        # Tensors that take arrays of twice their width, as ``jax.jit`` does.
        self._narrowed = frozenset(executable.narrowed.get(name, ()) if self._only_tensors else ())
        # What calls go to instead, if anything.
        self._intercept: Callable[[Sequence[Any]], Any] | None = None
        self._sharding = xla.sharding(device)
        # Arguments whose memory a call takes (vm.donation), and what a file calls such programs.
        self.reuse: Reuse | None = None
        self.variant = name
        self.__signature__ = signature([p.name_hint for p in self.params])

    # -- calling

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run; see :class:`VirtualMachine` for what arguments may be."""
        if kwargs:
            names = [p.name_hint for p in self.params]
            return self(*positional(self.name, names, args, kwargs))
        fast = self._fast
        if fast is not None:
            for a in args:
                if type(a) is not ARRAY:
                    break
            else:
                try:
                    return fast(*args)
                except xla.ERROR as e:
                    raise xla.of_xla("run", e) from e
                except ValueError:
                    # Arrays spread over several devices are brought to this one.
                    moved = [xla.on_device(a, self.device) for a in args]
                    if all(a is b for a, b in zip(moved, args, strict=True)):
                        raise
                    return fast(*moved)
        elif self._direct is not None:
            fits, call = self._direct
            if len(args) == len(fits):
                sharding = self._sharding
                for a, (shape, dtype) in zip(args, fits):  # noqa: B905 - the hot path
                    if type(a) is not ARRAY or a.shape != shape or a.dtype != dtype:
                        break
                    if a.sharding != sharding:
                        break
                else:
                    return call(args)
        try:
            if self._staged is not None:
                result = self._staged(args)
                if result is not OTHER:
                    return result
            return self._slow(args)
        except xla.ERROR as e:
            raise xla.of_xla("run", e) from e

    def _slow(self, args: Sequence[Any]) -> Any:
        """A call that is not made of jax arrays only, or whose weights are not placed yet."""
        generation = self._generation
        if self._intercept is not None:
            return self._intercept(args)
        if not self._jit or len(args) != len(self._wanted):
            return self._run(args)
        for a, dtype in zip(args, self._wanted, strict=True):
            # JAX would narrow 64-bit numpy arrays without a word; other kinds it does not know.
            if type(a) is not xla.ARRAY and not (type(a) is np.ndarray and a.dtype == dtype):
                return self._run(args)
        fast = self._fast
        if fast is None:
            fast = self._fast = self._make_fast()
        stage = self._staged = self._stage(args, fast)
        if self._generation != generation:
            self._forget()
        if stage is not None and (result := stage(args)) is not OTHER:
            return result
        # Copies: the program runs on after this call returns, and JAX would read numpy's memory
        # then, which the caller may have written to.
        own = (xla.on_device(a, self.device) if type(a) is xla.ARRAY else a.copy() for a in args)
        return fast(*own)

    def _stage(
        self, args: Sequence[Any], call: Callable[..., Any]
    ) -> Callable[[Sequence[Any]], Any] | None:
        """``call`` for numpy arguments like these, where their memory can be shared."""
        if self.reuse is not None or not all(type(a) is np.ndarray for a in args):
            return None
        if any(args[i].dtype != self._wanted[i] for i in self._narrowed):
            return None
        key = tuple((a.shape, a.dtype) for a in args)
        found = self._stages.get(key, OTHER)
        if found is OTHER:
            if len(self._stages) >= self.limit:
                self._stages.clear()
            found = self._stages[key] = staged(args, self.device, call)
        return found

    def _forget(self) -> None:
        """Nothing that a call finds at once is right any more."""
        self._generation += 1
        self._fast = self._direct = self._staged = None
        self._stages = {}

    def _run(self, args: Sequence[Any]) -> Any:
        """The road over PJRT."""
        generation = self._generation
        leaves = args if self._only_tensors else self._leaves(args)
        if len(leaves) != len(self._flat):
            self._refuse_count(len(args))
        buffers: list[Any] = []
        key: list[Any] = []
        for i, (value, info) in enumerate(zip(leaves, self._flat, strict=True)):
            if isinstance(info, TensorStructInfo):
                buffer = self._buffer(value, info, i)
                buffers.append(buffer)
                key.append((buffer.shape, buffer.dtype))
            else:
                key.append(value)
        if any(map(xla.is_tracer, buffers)):
            return self._traced(buffers, key)
        found = self._cache.get(tuple(key))
        if found is None:
            found = self._compile(tuple(key), self._infos(key))
        elif len(self._cache) > 1:
            with self._lock, contextlib.suppress(KeyError):
                self._cache.move_to_end(tuple(key))
        loaded, program = found
        weights, run, pack = self._given(), loaded.run, program.pack
        if self._only_tensors:
            self._direct = (key, lambda args: pack(run([*weights, *args])))
            self._staged = self._stage(args, lambda *a: pack(run([*weights, *a])))
            if self._generation != generation:
                self._forget()
        return pack(run(weights + buffers))

    def _refuse_count(self, count: int) -> NoReturn:
        """CallError: so many arguments do not fit."""
        names = ", ".join(p.name_hint for p in self.params)
        stated = self.name in self._executable.states
        hint = f'; vm.bind_state("{self.name}") keeps its state for it' if stated else ""
        raise CallError(
            f"{self.name} takes {len(self.params)} arguments ({names}); got {count}{hint}"
        )

    def _leaves(self, args: Sequence[Any]) -> list[Any]:
        """Arguments flattened as the parameters' tuples are."""
        if len(args) != len(self.params):
            self._refuse_count(len(args))
        out: list[Any] = []

        def flatten(value: Any, info: StructInfo, where: str) -> None:
            if isinstance(info, TupleStructInfo):
                if not isinstance(value, tuple | list) or len(value) != len(info.fields):
                    got = f"{len(value)} items" if isinstance(value, tuple | list) else type(value)
                    raise CallError(
                        f"{self.name}: {where} must be a tuple of {len(info.fields)}; got {got}"
                    )
                for i, (v, f) in enumerate(zip(value, info.fields, strict=True)):
                    flatten(v, f, f"{where}[{i}]")
            elif isinstance(info, TensorStructInfo):
                out.append(value)
            elif isinstance(info, ShapeStructInfo | PrimStructInfo):
                out.append(_host_value(value, info, f"{self.name}: {where}"))
            else:
                raise CallError(
                    f"{self.name}: {where} is {show(info)}; only tensors, shapes and numbers (and "
                    "tuples of them) can be passed to a compiled function"
                )

        for p, a in zip(self.params, args, strict=True):
            flatten(a, p.struct_info, f"`{p.name_hint}`")
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
            if index in self._narrowed:
                host = narrowed(host, info.dtype)
        except CallError as e:
            raise CallError(f"{self.name}: argument {index} ({show(info)}): {e}") from None
        if dtype_known(host) is None:
            raise CallError(
                f"{self.name}: argument {index} has the dtype {host.dtype}; expected {show(info)}"
            )
        # A copy: the caller may write to its array as soon as this call returns.
        return xla.device_put(host, self.device)

    # -- specialising

    def _infos(self, key: Sequence[Any]) -> list[StructInfo]:
        """Struct infos of the arguments of a call, from its key."""
        rest = iter(key)

        def build(info: StructInfo) -> StructInfo:
            if isinstance(info, TupleStructInfo):
                return TupleStructInfo([build(f) for f in info.fields])
            item = next(rest)
            if isinstance(info, TensorStructInfo):
                return TensorStructInfo.make(tuple(item[0]), dtype_name(item[1]))
            if isinstance(info, ShapeStructInfo):
                return ShapeStructInfo(item)
            if isinstance(info, PrimStructInfo):
                return PrimStructInfo(info.dtype, item)
            return ObjectStructInfo()

        return [build(p.struct_info) for p in self.params]

    @no_collection()
    def program(self, infos: Sequence[StructInfo]) -> Program:
        """The static program for arguments of these struct infos; it takes the weights last."""
        env = match(self.name, self.params, infos)
        leaves = (leaf for i in infos for leaf in flatten_info(i))
        dtypes = (leaf.dtype for leaf in leaves if isinstance(leaf, TensorStructInfo))
        xla.refuse_arguments(dtypes, self.device)
        check_ranges(self.name, self.entry.func, env)
        platform = xla.jax_device(self.device).platform
        passes = [p for p in self._executable.static if p.info.platform in ("", platform)]
        mod, func = self._executable.mod, self.entry.func
        try:
            with self._executable.context.resumed():
                made = specialise(mod, self.name, func, env, passes, infos)
        except (StructInfoError, OpError) as e:
            if not env:
                raise
            sizes = ", ".join(f"{name} = {n}" for name, n in named(func, env).items())
            raise CallError(f"{self.name}: there is no program for {sizes}: {e}") from e
        if not self._packs:
            return made
        weights = len(self.entry.lifted.weights)
        return replace(made, module=with_packs(made.module, weights, self._packs))

    def lowered(self, infos: Sequence[StructInfo]) -> tuple[Any, Program]:
        """The program for arguments of these struct infos as MLIR; it takes the weights first."""
        program = self.program(infos)
        weights = self._count
        module = emit(_weights_first(program.module, weights))
        if self.reuse is not None:
            xla.mark_donated(module, {weights + a: r for a, r in self.reuse(program).items()})
        return module, program

    def key_of(self, infos: Sequence[StructInfo]) -> Key:
        """What the machine finds the program for such arguments by; CallError if not static."""
        return tuple(_key_of(leaf) for i in infos for leaf in flatten_info(i))

    def _compile(self, key: Key, infos: Sequence[StructInfo]) -> tuple[xla.Loaded, Packed]:
        with self._lock:
            if key in self._cache:
                return self._cache[key]
            match(self.name, self.params, infos)  # a call that does not fit compiles nothing
            self._say(infos)
            find = self._executable.find_program
            found = None if find is None else find(self.variant, key, self.device)
            if found is None:
                module, program = self.lowered(infos)
                avals = [xla.aval(o) for o in program.outputs]
                allowed = self._executable.allowed
                found = (xla.Loaded(module, avals, self.device, allowed=allowed), program)
            self._cache[key] = found
            if len(self._cache) > self.limit:
                self._cache.popitem(last=False)
                # JAX's dispatch holds the programs of all shapes that it has seen.
                self._forget()
            return found

    def _say(self, infos: Sequence[StructInfo]) -> None:
        """Log why a function compiles again, and warn where it does so again and again."""
        before, self._history.last = self._history.last, tuple(infos)
        self._history.count += 1
        if before is None:
            return
        count = self._history.count
        func = self.entry.func
        numbers = [named(func, match(self.name, self.params, i)) for i in (before, infos)]
        changed = difference(self.params, before, infos, *numbers)
        log.info("%s: compiling again (%d), %s", self.name, count, changed)
        if count == self.warn_after:
            log.warning(
                "%s has compiled for %d call shapes, the last because %s; compile ahead with "
                "vm.warm, or let several sizes share a program with vm.bucket",
                self.name,
                count,
                changed,
            )

    def warm(self, infos: Sequence[StructInfo] = ()) -> None:
        """Compile for arguments of these struct infos; none: those of a static function."""
        infos = infos or [p.struct_info for p in self.params]
        self._given()
        key = self.key_of(infos)
        self._compile(key, self._infos(key))

    def programs(self) -> list[xla.Loaded]:
        """The programs that are loaded, one a call shape."""
        return [loaded for loaded, _ in self._cache.values()]

    # -- calls that go another way

    def intercept(self, call: Callable[[Sequence[Any]], Any] | None) -> None:
        """Send the calls of this object to ``call``, or (None) to the program again."""
        with self._lock:
            self._intercept = call
            self._forget()

    def twin(self) -> BoundFunction:
        """The same function, with the same programs, whose calls nothing intercepts."""
        made = copy.copy(self)
        made._intercept = None
        made._forget()
        return made

    def placed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Arguments as values that later calls take as they are; CallError where they do not fit.

        Arrays are copied to the device, so the caller may write to its own.
        """
        if kwargs:
            args = positional(self.name, [p.name_hint for p in self.params], args, kwargs)
        leaves = self._leaves(args)
        made = [
            self._buffer(value, info, i) if isinstance(info, TensorStructInfo) else value
            for i, (value, info) in enumerate(zip(leaves, self._flat, strict=True))
        ]
        key = [(v.shape, v.dtype) if xla.is_array(v) else v for v in made]
        match(self.name, self.params, self._infos(key))
        rest = iter(made)

        def build(info: StructInfo) -> Any:
            if isinstance(info, TupleStructInfo):
                return tuple(build(f) for f in info.fields)
            return next(rest)

        return [build(p.struct_info) for p in self.params]

    def prepare(self, args: Sequence[Any]) -> xla.Loaded:
        """Compile for the shapes of ``args``, as :meth:`placed` gave them, without a call."""
        self._given()
        key = self._key_of_values(args)
        return (self._cache.get(key) or self._compile(key, self._infos(key)))[0]

    def named(self, args: Sequence[Any]) -> xla.Loaded:
        """As :meth:`prepare`, the program with the names of this source.

        One of the disk cache may have been compiled from another source, with its names and lines.
        """
        loaded = self.prepare(args)
        if loaded.from_cache:
            key = self._key_of_values(args)
            module, program = self.lowered(self._infos(key))
            allowed = self._executable.allowed
            loaded = xla.Loaded(module, loaded.outputs, self.device, fresh=True, allowed=allowed)
            with self._lock:
                self._cache[key] = (loaded, program)
                self._forget()
        return loaded

    def _key_of_values(self, args: Sequence[Any]) -> Key:
        leaves = self._leaves(args)
        return tuple((v.shape, v.dtype) if xla.is_array(v) else v for v in leaves)

    # -- weights

    def weights(self) -> list[Any]:
        """The weights on the device; the first call places them and computes what is lifted."""
        return self._store.place(self._executable, self.name, self.entry.lifted, self.device)

    @property
    def _count(self) -> int:
        """How many arrays programs take for the weights."""
        return len(self.entry.lifted.weights) - sum(len(p) - 1 for p in self._packs)

    def _given(self) -> list[Any]:
        """The weights as programs take them."""
        if self._operands is None:
            with self._lock:
                if self._operands is None:
                    self._operands = self._store.operands(
                        self._executable, self.name, self.entry.lifted, self.device, self._packs
                    )
        return self._operands

    def use_store(self, store: WeightStore) -> None:
        """Take the weights from ``store`` from now on; calls that run already end as they began."""
        with self._lock:
            self._store = store
            self._operands = None
            self._forget()

    # -- the jitted road

    def _jit_serves(self) -> bool:
        """Whether the jitted road can run this function, exactly as the other one would."""
        infos = [*self._flat, *flatten_info(self.entry.func.ret_struct_info)]
        small = len(self.params) + self._count <= JIT_ARGUMENTS
        return (
            small
            and bool(self.params)
            and self._only_tensors
            and all(isinstance(i, TensorStructInfo) and _fits_jit(i.dtype) for i in infos)
        )

    def _make_fast(self) -> Callable[..., Any]:
        weights = self._given()
        count = len(weights)

        def compiled(args: Sequence[Any]) -> tuple[xla.Loaded, Callable[[Sequence[Any]], Any]]:
            if len(args) != len(self.params):
                self._refuse_count(len(args))
            key = tuple((a.shape, a.dtype) for a in args)
            loaded, program = self._cache.get(key) or self._compile(key, self._infos(key))
            return loaded, program.pack

        def traced(*values: Any) -> Any:
            args = values[count:]
            if len(args) != len(self._flat):
                self._refuse_count(len(args))
            return self._traced(args, [(a.shape, a.dtype) for a in args], values[:count])

        traced.__name__ = self.name
        return jit.dispatcher(self.name, compiled, traced, weights, self.device)

    def _traced(
        self, args: Sequence[Any], key: Sequence[Any], weights: Sequence[Any] | None = None
    ) -> Any:
        """The function on values that JAX traces: its program, inlined."""
        wide = [_wide(k, info) for k, info in zip(key, self._flat, strict=True)]
        program = self.program(self._infos(wide))
        module = emit(program.module)
        check_mlir(module, self._executable.allowed)
        text = str(module)
        values = [*args, *(self._given() if weights is None else weights)]
        outputs = [xla.aval(o) for o in program.outputs]
        return program.pack(jit.inline_program(values, text, outputs))


def _after_fork() -> None:
    """In the child of a fork: programs that are loaded would wait for XLA's threads."""
    BoundFunction.__call__ = xla.refuse_after_fork


xla.AFTER_FORK.append(_after_fork)


def _weights_first(mod: IRModule, weights: int) -> IRModule:
    """``mod`` whose ``main`` takes its last ``weights`` parameters first: they never change."""
    gvar = mod.get_global_var("main")
    func = mod[gvar]
    count = len(func.params) - weights
    return mod.replace(
        {**mod, gvar: func.replace(params=func.params[count:] + func.params[:count])}
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
        raise CallError(
            f"{where} must be {kind} for {show(info)}; got {type(value).__name__}"
        ) from None


def _wide(key: Any, info: StructInfo) -> Any:
    """What a call is found by, ``key``, with the dtype that JAX narrowed."""
    if isinstance(info, TensorStructInfo) and is_narrowed(key[1], info.dtype):
        return (key[0], np.dtype(DTYPES[info.dtype].numpy))
    return key


def _fits_jit(dtype: str) -> bool:
    """Whether JAX without its x64 flag keeps values of ``dtype`` as they are."""
    row = DTYPES.get(dtype)
    if row is None:
        return False
    return row.bits <= (64 if row.kind == "complex" else 32)


def _key_of(info: StructInfo) -> Any:
    if isinstance(info, TensorStructInfo):
        if info.dims is None or not all(isinstance(d, int) for d in info.dims):
            raise CallError(
                f"{show(info)} is not static; give each symbolic dimension a size, as in "
                'vm.warm("main", n=8), or the shape of each argument, as in vm.warm("main", (8, 4))'
            )
        row = DTYPES.get(info.dtype)
        if row is None:
            what = f"has the dtype {info.dtype}, which" if info.dtype else "says no dtype, which"
            raise CallError(
                f"{show(info)} {what} no array has; give the struct info of each argument, as in "
                'vm.warm("main", TensorStructInfo((8, 4), "float32"))'
            )
        return (tuple(info.dims), np.dtype(row.numpy))
    if isinstance(info, ShapeStructInfo):
        return info.values
    return info.value if isinstance(info, PrimStructInfo) else None


def dtype_known(array: np.ndarray[Any, Any]) -> str | None:
    """The Relax dtype of an array, None where there is none."""
    try:
        return dtype_name(array.dtype)
    except TypeError:
        return None
