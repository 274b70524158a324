"""Optimisers, as Relax functions ``(params, gradients, optim_states) -> (params, optim_states)``.

The names and the programs are those of TVM v0.20: ``optim_states`` begins with the number of steps
(int64), and what follows is said in each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.ir import (
    Expr,
    Function,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
)
from relax2xla.ir.struct_info import show
from relax2xla.nd import array


class Optimizer:
    """What makes an optimiser's function and its first state.

    ``opt = SGD(0.1).init(params)``, then ``opt.get_function()`` and ``opt.state``. ``scalars`` are
    scalars that the state holds after the number of steps, with their first values; ``slots`` names
    the tensors that it holds for every parameter, zeros at first.
    """

    scalars: tuple[float, ...] = ()
    slots: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype: str | None = None
        self.param_list: list[Var] | None = None
        self.state: tuple[Any, ...] | None = None

    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Set the parameters, and the state to the first one; gives the optimiser itself.

        params: float tensors of one dtype and known shapes, else it raises ValueError
        """
        given: Sequence[Any] = params if isinstance(params, list | tuple) else [params]
        self.dtype, self.param_list = _checked(given)
        if type(self) is not Optimizer:
            infos = self._state_infos()
            first = (0, *self.scalars)
            values = [
                np.full((), v, numpy_dtype(i.dtype)) for v, i in zip(first, infos, strict=False)
            ]
            values += [np.zeros(_sizes(i), numpy_dtype(i.dtype)) for i in infos[len(first) :]]
            self.state = tuple(map(array, values))
        return self

    def _params(self) -> list[Var]:
        if self.param_list is None:
            raise RuntimeError("Please call init() for the optimizer before calling get_function()")
        return self.param_list

    def _state_infos(self) -> list[TensorStructInfo]:
        """Struct infos of the state's fields."""
        scalars = [TensorStructInfo((), self.dtype) for _ in self.scalars]
        tensors = [p.struct_info for _ in self.slots for p in self._params()]
        every: list[StructInfo] = [TensorStructInfo((), "int64"), *scalars, *tensors]
        return [i for i in every if isinstance(i, TensorStructInfo)]

    def _const(self, value: float) -> Expr:
        return const(value, self.dtype)

    def get_function(self) -> Function:
        """The function, under the optimiser's name.

        Raises RuntimeError before :meth:`init`.
        """
        params = self._params()
        if type(self) is Optimizer:
            raise NotImplementedError("get_function is for the classes of optimisers")
        infos = TupleStructInfo([p.struct_info for p in params])
        given, grads = Var("params", infos), Var("gradients", infos)
        state = Var("optim_states", TupleStructInfo(self._state_infos()))
        builder = BlockBuilder()
        emit = builder.emit
        with builder.function(self.name, [given, grads, state]):
            with builder.dataflow():
                steps = emit(TupleGetItem(state, 0), "num_steps")
                steps = emit(op.add(steps, const(1, "int64")), "num_steps_new")
                count = 1 + len(self.scalars)
                scalars = self._scalars(builder, [TupleGetItem(state, i) for i in range(1, count)])
                made: list[Expr] = []
                held: list[list[Expr]] = [[] for _ in self.slots]
                for i, param in enumerate(params):
                    name = param.name_hint
                    value = emit(TupleGetItem(given, i), name)
                    grad = emit(TupleGetItem(grads, i), f"{name}_grad")
                    own = [
                        emit(TupleGetItem(state, count + k * len(params) + i), f"{name}_{slot}")
                        for k, slot in enumerate(self.slots)
                    ]
                    if self.weight_decay:
                        decay = op.multiply(self._const(self.weight_decay), value)
                        grad = emit(op.add(decay, grad), f"{name}_grad_new")
                    new, kept = self._update(builder, name, value, grad, own, scalars)
                    made.append(new)
                    for column, slot in zip(held, kept, strict=True):
                        column.append(slot)
                fields = [steps, *scalars, *(v for column in held for v in column)]
                params_new = builder.emit_output(Tuple(made), "params_new")
                state_new = builder.emit_output(Tuple(fields), "optim_states_new")
            builder.emit_func_output((params_new, state_new))
        function = builder.get()[self.name]
        assert isinstance(function, Function)
        return function

    weight_decay: float = 0.0

    def _scalars(self, builder: BlockBuilder, old: Sequence[Expr]) -> list[Expr]:
        """New values of the state's scalars."""
        return []

    def _update(
        self,
        builder: BlockBuilder,
        name: str,
        value: Var,
        grad: Var,
        slots: Sequence[Var],
        scalars: Sequence[Expr],
    ) -> tuple[Expr, Sequence[Expr]]:
        """New values of one parameter and of its tensors in the state."""
        raise NotImplementedError

    def _moved(self, builder: BlockBuilder, name: str, value: Var, by: Expr) -> Var:
        """``value - lr * by``."""
        step = op.multiply(self._const(self.lr), by)
        return builder.emit(op.subtract(value, step), f"{name}_new")

    lr: float = 0.0


