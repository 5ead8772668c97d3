"""`ask`, `models` and `status` with a gateway that answers what a real one answers rarely."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_gateway import NOT_READY, READY, Gateway, fake_gateway
from turnbridge.cli import account
from turnbridge.cli import status as status_module
from turnbridge.cli.gateway_client import configured_endpoint
from turnbridge.codex.account import Account, Identity, PlanLimit
from turnbridge.codex.protocol.messages import RateLimitWindow
from turnbridge.settings.fields import load_settings
from turnbridge.turn.errors import BackendUnavailable

LOGGED_IN = Identity(account=Account(type="chatgpt", email="a@b.test"), login_needed=True, provider="openai")
NOBODY = Identity(account=None, login_needed=True, provider="openai")


def event(**fields: object) -> bytes:
    return f"event: {fields['type']}\ndata: {json.dumps(fields)}\n\n".encode()


DELTA = event(type="response.output_text.delta", delta="Hel")


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with fake_gateway(tmp_path, monkeypatch) as server:
        yield server


@pytest.mark.promise("commands.ask")
def test_the_question_is_the_words_and_the_pipe(gateway: Gateway) -> None:
    gateway.answers["/v1/responses"] = 200, DELTA + b": keepalive\n\n" + event(type="response.completed")
    asked = gateway.run("ask", "--model", "m", "Why", "this?", stdin="\nIt broke.\n")
    assert (asked.exit_code, asked.output) == (0, "Hel\n")
    body = {"model": "m", "input": "Why this?\n\nIt broke.", "stream": True, "store": False}
    assert gateway.asked[-1] == ("/v1/responses", "Bearer sk-x", body)


@pytest.mark.promise("commands.ask")
@pytest.mark.parametrize(
    ("status", "data", "out", "told"),
    [
        (429, b'{"error": {"message": "Too many."}}', "", "Too many.\n"),
        (500, b"oops", "", "The gateway answered with status 500.\n"),
        (500, b"[1]", "", "The gateway answered with status 500.\n"),
        (200, DELTA, "Hel\n", "The connection to the gateway broke off.\n"),
        (200, DELTA + event(type="error", message="It broke."), "Hel\n", "It broke.\n"),
        (200, event(type="response.failed", response={"error": {"message": "No."}}), "", "No.\n"),
        (200, DELTA + event(type="response.incomplete"), "Hel\n", "The answer is incomplete.\n"),
        (200, b"data: {broken\n\n", "", "The gateway answered with something that is not JSON.\n"),
    ],
)
def test_an_answer_that_fails_is_told_after_what_was_said(
    gateway: Gateway, status: int, data: bytes, out: str, told: str
) -> None:
    gateway.answers["/v1/responses"] = status, data
    asked = gateway.run("ask", "Hello!")
    assert (asked.exit_code, asked.stdout, asked.stderr) == (1, out, told)


def test_a_whole_answer_that_failed_is_printed_and_told(gateway: Gateway) -> None:
    gateway.answers["/v1/responses"] = 200, b'{"error":{"message":"No."}}'
    asked = gateway.run("ask", "--json", "Hello!")
    assert (asked.exit_code, asked.stdout, asked.stderr) == (1, '{"error":{"message":"No."}}\n', "No.\n")


@pytest.mark.promise("commands.models")
def test_models_are_a_table(gateway: Gateway) -> None:
    models = [
        {"id": "gpt-x", "context_window": 1000, "reasoning_efforts": ["low", "high"], "description": "A model."},
        {"id": "y"},
    ]
    gateway.answers["/v1/models"] = 200, json.dumps({"data": models}).encode()
    assert gateway.run("models").output == (
        "MODEL  CONTEXT  EFFORTS   DESCRIPTION\n"  #
        "gpt-x  1000     low,high  A model.\n"
        "y      -        -\n"
    )
    gateway.answers["/v1/models"] = 401, b'{"error": {"message": "Wrong key."}}'
    refused = gateway.run("models")
    assert (refused.exit_code, refused.stdout, refused.stderr) == (1, "", "Wrong key.\n")


@pytest.mark.promise("commands.status")
@pytest.mark.parametrize(
    ("readiness", "identity", "line", "steps"),
    [
        (READY, LOGGED_IN, "ready on", ["ask", "models", "connect"]),
        (READY, NOBODY, "ready on", ["ask", "login", "connect"]),
        (READY, None, "ready on", ["ask", "models", "connect"]),
        (
            (503, b'{"status": "not_ready", "reason": "Why."}'),
            NOBODY,
            "it waits for a login",
            ["login", "doctor", "connect"],
        ),
        (NOT_READY, LOGGED_IN, "not ready: Why.", ["doctor", "ask", "connect"]),
        ((200, b"<html>"), LOGGED_IN, "Something else than Turnbridge", ["serve", "ask", "doctor"]),
        ((200, b"<html>"), None, "Something else than Turnbridge", ["doctor", "serve --demo", "login"]),
    ],
)
def test_the_next_steps_depend_on_the_state(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    readiness: tuple[int, bytes],
    identity: Identity | None,
    line: str,
    steps: list[str],
) -> None:
    def account_of(_: object) -> tuple[Identity, tuple[PlanLimit, ...], None]:
        if identity is None:
            raise BackendUnavailable("Codex is broken.")
        return identity, (PlanLimit(primary=RateLimitWindow(used_percent=5)),), None

    monkeypatch.setattr(status_module, "account_of", account_of)
    gateway.answers["/readyz"] = readiness
    shown = gateway.run("status")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert line in shown.stdout
    assert ("Account  unknown: Codex is broken." in shown.stdout) == (identity is None)
    state = json.loads(gateway.run("status", "--json").stdout)
    assert [step in told["command"] for step, told in zip(steps, state["next"], strict=True)] == [True] * 3


@pytest.mark.promise("commands.login.noticed")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([READY], "uses it within half a minute."),
        ([NOT_READY, NOT_READY, READY], "is ready."),
        ([NOT_READY], "is not ready yet. See: "),
        ([(200, b"<html>")], ""),
    ],
    ids=["another login", "first login", "slow", "something else"],
)
def test_a_login_tells_when_the_gateway_has_noticed_it(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[tuple[int, bytes]],
    told: str,
) -> None:
    monkeypatch.setattr(account, "POLL_S", 0.001)
    monkeypatch.setattr(account, "NOTICE_S", 0.1 if answers[-1] is NOT_READY else 30)
    gateway.readiness = answers
    account.wait_for_gateway(configured_endpoint(load_settings()))
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:1/v1"), ("::", "http://[::1]:1/v1"), ("localhost", "http://localhost:1/v1")],
)
def test_a_gateway_on_every_address_is_called_on_loopback(tmp_path: Path, host: str, url: str) -> None:
    settings = load_settings(PROXY_HOST=host, PORT=1, PROXY_DATA_DIR=tmp_path)
    assert configured_endpoint(settings).base_url == url
