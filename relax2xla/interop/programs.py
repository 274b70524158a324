"""Programs of a function of JAX: one for each set of shapes, run row by row while JAX traces."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.errors import CallError
from relax2xla.importers.shared.trees import Tree, built, flattened, trees_of
from relax2xla.interop.dimensions import Dimensions
from relax2xla.interop.draws import Draws, as_key
from relax2xla.interop.held import Machine, WithCalls
from relax2xla.interop.sized import Sizes
from relax2xla.interop.static import is_fixed
from relax2xla.interop.weights import Policy, Weights, described
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    IRModule,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import bindings_deep, bindings_of, post_order_deep
from relax2xla.ir.source_names import source_name
from relax2xla.ir.struct_info import flatten_info, show

if TYPE_CHECKING:
    from relax2xla.interop.evaluate import Evaluator
    from relax2xla.vm.call.executable import Entry, Executable
    from relax2xla.vm.call.specialise import Program


class Programs:
    """One function's programs by the shapes of its arguments.

    ``sizes``: values that decide on sizes, which are parameters after those of ``source``.
    ``machine``: makes the machine's own executable of the function, for weights that are arrays;
    ``called``: that for weights that come with each call.
    ``draws``: what is known of its random numbers; those of the program itself, if nothing is.
    """

    def __init__(
        self,
        executable: Any,
        name: str,
        source: Function,
        weights: Weights,
        sizes: Sizes | None = None,
        draws: Draws | None = None,
        machine: Callable[[], Executable] | None = None,
        called: Callable[[], Executable] | None = None,
    ) -> None:
        self.executable, self.name, self.weights, self.sizes = executable, name, weights, sizes
        self.draws = draws or Draws("", False, False)
        self._machine = machine and Machine(machine, name, weights)
        self.entry: Entry = executable[name]
        self._with_calls = called and WithCalls(called, name, weights, self._arrays())
        self.source = source
        self.params = self.entry.params
        self.trees = trees_of(source)
        self.held = int(source.attrs.get("num_input", 0)) if "params" in source.attrs else 0
        self.dimensions = Dimensions()
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._transform: IRModule | None = None
        # Each JaxFunction has Programs of its own, so one policy; dtypes follow JAX's x64 flag.
        self._evaluators: dict[tuple[IRModule, bool], Evaluator] = {}
        self._wide: dict[IRModule, bool] = {}

    def _arrays(self) -> dict[str, Any]:
        """The weights by path, as the module has them."""
        lifted, paths = self.entry.lifted, self.weights.paths
        known = [a for a in (*lifted.weights, *lifted.raw) if id(a) in paths]
        return {paths[id(a)]: a for a in known}

    # -- arguments
    @functools.cached_property
    def names(self) -> Sequence[str]:
        """Names by which arguments can be given."""
        if self.trees is None:
            return [p.name_hint for p in self.params]
        _, by_name = self.trees["in"]["tuple"]
        return [*(self.trees.get("names") or ()), *(name for name, _ in by_name["dict"])]

    def leaves(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], state: Sequence[Any]
    ) -> list[Any]:
        """One value for each parameter; CallError for what does not fit."""
        count = len(self.params) - len(self.weights.state)
        if self.sizes is not None:
            count -= len(self.sizes.what)
        found: dict[int, Any] = {}
        if self.trees is not None:
            tree: Tree = self.trees["in"]
            args, kwargs = self._placed(tree, args, kwargs)
            flattened(tree, (tuple(args), dict(kwargs)), self.name, found)
        else:
            params = self.params[:count]
            names = [p.name_hint for p in params]
            # Names of ONNX need not be identifiers.
            places = {
                source_name(p) or n: i for i, (p, n) in enumerate(zip(params, names, strict=True))
            }
            places |= {n: i for i, n in enumerate(names)}
            if len(args) > count:
                raise CallError(
                    f"{self.name} takes {count} arguments ({', '.join(names)}); got {len(args)}"
                )
            found = dict(enumerate(args))
            for key, value in kwargs.items():
                if key not in places or places[key] in found:
                    why = "is given twice" if key in places else "is no argument"
                    raise CallError(f"{self.name}: {key} {why}; it has {', '.join(names)}")
                found[places[key]] = value
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
            elif is_fixed(part):
                args.append(built(part, ()))
            else:
                break
        for key, part in by_name["dict"]:
            if is_fixed(part):
                kwargs.setdefault(key, built(part, ()))
        # What the traced call left out may be given as None.
        kwargs = {k: v for k, v in kwargs.items() if v is not None or k in (*own, *names)}
        while len(args) > wanted and args[-1] is None:
            args.pop()
        self._want_known(
            args, kwargs, [*names[:wanted], *[f"arg{i}" for i in range(len(names), wanted)]], own
        )
        return args, kwargs

    def _want_known(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        places: Sequence[str],
        own: Sequence[str],
    ) -> None:
        """CallError for arguments that are missing, and for what was none in the traced call."""
        given = f"it was traced with {', '.join([*places, *own]) or 'none'}"
        missing = [*places[len(args) :], *(n for n in own if n not in kwargs)]
        if missing:
            raise CallError(f"{self.name}: arguments are missing: {', '.join(missing)}; {given}")
        if len(args) > len(places):
            raise CallError(f"{self.name}: {len(args)} positional arguments were given; {given}")
        unknown = [n for n in kwargs if n not in own]
        if unknown:
            twice = [n for n in unknown if n in places]
            why = f"{twice[0]} is given twice" if twice else f"{unknown[0]} is no argument"
            raise CallError(f"{self.name}: {why}; {given}")

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
                    given = described(value)
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
        from relax2xla.vm.code.size_bounds import check_ranges

        workers = workers_here()
        key = f"{workers}: " + "; ".join(map(show, infos))
        with self._lock:
            if key not in self._made:
                env = match(self.name, self.params, infos)
                check_ranges(self.name, self.entry.func, env)
                platform = jax.default_backend()
                passes = [p for p in self.executable.static if p.info.is_for(platform)]
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
        from relax2xla.op.shared.smooth import smooth_lowerings
        from relax2xla.transform.core import run_on_function
        from relax2xla.transform.lower.legalize import LegalizeStatic

        transform = self.entry.lifted.transform
        if self._transform is None and transform is not None:
            legal = run_on_function([LegalizeStatic(smooth_lowerings())], transform, "main")
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
        """The result on weights by path, and the buffers after the call.

        CallError, with their names, for weights whose memory another call has taken.
        """
        try:
            return self._run(given, args, kwargs, buffers, policy)
        except (RuntimeError, ValueError) as e:
            gone = [path for path, array in given.items() if _is_deleted(array)]
            if not gone:
                raise
            names = ", ".join(gone[:5]) + (", ..." if len(gone) > 5 else "")
            raise CallError(
                f"{self.name}: weights are deleted, because a call that donates them has taken "
                f"their memory: {names}; use what that call gave, or pass copies"
            ) from e

    def _run(
        self,
        given: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        buffers: Any,
        policy: Policy,
    ) -> tuple[Any, Any]:
        import jax.numpy as jnp
        from jax import lax

        from relax2xla.interop.lax_rows.collectives import workers_here
        from relax2xla.interop.lax_rows.drawing import drawing_from
        from relax2xla.interop.lax_rows.site import in_jax_width
        from relax2xla.vm.pjrt.jax_arguments import is_wide
        from relax2xla.vm.pjrt.wide_derivatives import in_64_bits

        state = list(self.weights.state)
        rng, kwargs = self.draws.taken(self.name, kwargs, self.names)
        leaves = self.leaves(args, kwargs, [given[p] for p in state])
        if self.sizes is not None:
            leaves += self.sizes.values(leaves, self.name)
        infos, arrays, symbols = self.infos(leaves)
        lifted, paths = self.entry.lifted, self.weights.paths
        # New buffers are made of old ones, in full precision.
        end = len(self.params) - (len(self.sizes.what) if self.sizes is not None else 0)
        kept = range(end - len(state), end)
        declared = [
            (i.dtype, policy.in_full if n in kept else policy)
            for n, info in enumerate(infos)
            for i in flatten_info(info)
            if isinstance(i, TensorStructInfo)
        ]

        def entered(arrays: Sequence[Any]) -> list[Any]:
            return [_entered(a, *d) for a, d in zip(arrays, declared, strict=True)]

        def compute(held: Mapping[str, Any], arrays: Sequence[Any], key: Any) -> list[Any]:
            with drawing_from(None if rng is None else as_key(rng._replace(data=key))):
                return evaluated(held, arrays)

        def weight(held: Mapping[str, Any], array: Any) -> Any:
            value = _entered(held[paths[id(array)]], dtype_name(array.dtype), policy)
            return value if value.ndim == array.ndim else lax.reshape(value, array.shape)

        def evaluated(held: Mapping[str, Any], arrays: Sequence[Any]) -> list[Any]:
            values = entered(arrays)

            made: Any = ()
            transform = self.transform()
            if transform is not None:
                evaluator = self._evaluator(transform, policy)
                made = evaluator.call(transform["main"], [weight(held, a) for a in lifted.raw], {})
            for w in lifted.weights:
                values.append(made[w] if isinstance(w, int) else weight(held, w))
            program = self.program(infos, bool(symbols))
            evaluator = self._evaluator(program.module, policy, symbols)
            out = evaluator.call(program.module["main"], values, {})
            flat = list(out) if isinstance(out, tuple) else [out]
            if policy.dtype is not None:
                flat = [
                    lax.convert_element_type(x, in_jax_width(numpy_dtype(o.dtype)))
                    for x, o in zip(flat, program.outputs, strict=True)
                ]
            return [jnp.asarray(x) for x in flat]

        key = None if rng is None else rng.data
        narrows = policy.exact and is_wide(np.zeros(0))

        def computed(held: Mapping[str, Any], arrays: Sequence[Any]) -> Sequence[Any]:
            with policy.wide():
                if narrows and self._is_wide(self.program(infos, bool(symbols))):
                    return in_64_bits(compute, held, arrays, key)
                return compute(held, arrays, key)

        def rows(*arrays: Any) -> Sequence[Any]:
            return computed(given, arrays)

        # What knows its weights is also a program of the machine's.
        alone = not symbols and workers_here() == 1 and rng is None
        held = self._machine.held(given, infos, rows) if self._machine and alone else None
        if held is not None:
            with policy.wide():
                values = entered(arrays)
                return self._returned(held.pack(held.call(*values)), buffers)
        program = self.program(infos, bool(symbols))
        if self._with_calls and alone:
            own = self._with_calls.arrays

            def of_all(*values: Any) -> Sequence[Any]:
                held = dict(zip(own, values, strict=False))
                return computed(held, values[len(own) :])

            called = self._with_calls.held([*given.values(), *arrays], infos, program, of_all)
            if called is not None:
                with policy.wide():
                    weights = [weight(given, a) for a in own.values()]
                    return self._returned(program.pack(called(*weights, *entered(arrays))), buffers)
        return self._returned(program.pack(rows(*arrays)), buffers)

    def _is_wide(self, program: Program) -> bool:
        """Whether a program computes floats of 64 bits, whose derivatives JAX's flag narrows."""
        mod = program.module
        if mod not in self._wide:
            self._wide[mod] = any(
                isinstance(info, TensorStructInfo) and info.dtype in ("float64", "complex128")
                for func in mod.relax_functions().values()
                for node in (*func.params, *(b.var for b in bindings_deep(func)))
                for info in flatten_info(node.struct_info)
            )
        return self._wide[mod]

    def _evaluator(
        self, mod: IRModule, policy: Policy, symbols: Mapping[tir.Var, Any] | None = None
    ) -> Evaluator:
        """What evaluates a module: kept, unless dimensions are symbols of one trace."""
        from relax2xla.interop.evaluate import Evaluator
        from relax2xla.vm.pjrt.jax_arguments import is_wide

        key = mod, is_wide(np.zeros(0))
        made = None if symbols else self._evaluators.get(key)
        if made is None:
            remat = () if mod is self._transform else policy.remat
            precise = _of_buffers_alone(mod, self.weights.state) if policy.dtype is not None else ()
            made = Evaluator(mod, policy.dtype, remat, symbols, precise)
            if not symbols:
                self._evaluators[key] = made
        return made

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


