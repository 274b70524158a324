"""Composites whose functions have a derivative of their own, which their rows do not say.

``stop_gradient`` of JAX, and functions with a rule of their own (``jax.custom_jvp``,
``jax.custom_vjp``), are these composites in a module of JAX. XLA and other tools see what they
decompose into, and what nobody reads of it goes. :mod:`relax2xla.vm.pjrt.own_derivatives` writes
and reads them.

``stop_gradient(x)`` gives ``x``. The others take what they close over, operands, and for each of
these that is of floats (``custom_jvp``) or for each result that is (``custom_vjp``) one ``more``, a
tangent or a cotangent. They give the function's results, then what its rule gives: the results
again, and their tangents, or the cotangents of the operands. A program reads the first alone.
Attributes say how many ``operands``, ``more`` and ``results`` there are.

``linear_solve`` (``jax.lax.custom_linear_solve``) takes what its functions close over (attributes
``matvec``, ``solve`` and ``transpose_solve`` say how many each, the last -1 where there is none),
then the right-hand side, of ``unknowns`` arrays, three times. It gives what ``solve`` makes of the
first, with ``aux`` more values, what ``matvec`` makes of the second and ``transpose_solve`` of the
third. ``symmetric`` is 1 where the map is that.
"""

from __future__ import annotations

from typing import Final

STOP_GRADIENT: Final = "relax2xla.stop_gradient"
CUSTOM_JVP: Final = "relax2xla.custom_jvp"
CUSTOM_VJP: Final = "relax2xla.custom_vjp"
LINEAR_SOLVE: Final = "relax2xla.linear_solve"
# A function whose rule is not written out once more: its derivative is an error.
UNKNOWN: Final = "relax2xla.unknown_derivative"
OWN_DERIVATIVES: Final = frozenset({STOP_GRADIENT, CUSTOM_JVP, CUSTOM_VJP, LINEAR_SOLVE, UNKNOWN})
# The attribute of a function with the names of such functions whose rules its module has not.
LOST: Final = "lost_derivatives"
