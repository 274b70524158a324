"""Text of struct info and of symbolic integers: the annotations of a printed program."""

from __future__ import annotations

from abc import ABC, abstractmethod

from relax2xla import ir, tir
from relax2xla.ir.base import VDevice
from relax2xla.script.literals import quote
from relax2xla.script.names import Names


class AnnotationPrinter(ABC):
    """The part of the printer that writes annotations.

    ``head``: definitions at the top of the outermost function, indented by ``head_indent``;
    ``quoted``: a signature is written, where symbolic dimensions are strings.
    """

    prefixes: dict[str, str]
    names: Names
    used: set[str]
    module: ir.IRModule | None
    head: list[str]
    head_indent: str
    quoted: bool
    dims_text: dict[tuple[bool, tuple[tir.Dim, ...]], str]

    @abstractmethod
    def expr(self, root: ir.Expr) -> str:
        """The text of an expression."""

    def prefix(self, room: str) -> str:
        """The name of a namespace, which the header then imports."""
        self.used.add(room)
        return self.prefixes[room]

    def relax(self, name: str) -> str:
        """``R.name``."""
        self.used.add("relax")
        return f"{self.prefixes['relax']}.{name}"

    def info(self, info: ir.StructInfo) -> str:
        """An annotation."""
        match info:
            case ir.TensorStructInfo():
                return self.tensor(info)
            case ir.ShapeStructInfo():
                if info.values is None:
                    return f"{self.relax('Shape')}(ndim={info.ndim})"
                return f"{self.relax('Shape')}([{self.dims(info.values)}])"
            case ir.PrimStructInfo():
                if info.value is None:
                    return f"{self.relax('Prim')}({quote(info.dtype)})"
                return f"{self.relax('Prim')}(value={self.prim(info.value)})"
            case ir.DTensorStructInfo():
                return self.dtensor(info)
            case ir.TupleStructInfo():
                if not info.fields:
                    return self.relax("Tuple")
                return f"{self.relax('Tuple')}({', '.join(map(self.info, info.fields))})"
            case ir.FuncStructInfo():
                return self.callable(info)
            case ir.ObjectStructInfo():
                return self.relax("Object")
            case _:
                raise TypeError(f"script() has no text for a {type(info).__name__}")

    def tensor(self, info: ir.TensorStructInfo) -> str:
        """``R.Tensor((n, 4), dtype="float32")``; nothing known is ``R.Tensor``."""
        args: list[str] = []
        if info.dims is not None:
            args.append(self.dims_tuple(info.dims))
        elif info.shape is not None:
            args.append(self.expr(info.shape))
        if info.dtype:
            args.append(f"dtype={quote(info.dtype)}")
        if info.dims is None and info.shape is None and info.ndim != -1:
            args.append(f"ndim={info.ndim}")
        if info.vdevice is not None:
            args.append(f"vdevice={self.device(info.vdevice)}")
        name = self.relax("Tensor")
        return f"{name}({', '.join(args)})" if args else name

    def dtensor(self, info: ir.DTensorStructInfo) -> str:
        """``R.DTensor((n, 4), "float32", "mesh[0]", "S[0]")``; by keyword after what is unknown."""
        tensor = info.tensor_sinfo
        shape = tensor.dims
        parts = [
            ("shape", None if shape is None else self.dims_tuple(shape)),
            ("dtype", quote(tensor.dtype) if tensor.dtype else None),
            ("device_mesh", self.mesh(info.device_mesh)),
            ("placement", quote(str(info.placement))),
            ("ndim", str(tensor.ndim) if shape is None and tensor.ndim != -1 else None),
        ]
        args: list[str] = []
        positional = True
        for name, text in parts:
            positional = positional and text is not None
            if text is not None:
                args.append(text if positional else f"{name}={text}")
        return f"{self.relax('DTensor')}({', '.join(args)})"

    def mesh(self, mesh: ir.DeviceMesh) -> str:
        """``"mesh[0]"`` among the module's global infos; one of no module in full."""
        infos = {} if self.module is None else self.module.global_infos
        for name, known in infos.items():
            if isinstance(known, tuple | list) and mesh in known:
                return quote(f"{name}[{list(known).index(mesh)}]")
        return self.whole_mesh(mesh, "relax")

    def whole_mesh(self, mesh: ir.DeviceMesh, room: str) -> str:
        """A mesh in full; ``room``: the namespace whose ``Range`` is written."""
        ids = f"[{', '.join(map(str, mesh.device_ids))}]"
        if mesh.ranged:
            ids = f"{self.prefix(room)}.Range({mesh.device_ids[0]}, {mesh.device_ids[-1] + 1})"
        comma = "," if len(mesh.shape) == 1 else ""
        shape = f"({', '.join(map(str, mesh.shape))}{comma})"
        return f"{self.relax('device_mesh')}({shape}, {ids})"

    def dims_tuple(self, dims: tuple[tir.Dim, ...]) -> str:
        """``(n, 4)``."""
        return f"({self.dims(dims)}{',' if len(dims) == 1 else ''})"

    def device(self, device: VDevice) -> str:
        """``"kind:index:scope"``, the index among the module's devices of that kind if it has any.

        In full where that would say another device: of a target with options, for instance.
        """
        infos = {} if self.module is None else self.module.global_infos
        alike = [d for d in infos.get("vdevice", ()) if isinstance(d, VDevice)]
        alike = [d for d in alike if d.kind == device.kind]
        found = device in alike
        plain = device.target == device.kind and device.vdevice_id >= len(alike)
        if ":" in device.kind + device.memory_scope or not (found or plain):
            return self.whole_device(device)
        index = alike.index(device) if found else device.vdevice_id
        return quote(f"{device.kind}:{index}:{device.memory_scope}")

    def whole_device(self, device: VDevice) -> str:
        """``I.vdevice("cuda", 0, "global")``."""
        place = f"{device.vdevice_id}, {quote(device.memory_scope)}"
        return f"{self.prefix('ir')}.vdevice({quote(device.target)}, {place})"

    def callable(self, info: ir.FuncStructInfo) -> str:
        """``R.Callable((R.Tensor,), R.Object, True)``; of an opaque function what is known."""
        name = self.relax("Callable")
        if info.params is not None:
            params = ", ".join(map(self.info, info.params))
            comma = "," if len(info.params) == 1 else ""
            return f"{name}(({params}{comma}), {self.info(info.ret)}, {info.purity})"
        args: list[str] = []
        if not isinstance(info.ret, ir.ObjectStructInfo):
            args.append(f"ret={self.info(info.ret)}")
        if info.purity:
            args.append("purity=True")
        if info.derive_func is not None:
            args.append(f"derive_func={quote(info.derive_func)}")
        return f"{name}({', '.join(args)})" if args else name

    def dims(self, dims: tuple[tir.Dim, ...]) -> str:
        """Dimensions, comma-separated."""
        key = (self.quoted, dims)
        text = self.dims_text.get(key)
        if text is None:
            text = self.dims_text[key] = ", ".join(map(self.dim, dims))
        return text

    def dim(self, dim: tir.Dim) -> str:
        """One dimension; a string in a signature if it is symbolic."""
        if isinstance(dim, int):
            return str(dim)
        return self.prim(dim)

    def prim(self, expr: tir.PrimExpr) -> str:
        """A scalar expression, its variables defined at the top of the outermost function."""
        free = tir.free_vars(expr)
        for var in free:
            if id(var) not in self.names.of:
                name = self.names.define(var, var.name, hoist=True)
                self.head.append(f"{self.head_indent}{name} = {self.prefix('tir')}.{var.dtype}()")
        text = tir.to_text(
            expr, name_of=lambda v: self.names.of[id(v)], prefix=self.prefixes["tir"]
        )
        if f"{self.prefixes['tir']}." in text:
            self.used.add("tir")
        return quote(text) if self.quoted and free else text
