"""Weights of a function of JAX: where they are in ``params`` and ``buffers``, and their numbers."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from relax2xla.dtypes import dtype_info, dtype_name, numpy_dtype
from relax2xla.errors import CallError
from relax2xla.ir import Call, Constant, Function, Op, Var
from relax2xla.ir.rewrite import post_order_deep

if TYPE_CHECKING:
    from relax2xla.vm.call.executable import Entry

#: What importers call a weight that is no parameter, in the metadata of its span.
BUFFERS = ("buffer", "constant")
_FLOATS = ("float", "complex")


class Policy:
    """How numbers are kept: see :func:`extract_jax`."""

    def __init__(self, x64: str, dtype: Any, remat: Sequence[str]) -> None:
        if x64 not in ("exact", "jax"):
            raise ValueError(f'x64 must be "exact" or "jax"; got {x64!r}')
        self.exact = x64 == "exact"
        self.dtype = None if dtype is None else numpy_dtype(dtype_name(dtype))
        if self.dtype is not None and self.dtype.name not in ("bfloat16", "float16"):
            raise ValueError(f"dtype must be bfloat16, float16 or None; got {self.dtype.name}")
        if isinstance(remat, str):
            raise TypeError(f'remat is a list of patterns, such as ["layers.*"]; got {remat!r}')
        self.remat = tuple(remat)

    @functools.cached_property
    def in_full(self) -> Policy:
        """The same in the dtypes of the program."""
        return Policy("exact" if self.exact else "jax", None, self.remat)

    def wide(self) -> Any:
        """A context in which 64-bit types are what the policy makes of them."""
        import jax

        return jax.enable_x64(True) if self.exact else contextlib.nullcontext()

    def stored(self, array: Any) -> Any:
        """A weight as ``params`` holds it."""
        import jax.numpy as jnp

        if self.dtype is not None and array.dtype == np.float32:
            return jnp.asarray(array).astype(self.dtype)
        with self.wide():
            return jnp.asarray(array)


def kind_of(node: Constant) -> str:
    """What the source calls a weight: "parameter", "buffer", "constant", or "" if it is silent."""
    return node.span.metadata if node.span is not None else ""


class Weights:
    """The weights of one function: where they are in ``params`` and ``buffers``."""

    def __init__(
        self,
        executable: Any,
        name: str,
        source: Function,
        chosen: Callable[[str], bool] | None,
    ) -> None:
        entry: Entry = executable[name]
        lifted = entry.lifted
        kinds, numbers = _kinds(source), _numbers(source)
        # By the identity of the array, so that tied weights are one.
        self.paths: dict[int, str] = {}
        self._held: dict[int, Any] = {}
        self._group: dict[int, str] = {}
        named = [
            *zip(lifted.weights, lifted.names, strict=True),
            *zip(lifted.raw, lifted.raw_names, strict=True),
        ]
        # What has no name beside weights that have is a constant of the program.
        has_names = any(path for _, path in named)
        self._places: dict[tuple[str, str], Sequence[tuple[str, Any, str]]] = {}
        taken: set[str] = set()
        for array, path in named:
            if array is None or isinstance(array, int) or id(array) in self.paths:
                continue
            kind = kinds.get(path, "") if path or not has_names else "constant"
            path = path or f"constant_{len(self.paths)}"
            while path in taken:
                path += "_"
            taken.add(path)
            self.paths[id(array)] = path
            # Numbers that were set apart are numbers again (see _scalars_apart).
            is_number = kinds.get(path) == "parameter" and path in numbers
            self._held[id(array)] = array.reshape(()) if is_number else array
            self._group[id(array)] = _group(path, array, kind, chosen)
        # No program reads what has no elements, but who trains has a place for it.
        for path, array in _empty(source):
            if path not in taken:
                self.paths[id(array)] = path
                self._held[id(array)] = array
                self._group[id(array)] = _group(path, array, "parameter", chosen)
        self.state = dict(source.attrs.get("state", {}))
        values = source.attrs.get("state_values", ())
        self._check_trained(source.attrs.get("state_trained", ()), chosen)
        for (path, _), value in zip(self.state.items(), values, strict=False):
            self._held[id(value)] = value
            self.paths[id(value)] = path
            self._group[id(value)] = "state"

    def _check_trained(self, names: Sequence[str], chosen: Callable[[str], bool] | None) -> None:
        """Say which parameters are among the buffers, because the function makes new ones of them.

        torch trains what it made, so that each step would have to take it from the call before.
        """
        wanted = names if chosen is None else [n for n in names if chosen(n)]
        if not wanted:
            return
        what = (
            f"{', '.join(wanted)}: the model itself changes this parameter, as nn.Embedding does "
            "for max_norm, so it is a buffer of the function, with new values from `fn.apply`"
        )
        if chosen is not None:
            raise ValueError(f"trainable: {what}, and cannot be trained")
        warnings.warn(f"{what}, and is not trained", stacklevel=4)

    def arrays(self, group: str, policy: Policy) -> dict[str, Any]:
        """The arrays of a group by path; state counts among the buffers."""
        groups = ("buffer", "state") if group == "buffer" else (group,)
        return {
            path: (policy.in_full if self._group[i] == "state" else policy).stored(self._held[i])
            for i, path in self.paths.items()
            if self._group[i] in groups
        }

    def differs(self, path: str, value: Any) -> bool:
        """Whether a weight has other numbers than the module has."""
        own = next(self._held[i] for i, p in self.paths.items() if p == path)
        return not np.array_equal(np.asarray(value), own, equal_nan=own.dtype.kind in "fc")

    def _wanted(self, group: str, what: str) -> Sequence[tuple[str, Any, str]]:
        """Of the weights of a group: path, numbers, and place in the tree ``what``."""
        if (group, what) not in self._places:
            groups = ("buffer", "state") if group == "buffer" else (group,)
            found = {p: self._held[i] for i, p in self.paths.items() if self._group[i] in groups}
            steps = _places(found, what)
            self._places[group, what] = [(p, a, steps[p]) for p, a in found.items()]
        return self._places[group, what]

    def gathered(self, group: str, tree: Any, what: str, policy: Policy) -> dict[str, Any]:
        """The values of a group by path; CallError names what does not fit."""
        flat = dict(_flat(tree, what))
        made: dict[str, Any] = {}
        for path, array, where in self._wanted(group, what):
            if where not in flat:
                found = f"; {what} has {_keys_of(tree)}" if not made else ""
                raise CallError(f"{where} is missing; expected {described(array)}{found}")
            made[path] = _checked(flat.pop(where), array, where, policy)
        if flat:
            where, value = next(iter(flat.items()))
            raise CallError(f"{where} is no weight of the function; given {described(value)}")
        return made


def want_used(option: str, patterns: Iterable[str], names: Sequence[str], what: str) -> None:
    """ValueError where a pattern fits nothing: a typing error would go unnoticed."""
    unused = [p for p in patterns if not any(fnmatch.fnmatchcase(n, p) for n in names)]
    if unused:
        known = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise ValueError(
            f"{option}: {', '.join(map(repr, unused))} fits no {what}; there are {known}"
        )


def _group(path: str, array: Any, kind: str, chosen: Callable[[str], bool] | None) -> str:
    if dtype_info(dtype_name(array.dtype)).kind not in _FLOATS:
        return "buffer"
    if chosen is not None:
        return "param" if chosen(path) else "buffer"
    return "buffer" if kind in BUFFERS else "param"


def _kinds(func: Function) -> dict[str, str]:
    """What the source calls each named weight; statistics of a batch norm are buffers."""
    made: dict[str, str] = {}
    for node in post_order_deep(func):
        if isinstance(node, Constant) and node.span is not None and node.span.name:
            made.setdefault(node.span.name, kind_of(node))
        if isinstance(node, Call) and isinstance(node.op, Op):
            if node.op.name == "relax.nn.batch_norm":
                for a in node.args[3:5]:
                    if isinstance(a, Constant) and a.span is not None:
                        made[a.span.name] = "buffer"
    return made


def modules_of(func: Function) -> Sequence[str]:
    """Paths of the modules whose values ``func`` computes, outer ones first."""
    found: dict[str, None] = {}
    for node in post_order_deep(func):
        span = node.span if isinstance(node, Call | Var) else None
        parts = span.name.split(".") if span is not None and span.name else []
        found.update((".".join(parts[:n]), None) for n in range(1, len(parts) + 1))
    return list(found)


def _numbers(func: Function) -> set[str]:
    """Names of the weights without axes."""
    return {
        node.span.name
        for node in post_order_deep(func)
        if isinstance(node, Constant) and node.span is not None and not node.data.ndim
    }


def _empty(func: Function) -> list[tuple[str, Any]]:
    """The parameters without elements, by name."""
    found = {
        node.span.name: node.data
        for node in post_order_deep(func)
        if isinstance(node, Constant) and node.span is not None and not node.data.size
        if kind_of(node) == "parameter"
    }
    return list(found.items())


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A dictionary by dotted paths as nested ones."""
    made: dict[str, Any] = {}
    for path, value in flat.items():
        *outer, last = _steps(path, flat)
        inner = made
        for step in outer:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return made


