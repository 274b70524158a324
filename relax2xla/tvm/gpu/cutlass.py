"""``tvm.relax.backend.cuda.cutlass``: programs may import it; its kernels are not part of XLA."""

from __future__ import annotations

from relax2xla.tvm.refusing import refusing

partition_for_cutlass = refusing(
    "tvm.relax.backend.cuda.cutlass.partition_for_cutlass",
    "CUTLASS is not called; leave the program whole, XLA has kernels for its products",
)
