"""Loop-level functions of TVMScript: their text to a tree, and the tree to text."""

from __future__ import annotations

from relax2xla.script.prim_func.parser import PrimFuncParser as PrimFuncParser
