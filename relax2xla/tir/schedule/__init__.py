"""``tir.Schedule``: a program may say how loops are to run; XLA decides, and the kernel stays."""

from __future__ import annotations

from relax2xla.errors import ScheduleError as ScheduleError
from relax2xla.tir.schedule.nest import BlockRV as BlockRV
from relax2xla.tir.schedule.nest import ExprRV as ExprRV
from relax2xla.tir.schedule.nest import LoopRV as LoopRV
from relax2xla.tir.schedule.schedule import Schedule as Schedule
from relax2xla.tir.schedule.schedule import StmtSRef as StmtSRef
from relax2xla.tir.schedule.trace import Instruction as Instruction
from relax2xla.tir.schedule.trace import InstructionKind as InstructionKind
from relax2xla.tir.schedule.trace import Trace as Trace
