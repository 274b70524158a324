"""``tvm.relax.distributed.transform``: passes over distributed tensors, under TVM's names."""

from relax2xla.transform.distributed.local_view import (
    LowerGlobalViewToLocalView as LowerGlobalViewToLocalView,
)
from relax2xla.transform.distributed.propagate import PropagateSharding as PropagateSharding
from relax2xla.transform.distributed.redistribute import (
    LegalizeRedistribute as LegalizeRedistribute,
)
from relax2xla.transform.distributed.workers import ForEachWorker as LowerDistIR

__all__ = ["LegalizeRedistribute", "LowerDistIR", "LowerGlobalViewToLocalView", "PropagateSharding"]
