"""Passes and pipelines; a pass never changes the module that it is given."""

from __future__ import annotations

from relax2xla.transform.core.passes import Pass as Pass
from relax2xla.transform.core.passes import PassContext as PassContext
from relax2xla.transform.core.passes import PassInfo as PassInfo
from relax2xla.transform.core.passes import PassInstrument as PassInstrument
from relax2xla.transform.core.passes import Sequential as Sequential
from relax2xla.transform.core.passes import function_pass as function_pass
from relax2xla.transform.core.passes import module_pass as module_pass
from relax2xla.transform.cpu.depthwise import ExpandDepthwise as ExpandDepthwise
from relax2xla.transform.cpu.fuse_transpose_matmul import FuseTransposeMatmul as FuseTransposeMatmul
from relax2xla.transform.cpu.gather_windows import GatherWindows as GatherWindows
from relax2xla.transform.cpu.planes import ConvolvePlanes as ConvolvePlanes
from relax2xla.transform.cpu.winograd import UseWinograd as UseWinograd
from relax2xla.transform.layout.convert_layout import ConvertLayout as ConvertLayout
from relax2xla.transform.layout.feature_major import FeatureMajor as FeatureMajor
from relax2xla.transform.lower.decompose import DecomposeOpsForInference as DecomposeOpsForInference
from relax2xla.transform.lower.decompose import DecomposeOpsForTraining as DecomposeOpsForTraining
from relax2xla.transform.lower.distributed import LowerDistIR as LowerDistIR
from relax2xla.transform.lower.legalize import LegalizeOps as LegalizeOps
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings as CanonicalizeBindings
from relax2xla.transform.normal.dead_code import DeadCodeElimination as DeadCodeElimination
from relax2xla.transform.normal.inline import InlineSymbolicFunctions as InlineSymbolicFunctions
from relax2xla.transform.params.bind_params import BindParams as BindParams
from relax2xla.transform.params.fold_batch_norm import FoldBatchNorm as FoldBatchNorm
from relax2xla.transform.pipeline import Pipeline as Pipeline
from relax2xla.transform.pipeline import get_pipeline as get_pipeline
from relax2xla.transform.raising.raise_stablehlo import RaiseStableHLO as RaiseStableHLO