def _of_buffers_alone(mod: IRModule, state: Mapping[str, Any]) -> list[Call]:
    """The calls of ``main`` on which nothing depends but what buffers become."""
    main = mod["main"]
    result = main.body.body if isinstance(main, Function) else None
    if not state or not isinstance(main, Function):
        return []
    own = list(bindings_of(main.body))
    bound = {b.var: b.value for b in own if isinstance(b, VarBinding)}
    if isinstance(result, Var):
        result = bound.get(result)
    if not isinstance(result, Tuple):
        return []
    first = min(place for _, place in state.values())
    live: set[Expr] = set(result.fields[:first])
    found: list[Call] = []
    for b in reversed(own):
        if b.var in live:
            live.update(n for n in post_order_deep(b.value) if isinstance(n, Var))
        elif isinstance(b.value, Call):
            found.append(b.value)
    return found


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
    import jax

    from relax2xla.runtime.convert import to_host
    from relax2xla.vm.pjrt.jax_arguments import plain
    from relax2xla.vm.pjrt.xla import is_tracer

    value = plain(value)
    if is_tracer(value) or hasattr(value, "aval"):
        return value
    try:
        if isinstance(value, list | tuple) and any(map(is_tracer, jax.tree.leaves(value))):
            return _stacked(value, declared)
        return to_host(value, declared.dtype)
    except (CallError, TypeError, ValueError) as e:
        raise CallError(f"{where}: {e}") from None


