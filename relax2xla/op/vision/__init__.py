"""Operators of object detection: ``relax.vision.*``."""

from __future__ import annotations

from relax2xla.op.shared.exports import show as _show

_show(__name__)
