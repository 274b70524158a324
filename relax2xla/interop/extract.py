"""A function of a module as a function of JAX, with its weights as arguments (decision D18)."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.errors import CallError, Gap, TVMError, UnsupportedError
from relax2xla.importers.shared.trees import Tree, built, flattened, trees_of
from relax2xla.interop.dimensions import Dimensions
from relax2xla.ir import (
    Call,
    Constant,
    DeviceMesh,
    Expr,
    Function,
    IRModule,
    Op,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.rewrite import bindings_deep, post_order_deep
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.transform.lower.legalize import is_row

if TYPE_CHECKING:
    from relax2xla.vm.call.executable import Entry
    from relax2xla.vm.call.specialise import Program

Wide = Literal["exact", "jax"]
#: What importers call a weight that is no parameter, in the metadata of its span.
BUFFERS = ("buffer", "constant")
_FLOATS = ("float", "complex")


class JaxFunction:
    """``fn(params, *args, **kwargs)``; what :func:`extract_jax` gives.

    ``buffers``: weights that are not trained, by the same names; ``with_buffers`` gives the same
    function over others. ``apply(params, buffers, *args, **kwargs)`` gives the result and the
    buffers after the call, which a model in training mode changes.
    """

    def __init__(self, weights: Weights, name: str, policy: Policy) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"The Relax function {name} as a function of JAX: fn(params, *args)."
        self._weights, self._policy = weights, policy
        self.buffers: dict[str, Any] = nested(weights.arrays("buffer", policy))

    def __call__(self, params: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.apply(params, self.buffers, *args, **kwargs)[0]

    def __repr__(self) -> str:
        return f"<JAX function {self.__name__} of {len(self._weights.paths)} weights>"

    def with_buffers(self, buffers: Mapping[str, Any]) -> JaxFunction:
        """The same function over other buffers."""
        made = JaxFunction.__new__(JaxFunction)
        made.__dict__.update(self.__dict__, buffers=dict(buffers))
        return made

    def apply(self, params: Any, buffers: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The result, and the buffers after the call."""
        weights = self._weights
        given = weights.gathered("param", params, "params", self._policy)
        given |= weights.gathered("buffer", buffers, "buffers", self._policy)
        return weights.program.run(given, args, kwargs, buffers, self._policy)


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


def extract_jax(
    mod: IRModule | Function,
    name: str = "main",
    *,
    x64: Wide = "exact",
    dtype: Any = None,
    trainable: Sequence[str] | Callable[[str], bool] | None = None,
    remat: Sequence[str] | None = None,
) -> tuple[JaxFunction, dict[str, Any]]:
    """``(fn, params)``: a function of a module as a pure function of JAX, and its weights.

    ``fn(params, *args, **kwargs)`` takes and gives what the source's function did: torch's and
    JAX's trees, ONNX's inputs by place or name. It is made of ``jax.lax`` operations while JAX
    traces, so ``jit``, ``grad``, ``jvp``, ``vmap``, ``scan``, ``jax.checkpoint`` and ``jax.export``
    work on it, with the derivatives that torch has (``Op.smooth``). Dynamic shapes are specialised
    for the shapes at hand.

    ``params``: a nested dictionary by the source's names (``params["layers"]["0"]["weight"]``),
    tied weights once, under their first name. What a program computes from weights alone (folded
    batch norms, other layouts) is computed from them inside ``fn``. Buffers (running statistics,
    integer tables) are in ``fn.buffers``.

    x64: "exact": 64-bit integers and floats are computed as such, whatever JAX's flag says; "jax":
        JAX's flag decides, and UnsupportedError refuses constants that do not fit.
    dtype: "bfloat16" or "float16": float32 weights and arguments are stored and computed in it.
        Constants of the program, and what is computed from them alone, stay float32 until they
        meet a value of the other dtype; sums are accumulated, and results given, in float32.
    trainable: patterns of names (or a predicate) for what is in ``params``; the rest are buffers.
        None: what the source calls parameters, or all floats where it does not say.
    remat: patterns of module paths (``["layers.*"]``) whose values are computed again in backward
        passes (``jax.checkpoint``).

    Raises TVMError for a function that is no single program (effects, packed functions). CallError
    names the path of weights and arguments that do not fit. See :func:`gaps` for rows that have no
    derivative.
    """
    from relax2xla.vm.plan.build import build

    mod, name, func = entry_of(mod, name)
    policy = Policy(x64, dtype, remat or ())
    executable = build(_scalars_apart(mod), mesh=_devices(mod))
    if name not in executable.entries:
        raise UnsupportedError(
            f"{name} is not one program, so JAX cannot trace it:\n{executable.stats()}"
        )
    if not policy.exact:
        _refuse_wide(executable[name].func)
    weights = Weights(executable, name, func, _chooser(trainable))
    fn = JaxFunction(weights, name, policy)
    return fn, nested(weights.arrays("param", policy))


