"""TVMScript: Relax programs as Python text, printed and parsed.

::

    from relax2xla.script import ir as I, relax as R, tir as T


    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            return R.nn.relu(x)

``Module`` is then an IRModule. ``from_source(text)`` does the same for text, which is parsed and
never executed.
"""

from __future__ import annotations

from relax2xla.script.display import show as show
from relax2xla.script.entry import from_source as from_source
from relax2xla.script.ir_names import ir as ir
from relax2xla.script.ir_names import ir_module as ir_module
from relax2xla.script.printer import script as script
from relax2xla.script.relax_names import relax as relax
from relax2xla.script.tir_names import tir as tir

parse = from_source
