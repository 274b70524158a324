"""What every command starts with: a file as a module, its shapes, its function, its inputs."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relax2xla.cli.process.console import note, status
from relax2xla.cli.reading.inputs import MISSING, Leaf, given_values, leaves_of
from relax2xla.cli.reading.named_models import made_here
from relax2xla.cli.reading.values import Array, Declared, affordable, generated, random_numbers
from relax2xla.dtypes import DTYPES, is_float, numpy_dtype
from relax2xla.errors import CallError, TVMError
from relax2xla.importers.files import format_of, load, symbols
from relax2xla.ir import (
    IRModule,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, substitute, unify
from relax2xla.ir.struct_info import show
from relax2xla.runtime.device import Device, device

if TYPE_CHECKING:
    from relax2xla.vm.call.executable import Executable
    from relax2xla.vm.call.machine import VirtualMachine

Sizes = dict[str, int | Sequence[int]]

# Importers tell those who call them from Python; here every renamed input would be a line.
QUIET: Final = ("Renaming name", "Input ")


def load_model(file: Path, trust: bool, shapes: Mapping[str, int | Sequence[int]]) -> IRModule:
    """The module in ``file``; the importer's warnings go to standard error, one line each."""
    with status(f"reading {file.name}"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        mod = load(file, trust or made_here(file), shapes)
    for text in dict.fromkeys(str(w.message) for w in caught):
        if not text.startswith(QUIET):
            note(f"warning: {' '.join(text.split())[:300]}")
    if file.suffix.lower() == ".pt2" and (names := _torch_sizes(mod)):
        note(
            f"sizes have torch's names, {', '.join(names)}: a .pt2 file has those of Dim if it is "
            "saved with extra_files=relax2xla.frontend.torch.dim_names(program)"
        )
    return mod


def _torch_sizes(mod: IRModule) -> list[str]:
    """The symbolic dimensions that have a name of torch's own making (s77)."""
    infos = [p.struct_info for f in mod.relax_functions().values() for p in f.params]
    return [name for name in symbols(infos) if re.fullmatch(r"s\d+", name)]


def parse_shapes(words: Sequence[str]) -> Sizes:
    """``n=4`` and ``x=1x3x224x224`` as a mapping; TVMError for what is neither."""
    made: Sizes = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        parts = text.replace(",", "x").split("x")
        if not equals or not name or not all(p.isascii() and p.isdigit() for p in parts):
            raise TVMError(
                f"--shape {word}: expected NAME=SIZES, such as n=4 for a symbolic dimension or "
                "x=1x3x224x224 for an input (x=4 for one of rank 1)"
                if not text.rstrip("x,").isdigit()
                else f"--shape {word}: write the size of a dimension as {name or 'n'}=4"
            )
        sizes = [int(p) for p in parts]
        if max(sizes) >= 2**31:
            raise TVMError(f"--shape {word}: a dimension must be smaller than 2147483648")
        made[name] = sizes[0] if len(sizes) == 1 else tuple(sizes)
    return made


def parse_device(text: str) -> Device:
    """The device that the user names; DeviceError lists the known ones."""
    return device(text)


def entry_name(names: Sequence[str], asked: str = "main") -> str:
    """The function to run: the one asked for, or the only one where nothing was asked."""
    if asked in names or len(names) != 1 or asked != "main":
        return asked
    return names[0]


# -- inputs ----------------------------------------------------------------------------------------
def make_inputs(
    params: Sequence[Var],
    given: Sequence[str],
    seed: int,
    shapes: Mapping[str, int | Sequence[int]],
    initial: Mapping[str, Array] | None = None,
    kinds: Mapping[str, Declared] | None = None,
    by_value: Sequence[str] = (),
) -> list[Any]:
    """Flat arguments for ``params``: as given, else generated from ``seed``.

    initial: values by name for what is not given, such as those that a state begins with
    kinds: what the model says of inputs that are no tensors of numbers, by its own names
    by_value: names of parameters whose values say sizes, axes or scales

    Raises TVMError for names and shapes that do not fit, and for sizes that nothing says.
    """
    leaves = leaves_of(params, kinds)
    values = given_values(leaves, given)
    if initial:
        values = [
            initial.get(leaf.names[0], MISSING) if value is MISSING else value
            for leaf, value in zip(leaves, values, strict=True)
        ]
    env: SymMap = {}
    for leaf, value in zip(leaves, values, strict=True):
        if not isinstance(value, np.ndarray) or not isinstance(leaf.info, TensorStructInfo):
            continue
        try:
            unify(leaf.info, TensorStructInfo(value.shape, leaf.info.dtype or "float32"), env)
        except Mismatch as e:
            raise CallError(
                f"the input {leaf.names[0]} is {show(leaf.info)}; the array given has {e} "
                f"(shape {value.shape})"
            ) from None
    _bind_sizes(leaves, shapes, env)
    infos = [substitute(leaf.info, env) for leaf in leaves]
    for i, leaf in enumerate(leaves):
        if values[i] is MISSING and leaf.names[0] in by_value:
            number = _number(infos[i])
            values[i] = MISSING if number is None else number
        if values[i] is MISSING:
            values[i] = _generated(leaf, infos[i], np.random.default_rng((seed, i)), shapes)
    return values


def _bind_sizes(leaves: Sequence[Leaf], shapes: Mapping[str, Any], env: SymMap) -> None:
    """Symbolic dimensions that ``--shape`` names, or the shapes of inputs; others keep theirs."""
    for leaf in leaves:
        given = next((shapes[n] for n in leaf.names if n in shapes), None)
        if given is None or not isinstance(leaf.info, TensorStructInfo) or leaf.info.dims is None:
            continue
        shape = (given,) if isinstance(given, int) else tuple(given)
        try:
            unify(leaf.info, TensorStructInfo(shape, leaf.info.dtype), env)
        except Mismatch as e:
            raise TVMError(f"--shape {leaf.names[0]}: {show(leaf.info)} has {e}") from None
    for leaf in leaves:
        for variable in free_symbolic_vars(leaf.info):
            size = shapes.get(variable.name)
            if isinstance(size, int):
                env.setdefault(variable, size)


def check_shapes(leaves: Sequence[Leaf], shapes: Mapping[str, Any]) -> None:
    """TVMError where ``--shape`` names neither an input nor a symbolic dimension of one."""
    known = dict.fromkeys([*symbols([leaf.info for leaf in leaves])])
    known |= dict.fromkeys(n for leaf in leaves for n in leaf.names)
    for name in shapes:
        if name not in known:
            raise TVMError(
                f"--shape {name}: the function has no such input or symbolic dimension; "
                f"it has {', '.join(known) or 'none'}"
            )


def _initial_state(executable: Executable, name: str) -> dict[str, Array]:
    """What the state of a function begins with, by parameter: buffers that a model changes."""
    state = executable.states.get(name)
    if state is None:
        return {}
    params = executable.params(name)
    return {
        params[at].name_hint: np.asarray(value)
        for (at, _), value in zip(state.places.values(), state.values, strict=True)
    }


def inputs_of(
    machine: VirtualMachine,
    name: str,
    file: Path,
    given: Sequence[str],
    seed: int,
    shapes: Mapping[str, int | Sequence[int]],
) -> list[Any]:
    """Flat arguments for a function of ``machine``, its state's first values among them.

    ``file``: what the machine was made of. The rest is as :func:`make_inputs` has it.
    """
    state = _initial_state(machine.executable, name)
    params = machine[name].params
    by_value = machine.executable.by_value(name)
    return make_inputs(params, given, seed, shapes, state, _declared(file, params), by_value)


def _declared(file: Path, params: Sequence[Var]) -> dict[str, Declared]:
    """What a model says of inputs that are no tensors of numbers, by name."""
    objects = any(isinstance(leaf.info, ObjectStructInfo) for leaf in leaves_of(params))
    if not objects or file.suffix.lower() == ".r2x" or format_of(file).name != "onnx":
        return {}
    from relax2xla.cli.reading.onnx_inputs import declared

    return declared(file)


@contextlib.contextmanager
def by_value_noted(machine: VirtualMachine, name: str, given: Sequence[str]) -> Generator[None]:
    """Errors inside say which inputs were generated although their values say sizes or axes."""
    try:
        yield
    except TVMError as e:
        words = {word.partition("=")[0] for word in given}
        names = [n for n in machine.executable.by_value(name) if n not in words]
        if names and not any("=" not in word for word in given):
            raise CallError(
                f"{e}. The values of {', '.join(names)} say sizes, axes or scales, and were made "
                f"up; give them, as in --inputs {names[0]}=1,2 or {names[0]}=FILE.npy"
            ) from e
        raise


def _number(info: StructInfo) -> Any:
    """A vector or scalar for what says a size, an axis or a scale: ones, halves, no truth.

    None for other tensors, of whose values others are computed that say such.
    """
    if not isinstance(info, TensorStructInfo) or info.dims is None or len(info.dims) > 1:
        return None
    shape = tuple(d for d in info.dims if isinstance(d, int))
    if len(shape) < len(info.dims):
        return None
    if info.dtype and info.dtype not in DTYPES:
        return None
    dtype = numpy_dtype(info.dtype or "float32")
    if dtype.kind == "b":
        return np.zeros(shape, dtype)
    is_share = not shape and is_float(info.dtype)
    return np.full(shape, 0.5 if is_share else 1, dtype)


def nest(params: Sequence[Var], flat: Sequence[Any]) -> list[Any]:
    """Flat values as the parameters' tuples are."""
    rest = iter(flat)

    def build(info: StructInfo) -> Any:
        if isinstance(info, TupleStructInfo):
            return tuple(build(f) for f in info.fields)
        return next(rest)

    return [build(p.struct_info) for p in params]


def _generated(
    leaf: Leaf,
    info: StructInfo,
    rng: np.random.Generator,
    shapes: Mapping[str, int | Sequence[int]],
) -> Any:
    """A value of ``info``: normal numbers; 0 and 1 for integers, which serve as indices too."""
    name = leaf.names[0]
    if isinstance(info, TensorStructInfo) and info.dtype and info.dtype not in DTYPES:
        raise TVMError(
            f"the input {name} is {show(info)}; no array has this dtype, so no value can be made "
            "or given for it"
        )
    if missing := symbols([info]):
        sizes = " ".join(f"--shape {n}=4" for n in missing)
        raise TVMError(f"the input {name} is {show(info)}; give its sizes: {sizes}")
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        return tuple(int(str(d)) for d in info.values)
    if isinstance(info, PrimStructInfo) and info.value is not None:
        return int(str(info.value))
    if leaf.kind is not None:
        return generated(leaf.kind, name, rng, shapes)
    if not isinstance(info, TensorStructInfo):
        raise TVMError(
            f"no value can be made for the input {name}: {show(info)}. Give one: "
            f"--inputs {name}=FILE.json"
        )
    dims: Sequence[Any] | None = info.dims
    if dims is None:
        found = next((shapes[n] for n in leaf.names if n in shapes), None)
        if found is None:
            raise TVMError(f"the shape of {name} is not known; give it: --shape {name}=1x3x8")
        dims = (found,) if isinstance(found, int) else found
    shape = tuple(d for d in dims if isinstance(d, int))
    dtype = numpy_dtype(info.dtype or "float32")
    affordable(name, shape)
    return random_numbers(dtype, shape, rng)
