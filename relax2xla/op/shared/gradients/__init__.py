"""Gradients of operators as Relax expressions (TVM's ``FPrimalGradient``), by family.

Where TVM has the gradient of an operator, it is TVM's expression, term by term; the source of the
formulas is calculus, of their form TVM Relax v0.20. An operator without a row here is
differentiated through JAX (``relax2xla.interop.vjp``), as ``extract_jax`` does it: what the rows of
its lowering say, or those of its ``.derivative``.
"""

from relax2xla.op.shared.gradients import elementwise as elementwise
from relax2xla.op.shared.gradients import networks as networks
from relax2xla.op.shared.gradients import shapes as shapes
from relax2xla.op.shared.gradients.table import Backward as Backward
from relax2xla.op.shared.gradients.table import gradient as gradient
from relax2xla.op.shared.gradients.table import register_gradient as register_gradient
