"""Errors as Anthropic's clients expect them: status, type, words, and whether to ask again."""

import pytest

from turnbridge.api.anthropic.errors import error_body, headers_of, status_of
from turnbridge.turn import errors
from turnbridge.turn.items import JsonObject

NEVER = {"x-should-retry": "false"}

TOLD: dict[str, tuple[errors.GatewayError, int, str, dict[str, str]]] = {
    "wrong key": (errors.InvalidApiKey("m"), 401, "authentication_error", {"www-authenticate": "Bearer", **NEVER}),
    "no login": (errors.LoginRequired("m"), 403, "permission_error", NEVER),
    "forbidden": (errors.Forbidden("m"), 403, "permission_error", {}),
    "bad request": (errors.InvalidRequest("m"), 400, "invalid_request_error", {}),
    "refused content": (errors.PolicyRefusal("m"), 400, "invalid_request_error", {}),
    "no model": (errors.ModelNotFound("m"), 404, "not_found_error", {}),
    "no route": (errors.NotFound("m"), 404, "not_found_error", {}),
    "wrong verb": (errors.MethodNotAllowed("m"), 405, "invalid_request_error", {}),
    "large body": (errors.RequestTooLarge("m"), 413, "request_too_large", {}),
    "used up": (errors.QuotaExhausted("m"), 429, "rate_limit_error", {"retry-after": "3600", **NEVER}),
    "used up until": (
        errors.QuotaExhausted("m", retry_after=90.5),
        429,
        "rate_limit_error",
        {"retry-after": "91", **NEVER},
    ),
    "too fast": (errors.RateLimited("m", retry_after=1.2), 429, "rate_limit_error", {"retry-after": "2"}),
    "wrong answer": (errors.OutputRejected("m"), 400, "invalid_request_error", NEVER),
    "overloaded": (errors.UpstreamOverloaded("m", retry_after=5), 529, "overloaded_error", {"retry-after": "5"}),
    "no room": (
        errors.GatewayOverloaded("m", retry_after=1),
        529,
        "overloaded_error",
        {"retry-after": "1", "connection": "close"},
    ),
    "provider": (errors.UpstreamFailed("m"), 502, "api_error", {}),
    "Codex gone": (errors.BackendLost("m"), 503, "api_error", {}),
    "Codex acted": (errors.CodexActed("m"), 502, "api_error", NEVER),
    "timeout": (errors.TurnTimeout("m"), 504, "timeout_error", {}),
    "our fault": (errors.InternalFault("m"), 500, "api_error", {}),
}


@pytest.mark.promise("anthropic.errors")
@pytest.mark.parametrize("name", TOLD)
def test_an_error_has_the_shape_of_anthropics(name: str) -> None:
    error, status, kind, headers = TOLD[name]
    body: JsonObject = {"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "req_1"}
    assert (status_of(error), headers_of(error), error_body(error, "req_1")) == (status, headers, body)


@pytest.mark.promise("anthropic.errors", "anthropic.errors.too-long", "anthropic.thinking")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.InvalidRequest("Wrong.", param="tools[0]"), "tools[0]: Wrong."),
        (errors.InvalidRequest("Wrong 'tools[0]'.", param="tools[0]"), "Wrong 'tools[0]'."),
        (errors.ContextTooLong("Too much.", param="input"), "prompt is too long: Too much."),
        (
            errors.InvalidRequest("Cannot decrypt.", code="invalid_encrypted_content"),
            "Cannot decrypt. The thinking blocks are bound to a different conversation.",
        ),
        (errors.InvalidRequest("x" * 5000), f"{'x' * 4000}..."),
    ],
)
def test_the_message_says_what_clients_look_for(error: errors.GatewayError, message: str) -> None:
    told = error_body(error, "req_1")["error"]
    assert isinstance(told, dict)
    assert told["message"] == message
