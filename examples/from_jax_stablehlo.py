"""A JAX function as StableHLO, as editable Relax, and back as the very same StableHLO.

python examples/from_jax_stablehlo.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import relax2xla as rx
from relax2xla.frontend.stablehlo import from_stablehlo


def network(x: jax.Array, w: jax.Array) -> jax.Array:
    """One layer and a softmax."""
    return jax.nn.softmax(jnp.tanh(x @ w))


def replace_tanh(mod: rx.IRModule) -> rx.IRModule:
    """Every tanh of ``main`` becomes a ReLU."""

    @rx.expr_functor.mutator
    class Replace(rx.PyExprMutator):
        def visit_call_(self, op: rx.Call) -> rx.Expr:
            call = super().visit_call_(op)
            if not isinstance(call, rx.Call) or not isinstance(call.op, rx.Op):
                return call
            is_tanh = call.op.name == "relax.stablehlo.tanh"
            return rx.op.nn.relu(call.args[0]) if is_tanh else call

    return rx.IRModule({"main": Replace().visit_expr(mod["main"])})


def main() -> None:
    """Import, print, run, edit, run again, export."""
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.standard_normal(s, np.float32)) for s in ((2, 3), (3, 4)))
    lowered = jax.jit(network).lower(x, w)

    mod = from_stablehlo(lowered, raise_ops=False)
    print("The program as Relax:\n")
    mod.show()

    same = rx.to_stablehlo(mod) == lowered.as_text()
    print(f"\nWritten back as StableHLO, the text is identical: {same}")

    result = rx.VirtualMachine(rx.build(mod))["main"](x, w)
    print(f"Largest difference to JAX: {np.abs(result - network(x, w)).max():.1e}")

    edited = replace_tanh(mod)
    result = rx.VirtualMachine(rx.build(edited))["main"](x, w)
    expected = jax.nn.softmax(jax.nn.relu(x @ w))
    print(f"With ReLU in place of tanh, difference to JAX: {np.abs(result - expected).max():.1e}")


if __name__ == "__main__":
    main()
