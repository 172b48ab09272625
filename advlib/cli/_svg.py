"""Charts as SVG text: a frame with two scales, and marks in it.

Colours are classes, so that the page's style sheet has both palettes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 12, 44
Point = tuple[float, float]


class Scale(NamedTuple):
    """A straight map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


class Frame(NamedTuple):
    """The inside of a chart: a scale each way."""

    x: Scale
    y: Scale


def frame(x: tuple[float, float], y: tuple[float, float]) -> Frame:
    """A frame for values between bounds; bounds that coincide are moved apart."""
    return Frame(
        Scale(*_apart(x), LEFT, WIDTH - RIGHT),
        Scale(*_apart(y), HEIGHT - BOTTOM, TOP),
    )


def padded(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """Bounds with some room around the finite values; 0 and 1 where there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = _apart((min(finite), max(finite)))
    room = share * (high - low)
    return low - room, high + room


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between bounds, about as many as wanted."""
    step = 10.0 ** math.floor(math.log10((high - low) / wanted))
    for factor in (1, 2, 5, 10):
        if (high - low) / (factor * step) <= wanted + 1e-9:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def axes(
    frame: Frame,
    x_label: str,
    y_label: str,
    *,
    x_ticks: Sequence[tuple[float, str]] | None = None,
) -> str:
    """Grid lines, numbers and names of both axes."""
    x, y = frame
    if x_ticks is None:
        x_ticks = [(value, number(value)) for value in ticks(x.low, x.high)]
    marks = []
    for value in ticks(y.low, y.high):
        at = y(value)
        marks.append(f'<path class="grid" d="M{x.start:g} {at:.1f}H{x.end:g}"/>')
        marks.append(_text(x.start - 8, at + 4, number(value), "end"))
    for value, told in x_ticks:
        at = x(value)
        marks.append(f'<path class="tick" d="M{at:.1f} {y.start:g}v4"/>')
        marks.append(_text(at, y.start + 18, told, "middle"))
    marks.append(f'<path class="axis" d="M{x.start:g} {y.start:g}H{x.end:g}"/>')
    marks.append(_text((x.start + x.end) / 2, HEIGHT - 8, x_label, "middle", "name"))
    middle = (y.start + y.end) / 2
    turned = f'transform="rotate(-90 14 {middle:g})"'
    marks.append(_text(14, middle, y_label, "middle", "name", turned))
    return "".join(marks)


def line(frame: Frame, points: Iterable[Point], style: str) -> str:
    """Straight lines from point to point, broken where a value is missing."""
    path, pen = [], "M"
    for x, y in points:
        if not math.isfinite(y):
            pen = "M"
            continue
        path.append(f"{pen}{frame.x(x):.1f} {frame.y(y):.1f}")
        pen = "L"
    return f'<path class="line {style}" d="{"".join(path)}"/>' if path else ""


def band(frame: Frame, rows: Iterable[tuple[float, float, float]], style: str) -> str:
    """The area between two lines, from rows of x, low and high."""
    every = list(rows)
    if not every:
        return ""
    there = [f"{frame.x(x):.1f} {frame.y(high):.1f}" for x, _, high in every]
    back = [f"{frame.x(x):.1f} {frame.y(low):.1f}" for x, low, _ in reversed(every)]
    return f'<path class="band {style}" d="M{"L".join(there + back)}Z"/>'


def span(frame: Frame, x: float, low: float, high: float, style: str, cap: float = 4) -> str:
    """An upright interval with caps; nothing where a bound is missing."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    at, bottom, top = frame.x(x), frame.y(low), frame.y(high)
    caps = "".join(f"M{at - cap:.1f} {y:.1f}h{2 * cap:g}" for y in (bottom, top)) if cap else ""
    return f'<path class="span {style}" d="M{at:.1f} {bottom:.1f}V{top:.1f}{caps}"/>'


def dot(frame: Frame, x: float, y: float, style: str, told: str = "", radius: float = 4) -> str:
    """A dot that says something when it is pointed at; nothing where its value is missing."""
    if not math.isfinite(y):
        return ""
    title = f"<title>{escape(told)}</title>" if told else ""
    at = f'cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="{radius:g}"'
    return (
        f'<circle class="dot {style}" {at}>{title}</circle>'
        if title
        else (f'<circle class="dot {style}" {at}/>')
    )


def rule(frame: Frame, y: float) -> str:
    """A level across the frame."""
    return f'<path class="rule" d="M{frame.x.start:g} {frame.y(y):.1f}H{frame.x.end:g}"/>'


def chart(parts: Iterable[str], told: str) -> str:
    """The whole picture.

    Args:
        parts: marks, the later ones on top.
        told: what it shows, for those who cannot see it.
    """
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told)}">'
        f"{''.join(parts)}</svg>"
    )


def number(value: float) -> str:
    """A number on an axis."""
    if value and not 1e-4 <= abs(value) < 1e5:
        return f"{value:.3g}"
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def _apart(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    if high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        return low, high
    room = 0.5 * max(abs(low), 1.0) if abs(low) > 1e-9 else 0.5
    return low - room, high + room


def _text(x: float, y: float, told: str, anchor: str, style: str = "number", more: str = "") -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{style}" {at} {more}>{escape(told)}</text>'


def strip(
    bounds: tuple[float, float],
    value: float,
    interval: tuple[float, float] | None,
    other: float | None,
    told: str,
) -> str:
    """A value with its interval on one line, and another value beside it as a ring.

    Args:
        bounds: of the scale, which the strips of a table share.
        value: a dot.
        interval: low and high, cut at the bounds; None where there is none.
        other: a ring; None where there is none.
        told: what it shows.
    """
    scale = Scale(*_apart(bounds), 6, 234)
    level = Frame(scale, Scale(0, 1, 18, 2))
    marks = ['<path class="grid" d="M6 10H234"/>']
    if interval is not None:
        low, high = (scale(min(max(end, scale.low), scale.high)) for end in interval)
        marks.append(f'<path class="span s0" d="M{low:.1f} 10H{high:.1f}"/>')
    if other is not None and math.isfinite(other):
        marks.append(f'<circle class="ring s1" cx="{scale(other):.1f}" cy="10" r="4"/>')
    marks.append(dot(level, value, 0.5, "s0"))
    return (
        f'<svg class="strip" viewBox="0 0 240 20" role="img" aria-label="{escape(told)}">'
        f"{''.join(marks)}</svg>"
    )
