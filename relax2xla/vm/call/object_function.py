"""Calls with objects that hold arrays: one XLA program instead of bytecode (decision D21).

What an object is, is known when it is passed, so the program is made then: ``ObjectsToArrays`` for
the form of the objects, then a program per call shape as for any function. Where a function does
with an object what has no form in arrays, the bytecode runs, whose calls the object answers itself.

So that programs are few, the tokens of a call are padded wherever ``vm.call.padding`` proves that
no result shows it: to powers of two, and half way between. A ``take`` of mode "fast" is of tokens
that there are; what it gives beyond them is of padding.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    ExternFunc,
    Function,
    GlobalVar,
    ObjectStructInfo,
    Op,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.traits import Foreign, Takes
from relax2xla.transform.lower.kernel_rows import keeps_rows_apart
from relax2xla.transform.lower.objects_to_arrays import PACKED, ObjectForm, unfold_objects
from relax2xla.transform.params.lift_weights import lift_weights
from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.call.bytecode_function import VMFunction
from relax2xla.vm.call.executable import Entry, Executable
from relax2xla.vm.call.in_place import in_callers_memory
from relax2xla.vm.call.objects import DeviceObject, Loan, roomy
from relax2xla.vm.call.padding import Axes, cut, padded, seen
from relax2xla.vm.call.signatures import positional
from relax2xla.vm.call.state_slots import Slot, keeping
from relax2xla.vm.code.interpreter import Interpreter
from relax2xla.vm.host.operators import host_op

log = logging.getLogger("relax2xla.vm")

Forms = tuple[tuple[int, ObjectForm], ...]
Bind = Callable[[Executable, str, Any], BoundFunction]
_OTHER: Final = object()


def takes_objects(executable: Executable, name: str) -> bool:
    """Whether the bytecode function ``name`` has parameters that may be objects with arrays."""
    known = executable.signatures.get(name)
    return known is not None and any(isinstance(p.struct_info, ObjectStructInfo) for p in known())


class ObjectFunction(VMFunction):
    """A bytecode function that takes objects; ``bind`` makes the functions of XLA programs.

    ``limit``: programs of several forms that are kept, the least recently used one goes first.
    """

    def __init__(
        self, interpreter: Interpreter, index: int, executable: Executable, bind: Bind, limit: int
    ) -> None:
        super().__init__(interpreter, index, executable.in_place)
        self._executable, self._bind, self._limit = executable, bind, limit
        self._unfolded: OrderedDict[Forms, _Unfolded | None] = OrderedDict()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run; arguments as for :class:`VirtualMachine`."""
        if self._intercept is not None:
            return super().__call__(*args, **kwargs)
        if kwargs:
            args = positional(self.name, self.param_names, args, kwargs)
        objects = {i: a for i, a in enumerate(args) if isinstance(a, DeviceObject)}
        if objects and len(args) == len(self.param_names):
            made = self._call_unfolded(args, objects)
            if made is not _OTHER:
                return in_callers_memory(self._in_place, args, made)
        return super().__call__(*args)

    def programs(self) -> dict[Forms, list[Any]]:
        """The programs that are loaded, by the forms of objects."""
        made = {f: u for f, u in self._unfolded.items() if u is not None}
        return {f: u.bound.programs() for f, u in made.items()}

    def _call_unfolded(self, args: Sequence[Any], objects: Mapping[int, DeviceObject]) -> Any:
        """The result, or _OTHER where the bytecode has to run."""
        if len({id(o) for o in objects.values()}) < len(objects):
            return _OTHER
        with ExitStack() as stack:
            loans = {i: stack.enter_context(o.lent()) for i, o in objects.items()}
            forms = tuple((i, x.form) for i, x in loans.items() if x.form is not None)
            unfolded = self._find(forms) if len(forms) == len(loans) else None
            return _OTHER if unfolded is None else unfolded(args, objects, loans)

    def _find(self, forms: Forms) -> _Unfolded | None:
        if forms not in self._unfolded:
            self._unfolded[forms] = self._made(forms)
            if len(self._unfolded) > self._limit:
                self._unfolded.popitem(last=False)
        self._unfolded.move_to_end(forms)
        return self._unfolded[forms]

    def _made(self, forms: Forms) -> _Unfolded | None:
        mod, name = self._executable.mod, self.name
        source = mod.functions.get(mod.get_global_var(name)) if name in mod else None
        if not isinstance(source, Function):
            return None
        try:
            made = unfold_objects(source, dict(forms), mod)
            _refuse_host(made.func)
        except TransformError as e:
            log.info("%s runs in parts, the host between them: %s", name, e)
            return None
        return _Unfolded(self._executable, name, source, made.func, made.given, forms, self._bind)


def _refuse_host(func: Function) -> None:
    """TransformError where something is left that the host does."""
    for node in post_order_deep(func):
        if not isinstance(node, Call):
            continue
        if isinstance(node.op, ExternFunc):
            raise TransformError(f"it calls the packed function {node.op.global_symbol}")
        if isinstance(node.op, Op) and (node.op.has(Foreign) or host_op(node) is not None):
            raise TransformError(f"it runs on the host: {node}"[:200])


