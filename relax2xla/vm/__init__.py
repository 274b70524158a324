"""Build executables and run them on XLA."""

from __future__ import annotations

# Its files register what runs on the host, for building as for running.
from relax2xla.vm import host as host
from relax2xla.vm.executable import VMExecutable as VMExecutable
from relax2xla.vm.observe.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
from relax2xla.vm.plan.build import build as build
from relax2xla.vm.plan.build import compile as compile
