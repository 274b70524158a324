"""The names of ``tvm.testing`` that need pytest: loaded when one of them is asked for."""

from __future__ import annotations

from relax2xla.tvm.testing.compare import *  # noqa: F403
from relax2xla.tvm.testing.fixtures import *  # noqa: F403
from relax2xla.tvm.testing.marks import *  # noqa: F403
