"""The annotations of TVMScript: ``R.Tensor((n, "m"), "float32")`` and the like.

Each is an object that stands for the struct info of which nothing is known (bare ``R.Tensor``) and
that can be called. In text that is parsed, strings among dimensions name symbolic variables of the
function; in plain Python each call of an annotation has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from relax2xla import ir, syntax, tir
from relax2xla.dtypes import dtype_name
from relax2xla.ir.base import VDevice
from relax2xla.script.arithmetic import arithmetic, described

Resolve = Callable[[str], tir.Var]
Device = Callable[[str], VDevice]
Mesh = Callable[[str], ir.DeviceMesh]


class Context:
    """How an annotation looks things up: symbolic variables, devices and meshes by name."""

    def __init__(
        self,
        resolve: Resolve | None = None,
        device: Device | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        self._own: dict[str, tir.Var] = {}
        self.resolve = resolve or (lambda name: self._own.setdefault(name, tir.Var(name)))
        self.device = device or parse_device
        self.mesh = mesh or no_mesh

    def dim(self, value: Any) -> tir.Dim:
        """A dimension: an int, a symbolic integer, or the text of one."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, ir.PrimValue):
            value = value.value
        if isinstance(value, tir.PrimExpr) or hasattr(value, "__index__"):
            return tir.as_dim(value)
        raise TypeError(
            f"a dimension must be an integer, a symbolic integer or its name; got "
            f"{type(value).__name__} {value!r}"
        )

    def _text(self, text: str) -> tir.Dim:
        if text.isidentifier():
            return self.resolve(text)
        try:
            tree = syntax.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"{text!r} is no arithmetic on symbolic integers") from None
        return tir.as_dim(arithmetic(tree, self.resolve))


class Annotation:
    """A callable struct info; ``default`` is what it means when it is not called."""

    def __init__(
        self,
        name: str,
        default: ir.StructInfo | None,
        make: Callable[..., ir.StructInfo],
    ) -> None:
        self.name = self.__name__ = name
        self.default = default
        self.make = make

    def __call__(self, *args: Any, **kwargs: Any) -> ir.StructInfo:
        try:
            return self.make(Context(), *args, **kwargs)
        except NoMesh as why:
            return cast(ir.StructInfo, Unresolved(self.name, why))

    def __repr__(self) -> str:
        return f"R.{self.name}"

    def as_struct_info(self) -> ir.StructInfo:
        """What the annotation means by itself; TypeError where it needs arguments."""
        return as_struct_info(self)


class NoMesh(ValueError):
    """A mesh by name, where there is no module to look in."""


class Unresolved:
    """An annotation that means something in a module only, and ``why``.

    Python evaluates the annotations of a function of TVMScript before the text of its module is
    parsed, which is where the names of meshes are known.
    """

    def __init__(self, name: str, why: NoMesh) -> None:
        self.name, self.why = name, why

    def __getattr__(self, name: str) -> Any:
        # Whoever takes it for struct info is told; what asks for __origin__ and the like is not.
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoMesh(str(self.why))

    def __repr__(self) -> str:
        return f"<R.{self.name} of a module>"


def as_struct_info(value: Any) -> ir.StructInfo:
    """Struct info that an annotation's value means; TypeError for anything else."""
    if isinstance(value, ir.StructInfo):
        return value
    if isinstance(value, Unresolved):
        raise NoMesh(str(value.why))
    if isinstance(value, Annotation) and value.default is not None:
        return value.default
    if isinstance(value, Annotation):
        raise TypeError(f"R.{value.name} needs arguments; write R.{value.name}(...)")
    raise TypeError(
        'expected an annotation such as R.Tensor((2, 3), dtype="float32"); '
        f"got {type(value).__name__} {value!r}"
    )


def parse_device(text: str) -> VDevice:
    """``kind``, ``kind:index`` or ``kind:index:scope``."""
    kind, *rest = text.split(":")
    if len(rest) > 2 or (rest and not rest[0].isdecimal()):
        raise ValueError(f"{text!r} is no device; write kind:index:scope, as in cuda:0:global")
    return VDevice(kind, int(rest[0]) if rest else 0, rest[1] if len(rest) == 2 else "global")


def no_mesh(text: str) -> ir.DeviceMesh:
    """Where there is no module to look in."""
    raise NoMesh(f"there is no module whose global infos could have the mesh {text!r}")


