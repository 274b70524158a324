"""How the function in C++ wants weights to lie, which depends on the processor.

``runtime/include/relax2xla/integers/product.h`` says what the two ways are: "bytes" where one
instruction adds four products of uint8 by int8 (VNNI), and "words", int16 in pairs, elsewhere.
Processors with AMX read the panels of "bytes" as tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from relax2xla import processor


@dataclass(frozen=True, slots=True)
class Packing:
    """``lanes``: numbers of 32 bits in a vector; ``bytes``: which of the two ways it is."""

    lanes: int
    bytes: bool

    @property
    def depth(self) -> int:
        """How many numbers of a column lie together."""
        return 4 if self.bytes else 2

    @property
    def columns(self) -> int:
        """How many columns a panel has; as ``kColumns`` of product.h."""
        return self.lanes * (4 if self.lanes == 16 else 2)

    @property
    def dtype(self) -> str:
        """Of the numbers."""
        return "int8" if self.bytes else "int16"

    @property
    def flags(self) -> tuple[str, ...]:
        """What the compiler is told."""
        return (f"-DRELAX2XLA_LANES={self.lanes}", f"-DRELAX2XLA_BYTES={int(self.bytes)}")

    @property
    def name(self) -> str:
        """What :func:`named` reads."""
        return f"{'bytes' if self.bytes else 'words'}{self.lanes}"


def named(name: str) -> Packing | None:
    """The packing of that name; None where there is none."""
    return _PACKINGS.get(name)


_PACKINGS = {p.name: p for p in (Packing(n, b) for n in (8, 16) for b in (False, True))}


def packing() -> Packing:
    """That of this processor."""
    features = processor.features()
    if "avx512f" in features and "avx512bw" in features:
        return Packing(16, "avx512_vnni" in features)
    return Packing(8, "avx_vnni" in features)


@dataclass(frozen=True, slots=True)
class Parts:
    """A weight [height, width, channels of a group, results] as parts of rows of windows.

    A part is a row of the window where these lie together in the image, else one of its taps.
    """

    window: tuple[int, int]
    channels: int
    results: int
    groups: int
    dilation: tuple[int, int]

    @property
    def count(self) -> int:
        """How many parts there are."""
        height, width = self.window
        return height if self._whole else height * width

    @property
    def length(self) -> int:
        """Numbers of a part."""
        return self.channels * (self.window[1] if self._whole else 1)

    @property
    def _whole(self) -> bool:
        return self.groups == 1 and (self.dilation[1] == 1 or self.window[1] == 1)

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is by itself, so that nothing is packed."""
        return self.groups > 1 and self.channels == 1 and self.results == self.groups

    def steps(self, by: Packing) -> int:
        """Of a part."""
        return -(-self.length // by.depth)

    def panels(self, by: Packing) -> int:
        """Of a group."""
        return -(-(self.results // self.groups) // by.columns)

    def shape(self, by: Packing) -> tuple[int, ...]:
        """Of the packed weight: (groups, panels, parts, steps, columns, depth)."""
        if self.is_depthwise:
            return (*self.window, self.results)
        steps, panels = self.steps(by), self.panels(by)
        return (self.groups, panels, self.count, steps, by.columns, by.depth)

    def dtype(self, by: Packing) -> str:
        """Of the packed weight."""
        return "int16" if self.is_depthwise else by.dtype

    @property
    def depth(self) -> int:
        """How many products a sum has."""
        return math.prod(self.window) * self.channels
