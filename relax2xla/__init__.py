"""relax2xla: Relax IR lowered to StableHLO and compiled by XLA.

The names of ``tvm.relax`` live here (``relax2xla.Var``, ``relax2xla.build``, ``relax2xla.op.add``,
...), and those of ``tvm`` that programs for it use (``relax2xla.cpu()``, ``relax2xla.compile``,
``relax2xla.IRModule``). Importing the package loads the IR alone; rooms that need jax, torch or
onnx are loaded when one of their names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relax2xla import dtypes as dtypes
from relax2xla import errors as errors
from relax2xla import ir as ir
from relax2xla import tir as tir
from relax2xla.errors import DiagnosticError as DiagnosticError
from relax2xla.errors import OpNotImplemented as OpNotImplemented
from relax2xla.errors import TVMError as TVMError
from relax2xla.ir import Binding as Binding
from relax2xla.ir import BindingBlock as BindingBlock
from relax2xla.ir import Call as Call
from relax2xla.ir import Constant as Constant
from relax2xla.ir import DataflowBlock as DataflowBlock
from relax2xla.ir import DataflowVar as DataflowVar
from relax2xla.ir import DataTypeImm as DataTypeImm
from relax2xla.ir import DTensorStructInfo as DTensorStructInfo
from relax2xla.ir import Expr as Expr
from relax2xla.ir import ExternFunc as ExternFunc
from relax2xla.ir import FuncStructInfo as FuncStructInfo
from relax2xla.ir import Function as Function
from relax2xla.ir import FuncType as FuncType
from relax2xla.ir import GlobalVar as GlobalVar
from relax2xla.ir import Id as Id
from relax2xla.ir import If as If
from relax2xla.ir import IRModule as IRModule
from relax2xla.ir import MatchCast as MatchCast
from relax2xla.ir import ObjectStructInfo as ObjectStructInfo
from relax2xla.ir import ObjectType as ObjectType
from relax2xla.ir import Op as Op
from relax2xla.ir import PackedFuncType as PackedFuncType
from relax2xla.ir import PrimStructInfo as PrimStructInfo
from relax2xla.ir import PrimValue as PrimValue
from relax2xla.ir import SeqExpr as SeqExpr
from relax2xla.ir import ShapeExpr as ShapeExpr
from relax2xla.ir import ShapeStructInfo as ShapeStructInfo
from relax2xla.ir import ShapeType as ShapeType
from relax2xla.ir import Span as Span
from relax2xla.ir import StringImm as StringImm
from relax2xla.ir import StructInfo as StructInfo
from relax2xla.ir import TensorStructInfo as TensorStructInfo
from relax2xla.ir import TensorType as TensorType
from relax2xla.ir import Tuple as Tuple
from relax2xla.ir import TupleGetItem as TupleGetItem
from relax2xla.ir import TupleStructInfo as TupleStructInfo
from relax2xla.ir import TupleType as TupleType
from relax2xla.ir import Var as Var
from relax2xla.ir import VarBinding as VarBinding
from relax2xla.ir import VDevice as VDevice
from relax2xla.ir import const as const
from relax2xla.ir import convert_to_expr as convert_to_expr
from relax2xla.ir import extern as extern
from relax2xla.ir import get_shape_of as get_shape_of
from relax2xla.runtime.device import Device as Device
from relax2xla.runtime.device import cpu as cpu
from relax2xla.runtime.device import cuda as cuda
from relax2xla.runtime.device import device as device
from relax2xla.runtime.device import gpu as gpu
from relax2xla.runtime.device import rocm as rocm
from relax2xla.runtime.registry import get_global_func as get_global_func
from relax2xla.runtime.registry import register_func as register_func
from relax2xla.version import __version__ as __version__

if TYPE_CHECKING:
    from relax2xla import analysis as analysis
    from relax2xla import budget as budget
    from relax2xla import dpl as dpl
    from relax2xla import error as error
    from relax2xla import expr_functor as expr_functor
    from relax2xla import frontend as frontend
    from relax2xla import importers as importers
    from relax2xla import instrument as instrument
    from relax2xla import interop as interop
    from relax2xla import kv_state as kv_state
    from relax2xla import nd as nd
    from relax2xla import op as op
    from relax2xla import runtime as runtime
    from relax2xla import script as script
    from relax2xla import stablehlo as stablehlo
    from relax2xla import target as target
    from relax2xla import te as te
    from relax2xla import testing as testing
    from relax2xla import topi as topi
    from relax2xla import training as training
    from relax2xla import transform as transform
    from relax2xla import utils as utils
    from relax2xla import vm as vm
    from relax2xla.builder import BlockBuilder as BlockBuilder
    from relax2xla.dpl.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
    from relax2xla.expr_functor import ExprFunctor as ExprFunctor
    from relax2xla.expr_functor import PyExprMutator as PyExprMutator
    from relax2xla.expr_functor import PyExprVisitor as PyExprVisitor
    from relax2xla.importers.files import load as load
    from relax2xla.importers.files import save as save
    from relax2xla.interop.jax import jax_function as jax_function
    from relax2xla.op.intrinsic import call_builtin_with_ctx as call_builtin_with_ctx
    from relax2xla.op.intrinsic import call_dps_packed as call_dps_packed
    from relax2xla.op.intrinsic import call_inplace_packed as call_inplace_packed
    from relax2xla.op.intrinsic import call_pure_packed as call_pure_packed
    from relax2xla.op.intrinsic import call_tir as call_tir
    from relax2xla.op.intrinsic import call_tir_inplace as call_tir_inplace
    from relax2xla.op.intrinsic import call_tir_with_grad as call_tir_with_grad
    from relax2xla.op.intrinsic import invoke_closure as invoke_closure
    from relax2xla.op.intrinsic import invoke_pure_closure as invoke_pure_closure
    from relax2xla.op.intrinsic import make_closure as make_closure
    from relax2xla.op_attributes import register_op_attr as register_op_attr
    from relax2xla.transform.export import to_stablehlo as to_stablehlo
    from relax2xla.transform.lower.kernel_rows import register_kernel_rows as register_kernel_rows
    from relax2xla.transform.pipeline import get_default_pipeline as get_default_pipeline
    from relax2xla.transform.pipeline import get_pipeline as get_pipeline
    from relax2xla.transform.pipeline import register_pipeline as register_pipeline
    from relax2xla.vm.call.machine import VirtualMachine as VirtualMachine
    from relax2xla.vm.observe.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
    from relax2xla.vm.plan.build import build as build
    from relax2xla.vm.plan.build import compile as compile
    from relax2xla.vm.plan.exec_builder import ExecBuilder as ExecBuilder
    from relax2xla.vm.save.executable import VMExecutable as VMExecutable
    from relax2xla.vm.save.reader import load_module as load_module

# Where names that are loaded on first use live.
_HOMES = {
    "BlockBuilder": "relax2xla.builder",
    "ExecBuilder": "relax2xla.vm.plan.exec_builder",
    "DataflowBlockRewrite": "relax2xla.dpl.binding_rewrite",
    "ExprFunctor": "relax2xla.expr_functor",
    "PyExprMutator": "relax2xla.expr_functor",
    "PyExprVisitor": "relax2xla.expr_functor",
    "VMExecutable": "relax2xla.vm.save.executable",
    "VMInstrumentReturnKind": "relax2xla.vm.observe.instrument",
    "VirtualMachine": "relax2xla.vm.call.machine",
    "build": "relax2xla.vm.plan.build",
    "call_builtin_with_ctx": "relax2xla.op.intrinsic",
    "call_dps_packed": "relax2xla.op.intrinsic",
    "call_inplace_packed": "relax2xla.op.intrinsic",
    "call_pure_packed": "relax2xla.op.intrinsic",
    "call_tir": "relax2xla.op.intrinsic",
    "call_tir_inplace": "relax2xla.op.intrinsic",
    "call_tir_with_grad": "relax2xla.op.intrinsic",
    "invoke_closure": "relax2xla.op.intrinsic",
    "invoke_pure_closure": "relax2xla.op.intrinsic",
    "make_closure": "relax2xla.op.intrinsic",
    "get_global_func": "relax2xla.runtime.registry",
    "register_func": "relax2xla.runtime.registry",
    "compile": "relax2xla.vm.plan.build",
    "get_default_pipeline": "relax2xla.transform.pipeline",
    "get_pipeline": "relax2xla.transform.pipeline",
    "register_kernel_rows": "relax2xla.transform.lower.kernel_rows",
    "register_op_attr": "relax2xla.op_attributes",
    "register_pipeline": "relax2xla.transform.pipeline",
    "jax_function": "relax2xla.interop.jax",
    "load": "relax2xla.importers.files",
    "save": "relax2xla.importers.files",
    "load_module": "relax2xla.vm.save.reader",
    "to_stablehlo": "relax2xla.transform.export",
}
_ROOMS = (
    "analysis",
    "budget",
    "dpl",
    "error",
    "expr_functor",
    "frontend",
    "importers",
    "instrument",
    "interop",
    "kv_state",
    "nd",
    "op",
    "runtime",
    "script",
    "stablehlo",
    "target",
    "te",
    "testing",
    "topi",
    "training",
    "transform",
    "utils",
    "vm",
)


@tir.scalar_functions.given
def _scalar_function(name: str) -> Any:
    return getattr(importlib.import_module("relax2xla.te.functions"), name)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"relax2xla.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'relax2xla' has no attribute {name!r}")
    made = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
