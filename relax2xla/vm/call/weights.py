"""Weights on devices: each array once, whatever functions and machines use it.

What is computed from weights alone at load (design decision D6) is known by what it is computed
from, so two functions that need the same transposed weight share it as well.
"""

from __future__ import annotations

import difflib
import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
)
from relax2xla.ir.rewrite import bindings_of, post_order
from relax2xla.ir.struct_info import show
from relax2xla.runtime.convert import to_host
from relax2xla.runtime.device import Device
from relax2xla.runtime.progress import report
from relax2xla.stablehlo.emitter import emit
from relax2xla.transform.params.lift_weights import Lifted
from relax2xla.vm.call.packing import Packs, alone, packed
from relax2xla.vm.call.specialise import specialise
from relax2xla.vm.pjrt import compiler, xla
from relax2xla.vm.pjrt.jax_arguments import plain

Array = npt.NDArray[Any]
Key = tuple[Any, ...]


class WeightStore:
    """Arrays on devices by what they are.

    ``values``: weights by the source's names that take the place of the executable's own, numpy's
    or on the device already. A store with values keeps only what differs, and asks ``base`` for
    the rest.
    """

    def __init__(
        self, values: Mapping[str, Any] | None = None, base: WeightStore | None = None
    ) -> None:
        self.values = dict(values or {})
        self.base = base
        # Host arrays are kept with what was made of them, so that their ids stay their own.
        self._placed: dict[Key, tuple[Any, Any]] = {}
        self._lock = threading.RLock()

    def place(self, executable: Any, name: str, lifted: Lifted, device: Device | None) -> list[Any]:
        """The weights of a function on ``device``, in order; computes what is computed from them.

        Raises CallError where that needs an array that a saved executable does not hold.
        """
        with self._lock:
            fields = self._fields(executable, name, lifted, device)
            names = lifted.names or ("",) * len(lifted.weights)
            arrays = [
                fields[w] if isinstance(w, int) else self.values.get(n, w)
                for w, n in zip(lifted.weights, names, strict=True)
            ]
            total, done, made = sum(a.nbytes for a in arrays), 0, list[Any]()
            for a in arrays:
                made.append(self._array(a, device) if isinstance(a, np.ndarray) else a)
                done += a.nbytes
                report("to the device", done, total)
            return made

    def operands(
        self, executable: Any, name: str, lifted: Lifted, device: Device | None, packs: Packs
    ) -> list[Any]:
        """The weights as a program takes them: those in no pack, then the packs."""
        placed = self.place(executable, name, lifted, device)
        with self._lock:
            return [
                *(placed[i] for i in alone(len(placed), packs)),
                *(self._pack([placed[i] for i in pack], device) for pack in packs),
            ]

    def _pack(self, arrays: list[Any], device: Device | None) -> Any:
        """One pack on the device."""
        key = ("pack", device, *map(id, arrays))
        found = self._find(key)
        if found is None:
            made = xla.device_put(packed([np.asarray(a) for a in arrays]), device, copy=False)
            found = self._keep(key, arrays, made, True)
        return found

    def _array(self, array: Array, device: Device | None) -> Any:
        """One array on the device."""
        key = ("array", device, id(array))
        found = self._find(key)
        if found is None:
            own = any(array is v for v in self.values.values())
            found = self._keep(key, array, xla.device_put(array, device, copy=False), own)
        return found

    def _find(self, key: Key) -> Any:
        store: WeightStore | None = self
        while store is not None:
            if key in store._placed:
                return store._placed[key][1]
            store = store.base
        return None

    def _keep(self, key: Key, held: Any, made: Any, own: bool) -> Any:
        """Remember what was made; in the base, for all machines, unless it is this store's own."""
        if self.base is not None and not own:
            return self.base._keep(key, held, made, own)
        self._placed[key] = (held, made)
        return made

    def _fields(
        self, executable: Any, name: str, lifted: Lifted, device: Device | None
    ) -> dict[int, Any]:
        """What is computed at load, by field."""
        wanted = [w for w in lifted.weights if isinstance(w, int)]
        names = lifted.raw_names or ("",) * len(lifted.raw)
        changed = {i for i, n in enumerate(names) if n in self.values}
        if not wanted or lifted.transform is None:
            return {}
        if not changed and all(w in lifted.ready for w in wanted):
            return {w: self._array(lifted.ready[w], device) for w in wanted}
        raw = [self.values.get(n, a) for n, a in zip(names, lifted.raw, strict=True)]
        keys, needs = _keys(lifted.transform, raw)
        made: dict[int, Any] = {}
        missing: dict[bytes, list[int]] = {}
        for w in wanted:
            if w in lifted.ready and not needs[w] & changed:
                made[w] = self._array(lifted.ready[w], device)
                continue
            found = self._find(("computed", device, keys[w]))
            if found is None:
                missing.setdefault(keys[w], []).append(w)
            else:
                made[w] = found
        if missing:
            # What two readers need is computed once.
            first = [same[0] for same in missing.values()]
            arrays = self._compute(executable, name, lifted.transform, first, raw, names, device)
            for (key, same), array in zip(missing.items(), arrays, strict=True):
                own = bool(needs[same[0]] & changed)
                kept = self._keep(("computed", device, key), raw, array, own)
                made.update(dict.fromkeys(same, kept))
        return made

    def _compute(
        self,
        executable: Any,
        name: str,
        transform: Function,
        fields: Sequence[int],
        raw: Sequence[Array | None],
        names: Sequence[str],
        device: Device | None,
    ) -> Sequence[Any]:
        """Some fields of the transform's result, by a program that runs once."""
        func, used = _restricted(transform, fields)
        lacking = [i for i in used if raw[i] is None]
        if lacking:
            also = ", ".join(names[i] or f"number {i}" for i in lacking)
            raise CallError(
                f"{name}: the saved executable holds what was computed from the weights, and not "
                f"all of these themselves; give {also} as well, or save with weights='raw'"
            )
        program = specialise(executable.mod, name, func, {})
        avals = [xla.aval(o) for o in program.outputs]
        loaded = compiler.Loaded(
            emit(program.module, resources=False),
            avals,
            device,
            run_once=True,
            allowed=executable.allowed,
        )
        # Not kept: once this has run, the raw arrays are not needed on the device.
        given = [_placed(a, device) for i in used if (a := raw[i]) is not None]
        made = program.pack(loaded.run(given))
        xla.block(list(made))
        return made


