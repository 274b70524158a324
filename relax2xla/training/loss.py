"""Loss functions, as Relax functions of predictions and targets.

The names and the programs are those of TVM v0.20.
"""

from __future__ import annotations

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpError
from relax2xla.ir import Expr, Function, StructInfo, TensorStructInfo, Var

REDUCTIONS = ("mean", "sum", "none")


class Loss:
    """What makes a loss function; :class:`relax2xla.training.AppendLoss` puts it after a network.

    loss_name: the name of the function.
    num_backbone_outputs: how many of its parameters are outputs of the network; targets follow.
    reduction: "mean" or "sum" over all elements, or "none". For another one it raises ValueError.
    """

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"`reduction` must be one of {', '.join(REDUCTIONS)}; got {reduction!r}"
            )
        self._loss_name, self._reduction = loss_name, reduction
        self._num_backbone_outputs = num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        """How many parameters of the loss function are outputs of the network."""
        return self._num_backbone_outputs

    def _with_reduction(self, expr: Expr) -> Expr:
        match self._reduction:
            case "sum":
                return op.sum(expr)
            case "mean":
                return op.mean(expr)
            case _:
                return expr

    def _function(self, builder: BlockBuilder) -> Function:
        made = builder.get()[self._loss_name]
        assert isinstance(made, Function)
        return made


def _parameter(given: Var | StructInfo, name: str) -> Var:
    """A new variable of the given struct info, or of that of a variable and with its name."""
    if isinstance(given, Var):
        return Var(given.name_hint, given.struct_info)
    if isinstance(given, StructInfo):
        return Var(name, given)
    raise TypeError(f"`{name}` must be a Var or a struct info; got {type(given).__name__}")


class L1Loss(Loss):
    """``|predictions - targets|``, reduced."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: Var | StructInfo, targets: Var | StructInfo) -> Function:
        """The function ``l1_loss(predictions, targets)``; of two floats of one shape."""
        builder = BlockBuilder()
        x, y = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        with builder.function(self._loss_name, [x, y]):
            with builder.dataflow():
                loss = builder.emit_output(self._with_reduction(op.abs(op.subtract(x, y))))
            builder.emit_func_output(loss)
        return self._function(builder)


class MSELoss(Loss):
    """``(predictions - targets) ** 2``, reduced."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: Var | StructInfo, targets: Var | StructInfo) -> Function:
        """The function ``mse_loss(predictions, targets)``; of two floats of one shape."""
        builder = BlockBuilder()
        x, y = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        with builder.function(self._loss_name, [x, y]):
            with builder.dataflow():
                gap = op.subtract(x, y)
                loss = builder.emit_output(self._with_reduction(op.multiply(gap, gap)))
            builder.emit_func_output(loss)
        return self._function(builder)


class CrossEntropyLoss(Loss):
    """``nll_loss(log_softmax(predictions), targets)``: targets are classes.

    ignore_index: a class that does not count.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(
        self,
        predictions: Var | StructInfo,
        targets: Var | StructInfo,
        weights: Var | StructInfo | None = None,
    ) -> Function:
        """The function ``cross_entropy_loss(predictions, targets[, weights])``.

        predictions: (n, classes, *s) or (classes,), floats; targets: (n, *s) or (), integers;
        weights: (classes,), what each class counts
        """
        builder = BlockBuilder()
        x, y = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        more = [] if weights is None else [_parameter(weights, "weights")]
        with builder.function(self._loss_name, [x, y, *more]):
            with builder.dataflow():
                logits = builder.emit(op.nn.log_softmax(x))
                loss = builder.emit_output(
                    op.nn.nll_loss(
                        logits,
                        y,
                        *more,
                        reduction=self._reduction,
                        ignore_index=self.ignore_index,
                    )
                )
            builder.emit_func_output(loss)
        return self._function(builder)


class CategoricalCrossEntropyLoss(Loss):
    """:class:`CrossEntropyLoss` of targets that are one-hot, in integers.

    ignore_index: a class that does not count; below 0, none.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("categorical_cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(
        self,
        predictions: Var | StructInfo,
        targets: Var | StructInfo,
        weights: Var | StructInfo | None = None,
    ) -> Function:
        """The function ``categorical_cross_entropy_loss(predictions, targets[, weights])``.

        predictions: (n, classes), floats; targets: (n, classes), integers, else it raises
        TypeError; weights: (classes,), or of the shape of ``predictions``
        """
        builder = BlockBuilder()
        x, y = _parameter(predictions, "predictions"), _parameter(targets, "targets")
        info = y.struct_info
        if not isinstance(info, TensorStructInfo) or "int" not in info.dtype:
            raise TypeError(f"`targets` must be integers; got {info}")
        more = [] if weights is None else [_parameter(weights, "weights")]
        with builder.function(self._loss_name, [x, y, *more]):
            with builder.dataflow():
                logits = builder.emit(op.nn.log_softmax(x))
                if self.ignore_index >= 0:
                    if info.dims is None:
                        raise OpError(f"`targets` must have a known shape; got {info}")
                    classes = op.reshape(op.argmax(y, axis=1), (info.dims[0],))
                    value = op.nn.nll_loss(
                        logits,
                        builder.emit(classes),
                        *more,
                        reduction=self._reduction,
                        ignore_index=self.ignore_index,
                    )
                else:
                    value = builder.emit(-logits * op.astype(y, "float32"))
                    for weight in more:
                        value = builder.emit(value * weight)
                    value = self._with_reduction(value)
                loss = builder.emit_output(value)
            builder.emit_func_output(loss)
        return self._function(builder)