def _stacked(value: Any, declared: TensorStructInfo) -> Any:
    """A list of what JAX traces as the array that it is where nobody traces."""
    import jax.numpy as jnp

    array: Any = jnp.asarray(value)
    # Numbers of Python take the declared dtype.
    return array.astype(numpy_dtype(declared.dtype)) if array.weak_type else array


def _declared(given: Any, declared: TensorStructInfo) -> str:
    """The dtype of an argument; the declared one where JAX narrowed it, or took it for lower."""
    from relax2xla.vm.pjrt.jax_arguments import NARROW

    wanted = declared.dtype
    if wanted and (NARROW.get(wanted) == given or (wanted == "float32" and _is_half(given))):
        return wanted
    return dtype_name(given)


def _is_half(dtype: Any) -> bool:
    return np.dtype(dtype).name in ("bfloat16", "float16")


def _is_deleted(array: Any) -> bool:
    """Whether ``array`` is one of JAX's whose memory is gone; what is traced is not."""
    with contextlib.suppress(Exception):
        return bool(array.is_deleted())
    return False


def _entered(value: Any, declared: str, policy: Policy) -> Any:
    """An argument or weight in the dtype that it is computed in."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    wanted = numpy_dtype(declared)
    if policy.dtype is not None and wanted == np.float32:
        wanted = policy.dtype
    if not policy.exact:
        wanted = jax.dtypes.canonicalize_dtype(wanted)
    if isinstance(value, jax.Array) and value.dtype == wanted:
        return value
    value = jnp.asarray(value)
    return value if value.dtype == wanted else lax.convert_element_type(value, wanted)