class SGD(Optimizer):
    """Stochastic gradient descent: ``p -= lr * (g + weight_decay * p)``. State: the steps."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr, self.weight_decay = float(lr), float(weight_decay)

    def _update(
        self,
        builder: BlockBuilder,
        name: str,
        value: Var,
        grad: Var,
        slots: Sequence[Var],
        scalars: Sequence[Expr],
    ) -> tuple[Expr, Sequence[Expr]]:
        return self._moved(builder, name, value, grad), []


class MomentumSGD(Optimizer):
    """Gradient descent with momentum, with ``g = g + weight_decay * p``::

        v = momentum * v + (1 - dampening) * g
        p -= lr * (g + momentum * v if nesterov else v)

    State: the steps, and ``v`` of each parameter.
    """

    slots = ("v",)

    def __init__(
        self,
        lr: float,
        momentum: float,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr, self.momentum = float(lr), float(momentum)
        self.weight_decay, self.dampening = float(weight_decay), float(dampening)
        self.nesterov = nesterov

    def _update(
        self,
        builder: BlockBuilder,
        name: str,
        value: Var,
        grad: Var,
        slots: Sequence[Var],
        scalars: Sequence[Expr],
    ) -> tuple[Expr, Sequence[Expr]]:
        (v,), momentum = slots, self._const(self.momentum)
        part = grad
        if self.dampening:
            part = op.multiply(self._const(_less(1, self.dampening)), grad)
        v = builder.emit(op.add(op.multiply(momentum, v), part), f"{name}_v_new")
        by = v
        if self.nesterov:
            by = builder.emit(op.add(grad, op.multiply(momentum, v)), f"{name}_g_nest")
        return self._moved(builder, name, value, by), [v]


class Adam(Optimizer):
    """Adam, with ``g = g + weight_decay * p`` and ``t`` the number of steps::

        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        p -= lr * (m / (1 - betas[0] ** t)) / (sqrt(v / (1 - betas[1] ** t)) + eps)

    State: the steps, the powers of the two betas, ``m`` of each parameter, ``v`` of each.
    """

    scalars = (1.0, 1.0)
    slots = ("m", "v")

    def __init__(
        self,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0,
    ) -> None:
        super().__init__("Adam")
        self.lr, self.beta1, self.beta2 = float(lr), float(betas[0]), float(betas[1])
        self.eps, self.weight_decay = float(eps), float(weight_decay)

    def _scalars(self, builder: BlockBuilder, old: Sequence[Expr]) -> list[Expr]:
        return [
            builder.emit(op.multiply(power, self._const(beta)), f"beta{i}_prod")
            for i, (power, beta) in enumerate(zip(old, (self.beta1, self.beta2), strict=True), 1)
        ]

    def _update(
        self,
        builder: BlockBuilder,
        name: str,
        value: Var,
        grad: Var,
        slots: Sequence[Var],
        scalars: Sequence[Expr],
    ) -> tuple[Expr, Sequence[Expr]]:
        emit = builder.emit
        (m, v), one = slots, self._const(1)

        def mixed(beta: float, old: Expr, new: Expr) -> Expr:
            rest = op.multiply(self._const(_less(1, beta)), new)
            return op.add(op.multiply(self._const(beta), old), rest)

        m = emit(mixed(self.beta1, m, grad), f"{name}_m_new")
        v = emit(mixed(self.beta2, v, op.multiply(grad, grad)), f"{name}_v_new")
        m_hat = emit(op.divide(m, op.subtract(one, scalars[0])), f"{name}_m_hat")
        v_hat = emit(op.divide(v, op.subtract(one, scalars[1])), f"{name}_v_hat")
        by = op.divide(m_hat, op.add(op.sqrt(v_hat), self._const(self.eps)))
        return self._moved(builder, name, value, by), [m, v]


def _less(a: float, b: float) -> float:
    """``a - b`` as it is written in decimals: 1 - 0.9 is 0.1."""
    return float(Decimal(str(a)) - Decimal(str(b)))


def _checked(params: Sequence[Any]) -> tuple[str | None, list[Var]]:
    """The one dtype of the parameters, and the parameters."""
    dtype: str | None = None
    seen: set[Var] = set()
    for p in params:
        if not isinstance(p, Var):
            raise ValueError(f"a parameter must be a Var; got {p!r}")
        info = p.struct_info
        if not isinstance(info, TensorStructInfo) or not info.dtype or not is_float(info.dtype):
            raise ValueError(
                f"parameter `{p.name_hint}` must be a float tensor; it is {show(info)}"
            )
        if dtype is not None and info.dtype != dtype:
            raise ValueError(
                f"all parameters must have one dtype; `{p.name_hint}` is {info.dtype}, another "
                f"is {dtype}"
            )
        if p in seen:
            raise ValueError(f"parameter `{p.name_hint}` is given twice")
        dtype = info.dtype
        seen.add(p)
    return dtype, list(params)


def _sizes(info: TensorStructInfo) -> tuple[int, ...]:
    dims = info.dims
    if dims is None or any(not isinstance(d, int) for d in dims):
        raise ValueError(f"the state of an optimiser needs known shapes; one is {show(info)}")
    return tuple(d for d in dims if isinstance(d, int))
