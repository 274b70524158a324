"""What every command starts with: a file as a module, its shapes, its function, its inputs."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.budget import physical_memory
from relax2xla.cli._console import note, status
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.errors import CallError, FileFormatError, TVMError
from relax2xla.importers.files import check_file, load, symbols
from relax2xla.ir import (
    IRModule,
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
from relax2xla.runtime.numpy_files import read_npy, read_npz

if TYPE_CHECKING:
    from relax2xla.vm.executable import VMExecutable
    from relax2xla.vm.machine import VirtualMachine

Array = npt.NDArray[Any]
Sizes = dict[str, int | Sequence[int]]

# Importers tell those who call them from Python; here every renamed input would be a line.
QUIET: Final = ("Renaming name", "Input ")


def load_model(file: Path, trust: bool, shapes: Mapping[str, int | Sequence[int]]) -> IRModule:
    """The module in ``file``; the importer's warnings go to standard error, one line each."""
    with status(f"reading {file.name}"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        mod = load(file, trust, shapes)
    for text in dict.fromkeys(str(w.message) for w in caught):
        if not text.startswith(QUIET):
            note(f"warning: {' '.join(text.split())[:300]}")
    return mod


def parse_shapes(words: Sequence[str]) -> Sizes:
    """``n=4`` and ``x=1x3x224x224`` as a mapping; TVMError for what is neither."""
    made: Sizes = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        parts = text.replace(",", "x").split("x")
        if not equals or not name or not all(p.isascii() and p.isdigit() for p in parts):
            raise TVMError(
                f"--shape {word}: expected NAME=SIZES, such as n=4 for a symbolic dimension or "
                "x=1x3x224x224 for an input (x=4x for one of rank 1 is x=4,)"
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
@dataclass(frozen=True, slots=True)
class Leaf:
    """One value that a caller gives: its names (ours, then the model's own) and struct info."""

    names: tuple[str, ...]
    info: StructInfo


def leaves_of(params: Sequence[Var]) -> list[Leaf]:
    """The values behind the parameters; fields of tuples are called ``name.0``, ``name.1``."""
    made: list[Leaf] = []
    stack: list[tuple[tuple[str, ...], StructInfo]] = [
        ((p.name_hint, *((p.span.name,) if p.span and p.span.name else ())), p.struct_info)
        for p in reversed(params)
    ]
    while stack:
        names, info = stack.pop()
        if isinstance(info, TupleStructInfo):
            fields = list(enumerate(info.fields))
            stack += [(tuple(f"{n}.{i}" for n in names), f) for i, f in reversed(fields)]
        else:
            made.append(Leaf(names, info))
    return made


def make_inputs(
    params: Sequence[Var],
    given: Sequence[str],
    seed: int,
    shapes: Mapping[str, int | Sequence[int]],
    initial: Mapping[str, Array] | None = None,
    by_value: Sequence[str] = (),
) -> list[Any]:
    """Flat arguments for ``params``: as given, else generated from ``seed``.

    initial: values by name for what is not given, such as those that a state begins with
    by_value: names of parameters whose values say sizes, axes or scales

    Raises TVMError for names and shapes that do not fit, and for sizes that nothing says.
    """
    leaves = leaves_of(params)
    values = _given(leaves, given)
    if initial:
        values = [
            initial.get(leaf.names[0]) if value is None else value
            for leaf, value in zip(leaves, values, strict=True)
        ]
    env: SymMap = {}
    for leaf, value in zip(leaves, values, strict=True):
        if value is None or not isinstance(leaf.info, TensorStructInfo):
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
        if values[i] is None and leaf.names[0] in by_value:
            values[i] = _number(infos[i])
        if values[i] is None:
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


def _initial_state(executable: VMExecutable, name: str) -> dict[str, Array]:
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
    given: Sequence[str],
    seed: int,
    shapes: Mapping[str, int | Sequence[int]],
) -> list[Any]:
    """Flat arguments for a function of ``machine``, its state's first values among them.

    The rest is as :func:`make_inputs` has it.
    """
    state = _initial_state(machine.executable, name)
    by_value = machine.executable.by_value(name)
    return make_inputs(machine[name].params, given, seed, shapes, state, by_value)


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
    if missing := symbols([info]):
        sizes = " ".join(f"--shape {n}=4" for n in missing)
        raise TVMError(f"the input {name} is {show(info)}; give its sizes: {sizes}")
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        return tuple(int(str(d)) for d in info.values)
    if isinstance(info, PrimStructInfo) and info.value is not None:
        return int(str(info.value))
    if not isinstance(info, TensorStructInfo):
        raise TVMError(f"no value can be made for the input {name}: {show(info)}")
    dims: Sequence[Any] | None = info.dims
    if dims is None:
        found = next((shapes[n] for n in leaf.names if n in shapes), None)
        if found is None:
            raise TVMError(f"the shape of {name} is not known; give it: --shape {name}=1x3x8")
        dims = (found,) if isinstance(found, int) else found
    shape = tuple(d for d in dims if isinstance(d, int))
    dtype = numpy_dtype(info.dtype or "float32")
    if math.prod(shape) * max(dtype.itemsize, 8) > (physical_memory() or 2**62):
        raise TVMError(f"the input {name} of shape {shape} does not fit into memory")
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind in "biu" or "int" in dtype.name:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _given(leaves: Sequence[Leaf], words: Sequence[str]) -> list[Any]:
    """The arrays that the user gives, in order of the leaves; None where there is none."""
    by_name = {n: i for i, leaf in enumerate(leaves) for n in reversed(leaf.names)}
    known = ", ".join(leaf.names[0] for leaf in leaves) or "none"
    made: list[Any] = [None] * len(leaves)
    free = 0  # where the next array without a name goes

    def put(index: int, array: Array, where: str) -> None:
        if made[index] is not None:
            raise CallError(f"--inputs: {leaves[index].names[0]} is given twice ({where})")
        made[index] = _checked(array, leaves[index], where)

    for word in words:
        name, path = _split(word, by_name)
        literal = _literal(word, leaves, by_name)
        if literal is not None and name is not None:
            put(by_name[name], literal, word)
            continue
        for key, array in _arrays(path):
            label = name or key
            where = f"{path}:{key}" if key else str(path)
            if label is None:
                while free < len(made) and made[free] is not None:
                    free += 1
                if free == len(made):
                    raise CallError(
                        f"--inputs: {where} is one array too many; the inputs are {known}"
                    )
                put(free, array, where)
            elif label in by_name:
                put(by_name[label], array, where)
            else:
                raise CallError(
                    f"--inputs: {where}: there is no input {label!r}; there are {known}"
                )
    return made


# Numbers after the name of an input, in place of a file.
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|true|false"
_NUMBERS = re.compile(rf"(?:{_NUMBER})(?:,(?:{_NUMBER}))*,?", re.ASCII)


def _literal(word: str, leaves: Sequence[Leaf], names: Mapping[str, int]) -> Array | None:
    """The array of ``NAME=1,2.5``, in the shape and dtype of the input; None for a file."""
    name, _, text = word.partition("=")
    if name not in names or not _NUMBERS.fullmatch(text.lower()) or Path(text).exists():
        return None
    info = leaves[names[name]].info
    if not isinstance(info, TensorStructInfo):
        return None
    items = [v for v in text.lower().split(",") if v]
    dtype = numpy_dtype(info.dtype or "float32")
    numbers = [{"true": 1, "false": 0}.get(v, v) for v in items]
    try:
        wide = np.array([float(v) for v in numbers]) if is_float(info.dtype or "float32") else None
        made = np.array([int(v) for v in numbers], dtype) if wide is None else wide.astype(dtype)
    except (ValueError, OverflowError) as e:
        raise CallError(f"--inputs {word}: {name} is {show(info)}: {e}") from None
    dims = info.dims
    if dims is not None and all(isinstance(d, int) for d in dims):
        shape = [d for d in dims if isinstance(d, int)]
        if math.prod(shape) == len(made):
            return made.reshape(shape)
    return made


def _split(word: str, names: Mapping[str, int]) -> tuple[str | None, Path]:
    """``NAME=FILE`` or ``FILE``; a path may itself hold an equals sign."""
    name, equals, path = word.partition("=")
    if equals and (name in names or not Path(word).exists()):
        return name, Path(path)
    return None, Path(word)


def _checked(array: Array, leaf: Leaf, where: str) -> Array:
    info = leaf.info
    if not isinstance(info, TensorStructInfo):
        raise CallError(f"--inputs: {where}: {leaf.names[0]} is {show(info)}, no array")
    if not info.dtype:
        return array
    wanted = numpy_dtype(info.dtype)
    # numpy writes bfloat16 and other dtypes that it does not know as plain bytes.
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    if array.dtype != wanted:
        raise CallError(
            f"--inputs: {where}: {leaf.names[0]} is {show(info)}; the array is {array.dtype} of "
            f"shape {array.shape}. Convert it with .astype({wanted.name!r})"
        )
    return array


def _arrays(path: Path) -> Iterator[tuple[str | None, Array]]:
    """The arrays of an .npz by name, or the one of an .npy; nothing in them can run code."""
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("rb") as file:
            yield None, read_npy(file, path.stat().st_size, str(path))
    elif suffix == ".npz":
        yield from read_npz(path)
    else:
        raise FileFormatError(f"{path}: inputs are .npy or .npz files; save them with numpy.savez")


# -- results ---------------------------------------------------------------------------------------
def flat_results(value: Any) -> list[Any]:
    """The leaves of nested tuples of results, in order."""
    made: list[Any] = []
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tuple | list):
            stack += reversed(top)
        else:
            made.append(top)
    return made


def outputs_of(value: Any) -> list[Array]:
    """Results as numpy arrays, in order; waits until they are computed."""
    return [np.asarray(leaf) for leaf in flat_results(value)]
