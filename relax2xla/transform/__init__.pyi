from relax2xla.transform.algebra.adjust_matmul_order import AdjustMatmulOrder as AdjustMatmulOrder
from relax2xla.transform.algebra.combine_parallel_matmul import (
    CombineParallelMatmul as CombineParallelMatmul,
)
from relax2xla.transform.algebra.expand_matmul_of_sum import ExpandMatmulOfSum as ExpandMatmulOfSum
from relax2xla.transform.algebra.recover_group_norm import RecoverGroupNorm as RecoverGroupNorm
from relax2xla.transform.algebra.remove_redundant_reshape import (
    RemoveRedundantReshape as RemoveRedundantReshape,
)
from relax2xla.transform.algebra.reorder_permute_dims_after_concat import (
    ReorderPermuteDimsAfterConcat as ReorderPermuteDimsAfterConcat,
)
from relax2xla.transform.algebra.reorder_take_after_matmul import (
    ReorderTakeAfterMatmul as ReorderTakeAfterMatmul,
)
from relax2xla.transform.core import DataflowBlockPass as DataflowBlockPass
from relax2xla.transform.core import FunctionPass as FunctionPass
from relax2xla.transform.core import Pass as Pass
from relax2xla.transform.core import PassContext as PassContext
from relax2xla.transform.core import PassInfo as PassInfo
from relax2xla.transform.core import PassInstrument as PassInstrument
from relax2xla.transform.core import Sequential as Sequential
from relax2xla.transform.core import dataflowblock_pass as dataflowblock_pass
from relax2xla.transform.core import function_pass as function_pass
from relax2xla.transform.core import module_pass as module_pass
from relax2xla.transform.core.passes import ApplyPassToFunction as ApplyPassToFunction
from relax2xla.transform.core.passes import PrintIR as PrintIR
from relax2xla.transform.cpu.calls.attention import CallAttention as CallAttention
from relax2xla.transform.cpu.calls.depthwise import CallDepthwise as CallDepthwise
from relax2xla.transform.cpu.calls.gradients import CallGradients as CallGradients
from relax2xla.transform.cpu.calls.moments import CallMoments as CallMoments
from relax2xla.transform.cpu.calls.norms import CallNorms as CallNorms
from relax2xla.transform.cpu.calls.onednn import CallOneDnn as CallOneDnn
from relax2xla.transform.cpu.calls.products import CallGivenProducts as CallGivenProducts
from relax2xla.transform.cpu.calls.products import CallProducts as CallProducts
from relax2xla.transform.cpu.calls.recurrences import CallRecurrences as CallRecurrences
from relax2xla.transform.cpu.calls.slices import CallSlices as CallSlices
from relax2xla.transform.cpu.calls.squeezes import CallSqueezes as CallSqueezes
from relax2xla.transform.cpu.calls.transposes import CallTransposes as CallTransposes
from relax2xla.transform.cpu.convolutions.depthwise import ExpandDepthwise as ExpandDepthwise
from relax2xla.transform.cpu.convolutions.few_channels import ExpandFewChannels as ExpandFewChannels
from relax2xla.transform.cpu.convolutions.gather_windows import GatherWindows as GatherWindows
from relax2xla.transform.cpu.convolutions.kernels_as_given import KernelsAsGiven as KernelsAsGiven
from relax2xla.transform.cpu.convolutions.planes import ConvolvePlanes as ConvolvePlanes
from relax2xla.transform.cpu.convolutions.winograd import UseWinograd as UseWinograd
from relax2xla.transform.cpu.fuse_transpose_matmul import FuseTransposeMatmul as FuseTransposeMatmul
from relax2xla.transform.cpu.gather_pads import GatherPads as GatherPads
from relax2xla.transform.cpu.group_norm import ExpandGroupNorm as ExpandGroupNorm
from relax2xla.transform.cpu.integers.compute import ComputeInIntegers as ComputeInIntegers
from relax2xla.transform.cpu.sums import SumsAsProducts as SumsAsProducts
from relax2xla.transform.devices.realize_vdevice import RealizeVDevice as RealizeVDevice
from relax2xla.transform.devices.update_vdevice import UpdateVDevice as UpdateVDevice
from relax2xla.transform.distributed.local_view import (
    LowerGlobalViewToLocalView as LowerGlobalViewToLocalView,
)
from relax2xla.transform.distributed.propagate import PropagateSharding as PropagateSharding
from relax2xla.transform.distributed.redistribute import (
    LegalizeRedistribute as LegalizeRedistribute,
)
from relax2xla.transform.distributed.workers import ForEachWorker as ForEachWorker
from relax2xla.transform.fusion.annotate_op_pattern import (
    AnnotateTIROpPattern as AnnotateTIROpPattern,
)
from relax2xla.transform.fusion.codegen import AttachExternModules as AttachExternModules
from relax2xla.transform.fusion.codegen import RunCodegen as RunCodegen
from relax2xla.transform.fusion.codegen import register_codegen as register_codegen
from relax2xla.transform.fusion.fuse_tir import FuseTIR as FuseTIR
from relax2xla.transform.fusion.inplace import DataflowUseInplaceCalls as DataflowUseInplaceCalls
from relax2xla.transform.fusion.merge import MergeCompositeFunctions as MergeCompositeFunctions
from relax2xla.transform.fusion.operators import FuseOps as FuseOps
from relax2xla.transform.fusion.patterns import FuseOpsByPattern as FuseOpsByPattern
from relax2xla.transform.fusion.patterns import FusionPattern as FusionPattern
from relax2xla.transform.fusion.patterns import PatternCheckContext as PatternCheckContext
from relax2xla.transform.grad.gradient import Gradient as Gradient
from relax2xla.transform.grad.remove_marks import RemoveGradientMarks as RemoveGradientMarks
from relax2xla.transform.layout.alter_op_impl import AlterOpImpl as AlterOpImpl
from relax2xla.transform.layout.channels_last import ChannelsLast as ChannelsLast
from relax2xla.transform.layout.convert_layout import ConvertLayout as ConvertLayout
from relax2xla.transform.layout.feature_major import FeatureMajor as FeatureMajor
from relax2xla.transform.layout.optimize_layout_transform import (
    OptimizeLayoutTransform as OptimizeLayoutTransform,
)
from relax2xla.transform.layout.plain_convolutions import PlainConvolutions as PlainConvolutions
from relax2xla.transform.layout.pointwise_planes import PointwisePlanes as PointwisePlanes
from relax2xla.transform.lower.call_tir_rewrite import CallTIRRewrite as CallTIRRewrite
from relax2xla.transform.lower.calls_as_values import CallsAsValues as CallsAsValues
from relax2xla.transform.lower.compute_prim_value import ComputePrimValue as ComputePrimValue
from relax2xla.transform.lower.decompose import DecomposeOpsForInference as DecomposeOpsForInference
from relax2xla.transform.lower.decompose import DecomposeOpsForTraining as DecomposeOpsForTraining
from relax2xla.transform.lower.distributed import LowerDistIR as LowerDistIR
from relax2xla.transform.lower.dynamic_rows import DynamicRows as DynamicRows
from relax2xla.transform.lower.legalize import LegalizeOps as LegalizeOps
from relax2xla.transform.lower.objects_to_arrays import ObjectsToArrays as ObjectsToArrays
from relax2xla.transform.lower.one_device import OneDevice as OneDevice
from relax2xla.transform.lower.origins import RestoreOperators as RestoreOperators
from relax2xla.transform.lower.ragged_dots import ExpandRaggedDots as ExpandRaggedDots
from relax2xla.transform.lower.recover_reshape import RecoverReshape as RecoverReshape
from relax2xla.transform.lower.rewrite_dataflow_reshape import (
    RewriteDataflowReshape as RewriteDataflowReshape,
)
from relax2xla.transform.lower.runtime_builtin import LowerRuntimeBuiltin as LowerRuntimeBuiltin
from relax2xla.transform.lower.safe_division import ShieldDivisions as ShieldDivisions
from relax2xla.transform.lower.safe_loops import ShieldCounters as ShieldCounters
from relax2xla.transform.lower.sizes_as_tensors import SizesAsTensors as SizesAsTensors
from relax2xla.transform.lower.specialize_call_sites import (
    SpecializePrimFuncBasedOnCallSite as SpecializePrimFuncBasedOnCallSite,
)
from relax2xla.transform.lower.tail_recursion import TailRecursionToLoops as TailRecursionToLoops
from relax2xla.transform.lower.workers import LowerWorkers as LowerWorkers
from relax2xla.transform.normal.attach_global_symbol import AttachGlobalSymbol as AttachGlobalSymbol
from relax2xla.transform.normal.bind_symbolic_vars import BindSymbolicVars as BindSymbolicVars
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings as CanonicalizeBindings
from relax2xla.transform.normal.common_subexpr import (
    EliminateCommonSubexpr as EliminateCommonSubexpr,
)
from relax2xla.transform.normal.convert_to_dataflow import ConvertToDataflow as ConvertToDataflow
from relax2xla.transform.normal.dead_code import DeadCodeElimination as DeadCodeElimination
from relax2xla.transform.normal.expand_tuple_arguments import (
    ExpandTupleArguments as ExpandTupleArguments,
)
from relax2xla.transform.normal.fold_constant import FoldConstant as FoldConstant
from relax2xla.transform.normal.inline import InlineSymbolicFunctions as InlineSymbolicFunctions
from relax2xla.transform.normal.inline_private import (
    InlinePrivateFunctions as InlinePrivateFunctions,
)
from relax2xla.transform.normal.lambda_lift import LambdaLift as LambdaLift
from relax2xla.transform.normal.normalize import Normalize as Normalize
from relax2xla.transform.normal.normalize_global_var import NormalizeGlobalVar as NormalizeGlobalVar
from relax2xla.transform.normal.remove_purity_checking import (
    RemovePurityChecking as RemovePurityChecking,
)
from relax2xla.transform.normal.remove_unused_outputs import (
    RemoveUnusedOutputs as RemoveUnusedOutputs,
)
from relax2xla.transform.normal.remove_unused_parameters import (
    RemoveUnusedParameters as RemoveUnusedParameters,
)
from relax2xla.transform.normal.to_non_dataflow import ToNonDataflow as ToNonDataflow
from relax2xla.transform.normal.topological_sort import TopologicalSort as TopologicalSort
from relax2xla.transform.params.bind_params import BindParams as BindParams
from relax2xla.transform.params.bundle_model_params import BundleModelParams as BundleModelParams
from relax2xla.transform.params.fold_batch_norm import FoldBatchNorm as FoldBatchNorm
from relax2xla.transform.params.fold_batch_norm import (
    FoldBatchnormToConv2D as FoldBatchnormToConv2D,
)
from relax2xla.transform.params.lazy_callbacks import LazyGetInput as LazyGetInput
from relax2xla.transform.params.lazy_callbacks import LazySetOutput as LazySetOutput
from relax2xla.transform.params.lazy_transform_params import (
    LazyTransformParams as LazyTransformParams,
)
from relax2xla.transform.params.lift_transform_params import (
    LiftTransformParams as LiftTransformParams,
)
from relax2xla.transform.params.lift_weights import LiftWeights as LiftWeights
from relax2xla.transform.params.update_param_struct_info import (
    UpdateParamStructInfo as UpdateParamStructInfo,
)
from relax2xla.transform.params.update_param_struct_info import UpdateParamType as UpdateParamType
from relax2xla.transform.pipeline import Pipeline as Pipeline
from relax2xla.transform.pipeline import get_pipeline as get_pipeline
from relax2xla.transform.precision.fast_math import FastMathTransform as FastMathTransform
from relax2xla.transform.precision.quantize_weights import QuantizeWeights as QuantizeWeights
from relax2xla.transform.precision.to_mixed_precision import ToMixedPrecision as ToMixedPrecision
from relax2xla.transform.raising.raise_stablehlo import RaiseStableHLO as RaiseStableHLO
from relax2xla.transform.tvm.identities import AllocateWorkspace as AllocateWorkspace
from relax2xla.transform.tvm.identities import (
    AttachAttrLayoutFreeBuffers as AttachAttrLayoutFreeBuffers,
)
from relax2xla.transform.tvm.identities import FewShotTuning as FewShotTuning
from relax2xla.transform.tvm.identities import IPCAllReduceRewrite as IPCAllReduceRewrite
from relax2xla.transform.tvm.identities import KillAfterLastUse as KillAfterLastUse
from relax2xla.transform.tvm.identities import LowerAllocTensor as LowerAllocTensor
from relax2xla.transform.tvm.identities import LowerGPUIPCAllocStorage as LowerGPUIPCAllocStorage
from relax2xla.transform.tvm.identities import (
    MetaScheduleApplyDatabase as MetaScheduleApplyDatabase,
)
from relax2xla.transform.tvm.identities import MetaScheduleTuneIRMod as MetaScheduleTuneIRMod
from relax2xla.transform.tvm.identities import MetaScheduleTuneTIR as MetaScheduleTuneTIR
from relax2xla.transform.tvm.identities import RewriteCUDAGraph as RewriteCUDAGraph
from relax2xla.transform.tvm.identities import (
    SplitLayoutRewritePreproc as SplitLayoutRewritePreproc,
)
from relax2xla.transform.tvm.identities import StaticPlanBlockMemory as StaticPlanBlockMemory
from relax2xla.transform.tvm.identities import VMBuiltinLower as VMBuiltinLower
from relax2xla.transform.tvm.identities import VMShapeLower as VMShapeLower
from relax2xla.transform.tvm.refused import SplitCallTIRByPattern as SplitCallTIRByPattern
