"""Relax IR: pure data (expressions, struct info, modules), and how to walk and rebuild it.

Imports go one way, but for one circle, which Relax itself has: an expression has struct info (and
so a type, and fields of a tensor), and the struct info of a tensor has its shape, an expression:
``expr``, ``struct_info``, ``types``, ``tensor_fields``. Methods of nodes that need what is made of
nodes call it through ``late``.
"""

from __future__ import annotations

from relax2xla.ir import bind as bind
from relax2xla.ir import brief as brief
from relax2xla.ir import rename as rename
from relax2xla.ir.base import Attrs as Attrs
from relax2xla.ir.base import DictAttrs as DictAttrs
from relax2xla.ir.base import DummyGlobalInfo as DummyGlobalInfo
from relax2xla.ir.base import Span as Span
from relax2xla.ir.base import VDevice as VDevice
from relax2xla.ir.collection import no_collection as no_collection
from relax2xla.ir.equal import assert_structural_equal as assert_structural_equal
from relax2xla.ir.equal import structural_equal as structural_equal
from relax2xla.ir.equal import structural_hash as structural_hash
from relax2xla.ir.expr import Binding as Binding
from relax2xla.ir.expr import BindingBlock as BindingBlock
from relax2xla.ir.expr import Call as Call
from relax2xla.ir.expr import Constant as Constant
from relax2xla.ir.expr import DataflowBlock as DataflowBlock
from relax2xla.ir.expr import DataflowVar as DataflowVar
from relax2xla.ir.expr import DataTypeImm as DataTypeImm
from relax2xla.ir.expr import Expr as Expr
from relax2xla.ir.expr import ExternFunc as ExternFunc
from relax2xla.ir.expr import Function as Function
from relax2xla.ir.expr import GlobalVar as GlobalVar
from relax2xla.ir.expr import Id as Id
from relax2xla.ir.expr import If as If
from relax2xla.ir.expr import MatchCast as MatchCast
from relax2xla.ir.expr import PrimValue as PrimValue
from relax2xla.ir.expr import SeqExpr as SeqExpr
from relax2xla.ir.expr import ShapeExpr as ShapeExpr
from relax2xla.ir.expr import StringImm as StringImm
from relax2xla.ir.expr import Tuple as Tuple
from relax2xla.ir.expr import TupleGetItem as TupleGetItem
from relax2xla.ir.expr import Var as Var
from relax2xla.ir.expr import VarBinding as VarBinding
from relax2xla.ir.expr import convert_to_expr as convert_to_expr
from relax2xla.ir.expr import global_symbol as global_symbol
from relax2xla.ir.make import const as const
from relax2xla.ir.make import extern as extern
from relax2xla.ir.make import get_shape_of as get_shape_of
from relax2xla.ir.mesh import DeviceMesh as DeviceMesh
from relax2xla.ir.mesh import Placement as Placement
from relax2xla.ir.mesh import PlacementSpec as PlacementSpec
from relax2xla.ir.module import IRModule as IRModule
from relax2xla.ir.op import Op as Op
from relax2xla.ir.serial import load_json as load_json
from relax2xla.ir.serial import save_json as save_json
from relax2xla.ir.struct_info import DTensorStructInfo as DTensorStructInfo
from relax2xla.ir.struct_info import FuncStructInfo as FuncStructInfo
from relax2xla.ir.struct_info import ObjectStructInfo as ObjectStructInfo
from relax2xla.ir.struct_info import PrimStructInfo as PrimStructInfo
from relax2xla.ir.struct_info import ShapeStructInfo as ShapeStructInfo
from relax2xla.ir.struct_info import StructInfo as StructInfo
from relax2xla.ir.struct_info import TensorStructInfo as TensorStructInfo
from relax2xla.ir.struct_info import TupleStructInfo as TupleStructInfo
from relax2xla.ir.types import FuncType as FuncType
from relax2xla.ir.types import ObjectType as ObjectType
from relax2xla.ir.types import PackedFuncType as PackedFuncType
from relax2xla.ir.types import PointerType as PointerType
from relax2xla.ir.types import PrimType as PrimType
from relax2xla.ir.types import ShapeType as ShapeType
from relax2xla.ir.types import TensorType as TensorType
from relax2xla.ir.types import TupleType as TupleType
from relax2xla.ir.types import Type as Type