def _steps(path: str, known: Iterable[str]) -> list[str]:
    """The keys of a path. Where a shorter path is itself a weight, the rest is one key."""
    parts = path.split(".")
    for n in range(1, len(parts)):
        if ".".join(parts[:n]) in known:
            return [*parts[: n - 1], ".".join(parts[n - 1 :])]
    return parts


def _places(known: Mapping[str, Any], what: str) -> dict[str, str]:
    return {p: what + "".join(f"[{s!r}]" for s in _steps(p, known)) for p in known}


def _keys_of(tree: Any) -> str:
    """What a tree is at its root, for messages."""
    if not isinstance(tree, Mapping):
        return f"no keys, but is {described(tree)}"
    keys = [repr(k) for k in tree]
    return (
        f"the keys {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}" if keys else "no keys"
    )


def _flat(tree: Any, where: str) -> Iterable[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _flat(value, f"{where}[{key!r}]")
    else:
        yield where, tree


def described(value: Any) -> str:
    """A value in a message: dtype and shape, or type and text."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{dtype}{list(shape)}" if shape is not None else f"{type(value).__name__} {value!r}"


def _checked(value: Any, wanted: Any, where: str, policy: Policy) -> Any:
    """A weight as given, if its shape and dtype are those of the model."""
    expected = np.dtype(wanted.dtype)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None or tuple(shape) != tuple(wanted.shape):
        raise CallError(f"{where}: expected {described(wanted)}, given {described(value)}")
    if dtype != expected and not _may_be(dtype, expected, policy):
        raise CallError(
            f"{where}: expected {described(wanted)}, given {described(value)}; "
            "extract_jax(..., dtype=) makes a function of lower precision"
        )
    return value


def _may_be(dtype: Any, expected: np.dtype[Any], policy: Policy) -> bool:
    """Whether another dtype stands for the expected one: the policy's, or what JAX narrowed."""
    from relax2xla.vm.pjrt.jax_arguments import NARROW

    if policy.dtype is not None and expected == np.float32:
        return dtype in (policy.dtype, np.dtype(np.float32))
    return NARROW.get(expected.name) == dtype
