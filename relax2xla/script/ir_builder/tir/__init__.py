"""``T`` for IRBuilder: the statements of ``ir``, and the functions of TVMScript's T."""

from __future__ import annotations

from typing import Any

from relax2xla.script.ir_builder.tir import ir


def __getattr__(name: str) -> Any:
    return getattr(ir, name)


def __dir__() -> list[str]:
    return dir(ir)
