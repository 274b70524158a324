"""Effects: printing (IOEffect), and a cache of keys and values (KVCache)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op, tir
from relax2xla.builder import BlockBuilder
from relax2xla.frontend.nn.tree import Effect
from relax2xla.frontend.nn.values import Tensor, current_builder, expr_of, get_default_dtype
from relax2xla.ir import ObjectStructInfo, PrimValue, ShapeExpr, TensorStructInfo, Var
from relax2xla.op.intrinsic import call_inplace_packed, call_pure_packed

# Packed functions of the runtime (relax2xla.runtime.vm_builtins).
CREATE = "vm.builtin.attention_kv_cache_create"
APPEND = "vm.builtin.attention_kv_cache_append"
VIEW = "vm.builtin.attention_kv_cache_view"


class StateNeeded(RuntimeError):
    """The state of an effect is used where there is none."""


class OneValue(Effect):
    """An effect whose state is one object."""

    _state: Var | None = None
    _suffix = ""

    def create(self, name_hint: str) -> list[Var]:
        """A parameter for the state."""
        return [Var(f"{name_hint}{self._suffix}", ObjectStructInfo())]

    def set_state(self, state_vars: list[Var]) -> None:
        """Let this variable be the state."""
        (self._state,) = state_vars

    def finalize(self) -> list[Var]:
        """The variable that is the state now."""
        state = self.state
        self.forget()
        return [state]

    def forget(self) -> None:
        """Let go of the variable that is the state."""
        self._state = None

    @property
    def state(self) -> Var:
        """The variable that is the state now; StateNeeded outside of an export."""
        if self._state is None:
            raise StateNeeded(
                f"{type(self).__name__} is used outside of a method that is being exported with "
                "its effects; effect_mode 'none' has none"
            )
        return self._state


class IOEffect(OneValue):
    """What the outside sees: printing, and calls of functions for debugging, in their order."""

    _suffix = ".io"

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        """Emit the first state, a null value."""
        return [builder.emit(op.null_value(), f"{name_hint}.io")]

    @property
    def effect(self) -> Var:
        """The variable that is the state now."""
        return self.state

    @effect.setter
    def effect(self, value: Var) -> None:
        self._state = value


class KVCache(OneValue):
    """A growing array of entries, for keys or values of attention: the state lives beside the VM.

    init_seq_len: entries that memory is taken for at first; it grows. unit_shape: of an entry,
    ``[heads, size]`` for example. dtype None: the default dtype.
    """

    def __init__(
        self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None
    ) -> None:
        self.init_seq_len = init_seq_len
        self.unit_shape = [int(i) for i in unit_shape]
        self.dtype = dtype or get_default_dtype()

    def emit_init(self, name_hint: str, bb: BlockBuilder) -> list[Var]:
        """Emit the first state, a cache without entries."""
        shape = ShapeExpr([self.init_seq_len, *self.unit_shape])
        zeros = op.zeros(shape, self.dtype)
        made = call_pure_packed(CREATE, zeros, shape, PrimValue(0), sinfo_args=ObjectStructInfo())
        return [bb.emit(made, name_hint)]

    def to(self, dtype: str | None = None) -> None:
        """Let entries be of ``dtype``; None changes nothing."""
        self.dtype = dtype or self.dtype

    def view(self, seq_len: int | tir.PrimExpr) -> Tensor:
        """The last ``seq_len`` entries: ``(seq_len, *unit_shape)``.

        An error at run time where there are fewer.
        """
        shape = ShapeExpr([seq_len, *self.unit_shape])
        call = call_pure_packed(
            VIEW, self.state, shape, sinfo_args=TensorStructInfo(shape, self.dtype)
        )
        return Tensor(_expr=current_builder("KVCache.view").emit(call))

    def append(self, new_element: Tensor) -> None:
        """Add entries: ``(n, *unit_shape)``, or the same elements in another shape.

        Raises TypeError where the dtype differs from the cache's.
        """
        if new_element.dtype != self.dtype:
            raise TypeError(f"the KVCache is of {self.dtype}, and the element {new_element.dtype}")
        call: Any = call_inplace_packed(
            APPEND,
            self.state,
            expr_of(new_element),
            inplace_indices=[0],
            sinfo_args=ObjectStructInfo(),
        )
        self._state = current_builder("KVCache.append").emit(call)
