"""Module: a component of a neural network, and what one does with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from relax2xla.builder import BlockBuilder
from relax2xla.frontend.nn.eager import has_arrays, run
from relax2xla.frontend.nn.exporter import Exporter
from relax2xla.frontend.nn.spec import ModuleSpec, ModuleSpecType
from relax2xla.frontend.nn.subroutine import SubroutineMixin
from relax2xla.frontend.nn.tree import ModuleTree

if TYPE_CHECKING:
    from relax2xla.runtime.device import Device
    from relax2xla.transform.core import Pass


class Module(SubroutineMixin, ModuleTree):
    """A component of a neural network: parameters, effects, and modules inside it as attributes.

    ``forward`` says what it computes. Called with Tensors (while a model is exported) it adds to
    the program; called with arrays (numpy, jax, torch) it computes at once, compiled for their
    shapes: see docs/nn.md. Nothing depends on ``super().__init__()`` being called.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """``forward`` of Tensors, or at once of arrays."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise NotImplementedError(f"{type(self).__name__} has no method `forward`")
        if BlockBuilder.current() is None and has_arrays((args, kwargs)):
            return run(forward, *args, **kwargs)
        return forward(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, *, cast: bool = False
    ) -> tuple[list[str], list[str]]:
        """Bind parameters to the arrays of ``state_dict``; see ``weights.load_state_dict``."""
        from relax2xla.frontend.nn.weights import load_state_dict

        return load_state_dict(self, state_dict, strict, cast=cast)

    # -- ways out
    def export_tvm(
        self, spec: ModuleSpecType, debug: bool = False, allow_extern: bool = False
    ) -> Any:
        """The module of Relax functions, one for each method of ``spec``, and the parameters.

        spec: ``{"forward": {"x": nn.spec.Tensor([1, "n"], "float32")}}``: for each method its
        arguments; see :mod:`spec`. debug: functions take and give the effect of printing, so that
        ``op.print_`` and ``op.debug_func`` may be used. Gives ``(mod, [(name, parameter), ...])``,
        with ``allow_extern`` also the list of ExternModules. Raises ValueError for ExternModules
        without ``allow_extern``.
        """
        mod, params, externs = Exporter(debug=debug).build(ModuleSpec.from_raw(spec, self))
        if allow_extern:
            return mod, params, externs
        if externs:
            raise ValueError(
                "the model uses ExternModules; export it with allow_extern=True, which gives them, "
                "too"
            )
        return mod, params

    def jit(
        self,
        spec: ModuleSpecType,
        device: str | Device = "cpu",
        pipeline: str | Pass | None = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> Any:
        """Export, build and load: ``compiled["forward"](x)`` then runs the method ``forward``.

        spec, debug: as of ``export_tvm``. pipeline: as of ``build``. out_format: what results are,
        "torch", "jax" or "numpy". All parameters must hold data; it is shared with the program, so
        later changes do not show.
        """
        from relax2xla.frontend.nn.jit import jit

        return jit(self, spec, device, pipeline, out_format, debug)
