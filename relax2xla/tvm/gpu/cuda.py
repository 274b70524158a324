"""``tvm.relax.backend.cuda``: the room of :mod:`relax2xla.tvm.gpu.cublas`."""
