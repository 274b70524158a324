"""SetupTrainer: from a network to a module with what a trainer calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla.errors import WellFormedError
from relax2xla.ir import IRModule, StructInfo, Tuple
from relax2xla.ir.check import check_well_formed
from relax2xla.tir import IntImm
from relax2xla.training.loss import Loss
from relax2xla.training.optimizer import Optimizer
from relax2xla.training.utils import AppendLoss
from relax2xla.transform import (
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    Gradient,
    LegalizeOps,
)
from relax2xla.transform.core import Pass, PassContext, PassInfo


class SetupTrainer(Pass):
    """A module to train of a module with the network ``backbone``.

    ``backbone(inputs, parameters, states) -> (results, states)`` is one dataflow block; the
    module's attributes ``param_num`` and ``state_num`` say how many of its last arguments are
    parameters, and how many of these and of its results are states (the statistics of a
    batch_norm, say). The module that it becomes has

    - ``backbone``, for predictions;
    - ``backbone_loss(inputs, parameters, states, targets) -> (loss, states)``;
    - ``backbone_loss_adjoint``, which gives this and the gradients of the parameters;
    - ``optimizer(parameters, gradients, optimizer's state)``;
    - the attributes ``input_num`` and ``optim_state``, the optimiser's first state.

    loss, optimizer: of :mod:`relax2xla.training.loss` and :mod:`relax2xla.training.optimizer`.
    loss_args: struct infos of the loss function's arguments. legalize: whether operators become
    StableHLO rows. Raises ValueError for a module of another form.
    """

    BACKBONE_FUNC = "backbone"
    BACKBONE_LOSS_FUNC = "backbone_loss"
    ADJOINT_FUNC = "backbone_loss_adjoint"
    OPTIMIZER_FUNC = "optimizer"
    PARAM_NUM_ATTR_KEY = "param_num"
    STATE_NUM_ATTR_KEY = "state_num"

    info = PassInfo("SetupTrainer")

    def __init__(
        self,
        loss: Loss,
        optimizer: Optimizer,
        loss_args: Sequence[StructInfo],
        legalize: bool = True,
    ) -> None:
        self._loss, self._optimizer = loss, optimizer
        self._loss_args: Sequence[Any] = loss_args
        self._legalize = legalize

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        param_num, state_num = self._checked(mod)
        loss: Any = self._loss
        function = loss(*self._loss_args)
        outputs, named = self._loss.num_backbone_outputs, self.BACKBONE_LOSS_FUNC
        mod = AppendLoss(self.BACKBONE_FUNC, function, outputs, named)(mod)
        # A batch_norm trains with the statistics of its batch, and predicts with those it has.
        mod = DecomposeOpsForInference(self.BACKBONE_FUNC)(mod)
        mod = DecomposeOpsForTraining(self.BACKBONE_LOSS_FUNC)(mod)
        input_num = len(mod[self.BACKBONE_FUNC].params) - param_num - state_num
        params = mod[self.BACKBONE_LOSS_FUNC].params[input_num : input_num + param_num]
        mod = Gradient(self.BACKBONE_LOSS_FUNC, require_grads=params, target_index=0)(mod)
        self._optimizer.init(params)
        update = self._optimizer.get_function()
        mod = mod.with_attrs({"input_num": input_num, "optim_state": self._optimizer.state})
        mod[self.OPTIMIZER_FUNC] = update.with_attr("global_symbol", self.OPTIMIZER_FUNC)
        return LegalizeOps()(mod) if self._legalize else mod

    def _checked(self, mod: IRModule) -> tuple[int, int]:
        """How many parameters and states there are."""
        try:
            check_well_formed(mod)
        except WellFormedError as e:
            raise ValueError(f"SetupTrainer: the module is not well formed: {e}") from e
        functions = {g.name_hint: f for g, f in mod.relax_functions().items()}
        func = functions.get(self.BACKBONE_FUNC)
        if func is None:
            raise ValueError(f"SetupTrainer: the module has no function {self.BACKBONE_FUNC!r}")
        counts: list[int] = []
        for key in (self.PARAM_NUM_ATTR_KEY, self.STATE_NUM_ATTR_KEY):
            value = mod.attrs.get(key)
            if not isinstance(value, int | IntImm):
                raise ValueError(
                    f"SetupTrainer: the module must have an integer attribute {key!r}: "
                    f'I.module_attrs({{"{key}": ...}})'
                )
            counts.append(value if isinstance(value, int) else int(value.value))
        params, states = counts
        if len(func.params) < params + states:
            raise ValueError(
                f"SetupTrainer: {self.BACKBONE_FUNC} has {len(func.params)} parameters, fewer than "
                f"the {params} parameters and {states} states that the attributes name"
            )
        result = func.body.body
        if states and (not isinstance(result, Tuple) or len(result.fields) <= states):
            raise ValueError(
                f"SetupTrainer: with {states} states, {self.BACKBONE_FUNC} must give a tuple of "
                "more values"
            )
        return params, states