def _devices(mod: IRModule) -> Any:
    """The devices that a module is written for, of which there need be none yet; None for one.

    JAX says which they are when it calls: rows become its own collectives and mapped functions.
    """
    from relax2xla.runtime.device import Mesh
    from relax2xla.stablehlo.untrusted.gate import devices_of

    distributed = (m for known in mod.global_infos.values() for m in known)
    sizes = [len(m.device_ids) for m in distributed if isinstance(m, DeviceMesh)]
    count = max([devices_of(mod), *sizes])
    return Mesh("cpu", 0, tuple(range(count)), (("device", count),)) if count > 1 else None


def entry_of(mod: IRModule | Function, name: str) -> tuple[IRModule, str, Function]:
    """A module, and the function of it that is meant; TVMError where there is none."""
    if isinstance(mod, Function):
        name = global_symbol(mod) or "main"
        mod = IRModule.from_expr(mod.with_attr("global_symbol", name))
    if name not in mod:
        known = ", ".join(g.name_hint for g in mod)
        raise TVMError(f"the module has no function {name!r}; it has {known}")
    func = mod[name]
    assert isinstance(func, Function)
    return mod, name, func


def traced_call(executable: Any, name: str, func: Function) -> Callable[..., Any]:
    """A function of an executable on flat arguments, for values that JAX traces."""
    policy = Policy("exact", None, ())
    weights = Weights(executable, name, func.replace(span=None, attrs={}), None)
    held = {g: weights.arrays(g, policy) for g in ("param", "buffer")}

    def call(*args: Any, **kwargs: Any) -> Any:
        return weights.program.run({**held["param"], **held["buffer"]}, args, kwargs, {}, policy)[0]

    return call


def gaps(mod: IRModule | Function, name: str = "main") -> list[Gap]:
    """Rows of a function that JAX cannot differentiate, all of them, without tracing.

    Each with the source's names of the places. Operators that are not lowered yet are lowered
    first, where their shapes are known.
    """
    from relax2xla.interop.lax_rows import OPAQUE, RULES
    from relax2xla.transform.lower.legalize import LegalizeOps

    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    found: dict[str, list[str]] = collections.defaultdict(list)
    for func in LegalizeOps(every=True)(mod).relax_functions().values():
        for b in bindings_deep(func):
            call = b.value
            if not isinstance(call, Call) or not isinstance(call.op, Op):
                continue
            if is_row(call.op) and call.op.name in RULES:
                continue
            span = b.span or b.var.span
            found[call.op.name].append(str(span) if span is not None else b.var.name_hint)
    return [
        Gap(op, OPAQUE.get(op, "no rule over jax.lax"), tuple(nodes)) for op, nodes in found.items()
    ]


def _refuse_wide(func: Function) -> None:
    """UnsupportedError for 64-bit constants that JAX's 32 bits cannot hold, all at once."""
    from relax2xla.vm.pjrt.jax_arguments import is_wide

    if not is_wide(np.zeros(0, np.int64)):
        return
    bad: list[str] = []
    for node in post_order_deep(func):
        if isinstance(node, Constant) and node.data.dtype.name in ("int64", "uint64"):
            limits = np.iinfo(node.data.dtype.name.replace("64", "32"))
            values = node.data
            if values.size and (values.min() < limits.min or values.max() > limits.max):
                where = f" ({node.span})" if node.span is not None else ""
                worst = values.max() if values.max() > limits.max else values.min()
                bad.append(f"{worst}{where}")
    if bad:
        raise UnsupportedError(
            f"constants do not fit the 32 bits that JAX has: {', '.join(bad)}; use x64='exact', or "
            "switch on jax_enable_x64"
        )


