"""Import this module, and ``import tvm`` is served by relax2xla from then on."""

from __future__ import annotations

from relax2xla.tvm.aliases import install
from relax2xla.tvm.arrays import give_numpy
from relax2xla.tvm.programs import show_as_tvm

install()
give_numpy()
show_as_tvm()
