"""How a cost grows: points, and the exponent of the growth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.plots import Plot
from bench.report import Goal, at_most, table

# The growth is read off the largest sizes: at small ones, what every request costs hides it.
LAST_POINTS = 3


@dataclass(slots=True, eq=False)
class Curve:
    """What something costs at several sizes."""

    name: str
    unit: str
    steepest: float | None
    """The largest exponent that is all right: 1 for in proportion, 0 for flat, with room for noise; None if it is not
    the gateway's."""
    sizes: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def add(self, size: int, cost: float) -> None:
        """Take in a point."""
        self.sizes.append(size)
        self.costs.append(cost)

    @property
    def exponent(self) -> float:
        """Return the slope of the last points when both axes are logarithmic (least squares)."""
        x = [math.log(size) for size in self.sizes[-LAST_POINTS:]]
        # A cost too small to be seen is no cost.
        y = [math.log(max(cost, 1e-6)) for cost in self.costs[-LAST_POINTS:]]
        middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
        spread = sum((a - middle_x) ** 2 for a in x)
        return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread

    def goals(self) -> list[Goal]:
        """Return whether it grows no faster than it may."""
        if self.steepest is None:
            return []
        return [at_most(f"growth: {self.name}, exponent", round(self.exponent, 2), self.steepest)]


def curve_lines(curves: Sequence[Curve]) -> list[str]:
    """Return a small table for each curve."""
    lines: list[str] = []
    for curve in curves:
        head = (f"{curve.name}", *(f"{size:,}" for size in curve.sizes), "exponent")
        row = (curve.unit, *(f"{cost:.3g}" for cost in curve.costs), f"{curve.exponent:.2f}")
        lines += [*table(head, [row]), ""]
    return lines[:-1]


def curve_plot(name: str, title: str, curves: Sequence[Curve]) -> Plot:
    """Return a plot of curves that have one unit."""
    series = {curve.name: [(float(x), y) for x, y in zip(curve.sizes, curve.costs, strict=True)] for curve in curves}
    return Plot(name=name, title=title, unit=curves[0].unit, kind="log-curves", series=series, across="size")
