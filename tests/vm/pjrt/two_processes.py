"""One of two processes that run programs over the devices of both; see test_mesh.py."""

from __future__ import annotations

import sys

import jax
import numpy as np


def main(place: int, address: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, place)
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import relax2xla as rx
    from relax2xla.frontend.stablehlo import from_stablehlo
    from tests.vm.pjrt.worker_programs import EXCHANGES, T, W, X, module

    devices = jax.devices()
    assert len(devices) == 8
    assert len(jax.local_devices()) == 4
    mesh = Mesh(np.array(devices).reshape(2, 4), ("x", "y"))
    exchange, _ = EXCHANGES["own and sum"]
    got = rx.VirtualMachine(rx.build(module(exchange, per_worker=["x"]), mesh=mesh))["main"](X)
    assert len(got.addressable_shards) == 4
    for shard in got.addressable_shards:
        whole = (T + T.sum(0)) @ W
        np.testing.assert_allclose(shard.data, whole[shard.index], rtol=1e-4, atol=1e-5)

    a, b = T.reshape(16, 16), X.reshape(16, 16)
    cut = NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P("x"))
    jitted = jax.jit(lambda a, b: a @ b, in_shardings=cut, out_shardings=NamedSharding(mesh, P()))
    program = jitted.lower(*(jax.ShapeDtypeStruct((16, 16), "float32") for _ in cut)).as_text()
    got = rx.VirtualMachine(rx.build(from_stablehlo(program), mesh=mesh))["main"](a, b)
    np.testing.assert_allclose(got.addressable_data(0), a @ b, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
    sys.stdout.write("done\n")
