"""Stand-ins for TVM's attention kernels.

Programs for TVM build kernels and give them to the cache's constructor. Attention is operators
here, so a kernel is a name and its settings; the constructor takes it, and only asks that of rope
how positions are scaled. It computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from relax2xla import tir
from relax2xla.errors import UnsupportedError

NAME: Final = "relax2xla.kernel"


class Kernel(tir.PrimFunc):
    """A PrimFunc without parameters, whose attribute ``relax2xla.kernel`` says which one it is."""

    __slots__ = ("rope_scaling", "rotary_dim")
    rope_scaling: Mapping[str, Any] | None
    rotary_dim: int | None

    def __init__(
        self,
        name: str,
        rope_scaling: Mapping[str, Any] | None = None,
        rotary_dim: int | None = None,
    ) -> None:
        super().__init__(
            [], tir.Evaluate(tir.IntImm("int32", 0)), attrs={NAME: name, "global_symbol": name}
        )
        object.__setattr__(self, "rope_scaling", rope_scaling)
        object.__setattr__(self, "rotary_dim", rotary_dim)

    def __call__(self, *args: Any) -> NoReturn:
        """Always UnsupportedError."""
        raise UnsupportedError(
            f"{self.attrs[NAME]} stands for a kernel of TVM and is for the constructor of a cache "
            "only: vm.builtin.paged_attention_kv_cache_create. To compute attention call "
            "vm.builtin.attention_kv_cache_*, or relax2xla.op.nn.attention"
        )


def kernel(name: str) -> Callable[..., Kernel]:
    """A maker of TVM's: whatever it is called with, it gives the stand-in ``name``."""

    def make(*args: Any, **kwargs: Any) -> Kernel:
        return Kernel(name)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = "A stand-in for a kernel of TVM, for the constructor of a cache."
    return make
