"""Our errors as OpenAI's clients read them."""

import pytest

from turnbridge.api.shared.errors import (
    TABLE,
    error_headers,
    error_object,
    status_of,
)
from turnbridge.turn import errors
from turnbridge.turn.errors import GatewayError


def test_every_error_has_a_row_in_the_table() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GatewayError)}
    assert kinds == TABLE.keys()


def test_an_error_that_an_edge_adds_is_told_as_what_it_comes_from() -> None:
    class Refused(errors.BackendUnavailable):
        code = "refused"

    assert status_of(Refused("m")) == 503
    assert error_object(Refused("m")) == {"message": "m", "type": "server_error", "param": None, "code": "refused"}


# SDKs try 408, 409, 429 and 5xx again: right for what may go better the next time, and paid for twice otherwise.
@pytest.mark.promise("errors.shape", "errors.retryable")
@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (errors.InvalidRequest("m"), 400, "invalid_request_error", None),
        (errors.RequestTooLarge("m"), 413, "invalid_request_error", "request_too_large"),
        (errors.RequestTimeout("m"), 408, "invalid_request_error", "request_timeout"),
        (errors.ModelNotFound("m"), 404, "invalid_request_error", "model_not_found"),
        (errors.NotFound("m"), 404, "invalid_request_error", "not_found"),
        (errors.MethodNotAllowed("m"), 405, "invalid_request_error", "method_not_allowed"),
        (errors.InvalidApiKey("m"), 401, "invalid_request_error", "invalid_api_key"),
        (errors.Forbidden("m"), 403, "invalid_request_error", "forbidden"),
        (errors.ContextTooLong("m"), 400, "invalid_request_error", "context_length_exceeded"),
        (errors.PolicyRefusal("m"), 400, "invalid_request_error", "content_policy_violation"),
        (errors.LoginRequired("m"), 401, "authentication_error", "codex_login_required"),
        (errors.RateLimited("m"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (errors.QuotaExhausted("m"), 429, "insufficient_quota", "insufficient_quota"),
        (errors.OutputRejected("m"), 422, "server_error", "invalid_structured_output"),
        (errors.UpstreamFailed("m"), 502, "server_error", "upstream_error"),
        (errors.UpstreamOverloaded("m"), 503, "server_error", "server_is_overloaded"),
        (errors.BackendUnavailable("m"), 503, "server_error", "backend_unavailable"),
        (errors.TurnTimeout("m"), 504, "server_error", "turn_timeout"),
        (errors.CodexActed("m"), 502, "server_error", "codex_acted"),
        (errors.InternalFault("m"), 500, "server_error", "internal_error"),
    ],
)
def test_each_error_has_its_status_type_and_code(error: GatewayError, status: int, kind: str, code: str | None) -> None:
    assert status_of(error) == status
    assert error_object(error) == {"message": "m", "type": kind, "param": None, "code": code}


def test_an_error_names_its_own_code_and_place() -> None:
    error = errors.InvalidRequest("m", code="invalid_value", param="input[0].role")
    assert error_object(error) == {
        "message": "m",
        "type": "invalid_request_error",
        "param": "input[0].role",
        "code": "invalid_value",
    }


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (errors.RateLimited("m", retry_after=11.054), {"retry-after": "12"}),
        (errors.RateLimited("m", retry_after=0.0), {"retry-after": "1"}),
        (errors.RateLimited("m"), {}),
        (errors.InvalidApiKey("m"), {"www-authenticate": "Bearer"}),
        (errors.CodexActed("m"), {"x-should-retry": "false"}),
        (errors.InvalidRequest("m"), {}),
    ],
)
def test_headers_say_when_to_try_again_and_how_to_log_in(error: GatewayError, headers: dict[str, str]) -> None:
    assert error_headers(error) == headers
