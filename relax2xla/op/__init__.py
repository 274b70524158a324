"""All Relax operators, by their names in TVM: ``op.add(x, y)``, ``op.nn.softmax(x)``.

Importing this package registers every operator; it imports neither jax nor torch. One operator is
one unit (a decorated function, its docstring and its ``legalize`` rule): see relax2xla/ir/op.py.
What is here is found by importing every module: see relax2xla/op/shared/exports.py. Gradients of
operators are tables by family, which need them all: relax2xla/op/shared/gradients.
"""

from __future__ import annotations

from relax2xla.op.shared.exports import COMPOSED as COMPOSED
from relax2xla.op.shared.exports import show as _show

_show(__name__)

from relax2xla.op.shared.gradients import register_gradient as register_gradient  # noqa: E402