class Weights:
    """The weights of one function on one device, from a store; ``packs`` are taken together."""

    def __init__(
        self, executable: Any, entry: Any, device: Device | None, packs: Packs, store: WeightStore
    ) -> None:
        self._packs, self._store = packs, store
        self._of = (executable, entry.name, entry.lifted, device)
        # As programs take them, once they are placed.
        self._operands: list[Any] | None = None
        self._lock = threading.RLock()

    def placed(self, store: WeightStore | None = None) -> list[Any]:
        """The arrays, in order; those that ``store`` would give, if one is named."""
        return (store or self._store).place(*self._of)

    def operands(self) -> list[Any]:
        """The weights as programs take them."""
        if self._operands is None:
            with self._lock:
                if self._operands is None:
                    self._operands = self._store.operands(*self._of, self._packs)
                    xla.to_large_pages(self._operands)
        return self._operands

    def use(self, store: WeightStore) -> None:
        """Take the weights from ``store`` from now on."""
        with self._lock:
            self._store, self._operands = store, None


def _placed(array: Any, device: Device | None) -> Any:
    if isinstance(array, np.ndarray):
        return xla.device_put(array, device, copy=False)
    return xla.on_device(array, device)


def _restricted(transform: Function, fields: Sequence[int]) -> tuple[Function, list[int]]:
    """The transform for some fields of its result, and the parameters that it then takes."""
    result = transform.body.body
    assert isinstance(result, Tuple)
    body = SeqExpr(transform.body.blocks, Tuple([result.fields[f] for f in fields]))
    func = remove_all_unused(Function(transform.params, body))
    live = {n for b in bindings_of(func.body) for n in post_order(b.value) if isinstance(n, Var)}
    live |= {n for n in post_order(func.body.body) if isinstance(n, Var)}
    used = [i for i, p in enumerate(transform.params) if p in live]
    return func.replace(params=[transform.params[i] for i in used]), used


