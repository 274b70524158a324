"""Symbolic scalar expressions, their normal form and proofs, and loop-level functions."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from relax2xla.late import Late
from relax2xla.tir import analysis as analysis
from relax2xla.tir import ir_builder as ir_builder
from relax2xla.tir import stmt_functor as stmt_functor
from relax2xla.tir.arith.analyzer import Analyzer as Analyzer
from relax2xla.tir.arith.analyzer import can_prove_equal as can_prove_equal
from relax2xla.tir.arith.analyzer import simplify as simplify
from relax2xla.tir.arith.bounds import ConstIntBound as ConstIntBound
from relax2xla.tir.arith.bounds import Range as Range
from relax2xla.tir.binary import EQ as EQ
from relax2xla.tir.binary import GE as GE
from relax2xla.tir.binary import GT as GT
from relax2xla.tir.binary import LE as LE
from relax2xla.tir.binary import LT as LT
from relax2xla.tir.binary import NE as NE
from relax2xla.tir.binary import Add as Add
from relax2xla.tir.binary import And as And
from relax2xla.tir.binary import BinaryExpr as BinaryExpr
from relax2xla.tir.binary import CmpExpr as CmpExpr
from relax2xla.tir.binary import Div as Div
from relax2xla.tir.binary import FloorDiv as FloorDiv
from relax2xla.tir.binary import FloorMod as FloorMod
from relax2xla.tir.binary import Max as Max
from relax2xla.tir.binary import Min as Min
from relax2xla.tir.binary import Mod as Mod
from relax2xla.tir.binary import Mul as Mul
from relax2xla.tir.binary import Or as Or
from relax2xla.tir.binary import Sub as Sub
from relax2xla.tir.buffer import Buffer as Buffer
from relax2xla.tir.buffer import BufferLoad as BufferLoad
from relax2xla.tir.buffer import BufferRegion as BufferRegion
from relax2xla.tir.buffer import Let as Let
from relax2xla.tir.buffer import PointerVar as PointerVar
from relax2xla.tir.buffer import decl_buffer as decl_buffer
from relax2xla.tir.call import Call as Call
from relax2xla.tir.call import float_of_bits as float_of_bits
from relax2xla.tir.convert import Cast as Cast
from relax2xla.tir.convert import as_dim as as_dim
from relax2xla.tir.convert import as_prim_expr as as_prim_expr
from relax2xla.tir.convert import cast as cast
from relax2xla.tir.convert import const as const
from relax2xla.tir.convert import match_dtypes as match_dtypes
from relax2xla.tir.data_layout import BijectiveLayout as BijectiveLayout
from relax2xla.tir.data_layout import Layout as Layout
from relax2xla.tir.data_layout import bijective_layout as bijective_layout
from relax2xla.tir.data_layout import layout as layout
from relax2xla.tir.expr import Not as Not
from relax2xla.tir.expr import Select as Select
from relax2xla.tir.function import PrimFunc as PrimFunc
from relax2xla.tir.functor import evaluate as evaluate
from relax2xla.tir.functor import free_vars as free_vars
from relax2xla.tir.functor import post_order as post_order
from relax2xla.tir.functor import post_order_visit as post_order_visit
from relax2xla.tir.functor import structural_equal as structural_equal
from relax2xla.tir.functor import structural_hash as structural_hash
from relax2xla.tir.functor import substitute as substitute
from relax2xla.tir.index_map import IndexMap as IndexMap
from relax2xla.tir.node import Dim as Dim
from relax2xla.tir.node import FloatImm as FloatImm
from relax2xla.tir.node import IntImm as IntImm
from relax2xla.tir.node import Node as Node
from relax2xla.tir.node import PrimExpr as PrimExpr
from relax2xla.tir.node import SizeVar as SizeVar
from relax2xla.tir.node import StringImm as StringImm
from relax2xla.tir.node import Var as Var
from relax2xla.tir.node import element_of as element_of
from relax2xla.tir.node import is_int as is_int
from relax2xla.tir.node import lanes_of as lanes_of
from relax2xla.tir.op import all as all
from relax2xla.tir.op import any as any
from relax2xla.tir.op import ceildiv as ceildiv
from relax2xla.tir.op import div as div
from relax2xla.tir.op import floordiv as floordiv
from relax2xla.tir.op import floormod as floormod
from relax2xla.tir.op import if_then_else as if_then_else
from relax2xla.tir.op import max as max
from relax2xla.tir.op import min as min
from relax2xla.tir.op import reinterpret as reinterpret
from relax2xla.tir.op import truncdiv as truncdiv
from relax2xla.tir.op import truncmod as truncmod
from relax2xla.tir.printer import to_text as to_text
from relax2xla.tir.reduce import CommReducer as CommReducer
from relax2xla.tir.reduce import Reduce as Reduce
from relax2xla.tir.schedule import BlockRV as BlockRV
from relax2xla.tir.schedule import LoopRV as LoopRV
from relax2xla.tir.schedule import Schedule as Schedule
from relax2xla.tir.schedule import ScheduleError as ScheduleError
from relax2xla.tir.stmt import Allocate as Allocate
from relax2xla.tir.stmt import AllocateConst as AllocateConst
from relax2xla.tir.stmt import AssertStmt as AssertStmt
from relax2xla.tir.stmt import AttrStmt as AttrStmt
from relax2xla.tir.stmt import Block as Block
from relax2xla.tir.stmt import BlockRealize as BlockRealize
from relax2xla.tir.stmt import BufferRealize as BufferRealize
from relax2xla.tir.stmt import BufferStore as BufferStore
from relax2xla.tir.stmt import DeclBuffer as DeclBuffer
from relax2xla.tir.stmt import Evaluate as Evaluate
from relax2xla.tir.stmt import For as For
from relax2xla.tir.stmt import ForKind as ForKind
from relax2xla.tir.stmt import IfThenElse as IfThenElse
from relax2xla.tir.stmt import IterVar as IterVar
from relax2xla.tir.stmt import LetStmt as LetStmt
from relax2xla.tir.stmt import MatchBufferRegion as MatchBufferRegion
from relax2xla.tir.stmt import Prefetch as Prefetch
from relax2xla.tir.stmt import SeqStmt as SeqStmt
from relax2xla.tir.stmt import Stmt as Stmt
from relax2xla.tir.stmt import Text as Text
from relax2xla.tir.stmt import While as While
from relax2xla.tir.stmt import stmt_list as stmt_list
from relax2xla.tir.stmt import stmt_seq as stmt_seq
from relax2xla.tir.vector import Broadcast as Broadcast
from relax2xla.tir.vector import Ramp as Ramp
from relax2xla.tir.vector import vscale as vscale

indexdiv, indexmod = floordiv, floormod

# Functions of scalars by their names in TVM (``tir.exp``): those of ``te``, which is made of this.
scalar_functions: Final = Late()


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        with contextlib.suppress(AttributeError):
            return scalar_functions.call(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