def _chooser(trainable: Any) -> Callable[[str], bool] | None:
    if trainable is None:
        return None
    if callable(trainable):
        return lambda name: bool(trainable(name))
    if isinstance(trainable, str):
        raise TypeError(f'trainable is a list of patterns, such as ["head.*"]; got {trainable!r}')
    import fnmatch

    patterns = tuple(trainable)
    return lambda name: any(fnmatch.fnmatchcase(name, p) for p in patterns)


def _scalars_apart(mod: IRModule) -> IRModule:
    """Parameters of no axes as vectors of one: machines keep numbers in their programs."""
    from relax2xla.ir.rewrite import Rewriter
    from relax2xla.op import reshape

    def apart(node: Expr) -> Expr | None:
        if not isinstance(node, Constant) or node.data.ndim or kind_of(node) != "parameter":
            return None
        if id(node) not in made:
            made[id(node)] = Constant(node.data.reshape(1), span=node.span)
        return reshape(made[id(node)], ())

    made: dict[int, Constant] = {}
    functions = {
        g: Rewriter(rule=apart).function(f) if isinstance(f, Function) else f
        for g, f in mod.items()
    }
    if not made:
        return mod
    return mod.replace({g: BlockBuilder().normalize(f) for g, f in functions.items()})


def kind_of(node: Constant) -> str:
    """What the source calls a weight: "parameter", "buffer", "constant", or "" if it is silent."""
    return node.span.metadata if node.span is not None else ""


# ---- weights
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
        taken: set[str] = set()
        for array, path in named:
            if array is None or isinstance(array, int) or id(array) in self.paths:
                continue
            path = path or f"constant_{len(self.paths)}"
            while path in taken:
                path += "_"
            taken.add(path)
            self.paths[id(array)] = path
            # Numbers that were set apart are numbers again (see _scalars_apart).
            is_number = kinds.get(path) == "parameter" and path in numbers
            self._held[id(array)] = array.reshape(()) if is_number else array
            self._group[id(array)] = _group(path, array, kinds.get(path, ""), chosen)
        self.state = dict(source.attrs.get("state", {}))
        values = source.attrs.get("state_values", ())
        self.program = Programs(executable, name, source, self)
        for (path, _), value in zip(self.state.items(), values, strict=False):
            self._held[id(value)] = value
            self.paths[id(value)] = path
            self._group[id(value)] = "state"

    def arrays(self, group: str, policy: Policy) -> dict[str, Any]:
        """The arrays of a group by path; state counts among the buffers."""
        groups = ("buffer", "state") if group == "buffer" else (group,)
        return {
            path: policy.stored(self._held[i])
            for i, path in self.paths.items()
            if self._group[i] in groups
        }

    def gathered(self, group: str, tree: Any, what: str, policy: Policy) -> dict[str, Any]:
        """The values of a group by path; CallError names what does not fit."""
        groups = ("buffer", "state") if group == "buffer" else (group,)
        wanted = {p: self._held[i] for i, p in self.paths.items() if self._group[i] in groups}
        flat = dict(_flat(tree, what))
        steps = _places(wanted, what)
        made: dict[str, Any] = {}
        for path, array in wanted.items():
            where = steps[path]
            if where not in flat:
                raise CallError(f"{where} is missing; expected {_described(array)}")
            made[path] = _checked(flat.pop(where), array, where, policy)
        if flat:
            where, value = next(iter(flat.items()))
            raise CallError(f"{where} is no weight of the function; given {_described(value)}")
        return made


def _group(path: str, array: Any, kind: str, chosen: Callable[[str], bool] | None) -> str:
    from relax2xla.dtypes import dtype_info

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


def _numbers(func: Function) -> set[str]:
    """Names of the weights without axes."""
    return {
        node.span.name
        for node in post_order_deep(func)
        if isinstance(node, Constant) and node.span is not None and not node.data.ndim
    }


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


