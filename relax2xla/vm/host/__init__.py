"""Operators that run on the host, with numpy and Python."""

from __future__ import annotations

# Each of these registers its operators, or functions.
from relax2xla.vm.host import image as image
from relax2xla.vm.host import maps as maps
from relax2xla.vm.host import packed as packed
from relax2xla.vm.host import sequence as sequence
from relax2xla.vm.host import text as text
