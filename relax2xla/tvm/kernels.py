"""``tvm.tir.build``: a loop-level function, built alone."""

from __future__ import annotations

from relax2xla.tvm.executables import build as build
