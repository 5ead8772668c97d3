"""What a soak has found: as tables for people, and as JSON for whoever compares."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from soak.hostile import Attack, endings_of
from soak.load import Outcome
from soak.watch import Sample
from tests.support.latency import Latency

# As many lines as fit on a screen.
MOST_ROWS = 15
# Enough of them to see what they have in common.
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What may be held; the report states it, and the exit status says whether it was."""

    gateway_mb: float
    app_server_mb: float
    app_servers_mb: float
    healthz_p99_ms: float
    healthz_longest_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is known at the end."""

    mode: str
    seed: int
    outcomes: Sequence[Outcome]
    unexplained: Sequence[Outcome]
    faults: Counter[str]
    samples: Sequence[Sample]
    bounds: Bounds
    leaks: Sequence[str]
    attacks: Sequence[Attack]
    latency: Latency

    @property
    def passed(self) -> bool:
        """Tell whether nothing is unexplained, nothing has leaked, and every bound was kept."""
        return not (self.unexplained or self.faulty_attacks() or self.leaks or self.excesses())

    def faulty_attacks(self) -> list[Attack]:
        """Return the hostile requests that ended as none may."""
        return [attack for attack in self.attacks if attack.faulty]

    def excesses(self) -> list[str]:
        """Return the bounds that were not kept."""
        seen = {
            "gateway_mb": max(sample.gateway_mb for sample in self.samples),
            "app_server_mb": max(sample.largest_mb for sample in self.samples),
            "app_servers_mb": max(sample.app_servers_mb for sample in self.samples),
            "healthz_p99_ms": round(1000 * self.latency.p99_s),
            "healthz_longest_ms": round(1000 * self.latency.longest_s),
        }
        return [f"{name} {seen[name]} > {most}" for name, most in asdict(self.bounds).items() if seen[name] > most]

    def endings(self) -> dict[str, Counter[str]]:
        """Return how often each kind of request ended how."""
        unexplained = set(map(id, self.unexplained))
        table: dict[str, Counter[str]] = defaultdict(Counter)
        for outcome in self.outcomes:
            how = "UNEXPLAINED" if id(outcome) in unexplained else f"told {outcome.told}" if outcome.told else "good"
            table[outcome.kind][how] += 1
        return dict(sorted(table.items()))

    def write(self, path: Path) -> None:
        """Write everything that matters as JSON."""
        content = {
            "passed": self.passed,
            "mode": self.mode,
            "seed": self.seed,
            "requests": len(self.outcomes),
            "endings": self.endings(),
            "unexplained": [asdict(outcome) for outcome in self.unexplained],
            "faults": self.faults,
            "attacks": endings_of(self.attacks),
            "faulty_attacks": [asdict(attack) for attack in self.faulty_attacks()],
            "healthz": asdict(self.latency),
            "leaks": list(self.leaks),
            "bounds": asdict(self.bounds),
            "excesses": self.excesses(),
            "samples": [asdict(sample) for sample in self.samples],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def lines(self) -> Iterator[str]:
        """Yield the report for a terminal."""
        seconds = self.samples[-1].second
        yield f"{self.mode}: {len(self.outcomes)} requests in {seconds:.0f} s, seed {self.seed}"
        yield ""
        yield from _table(["request", "ending", "count"], _rows(self.endings()))
        yield ""
        yield from _table([name.replace("_", " ") for name in Sample.__slots__], self._sample_rows())
        yield ""
        if self.attacks:
            yield from _table(["hostile request", "ending", "count"], _rows(endings_of(self.attacks)))
            yield ""
        told = self.latency
        yield (
            f"/healthz beside it: {told.asked} times, p99 {1000 * told.p99_s:.0f} ms, "
            f"longest {1000 * told.longest_s:.0f} ms"
        )
        yield f"faults: {', '.join(f'{kind} {count}' for kind, count in self.faults.items()) or 'none'}"
        yield f"bounds: {', '.join(f'{name} {most:g}' for name, most in asdict(self.bounds).items())}"
        for title, found in (("over a bound", self.excesses()), ("leak", self.leaks)):
            yield from (f"{title}: {sentence}" for sentence in found)
        for outcome in self.unexplained[:MOST_SHOWN]:
            yield f"unexplained: {outcome}"
        for attack in self.faulty_attacks()[:MOST_SHOWN]:
            yield f"hostile request that ended badly: {attack}"
        yield f"{len(self.unexplained)} unexplained: {'PASSED' if self.passed else 'FAILED'}"

    def _sample_rows(self) -> list[list[object]]:
        step = math.ceil(len(self.samples) / MOST_ROWS)
        shown = [*self.samples[:-1][::step], self.samples[-1]]
        return [[getattr(sample, name) for name in Sample.__slots__] for sample in shown]


def _rows(endings: dict[str, Counter[str]]) -> list[list[object]]:
    return [[kind, how, count] for kind, hows in endings.items() for how, count in hows.items()]


def _table(head: list[str], rows: list[list[object]]) -> Iterator[str]:
    cells = [head, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