class _Unfolded:
    """A function for objects of certain forms: one XLA program a call shape."""

    def __init__(
        self,
        executable: Executable,
        name: str,
        source: Function,
        func: Function,
        given: Sequence[Sequence[str]],
        forms: Forms,
        bind: Bind,
    ) -> None:
        self._result = source.ret_struct_info
        self._places = [i for i, _ in forms]
        self._rest = [i for i in range(len(source.params)) if i not in self._places]
        count = sum(map(len, given))
        tables = func.params[len(func.params) - count :]
        named = [(i, n) for i, names in zip(self._places, given, strict=True) for n in names]
        self._tables = [(i, n, _dims(p)) for (i, n), p in zip(named, tables, strict=True)]
        self._sizes = _sources(source, self._rest, tables)
        self._params = [source.params[i].struct_info for i in self._rest]
        self._padded = [v for v in self._sizes if seen(source, v, _keeps_apart) is None]
        first = len(self._rest)
        slots = [
            Slot(source.params[i].name_hint, first + k, k + 1) for k, i in enumerate(self._places)
        ]
        mod = executable.mod
        alone = dataclasses.replace(
            executable,
            mod=mod.replace({**mod.functions, mod.get_global_var(name): func}),
            entries={name: Entry.of(name, lift_weights({name: func})[name])},
            donated={},
            in_place={},
            find_program=None,
            allowed=executable.allowed.union(*(form.targets for _, form in forms)),
        )
        self.bound = bind(alone, name, keeping(name, func.params, slots))

    def __call__(
        self, args: Sequence[Any], objects: Mapping[int, Any], loans: Mapping[int, Loan]
    ) -> Any:
        """Run, and give the objects the next values of their arrays."""
        sizes = {var: _size(args, place) for var, place in self._sizes.items()}
        wanted = {v: n for v in self._padded if (n := roomy(sizes[v])) != sizes[v]}
        given = [args[i] for i in self._rest]
        if wanted:
            pairs = zip(self._params, given, strict=True)
            given = [padded(info, a, wanted, self.bound.device) for info, a in pairs]
        shapes = {**sizes, **wanted}
        tables = [
            loans[i].given(name, tuple(_value(d, shapes) for d in dims))
            for i, name, dims in self._tables
        ]
        kept = [loans[i].kept for i in self._places]
        made = self.bound(*given, *kept, *tables)
        for i, arrays in zip(self._places, made[1:], strict=True):
            loans[i].back = arrays
        result = made[0]
        if wanted:
            true = {v: sizes[v] for v in wanted}
            result = cut(result, self._result, true, self.bound.device)
        return _with_objects(result, self._result, objects)


def _keeps_apart(call: Call, operands: Sequence[Axes]) -> bool:
    """Whether a call on an object, or a look-up of tokens, keeps the tokens apart."""
    if not isinstance(call.op, Op):
        return False
    callee = call.args[0] if call.op.name == "relax.call_tir" else None
    kernel = isinstance(callee, GlobalVar) and keeps_rows_apart(callee.name_hint)
    if kernel or call.op.name in PACKED:
        return all(axes <= {0} for axes in operands)
    looks_up = call.op.has(Takes) and call_attrs(call).get("mode") == "fast"
    return looks_up and not operands[1]


def _dims(p: Var) -> tuple[tir.Dim, ...]:
    info = p.struct_info
    assert isinstance(info, TensorStructInfo)
    assert info.dims is not None
    return tuple(info.dims)


def _sources(
    source: Function, rest: Sequence[int], tables: Sequence[Var]
) -> dict[tir.Var, tuple[int, ...]]:
    """Where arguments have the sizes that the tables' shapes are made of: a path to a dimension."""
    wanted = {v for p in tables for v in free_symbolic_vars(p.struct_info)}
    found: dict[tir.Var, tuple[int, ...]] = {}

    def look(info: StructInfo, path: tuple[int, ...]) -> None:
        if isinstance(info, TupleStructInfo):
            for i, f in enumerate(info.fields):
                look(f, (*path, i))
        elif isinstance(info, TensorStructInfo) and info.dims is not None:
            for i, d in enumerate(info.dims):
                if isinstance(d, tir.Var) and d in wanted:
                    found.setdefault(d, (*path, i))

    for i in rest:
        look(source.params[i].struct_info, (i,))
    missing = [v.name for v in wanted if v not in found]
    if missing:
        raise TransformError(f"no argument has a dimension that is {', '.join(missing)}")
    return found


def _size(args: Sequence[Any], path: tuple[int, ...]) -> int:
    value: Any = args
    for i in path[:-1]:
        value = value[i]
    return int(value.shape[path[-1]])


def _value(dim: tir.Dim, sizes: Mapping[tir.Var, int]) -> int:
    made = tir.as_dim(tir.simplify(tir.substitute(dim, sizes)))
    assert isinstance(made, int)
    return made


def _with_objects(value: Any, info: StructInfo, objects: Mapping[int, Any]) -> Any:
    """``value`` with the objects where their numbers are."""
    if isinstance(info, ObjectStructInfo):
        return objects[int(value)]
    if isinstance(info, TupleStructInfo):
        return tuple(_with_objects(v, f, objects) for v, f in zip(value, info.fields, strict=True))
    return value
