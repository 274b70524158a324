"""Trainer: what holds parameters, states and the optimiser's state while a network trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import TVMError
from relax2xla.ir import IRModule, TensorStructInfo, Var
from relax2xla.ir.struct_info import show
from relax2xla.nd import array
from relax2xla.runtime.device import Device
from relax2xla.training.setup_trainer import SetupTrainer


class Trainer:
    """Trains a network, step by step.

    ::

        train_mod = SetupTrainer(MSELoss(), SGD(0.01), [prediction, target])(backbone)
        trainer = Trainer(train_mod, VirtualMachine(build(train_mod)), cpu(), False)
        trainer.xaiver_uniform_init_params()
        loss = trainer.update(inputs, targets)

    train_mod: what SetupTrainer made; vm: a machine over it; device: where parameters live.
    zero_init_param_state: parameters and states are zeros at first; else they are none until they
        are loaded or initialised.
    """

    BACKBONE_FUNC = SetupTrainer.BACKBONE_FUNC
    BACKBONE_LOSS_FUNC = SetupTrainer.BACKBONE_LOSS_FUNC
    ADJOINT_FUNC = SetupTrainer.ADJOINT_FUNC
    OPTIMIZER_FUNC = SetupTrainer.OPTIMIZER_FUNC

    def __init__(
        self, train_mod: IRModule, vm: Any, device: Device, zero_init_param_state: bool = True
    ) -> None:
        self.mod, self.vm, self.device = train_mod.without_attr("optim_state"), vm, device
        attrs = train_mod.attrs
        self._optim_state = [array(v, device) for v in attrs["optim_state"]]
        self._input_num, count = int(attrs["input_num"]), int(attrs["param_num"])
        self._state_num = int(attrs["state_num"])
        given = train_mod[self.ADJOINT_FUNC].params[self._input_num :]
        self._params = _Values("parameter", given[:count], device)
        self._states = _Values("state", given[count : count + self._state_num], device)
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    # -- parameters and states
    def xaiver_uniform_init_params(self) -> None:
        """Parameters from a uniform distribution over ``+-sqrt(6 / sum(shape))`` (numpy's
        ``random``). The name is TVM's; for matrices this is Xavier Glorot's initialisation.

        Source: Glorot and Bengio, Understanding the difficulty of training deep feedforward neural
        networks (2010).
        """

        def draw(shape: tuple[int, ...]) -> Any:
            return np.sqrt(6.0 / max(sum(shape), 1)) * np.random.uniform(-1.0, 1.0, shape)

        self._params.fill(draw)

    def zero_init_params(self) -> None:
        """Parameters that are zeros; their shapes must be known."""
        self._params.fill(np.zeros)

    def zero_init_states(self) -> None:
        """States that are zeros; their shapes must be known."""
        self._states.fill(np.zeros)

    def load_params(self, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Take parameters: all of them in order, or some by name.

        Raises ValueError for another number of them, and for a name that the network lacks.
        """
        self._params.load(params)

    def load_states(self, states: Sequence[Any] | Mapping[str, Any]) -> None:
        """Take states; see :meth:`load_params`."""
        self._states.load(states)

    def export_params(self) -> dict[str, Any]:
        """The parameters by name."""
        return dict(zip(self._params.names, self._params.values, strict=True))

    def export_states(self) -> dict[str, Any]:
        """The states by name."""
        return dict(zip(self._states.names, self._states.values, strict=True))

    # -- steps
    def predict(self, *input_instances: Any) -> Any:
        """What ``backbone`` gives for these inputs, without its states."""
        result = self.vm[self.BACKBONE_FUNC](*self._arguments(input_instances, ()))
        if self._state_num:
            result = result[: -self._state_num]
            return result[0] if len(result) == 1 else result
        return result

    def update(self, input_instances: Any, targets: Any) -> Any:
        """One step of training; gives the loss.

        input_instances, targets: an array, or a list of them
        """
        given = self._arguments(_listed(input_instances), _listed(targets))
        result, grads = self.vm[self.ADJOINT_FUNC](*given)
        if self._state_num:
            self._states.values = list(result[1:])
            result = result[0]
        params, state = self.vm[self.OPTIMIZER_FUNC](
            tuple(self._params.values), grads, tuple(self._optim_state)
        )
        self._params.values, self._optim_state = list(params), list(state)
        return result

    def profile_adjoint(self, input_instances: Any, targets: Any) -> Any:
        """The report of ``vm.profile`` for the adjoint function; the machine must be made with
        ``profile=True``."""
        given = self._arguments(_listed(input_instances), _listed(targets))
        return self.vm.profile(self.ADJOINT_FUNC, *given)

    def _arguments(self, inputs: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
        """Arguments of a function of the network; TVMError where parameters are missing."""
        self._params.want_all()
        self._states.want_all()
        if len(inputs) != self._input_num:
            raise ValueError(f"the network takes {self._input_num} inputs; got {len(inputs)}")
        placed = [array(v, self.device) for v in inputs]
        rest = [array(v, self.device) for v in targets]
        return [*placed, *self._params.values, *self._states.values, *rest]


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


class _Values:
    """The values of some parameters of a function; None where there is none yet."""

    def __init__(self, kind: str, params: Sequence[Var], device: Device) -> None:
        self.kind, self.params, self.device = kind, params, device
        self.names = [p.name_hint for p in params]
        self.values: list[Any] = [None] * len(params)

    def fill(self, draw: Any) -> None:
        """``draw(shape)`` for each, in its dtype."""
        self.values = [array(np.asarray(draw(s)).astype(d), self.device) for s, d in self._shapes()]

    def _shapes(self) -> list[tuple[tuple[int, ...], Any]]:
        made: list[tuple[tuple[int, ...], Any]] = []
        for p in self.params:
            info = p.struct_info
            dims = info.dims if isinstance(info, TensorStructInfo) else None
            if (
                not isinstance(info, TensorStructInfo)
                or dims is None
                or not all(isinstance(d, int) for d in dims)
            ):
                raise TVMError(
                    f"{self.kind} `{p.name_hint}` is {show(info)}: its shape is not known"
                )
            made.append((tuple(d for d in dims if isinstance(d, int)), numpy_dtype(info.dtype)))
        return made

    def load(self, given: Sequence[Any] | Mapping[str, Any]) -> None:
        """All values in order, or some by name."""
        if isinstance(given, Mapping):
            for name, value in given.items():
                if name not in self.names:
                    known = ", ".join(self.names) or "none"
                    raise ValueError(f"the network has no {self.kind} {name!r}; it has {known}")
                self.values[self.names.index(name)] = array(value, self.device)
        elif isinstance(given, list | tuple):
            if len(given) != len(self.names):
                raise ValueError(
                    f"the network has {len(self.names)} {self.kind}s; {len(given)} are given"
                )
            self.values = [array(v, self.device) for v in given]
        else:
            raise ValueError(
                f"{self.kind}s are a list, or a dictionary by name; got {type(given).__name__}"
            )

    def want_all(self) -> None:
        """TVMError where a value is missing."""
        missing = [n for n, v in zip(self.names, self.values, strict=True) if v is None]
        if missing:
            raise TVMError(
                f"no value yet for {self.kind} {', '.join(missing)}; load them, or initialise them"
            )
