"""IRBuilder: TVMScript's statements as Python calls, in the order in which they are made.

::

    from relax2xla.script.ir_builder import IRBuilder
    from relax2xla.script.ir_builder import relax as R

    with IRBuilder() as builder:
        with R.function():
            R.func_name("main")
            x = R.arg("x", R.Tensor((4,), "float32"))
            y = R.emit(R.nn.relu(x))
            R.func_ret_value(y)
    func = builder.get()

``BlockBuilder`` does the bindings; this adds the frames, as a parser or a generator needs them:
parameters and attributes may come after bindings.
"""

from __future__ import annotations

from relax2xla.script.ir_builder import ir as ir
from relax2xla.script.ir_builder import relax as relax
from relax2xla.script.ir_builder import tir as tir
from relax2xla.script.ir_builder.base import IRBuilder as IRBuilder
from relax2xla.script.ir_builder.base import IRBuilderFrame as IRBuilderFrame