def _keys(
    transform: Function, raw: Sequence[Array | None]
) -> tuple[list[bytes], list[frozenset[int]]]:
    """What each field of the transform's result is computed by, and from which parameters.

    Equal keys are equal computations on the same arrays (as long as these live).
    """
    known: dict[Expr, tuple[bytes, frozenset[int]]] = {}
    for i, p in enumerate(transform.params):
        identity = f"raw {id(raw[i])}" if raw[i] is not None else f"missing {id(transform)} {i}"
        known[p] = (identity.encode(), frozenset((i,)))
    for b in bindings_of(transform.body):
        digest = hashlib.sha256()
        needs: frozenset[int] = frozenset()
        for node in post_order(b.value):
            if isinstance(node, Var):
                digest.update(known[node][0])
                needs |= known[node][1]
            elif isinstance(node, Constant):
                _feed(digest, node.data)
            elif isinstance(node, Call):
                digest.update(str(node.op).encode())
                _feed(digest, node.attrs)
            elif not isinstance(node, Op):
                digest.update(f"{type(node).__name__} {node}".encode())
        digest.update(str(b.var.struct_info).encode())
        known[b.var] = (digest.digest(), needs)
    result = transform.body.body
    assert isinstance(result, Tuple)
    found = [known[f] for f in result.fields]
    return [key for key, _ in found], [needs for _, needs in found]


def _feed(digest: Any, value: Any) -> None:
    """Add an attribute's value to a digest, arrays with every element."""
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.name} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for name in sorted(value):
            digest.update(f"{name}=".encode())
            _feed(digest, value[name])
    elif isinstance(value, tuple):
        for item in value:
            digest.update(b",")
            _feed(digest, item)
    else:
        digest.update(f"{type(value).__name__} {value}".encode())


# -- weights by name -------------------------------------------------------------------------------
def weight_infos(executable: Any) -> dict[str, TensorStructInfo]:
    """Weights of an executable by the source's names; what has no name is left out."""
    found: dict[str, TensorStructInfo] = {}
    for entry in executable.compiled:
        lifted: Lifted = entry.lifted
        rest = entry.func.params[lifted.num_input :]
        named = list(zip(lifted.names, rest, strict=False))
        if lifted.transform is not None:
            named += zip(lifted.raw_names, lifted.transform.params, strict=False)
        for name, param in named:
            if name and isinstance(param.struct_info, TensorStructInfo):
                found[name] = param.struct_info
        found.update((n, found[of]) for n, of in lifted.aliases.items() if of in found)
    return found


def checked_params(executable: Any, params: Mapping[str, Any], strict: bool) -> dict[str, Array]:
    """Values for weights as host arrays; CallError where a name, shape or dtype does not fit.

    A weight of several names may be given by any; where it is given by two, they have to agree.
    """
    known = weight_infos(executable)
    own = {n: of for e in executable.compiled for n, of in e.lifted.aliases.items()}
    given: dict[str, str] = {}
    made: dict[str, Array] = {}
    for name, value in params.items():
        info = known.get(name)
        if info is None:
            if not strict:
                continue
            close = difflib.get_close_matches(name, known, 3)
            hint = f"did you mean {', '.join(close)}?" if close else f"there are {len(known)}"
            raise CallError(
                f"there is no weight {name!r}; {hint} (machine.params() lists them). strict=False "
                "leaves out what the program does not use"
            )
        array = to_host(plain(value), info.dtype)
        if array.shape != info.dims or array.dtype != numpy_dtype(info.dtype):
            raise CallError(
                f"the weight {name} is {show(info)}; given is {array.dtype}{array.shape}"
            )
        first = own.get(name, name)
        if first in made and made[first].tobytes() != array.tobytes():
            raise CallError(f"{given[first]} and {name} are one weight; given are two values")
        # A copy: the caller may write to its array afterwards.
        made[first], given[first] = array.copy(), name
    return made
