"""``bench --plot``: the times of all variants as a picture that needs nothing else."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from relax2xla.cli.figures.timing import percentile, ratio

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 900.0, 200.0, 170.0, 46.0, 64.0
_OURS, _OTHERS = "#1c7ed6", "#868e96"

_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<body style="margin:2rem;background:#fff">{svg}</body></html>
"""


def plot_svg(times: Mapping[str, Sequence[float]], title: str, remark: str) -> str:
    """Bars of medians, a point for each round, and a line from the least to the 90th percentile.

    times: seconds a call of each variant, one figure a round; the first variant is ours
    """
    # Few slow rounds, which a machine with other work has, do not set the axis.
    largest = max(max(percentile(v, 75), 1.2 * statistics.median(v)) for v in times.values())
    unit, scale = next((u, s) for u, s in _UNITS if largest * s >= 1 or u == "ns")
    step = _step(largest * scale)
    end = step * math.ceil(largest * scale / step)
    room = _WIDTH - _LEFT - _RIGHT

    def x(seconds: float) -> float:
        return _LEFT + room * min(seconds * scale / end, 1.01)

    height = _TOP + _ROW * len(times) + 48
    bottom = _TOP + _ROW * len(times)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" '
        f'width="{_WIDTH:g}" height="{height:g}" font-family="system-ui, sans-serif" '
        'font-size="13">',
        f'<rect width="{_WIDTH:g}" height="{height:g}" fill="#fff"/>',
        _text(16, 26, title, "#212529", size=16),
        _text(16, 46, remark, "#495057", size=12),
    ]
    for i in range(round(end / step) + 1):
        at = _LEFT + room * i * step / end
        parts.append(f'<path d="M{at:.1f} {_TOP:g}V{bottom:g}" stroke="#e9ecef"/>')
        parts.append(_text(at, bottom + 18, f"{i * step:g}", "#495057", "middle"))
    parts.append(_text(_LEFT + room / 2, bottom + 38, f"{unit} a call", "#495057", "middle"))
    ours = next(iter(times))
    for i, (name, values) in enumerate(times.items()):
        y = _TOP + _ROW * i + _ROW / 2
        median = statistics.median(values)
        colour = _OURS if i == 0 else _OTHERS
        least, most = x(min(values)), x(percentile(values, 90))
        # What goes on beyond the axis has an arrow there.
        tip = "l-5 -5m5 5l-5 5" if percentile(values, 90) * scale > end else "m0 -5v10"
        parts += [
            _text(_LEFT - 10, y + 4, _clipped(name), "#212529", "end"),
            f'<rect x="{_LEFT:g}" y="{y - 13:g}" width="{x(median) - _LEFT:.1f}" height="26" '
            f'rx="2" fill="{colour}" fill-opacity="0.75"/>',
            f'<path d="M{least:.1f} {y - 5:g}v10M{least:.1f} {y:g}H{most:.1f}{tip}" '
            'stroke="#212529" fill="none"/>',
        ]
        parts += [
            f'<circle cx="{x(v):.1f}" cy="{y:g}" r="2" fill="#212529" fill-opacity="0.35"/>'
            for v in values
            if v * scale <= end
        ]
        told = f"{median * scale:.3g} {unit}" + (
            f", {ratio(times, name, ours):.2f} times" if i else ""
        )
        parts.append(_text(_WIDTH - _RIGHT + 14, y + 4, told, "#212529"))
    return "\n".join([*parts, "</svg>\n"])


def plot_page(times: Mapping[str, Sequence[float]], title: str, remark: str) -> str:
    """The same as an HTML page."""
    return _PAGE.format(title=escape(title), svg=plot_svg(times, title, remark))


_UNITS: Final = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))


def _step(largest: float) -> float:
    """A round number that divides an axis up to ``largest`` into at most ten parts."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next(s for s in (power / 10, power / 5, power / 2, power) if largest / s <= 10)


def _text(x: float, y: float, text: str, fill: str, anchor: str = "start", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" '
        f'font-size="{size}">{escape(text)}</text>'
    )


def _clipped(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"
