"""How long Codex may go on retrying, and what the client is told then."""

import msgspec
import pytest

from tests.api.shared.told import Told, told
from turnbridge.codex.protocol.messages import TurnError
from turnbridge.codex.protocol.retries import LONGEST_ATTEMPT_S, Retries
from turnbridge.turn import errors

CANNOT_REACH = (
    "Codex cannot reach the provider: {reason}. Check the network, the provider's address and its certificate."
)
DISCONNECTED = "stream disconnected before completion: Connection refused (os error 111)"
UNREACHABLE = "Connection failed: error sending request"
TIMED_OUT = "request timed out"


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def attempt(reason: str, status: int | None = None) -> TurnError:
    """Return what Codex reports of a failed attempt."""
    info = msgspec.Raw(msgspec.json.encode({"responseStreamDisconnected": {"httpStatusCode": status}}))
    return TurnError("Reconnecting... 2/5", info, additional_details=reason)


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        (
            attempt("unexpected status 503 Service Unavailable: no", 503),
            Told(
                errors.UpstreamOverloaded,
                "unexpected status 503 Service Unavailable: no",
                "server_is_overloaded",
                retry_after=5,
            ),
        ),
        (
            attempt("rate limit exceeded: Please try again in 20s.", None),
            Told(
                errors.UpstreamRateLimited,
                "rate limit exceeded: Please try again in 20s.",
                "rate_limit_exceeded",
                retry_after=20,
            ),
        ),
        (attempt("high demand", 500), Told(errors.UpstreamFailed, "high demand", "upstream_error")),
        (attempt(DISCONNECTED), Told(errors.UpstreamFailed, DISCONNECTED, "upstream_error")),
        (
            attempt(UNREACHABLE),
            Told(errors.UpstreamFailed, CANNOT_REACH.format(reason=UNREACHABLE), "upstream_error"),
        ),
        (attempt(TIMED_OUT), Told(errors.UpstreamFailed, CANNOT_REACH.format(reason=TIMED_OUT), "upstream_error")),
    ],
    ids=["503", "rate limit", "500", "disconnected", "unreachable", "timed out"],
)
def test_the_last_attempt_says_what_the_client_is_told(failed: TurnError, expected: Told) -> None:
    error = Retries(timeout_s=0).failed(failed)
    assert error is not None
    assert told(error) == expected


def test_attempts_may_fail_for_the_whole_time_counted_from_the_first_that_failed() -> None:
    clock = Clock()
    retries = Retries(10, clock)
    # The model has thought for five minutes before its stream broke.
    for clock.now in (300.0, 303.0, 309.9):
        assert retries.failed(attempt(DISCONNECTED)) is None
    clock.now = 310.0
    assert retries.failed(attempt(DISCONNECTED)) is not None


@pytest.mark.parametrize("reason", [UNREACHABLE, TIMED_OUT])
def test_the_time_that_a_connection_took_to_fail_counts(reason: str) -> None:
    clock = Clock()
    retries = Retries(10, clock)
    clock.now = 45.0
    assert retries.failed(attempt(reason)) is not None


def test_a_connection_that_fails_after_a_broken_stream_has_only_begun_to_fail() -> None:
    clock = Clock()
    retries = Retries(10, clock)
    for clock.now, reason in ((300.0, DISCONNECTED), (300.2, UNREACHABLE)):
        assert retries.failed(attempt(reason)) is None


def test_a_provider_that_has_said_something_is_given_the_whole_time_again() -> None:
    clock = Clock()
    retries = Retries(10, clock)
    assert retries.failed(attempt(UNREACHABLE)) is None
    clock.now = 100.0
    retries.succeeded()
    clock.now = 105.0
    assert retries.failed(attempt(UNREACHABLE)) is None


def test_after_a_failed_attempt_the_next_one_is_pending_until_it_must_have_succeeded() -> None:
    clock = Clock()
    retries = Retries(10, clock)
    assert not retries.pending
    retries.failed(attempt(DISCONNECTED))
    assert retries.pending
    clock.now = LONGEST_ATTEMPT_S
    assert not retries.pending
    retries.failed(attempt(DISCONNECTED))
    retries.succeeded()
    assert not retries.pending
