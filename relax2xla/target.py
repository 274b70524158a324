"""Compilation targets under the name of ``tvm.target``: a kind, its options, and a host."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from relax2xla.errors import TVMError
from relax2xla.runtime.device import PLATFORMS, Device
from relax2xla.runtime.device import device as device_named

# What XLA compiles for, by the names that programs written for TVM use.
KINDS = tuple(PLATFORMS)

# What programs that write kernels for threads ask of a target that does not state it: the values
# that TVM takes for a kind. XLA chooses its own.
_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "cuda": {"max_num_threads": 1024, "thread_warp_size": 32},
    "rocm": {
        "max_num_threads": 256,
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 65536,
        "thread_warp_size": 64,
    },
}

# The kinds of machines that TVM's tags name ("nvidia/geforce-rtx-3090"), by how the tags begin.
_TAGS: Mapping[str, str] = {
    "aws/cpu/": "llvm",
    "aws/gpu/": "cuda",
    "nvidia/": "cuda",
    "raspberry-pi/": "llvm",
}

_CURRENT: ContextVar[tuple[Target, ...]] = ContextVar("relax2xla_targets", default=())


class TargetKind(str):
    """The name of a kind of targets; ``kind.name`` is it, too, as in TVM."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name."""
        return str(self)


class Target:
    """``Target("llvm -mcpu=x")``, ``Target({"kind": "cuda", "arch": "sm_80"})``.

    ``kind``: the first word, or that of the machine that TVM's tags name
    (``"nvidia/jetson-nano"`` is ``cuda``: what else it is, XLA asks the device); ``attrs``: the
    options, which XLA chooses for itself and which are kept for programs that read them, and the
    limits of threads of cuda and rocm that TVM takes where none are stated; ``host``: the target
    of the host's code, if it is stated.
    Raises TVMError for a kind that XLA does not compile for and for options that are not
    ``-name=value``.
    """

    __slots__ = ("attrs", "host", "kind")

    def __init__(
        self, target: str | Mapping[str, Any] | Target, host: str | Target | None = None
    ) -> None:
        if isinstance(target, Target):
            kind, attrs = target.kind, target.attrs
            host = target.host if host is None else host
        elif isinstance(target, Mapping):
            attrs = dict(target)
            kind = str(attrs.pop("kind", ""))
            host = attrs.pop("host", None) if host is None else host
        elif target.lstrip().startswith("{"):
            read = Target(_json(target), host)
            kind, attrs, host = read.kind, read.attrs, read.host
        else:
            kind, attrs = _words(target)
        kind = next((k for begin, k in _TAGS.items() if kind.startswith(begin)), kind)
        if kind not in KINDS:
            raise TVMError(f"unknown target kind {kind!r}; known: {', '.join(KINDS)}")
        self.kind = TargetKind(kind)
        self.attrs: dict[str, Any] = {**_DEFAULTS.get(kind, {}), **attrs}
        self.host = None if host is None else Target(host)

    @staticmethod
    def from_device(device: str | Device) -> Target:
        """The target of programs for ``device`` (or its name); DeviceError for no device."""
        platform = device_named(device).platform
        return Target("llvm" if platform == "cpu" else platform)

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target whose ``with`` is open, innermost first; ValueError without one, if asked."""
        stack = _CURRENT.get()
        if not stack and not allow_none:
            raise ValueError("no target is current; open one with `with Target(...):`")
        return stack[-1] if stack else None

    @property
    def arch(self) -> str:
        """The option ``arch``; empty where it is not stated."""
        return str(self.attrs.get("arch", ""))

    @property
    def mcpu(self) -> str:
        """The option ``mcpu``; empty where it is not stated."""
        return str(self.attrs.get("mcpu", ""))

    @property
    def libs(self) -> list[str]:
        """The option ``libs``: external libraries, by name."""
        libs = self.attrs.get("libs", [])
        return libs.split(",") if isinstance(libs, str) else list(libs)

    @property
    def max_num_threads(self) -> int:
        """Threads in a block; TVMError where the target has no threads."""
        return self._number("max_num_threads")

    @property
    def thread_warp_size(self) -> int:
        """Threads in a warp; TVMError where the target has no threads."""
        return self._number("thread_warp_size")

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes; TVMError where the target does not state it."""
        return self._number("max_shared_memory_per_block")

    def _number(self, name: str) -> int:
        if name not in self.attrs:
            raise TVMError(
                f"the target {str(self)!r} states no {name}; write it as "
                f"Target({{'kind': {str(self.kind)!r}, {name!r}: ...}})"
            )
        return int(self.attrs[name])

    def __enter__(self) -> Target:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])

    def __str__(self) -> str:
        known = _DEFAULTS.get(self.kind, {})
        stated = {k: v for k, v in self.attrs.items() if known.get(k) != v}
        options = (f"-{k}" if v is True else f"-{k}={v}" for k, v in stated.items())
        return " ".join([self.kind, *options])

    def __repr__(self) -> str:
        host = "" if self.host is None else f", host={str(self.host)!r}"
        return f"Target({str(self)!r}{host})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        mine, theirs = (self.kind, self.attrs, self.host), (other.kind, other.attrs, other.host)
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.kind, str(self)))


def _json(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as e:
        raise TVMError(f"the target {text!r} is no JSON object: {e}") from None


def _words(text: str) -> tuple[str, dict[str, Any]]:
    kind, *options = shlex.split(text) or [""]
    attrs: dict[str, Any] = {}
    for option in options:
        name, has_value, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            raise TVMError(f"the option {option!r} of the target {text!r} must be -name=value")
        attrs[name] = value if has_value else True
    return kind, attrs
