"""Custom calls that a program may make: the targets that only compute, and the forms they need.

A custom call names a function of the process by its target. Some of these call back into Python by
an index or an address that comes with the call, read memory that their attributes point to, or wait
for someone; so what is not known to compute and nothing else is refused (design decision D25).
Sources: the targets that jaxlib registers on each platform, and those of JAX's own lowering rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.stablehlo.untrusted import lapack

#: The version of XLA's typed interface to custom calls.
TYPED: Final = 4
_FLAGS: Final = "mhlo.backend_config"


class AllowedTarget(str):
    """The target of a custom call that a caller in Python allows.

    It is the text of the target, and prints, compares and is written as such; what reads a file
    makes plain text, so no file can hold one.
    """

    __slots__ = ()


def checked_targets(given: Sequence[str]) -> frozenset[AllowedTarget]:
    """What a caller allows, as a set; TypeError for what is no list of names."""
    if isinstance(given, str) or not all(isinstance(t, str) for t in given):
        raise TypeError(
            f'allow_custom_calls is a list of targets, such as ["my_target"]; got {given!r}'
        )
    return frozenset(map(AllowedTarget, given))


@dataclass(frozen=True, slots=True)
class CustomCall:
    """One custom call of a program: what it calls, with what, and for what."""

    target: str
    attrs: Mapping[str, Any]
    operands: Sequence[StructInfo]
    results: Sequence[StructInfo]

    @property
    def others(self) -> Mapping[str, Any]:
        """Attributes beyond those of the row."""
        return self.attrs.get("discardable") or {}

    @property
    def is_static(self) -> bool:
        """Whether all its shapes are known: those of a program for any size are not yet."""
        infos = (*self.operands, *self.results)
        return "indices_of_shape_operands" not in self.others and all(
            isinstance(i, TensorStructInfo)
            and i.dims is not None
            and all(isinstance(d, int) for d in i.dims)
            for i in infos
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Targets of one kind. ``why``: they are safe; ``form``: what is wrong with a call, or "".

    ``computations``: how many functions of the program a call names.
    """

    why: str
    targets: frozenset[str]
    form: Callable[[CustomCall], str] | None = None
    computations: int = 0


def _same(call: CustomCall) -> str:
    """Annotations: one operand, and it is the result."""
    if len(call.operands) == 1 and len(call.results) == 1:
        given, made = call.operands[0], call.results[0]
        if _kind(given) == _kind(made):
            return ""
        count = devices_between(given, made)
        if count > 1:
            return f"{show(given)} becomes {show(made)}, which takes {count} devices; here is one"
    return "it takes one operand, and its result is of the same shape and dtype"


def devices_between(given: StructInfo, made: StructInfo) -> int:
    """How many times larger the larger of two tensors is; 1 where that says nothing."""
    sizes: list[int] = []
    for info in (given, made):
        if not isinstance(info, TensorStructInfo) or info.dims is None:
            return 1
        sizes.append(math.prod(d if isinstance(d, int) else 0 for d in info.dims))
    small, large = sorted(sizes)
    return large // small if small and not large % small else 1


def _kind(info: StructInfo) -> object:
    return (info.dims, info.dtype) if isinstance(info, TensorStructInfo) else info


def _top_k(call: CustomCall) -> str:
    """XLA takes the sizes from the shapes without looking whether these fit each other."""
    infos = [i for i in (*call.operands, *call.results) if isinstance(i, TensorStructInfo)]
    if (len(call.operands), len(call.results), len(infos)) == (1, 2, 3):
        given, *made = [[d for d in i.dims or () if isinstance(d, int)] for i in infos]
        fits = [i.dtype for i in infos] == ["float32", "float32", "int32"] and made[0] == made[1]
        plain = all(tuple(p) == tuple(sorted(p, reverse=True)) for p in _layouts(call))
        fits = fits and plain and len(given) in (1, 2) and len(given) == len(made[0])
        if fits and given[:-1] == made[0][:-1] and made[0][-1] <= given[-1]:
            return ""
    return (
        "it takes one tensor ([batch,] n) of float32 and gives the k <= n largest as two tensors "
        "([batch,] k), float32 and int32, without layouts of their own"
    )


def _layouts(call: CustomCall) -> list[Sequence[int]]:
    named = ("operand_layouts", "result_layouts")
    return [layout for name in named for layout in call.attrs.get(name) or ()]


def _lapack(call: CustomCall) -> str:
    """The flags come with the typed interface, or (JAX's own way of writing it) beside the call."""
    version = call.attrs.get("api_version")
    flags = call.attrs.get("backend_config")
    if version != TYPED:
        flags = None if version not in (None, 1) or flags else call.others.get(_FLAGS)
    if not isinstance(flags, Mapping):
        return (
            f"it takes a dictionary of flags: as backend_config with api_version = {TYPED}, or as "
            f"{_FLAGS} without them"
        )
    return lapack.mismatch(call.target, flags, call.operands, call.results)


def _threefry(call: CustomCall) -> str:
    """The kernel takes the size of the result for that of all operands."""
    kinds = {_kind(i) for i in (*call.operands, *call.results)}
    if (len(call.operands), len(call.results), len(kinds)) == (4, 2, 1):
        return ""
    return "it takes four tensors of one shape, and gives two of it"


def _sink(call: CustomCall) -> str:
    """A result of it would be memory that nobody has written."""
    return "it gives nothing" if call.results else ""


def _names(text: str, prefix: str = "", suffix: str = "") -> frozenset[str]:
    return frozenset(f"{prefix}{name}{suffix}" for name in text.split())


