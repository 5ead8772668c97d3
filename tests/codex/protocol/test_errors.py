"""What went wrong behind Codex, as our own errors."""

import json

import msgspec
import pytest

from tests.api.shared.told import Told, told
from tests.codex.protocol.protocol import Protocol
from turnbridge.codex.protocol.errors import (
    BY_NAME,
    CONTEXT_WORDS,
    DEFAULT_RETRY_AFTER_S,
    LOGIN_HELP,
    USED_ELSEWHERE,
    gateway_error,
    incomplete_reason,
    wait_named_in,
)
from turnbridge.codex.protocol.messages import TurnError
from turnbridge.turn import errors
from turnbridge.turn.events import IncompleteReason
from turnbridge.turn.items import Json

LOGIN = f"The provider rejected Codex's login: It broke. {LOGIN_HELP}"
FAILED = Told(errors.UpstreamFailed, "It broke.", "upstream_error")
FAULT = Told(errors.InternalFault, "It broke.", "internal_error")
OVERLOADED = Told(errors.UpstreamOverloaded, "It broke.", "server_is_overloaded", retry_after=DEFAULT_RETRY_AFTER_S)
LIMITED = Told(errors.UpstreamRateLimited, "It broke.", "rate_limit_exceeded", retry_after=DEFAULT_RETRY_AFTER_S)
QUOTA = Told(errors.QuotaExhausted, "It broke.", "insufficient_quota")
POLICY = Told(errors.PolicyRefusal, "It broke.", "content_policy_violation")
TOO_LONG = Told(errors.ContextTooLong, f"{CONTEXT_WORDS} It broke.", "context_length_exceeded", "input")
LOGGED_OUT = Told(errors.LoginRequired, LOGIN, "codex_login_required")
REFUSED_PROMPT = Told(errors.InvalidRequest, "It broke.", "invalid_prompt")
BAD_REQUEST = Told(errors.InvalidRequest, "It broke.", "upstream_bad_request")


def failure(info: Json, message: str = "It broke.") -> Told:
    return told(gateway_error(TurnError(message, msgspec.Raw(msgspec.json.encode(info)))))


@pytest.mark.promise("errors.table")
@pytest.mark.real
def test_every_name_that_the_binary_may_give_an_error_is_in_the_table(protocol: Protocol) -> None:
    named: set[str] = set()
    for shape in protocol.definitions["CodexErrorInfo"].any_of:
        named |= set(shape.enum) | set(shape.properties)
    assert named - BY_NAME.keys() == {"other"}


@pytest.mark.promise("errors.table")
@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("contextWindowExceeded", TOO_LONG),
        ("sessionBudgetExceeded", QUOTA),
        ("usageLimitExceeded", QUOTA),
        ("rateLimitExceeded", LIMITED),
        ("flexUnavailable", OVERLOADED),
        ("serverOverloaded", OVERLOADED),
        ("cyberPolicy", POLICY),
        ("misalignmentPolicyViolation", POLICY),
        ("tooManyDenials", POLICY),
        ("internalServerError", FAILED),
        ("unauthorized", LOGGED_OUT),
        ("badRequest", BAD_REQUEST),
        ("threadRollbackFailed", FAULT),
        ("sandboxError", FAULT),
        ({"activeTurnNotSteerable": {"turnKind": "review"}}, FAULT),
        ({"httpConnectionFailed": {"httpStatusCode": None}}, FAILED),
        ({"responseStreamConnectionFailed": {}}, FAILED),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, FAILED),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 500}}, FAILED),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, LIMITED),
        ({"httpConnectionFailed": {"httpStatusCode": 400}}, BAD_REQUEST),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, LOGGED_OUT),
        ({"httpConnectionFailed": {"httpStatusCode": 403}}, LOGGED_OUT),
        ({"httpConnectionFailed": {"httpStatusCode": 404}}, BAD_REQUEST._replace(code="upstream_not_found")),
        ({"httpConnectionFailed": {"httpStatusCode": 413}}, TOO_LONG),
        ({"httpConnectionFailed": {"httpStatusCode": 503}}, OVERLOADED),
        ({"httpConnectionFailed": {"httpStatusCode": 418}}, FAILED),
        ("other", REFUSED_PROMPT),
        (None, FAILED),
        ("notYetInvented", FAILED),
        ({"notYetInvented": {"httpStatusCode": 429}}, LIMITED),
        ({"notYetInvented": None}, FAILED),
        ({"two": {}, "names": {}}, FAILED),
        (7, FAILED),
    ],
)
def test_each_error_of_codex_is_told_as_what_it_means(info: Json, expected: Told) -> None:
    assert failure(info) == expected


