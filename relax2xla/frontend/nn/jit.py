"""``Module.jit``: a module exported, built, and loaded with its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relax2xla.frontend.nn import spec as _spec
from relax2xla.frontend.nn.compiled import CompiledModule, NumpyModule
from relax2xla.frontend.nn.exporter import Exporter
from relax2xla.frontend.nn.extern import linked

if TYPE_CHECKING:
    from relax2xla.frontend.nn.tree import ModuleTree
    from relax2xla.frontend.nn.values import Parameter
    from relax2xla.runtime.device import Device
    from relax2xla.transform.core import Pass


def _torch_module() -> type[CompiledModule]:
    from relax2xla.frontend.nn.torch import TorchModule

    return TorchModule


FORMATS: Final[dict[str, Callable[[], type[CompiledModule]]]] = {
    "torch": _torch_module,
    "jax": lambda: CompiledModule,
    "numpy": lambda: NumpyModule,
}


def jit(
    module: ModuleTree,
    spec: _spec.ModuleSpecType,
    device: str | Device,
    pipeline: str | Pass | None,
    out_format: str,
    debug: bool,
) -> CompiledModule:
    """What ``Module.jit`` documents; ValueError for an unknown format and unbound parameters."""
    from relax2xla.runtime.device import device as device_named
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    if out_format not in FORMATS:
        raise ValueError(f"out_format is one of {', '.join(FORMATS)}; got {out_format!r}")
    made = FORMATS[out_format]()
    methods = _spec.ModuleSpec.from_raw(spec, module)
    mod, params, externs = Exporter(debug=debug).build(methods)
    values = _values(params)
    on = device_named(device) if isinstance(device, str) else device
    plain = {
        name: values
        for name, method in zip(methods.method_names, methods.method_specs, strict=True)
        if method.param_mode == "plain" and values
    }
    ex = build(linked(mod, externs), on, plain or None, relax_pipeline=pipeline)
    return made(methods, VirtualMachine(ex, on), values, bound=True)


def _values(params: Sequence[tuple[str, Parameter]]) -> list[Any]:
    if unbound := [name for name, param in params if param.data is None]:
        raise ValueError(f"these parameters hold no data: {', '.join(unbound)}")
    return [np.asarray(param.data) for _, param in params]
