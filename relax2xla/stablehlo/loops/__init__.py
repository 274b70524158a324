"""Loop-level functions as rows: loops become axes of tensors (design decision D20).

Each loop that the dependence test allows is a vector: an axis with a name. Index expressions are
affine forms of these axes; reads become slices, pads, transposes and gathers, writes updates and
scatters, accumulations contractions, convolutions, windows and reductions. Only a loop that its own
steps hold back becomes a ``while``; what is inside it is vectors still. Threads run in lock-step,
statement by statement, with shared and local memory for each block and thread.
"""

from __future__ import annotations

from relax2xla.stablehlo.loops.lower import Lowered as Lowered
from relax2xla.stablehlo.loops.lower import lower as lower
from relax2xla.stablehlo.loops.lower import lower_function as lower_function
from relax2xla.stablehlo.loops.lower import written_parameters as written_parameters
from relax2xla.stablehlo.loops.state import StayedLoop as StayedLoop