def _flat(tree: Any, where: str) -> Iterable[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _flat(value, f"{where}[{key!r}]")
    else:
        yield where, tree


def _described(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{dtype}{list(shape)}" if shape is not None else f"{type(value).__name__} {value!r}"


def _checked(value: Any, wanted: Any, where: str, policy: Policy) -> Any:
    """A weight as given, if its shape and dtype are those of the model."""
    expected = np.dtype(wanted.dtype)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None or tuple(shape) != tuple(wanted.shape):
        raise CallError(f"{where}: expected {_described(wanted)}, given {_described(value)}")
    if dtype != expected and not _may_be(dtype, expected, policy):
        raise CallError(
            f"{where}: expected {_described(wanted)}, given {_described(value)}; "
            "extract_jax(..., dtype=) makes a function of lower precision"
        )
    return value


def _may_be(dtype: Any, expected: np.dtype[Any], policy: Policy) -> bool:
    """Whether another dtype stands for the expected one: the policy's, or what JAX narrowed."""
    from relax2xla.vm.pjrt.jax_arguments import NARROW

    if policy.dtype is not None and expected == np.float32:
        return dtype in (policy.dtype, np.dtype(np.float32))
    return NARROW.get(expected.name) == dtype


# ---- programs
class Programs:
    """One function's programs by the shapes of its arguments."""

    def __init__(self, executable: Any, name: str, source: Function, weights: Weights) -> None:
        self.executable, self.name, self.weights = executable, name, weights
        self.entry: Entry = executable[name]
        self.source = source
        self.params = self.entry.params
        self.trees = trees_of(source)
        self.held = int(source.attrs.get("num_input", 0)) if "params" in source.attrs else 0
        self.dimensions = Dimensions()
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._transform: IRModule | None = None

    # -- arguments
    def leaves(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], state: Sequence[Any]
    ) -> list[Any]:
        """One value for each parameter; CallError for what does not fit."""
        count = len(self.params) - len(self.weights.state)
        found: dict[int, Any] = {}
        if self.trees is not None:
            tree: Tree = self.trees["in"]
            args, kwargs = self._placed(tree, args, kwargs)
            flattened(tree, (tuple(args), dict(kwargs)), self.name, found)
        else:
            names = [p.name_hint for p in self.params[:count]]
            if len(args) > count:
                raise CallError(
                    f"{self.name} takes {count} arguments ({', '.join(names)}); got {len(args)}"
                )
            found = dict(enumerate(args))
            for key, value in kwargs.items():
                if key not in names or names.index(key) in found:
                    why = "is given twice" if key in names else "is no argument"
                    raise CallError(f"{self.name}: {key} {why}; it has {', '.join(names)}")
                found[names.index(key)] = value
        missing = [p.name_hint for i, p in enumerate(self.params[:count]) if i not in found]
        if missing:
            raise CallError(f"{self.name}: arguments are missing: {', '.join(missing)}")
        # State comes after the inputs, before nothing else.
        return [*(found[i] for i in range(count)), *state]

    def _placed(
        self, tree: Tree, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Arguments where the source had them: positional ones may be given by name and back."""
        (where, by_name) = tree["tuple"]
        own = [k for k, _ in by_name["dict"]]
        names = self.trees.get("names") or [] if self.trees else []
        args, kwargs = list(args), dict(kwargs)
        wanted = len(where["tuple"])
        for n in own:
            if n not in kwargs and len(args) > wanted:
                kwargs[n] = args.pop(wanted)
        while len(args) < wanted:
            part = where["tuple"][len(args)]
            name = names[len(args)] if len(args) < len(names) else None
            if name in kwargs:
                args.append(kwargs.pop(name))
            elif "const" in part:
                args.append(part["const"])
            else:
                break
        for key, part in by_name["dict"]:
            if "const" in part:
                kwargs.setdefault(key, part["const"])
        return args, kwargs

    def infos(
        self, leaves: Sequence[Any]
    ) -> tuple[list[StructInfo], list[Any], dict[tir.Var, Any]]:
        """Struct infos of the arguments, the arrays among their leaves, and symbolic dimensions."""
        arrays: list[Any] = []
        symbols: dict[tir.Var, Any] = {}

        def info(declared: StructInfo, value: Any, where: str) -> StructInfo:
            if isinstance(declared, TupleStructInfo):
                fields = declared.fields
                if not isinstance(value, tuple | list) or len(value) != len(fields):
                    given = _described(value)
                    raise CallError(f"{where}: expected {show(declared)}, given {given}")
                places = enumerate(zip(fields, value, strict=True))
                return TupleStructInfo([info(f, v, f"{where}[{i}]") for i, (f, v) in places])
            if isinstance(declared, TensorStructInfo):
                array = _array(value, declared, where)
                arrays.append(array)
                shape = tuple(self.dimensions.relax(d, symbols) for d in array.shape)
                return TensorStructInfo.make(shape, _declared(array.dtype, declared))
            if isinstance(declared, ShapeStructInfo):
                return ShapeStructInfo(tuple(map(int, value)))
            if isinstance(declared, PrimStructInfo):
                return PrimStructInfo(declared.dtype, value)
            raise CallError(f"{where} is {show(declared)}, which JAX has nothing for")

        made = [
            info(p.struct_info, v, f"{self.name}: `{p.name_hint}`")
            for p, v in zip(self.params, self._narrowed(leaves), strict=True)
        ]
        return made, arrays, symbols

    def _narrowed(self, leaves: Sequence[Any]) -> list[Any]:
        """Arguments of 64 bits where JAX had them narrowed when it traced the source's function."""
        from relax2xla.vm.pjrt.jax_arguments import narrowed

        made = list(leaves)
        for i in self.executable.narrowed.get(self.name, ()):
            declared = self.params[i].struct_info
            if isinstance(made[i], np.ndarray) and isinstance(declared, TensorStructInfo):
                made[i] = narrowed(made[i], declared.dtype)
        return made

    # -- programs
    def program(self, infos: Sequence[StructInfo], symbolic: bool = False) -> Program:
        """The program of rows for arguments of these struct infos; ``symbolic``: shapes are."""
        import jax

        from relax2xla.interop.lax_rows.collectives import workers_here
        from relax2xla.op.ccl import between_workers
        from relax2xla.op.shared.smooth import smooth_lowerings
        from relax2xla.vm.call.specialise import match, specialise, specialise_symbolic

        workers = workers_here()
        key = f"{workers}: " + "; ".join(map(show, infos))
        with self._lock:
            if key not in self._made:
                env = match(self.name, self.params, infos)
                platforms = ("", jax.default_backend())
                passes = [p for p in self.executable.static if p.info.platform in platforms]
                mod, func, smooth = self.executable.mod, self.entry.func, smooth_lowerings()
                if workers > 1:
                    smooth = {**smooth, **between_workers(workers)}
                with self.executable.context.resumed():
                    made = (
                        specialise_symbolic(mod, self.name, func, env, infos, smooth)
                        if symbolic
                        else specialise(mod, self.name, func, env, passes, infos, smooth)
                    )
                self._made[key] = made
            return self._made[key]

    def transform(self) -> IRModule | None:
        """What depends on weights alone, as rows."""
        from relax2xla.transform.core import run_on_function
        from relax2xla.transform.lower.legalize import LegalizeStatic

        transform = self.entry.lifted.transform
        if self._transform is None and transform is not None:
            legal = run_on_function([LegalizeStatic()], transform, "main")
            self._transform = IRModule({"main": legal})
        return self._transform

    def run(
        self,
        given: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        buffers: Any,
        policy: Policy,
    ) -> tuple[Any, Any]:
        """The result on weights by path, and the buffers after the call."""
        import jax.numpy as jnp
        from jax import lax

        from relax2xla.interop.evaluate import Evaluator

        state = list(self.weights.state)
        leaves = self.leaves(args, kwargs, [given[p] for p in state])
        infos, arrays, symbols = self.infos(leaves)
        program = self.program(infos, bool(symbols))
        with policy.wide():
            lifted, paths = self.entry.lifted, self.weights.paths
            tensors = [i for info in infos for i in flatten_info(info)]
            declared = [i.dtype for i in tensors if isinstance(i, TensorStructInfo)]
            values = [_entered(a, d, policy) for a, d in zip(arrays, declared, strict=True)]

            def weight(array: Any) -> Any:
                value = _entered(given[paths[id(array)]], dtype_name(array.dtype), policy)
                return value if value.ndim == array.ndim else lax.reshape(value, array.shape)

            made: Any = ()
            transform = self.transform()
            if transform is not None:
                evaluator = Evaluator(transform, policy.dtype)
                made = evaluator.call(transform["main"], [weight(a) for a in lifted.raw], {})
            for w in lifted.weights:
                values.append(made[w] if isinstance(w, int) else weight(w))
            evaluator = Evaluator(program.module, policy.dtype, policy.remat, symbols)
            out = evaluator.call(program.module["main"], values, {})
            flat = list(out) if isinstance(out, tuple) else [out]
            if policy.dtype is not None:
                flat = [
                    lax.convert_element_type(x, numpy_dtype(o.dtype))
                    for x, o in zip(flat, program.outputs, strict=True)
                ]
            result = program.pack([jnp.asarray(x) for x in flat])
        return self._returned(result, buffers)

    def _returned(self, result: Any, buffers: Any) -> tuple[Any, Any]:
        """The result as the source nests it, and the buffers with their new values."""
        state = self.weights.state
        fields = list(result) if isinstance(result, tuple) else [result]
        if state:
            flat = {p: fields[place] for p, (_, place) in state.items()}
            buffers = _updated(buffers, flat)
            first = min(place for _, place in state.values())
            fields = fields[:first]
            result = tuple(fields)
        if self.trees is None:
            return result, buffers
        # An output that is None came as the empty tuple.
        fields = [None if isinstance(f, tuple) and not f else f for f in fields]
        for place, impl in self.trees.get("keys", {}).items():
            import jax

            bits: Any = fields[int(place)]
            fields[int(place)] = jax.random.wrap_key_data(bits, impl=impl)
        return built(self.trees["out"], fields), buffers


def _updated(buffers: Any, new: Mapping[str, Any]) -> Any:
    """Nested buffers with some leaves replaced."""

    def copy(tree: Any) -> Any:
        return {k: copy(v) for k, v in tree.items()} if isinstance(tree, Mapping) else tree

    made = copy(buffers)
    for path, value in new.items():
        *outer, last = path.split(".")
        inner = made
        for step in outer:
            inner = inner[step]
        inner[last] = value
    return made


def _array(value: Any, declared: TensorStructInfo, where: str) -> Any:
    """A value that has a shape and a dtype: arrays and traced values as they are."""
    from relax2xla.runtime.convert import to_host
    from relax2xla.vm.pjrt.jax_arguments import plain
    from relax2xla.vm.pjrt.xla import is_tracer

    value = plain(value)
    if is_tracer(value) or hasattr(value, "aval"):
        return value
    try:
        return to_host(value, declared.dtype)
    except CallError as e:
        raise CallError(f"{where}: {e}") from None


def _declared(given: Any, declared: TensorStructInfo) -> str:
    """The dtype of an argument; the declared one where JAX narrowed it, or took it for lower."""
    from relax2xla.vm.pjrt.jax_arguments import NARROW

    wanted = declared.dtype
    if wanted and (NARROW.get(wanted) == given or (wanted == "float32" and _is_half(given))):
        return wanted
    return dtype_name(given)


def _is_half(dtype: Any) -> bool:
    return np.dtype(dtype).name in ("bfloat16", "float16")


def _entered(value: Any, declared: str, policy: Policy) -> Any:
    """An argument or weight in the dtype that it is computed in."""
    import jax.numpy as jnp
    from jax import lax

    wanted = numpy_dtype(declared)
    if policy.dtype is not None and wanted == np.float32:
        wanted = policy.dtype
    if not policy.exact:
        import jax

        wanted = jax.dtypes.canonicalize_dtype(wanted)
    value = jnp.asarray(value)
    return value if value.dtype == wanted else lax.convert_element_type(value, wanted)
