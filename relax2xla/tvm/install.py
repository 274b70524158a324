"""Import this module, and ``import tvm`` is served by relax2xla from then on."""

from __future__ import annotations

from relax2xla.tvm.aliases import install
from relax2xla.tvm.language.contexts import take_tuning
from relax2xla.tvm.language.programs import show_as_tvm
from relax2xla.tvm.runtime.arrays import give_numpy
from relax2xla.tvm.runtime.devices import give_existence
from relax2xla.tvm.runtime.saving import take_compilers

install()
give_numpy()
give_existence()
take_compilers()
take_tuning()
show_as_tvm()
