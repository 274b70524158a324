"""Passes and pipelines; a pass never changes the module that it is given."""

from __future__ import annotations

from relax2xla.transform._pass import Pass as Pass
from relax2xla.transform._pass import PassContext as PassContext
from relax2xla.transform._pass import PassInfo as PassInfo
from relax2xla.transform._pass import PassInstrument as PassInstrument
from relax2xla.transform._pass import Sequential as Sequential
from relax2xla.transform._pass import function_pass as function_pass
from relax2xla.transform._pass import module_pass as module_pass
from relax2xla.transform.bind_params import BindParams as BindParams
from relax2xla.transform.canonicalize import CanonicalizeBindings as CanonicalizeBindings
from relax2xla.transform.convert_layout import ConvertLayout as ConvertLayout
from relax2xla.transform.dead_code import DeadCodeElimination as DeadCodeElimination
from relax2xla.transform.decompose import DecomposeOpsForInference as DecomposeOpsForInference
from relax2xla.transform.decompose import DecomposeOpsForTraining as DecomposeOpsForTraining
from relax2xla.transform.depthwise import ExpandDepthwise as ExpandDepthwise
from relax2xla.transform.feature_major import FeatureMajor as FeatureMajor
from relax2xla.transform.fold_batch_norm import FoldBatchNorm as FoldBatchNorm
from relax2xla.transform.fuse_transpose_matmul import FuseTransposeMatmul as FuseTransposeMatmul
from relax2xla.transform.gather_windows import GatherWindows as GatherWindows
from relax2xla.transform.inline import InlineSymbolicFunctions as InlineSymbolicFunctions
from relax2xla.transform.legalize import LegalizeOps as LegalizeOps
from relax2xla.transform.lower_distributed import LowerDistIR as LowerDistIR
from relax2xla.transform.pipeline import Pipeline as Pipeline
from relax2xla.transform.pipeline import get_pipeline as get_pipeline
from relax2xla.transform.planes import ConvolvePlanes as ConvolvePlanes
from relax2xla.transform.raise_stablehlo import RaiseStableHLO as RaiseStableHLO
from relax2xla.transform.winograd import UseWinograd as UseWinograd