@pytest.mark.promise("errors.providers-words")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"error": {"message": "Bad effort.", "code": "unsupported_value", "param": "reasoning.effort"}},
            Told(errors.InvalidRequest, "Bad effort.", "unsupported_value", "reasoning.effort"),
        ),
        (
            {"error": {"message": "It is 9 tokens too long.", "code": "context_length_exceeded", "param": None}},
            Told(
                errors.ContextTooLong,
                f"{CONTEXT_WORDS} It is 9 tokens too long.",
                "context_length_exceeded",
                "input",
            ),
        ),
        (
            {"error": {"message": "No.", "type": "invalid_request_error", "code": None, "param": None}},
            Told(errors.InvalidRequest, "No."),
        ),
        (
            {"detail": "Store must be set to false"},
            Told(errors.InvalidRequest, "Store must be set to false", "upstream_bad_request"),
        ),
        ({"hint": "?"}, Told(errors.InvalidRequest, '{"hint": "?"}', "upstream_bad_request")),
    ],
)
def test_a_body_of_the_provider_is_a_bad_request_in_its_own_words(body: Json, expected: Told) -> None:
    assert failure("other", json.dumps(body)) == expected


# As vLLM and others write it.
@pytest.mark.parametrize("body", [{"error": {"message": "No.", "code": 400}}, {"error": "No."}])
def test_a_body_of_a_server_that_is_not_openais_is_a_bad_request_too(body: Json) -> None:
    kind, message, *_ = failure("other", json.dumps(body))
    assert (kind, message) == (errors.InvalidRequest, "No.")


@pytest.mark.parametrize(
    "message", ["stream disconnected before completion: It broke.", "", "Incomplete response returned, reason: boredom"]
)
def test_a_message_that_is_not_about_the_prompt_is_a_failure_of_the_provider(message: str) -> None:
    assert failure("other", message) == Told(errors.UpstreamFailed, message, "upstream_error")


@pytest.mark.promise("faults.internal-error")
@pytest.mark.parametrize(
    "message", ["internal error; agent loop died unexpectedly", "Fatal error: the rollout could not be written"]
)
def test_a_defect_of_codex_is_no_fault_of_the_prompt(message: str) -> None:
    assert failure("other", message) == Told(errors.BackendLost, message, "backend_unavailable")


@pytest.mark.promise("replicas.login")
def test_a_refresh_token_that_another_machine_has_used_is_named_as_the_cause() -> None:
    # Codex's own words.
    message = (
        "Your access token could not be refreshed because your refresh token was already used. Please log out and sign "
        "in again."
    )
    kind, said, *_ = failure("unauthorized", message)
    assert kind is errors.LoginRequired
    assert USED_ELSEWHERE in said
    assert "turnbridge login" in said


def test_a_missing_key_of_the_provider_is_a_missing_login() -> None:
    kind, message, *_ = failure("other", "Missing environment variable: `ACME_API_KEY`.")
    assert kind is errors.LoginRequired
    assert "Missing environment variable: `ACME_API_KEY`. Set the variable for Turnbridge" in message


@pytest.mark.promise("errors.retry-after")
@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Please try again in 11.054s.", 11.054),
        ("Please try again in 250ms.", 0.25),
        ("try again in 2 s", 2.0),
        ("Try again in 3m.", 180.0),
        ("Please try again in 1m26.4s. Visit ...", 86.4),
        ("Please try again in 2h5m.", 7500.0),
        ("try again in 20 seconds", 20.0),
        ("try again in 5 minutes", 300.0),
        ("Slow down.", None),
        ("try again at 3:05 PM", None),
    ],
)
def test_the_wait_that_a_message_names_is_read(message: str, seconds: float | None) -> None:
    assert wait_named_in(message) == seconds


def test_the_wait_that_a_rate_limit_names_is_passed_on() -> None:
    assert failure("rateLimitExceeded", "Please try again in 11.054s.") == LIMITED._replace(
        message="Please try again in 11.054s.", retry_after=11.054
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "stream disconnected before completion: Incomplete response returned, reason: content_filter",
            "content_filter",
        ),
        ("Incomplete response returned, reason: max_output_tokens", "max_output_tokens"),
        ("Incomplete response returned, reason: steered", None),
        ("stream disconnected before completion: It broke.", None),
    ],
)
def test_an_answer_that_the_provider_cut_off_is_told_from_a_failure(
    message: str, reason: IncompleteReason | None
) -> None:
    assert incomplete_reason(TurnError(message)) == reason


@pytest.mark.promise("errors.table")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (418, errors.UpstreamFailed),
        (429, errors.UpstreamRateLimited),
        (500, errors.UpstreamFailed),
        (503, errors.UpstreamOverloaded),
    ],
)
def test_a_status_that_older_versions_only_mention_counts(status: int, kind: type[errors.GatewayError]) -> None:
    message = f"unexpected status {status} and its reason: no"
    assert type(gateway_error(TurnError(message, msgspec.Raw(b'"other"')))) is kind