_SOLVER: Final = "getrf geqrf orgqr ormqr potrf syevd syrk gesvd gesvdj gesvdp geev sytrd"
_CHLO: Final = "acos acosh asin asinh atanh cosh erf mulhi ragged_dot sinh tan top_k topk"

_SHARDINGS: Final = _names("Sharding SPMDFullToShardShape SPMDShardToFullShape")
_SHARDY: Final = _names(
    "FuncResultSharding GlobalToLocalShape LocalToGlobalShape PropagationBarrier ShardingGroup",
    "xla.sdy.",
)
#: Custom calls that ``stablehlo.shardings`` takes out: they give their operands, or no result.
ANNOTATIONS: Final = _SHARDINGS | _SHARDY

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "annotations of where values lie; on one device they are their operand",
        _SHARDINGS | _names("annotate_device_placement LayoutConstraint MoveToHost MoveToDevice"),
        _same,
    ),
    Group("Shardy's, which never reach XLA; those that change a shape are refused", _SHARDY),
    Group(
        "LAPACK's routines, which jaxlib registers for the CPU",
        lapack.TARGETS | {lapack.PERTURBED},
        _lapack,
    ),
    Group(
        "linear algebra on GPUs; jaxlib's kernels check shapes themselves",
        _names(_SOLVER, "cusolver_", "_ffi")
        | _names(f"{_SOLVER} gesdd", "hipsolver_", "_ffi")
        | _names(
            """cu_lu_pivots_to_permutation cu_cholesky_update_ffi cu_tridiagonal_solve_perturbed
            hip_lu_pivots_to_permutation hip_tridiagonal_solve_perturbed cusparse_gtsv2_ffi
            cuhybrid_eig_real cuhybrid_eig_comp cuhybrid_geqp3 hiphybrid_eig_real
            hiphybrid_eig_comp hiphybrid_geqp3"""
        ),
    ),
    Group(
        "random bits on GPUs",
        _names("cu_threefry2x32_ffi hip_threefry2x32_ffi"),
        _threefry,
    ),
    Group(
        "attention and products of scaled blocks on NVIDIA's GPUs, which XLA compiles",
        _names(
            """fmhaSoftmax fmhaScaleBiasSoftmax fmhaSoftmaxDropout fmhaScaleBiasSoftmaxDropout
            fmhaSoftmaxBackward fmhaScaleBiasSoftmaxBackward fmhaSoftmaxDropoutBackward
            fmhaScaleBiasSoftmaxDropoutBackward fmhaSoftmaxF8 fmhaSoftmaxBackwardF8""",
            "__cudnn$",
        )
        | {"__op$block_scaled_dot"},
    ),
    Group("the largest values; XLA expands it, and checks it then", _names("ApproxTopK"), None, 1),
    Group("the largest values, by a kernel of XLA's own", _names("TopK"), _top_k),
    Group(
        "what becomes StableHLO as soon as the sizes are known",
        _names("dynamic_rng_bit_generator dynamic_top_k", "stablehlo.") | {"shape_assertion"},
    ),
    Group(
        "the same, with a function for each element",
        _names("dynamic_reduce_window dynamic_approx_top_k", "stablehlo."),
        None,
        1,
    ),
    Group(
        "operations of CHLO as files of older versions spell them; XLA reads them back",
        _names(_CHLO, "mhlo.") | _names(_CHLO, "chlo."),
    ),
    Group("keeps its operands alive", _names("dce_sink"), _sink),
)
SAFE: Final[Mapping[str, Group]] = {t: group for group in GROUPS for t in group.targets}

# Parts of targets that go by an index or an address of the process that made the program. Whoever
# allows these by name does not make that index one of this process.
CALLBACKS: Final = ("_python_cpu_callback", "_python_gpu_callback")
_ADDRESSES: Final = frozenset({"inspect_sharding", "InspectSharding", "CustomSPMDPartitioning"})


CALLS_BACK: Final = (
    "it calls back into Python (jax.pure_callback, io_callback, debug.print and the like) by its "
    "place in a table of the process that traced the program, which nothing can check here. Trace "
    "without it, or call the Python function with R.call_pure_packed (relax2xla.register_func)"
)


def is_callback(target: str) -> bool:
    """Whether a target calls what Python has put into a table of its own process."""
    return target in _ADDRESSES or any(part in target for part in CALLBACKS)


def refusal(
    call: CustomCall, allowed: frozenset[str], functions: frozenset[str], compiled: bool = False
) -> str:
    """Why a custom call is not run; "" where it is.

    ``allowed``: further targets, ``functions``: names of the program's functions, ``compiled``:
    XLA sees the program next, so all of it has to be known.
    """
    if is_callback(call.target):
        return CALLS_BACK
    group = SAFE.get(call.target)
    named = call.attrs.get("called_computations") or ()
    if isinstance(named, str | Mapping):
        return "its called_computations are no list of functions"
    missing = [n for n in named if n not in functions]
    if missing:
        return f"it calls {missing[0]}, and the program has no such function"
    if group is None:
        if call.target in allowed:
            return ""
        return (
            "it is not known to do nothing but compute, and a program may not call out of itself. "
            f"If you trust it, allow it from Python: allow_custom_calls=[{str(call.target)!r}], of "
            "relax2xla.build, from_stablehlo or load_module"
        )
    if len(named) != group.computations:
        count = "no function" if not group.computations else f"{group.computations} function"
        return f"it calls {count} of the program, and this names {len(named)}"
    if group.form is None or not (compiled or call.is_static):
        return ""
    wrong = group.form(call)
    return f"its form is wrong: {wrong}" if wrong else ""
