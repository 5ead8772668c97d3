"""Plots of what was measured, as SVG files that fit a light and a dark page: bars and curves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

WIDTH = 720
MARGIN = 24
TITLE_HEIGHT = 40
BAR_HEIGHT, BAR_GAP = 22, 8
LABEL_WIDTH, VALUE_WIDTH = 290, 80
CURVE_HEIGHT, AXIS_WIDTH, LEGEND_LINE = 300, 64, 20
# Told apart by those who see fewer colours, on white and on black.
COLOURS = ("#2f7fd1", "#d9822b", "#2a9d6f", "#b5539c", "#c0a72e", "#8a8f98")
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:15px;font-weight:600}.faint{fill:#656d76}"
    "line{stroke:#8a8f98;stroke-width:.5}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#9198a1}}</style>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Figures to be drawn: a bar for each point, or a curve for each series."""

    name: str
    """Of the file."""
    title: str
    unit: str
    kind: Literal["bars", "curves", "log-curves"] = "bars"
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Points by the name of the curve. A bar has one point, of which the second number counts."""
    across: str = ""
    """What the horizontal axis of curves has."""


def bars(name: str, title: str, unit: str, values: dict[str, float]) -> Plot:
    """Return a plot with a bar for each value."""
    return Plot(name=name, title=title, unit=unit, series={label: [(0, value)] for label, value in values.items()})


def svg(plot: Plot) -> str:
    """Return the picture."""
    height, body = _bars(plot) if plot.kind == "bars" else _curves(plot, logarithmic=plot.kind == "log-curves")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(plot.title)}">'
    )
    return "\n".join([head, STYLE, _text(MARGIN, 24, f"{plot.title}, {plot.unit}", "title"), *body, "</svg>", ""])


def _bars(plot: Plot) -> tuple[int, list[str]]:
    values = {label: points[0][1] for label, points in plot.series.items()}
    longest = max(values.values())
    room = WIDTH - 2 * MARGIN - LABEL_WIDTH - VALUE_WIDTH
    left, lines = MARGIN + LABEL_WIDTH, []
    for place, (label, value) in enumerate(values.items()):
        top = TITLE_HEIGHT + place * (BAR_HEIGHT + BAR_GAP)
        length = max(1.0, room * value / longest)
        middle, colour = top + BAR_HEIGHT * 0.7, _colour(label, place)
        lines += [
            _text(left - 8, middle, label, anchor="end"),
            f'<rect x="{left}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" rx="3" fill="{colour}"/>',
            _text(left + length + 8, middle, f"{value:,.0f}" if value >= 100 else f"{value:.3g}"),
        ]
    return TITLE_HEIGHT + len(values) * (BAR_HEIGHT + BAR_GAP) + MARGIN // 2, lines


def _colour(label: str, place: int) -> str:
    """Return one colour for all of ours, so that they stand out, and grey for others."""
    return COLOURS[0] if "gateway" in label and "least" not in label else COLOURS[-1] if place else COLOURS[1]


def _curves(plot: Plot, *, logarithmic: bool) -> tuple[int, list[str]]:
    scale = (lambda value: math.log10(max(value, 1e-3))) if logarithmic else (lambda value: value)
    points = [point for curve in plot.series.values() for point in curve]
    xs, ys = [scale(x) for x, _ in points], [scale(y) for _, y in points]
    low_x, high_x = min(xs), max(xs)
    low_y, high_y = (math.floor(min(ys)), math.ceil(max(ys))) if logarithmic else (0.0, max(ys) * 1.05)
    left, right, top = MARGIN + AXIS_WIDTH, WIDTH - MARGIN, TITLE_HEIGHT + 8
    bottom = top + CURVE_HEIGHT

    def place(x: float, y: float) -> tuple[float, float]:
        along, up = (scale(x) - low_x) / ((high_x - low_x) or 1), (scale(y) - low_y) / ((high_y - low_y) or 1)
        return left + along * (right - left), bottom - up * CURVE_HEIGHT

    lines: list[str] = []
    for tick in _ticks(low_y, high_y, logarithmic=logarithmic):
        _, y = place(points[0][0], tick)
        lines += [
            f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>',
            _text(left - 8, y + 4, f"{tick:,.10g}", "faint", "end"),
        ]
    for tick in _ticks(low_x, high_x, logarithmic=logarithmic):
        x, _ = place(tick, points[0][1])
        lines.append(_text(x, bottom + 18, f"{tick:,.10g}", "faint", "end" if x > right - MARGIN else "middle"))
    lines.append(_text(right, bottom + 36, plot.across, "faint", "end"))
    for number, (label, curve) in enumerate(plot.series.items()):
        colour, legend = COLOURS[number % len(COLOURS)], bottom + 40 + number * LEGEND_LINE
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in curve))
        lines += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<rect x="{left}" y="{legend - 10}" width="14" height="4" fill="{colour}"/>',
            _text(left + 22, legend - 4, label),
        ]
    return bottom + 48 + len(plot.series) * LEGEND_LINE, lines


def _ticks(low: float, high: float, *, logarithmic: bool) -> Sequence[float]:
    if logarithmic:
        return [10.0**power for power in range(int(low), int(high) + 1)]
    step = 10 ** math.floor(math.log10(high or 1))
    step = next(step / part for part in (1, 2, 5, 10) if high / (step / part) >= 4)
    return [step * number for number in range(int(high / step) + 1)]


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
