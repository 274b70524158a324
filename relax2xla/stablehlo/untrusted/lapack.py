"""What calls of LAPACK look like: operands, results and flags of each routine.

XLA:CPU hands jaxlib's kernels bare buffers, and these trust that results are as large as the
operands say, so a call of another form writes where it must not. Source of the forms: the handlers
that jaxlib registers, and JAX's lowering rules for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from relax2xla.ir.struct_info import StructInfo, TensorStructInfo

TARGET: Final = re.compile(r"lapack_([sdcz])(\w+)_ffi")

# The dtypes of a routine by its letter: its own, the real one of that size, the complex one.
_DTYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "s": {"T": "float32", "R": "float32", "C": "complex64", "I": "int32"},
    "d": {"T": "float64", "R": "float64", "C": "complex128", "I": "int32"},
    "c": {"T": "complex64", "R": "float32", "C": "complex64", "I": "int32"},
    "z": {"T": "complex128", "R": "float64", "C": "complex128", "I": "int32"},
}


@dataclass(frozen=True, slots=True)
class Form:
    """One way to call a routine.

    ``operands``, ``results``: a dtype and the axes after the batch's, ``T:mn`` being a matrix of
    the routine's own dtype; k is the smaller of m and n, l is one less than n. ``flags``: letters
    that each may have. ``letters``: the dtypes that the form is for. ``rising``: sizes of which
    none is smaller than the one before it.
    """

    operands: str
    results: str
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    letters: str = "sdcz"
    rising: str = ""


_UPLO: Final = {"uplo": "LU"}
_EIGEN: Final = {"compute_left": "NV", "compute_right": "NV"}
_SCHUR: Final = {"mode": "NV", "sort": "N"}
_SOLVE: Final = {"uplo": "LU", "trans_x": "NTC", "diag": "NU"}
_QR_PRODUCT: Final = {"transpose": "01"}
_SVD: Final = (
    Form("T:mn", "T:mn R:k T:mm T:nn I:", {"mode": "AN"}),
    Form("T:mn", "T:mn R:k T:mk T:kn I:", {"mode": "SN"}),
)
_SYMMETRIC: Final = (Form("T:nn", "T:nn R:n I:", {**_UPLO, "mode": "NV"}),)
_Q: Final = (Form("T:mn T:q", "T:mn", rising="qnm"),)
_TIMES_Q: Final = (
    Form("T:mp T:q T:mn", "T:mn", {**_QR_PRODUCT, "left": "1"}, rising="qm"),
    Form("T:np T:q T:mn", "T:mn", {**_QR_PRODUCT, "left": "0"}, rising="qn"),
)
_TRIDIAGONAL: Final = (Form("T:nn", "T:nn R:n R:l T:l I:", _UPLO),)

FORMS: Final[Mapping[str, tuple[Form, ...]]] = {
    "potrf": (Form("T:nn", "T:nn I:", _UPLO),),
    "getrf": (Form("T:mn", "T:mn I:k I:"),),
    "geqrf": (Form("T:mn", "T:mn T:k"),),
    "geqp3": (Form("T:mn I:n", "T:mn I:n T:k"),),
    "orgqr": _Q,
    "ungqr": _Q,
    "ormqr": _TIMES_Q,
    "unmqr": _TIMES_Q,
    "gesdd": _SVD,
    "gesvd": _SVD,
    "syevd": _SYMMETRIC,
    "heevd": _SYMMETRIC,
    "geev": (
        Form("T:nn", "T:n T:n C:nn C:nn I:", _EIGEN, "sd"),
        Form("T:nn", "T:n T:nn T:nn I:", _EIGEN, "cz"),
    ),
    "gees": (
        Form("T:nn", "T:nn T:nn T:n T:n I: I:", _SCHUR, "sd"),
        Form("T:nn", "T:nn T:nn T:n I: I:", _SCHUR, "cz"),
    ),
    "gehrd": (Form("T:nn", "T:nn T:l I:", {"low": "int", "high": "int"}),),
    "sytrd": _TRIDIAGONAL,
    "hetrd": _TRIDIAGONAL,
    "trsm": (
        Form("T:mm T:mn", "T:mn", {**_SOLVE, "side": "L"}),
        Form("T:nn T:mn", "T:mn", {**_SOLVE, "side": "R"}),
    ),
    "gtsv": (Form("T:m T:m T:m T:mn", "T:m T:m T:m T:mn I:"),),
}
# The one routine of this kind that is jaxlib's own, for any of the dtypes.
PERTURBED: Final = "tridiagonal_solve_perturbed_ffi"
_PERTURBED: Final = Form("T:m T:m T:m T:mn", "T:mn")

_ROUTINES: Final = {
    "s": {"ungqr", "unmqr", "heevd", "hetrd"},
    "c": {"orgqr", "ormqr", "syevd", "sytrd"},
}
TARGETS: Final = frozenset(
    f"lapack_{letter}{routine}_ffi"
    for letter in "sdcz"
    for routine in FORMS
    if routine not in _ROUTINES["s" if letter in "sd" else "c"]
)


def mismatch(
    target: str,
    flags: Mapping[str, Any],
    operands: Sequence[StructInfo],
    results: Sequence[StructInfo],
) -> str:
    """What is wrong with a call of static shapes; "" for one that is as the routine wants it."""
    found = TARGET.fullmatch(target)
    if found is None:
        letters, forms = "sdcz", (_PERTURBED,)
    else:
        letters, forms = found[1], FORMS[found[2]]
    forms = tuple(f for f in forms if set(letters) & set(f.letters))
    for form in forms:
        if any(_fits(form, letter, flags, operands, results) for letter in letters):
            return ""
    return "it takes " + ", or ".join(map(_described, forms))


def _described(form: Form) -> str:
    flags = ", ".join(
        f"{name} {'an integer' if allowed == 'int' else ' or '.join(allowed)}"
        for name, allowed in form.flags.items()
    )
    text = f"({form.operands}) -> ({form.results})" + (f" with {flags}" if flags else "")
    order = " <= ".join(form.rising)
    return f"{text} and {order}" if order else text


def _fits(
    form: Form,
    letter: str,
    flags: Mapping[str, Any],
    operands: Sequence[StructInfo],
    results: Sequence[StructInfo],
) -> bool:
    wanted = [*form.operands.split(), *form.results.split()]
    values = [*operands, *results]
    if len(operands) != len(form.operands.split()) or len(values) != len(wanted):
        return False
    batch: tuple[int, ...] | None = None
    sizes: dict[str, int] = {}
    for text, value in zip(wanted, values, strict=True):
        dtype, axes = text.split(":")
        if not isinstance(value, TensorStructInfo) or value.dtype != _DTYPES[letter][dtype]:
            return False
        dims = value.dims
        if dims is None or len(dims) < len(axes) or not all(isinstance(d, int) for d in dims):
            return False
        known = tuple(int(d) for d in dims if isinstance(d, int))
        cut = len(known) - len(axes)
        if batch is None:
            batch = known[:cut]
        if known[:cut] != batch:
            return False
        for axis, size in zip(axes, known[cut:], strict=True):
            if sizes.setdefault(axis, size) != size:
                return False
    if "k" in sizes and sizes["k"] != min(sizes["m"], sizes["n"]):
        return False
    if "l" in sizes and sizes["l"] != sizes["n"] - 1:
        return False
    if any(sizes[a] > sizes[b] for a, b in pairwise(form.rising)):
        return False
    return set(flags) == set(form.flags) and _flags_fit(form, flags, sizes)


def _flags_fit(form: Form, flags: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
    numbers: dict[str, int] = {}
    for name, allowed in form.flags.items():
        if allowed.isdigit():
            if flags[name] not in map(bool, map(int, allowed)):
                return False
            continue
        number = _number(flags[name], "i32" if allowed == "int" else "ui8")
        if number is None or (allowed != "int" and number not in map(ord, allowed)):
            return False
        numbers[name] = number
    return "low" not in numbers or 1 <= numbers["low"] <= numbers["high"] <= sizes["n"]


def _number(value: Any, kind: str) -> int | None:
    """An integer attribute of the type ``kind``; None for anything else."""
    text = value.get("mlir", "") if isinstance(value, Mapping) else ""
    found = re.fullmatch(rf"(-?\d{{1,12}}) : {kind}", str(text))
    return int(found[1]) if found else None