def _tensor(
    cx: Context,
    shape: Any = None,
    dtype: Any = None,
    vdevice: Any = None,
    ndim: int = -1,
) -> ir.StructInfo:
    # As in TVM: R.Tensor("float32") is a tensor of which only the dtype is known.
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if isinstance(vdevice, str):
        vdevice = cx.device(vdevice)
    if vdevice is not None and not isinstance(vdevice, VDevice):
        raise TypeError(
            f'R.Tensor: the vdevice must be an I.vdevice or a text such as "cuda:0:global"; got '
            f"{described(vdevice)}"
        )
    named = isinstance(shape, str | bytes | Mapping)
    if isinstance(shape, Iterable) and not isinstance(shape, ir.Expr) and not named:
        if ndim not in (-1, len(dims := [cx.dim(d) for d in shape])):
            raise ValueError(f"R.Tensor: ndim={ndim} contradicts a shape of {len(dims)} dimensions")
        return ir.TensorStructInfo(dims, _dtype(dtype), vdevice)
    if shape is not None and not isinstance(shape, ir.Expr):
        raise TypeError(f"R.Tensor: the shape must be a tuple; got {type(shape).__name__}")
    return ir.TensorStructInfo(shape, _dtype(dtype), vdevice, ndim)


def _dtype(value: Any) -> str | None:
    """The dtype of an annotation; None and the empty text say that it is not known."""
    if value is None or isinstance(value, str | np.dtype | type):
        return dtype_name(value) if value else None
    # Not a sequence, of which numpy makes dtypes of records, nor what cannot be looked up.
    if isinstance(value, Hashable) and not isinstance(value, tuple | ir.Expr | tir.PrimExpr):
        return dtype_name(value)
    raise TypeError(f'a dtype is a name such as "float32"; got {described(value)}')


def _dtensor(
    cx: Context,
    shape: Any = None,
    dtype: Any = None,
    device_mesh: Any = None,
    placement: Any = "",
    *,
    ndim: int = -1,
) -> ir.StructInfo:
    if isinstance(device_mesh, str):
        device_mesh = cx.mesh(device_mesh)
    elif device_mesh is None:
        device_mesh = ir.DeviceMesh((), range(1))
    if not isinstance(device_mesh, ir.DeviceMesh):
        raise TypeError(
            "R.DTensor: the mesh must be an R.device_mesh, or the name of one of the module's "
            f'such as "mesh[0]"; got {type(device_mesh).__name__}'
        )
    if not isinstance(placement, str | ir.Placement):
        raise TypeError(
            f'R.DTensor: the placement is a text such as "S[0], R"; got {described(placement)}'
        )
    tensor = _tensor(cx, shape, dtype, None, ndim)
    assert isinstance(tensor, ir.TensorStructInfo)
    return ir.DTensorStructInfo(tensor, device_mesh, placement)


def _shape(cx: Context, values: Any = None, ndim: int = -1) -> ir.StructInfo:
    if values is None:
        return ir.ShapeStructInfo(None, ndim)
    if not isinstance(values, tuple | list):
        raise TypeError(f"R.Shape takes a list of dimensions; got {described(values)}")
    return ir.ShapeStructInfo([cx.dim(v) for v in values], ndim)


def _prim(cx: Context, dtype: Any = None, value: Any = None) -> ir.StructInfo:
    if isinstance(dtype, tir.PrimExpr) and value is None:
        dtype, value = None, dtype
    return ir.PrimStructInfo(_dtype(dtype), cx.dim(value) if isinstance(value, str) else value)


def _tuple(cx: Context, *fields: Any) -> ir.StructInfo:
    if len(fields) == 1 and isinstance(fields[0], list | tuple):
        fields = tuple(fields[0])
    return ir.TupleStructInfo([as_struct_info(f) for f in fields])


def _callable(
    cx: Context,
    params: Any = None,
    ret: Any = None,
    purity: bool | None = None,
    derive_func: str | None = None,
) -> ir.StructInfo:
    if not isinstance(purity, bool | None):
        raise TypeError(f"R.Callable: purity is True or False; got {described(purity)}")
    if not isinstance(derive_func, str | None):
        raise TypeError(
            f"R.Callable: derive_func is a registered name; got {described(derive_func)}"
        )
    result = None if ret is None else as_struct_info(ret)
    if params is None:
        return ir.FuncStructInfo.opaque_func(
            ret=result, derive_func=derive_func, purity=bool(purity)
        )
    if not isinstance(params, tuple | list):
        params = [params]
    known = True if purity is None else purity
    return ir.FuncStructInfo([as_struct_info(p) for p in params], result, known)


def _object(cx: Context) -> ir.StructInfo:
    return ir.ObjectStructInfo()


ANNOTATIONS: dict[str, Annotation] = {
    a.name: a
    for a in (
        Annotation("Tensor", ir.TensorStructInfo(None, None), _tensor),
        Annotation("DTensor", None, _dtensor),
        Annotation("Shape", ir.ShapeStructInfo(), _shape),
        Annotation("Prim", None, _prim),
        Annotation("Tuple", ir.TupleStructInfo(()), _tuple),
        Annotation("Callable", ir.FuncStructInfo.opaque_func(), _callable),
        Annotation("Object", ir.ObjectStructInfo(), _object),
    )
}
