"""Text of the values of attributes: numbers, tuples, dictionaries, arrays, meshes, devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relax2xla import ir, tir
from relax2xla.ir.base import DummyGlobalInfo, VDevice
from relax2xla.script.annotation_text import AnnotationPrinter
from relax2xla.script.literals import number, quote
from relax2xla.script.metadata import ARRAY


class AttributePrinter(AnnotationPrinter):
    """The part of the printer that writes attributes.

    ``tables``: entries of the metadata section; ``root``: the outermost function that is written.
    """

    tables: dict[str, list[Any]]
    table_index: dict[int, str]
    root: ir.Expr | None

    def in_table(self, key: str, item: Any) -> str:
        """A reference to ``item`` in the metadata; the same object has one entry."""
        known = self.table_index.get(id(item))
        if known is None:
            table = self.tables.setdefault(key, [])
            known = self.table_index[id(item)] = f'metadata["{key}"][{len(table)}]'
            table.append(item)
        return known

    def value(self, value: Any) -> str:
        """A value of an attribute."""
        if isinstance(value, np.generic):
            value = value.item()
        match value:
            case None | bool():
                return str(value)
            case int():
                return str(int(value))
            case float():
                return number(value)
            case str():
                return quote(value)
            case tuple() | list():
                return f"[{', '.join(map(self.value, value))}]"
            case Mapping():
                return f"{{{', '.join(f'{quote(k)}: {self.value(v)}' for k, v in value.items())}}}"
            case ir.StructInfo():
                return self.info(value)
            case tir.PrimExpr():
                return self.prim(value)
            case ir.Expr():
                return self.expr(value)
            case np.ndarray():
                return self.in_table(ARRAY, value)
            case tir.IndexMap():
                return self.index_map(value)
            case ir.DeviceMesh():
                if self.module is not None and self.root is None:
                    return self.whole_mesh(value, "ir")
                return self.mesh(value)
            case VDevice():
                return self.whole_device(value)
            case _ if type(value).__module__ == "relax2xla.target":
                # A host with options as a target, too: its own text keeps no lists.
                host = "" if value.host is None else f", {self._host(value.host)}"
                options = self.value({"kind": value.kind, **value.attrs})
                return f"{self.prefix('tir')}.target({options}{host})"
            case DummyGlobalInfo():
                return f"{self.prefix('ir')}.dummy_global_info()"
            case _:
                raise TypeError(
                    f"an attribute of type {type(value).__name__} has no text: {value!r}"
                )

    def _host(self, host: Any) -> str:
        return self.value(host) if host.attrs else quote(str(host))

    def float32(self, value: Any) -> str:
        """Numbers as ``T.float32(0.5)``, those that it would not round."""
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self.float32, value))}]"
        if isinstance(value, float) and float(np.float32(value)) == value:
            return self.prim(tir.FloatImm("float32", value))
        return self.value(value)

    def index_map(self, moved: tir.IndexMap) -> str:
        """An index map as a lambda."""
        names = ", ".join(v.name for v in moved.initial_indices)
        final = ", ".join(map(str, moved.final_indices))
        comma = "," if len(moved.final_indices) == 1 else ""
        return f"{self.prefix('tir')}.index_map(lambda {names}: ({final}{comma}))"

    def sorted_dict(self, attrs: Mapping[str, Any]) -> str:
        """A dictionary literal, keys in TVM's order."""
        items = (f"{quote(k)}: {self.value(v)}" for k, v in sorted(attrs.items()))
        return f"{{{', '.join(items)}}}"
