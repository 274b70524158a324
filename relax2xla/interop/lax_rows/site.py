"""What a rule of a row sees beside its operands: the call, and regions as Python functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Protocol

import jax
import numpy as np
from jax import lax

from relax2xla.dtypes import numpy_dtype
from relax2xla.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Op,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.struct_info import StructInfo
from relax2xla.vm.pjrt.varying import like

Rule = Callable[..., Any]


class Runner(Protocol):
    """Who evaluates functions for rules: the interpreter."""

    def call(self, func: Function, args: Sequence[Any], env: Mapping[Expr, Any]) -> Any:
        """The result of ``func`` on ``args``; ``env`` holds what it captures."""
        ...

    def named(self, name: str) -> Function:
        """The function of the module of this name."""
        ...

    def part(self, func: Function, fields: Sequence[int]) -> Function:
        """``func`` with these fields of its result alone, and what they need."""
        ...

    def fields_read(self, call: Call) -> Set[int] | None:
        """The fields that are read of a call's result; None where all may be."""
        ...

    def dimension(self, dim: Any) -> Any:
        """A dimension, which may be symbolic, as JAX has it."""
        ...

    def known(self, expr: Expr, env: Mapping[Expr, Any]) -> np.ndarray[Any, Any] | None:
        """A small value that depends on no argument; None for others."""
        ...

    @property
    def dtype(self) -> Any:
        """The dtype that a policy has for float32; None without one."""
        ...

    @property
    def prelude(self) -> Sequence[Any]:
        """Symbols of the module that are no functions, such as meshes, as text."""
        ...


def short_name(expr: Expr) -> str:
    """``add`` for a call of ``relax.stablehlo.add``; "" for anything else."""
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        return expr.op.name.rpartition(".")[2]
    return ""


class Site:
    """One call of a row. ``attrs``: its attributes; ``shape`` and ``dtype``: of its result."""

    def __init__(self, call: Call, runner: Runner) -> None:
        self.call, self.runner = call, runner
        self.attrs = call.attrs

    @cached_property
    def outputs(self) -> list[TensorStructInfo]:
        """Struct infos of the results."""
        info: StructInfo = self.call.struct_info
        fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
        return [f for f in fields if isinstance(f, TensorStructInfo)]

    @property
    def is_tuple(self) -> bool:
        """Whether the row gives a tuple."""
        return isinstance(self.call.struct_info, TupleStructInfo)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result: numbers, or symbolic dimensions where JAX exports such."""
        return self._sizes(self.outputs[0].dims or ())

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """dtype of the result, as wide as JAX's x64 flag has it."""
        return in_jax_width(numpy_dtype(self.outputs[0].dtype))

    def ints(self, name: str, default: int = 0, count: int = 0) -> tuple[int, ...]:
        """An attribute that is a list of integers; ``count`` times ``default`` if absent."""
        found = self.attrs.get(name)
        if found is None:
            return (default,) * count
        return self._sizes(found)

    def _sizes(self, dims: Sequence[Any]) -> tuple[int, ...]:
        if all(type(d) is int for d in dims):
            return tuple(dims)
        return tuple(map(self.runner.dimension, dims))

    def pairs(self, name: str, count: int) -> list[tuple[int, int]]:
        """An attribute that is a list of pairs; zeros if absent."""
        dim = self.runner.dimension
        return [(dim(a), dim(b)) for a, b in self.attrs.get(name) or ((0, 0),) * count]

    def literal(self, operand: int) -> Any:
        """The number that an operand is known to be, or None."""
        given = self.call.args[operand]
        if isinstance(given, Constant) and given.data.size == 1:
            return given.data.reshape(())[()]
        return None

    def result(self, values: Sequence[Any]) -> Any:
        """Several results as the row gives them."""
        return tuple(values) if self.is_tuple else values[0]


def in_jax_width(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """``dtype``, or what JAX has instead while its x64 flag is off."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


class Prepared:
    """A rule that reads the call once, not each time that JAX traces.

    ``prepare(site)`` gives the function of the operands. It knows attributes and declared types;
    what depends on values, or on what JAX made of a dtype, is the function's to see.
    """

    def __init__(self, prepare: Callable[[Site], Callable[..., Any]]) -> None:
        self.prepare = prepare

    def __call__(self, site: Site, *operands: Any) -> Any:
        return self.prepare(site)(*operands)


def shape_of(info: TensorStructInfo) -> tuple[int, ...]:
    """A static shape, as integers."""
    return tuple(d for d in info.dims or () if isinstance(d, int))


class Region:
    """A function of the program that is an operand: of a loop, a reduction, a comparator."""

    def __init__(self, func: Function, env: Mapping[Expr, Any], runner: Runner) -> None:
        self.func, self.env, self.runner = func, env, runner

    def __call__(self, *args: Any) -> Any:
        return self.runner.call(self.func, args, self.env)

    def several(self, *args: Any) -> tuple[Any, ...]:
        """The results as a tuple, also where there is one."""
        made = self(*args)
        return tuple(made) if isinstance(made, tuple) else (made,)

    @cached_property
    def values(self) -> dict[Expr, Expr]:
        """What each variable of the body is bound to."""
        return {b.var: b.value for b in bindings_of(self.func.body)}

    @property
    def fields(self) -> Sequence[Expr]:
        """The results, as the body names them."""
        body = self.func.body.body
        return body.fields if isinstance(body, Tuple) else (body,)

    @cached_property
    def binary(self) -> str:
        """The row that the body is, on its two parameters in any order if it commutes; or ""."""
        params, value = self.func.params, self.values.get(self.func.body.body)
        if len(self.values) != 1 or len(params) != 2 or not isinstance(value, Call):
            return ""
        name = short_name(value)
        args = [params.index(a) if a in params else -1 for a in value.args]
        return name if args == [0, 1] or (args == [1, 0] and name in COMMUTING) else ""

    @property
    def is_second(self) -> bool:
        """Whether it gives its second parameter."""
        return not self.values and self.func.body.body is self.func.params[-1]


COMMUTING = frozenset(["add", "multiply", "maximum", "minimum", "and_", "or_", "xor"])


def number(region: Region, expr: Expr) -> int | None:
    """The integer or flag that ``expr`` is known to be inside ``region``; None: it is computed."""
    found = region.runner.known(expr, region.env)
    if found is None or found.size != 1 or found.dtype.kind not in "iub":
        return None
    return int(found.reshape(())[()])


def vectorised(f: Callable[..., Any], *xs: Any) -> Any:
    """A function of scalars on arrays of one shape, element by element."""
    shape = np.shape(xs[0])
    made = jax.vmap(f)(*(lax.reshape(x, (math.prod(shape),)) for x in xs))
    return jax.tree.map(lambda y: lax.reshape(y, shape), made)


def with_derivative_of(fast: Callable[..., Any], smooth: Callable[..., Any]) -> Callable[..., Any]:
    """``fast``, whose derivatives are those of ``smooth``, an equal function."""
    made = jax.custom_jvp(fast)

    @made.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        outs, ways = jax.jvp(smooth, primals, tangents)
        return outs, like(outs, ways)

    return made
