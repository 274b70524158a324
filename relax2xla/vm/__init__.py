"""Build executables and run them on XLA."""

from __future__ import annotations

# These register their operators, for building as for running.
from relax2xla.vm import host_image as host_image
from relax2xla.vm import host_maps as host_maps
from relax2xla.vm import host_sequence as host_sequence
from relax2xla.vm import host_text as host_text
from relax2xla.vm.build import build as build
from relax2xla.vm.build import compile as compile
from relax2xla.vm.executable import VMExecutable as VMExecutable
from relax2xla.vm.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
