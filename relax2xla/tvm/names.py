"""Which modules of relax2xla serve which modules of ``tvm``.

A name is looked for in the modules of its row, in order; a module of relax2xla that is found below
one serves as well. What the table does not have is missing, and raises with its name. In the table
``ir`` is ``relax2xla.ir``, and ``.`` is ``relax2xla`` itself.
"""

from __future__ import annotations

from typing import Final

_TABLE = """
tvm                             tvm.top .
tvm.base                        error
tvm.error                       error
tvm._ffi                        .
tvm._ffi.base                   error tvm.tools.ffi_base
tvm._ffi.libinfo                tvm.tools.ffi_libinfo
tvm._ffi.runtime_ctypes         nd
tvm.libinfo                     tvm.tools.libinfo
tvm.ir                          tvm.runtime.containers ir tir transform .
tvm.ir.analysis                 analysis
tvm.ir.base                     ir .
tvm.ir.expr                     ir tir
tvm.ir.function                 tvm.runtime.containers ir tir
tvm.ir.module                   ir
tvm.ir.op                       ir
tvm.ir.attrs                    ir
tvm.ir.type                     ir
tvm.ir.global_info              ir
tvm.ir.container                tvm.runtime.containers ir
tvm.ir.diagnostics              ir.diagnostics
tvm.ir.transform                transform
tvm.ir.instrument               instrument
tvm.transform                   transform
tvm.instrument                  instrument
tvm.arith                       tir
tvm.arith.analyzer              tir
tvm.tir                         tvm.language.kernels tir te.functions
tvm.tir.expr                    tir te.tensor
tvm.tir.op                      tir te.functions
tvm.tir.generic                 te.functions
tvm.tir.stmt                    tir
tvm.tir.buffer                  tir.buffer tir
tvm.tir.function                tir
tvm.tir.analysis                tir.analysis
tvm.tir.stmt_functor            tir.stmt_functor tir.functor
tvm.tir.schedule                tir.schedule tir
tvm.tir.transform               tvm.gpu.passes
tvm.tir.schedule.testing        tvm.testing.schedule
tvm.te                          te tir
tvm.te.operation                te
tvm.te.tensor                   te
tvm.topi                        topi
tvm.topi.nn                     topi.nn
tvm.topi.nn.elemwise            topi.nn.activation
tvm.topi.nn.pooling             topi.nn.pool
tvm.topi.testing                tvm.testing.topi
tvm.topi.image                  topi.image
tvm.topi.utils                  topi.utils
tvm.script                      script
tvm.script.parser               script
tvm.script.printer              script.printer
tvm.script.printer.doc          script.doc
tvm.script.printer.doc_printer  script.doc_printer
tvm.script.ir_builder           script.ir_builder
tvm.script.ir_builder.base      script.ir_builder.base
tvm.script.ir_builder.ir        script.ir_builder.ir
tvm.script.ir_builder.relax     script.ir_builder.relax
tvm.script.ir_builder.relax.ir  script.ir_builder.relax.ir
tvm.script.ir_builder.tir       script.ir_builder.tir
tvm.script.ir_builder.tir.ir    script.ir_builder.tir.ir
tvm.target                      target
tvm.nd                          tvm.runtime.arrays nd
tvm.runtime                     tvm.runtime.params tvm.runtime.executables \
    tvm.runtime.arrays tvm.runtime.containers runtime nd .
tvm.runtime.ndarray             tvm.runtime.arrays nd
tvm.runtime.params              tvm.runtime.params
tvm.runtime.container           tvm.runtime.containers runtime
tvm.runtime.relax_vm            tvm.runtime.machine . vm
tvm.runtime.vm                  tvm.runtime.machine . vm
tvm.testing                     tvm.testing.values testing tvm.testing.with_pytest
tvm.testing.utils               tvm.testing.values testing tvm.testing.with_pytest
tvm.testing.env                 tvm.testing.env
tvm.testing.plugin              tvm.testing.plugin
tvm.dlight                      tvm.gpu.dlight
tvm.meta_schedule               tvm.gpu.meta_schedule
tvm.meta_schedule.database      tvm.gpu.database
tvm.s_tir.meta_schedule         tvm.gpu.meta_schedule
tvm.s_tir.meta_schedule.database tvm.gpu.database
tvm.rpc                         tvm.runtime.rpc
tvm.s_tir                       tir
tvm.s_tir.schedule              tir.schedule tir
tvm.s_tir.dlight                tvm.gpu.dlight
tvm.contrib.utils               tvm.tools.folders
tvm.contrib.cblas               tvm.tools.cblas
tvm.contrib.cc                  tvm.tools.compilers
tvm.contrib.emcc                tvm.tools.toolchains
tvm.contrib.ndk                 tvm.tools.toolchains
tvm.contrib.nvcc                tvm.tools.toolchains
tvm.contrib.tar                 tvm.tools.compilers
tvm.contrib.xcode               tvm.tools.toolchains
tvm.contrib.tvmjs               tvm.tools.tvmjs
tvm.contrib.popen_pool          tvm.absent
tvm.support.cc                  tvm.tools.compilers
tvm.support.emcc                tvm.tools.toolchains
tvm.support.ndk                 tvm.tools.toolchains
tvm.support.nvcc                tvm.tools.toolchains
tvm.support.tar                 tvm.tools.compilers
tvm.support.xcode               tvm.tools.toolchains
tvm.support.popen_pool          tvm.absent
tvm.support.utils               tvm.tools.folders
tvm.relax                       tvm.runtime.machine .
tvm.relax.expr                  tvm.language.expressions ir .
tvm.relax.ty                    ir
tvm.relax.ir                    ir
tvm.relax.ir.instrument         tvm.testing.instrument instrument
tvm.relax.struct_info           ir
tvm.relax.utils                 utils te.from_relax ir .
tvm.relax.block_builder         builder
tvm.relax.expr_functor          expr_functor
tvm.relax.binding_rewrite       dpl
tvm.relax.analysis              analysis
tvm.relax.analysis.analysis     analysis
tvm.relax.op                    op op.intrinsic
tvm.relax.op.base               op op.intrinsic
tvm.relax.transform             tvm.language.passes transform
tvm.relax.transform.transform   tvm.language.passes transform
tvm.relax.transform.legalize_ops.common tvm.language.legalizing
tvm.relax.dpl                   dpl
tvm.relax.dpl.pattern           dpl
tvm.relax.dpl.rewrite           dpl
tvm.relax.dpl.context           dpl
tvm.relax.distributed           ir
tvm.relax.distributed.transform tvm.language.distributed
tvm.relax.vm_build              .
tvm.relax.exec_builder          .
tvm.relax.pipeline              .
tvm.relax.backend               tvm.gpu.passes transform.fusion.patterns
tvm.relax.backend.pattern_registry transform.fusion.patterns
tvm.relax.backend.patterns      dpl.builders
tvm.relax.backend.cuda          tvm.gpu.cuda
tvm.relax.backend.cuda.cublas   tvm.gpu.cublas
tvm.relax.backend.cuda.cutlass  tvm.gpu.cutlass
tvm.relax.testing               testing
tvm.relax.testing.vm            tvm.testing.vm
tvm.relax.testing.nn            frontend.nn.expr_modules testing.nn
tvm.relax.testing.ast_printer   testing.ast_printer
tvm.relax.testing.matmul        testing.matmul
tvm.relax.testing.attention     testing.attention
tvm.relax.testing.transform     testing.transform
tvm.relax.testing.lib_comparator tvm.testing.lib_comparator
tvm.relax.training              training
tvm.relax.training.loss         training.loss training
tvm.relax.training.optimizer    training.optimizer training
tvm.relax.training.utils        training.utils training
tvm.relax.frontend              tvm.frontend frontend
tvm.relax.frontend.nn           frontend.nn
tvm.relax.frontend.nn.op        frontend.nn.op
tvm.relax.frontend.nn.core      frontend.nn
tvm.relax.frontend.nn.modules   frontend.nn
tvm.relax.frontend.nn.spec      frontend.nn.spec
tvm.relax.frontend.nn.llm       frontend.nn.llm
tvm.relax.frontend.onnx         frontend.onnx
tvm.relax.frontend.stablehlo    frontend.stablehlo
tvm.relax.frontend.torch        tvm.frontend.torch frontend.torch
tvm.relax.frontend.torch.exported_program_translator tvm.frontend.torch frontend.torch
tvm.relax.frontend.torch.fx_translator frontend.torch
tvm.relax.frontend.torch.dynamo tvm.frontend.torch frontend.torch
tvm_ffi                         tvm.runtime.containers tvm.runtime.arrays runtime ir .
tvm_ffi.libinfo                 tvm.tools.libinfo
"""

MODULES: Final[dict[str, tuple[str, ...]]] = {
    name: tuple("relax2xla" if w == "." else f"relax2xla.{w}" for w in serving)
    for name, *serving in map(str.split, _TABLE.strip().splitlines())
}
# Modules that register something when they are imported, and what does it here.
REGISTERING: Final = {
    "tvm.relax.backend": "relax2xla.tvm.gpu.cublas",
    "tvm.relax.testing.vm": "relax2xla.tvm.testing.vm",
}
# Modules whose names stand in themselves, where pytest looks for hooks.
HELD: Final = ("tvm.testing.plugin",)
# Names of TVM 0.25 that v0.20 calls otherwise.
NEWER: Final = {
    "tirx": "tir",
    "register_global_func": "register_func",
    "SLayout": "Layout",
    "SBijectiveLayout": "BijectiveLayout",
    "slayout": "layout",
    "sbijective_layout": "bijective_layout",
}
