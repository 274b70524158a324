"""Pipelines by name: what ``build`` runs before functions are specialised and lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from relax2xla.transform.algebra.recover_group_norm import RecoverGroupNorm
from relax2xla.transform.core import Pass, Sequential
from relax2xla.transform.cpu.calls.attention import CallAttention
from relax2xla.transform.cpu.calls.depthwise import CallDepthwise
from relax2xla.transform.cpu.calls.gradients import CallGradients
from relax2xla.transform.cpu.calls.moments import CallMoments
from relax2xla.transform.cpu.calls.norms import CallNorms
from relax2xla.transform.cpu.calls.onednn import CallOneDnn
from relax2xla.transform.cpu.calls.products import CallGivenProducts, CallProducts, Choose
from relax2xla.transform.cpu.calls.recurrences import CallRecurrences
from relax2xla.transform.cpu.calls.slices import CallSlices
from relax2xla.transform.cpu.calls.squeezes import CallSqueezes
from relax2xla.transform.cpu.calls.transposes import CallTransposes
from relax2xla.transform.cpu.convolutions.depthwise import ExpandDepthwise
from relax2xla.transform.cpu.convolutions.few_channels import ExpandFewChannels
from relax2xla.transform.cpu.convolutions.gather_windows import GatherWindows
from relax2xla.transform.cpu.convolutions.kernels_as_given import KernelsAsGiven
from relax2xla.transform.cpu.convolutions.planes import ConvolvePlanes
from relax2xla.transform.cpu.convolutions.winograd import UseWinograd
from relax2xla.transform.cpu.fuse_transpose_matmul import FuseTransposeMatmul
from relax2xla.transform.cpu.gather_pads import GatherPads
from relax2xla.transform.cpu.group_norm import ExpandGroupNorm
from relax2xla.transform.cpu.integers.compute import ComputeInIntegers
from relax2xla.transform.cpu.sums import SumsAsProducts
from relax2xla.transform.grad.remove_marks import RemoveGradientMarks
from relax2xla.transform.layout.channels_last import ChannelsLast
from relax2xla.transform.layout.feature_major import FeatureMajor, reads_weights_as_they_lie
from relax2xla.transform.layout.plain_convolutions import PlainConvolutions
from relax2xla.transform.layout.pointwise_planes import PointwisePlanes
from relax2xla.transform.lower.origins import RestoreOperators
from relax2xla.transform.lower.recover_reshape import RecoverReshape
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings
from relax2xla.transform.normal.dead_code import DeadCodeElimination
from relax2xla.transform.normal.inline import InlineSymbolicFunctions
from relax2xla.transform.params.fold_batch_norm import FoldBatchNorm

# What the default pipeline runs over the functions that the machine has specialised.
STATIC: Final[tuple[type[Pass], ...]] = (
    ComputeInIntegers,
    ConvolvePlanes,
    CallGivenProducts,
    ExpandFewChannels,
    CallAttention,
    CallDepthwise,
    CallGradients,
    CallOneDnn,
    ExpandDepthwise,
    GatherWindows,
    GatherPads,
    ExpandGroupNorm,
    # Before sums are products.
    CallMoments,
    SumsAsProducts,
    FeatureMajor,
    # Behind it, since it may have other axes be the last.
    CallNorms,
    CallSlices,
    # Last: what others leave of transpositions.
    CallTransposes,
)
# What gives functions of JAX nothing where there are no calls: they are differentiated as written,
# gathers by scatters.
_CALLS_ALONE: Final = (
    CallAttention,
    CallGivenProducts,
    CallGradients,
    CallMoments,
    CallNorms,
    CallSlices,
    CallTransposes,
    GatherPads,
)


class Pipeline(Sequential):
    """Passes over the module, then over each function that the machine has specialised.

    ``static``: the latter, each for its platform; they run in the context that ``build`` ran in.
    """

    def __init__(self, passes: Sequence[Pass], static: Sequence[Pass], name: str) -> None:
        self.static = tuple(static)
        super().__init__(passes, name=name)

    def on(self, platform: str, several: bool = False) -> Pipeline:
        """What of it is for programs on a platform, on one device or on ``several``.

        The static passes are chosen when a function is specialised.
        """
        kept = [p.info.is_for(platform, several) for p in self.passes]
        if all(kept):
            return self
        passes = [p for p, keep in zip(self.passes, kept, strict=True) if keep]
        return Pipeline(passes, self.static, self.info.name)


def zero() -> Pass:
    """Only what must happen: functions with symbolic shapes become part of their callers."""
    return Sequential(
        [InlineSymbolicFunctions(), DeadCodeElimination(keep_foreign=True)], name="zero"
    )


def default(
    layout: str = "NHWC",
    winograd: bool | None = None,
    for_jax: bool = False,
    calls: bool | None = None,
    choose: Choose | None = None,
) -> Pass:
    """What is good for XLA:CPU and never worse elsewhere, exact up to rounding.

    ``layout``: of activations in convolutional networks, "NHWC" or "" (as the model has it).
    ``winograd``: 3x3 convolutions on CPUs by minimal filtering, where the layout is NHWC: all
    that can be (True), none (False), or those that are faster so by measurement (None).
    ``for_jax``: for a function of JAX, to which weights come with each call, so that large ones are
    read as they lie, and whose XLA has the options of whoever compiles it.
    ``calls``: whether convolutions, products, attention and norms may become calls of functions in
    C++, which JAX neither differentiates nor maps; None: unless it is ``for_jax``.
    ``choose``: what says which form of a convolution or product is best; None: measured facts.
    """
    at_load, filters = not for_jax, winograd is not False
    may_call = at_load if calls is None else calls
    passes: list[Pass] = [
        RestoreOperators(),
        *((RemoveGradientMarks(),) if at_load or may_call else ()),
        InlineSymbolicFunctions(),
        RecoverReshape(),
        FoldBatchNorm(into_weights=at_load),
        CanonicalizeBindings(),
    ]
    passes.append(RecoverGroupNorm())
    # Before convolutions get other forms, where shapes are known already.
    passes.append(ComputeInIntegers())
    if at_load and may_call:
        passes.append(PlainConvolutions())
    if layout:
        if at_load:
            passes.append(PointwisePlanes())
        passes.append(ChannelsLast(layout, weights_at_load=at_load))
    # Before convolutions of planes get other forms, where shapes are known already.
    passes.append(ConvolvePlanes())
    if at_load:
        passes.append(CallRecurrences())
    if may_call:
        passes.append(CallProducts(filters, at_load, choose))
        if at_load:
            passes.append(CallSqueezes())
    if filters:
        passes.append(UseWinograd(measured=winograd is None, at_load=at_load))
    if for_jax:
        passes.append(KernelsAsGiven())
    passes.append(FuseTransposeMatmul(reads_weights_as_they_lie if at_load else None))
    passes.append(DeadCodeElimination(keep_foreign=True))
    # Files name static passes without what they were told: one that filters is left out.
    left_out = {*(() if may_call else _CALLS_ALONE), *(() if filters else (CallGivenProducts,))}
    kinds = [p for p in STATIC if p not in left_out]
    static = [FeatureMajor(eigen=False) if for_jax and p is FeatureMajor else p() for p in kinds]
    return Pipeline(passes, static, name="default")


def static_shape_tuning(
    total_trials: int, target: Any, work_dir: str = "tuning_logs", cpu_weight_prepack: bool = False
) -> Pass:
    """``zero`` under TVM's name for tuning, which changes nothing: XLA decides how loops run.

    Nothing is tried and no log is written. ValueError for ``cpu_weight_prepack``, which would give
    the module another interface.
    """
    if cpu_weight_prepack:
        raise ValueError(
            "static_shape_tuning: cpu_weight_prepack makes a function that prepares weights; here "
            "the pass LiftTransformParams does"
        )
    return zero()


PIPELINES: dict[str, Callable[..., Pass]] = {
    "zero": zero,
    "default": default,
    "default_build": default,
    "static_shape_tuning": static_shape_tuning,
}


Make = TypeVar("Make", bound=Callable[..., Pass])


def register_pipeline(name: str) -> Callable[[Make], Make]:
    """Decorator of a function that makes a pass: ``get_pipeline(name, **kwargs)`` calls it.

    ``build(..., relax_pipeline=name)`` runs it. Raises ValueError for a name that is taken.
    """
    if name in PIPELINES:
        raise ValueError(f"Pipeline {name} has already been registered")

    def add(make: Make) -> Make:
        PIPELINES[name] = make
        return make

    return add


def get_default_pipeline(target: Any = None) -> Pass:
    """What ``build`` runs by itself; for each ``target`` the same, since XLA knows the device."""
    return default()


def get_pipeline(name: str = "zero", **kwargs: Any) -> Pass:
    """The pipeline ``name``, configured by ``kwargs``; ValueError with the names there are."""
    if name not in PIPELINES:
        raise ValueError(f"unknown pipeline {name!r}; known: {', '.join(PIPELINES)}")
    return PIPELINES[name](**kwargs)
