"""Tallies say what the library's own series would say."""

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.registry import Collector

from turnbridge.web.middleware.metrics import Distribution, Tally

BOUNDS = (0.01, 0.5, 1, 2.5, 600)
ROUTES = st.sampled_from(["/v1/responses", 'odd "name"\n\\'])


def shown(registry: CollectorRegistry) -> set[tuple[str, str, str, tuple[tuple[str, str], ...], float]]:
    """Return every sample of a registry, but for the times at which the library made its series."""
    return {
        (series.name, series.type, sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for series in registry.collect()
        for sample in series.samples
        if not sample.name.endswith("_created")
    }


def registered(series: Iterable[Collector]) -> CollectorRegistry:
    registry = CollectorRegistry()
    for one in series:
        registry.register(one)
    return registry


@given(st.lists(st.tuples(ROUTES, st.sampled_from(["ok", "failed"]), st.integers(0, 10**12))))
def test_a_tally_counts_as_a_counter_does(happened: list[tuple[str, str, int]]) -> None:
    ours, theirs = Tally("things_total", "Things.", "route", "outcome"), CollectorRegistry()
    counter = Counter("things_total", "Things.", ["route", "outcome"], registry=theirs)

    for route, outcome, count in happened:
        ours.add(route, outcome, count=count)
        counter.labels(route, outcome).inc(count)

    assert shown(registered([ours])) == shown(theirs)


@given(st.lists(st.tuples(ROUTES, st.floats(0, 1e6) | st.sampled_from(BOUNDS))))
@example([("/v1/responses", 0.5), ("/v1/responses", 0.5000001), ("/v1/responses", 601.0)])
def test_a_distribution_counts_as_a_histogram_does(seen: list[tuple[str, float]]) -> None:
    ours, theirs = Distribution("seconds", "Seconds.", "route", BOUNDS), CollectorRegistry()
    histogram = Histogram("seconds", "Seconds.", ["route"], buckets=BOUNDS, registry=theirs)

    for route, value in seen:
        ours.add(route, value)
        histogram.labels(route).observe(value)

    assert shown(registered([ours])) == shown(theirs)
