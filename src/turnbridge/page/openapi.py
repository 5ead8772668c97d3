"""The page's JSON API as `/openapi.json` describes it: the bodies that it reads, and its answers."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from turnbridge.api.openapi.gateway import USAGE
from turnbridge.api.openapi.operations import Operation
from turnbridge.api.openapi.schemas import (
    ANY_OBJECT,
    FLAG,
    NUMBER,
    TEXT,
    an_object,
    array,
    one_of,
    optional,
    ref,
)
from turnbridge.turn.clients import DEFAULT_ACCOUNT
from turnbridge.turn.items import JsonObject
from turnbridge.web.http import PAGE_PREFIX

API = f"{PAGE_PREFIX}api"
TAG = "Page"


class CodeBody(msgspec.Struct, kw_only=True):
    """The code of a link."""

    code: str = ""


class AccountBody(msgspec.Struct, kw_only=True):
    """Which account."""

    account: str = DEFAULT_ACCOUNT


class LoginBody(msgspec.Struct, kw_only=True):
    """How to log in."""

    method: Literal["browser", "device", "api_key"]
    account: str = DEFAULT_ACCOUNT
    api_key: str = ""


class KeyName(msgspec.Struct, kw_only=True):
    """Which key."""

    name: str


class KeyBody(KeyName, kw_only=True):
    """A key and its limits, as `turnbridge keys` reads them; `none` is no limit."""

    models: str | None = None
    rate: str | None = None
    turns: str | None = None
    tokens: str | None = None
    expires: str | None = None
    admin: bool | None = None


class NewKeyBody(KeyBody, kw_only=True):
    """A key to make; its account is for life."""

    account: str | None = None


DECIMAL: JsonObject = {"type": "number"}
PERCENTILES = optional(an_object("Milliseconds.", {"p50": DECIMAL, "p90": DECIMAL, "p99": DECIMAL}))
WINDOW = an_object(
    "A window of the plan.",
    {
        "window": TEXT,
        "used_percent": DECIMAL,
        "window_minutes": optional(NUMBER),
        "resets_at": optional(NUMBER),
    },
)
ACCOUNT: Mapping[str, JsonObject] = {
    "name": TEXT,
    "ready": FLAG,
    "reason": TEXT,
    "login_at": optional(DECIMAL),
    "limits": array(WINDOW),
}
ONE_ACCOUNT: Mapping[str, JsonObject] = {"account": TEXT}
KEY = an_object(
    "A key; `key` itself is there when it is new.",
    {"name": TEXT, "hint": TEXT, "state": TEXT, "admin": FLAG, "models": optional(array(TEXT)), "key": TEXT},
    lacks=("key",),
)
LOGIN = an_object(
    "A login.",
    {
        "state": one_of("none", "pending", "done", "failed"),
        "url": optional(TEXT),
        "code": optional(TEXT),
        "problem": optional(TEXT),
    },
)
SCHEMAS: Mapping[str, JsonObject] = {
    "PageSession": an_object("A session, beside its cookie.", {"token": TEXT, "client": TEXT, "owner": FLAG}),
    "PageClosed": an_object("The session has ended.", {"closed": FLAG}),
    "PageState": an_object(
        "Whether turns run.",
        {
            "ready": FLAG,
            "reason": TEXT,
            "fidelity": TEXT,
            "codex_version": optional(TEXT),
            "version": TEXT,
            "client": TEXT,
            "owner": FLAG,
            "demo": FLAG,
            "traced": FLAG,
            "others": ANY_OBJECT,
        },
    ),
    "PageFigures": an_object(
        "Errors and latencies of the last requests.",
        {
            "since": NUMBER,
            "requests": NUMBER,
            "errors": array(an_object("An error.", {"code": TEXT, "count": NUMBER})),
            "latencies": array(
                an_object(
                    "A model.",
                    {"model": TEXT, "requests": NUMBER, "first_output_ms": PERCENTILES, "total_ms": PERCENTILES},
                )
            ),
        },
    ),
    "PageAccounts": an_object("The accounts.", {"accounts": array(an_object("An account.", ACCOUNT))}),
    "PageAccount": an_object(
        "An account and its plan; who is logged in, if Codex could be asked.",
        {**ACCOUNT, "limits_problem": optional(TEXT), "login": ref("PageLogin")},
    ),
    "PageLogout": an_object("Who was logged in, if anybody was.", {"logged_out": FLAG}),
    "PageLogin": LOGIN,
    "PageSettings": an_object("The settings.", {"settings": array(ANY_OBJECT)}),
    "PageKey": an_object("The owner's key.", {"key": TEXT}),
    "PageClients": an_object("Settings of clients.", {"clients": array(ANY_OBJECT), "hidden_key": TEXT}),
    "PageChecks": an_object("The checks of `turnbridge doctor`.", {"checks": array(ANY_OBJECT)}),
    "PageTimeline": an_object(
        "A traced request: its messages, and what the client sent, Codex was told and the model saw.",
        {
            "request_id": TEXT,
            "rows": array(ANY_OBJECT),
            "client": array(ANY_OBJECT),
            "codex": array(ANY_OBJECT),
            "model": array(ANY_OBJECT),
        },
    ),
    "IssuedKey": KEY,
    "IssuedKeys": an_object("The keys.", {"keys": array(ref("IssuedKey"))}),
}


ROWS: Mapping[tuple[str, str], Operation] = {
    ("POST", f"{API}/code"): Operation(
        summary="Open a session by the code of a link.", tag=TAG, answer="PageSession", body=CodeBody, open=True
    ),
    ("POST", f"{API}/session"): Operation(
        summary="Open a session by the key of the request.", tag=TAG, answer="PageSession"
    ),
    ("DELETE", f"{API}/session"): Operation(summary="End the session.", tag=TAG, answer="PageClosed"),
    ("GET", f"{API}/state"): Operation(summary="Say whether turns run.", tag=TAG, answer="PageState"),
    ("GET", f"{API}/models"): Operation(summary="List the models.", tag=TAG, answer="ModelList"),
    ("GET", f"{API}/usage"): Operation(
        summary="Return the usage, as /v1/organization/usage/completions does.",
        tag=TAG,
        answer="UsagePage",
        query=USAGE.query,
    ),
    ("GET", f"{API}/figures"): Operation(
        summary="Return errors by code and percentiles of latencies by model.", tag=TAG, answer="PageFigures"
    ),
    ("GET", f"{API}/live"): Operation(
        summary="Stream the last requests, new ones as they end, and gauges as they change.", tag=TAG, streams=True
    ),
    ("GET", f"{API}/connect"): Operation(
        summary="Return the settings of clients.", tag=TAG, answer="PageClients", query={"origin": TEXT}
    ),
    ("GET", f"{API}/accounts"): Operation(
        summary="List the accounts, as far as they are known without asking Codex (owner).",
        tag=TAG,
        answer="PageAccounts",
    ),
    ("GET", f"{API}/account"): Operation(
        summary="Ask Codex about an account and its plan (owner).", tag=TAG, answer="PageAccount", query=ONE_ACCOUNT
    ),
    ("POST", f"{API}/login"): Operation(
        summary="Begin a login to an account, which is made if there is none (owner).",
        tag=TAG,
        answer="PageLogin",
        body=LoginBody,
    ),
    ("GET", f"{API}/login"): Operation(
        summary="Return the pending login to an account (owner).", tag=TAG, answer="PageLogin", query=ONE_ACCOUNT
    ),
    ("DELETE", f"{API}/login"): Operation(
        summary="Cancel the pending login to an account (owner).", tag=TAG, answer="PageLogin", query=ONE_ACCOUNT
    ),
    ("POST", f"{API}/logout"): Operation(
        summary="Revoke and forget the login of an account (owner).", tag=TAG, answer="PageLogout", body=AccountBody
    ),
    ("GET", f"{API}/settings"): Operation(
        summary="Return the effective settings (owner).", tag=TAG, answer="PageSettings"
    ),
    ("GET", f"{API}/key"): Operation(summary="Return the owner's key (owner).", tag=TAG, answer="PageKey"),
    ("POST", f"{API}/doctor"): Operation(
        summary="Run the checks of `turnbridge doctor` (owner).", tag=TAG, answer="PageChecks"
    ),
    ("GET", f"{API}/timeline"): Operation(
        summary="Return a traced request (owner).", tag=TAG, answer="PageTimeline", query={"id": TEXT}
    ),
    ("GET", f"{API}/keys"): Operation(summary="List the keys (owner).", tag=TAG, answer="IssuedKeys"),
    ("POST", f"{API}/keys"): Operation(summary="Make a key (owner).", tag=TAG, answer="IssuedKey", body=NewKeyBody),
    ("POST", f"{API}/keys/limits"): Operation(
        summary="Change the limits of a key that are given (owner).", tag=TAG, answer="IssuedKey", body=KeyBody
    ),
    ("POST", f"{API}/keys/rotate"): Operation(
        summary="Replace a key (owner).", tag=TAG, answer="IssuedKey", body=KeyName
    ),
    ("POST", f"{API}/keys/revoke"): Operation(summary="Stop a key (owner).", tag=TAG, answer="IssuedKey", body=KeyName),
}
